"""Transcripts: sessions of other tools as the steps that would have been appended at the time.

A step is one append to the ledger. It consists of pieces, one per line or item of the source, each with a key that
depends on that piece alone. Files grow and are read again: `Step.without` removes the pieces that are in the ledger, so
a later piece becomes a separate step under its message's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from nexus.text.message_text import is_injected, typed_text
from nexus.types.message import Message, with_parts
from nexus.types.request import TokenUsage

StepKind: TypeAlias = Literal["messages", "clear", "compaction", "failed"]

NOT_TYPED = frozenset({"hook", "interrupt"})
"""Sources of user messages that were not typed: they continue the current turn."""

TITLE_CHARS = 72
"""Longest title that is made from a request."""

_MARKUP = re.compile(r"<(local-command-stdout|command-message|system-reminder)>.*?</\1>|</?[a-z-]+>", re.DOTALL)
"""Text and tags that Claude Code adds to what was typed."""

_COMMAND = re.compile(r"<command-name>.*?</command-name>|\A\s*/[\w:.-]+(?=\s|\Z)", re.DOTALL)
"""A slash command without its arguments, as Claude Code writes it and as it is typed."""

_GREETING = re.compile(
    r"(?:hi+|hey+|hello|hallo|moin|servus|hola|ciao|ol[aá]|salut|bonjour|yo|howdy|greetings|namaste|привет|你好|こんにちは|안녕하세요|"
    r"good (?:morning|afternoon|evening|day)|guten (?:morgen|tag|abend)|buen[oa]s (?:d[ií]as|tardes|noches)|"
    r"thanks?(?: you)?|ok(?:ay)?|test(?:ing)?|ping)"
    r"(?:[\s,]+(?:there|again|all|everyone|folks|team|claude|nexus))*[\s\W]*",
    re.IGNORECASE,
)
"""Words that ask for nothing."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_SECONDS = 100_000_000_000
"""Larger numbers are milliseconds, micro- or nanoseconds: as seconds they would be later than the year 5000."""

_SECONDS = re.compile(r"[0-9]{9,}(?:\.[0-9]+)?")
_ZONE_NAME = re.compile(r"\s*(?:UTC|GMT|Z)\Z", re.IGNORECASE)
_SLASHED_DATE = re.compile(r"\A(\d{4})[/.](\d{1,2})[/.](\d{1,2})(?!\d)")


class Problem(Struct, frozen=True):
    """Something in the file that could not be imported unchanged; `line` counts from 1, `kind` groups problems."""

    line: int
    kind: str
    text: str


class TranscriptPiece(Struct, frozen=True):
    """One line or item of the source: its key and its messages or parts of a message."""

    key: str
    messages: tuple[Message, ...] = ()


class Step(Struct, frozen=True):
    """One append: messages, a clear, a compaction, whose summary is not a message, or the failure of a turn."""

    kind: StepKind = "messages"
    pieces: tuple[TranscriptPiece, ...] = ()
    at_ms: int = 0
    usage: TokenUsage | None = None
    """Provider's usage of the model call: of the message, not of each piece."""
    stop_reason: str = ""
    summary: str = ""
    trigger: str = ""
    """Of a compaction: `context_limit`, `manual` or empty."""
    tokens_before: int = 0
    kept_from: str = ""
    """Key of the first message that a compaction kept; empty for none."""
    starts_turn: bool = False
    """True for the first step of a turn. Depends on earlier steps only, so it is stable when the file grows."""
    closes_turn: bool = False
    """True if the turn is known to be over after this step."""
    facts: dict[str, Any] = {}
    """Other metadata of the source, kept in the entry's body."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all pieces, in order."""
        return tuple(piece.key for piece in self.pieces)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The step's messages; pieces of one message (same role and id) are joined in order."""
        joined: list[Message] = []
        for message in _messages_of(self):
            last = joined[-1] if joined else None
            if last and message.id and (last.id, last.role) == (message.id, message.role):
                meta = _joined(last.meta, message.meta, len(last.parts))
                joined[-1] = with_parts(last, last.parts + message.parts, meta=meta)
            else:
                joined.append(message)
        return tuple(joined)

    def without(self, stored: Container[str]) -> Step | None:
        """Return the step without stored pieces; None if all are stored, or any piece of another kind."""
        new = tuple(piece for piece in self.pieces if piece.key not in stored)
        if len(new) == len(self.pieces):
            return self
        if not new or self.kind != "messages":
            return None
        return replace(self, pieces=new, starts_turn=False)


