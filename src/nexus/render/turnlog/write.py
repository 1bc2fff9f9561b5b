"""From messages to the entries of a turn log, one unit after another.

A system entry stands first and after each compaction and clear (document 001, "Implementation Requirements", 4), indexes
count from 0, times never go back, and the turn rises when an assistant follows a user. A message is written so that
`nexus.interop.turnlog` reads the same message again.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from nexus.render.turnlog import times
from nexus.render.turnlog.bare import content_of, message_of, parse_bare, slices
from nexus.render.turnlog.entry import (
    CLEARED,
    EXTRA,
    NO_SYSTEM,
    NO_USER,
    SUMMARY,
    LogEntry,
    LogRole,
    Position,
    Unit,
)
from nexus.render.turnlog.extra import extra_of, results_extra
from nexus.render.turnlog.texts import Members, members, string_of
from nexus.types.message import Message


def entries_for(unit: Unit, at: Position) -> tuple[list[LogEntry], Position]:
    """The entries of a unit, and where the next one stands. A log that would not begin with a system entry gets one."""
    text, at_us = _time(unit, at)
    made: list[LogEntry] = []
    if _needs_system(unit, at):
        made = [LogEntry(at.index, at.turn, text, "system", NO_SYSTEM, {"made": True})]
        at = replace(at, index=at.index + 1, instructions=NO_SYSTEM)
    new = _entries(unit, replace(at, index=_index(unit, at), at_us=at_us), text)
    if new:
        at = _after(at, new[-1])
    return _with_results(made + new, unit, len(made)), replace(at, at_us=at_us)


def position_after(unit: Unit, at: Position) -> Position:
    """Where the next entry stands after a unit, as `entries_for` has it, but for `first`: what the entries say is not made.

    `instructions` is `NO_SYSTEM` for any text.
    """
    at_us = _time_us(unit, at)[0]
    index = at.index + _needs_system(unit, at)
    started = at.instructions is not None or index > at.index
    message = unit.message
    if message is None and unit.kind == "results":
        return replace(at, index=index, instructions=NO_SYSTEM if started else None, at_us=at_us)
    role = message.role if message is not None else "system"
    turn = at.turn + (role == "assistant" and at.role == "user")
    index = _index(unit, replace(at, index=index)) + (len(slices(message)) if message else 1)
    role = at.role if role == "system" else role
    return replace(at, index=index, turn=turn, role=role, instructions=NO_SYSTEM, at_us=at_us)


def _needs_system(unit: Unit, at: Position) -> bool:
    return at.instructions is None and not _is_system(unit) and unit.facts.get("made") is not False


def _index(unit: Unit, at: Position) -> int:
    """The index of the unit's first entry: as the file had it that it came from, where that is possible."""
    index = unit.facts.get("index")
    return index if type(index) is int and index >= at.index else at.index


def _is_system(unit: Unit) -> bool:
    return unit.kind in ("compaction", "clear") or (unit.message is not None and unit.message.role == "system")


def _time(unit: Unit, at: Position) -> tuple[str, int]:
    """The time that the unit's entries show, as text and in microseconds: never before that of the entry before it."""
    at_us, given = _time_us(unit, at)
    return given or times.format_time(at_us), at_us


