"""Context windows of models, and compaction when a context is full or too large (document 002)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from nexus.compaction import CompactionOutcome
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.recovery import Answer, recover
from nexus.tokens.budget import TokenBudget
from nexus.tokens.model import resolve
from nexus.types.compaction_plan import COMPACT_AT, COMPACT_TO, RECOVER_TO, Trigger

MODEL_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "claude-sonnet-4": 200_000,
        "claude-opus-4": 200_000,
        "gpt-4o": 128_000,
        "o1": 200_000,
        "o3": 200_000,
    }
)
"""Context windows that document 002 prints, in tokens."""

_DATE = re.compile(r"-\d{8}\Z")


def get_model_limit(model: str) -> int:
    """Return the context window of a model in tokens (document 002).

    The printed number for a printed name, with or without a date at its end; else the shipped model table's; else
    128,000.
    """
    printed = MODEL_LIMITS.get(_DATE.sub("", model))
    return printed if printed is not None else resolve(model).context_tokens


def ensure_budget(
    nx: Engine, budget: TokenBudget, session_label: str, *, high_mark: float = COMPACT_AT, **request: Any
) -> dict[str, bool]:
    """Compact the session to 60 % of the available tokens if it takes more than `high_mark` of them (document 002).

    The size that counts is the context's without omissions: assembly has already cut one that was too large, so its own
    `remaining` is never below zero.

    Args:
        nx: The engine.
        budget: The token budget of a context.
        session_label: The session's label.
        high_mark: Share of the available tokens. 1.0 is the document's rule: only when no token would remain.
        **request: Arguments of `nx.assemble`, such as model, tools and profile.

    Returns:
        Whether it compacted, under the key `compacted`.
    """
    if budget.wanted <= high_mark * budget.available and budget.wanted < budget.available:
        return {"compacted": False}
    outcome = trigger_compaction(
        nx, session_label, int(COMPACT_TO * budget.available), "context_limit", **_budget_argument(budget), **request
    )
    return {"compacted": bool(outcome)}


def handle_overflow(
    nx: Engine, session_label: str, budget: TokenBudget, *, trigger: Trigger = "overflow_recovery", **request: Any
) -> CompactionOutcome:
    """Compact the session to 40 % of the available tokens for a retry (document 002)."""
    return trigger_compaction(
        nx, session_label, int(RECOVER_TO * budget.available), trigger, **_budget_argument(budget), **request
    )


def retry_overflow(
    nx: Engine, ctx: AssembledContext, error: object, send: Callable[[AssembledContext], Any], **request: Any
) -> Answer:
    """Compact to 40 % and retry, then cut and retry, then raise ContextOverflow; see `nexus.recovery.recover`."""
    return recover(nx, ctx, error, send, **request)


def trigger_compaction(
    nx: Engine, session_label: str, target_tokens: int, trigger: Trigger = "manual", **request: Any
) -> CompactionOutcome:
    """Compact a session so that its context takes at most `target_tokens` provider tokens (document 002)."""
    available = nx.available(**request)
    return nx.compact(session_label, share=min(target_tokens / available, 1.0), trigger=trigger, **request)


def _budget_argument(budget: TokenBudget) -> dict[str, int]:
    """Return the available tokens as an argument of `assemble`, if the caller had set them."""
    return {"budget": budget.available} if budget.direct else {}
