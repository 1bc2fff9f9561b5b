"""The summarizer protocol, and summaries with retries and a deterministic fallback.

A model is asked in parts that fit its window; each part updates the summary so far. Every answer is checked. A rejected
part is asked for once more with the reason, then summarized extractively. Constraints and exact names that the model
dropped are added again. Errors and timeouts count as rejections; after three in a row no model is asked for a while. The
number of calls and the time are therefore bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct
from msgspec import field as struct_field

from nexus.summarization import prompt
from nexus.summarization.check_summary import check_summary
from nexus.summarization.extractive import summary
from nexus.summarization.extractive.extract import Extract, exact_identifiers, extract
from nexus.summarization.extractive.statements import ExtractedLine
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.sanitize import sanitize_text

# Parts that a model summarizes at most; older messages are summarized extractively first.
MOST_PARTS = 8
# Attempts for each part; the second prompt is stricter and gives the reason.
TRIES = 2
# Consecutive failures after which no model is asked for PAUSE compactions.
FAILURES = 3
PAUSE = 5
_TIMEOUT_S = 120.0
_ASK_TOKENS = 1_200  # allowance for the prompt's own text, in base tokens
# A summary may exceed its limit by this factor: models count tokens badly, and a rejection costs a whole call.
_OVER = 1.25
_FIRM = 80
_POLL_S = 0.1  # between two looks whether a summary was canceled


class SummaryRequest(Struct, frozen=True):
    """Messages to summarize and the limits of the summary."""

    rows: tuple[StoredMessage, ...]
    most_tokens: int
    """Limit of the summary in base tokens."""
    previous: str = ""
    """Previous summary to update with the rows."""
    focus: str = ""
    """Subjects that the user wants kept."""
    stricter: bool = False
    """True on the second attempt."""
    refused_because: str = ""
    """Why the first attempt was rejected."""
    abandoned: threading.Event = struct_field(default_factory=threading.Event)
    """Set once nobody waits for the answer: it came too late, or the compaction was canceled."""


class SummaryReply(Struct, frozen=True):
    """A summary, its author, and the provider's token counts of the call (0 without a model)."""

    text: str
    model: str = ""
    provider: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class Summarizer(Protocol):
    """Writes summaries. It may raise any exception; every reply is checked before it is stored."""

    @property
    def name(self) -> str:
        """Name in reports and in the ledger."""
        ...

    @property
    def call_tokens(self) -> int:
        """Largest request in base tokens, including the answer; 0 for no limit."""
        ...

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the summary. Called in a thread of its own, with a timeout."""
        ...


class RejectedSummary(Struct, frozen=True):
    """A rejected attempt: the summarizer's name and the reason."""

    method: str
    reason: str


class SummaryResult(Struct, frozen=True):
    """A summary with its author, the cost of its calls and the rejected attempts."""

    text: str
    by: str
    model: str = ""
    """Empty for a purely extractive summary."""
    provider: str = ""
    call_tokens: int = 0
    output_tokens: int = 0
    """The part of `call_tokens` that models wrote."""
    attempts: tuple[RejectedSummary, ...] = ()
    rejected_model: str = ""
    """The model of the calls, if all its replies were rejected."""


