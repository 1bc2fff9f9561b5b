"""Windows of models, and what happens when a context is full or too large (document 002)."""

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
"""The windows that document 002 prints, in tokens."""

_DATE = re.compile(r"-\d{8}\Z")


def get_model_limit(model: str) -> int:
    """The context window of a model in tokens (document 002).

    The printed number for a printed name, with or without a date at its end; else what the snapshot of models says; else
    128,000.
    """
    printed = MODEL_LIMITS.get(_DATE.sub("", model))
    return printed if printed is not None else resolve(model).context_tokens


def ensure_budget(
    nx: Engine, budget: TokenBudget, session_label: str, *, high_mark: float = COMPACT_AT, **request: Any
) -> dict[str, bool]:
    """Compacts the session to 60 % of what is available when it takes more than `high_mark` of it (document 002).

    `high_mark=1.0` is the document's letter: only when nothing would remain. What counts is the context with nothing left
    out: assembly has cut one that was too large, so that its own `remaining` is never below zero. `request` is what
    `nx.assemble` takes (model, tools, profile); the available tokens are the budget's. Says whether it did.
    """
    if budget.wanted <= high_mark * budget.available and budget.wanted < budget.available:
        return {"compacted": False}
    done = trigger_compaction(
        nx, session_label, int(COMPACT_TO * budget.available), "context_limit", **_of(budget), **request
    )
    return {"compacted": bool(done)}


def handle_overflow(
    nx: Engine, session_label: str, budget: TokenBudget, *, trigger: Trigger = "overflow_recovery", **request: Any
) -> CompactionOutcome:
    """Compacts the session to 40 % of what is available, for one retry (document 002). `retry_overflow` retries too."""
    return trigger_compaction(nx, session_label, int(RECOVER_TO * budget.available), trigger, **_of(budget), **request)


def retry_overflow(
    nx: Engine, ctx: AssembledContext, error: object, send: Callable[[AssembledContext], Any], **request: Any
) -> Answer:
    """Compacts to 40 % and sends again; cuts and sends again; then raises ContextOverflow. See `nexus.recovery`."""
    return recover(nx, ctx, error, send, **request)


def trigger_compaction(
    nx: Engine, session_label: str, target_tokens: int, trigger: Trigger = "manual", **request: Any
) -> CompactionOutcome:
    """Compacts a session so that its context comes down to `target_tokens` provider tokens (document 002)."""
    available = nx.available(**request)
    return nx.compact(session_label, share=min(target_tokens / available, 1.0), trigger=trigger, **request)


def _of(budget: TokenBudget) -> dict[str, int]:
    """The tokens that were set as available, if they were."""
    return {"budget": budget.available} if budget.direct else {}
