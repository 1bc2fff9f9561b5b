"""From a model's summary down to one without a model: whatever a summariser does, a summary comes out, or none.

A model is asked in parts that its own window holds, each part bringing the summary so far up to date. Every answer is
judged; a refused one is asked for once more with the reason, and then that part is summarised by rule. What must not
vanish is added to what the model wrote. Errors and silence count as refusals, and after three in a row no model is asked
for a while. So the calls are bounded, and so is the time.
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
from nexus.compaction.extractive.summary import source_tokens
from nexus.compaction.summarizer import ExtractiveSummarizer, Summarizer, SummaryReply, SummaryRequest
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.sanitize import sanitize_text

MOST_PARTS = 8
"""A model is asked about so many parts at most; what is older goes into the summary by rule first."""

TRIES = 2
"""How often a model is asked about a part: the second time more strictly, with the reason."""

TIMEOUT_S = 120.0
"""Seconds after which an answer is not waited for any longer."""

FAILURES = 3
"""After so many failures in a row no model is asked ..."""

PAUSE = 5
"""... for so many compactions."""

_ASK_TOKENS = 1_200
"""Allowance for the request's own text, in base tokens."""

_OVER = 1.25
"""A summary may exceed its room by this factor before it is refused."""

_FIRM = 80


class Attempt(Struct, frozen=True):
    """One attempt that was not taken: who made it and why it was refused."""

    method: str
    reason: str


class SummaryResult(Struct, frozen=True):
    """A summary, who wrote it (`model` empty: by rule alone), what the calls took, and the attempts before it."""

    text: str
    by: str
    model: str = ""
    provider: str = ""
    call_tokens: int = 0
    calls: int = 0
    attempts: tuple[Attempt, ...] = ()


@dataclass(slots=True)
class FallbackSummarizer:
    """The rungs, and how the model has fared so far. One for each engine; safe to use from one thread at a time."""

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
        """The summary of the rows after the previous one, by the first rung that writes an acceptable one.

        Its text is empty only if not even the task fits into `most_tokens`.
        """
        work = _Work(self, most_tokens, focus)
        asked = self._may_ask()
        if asked is not None:
            parts = _parts(rows, asked, previous, most_tokens, self.counter)
            early, parts = parts[: max(len(parts) - MOST_PARTS, 0)], parts[-MOST_PARTS:]
            older = [row for part in early for row in part]
            text = work.by_rule(older, previous) if older else previous
            for number, part in enumerate(parts):
                text = work.by_model(asked, part, text) or work.by_rule(part, text)
                if progress is not None:
                    progress(number + 1, len(parts))
            if work.model:
                text = with_previous_findings(text, extract(rows), most_tokens, self.counter)
                return work.written(text, asked.name)
        return work.written(work.by_rule(rows, previous), self.extractive.name)

    def failed(self) -> None:
        """Counts a failure of the model's; the third in a row makes it pause."""
        self.failures += 1
        if self.failures >= FAILURES:
            self.failures, self.paused = 0, PAUSE

    def _may_ask(self) -> Summarizer | None:
        if self.paused:
            self.paused -= 1
            return None
        return self.model


