"""The format `turnlog`: each message is shown as entries of a turn log, one JSON line each.

Calls and results stay real messages for the provider, next to the entries that report them, because a model can only
answer real ones. Nothing that was sent is rewritten: the log grows at its end only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from nexus.assembly.formats.path_format import LedgerView, NoticeKind, PathFormat
from nexus.assembly.formats.roles import RolesFormat
from nexus.text.message_text import RENDER_VERSION, with_unsendable_as_notes
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.turnlog import times
from nexus.turnlog.entries import (
    LogEntry,
    LogPosition,
    Unit,
    entry_line,
    note_line,
    parse_entry_text,
    parse_note_line,
    with_entry_text,
)
from nexus.turnlog.replies import with_imitation_as_message
from nexus.turnlog.write import OLDER, entries_for, log_units, position_after
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, with_parts
from nexus.types.profile import MessageFormatName

FRAMING_TOKENS = 90
"""Upper bound of the tokens of an entry's fields and keys, with the characters that JSON adds to a text."""


class TurnLogFormat(RolesFormat):
    """The whole history as a turn log."""

    name: MessageFormatName = "turnlog"
    lists_tools = True
    is_hashed = True

    def on_path(self, counter: TokenCounter, /, render: int = RENDER_VERSION) -> PathFormat:
        """Return the log of a path, at its beginning."""
        return Log(counter, render)

    def reply(self, message: Message, is_offered: Callable[[str], bool], call_id: str, /) -> Message:
        """Return the message that a reply's entries show: a model that reads entries may answer with entries."""
        return with_imitation_as_message(message, is_offered, call_id)

    def plain_text(self, message: Message, /) -> str:
        """Return the text of the entry that the message is, or its own."""
        text = message.text()
        return parse_entry_text(text) or text


TURN_LOG = TurnLogFormat()


