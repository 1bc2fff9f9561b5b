"""Summaries with retries and a deterministic fallback, so that every compaction gets a summary.

A model is asked in parts that fit its window; each part updates the summary so far. Every answer is checked. A rejected
part is asked for once more with the reason, then summarized extractively. Constraints and exact names that the model
dropped are added again. Errors and timeouts count as rejections; after three in a row no model is asked for a while. The
number of calls and the time are therefore bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from nexus.compaction import prompt
from nexus.compaction.check_summary import check_summary
from nexus.compaction.extractive import summary
from nexus.compaction.extractive.extract import Extract, exact_identifiers, extract
from nexus.compaction.extractive.statements import ExtractedLine
from nexus.compaction.extractive.summary import largest_fit, source_tokens
from nexus.compaction.summarizer import ExtractiveSummarizer, Summarizer, SummaryReply, SummaryRequest
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.sanitize import sanitize_text

MOST_PARTS = 8
"""Parts that a model summarizes at most; older messages are summarized extractively first."""

TRIES = 2
"""Attempts for each part; the second prompt is stricter and gives the reason."""

TIMEOUT_S = 120.0
"""Seconds to wait for an answer."""

FAILURES = 3
"""Consecutive failures after which no model is asked for PAUSE compactions."""

PAUSE = 5

_ASK_TOKENS = 1_200
"""Allowance for the prompt's own text, in base tokens."""

_OVER = 1.25
"""A summary may exceed its limit by this factor: models count tokens badly, and a rejection costs a whole call."""

_FIRM = 80


class Attempt(Struct, frozen=True):
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
    calls: int = 0
    attempts: tuple[Attempt, ...] = ()