class AbandonedBranch(Struct, frozen=True):
    """An abandoned branch: the user went back and continued differently."""

    after: str
    """Key of the preceding step; empty for a new beginning."""
    steps: tuple[Step, ...]
    branch: int = -1
    """Index of the earlier fork that contains `after`; -1 for the main path."""


class FileReport(Struct, frozen=True):
    """Counts, problems and cost of a file as a whole. Every line is counted: `sum(counted.values()) + message_lines == lines`."""

    lines: int = 0
    message_lines: int = 0
    counted: dict[str, int] = {}
    """Lines without a message, by kind."""
    omitted: dict[str, int] = {}
    """Fields of message lines that are not imported, with counts."""
    problems: tuple[Problem, ...] = ()
    cost_usd: float = 0.0
    """Cost of the calls in dollars, as the file reports it; 0 if it does not."""


class Transcript(Struct, frozen=True):
    """One conversation of a file."""

    format: str
    source_id: str
    title: str = ""
    steps: tuple[Step, ...] = ()
    forks: tuple[AbandonedBranch, ...] = ()
    sidechains: tuple[Transcript, ...] = ()
    """Conversations of sub-agents, by the agent's id."""
    parent: str = ""
    """Session that started a sub-agent whose file this is."""
    call_id: str = ""
    """Tool call that started a sub-agent."""
    after: str = ""
    """Key of the message in another file that this one continues."""
    report: FileReport = FileReport()
    model: str = ""
    cwd: str = ""
    meta: str = ""
    """JSON text of other metadata."""
    unique_keys: bool = False
    """True if keys identify messages across files, so that a resumed copy of a session is recognized."""
    undated_ms: int = 0
    """Time of steps if the file has none that is understood; 0 for the time of the import."""

    @property
    def shown_title(self) -> str:
        """The title, or the beginning of the first request; empty without one.

        The request of a slash command is its arguments. A command without any and a greeting are no requests.
        """
        if self.title:
            return self.title
        steps = (step for step in self.steps if step.kind == "messages")
        messages = (message for step in steps for message in step.messages if message.role == "user")
        requests = map(_request_words, messages)
        words = next((words for words in requests if words), "")
        if len(words) <= TITLE_CHARS:
            return words
        return f"{words[: TITLE_CHARS - 1].rstrip()}…"

    def all_steps(self) -> Iterator[Step]:
        """Yield the steps of the main path, the forks and the side chains."""
        yield from self.steps
        for fork in self.forks:
            yield from fork.steps
        for sidechain in self.sidechains:
            yield from sidechain.all_steps()

    def all_keys(self) -> tuple[str, ...]:
        """Return the keys of all pieces of all steps."""
        return tuple(key for step in self.all_steps() for key in step.keys)


def _request_words(message: Message) -> str:
    """Return what a user's message asks for, on one line; empty if it asks for nothing or a program wrote it."""
    if is_injected(message):
        return ""
    text = _MARKUP.sub(" ", _COMMAND.sub(" ", typed_text(message), count=1))
    words = " ".join(text.split())
    if _GREETING.fullmatch(words):
        return ""
    return words


