"""The token budget of one call (document 002): what the window leaves, what is used, what remains.

`plan` allots a window before anything is counted; `with_used` fills in the counts. Total and remainder are computed, so
they cannot contradict the parts. Python names are snake_case; `to_json` gives the document's printed camelCase.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nexus.errors import BadBudget
from nexus.tokens.model import Model

RESERVE_RESPONSE_TOKENS = 8_000
RESERVE_TOOLS_TOKENS = 16_000
_RESERVED_PART = 8
"""Reserves are at most an eighth of the window each, so that small models keep room for the talk itself."""

_OWN = ("direct", "uncut")
"""Fields that document 002 does not print."""


class TokensUsed(Struct, frozen=True, rename="camel"):
    """Tokens taken by each part of a context. `tools` are the definitions of the tools, `event` the current message."""

    system_prompt: int = 0
    tools: int = 0
    history: int = 0
    event: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.system_prompt + self.tools + self.history + self.event


class TokenBudget(Struct, frozen=True, rename="camel"):
    """The budget of one call, in tokens.

    `model_limit` is the model's whole window; `reserve_response` is kept for the reply, `reserve_tools` for results of
    tools that come in during the turn. `available` is what the context may take: the window less both reserves, never
    more than the model accepts as input; or what the user set, and then `direct` is true. `uncut` is what everything
    would take without the cut that this call makes; 0 if it makes none.
    """

    model_limit: int
    reserve_response: int
    reserve_tools: int
    available: int
    used: TokensUsed = TokensUsed()
    direct: bool = False
    uncut: int = 0

    @property
    def wanted(self) -> int:
        """The tokens that the context would take with nothing left out."""
        return max(self.uncut, self.used.total)

    @property
    def remaining(self) -> int:
        """What is left of `available`; negative when the context is over budget."""
        return self.available - self.used.total

    def with_used(self, *, system_prompt: int = 0, tools: int = 0, history: int = 0, event: int = 0) -> TokenBudget:
        """The same budget with these parts used."""
        return msgspec.structs.replace(self, used=TokensUsed(system_prompt, tools, history, event))

    def to_json(self) -> dict[str, int | dict[str, int]]:
        """The budget under document 002's printed names, `used.total` and `remaining` included."""
        used: dict[str, int] = {**msgspec.to_builtins(self.used), "total": self.used.total}
        printed = {name: value for name, value in msgspec.to_builtins(self).items() if name not in _OWN}
        return {**printed, "used": used, "remaining": self.remaining}


def compute_budget(
    model: Model,
    available_tokens: int | None = None,
    reserve_response: int | None = None,
    reserve_tools: int | None = None,
) -> TokenBudget:
    """The budget of a call to a model, with nothing used yet.

    Reserves that are not given are 8,000 tokens for the reply and 16,000 for tool results, each at most an eighth of
    the window. `available_tokens` sets what the context may take, whatever the reserves say. Raises BadBudget for a
    negative number, for nothing available, and for reserves that leave nothing of the window.
    """
    window = model.context_tokens
    response = min(RESERVE_RESPONSE_TOKENS, window // _RESERVED_PART) if reserve_response is None else reserve_response
    results = min(RESERVE_TOOLS_TOKENS, window // _RESERVED_PART) if reserve_tools is None else reserve_tools
    if response < 0 or results < 0:
        raise BadBudget(f"reserves cannot be negative: {response:,} for the reply, {results:,} for tool results")
    if available_tokens is not None:
        if available_tokens <= 0:
            raise BadBudget(f"a budget of {available_tokens:,} tokens leaves room for nothing: set one above zero")
        return TokenBudget(window, response, results, available_tokens, direct=True)
    # Some models take less input than their window less the reply (GPT-5: 272,000 of 400,000).
    available = min(window - response, model.max_input_tokens) - results
    if available <= 0:
        raise BadBudget(
            f"the reserves ({response:,} tokens for the reply, {results:,} for tool results) leave nothing of the "
            f"{min(window, model.max_input_tokens):,} tokens that {model.name or 'the model'} takes: make them smaller"
        )
    return TokenBudget(window, response, results, available)
