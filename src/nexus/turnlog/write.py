"""Turn logs from ledger entries: grouped into units, then written as log entries.

A system entry is first and follows each compaction and clear (document 001, "Implementation Requirements", 4). Indexes
count from 0, times never decrease, and the turn rises when an assistant follows a user. `nexus.turnlog.reader` parses
each written message back unchanged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, cast

from msgspec.structs import replace

from nexus.turnlog import times
from nexus.turnlog.entries import (
    CLEARED,
    EXTRA,
    FINISH,
    NO_SYSTEM,
    NO_USER,
    POST,
    SUMMARY,
    LogEntry,
    LogPosition,
    LogRole,
    Unit,
    bare_content,
    content_of,
    entry_text,
    extra_of,
    message_of,
    omitted_details,
    parse_bare,
    results_extra,
    slices,
)
from nexus.turnlog.json_text import indent, members, string_of
from nexus.types.history import UNANSWERED
from nexus.types.ledger_entries import Entry, MessageRef
from nexus.types.message import Message, Text, with_parts

FACTS = "turnlog"
"""Key in the body of a ledger entry for details of an imported log entry without a place in the message."""

UNPOSTED = "unposted"
"""Detail of an imported text that was not posted."""

OLDER = "older"
"""Detail of an entry in the older form, in which a parameter `reasoning` is in `arguments`."""


# Logs of sessions ------------------------------------------------------------------------------------------------


def log_units(
    entries: Iterable[Entry], undone: Collection[int] = (), ends: Callable[[Entry], bool] = lambda _: False
) -> Iterator[Unit | Entry]:
    """Yield the units of a session's entries, oldest first, without the undone compactions (by seq).

    Entries for which `ends` is true are yielded themselves, between the units before and after them.
    """
    unit: Unit | None = None
    for entry in entries:
        started = _checkpoint_unit(entry, undone)
        separate = ends(entry)
        if unit is not None and (separate or started is not None):
            yield unit
            unit = None
        if separate:
            yield entry
        unit = started or unit
        posting = _posting(entry)
        results: list[Message] = []
        places: list[MessageRef] = []
        for row in entry.rows:
            if row.message.role == "tool":
                at_ms = row.message.at_ms or entry.at_ms
                unit = unit or Unit("results", at_ms=at_ms, turn=entry.turn, posting=posting, place=row.ref)
                results.append(row.message)
                places.append(row.ref)
                continue
            if unit is not None:
                yield _with_more_results(unit, results, places)
                results = []
                places = []
            message = row.message
            if message.source == UNANSWERED:  # the mark is ours, not the log's
                message = replace(message, source="")
            principal = entry.body.get("principal")
            unit = Unit(
                message=message,
                at_ms=entry.at_ms,
                # Details of an imported entry are those of its first message.
                facts=_facts(entry) if row.ref.ord == 0 else {},
                turn=entry.turn,
                posting=posting,
                principal=principal if isinstance(principal, str) else "",
                place=row.ref,
            )
        if unit is not None:
            unit = _with_more_results(unit, results, places)
    if unit is not None:
        yield unit


def _posting(entry: Entry) -> bool | None:
    """Return whether a call's entry names the tools that post and finish; None if it names no tools."""
    tools: object = entry.body.get("tools")
    if not isinstance(tools, list):
        return None
    return POST in tools and FINISH in tools


def _with_more_results(unit: Unit, results: list[Message], places: list[MessageRef]) -> Unit:
    if not results:
        return unit
    return replace(unit, results=(*unit.results, *results), result_places=(*unit.result_places, *places))


def _checkpoint_unit(entry: Entry, undone: Collection[int]) -> Unit | None:
    """Return the unit of a compaction or clear; None for all other entries."""
    place = MessageRef(entry.seq, 0)
    body = entry.body
    if entry.kind == "clear":
        return Unit("clear", at_ms=entry.at_ms, facts=_facts(entry), place=place)
    if entry.kind != "compaction" or entry.seq in undone:
        return None
    first = body.get("first_kept", 0)
    kept_ref = None
    if 0 < first <= entry.seq:
        kept_ref = MessageRef(first, body.get("kept_ord", 0))
    tokens = body.get("tokens_before")
    about: dict[str, Any] = {"trigger": str(body.get("trigger") or "manual")}
    if type(tokens) is int and tokens:
        about["tokens_before"] = tokens
    return Unit(
        "compaction",
        at_ms=entry.at_ms,
        facts=_facts(entry),
        summary=str(body.get("summary", "")),
        about=about,
        kept_ref=kept_ref,
        place=place,
    )


def _facts(entry: Entry) -> dict[str, Any]:
    facts = entry.body.get(FACTS)
    if isinstance(facts, dict):
        return cast("dict[str, Any]", facts)
    return {}