def time_ms(value: object) -> int:
    """Return the milliseconds since 1970 of a time; 0 if it is not understood.

    Times are ISO 8601 texts, with slashes or a zone's name too (UTC without a zone), dates of mail and HTTP, and numbers
    of seconds, milliseconds, microseconds or nanoseconds.
    """
    if isinstance(value, str):
        text = value.strip()
        if _SECONDS.fullmatch(text):
            return time_ms(float(text))
        time = _parse_time(text)
        if time is None:
            return 0
        return max(0, (time - _EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MOST_SECONDS * 10**9:
        return 0
    if value <= _MOST_SECONDS:
        return int(value * 1000)
    while value > _MOST_SECONDS * 1000:
        value /= 1000
    return int(value)


def _parse_time(text: str) -> datetime | None:
    with suppress(ValueError):
        return _in_zone(datetime.fromisoformat(text))
    iso = _SLASHED_DATE.sub(lambda date: f"{date[1]}-{date[2]:0>2}-{date[3]:0>2}", text)
    iso = _ZONE_NAME.sub("+00:00", iso)
    for parse, written in ((datetime.fromisoformat, iso), (parsedate_to_datetime, text)):
        with suppress(ValueError, OverflowError, TypeError, IndexError):
            return _in_zone(parse(written))
    return None


def _in_zone(time: datetime) -> datetime:
    """Return the time in its zone, which is UTC if it names none."""
    if time.tzinfo:
        return time
    return time.replace(tzinfo=UTC)


class FileTimes:
    """The times of a file's lines. Those that are not understood are problems."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self._path = path
        self._problems = problems
        self.undated_ms = 0
        """Time of a conversation whose times are not understood: that of the file. 0 if all of them are."""

    def read(self, line: int, value: object) -> int:
        """Return a line's time in milliseconds since 1970; 0 for none, or one that is not understood."""
        at_ms = time_ms(value)
        if not at_ms and value not in (None, ""):
            excerpt = str(value)[:40]
            text = f"time {excerpt!r} not understood: the message has the time of the one before it"
            self._problems.append(Problem(line, "unknown time", text))
            self.undated_ms = self._path.stat().st_mtime_ns // 1_000_000
        return at_ms


def with_known_times(transcript: Transcript) -> Transcript:
    """Return the transcript with a time for each step, if any is known.

    A step without a time gets the time of the step before it, else of the first step with a time, else `undated_ms`.
    """
    fallback = transcript.undated_ms
    forks = (replace(fork, steps=_dated(fork.steps, fallback)) for fork in transcript.forks)
    return replace(transcript, steps=_dated(transcript.steps, fallback), forks=tuple(forks))


def _dated(steps: tuple[Step, ...], fallback: int) -> tuple[Step, ...]:
    at_ms = next((step.at_ms for step in steps if step.at_ms), fallback)
    dated: list[Step] = []
    for step in steps:
        if step.at_ms:
            at_ms = step.at_ms
            dated.append(step)
        else:
            dated.append(replace(step, at_ms=at_ms))
    return tuple(dated)


def results_behind_calls(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps with results behind their call's others, where nobody but the assistant spoke in between.

    A log may have the next message of the assistant before the last result of parallel calls.
    """
    ordered: list[Step] = []
    called_by: dict[str, Step] = {}  # by call id: the step with the call, since the user last spoke
    for step in steps:
        messages = step.messages
        results = [result.call_id for message in messages for result in message.results()]
        if any(message.role in ("user", "system") for message in messages) or step.kind != "messages":
            called_by.clear()
        called_by.update((call.id, step) for message in messages for call in message.calls())
        callers = [called_by.get(call_id) for call_id in results]
        at = len(ordered)
        if callers and callers[0] is not None and all(caller is callers[0] for caller in callers):
            start = next(index for index, other in enumerate(ordered) if other is callers[0])
            others = (index for index in range(start + 1, at) if _follows_result(ordered, index))
            at = next(others, at)
        ordered.insert(at, step)
    return tuple(ordered)


def _follows_result(steps: Sequence[Step], index: int) -> bool:
    """Return True for a message of the assistant that follows a result."""
    has_result = any(message.role == "tool" for message in steps[index - 1].messages)
    return has_result and any(message.role == "assistant" for message in steps[index].messages)


def group_into_turns(steps: Sequence[Step], *, ended: bool = False) -> tuple[Step, ...]:
    """Return the steps of one path with `starts_turn` and `closes_turn` set.

    A typed user's message opens a turn unless the previous one is unanswered. A turn is closed by the step that opens
    the next one, by a clear, or by its failure, which may be followed by another try. The last turn is closed if
    `ended` and its last message is an answer without calls.
    """
    marked: list[Step] = []
    unanswered = under_way = False
    for step in steps:
        first = next(_messages_of(step), None)
        role = first.role if first else ""
        opens = role == "user" and not unanswered and first is not None and first.source not in NOT_TYPED
        if (opens or step.kind == "clear") and under_way:
            marked[-1] = replace(marked[-1], closes_turn=True)
            under_way = False
        marked.append(replace(step, starts_turn=opens))
        unanswered = role == "user" and (opens or unanswered)
        under_way = step.kind != "failed" and (under_way or role in ("user", "assistant", "tool"))
    if under_way and ended and _is_answer([*_messages_of(marked[-1])]):
        marked[-1] = replace(marked[-1], closes_turn=True)
    return tuple(marked)


def _messages_of(step: Step) -> Iterator[Message]:
    """Yield the messages of a step's pieces as they are, unlike `Step.messages`."""
    for piece in step.pieces:
        yield from piece.messages


def _is_answer(messages: list[Message]) -> bool:
    """Return True for messages that end with the assistant's and have no calls."""
    has_calls = any(True for message in messages for _ in message.calls())
    return bool(messages) and messages[-1].role == "assistant" and not has_calls


def _joined(first: str, second: str, parts_before: int) -> str:
    """Merge two `meta` texts: the later piece wins, and notes on its parts (`blocks`) are renumbered."""
    if first == second or not second:
        return first
    merged: dict[str, Any] = json.loads(first) if first else {}
    later: dict[str, Any] = json.loads(second)
    notes: dict[str, Any] = later.pop("blocks", {})
    if notes:
        later["blocks"] = merged.get("blocks", {}) | {str(int(at) + parts_before): note for at, note in notes.items()}
    return json.dumps({**merged, **later}, ensure_ascii=False, separators=(",", ":"))


def with_principal(transcript: Transcript, principal: str) -> Transcript:
    """Return a transcript whose messages are a principal's; unchanged without one.

    Its names and keys begin with the principal. A file's ids are what its writer says, so without that another
    principal's file with the same ids would continue this session.
    """
    if not principal:
        return transcript
    prefix = f"{quote(principal, safe='', errors='surrogatepass')}/"
    prefixed = _with_prefix(transcript, prefix, {"principal": principal})
    return replace(
        prefixed,
        source_id=prefix + transcript.source_id,
        parent=_prefixed(prefix, transcript.parent),
    )


def _with_prefix(transcript: Transcript, prefix: str, facts: dict[str, Any]) -> Transcript:
    """Return a transcript with a prefix of all keys, and further facts of each step."""

    def changed(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(
            replace(
                step,
                pieces=tuple(replace(piece, key=_prefixed(prefix, piece.key)) for piece in step.pieces),
                kept_from=_prefixed(prefix, step.kept_from),
                facts={**step.facts, **facts},
            )
            for step in steps
        )

    return replace(
        transcript,
        steps=changed(transcript.steps),
        forks=tuple(
            replace(fork, after=_prefixed(prefix, fork.after), steps=changed(fork.steps)) for fork in transcript.forks
        ),
        after=_prefixed(prefix, transcript.after),
        sidechains=tuple(_with_prefix(side, prefix, facts) for side in transcript.sidechains),
    )


def _prefixed(prefix: str, key: str) -> str:
    if not key:
        return ""
    return prefix + key