@dataclass(slots=True)
class _Work:
    """One compaction: what it has cost so far and what was refused."""

    ladder: FallbackSummarizer
    most_tokens: int
    focus: str
    tries: list[Attempt] = field(default_factory=list[Attempt])
    call_tokens: int = 0
    calls: int = 0
    model: str = ""
    provider: str = ""

    def by_model(self, summarizer: Summarizer, rows: Sequence[StoredMessage], previous: str) -> str:
        """The model's summary of one part, if it is accepted at the first or second try; else nothing."""
        counter = self.ladder.counter
        source = source_tokens(rows, counter, previous)
        names = exact_identifiers(extract(rows))
        why = ""
        for stricter in (False, True)[:TRIES]:
            if self.ladder.paused:
                return ""
            request = SummaryRequest(tuple(rows), self.most_tokens, previous, self.focus, stricter, why)
            self.calls += 1
            try:
                reply = run_with_timeout(self.ladder.timeout_s, summarizer, request)
            except Exception as error:  # noqa: BLE001  a summariser may raise anything, and the next rung has to come
                self.tries.append(Attempt(summarizer.name, f"{type(error).__name__}: {error}"[:300]))
                self.ladder.failed()
                continue
            self.call_tokens += reply.input_tokens + reply.output_tokens
            text = reply.text.strip()
            tokens = counter.count(text)
            verdict = check_summary(text, tokens, source, identifiers=names)
            why = "; ".join(verdict.reasons)
            if not why and tokens > self.most_tokens * _OVER:
                why = f"it has {tokens:,} tokens, {self.most_tokens:,} are allowed"
            if not why:
                self.ladder.failures = 0
                self.model, self.provider = reply.model or summarizer.name, reply.provider
                return text
            self.tries.append(Attempt(summarizer.name, why))
            self.ladder.failed()
        return ""

    def by_rule(self, rows: Sequence[StoredMessage], previous: str) -> str:
        """The extracted summary; the previous one where nothing fits."""
        made = self.ladder.extractive.summarize(SummaryRequest(tuple(rows), self.most_tokens, previous, self.focus))
        return made.text or previous

    def written(self, text: str, by: str) -> SummaryResult:
        """The result."""
        return SummaryResult(text, by, self.model, self.provider, self.call_tokens, self.calls, tuple(self.tries))


class SummaryTimeout(Exception):
    """A summariser did not answer in time."""


def run_with_timeout(seconds: float, summarizer: Summarizer, request: SummaryRequest) -> SummaryReply:
    """The summariser's answer, waited for in a thread of its own. Raises what it raises, or SummaryTimeout.

    A thread that never ends is left behind: it cannot keep the program from ending.
    """
    answers: list[SummaryReply] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(summarizer.summarize(request))
        except BaseException as error:  # noqa: BLE001  handed to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=ask, name=f"summarizer {summarizer.name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors and isinstance(errors[0], Exception):
        raise errors[0]
    if errors:
        raise RuntimeError(f"it ended with {type(errors[0]).__name__}") from errors[0]
    if not answers:
        raise SummaryTimeout(f"no answer in {seconds:g} seconds")
    reply = answers[0]
    if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
        raise TypeError(f"a summariser gives a SummaryReply with text, not a {type(reply).__name__}")
    return SummaryReply(
        reply.text, _name(reply.model), _name(reply.provider), _tokens(reply.input_tokens), _tokens(reply.output_tokens)
    )


def _name(given: object) -> str:
    """A name as it can be stored; empty if it is none."""
    return sanitize_text(given) if isinstance(given, str) else ""


def _tokens(given: object) -> int:
    """A count as it can be added up; 0 if it is none."""
    return given if isinstance(given, int) and given > 0 else 0


def with_previous_findings(text: str, found: Extract, most_tokens: int, counter: TokenCounter) -> str:
    """The summary with what a model may not leave out: the user's constraints word for word, and exact names.

    They are added by weight while there is room for them.
    """
    task, written = summary.parse_summary(text)
    said = " ".join(text.lower().split())
    firm = [f for f in found.findings if f.weight >= _FIRM and f.kind in ("constraint", "preference", "decision")]
    lost = [finding for finding in firm if " ".join(finding.text.lower().split()) not in said]
    names = [name for name in exact_identifiers(found) if name not in text]
    lost += [ExtractedLine("identifier", name, MessageRef(0, 0), 0) for name in names]
    room = int(most_tokens * _OVER)
    low, high = 0, len(lost)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(summary.render_summary(task or found.task, [*written, *lost[:middle]])) <= room:
            low = middle
        else:
            high = middle - 1
    return summary.render_summary(task or found.task, [*written, *lost[:low]]) if low else text


def _parts(
    rows: Sequence[StoredMessage], summarizer: Summarizer, previous: str, most_tokens: int, counter: TokenCounter
) -> list[Sequence[StoredMessage]]:
    """The rows in stretches that a model's own window holds beside the request, the summary so far and the answer."""
    if not summarizer.call_tokens:
        return [rows]
    room = summarizer.call_tokens - _ASK_TOKENS - most_tokens - max(counter.count(previous), int(most_tokens * _OVER))
    parts: list[Sequence[StoredMessage]] = []
    at = 0
    for chunk in prompt.split_chunks([row.message for row in rows], max(room, 1), counter):
        parts.append(rows[at : at + len(chunk)])
        at += len(chunk)
    return parts
