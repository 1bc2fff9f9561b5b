"""An assembled context as a turn log: the system prompt and messages of a call as entries.

In the format `turnlog` the lines of the context are read back, so that each entry keeps its index, turn and time. In other
formats the entries are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.turnlog import times
from nexus.turnlog.entries import (
    EXTRA,
    FINISH,
    POST,
    LogEntry,
    LogPosition,
    Unit,
    parse_bare,
    parse_entry_line,
    parse_entry_text,
    parse_note_line,
)
from nexus.turnlog.json_text import members, string_of
from nexus.turnlog.replies import parts_of_entries, reply_entries
from nexus.turnlog.write import UNPOSTED, entries_for
from nexus.types.message import Image, Message, Note, Part, Text, with_parts


def context_entries(ctx: AssembledContext) -> Iterator[LogEntry]:
    """Yield the entries of a context: the system prompt, then its messages with their results."""
    at = LogPosition()
    first_ms = next((message.at_ms for message in ctx.messages if message.at_ms), 0)
    if ctx.system_prompt:
        system = Unit(message=Message("system", (Text(ctx.system_prompt),), at_ms=first_ms))
        new, at = entries_for(system, at)
        yield from new
    posting = ctx.allows(POST) and ctx.allows(FINISH)
    is_log = ctx.provenance.manifest.message_format == "turnlog"
    for message, results in _with_results(ctx.messages):
        # Other formats do not show which tools an earlier call had: those of this call count.
        units: list[tuple[Unit, LogEntry | None]] = [(Unit(message=message, turn=1, posting=posting), None)]
        if is_log:
            units = _shown_units(message)
        last_unit, last_entry = units[-1]
        units[-1] = (replace(last_unit, results=results), last_entry)
        for unit, entry in units:
            if entry is not None:
                at = _position_of(entry, at)
            new, at = entries_for(replace(unit, at_ms=first_ms), at)
            mark = entry.extra if entry is not None else {}
            yield from (replace(new_entry, extra={**new_entry.extra, **mark}) for new_entry in new)


def _with_results(messages: Iterable[Message]) -> Iterator[tuple[Message, tuple[Message, ...]]]:
    """Yield each message that is not a tool's, with the results that follow it."""
    message: Message | None = None
    results: list[Message] = []
    for following in messages:
        if following.role == "tool":
            results.append(following)
            continue
        if message is not None:
            yield message, tuple(results)
            results = []
        message = following
    if message is not None:
        yield message, tuple(results)


def _position_of(entry: LogEntry, at: LogPosition) -> LogPosition:
    """Return the position at which a unit gets the index, turn and time of an entry."""
    return LogPosition(entry.index, entry.turn, at_us=times.parse_time(entry.timestamp), instructions=at.instructions)


def _shown_units(message: Message) -> list[tuple[Unit, LogEntry | None]]:
    """Return the units that the lines of a message show, each with its first entry."""
    if message.role == "assistant":
        return [_shown_reply(message)]
    units: list[tuple[Unit, LogEntry | None]] = []
    notes: list[Part] = []
    for line in _lines(message):
        entry = _entry_with_mark(line)
        note = parse_note_line(line)
        if entry is not None:
            parts: list[Part] = [Text(parse_entry_text(line) or "")]
            if entry.role != "system":
                parts = [*notes, *parts]
                notes = []
            units.append((Unit(message=with_parts(message, parts, role=entry.role), facts=_facts(entry)), entry))
        elif note is not None and note[0] in ("moment", "memory"):
            notes.append(Note(note[0], note[1]))
    if not units:
        return [(Unit(message=message), None)]
    images = tuple(part for part in message.parts if isinstance(part, Image))
    if images:
        unit, entry = units[-1]
        last = unit.message or message
        units[-1] = replace(unit, message=with_parts(last, (*last.parts, *images))), entry
    return units


def _shown_reply(message: Message) -> tuple[Unit, LogEntry | None]:
    """Return the unit that the entries of an assistant's message show, with the first of them."""
    entries = reply_entries(message)
    if len(entries) == 1 and not any(message.calls()):
        bare = parse_bare("assistant", entries[0].content)
        if bare.tool == FINISH:
            facts = {**_facts(entries[0]), UNPOSTED: True}
            return Unit(message=with_parts(message, (Text(bare.reasoning),)), facts=facts), entries[0]
    names = {call.name for call in message.calls()}
    parts = parts_of_entries(message, entries, names.__contains__, "call")
    if not entries or not parts:
        return Unit(message=message), None
    return Unit(message=with_parts(message, parts), facts=_facts(entries[0])), entries[0]


def _lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, (Text, Note)):
            yield from part.text.split("\n")


def _entry_with_mark(line: str) -> LogEntry | None:
    entry = parse_entry_line(line)
    if entry is None:
        return None
    extra = dict(members(line) or ()).get(EXTRA, "")
    mark = dict(members(extra) or ()).get("mark", "")
    if mark:
        return replace(entry, extra={"mark": string_of(mark)})
    return entry


def _facts(entry: LogEntry) -> dict[str, Any]:
    facts: dict[str, Any] = {"timestamp": entry.timestamp}
    if entry.role == "user" and not isinstance(entry.content, str):
        facts["userid"] = string_of(dict(entry.content).get("userid", ""))
    return facts