@dataclass(slots=True)
class FallbackSummarizer:
    """A model with the extractive summarizer behind it, and the model's recent failures.

    One for each engine, for use from one thread at a time.
    """

    counter: TokenCounter
    model: Summarizer | None = None
    timeout_s: float = TIMEOUT_S
    failures: int = 0
    paused: int = 0
    extractive: ExtractiveSummarizer = field(init=False)

    def __post_init__(self) -> None:
        self.extractive = ExtractiveSummarizer(self.counter)

    def summary(
        self,
        rows: Sequence[StoredMessage],
        previous: str,
        most_tokens: int,
        *,
        focus: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> SummaryResult:
        """Summarize the rows as an update of the previous summary.

        The text is empty only if not even the task fits `most_tokens`. `progress` is called with the number of finished
        parts and of all parts.
        """
        run = _Run(self, most_tokens, focus)
        model = None if self.paused else self.model
        self.paused = max(self.paused - 1, 0)
        if model is None:
            return run.result(run.ask_extractive(rows, previous), self.extractive.name)
        parts = _parts(rows, model, previous, most_tokens, self.counter)
        older = [row for part in parts[:-MOST_PARTS] for row in part]
        parts = parts[-MOST_PARTS:]
        text = run.ask_extractive(older, previous) if older else previous
        for number, part in enumerate(parts):
            text = run.ask_model(model, part, text) or run.ask_extractive(part, text)
            if progress is not None:
                progress(number + 1, len(parts))
        if run.model:
            return run.result(with_required_findings(text, extract(rows), most_tokens, self.counter), model.name)
        # No part was accepted: one extractive pass over all rows is better than one over each part.
        return run.result(run.ask_extractive(rows, previous), self.extractive.name)

    def record_failure(self) -> None:
        """Count a failure of the model; the third in a row pauses it."""
        self.failures += 1
        if self.failures >= FAILURES:
            self.failures, self.paused = 0, PAUSE


@dataclass(slots=True)
class _Run:
    """State of one compaction: cost so far and rejected attempts."""

    owner: FallbackSummarizer
    limit_tokens: int
    focus: str
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    call_tokens: int = 0
    calls: int = 0
    model: str = ""
    provider: str = ""

    def ask_model(self, summarizer: Summarizer, rows: Sequence[StoredMessage], previous: str) -> str:
        """Return the model's summary of a part; empty if no attempt is accepted."""
        counter = self.owner.counter
        source = source_tokens(rows, counter, previous)
        names = exact_identifiers(extract(rows))
        reason = ""
        for stricter in (False, True)[:TRIES]:
            if self.owner.paused:
                return ""
            request = SummaryRequest(tuple(rows), self.limit_tokens, previous, self.focus, stricter, reason)
            self.calls += 1
            try:
                reply = run_with_timeout(self.owner.timeout_s, summarizer, request)
            except Exception as error:  # noqa: BLE001  a summarizer may raise any exception; the fallback follows
                self.attempts.append(Attempt(summarizer.name, f"{type(error).__name__}: {error}"[:300]))
                self.owner.record_failure()
                continue
            self.call_tokens += reply.input_tokens + reply.output_tokens
            text = reply.text.strip()
            tokens = counter.count(text)
            # The next prompt contains the reason: its wording is text that a model reads.
            reason = "; ".join(check_summary(text, tokens, source, identifiers=names).reasons)
            if not reason and tokens > self.limit_tokens * _OVER:
                reason = f"it has {tokens:,} tokens, {self.limit_tokens:,} are allowed"
            if not reason:
                self.owner.failures = 0
                self.model, self.provider = reply.model or summarizer.name, reply.provider
                return text
            self.attempts.append(Attempt(summarizer.name, reason))
            self.owner.record_failure()
        return ""

    def ask_extractive(self, rows: Sequence[StoredMessage], previous: str) -> str:
        """Return the extractive summary; the previous one if nothing fits."""
        request = SummaryRequest(tuple(rows), self.limit_tokens, previous, self.focus)
        return self.owner.extractive.summarize(request).text or previous

    def result(self, text: str, by: str) -> SummaryResult:
        """Return the result for a text."""
        return SummaryResult(text, by, self.model, self.provider, self.call_tokens, self.calls, tuple(self.attempts))


class SummaryTimeout(Exception):
    """A summarizer did not answer in time."""


def run_with_timeout(seconds: float, summarizer: Summarizer, request: SummaryRequest) -> SummaryReply:
    """Return the summarizer's answer, awaited in a thread of its own. Raises its errors, or SummaryTimeout.

    A thread that never ends is abandoned; as a daemon it cannot keep the program running.
    """
    answers: list[SummaryReply] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(summarizer.summarize(request))
        except BaseException as error:  # noqa: BLE001  re-raised in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=ask, name=f"summarizer {summarizer.name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors and isinstance(errors[0], Exception):
        raise errors[0]
    if errors:
        raise RuntimeError(f"summarizer ended with {type(errors[0]).__name__}") from errors[0]
    if not answers:
        raise SummaryTimeout(f"no answer in {seconds:g} seconds")
    reply = answers[0]
    if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
        raise TypeError(f"not a SummaryReply with text: {type(reply).__name__}")
    return SummaryReply(
        reply.text,
        _stored_name(reply.model),
        _stored_name(reply.provider),
        _count(reply.input_tokens),
        _count(reply.output_tokens),
    )


def _stored_name(value: object) -> str:
    return sanitize_text(value) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def with_required_findings(text: str, extracted: Extract, limit_tokens: int, counter: TokenCounter) -> str:
    """Return the summary with the user's constraints, decisions and exact names that the model dropped.

    They are added by weight while they fit.
    """
    task, lines = summary.parse_summary(text)
    normalized = " ".join(text.lower().split())
    firm = [f for f in extracted.findings if f.weight >= _FIRM and f.kind in ("constraint", "preference", "decision")]
    missing = [finding for finding in firm if " ".join(finding.text.lower().split()) not in normalized]
    names = [name for name in exact_identifiers(extracted) if name not in text]
    missing += [ExtractedLine("identifier", name, MessageRef(0, 0), 0) for name in names]
    limit = int(limit_tokens * _OVER)

    def rendered(size: int) -> str:
        return summary.render_summary(task or extracted.task, [*lines, *missing[:size]])

    count = largest_fit(len(missing), lambda size: counter.count(rendered(size)) <= limit)
    return rendered(count) if count else text


def _parts(
    rows: Sequence[StoredMessage], summarizer: Summarizer, previous: str, most_tokens: int, counter: TokenCounter
) -> list[Sequence[StoredMessage]]:
    """Return the rows in parts that fit a model's window with the prompt, the summary so far and the answer."""
    if not summarizer.call_tokens:
        return [rows]
    reserve = _ASK_TOKENS + most_tokens + max(counter.count(previous), int(most_tokens * _OVER))
    parts: list[Sequence[StoredMessage]] = []
    at = 0
    messages = [row.message for row in rows]
    for chunk in prompt.split_chunks(messages, max(summarizer.call_tokens - reserve, 1), counter):
        parts.append(rows[at : at + len(chunk)])
        at += len(chunk)
    return parts