class Log(PathFormat):
    """The turn log of a path, with the position of each message's first entry.

    Positions count from the path's first message, including checkpoints that were undone later, and never change.
    """

    framing_tokens = FRAMING_TOKENS

    def __init__(self, counter: TokenCounter, render: int = RENDER_VERSION) -> None:
        self._counter = counter
        # Up to render version 3 a parameter `reasoning` was in `arguments`.
        self._is_older = render <= 3
        # Up to version 5 a text that was not posted was shown as posted.
        self._shows_unposted = render > 5
        self._places: list[MessageRef] = []
        self._positions: list[LogPosition] = []
        self._next = LogPosition()
        self.head = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries that follow; those already added are skipped."""
        for entry in entries:
            if entry.seq <= self.head:
                continue
            for unit in self._units(entry):
                if unit.kind != "results":
                    self._places.append(unit.place)
                    self._positions.append(self._next)
                elif self._next.instructions is not None:
                    continue  # results belong to the message before them
                self._next = position_after(unit, self._next)
            self.head = entry.seq

    def position_at(self, place: MessageRef) -> LogPosition:
        """Return the position of a message's first entry, or of the next message's if it has none."""
        index = bisect_left(self._places, place)
        if index < len(self._places):
            return self._positions[index]
        return self._next

    def follow(self, reading: LedgerView, /) -> LedgerView:
        """Return the view of the path with its entries rendered, after reading up to its head."""
        self.add(reading.entries(self.head, None))

        def entries(after: int, until: int | None) -> Iterator[Entry]:
            return self.rendered(reading.entries(after, until))

        return replace(reading, entries=entries)

    def follow_entries(self, entries: Iterable[Entry], /) -> Iterable[Entry]:
        """Return entries that follow the path's head, rendered."""
        new = [*entries]
        self.add(new)
        return self.rendered(new)

    def rendered(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield entries of the path with their messages as log entries, recounted."""
        for entry in entries:
            units = {unit.place: unit for unit in self._units(entry)}
            rows = list[StoredMessage]()
            for row in entry.rows:
                unit = units.get(row.ref)
                if row.message.role == "tool" or unit is None:
                    message = _with_note_lines(row.message)
                else:
                    message = as_entries(unit, row.message, self.position_at(row.ref), older=self._is_older)
                if message is row.message:
                    rows.append(row)
                else:
                    rows.append(StoredMessage(row.ref, message, message_tokens(message, self._counter)))
            yield replace(entry, rows=tuple(rows))

    def _units(self, entry: Entry) -> Iterator[Unit]:
        """Yield what an entry adds to the log by itself."""
        for unit in log_units([entry]):
            if isinstance(unit, Unit):
                yield unit if self._shows_unposted else replace(unit, posting=False)

    def summary(self, text: str, /) -> str:
        """Return the text: JSON escapes it."""
        return text

    def late_text(self, text: str, /) -> str:
        """Return a line of the log with a late tool result."""
        return note_line("tool", text)

    def notice(self, text: str, kind: NoticeKind, before: MessageRef, visible: Iterable[StoredMessage], /) -> str:
        """Return a system entry at the index of the last hidden entry before a position."""
        at = self.position_at(before)
        shown_indexes: set[int] = set()
        for place in (row.ref for row in visible if row.ref < before):
            following = MessageRef(place.seq, place.ord + 1)
            shown_indexes.update(range(self.position_at(place).index, self.position_at(following).index))
        index = at.index - 1
        while index in shown_indexes:
            index -= 1
        time = times.format_time(at.at_us or 0)
        return entry_line(LogEntry(max(index, 0), at.turn, time, "system", text), kind)

    def event(self, messages: tuple[Message, ...], head: int, principal: str, /) -> tuple[Message, ...]:
        """Return the event's messages with the entries that they will have."""
        at = self.position_at(MessageRef(head + 1, 0))
        logged: list[Message] = []
        for message in messages:
            if message.role == "tool":
                logged.append(_with_note_lines(message))
                continue
            unit = Unit(message=message, at_ms=message.at_ms, principal=principal)
            logged.append(as_entries(unit, message, at, older=self._is_older))
            at = position_after(unit, at)
        return tuple(logged)

    def unformatted(self, message: Message, /) -> Message:
        """Return the message with the texts of its entry and notes."""
        return with_parts(message, map(_unformatted_part, message.parts))

    def with_text(self, message: Message, text: str, /) -> str:
        """Return the message's entry with another text."""
        return with_entry_text(next((part.text for part in message.parts if isinstance(part, Text)), ""), text)


def as_entries(unit: Unit, message: Message, at: LogPosition, *, older: bool) -> Message:
    """Return a message with its log entries as text, notes before it; unchanged if it has no visible content.

    Thinking with a signature stays a part of its own: it returns to the model that wrote it, as in any format. Other
    thinking becomes the reasoning of an entry.
    """
    if message.role != "assistant":
        message = with_unsendable_as_notes(message)
    if not _is_visible(message):
        return message
    signed = tuple(part for part in message.parts if isinstance(part, Thinking) and (part.signature or part.redacted))
    notes = tuple(replace(p, text=note_line(p.kind, p.text)) for p in message.parts if isinstance(p, Note))
    content = tuple(part for part in message.parts if part not in signed and not isinstance(part, Note))
    if not content:
        return with_parts(message, notes)
    facts = {**unit.facts, OLDER: True} if older else unit.facts
    entries, _ = entries_for(replace(unit, message=with_parts(message, content), results=(), facts=facts), at)
    lines = [entry_line(entry) for entry in entries if "made" not in entry.extra]
    rest = tuple(part for part in content if not isinstance(part, (Text, Thinking)))
    return with_parts(message, (*notes, *signed, Text("\n".join(lines)), *rest))


def _is_visible(message: Message) -> bool:
    parts = message.parts
    if message.role == "assistant":
        return any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in parts)
    has_text = any(isinstance(part, (Text, Note)) and part.text.strip() for part in parts)
    return has_text or any(isinstance(part, Image) and (part.data or part.url) for part in parts)


def _with_note_lines(message: Message) -> Message:
    """Return a tool message with the texts next to its results as lines of the log."""
    message = with_unsendable_as_notes(message)
    if all(isinstance(part, ToolResult) for part in message.parts):
        return message
    return with_parts(message, map(_as_line, message.parts))


def _as_line(part: Part) -> Part:
    if isinstance(part, (Text, Note)) and part.text.strip():
        return replace(part, text=note_line("tool" if isinstance(part, Text) else part.kind, part.text))
    return part


def _unformatted_part(part: Part) -> Part:
    match part:
        case Note(text=text):
            note = parse_note_line(text)
            if note is None:
                return part
            return replace(part, text=note[1])
        case Text(text=text):
            entry = parse_entry_text(text)
            if entry is None:
                return part
            return Text(entry)
        case _:
            return part