def log_entries(entries: Iterable[Entry], undone: Collection[int] = ()) -> Iterator[LogEntry]:
    """Yield the turn log of a session's entries; nothing for an empty session.

    It contains every message, whatever was compacted or cleared, but no pins, ends of turns and undone compactions.
    """
    at = LogPosition()
    places: list[MessageRef] = []
    indexes: list[int] = []
    for unit in log_units(entries, undone):
        if isinstance(unit, Entry):
            continue
        kept_from = unit.kept_from
        if unit.kept_ref is not None:
            first_kept = bisect_left(places, unit.kept_ref)
            if first_kept < len(places):
                kept_from = indexes[first_kept]
        new, at = entries_for(replace(unit, kept_from=kept_from), at)
        if unit.kind != "results":
            places.append(unit.place)
            # A generated system entry precedes the unit's own.
            own = new[1] if new[0].extra.get("made") else new[0]
            indexes.append(own.index)
        yield from new


def strict_entries(entries: Iterable[LogEntry], omitted: Counter[str]) -> Iterator[LogEntry]:
    """Yield the entries in the printed form alone, and count the omitted details in `omitted`."""
    for entry in entries:
        # Text of another program stays, unless it contains the extra key.
        if f'"{EXTRA}"' in entry.written:
            written = ""
        else:
            written = entry.written
        printed = replace(entry, extra={}, written=written)
        omitted += omitted_details(entry.extra)
        if entry.written != printed.written:
            omitted["fields of another program outside the printed form"] += 1
        yield printed


def log_texts(entries: Iterable[LogEntry]) -> Iterator[str]:
    """Yield the pieces of a JSON file of these entries, as the document prints it."""
    separator = "[\n"
    for entry in entries:
        yield separator + "\n".join(indent(entry_text(entry), 1))
        separator = ",\n"
    yield "[]\n" if separator[0] == "[" else "\n]\n"


# Entries of a unit -----------------------------------------------------------------------------------------------


def entries_for(unit: Unit, at: LogPosition) -> tuple[list[LogEntry], LogPosition]:
    """Return the entries of a unit and the next position. A log without a leading system entry gets one."""
    at_us, imported_time = _time_us(unit, at)
    posting = _posting_after(unit, at)
    timestamp = imported_time or times.format_time(at_us)
    leading: list[LogEntry] = []
    if _needs_system(unit, at):
        # Document 001 requires a system entry first; `made` keeps an import from taking it for the session's own.
        leading = [LogEntry(at.index, at.turn, timestamp, "system", NO_SYSTEM, {"made": True})]
        at = replace(at, index=at.index + 1, instructions=NO_SYSTEM)
    new = _entries(unit, replace(at, index=_index(unit, at), at_us=at_us), timestamp)
    if new:
        at = _position_after_entry(new[-1], at)
    return _with_results(leading + new, unit, len(leading)), replace(at, at_us=at_us, posting=posting)


def _position_after_entry(entry: LogEntry, at: LogPosition) -> LogPosition:
    """Return the position after an entry without its time, and without whether posting was offered."""
    is_marked = "mark" in entry.extra
    instructions = at.instructions
    if instructions is None:
        instructions = NO_SYSTEM
        if isinstance(entry.content, str) and not is_marked:
            instructions = entry.content
    return LogPosition(
        entry.index + 1,
        entry.turn,
        at.role if entry.role == "system" else entry.role,
        instructions=instructions,
        first=entry.extra.get("kept_from", entry.index + 1) if is_marked else at.first,
    )


def position_after(unit: Unit, at: LogPosition) -> LogPosition:
    """Return the position after a unit without writing its entries; `first` is not updated.

    `instructions` is `NO_SYSTEM` for any text.
    """
    at_us = _time_us(unit, at)[0]
    at = replace(at, posting=_posting_after(unit, at))
    index = at.index + _needs_system(unit, at)
    started = at.instructions is not None or index > at.index
    message = unit.message
    if unit.kind == "results":
        return replace(at, index=index, instructions=NO_SYSTEM if started else None, at_us=at_us)
    role = message.role if message is not None else "system"
    turn = at.turn + (role == "assistant" and at.role == "user")
    index = _index(unit, replace(at, index=index))
    index += len(slices(message)) if message is not None else 1
    role = at.role if role == "system" else role
    return replace(at, index=index, turn=turn, role=role, instructions=NO_SYSTEM, at_us=at_us)


def _posting_after(unit: Unit, at: LogPosition) -> tuple[int, bool]:
    """Return the unit's turn, if it has one, and whether posting was offered: as its entry or the turn's last call says.

    Entries after a turn's first call, and partial replies, named no tools in earlier versions.
    """
    if not unit.turn:
        return at.posting
    if unit.posting is None:
        return unit.turn, at.posting == (unit.turn, True)
    return unit.turn, unit.posting


def _is_unposted(unit: Unit, at: LogPosition) -> bool:
    """Return True for a text that was not sent: tools that post were offered, and none was called."""
    message = unit.message
    if message is None or message.role != "assistant" or any(message.calls()):
        return False
    return unit.facts.get(UNPOSTED) is True or _posting_after(unit, at)[1]


def _needs_system(unit: Unit, at: LogPosition) -> bool:
    if at.instructions is not None or unit.kind in ("compaction", "clear"):
        return False
    is_system = unit.message is not None and unit.message.role == "system"
    return not is_system and unit.facts.get("made") is not False


