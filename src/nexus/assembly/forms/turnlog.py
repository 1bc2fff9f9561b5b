"""The conversation as document 001's turn log: each message of a role has its entries, as lines of JSON, for its text.

Calls and results stay what they are for the provider, beside the entries that tell of them: a model can only answer to
real ones. So nothing that was sent is ever written anew, and the log grows at its end alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from nexus.assembly.fit.view import LedgerView
from nexus.assembly.forms.protocol import AS_GIVEN, Shape
from nexus.render.turnlog import times
from nexus.render.turnlog.entries import LogEntry, Position, Unit
from nexus.render.turnlog.lines import entry_line, note_line, parse_entry_text, parse_note_line, with_entry_text
from nexus.render.turnlog.write import entries_for, log_units, position_after
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult
from nexus.types.profile import MessageFormatName

AROUND_TOKENS = 90
"""What the fields of an entry and the key of a mark take at most, with room for the signs that JSON adds to a text."""


class Log:
    """The turn log of a path, as a shape. State over time: it knows where each message's first entry stands.

    Positions are counted from the path's first message on, marks that were undone since among them, and never change.
    """

    around = AROUND_TOKENS

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._places: list[MessageRef] = []
        self._before: list[Position] = []
        self._next = Position()
        self.head = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Goes on with the entries that follow; those that it knows are passed over."""
        for entry in entries:
            if entry.seq <= self.head:
                continue
            for unit in _units(entry):
                if unit.kind != "results":
                    self._places.append(unit.place)
                    self._before.append(self._next)
                elif self._next.instructions is not None:
                    continue  # they belong to what stands before them
                self._next = position_after(unit, self._next)
            self.head = entry.seq

    def before(self, place: MessageRef) -> Position:
        """Where the first entry of a message stands, or of the next one from that place on."""
        at = bisect_left(self._places, place)
        return self._before[at] if at < len(self._places) else self._next

    def shaped(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Entries of the path with their messages as the log shows them, and counted so."""
        for entry in entries:
            known = {unit.place: unit for unit in _units(entry)}
            rows = tuple(self._row(row, known.get(row.place)) for row in entry.rows)
            yield replace(entry, rows=rows)

    def _row(self, row: StoredMessage, unit: Unit | None) -> StoredMessage:
        message = row.message
        if message.role == "tool" or unit is None:
            message = _beside(message)
        else:
            message = logged(unit, message, self.before(row.place))
        return (
            row if message is row.message else StoredMessage(row.place, message, message_tokens(message, self._counter))
        )

    def mark(self, text: str, kind: str, before: MessageRef, shown: Iterable[StoredMessage]) -> str:
        """A system entry in the place of the last one that it stands for: of those before a place that are not shown."""
        at = self.before(before)
        seen = {index for row in shown if row.place < before for index in self._indexes(row.place)}
        index = at.index - 1
        while index in seen:
            index -= 1
        time = times.format_time(at.at_us or 0)
        return entry_line(LogEntry(max(index, 0), at.turn, time, "system", text), kind)

    def _indexes(self, place: MessageRef) -> range:
        """The indexes of a message's entries."""
        return range(self.before(place).index, self.before(MessageRef(place.seq, place.ord + 1)).index)

    def event(self, messages: tuple[Message, ...], after: int, principal: str) -> tuple[Message, ...]:
        """The event's messages with the entries that they will have."""
        at = self.before(MessageRef(after + 1, 0))
        told: list[Message] = []
        for message in messages:
            if message.role == "tool":
                told.append(_beside(message))
                continue
            unit = Unit(message=message, at_ms=message.at_ms, principal=principal)
            told.append(logged(unit, message, at))
            at = position_after(unit, at)
        return tuple(told)

    def given(self, message: Message) -> Message:
        """The message with its notes' own texts, and what its entry says."""
        return replace(message, parts=tuple(map(_given, message.parts)))

    def with_text(self, message: Message, text: str) -> str:
        """The message's entry with another text."""
        return with_entry_text(next((part.text for part in message.parts if isinstance(part, Text)), ""), text)


def shape_of(form: MessageFormatName, counter: TokenCounter) -> Shape:
    """The shape of a form at the beginning of a path."""
    return Log(counter) if form == "turnlog" else AS_GIVEN


def as_shaped(reading: LedgerView, shape: Shape) -> LedgerView:
    """What is read of a path, in a shape that goes on to its head."""
    if not isinstance(shape, Log):
        return reading
    shape.add(reading.entries(shape.head, None))

    def entries(after: int, until: int | None) -> Iterator[Entry]:
        return shape.shaped(reading.entries(after, until))

    return replace(reading, entries=entries, shape=shape)


def logged(unit: Unit, message: Message, at: Position) -> Message:
    """A message with its entries at a position as its text, notes before it; the same object where it shows nothing.

    Thinking that its provider can prove stays apart: it goes back to the model that wrote it, as in any form. All other
    thinking is the reasoning of an entry.
    """
    if not _shows(message):
        return message
    proven = tuple(part for part in message.parts if isinstance(part, Thinking) and (part.signature or part.redacted))
    notes = tuple(replace(p, text=note_line(p.kind, p.text)) for p in message.parts if isinstance(p, Note))
    said = tuple(part for part in message.parts if part not in proven and not isinstance(part, Note))
    if not said:
        return replace(message, parts=notes)
    entries, _ = entries_for(replace(unit, message=replace(message, parts=said), results=()), at)
    lines = [entry_line(entry) for entry in entries if "made" not in entry.extra]
    rest = tuple(part for part in said if not isinstance(part, (Text, Thinking)))
    return replace(message, parts=(*notes, *proven, Text("\n".join(lines)), *rest))


def _units(entry: Entry) -> Iterator[Unit]:
    """What an entry adds to the log, taken by itself."""
    return (unit for unit in log_units([entry]) if isinstance(unit, Unit))


def _shows(message: Message) -> bool:
    """Whether there is anything in a message for which it is shown at all."""
    parts = message.parts
    if message.role == "assistant":
        return any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in parts)
    words = any(isinstance(part, (Text, Note)) and part.text.strip() for part in parts)
    return words or any(isinstance(part, Image) and (part.data or part.url) for part in parts)


def _beside(message: Message) -> Message:
    """A message of tools with what stands beside its results as lines."""
    if all(isinstance(part, ToolResult) for part in message.parts):
        return message
    return replace(message, parts=tuple(map(_line, message.parts)))


def _line(part: Part) -> Part:
    if isinstance(part, (Text, Note)) and part.text.strip():
        return replace(part, text=note_line("tool" if isinstance(part, Text) else part.kind, part.text))
    return part


def _given(part: Part) -> Part:
    match part:
        case Note(text=text):
            found = parse_note_line(text)
            return part if found is None else replace(part, text=found[1])
        case Text(text=text):
            said = parse_entry_text(text)
            return part if said is None else Text(said)
        case _:
            return part