@dataclass(slots=True)
class FallbackSummarizer:
    """A model with the extractive summarizer behind it, and the model's recent failures. One for each engine."""

    counter: TokenCounter
    model: Summarizer | None = None
    timeout_s: float = _TIMEOUT_S
    failures: int = 0
    paused: int = 0

    def summary(
        self,
        rows: Sequence[StoredMessage],
        previous: str,
        most_tokens: int,
        *,
        focus: str = "",
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> SummaryResult:
        """Summarize the rows as an update of the previous summary.

        The text is empty only if not even the task fits `most_tokens`. `progress` is called with the number of finished
        parts and of all parts. Once `cancel` is set, SummaryCanceled is raised.
        """
        run = _CompactionRun(self, most_tokens, focus, cancel or threading.Event())
        model = None if self.paused else self.model
        self.paused = max(self.paused - 1, 0)
        if model is None:
            return run.extractive_result(rows, previous)
        parts: list[Sequence[StoredMessage]] = [rows]
        if model.call_tokens:
            # The prompt contains the summary so far, and the answer counts too.
            reserve = _ASK_TOKENS + most_tokens + max(self.counter.count(previous), int(most_tokens * _OVER))
            parts = list(prompt.split_chunks(rows, max(model.call_tokens - reserve, 1), self.counter))
        older = [row for part in parts[:-MOST_PARTS] for row in part]
        parts = parts[-MOST_PARTS:]
        text = previous
        if older:
            text = run.ask_extractive(older, previous)
        for number, part in enumerate(parts):
            text = run.ask_model(model, part, text) or run.ask_extractive(part, text)
            if progress is not None:
                progress(number + 1, len(parts))
        if run.model:
            return run.result(with_required_findings(text, extract(rows), most_tokens, self.counter), model.name)
        # No part was accepted: one extractive pass over all rows is better than one over each part.
        return run.extractive_result(rows, previous)


@dataclass(slots=True)
class _CompactionRun:
    """State of one compaction: cost so far and rejected attempts."""

    owner: FallbackSummarizer
    limit_tokens: int
    focus: str
    cancel: threading.Event
    attempts: list[RejectedSummary] = field(default_factory=list[RejectedSummary])
    call_tokens: int = 0
    model: str = ""
    provider: str = ""
    output_tokens: int = 0

    replied_model: str = ""
    """Model of the replies, accepted or not."""

    def ask_model(self, summarizer: Summarizer, rows: Sequence[StoredMessage], previous: str) -> str:
        """Return the model's summary of a part; empty if no attempt is accepted."""
        counter = self.owner.counter
        source = summary.source_tokens(rows, counter, previous)
        names = exact_identifiers(extract(rows))
        reason = ""
        for attempt in range(TRIES):
            if self.owner.paused:
                return ""
            request = SummaryRequest(tuple(rows), self.limit_tokens, previous, self.focus, attempt > 0, reason)
            try:
                reply = run_with_timeout(self.owner.timeout_s, summarizer, request, self.cancel)
            except SummaryCanceled:
                raise
            except Exception as error:  # noqa: BLE001  a summarizer may raise any exception; the fallback follows
                self._reject(summarizer, f"{type(error).__name__}: {error}"[:300])
                continue
            self.call_tokens += reply.input_tokens + reply.output_tokens
            self.output_tokens += reply.output_tokens
            self.replied_model = reply.model or summarizer.name
            text = reply.text.strip()
            tokens = counter.count(text)
            # The next prompt contains the reason: its wording is text that a model reads.
            reason = "; ".join(check_summary(text, tokens, source, identifiers=names).values())
            if not reason and tokens > self.limit_tokens * _OVER:
                reason = f"it has {tokens:,} tokens, {self.limit_tokens:,} are allowed"
            if not reason:
                self.owner.failures = 0
                self.model = self.replied_model
                self.provider = reply.provider
                return text
            self._reject(summarizer, reason)
        return ""

    def _reject(self, summarizer: Summarizer, reason: str) -> None:
        """Record a rejected attempt; the third in a row pauses the model."""
        self.attempts.append(RejectedSummary(summarizer.name, reason))
        self.owner.failures += 1
        if self.owner.failures >= FAILURES:
            self.owner.failures = 0
            self.owner.paused = PAUSE

    def ask_extractive(self, rows: Sequence[StoredMessage], previous: str) -> str:
        """Return the extractive summary; the previous one if nothing fits."""
        counter = self.owner.counter
        return summary.summarize(rows, self.limit_tokens, counter, previous=previous, focus=self.focus) or previous

    def extractive_result(self, rows: Sequence[StoredMessage], previous: str) -> SummaryResult:
        """Return the result of one extractive pass."""
        return self.result(self.ask_extractive(rows, previous), "extractive")

    def result(self, text: str, by: str) -> SummaryResult:
        """Return the result for a text."""
        return SummaryResult(
            text,
            by,
            self.model,
            self.provider,
            self.call_tokens,
            self.output_tokens,
            tuple(self.attempts),
            "" if self.model else self.replied_model,
        )


class SummaryTimeout(Exception):
    """A summarizer did not answer in time."""


class SummaryCanceled(Exception):
    """The compaction was canceled while its summary was written; nothing is stored."""


def run_with_timeout(
    seconds: float, summarizer: Summarizer, request: SummaryRequest, cancel: threading.Event
) -> SummaryReply:
    """Return the summarizer's answer, awaited in a thread of its own.

    Raises its errors, SummaryTimeout, or SummaryCanceled once `cancel` is set.
    """
    answers: list[SummaryReply] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(summarizer.summarize(request))
        except BaseException as error:  # noqa: BLE001  re-raised in the caller's thread
            errors.append(error)

    # A thread that never ends is abandoned; as a daemon it cannot keep the program running.
    thread = threading.Thread(target=ask, name=f"summarizer {summarizer.name}", daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    try:
        while thread.is_alive() and not cancel.is_set() and (remaining_s := deadline - time.monotonic()) > 0:
            thread.join(min(_POLL_S, remaining_s))
    finally:  # also if Ctrl-C ends the wait
        request.abandoned.set()
    if cancel.is_set():
        raise SummaryCanceled("the compaction was canceled")
    if errors and isinstance(errors[0], Exception):
        raise errors[0]
    if errors:
        raise RuntimeError(f"summarizer ended with {type(errors[0]).__name__}") from errors[0]
    if not answers:
        raise SummaryTimeout(f"no answer in {seconds:g} seconds")
    reply = answers[0]
    if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
        raise TypeError(f"not a SummaryReply with text: {type(reply).__name__}")
    # Wrong names and counts do not cost a good summary.
    return SummaryReply(
        reply.text,
        _name(reply.model),
        _name(reply.provider),
        _token_count(reply.input_tokens),
        _token_count(reply.output_tokens),
    )


def _name(value: object) -> str:
    if isinstance(value, str):
        return sanitize_text(value)
    return ""


def _token_count(value: object) -> int:
    if isinstance(value, int) and value > 0:
        return value
    return 0


def with_required_findings(text: str, extracted: Extract, limit_tokens: int, counter: TokenCounter) -> str:
    """Return the summary with the constraints, decisions and exact names that the model dropped, while they fit."""
    task, lines = summary.parse_summary(text)
    normalized = " ".join(text.lower().split())
    missing: list[ExtractedLine] = []
    for finding in extracted.findings:
        is_firm = finding.weight >= _FIRM and finding.kind in ("constraint", "preference", "decision")
        if is_firm and " ".join(finding.text.lower().split()) not in normalized:
            missing.append(finding)
    names = (name for name in exact_identifiers(extracted) if name not in text)
    missing.extend(ExtractedLine("identifier", name, MessageRef(0, 0), 0) for name in names)

    def rendered(size: int) -> str:
        return summary.render_summary(task or extracted.task, [*lines, *missing[:size]])

    limit = int(limit_tokens * _OVER)
    count = summary.largest_fit(len(missing), lambda size: counter.count(rendered(size)) <= limit)
    if count:
        return rendered(count)
    return text
