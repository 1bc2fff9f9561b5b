"""Compaction: read the covered messages, summarize them, store the summary.

Nothing is deleted and no lock is held while a summary is written, so appends continue. A checkpoint that lands first
(another compaction, an undo, a clear) supersedes this one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Event

from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.history_operations import Ledger
from nexus.ledger.replay import conversation_rows
from nexus.summarization.summarizer import FallbackSummarizer, RejectedSummary, Summarizer, SummaryReply, SummaryRequest
from nexus.text.frames import escape
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.compaction_plan import CompactionPlan
from nexus.types.history import SUMMARY_MARKER
from nexus.types.message import Message, Text

__all__ = [
    "CompactionOutcome",
    "FallbackSummarizer",
    "RejectedSummary",
    "Summarizer",
    "SummaryReply",
    "SummaryRequest",
    "run_compaction",
]


class CompactionOutcome(Struct, frozen=True):
    """Result of a compaction; false if nothing was stored. Tokens are the provider's.

    The JSON keys of `nexus compact --json` stay as they are: `by`, `why` and `tries`.
    """

    entry: int = 0
    """Ledger entry of the compaction; 0 if nothing was stored."""
    method: str = ""
    """Name of the summarizer that wrote the summary."""
    summary: str = ""
    reason: str = ""
    """Why nothing was stored."""
    messages: int = 0
    tokens_before: int = 0
    """Tokens of the complete prompt, as `tokens_after`."""
    tokens_after: int = 0
    summary_tokens: int = 0
    call_tokens: int = 0
    """Tokens of the calls to a model, accepted or not."""
    duration_ms: int = 0
    attempts: tuple[RejectedSummary, ...] = ()
    """Rejected attempts, in order."""
    memory: str = ""
    """What consolidation did, one line; empty if it is off or found nothing."""

    def __bool__(self) -> bool:
        return self.entry > 0


NOTHING = CompactionOutcome(reason="nothing to summarize that would make the context noticeably smaller")


def run_compaction(
    plan: CompactionPlan,
    ledger: Ledger,
    summarizer: FallbackSummarizer,
    counter: TokenCounter,
    *,
    focus: str = "",
    progress: Callable[[int, int], None] | None = None,
    cancel: Event | None = None,
) -> CompactionOutcome:
    """Summarize the messages that the plan covers and store the compaction.

    Args:
        plan: Messages to cover, and the state of the session for which that was decided.
        ledger: Source of the messages; receives the compaction.
        summarizer: Writes the summary.
        counter: Counts base tokens.
        focus: Subjects that the user wants kept.
        progress: Called with the number of finished parts and of all parts.
        cancel: Once it is set, nothing is stored and SummaryCanceled is raised.

    Raises:
        CompactionSuperseded, HeadMoved: The session changed while the summary was written; nothing is stored.
    """
    started = time.monotonic()
    # The session's opening instructions are never summarized.
    entries = ledger.entries(plan.session, plan.start.seq - 1, plan.until.seq)
    rows = [row for entry in entries for row in conversation_rows(entry) if plan.start <= row.ref < plan.until]
    result = summarizer.summary(rows, plan.previous, plan.summary_tokens, focus=focus, progress=progress, cancel=cancel)
    duration_ms = int((time.monotonic() - started) * 1000)
    # Formats show the summary differently; a message of its own with a marker is the largest of them.
    message = Message("user", (Text(f"{SUMMARY_MARKER}\n{escape(result.text)}"),))
    after = plan.kept_tokens + message_tokens(message, counter).tokens
    outcome = CompactionOutcome(call_tokens=result.call_tokens, duration_ms=duration_ms, attempts=result.attempts)
    if not result.text or after >= plan.tokens_before:
        reason = "the summary is not smaller than its source; the next call truncates the history instead"
        return replace(outcome, reason=reason)
    tokens_before = math.ceil(plan.tokens_before * plan.factor)
    tokens_after = math.ceil(after * plan.factor)
    summary_tokens = math.ceil(counter.count(result.text) * plan.factor)
    compaction = replace(
        plan.draft,
        summary=result.text,
        type="summary" if result.model else "extractive",
        model=result.model or result.rejected_model,  # its calls are paid either way
        provider=result.provider,
        tokens_before=tokens_before,
        tokens_after=tokens_after,
        summary_tokens=summary_tokens,
        call_tokens=result.call_tokens,
        call_output_tokens=result.output_tokens if result.call_tokens else None,
        duration_ms=duration_ms,
    )
    follows = (plan.head, bytes.fromhex(plan.head_hash))
    commit = ledger.compact(plan.session, compaction, after_checkpoint=plan.after_mark, follows=follows)
    return replace(
        outcome,
        entry=commit.head,
        method=result.by,
        summary=result.text,
        messages=plan.messages,
        tokens_before=tokens_before,
        tokens_after=tokens_after,
        summary_tokens=summary_tokens,
    )
