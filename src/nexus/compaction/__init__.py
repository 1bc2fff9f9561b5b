"""Carrying out a compaction: read what the plan covers, have it summarised, store the summary.

Nothing is deleted and no lock is held meanwhile: appends go on, and a mark that comes first (another compaction, an undo,
a clear) makes this one void.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgspec import Struct

from nexus.compaction.fallback import Attempt, FallbackSummarizer
from nexus.compaction.summarizer import ExtractiveSummarizer, Summarizer, SummaryReply, SummaryRequest
from nexus.ledger.operations import Ledger
from nexus.ledger.replay import conversation_rows
from nexus.text.frames import escape
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.compaction_plan import CompactionPlan
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import Compaction, StoredMessage
from nexus.types.message import Message, Text

__all__ = [
    "Attempt",
    "CompactionOutcome",
    "ExtractiveSummarizer",
    "FallbackSummarizer",
    "Summarizer",
    "SummaryReply",
    "SummaryRequest",
    "run_compaction",
]


class CompactionOutcome(Struct, frozen=True):
    """What a compaction did. `entry` is where it stands in the ledger; 0 if nothing was stored, and `why` says why.

    `by` is who wrote the summary, `tries` what was tried before and why it was not taken. Tokens are the provider's:
    of the whole prompt before and after, of the summary, and of the calls to a model.
    """

    entry: int = 0
    method: str = ""
    summary: str = ""
    reason: str = ""
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    summary_tokens: int = 0
    call_tokens: int = 0
    duration_ms: int = 0
    attempts: tuple[Attempt, ...] = ()

    def __bool__(self) -> bool:
        return self.entry > 0


NOTHING = CompactionOutcome(reason="there is nothing to summarise that would make the context noticeably smaller")


def run_compaction(
    plan: CompactionPlan,
    ledger: Ledger,
    ladder: FallbackSummarizer,
    counter: TokenCounter,
    *,
    focus: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> CompactionOutcome:
    """Summarises what the plan covers and stores the compaction. `progress` hears of parts done, of how many.

    Raises CompactionSuperseded or HeadMoved when the session was changed otherwise meanwhile; then nothing is stored.
    """
    begun = time.monotonic()
    rows = covered_messages(plan, ledger)
    written = ladder.summary(rows, plan.previous, plan.summary_tokens, focus=focus, progress=progress)
    duration_ms = int((time.monotonic() - begun) * 1000)
    tokens = counter.count(written.text)
    # In the prompt it is a message of its own, with a marker before it: of the forms, the largest.
    shown = Message("user", (Text(f"{SUMMARY_MARKER}\n{escape(written.text)}"),))
    after = plan.kept_tokens + message_tokens(shown, counter).tokens
    if not written.text or after >= plan.tokens_before:
        why = "no summary of what could be left out is smaller than it: the next call cuts instead"
        return CompactionOutcome(
            reason=why, attempts=written.attempts, call_tokens=written.call_tokens, duration_ms=duration_ms
        )
    before, after, size = (math.ceil(part * plan.factor) for part in (plan.tokens_before, after, tokens))
    compaction = Compaction(
        plan.covers_from,
        plan.covers_to,
        plan.first_kept,
        written.text,
        type="summary" if written.model else "extractive",
        trigger=plan.trigger,
        model=written.model,
        provider=written.provider,
        tokens_before=before,
        tokens_after=after,
        summary_tokens=size,
        call_tokens=written.call_tokens,
        duration_ms=duration_ms,
        kept_ord=plan.kept_ord,
        asked=plan.asked,
    )
    follows = (plan.head, bytes.fromhex(plan.head_hash))
    done = ledger.compact(plan.session, compaction, after_mark=plan.after_mark, follows=follows)
    return CompactionOutcome(
        done.head,
        written.by,
        written.text,
        messages=plan.messages,
        tokens_before=before,
        tokens_after=after,
        summary_tokens=size,
        call_tokens=written.call_tokens,
        duration_ms=duration_ms,
        attempts=written.attempts,
    )


def covered_messages(plan: CompactionPlan, ledger: Ledger) -> list[StoredMessage]:
    """The messages that a plan covers, without the instructions that open a session: those are never summarised."""
    entries = ledger.entries(plan.session, plan.covers_from - 1, plan.first_kept)
    return [row for entry in entries for row in conversation_rows(entry) if plan.start <= row.place < plan.until]