def _time_us(unit: Unit, at: Position) -> tuple[int, str]:
    """The time in microseconds, and as the file had it that the unit came from, where that is possible."""
    given = unit.facts.get("timestamp")
    found = times.parse_time(given) if isinstance(given, str) else None
    if isinstance(given, str) and found is not None and (at.at_us is None or found >= at.at_us):
        return found, given
    own_ms = (unit.message.at_ms if unit.message else 0) or unit.at_ms
    own_us = min(max(own_ms * 1_000, times.FIRST_US), times.LAST_US // 1_000 * 1_000)
    return own_us if at.at_us is None else max(own_us, at.at_us), ""


def _entries(unit: Unit, at: Position, text: str) -> list[LogEntry]:
    message = unit.message
    if unit.kind == "compaction":
        kept = at.index if unit.kept_from is None else max(unit.kept_from, at.first)
        extra = {"mark": "compaction", **unit.about, **({"kept_from": kept} if kept < at.index else {})}
        return [LogEntry(at.index, at.turn, text, "system", f"{SUMMARY}\n{unit.summary}", extra)]
    if unit.kind == "clear":
        again = at.instructions if at.instructions not in (None, NO_SYSTEM) else CLEARED
        return [LogEntry(at.index, at.turn, text, "system", again or CLEARED, {"mark": "clear"})]
    if message is None:
        return []
    written = _as_written(unit, message, at)
    return [written] if written else _said(unit, message, at, text)


def _said(unit: Unit, message: Message, at: Position, text: str) -> list[LogEntry]:
    role = cast("LogRole", message.role)
    turn = at.turn + (role == "assistant" and at.role == "user")
    user = unit.facts.get("userid")
    user = user if isinstance(user, str) else f"<@{unit.principal}>" if unit.principal else NO_USER
    found: list[LogEntry] = []
    for number, parts in enumerate(slices(message)):
        content = content_of(role, parts, user)
        shown = parse_bare(role, content)
        plain = message_of(role, shown, at.index + number, (at.at_us or 0) // 1_000)
        extra = extra_of(message, parts, plain, shown, number)
        found.append(LogEntry(at.index + number, turn, text, role, content, extra))
    return found


def _as_written(unit: Unit, message: Message, at: Position) -> LogEntry | None:
    """The entry as it stood in the file that it came from, if it was written in a way of its own and still says this."""
    written = unit.facts.get("entry")
    if not isinstance(written, str) or unit.results:
        return None
    found = dict(members(written) or ())
    role, turn, index = (found.get(name, "") for name in ("role", "turn", "index"))
    content = bare_content(found.get("content", ""))
    if content is None or string_of(role) != message.role or index != str(at.index):
        return None
    own_role = cast("LogRole", message.role)
    plain = message_of(own_role, parse_bare(own_role, content), at.index, (at.at_us or 0) // 1_000)
    own_turn = at.turn + (own_role == "assistant" and at.role == "user")
    text = string_of(found.get("timestamp", ""))
    if plain != message or turn != str(own_turn) or text is None or times.parse_time(text) != at.at_us:
        return None
    return LogEntry(at.index, own_turn, text, own_role, content, written=written)


def bare_content(text: str) -> str | Members | None:
    """A `content` from its JSON text: a text, or the members of an object; None if it is something else."""
    said = string_of(text)
    return members(text) if said is None else said


def _after(at: Position, last: LogEntry) -> Position:
    role = at.role if last.role == "system" else last.role
    first = last.content if isinstance(last.content, str) and "mark" not in last.extra else NO_SYSTEM
    instructions = first if at.instructions is None else at.instructions
    shown = last.extra.get("kept_from", last.index + 1) if "mark" in last.extra else at.first
    return replace(at, index=last.index + 1, turn=last.turn, role=role, instructions=instructions, first=shown)


def _with_results(entries: list[LogEntry], unit: Unit, made: int) -> list[LogEntry]:
    """The entries with the results that follow them: each with its call where that keeps their order, else the last."""
    if not unit.results or not entries:
        return entries
    owners = _owners(unit, made)
    last = len(entries) - 1
    if None in owners or owners != sorted(owner or 0 for owner in owners):
        owners = [last] * len(owners)
    told: list[LogEntry] = []
    for number, entry in enumerate(entries):
        own = [result for result, owner in zip(unit.results, owners, strict=True) if owner == number]
        told.append(replace(entry, extra={**entry.extra, "results": results_extra(own)}) if own else entry)
    return told


def _owners(unit: Unit, made: int) -> list[int | None]:
    """For each message of tools the entry whose call it answers; None where it answers none, or several."""
    calls: dict[str, int] = {}
    for number, parts in enumerate(slices(unit.message) if unit.message else [], made):
        for call in Message("assistant", parts).calls():
            calls.setdefault(call.id, number)
    answered = [{calls.get(result.call_id) for result in message.results()} for message in unit.results]
    return [next(iter(owners)) if len(owners) == 1 else None for owners in answered]


def without_extra(entry: LogEntry) -> LogEntry:
    """The entry in the printed form alone (`strict`)."""
    written = "" if f'"{EXTRA}"' in entry.written else entry.written
    return replace(entry, extra={}, written=written)