def _index(unit: Unit, at: LogPosition) -> int:
    """Return the index of the unit's first entry: the imported one, if it is not taken."""
    index = unit.facts.get("index")
    if type(index) is int and index >= at.index:
        return index
    return at.index


def _time_us(unit: Unit, at: LogPosition) -> tuple[int, str]:
    """Return the unit's time in microseconds, never before the previous entry's, and its text in an imported file."""
    imported = unit.facts.get("timestamp")
    at_us = None
    if isinstance(imported, str):
        at_us = times.parse_time(imported)
    if isinstance(imported, str) and at_us is not None and (at.at_us is None or at_us >= at.at_us):
        return at_us, imported
    unit_ms = (unit.message.at_ms if unit.message else 0) or unit.at_ms
    # Whole milliseconds, as the ledger stores them, so that an import gets the same time.
    unit_us = min(max(unit_ms * 1_000, times.FIRST_US), times.LAST_US // 1_000 * 1_000)
    return unit_us if at.at_us is None else max(unit_us, at.at_us), ""


def _entries(unit: Unit, at: LogPosition, timestamp: str) -> list[LogEntry]:
    message = unit.message
    if unit.kind == "compaction":
        extra = {"mark": "compaction", **unit.about}
        if unit.kept_from is not None and (kept_from := max(unit.kept_from, at.first)) < at.index:
            extra["kept_from"] = kept_from
        return [LogEntry(at.index, at.turn, timestamp, "system", f"{SUMMARY}\n{unit.summary}", extra)]
    if unit.kind == "clear":
        text = at.instructions
        if not text or text == NO_SYSTEM:
            text = CLEARED
        return [LogEntry(at.index, at.turn, timestamp, "system", text, {"mark": "clear"})]
    if message is None:
        return []
    if imported := _imported_entry(unit, message, at):
        return [imported]
    role = cast("LogRole", message.role)
    turn = at.turn + (role == "assistant" and at.role == "user")
    user = unit.facts.get("userid")
    if not isinstance(user, str):
        user = f"<@{unit.principal}>" if unit.principal else NO_USER
    older = unit.facts.get(OLDER) is True
    unposted = _is_unposted(unit, at)
    entries: list[LogEntry] = []
    for number, parts in enumerate(slices(message)):
        content = content_of(role, parts, user, older=older, unposted=unposted)
        bare = parse_bare(role, content)
        plain = message_of(role, bare, at.index + number, (at.at_us or 0) // 1_000)
        extra = extra_of(message, parts, plain, bare, number)
        entries.append(LogEntry(at.index + number, turn, timestamp, role, content, extra))
    return entries


def _imported_entry(unit: Unit, message: Message, at: LogPosition) -> LogEntry | None:
    """Return the entry as another program wrote it; None if there is none or it no longer means the same."""
    written = unit.facts.get("entry")
    if not isinstance(written, str) or unit.results:
        return None
    fields = dict(members(written) or ())
    role, turn, index = (fields.get(name, "") for name in ("role", "turn", "index"))
    content = bare_content(fields.get("content", ""))
    if content is None or string_of(role) != message.role or index != str(at.index):
        return None
    log_role = cast("LogRole", message.role)
    bare = parse_bare(log_role, content)
    plain = message_of(log_role, bare, at.index, (at.at_us or 0) // 1_000)
    # Earlier imports took the time before a user's words for a part of them.
    without_note = plain
    if log_role == "user":
        without_note = with_parts(plain, (Text(bare.text),))
    log_turn = at.turn + (log_role == "assistant" and at.role == "user")
    timestamp = string_of(fields.get("timestamp", ""))
    if message not in (plain, without_note) or turn != str(log_turn):
        return None
    if timestamp is None or times.parse_time(timestamp) != at.at_us:
        return None
    return LogEntry(at.index, log_turn, timestamp, log_role, content, written=written)


def _with_results(entries: list[LogEntry], unit: Unit, leading: int) -> list[LogEntry]:
    """Return the entries with the results of their calls; all with the last entry if that keeps their order."""
    if not unit.results or not entries:
        return entries
    calls: dict[str, int] = {}
    for number, parts in enumerate(slices(unit.message) if unit.message else [], leading):
        for call in Message("assistant", parts).calls():
            calls.setdefault(call.id, number)
    owners: list[int] = []
    for message in unit.results:
        numbers = {calls.get(result.call_id, -1) for result in message.results()}
        # -1: a message of tools answers no call of this unit, or calls of several entries.
        owners.append(numbers.pop() if len(numbers) == 1 else -1)
    if -1 in owners or owners != sorted(owners):
        owners = [len(entries) - 1] * len(owners)
    complete: list[LogEntry] = []
    for number, entry in enumerate(entries):
        results = [result for result, owner in zip(unit.results, owners, strict=True) if owner == number]
        if results:
            complete.append(replace(entry, extra={**entry.extra, "results": results_extra(results)}))
        else:
            complete.append(entry)
    return complete
