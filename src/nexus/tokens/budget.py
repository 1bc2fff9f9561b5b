"""Token budget of one call: the window, the reserves, the used and the remaining tokens.

`compute_budget` divides a window before anything is counted; `with_used` fills in the counts. Totals and remainders are
computed, so they cannot contradict the parts. Python names are snake_case; `to_json` gives the documented camelCase.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nexus.errors import BadSetting
from nexus.tokens.model import Model

RESERVE_RESPONSE_TOKENS = 8_000
RESERVE_TOOLS_TOKENS = 16_000
_RESERVED_PART = 8
"""Each default reserve is at most an eighth of the window, so that small models keep tokens for the conversation."""

_UNDOCUMENTED = ("direct", "uncut")
"""Fields that `to_json` leaves out: the documented budget does not have them."""


class TokensUsed(Struct, frozen=True, rename="camel"):
    """Tokens taken by each part of a context."""

    system_prompt: int = 0
    tools: int = 0
    """Tool definitions."""
    history: int = 0
    event: int = 0
    """The current message."""

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.system_prompt + self.tools + self.history + self.event


class TokenBudget(Struct, frozen=True, rename="camel"):
    """Budget of one call, in tokens."""

    model_limit: int
    """The model's whole context window."""
    reserve_response: int
    reserve_tools: int
    """For tool results that arrive during the turn."""
    available: int
    """What the context may take: the window less both reserves, at most what the model accepts as input, or what the user
    set."""
    used: TokensUsed = TokensUsed()
    direct: bool = False
    """True if the user set `available`."""
    uncut: int = 0
    """Tokens of everything without the cut that this call makes; 0 if it makes none."""

    @property
    def wanted(self) -> int:
        """Tokens that the context would take with nothing omitted."""
        return max(self.uncut, self.used.total)

    @property
    def remaining(self) -> int:
        """Unused part of `available`; negative if the context is over budget."""
        return self.available - self.used.total

    def with_used(self, *, system_prompt: int = 0, tools: int = 0, history: int = 0, event: int = 0) -> TokenBudget:
        """Return the same budget with these parts used."""
        return msgspec.structs.replace(self, used=TokensUsed(system_prompt, tools, history, event))

    def to_json(self) -> dict[str, int | dict[str, int]]:
        """Return the budget under its documented names, `used.total` and `remaining` included."""
        used: dict[str, int] = {**msgspec.to_builtins(self.used), "total": self.used.total}
        documented = {name: value for name, value in msgspec.to_builtins(self).items() if name not in _UNDOCUMENTED}
        return {**documented, "used": used, "remaining": self.remaining}


def compute_budget(
    model: Model,
    available_tokens: int | None = None,
    reserve_response: int | None = None,
    reserve_tools: int | None = None,
) -> TokenBudget:
    """Return the budget of a call to a model, with nothing used yet.

    Default reserves are 8,000 tokens for the reply and 16,000 for tool results, each at most an eighth of the window.
    `available_tokens` sets the context's limit directly, whatever the reserves are. Raises BadSetting for a negative reserve,
    for nothing available, and for reserves that take the whole window.
    """
    window = model.context_tokens
    if reserve_response is None:
        response = min(RESERVE_RESPONSE_TOKENS, window // _RESERVED_PART)
    else:
        response = reserve_response
    if reserve_tools is None:
        results = min(RESERVE_TOOLS_TOKENS, window // _RESERVED_PART)
    else:
        results = reserve_tools
    if response < 0 or results < 0:
        raise BadSetting(
            f"negative reserve: {response:,} tokens for the reply, {results:,} for tool results", code="bad_budget"
        )
    if available_tokens is not None:
        if available_tokens <= 0:
            raise BadSetting(f"budget of {available_tokens:,} tokens too small (set one above zero)", code="bad_budget")
        return TokenBudget(window, response, results, available_tokens, direct=True)
    # Some models take less input than their window less the reply (GPT-5: 272,000 of 400,000).
    available = min(window - response, model.max_input_tokens) - results
    if available <= 0:
        raise BadSetting(
            f"reserves too large: {response:,} tokens for the reply and {results:,} for tool results of "
            f"{min(window, model.max_input_tokens):,} that {model.name or 'the model'} takes (make them smaller)",
            code="bad_budget",
        )
    return TokenBudget(window, response, results, available)
