"""What a session's entries in the ledger are in a turn log: units, and the log of the whole session."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec.structs import replace

from nexus.render.turnlog.entry import LogEntry, Position, Unit, printed_entry
from nexus.render.turnlog.extra import lost_details
from nexus.render.turnlog.write import entries_for, without_extra
from nexus.types.ledger_entries import Entry, MessageRef
from nexus.types.message import Message

FACTS = "turnlog"
"""Where an entry's body in the ledger keeps what a turn log said of it beyond the message."""


@dataclass(slots=True)
class _Draft:
    """A unit that may still get results."""

    unit: Unit
    results: list[Message] = field(default_factory=list[Message])
    places: list[MessageRef] = field(default_factory=list[MessageRef])

    def done(self) -> Unit:
        if not self.results:
            return self.unit
        return replace(self.unit, results=tuple(self.results), result_places=tuple(self.places))


def log_units(
    entries: Iterable[Entry], undone: Collection[int] = (), ends: Callable[[Entry], bool] = lambda _: False
) -> Iterator[Unit | Entry]:
    """The units of a session's entries, oldest first. `undone` are the seqs of compactions that were undone: left out.

    Where `ends` is true of an entry, what came before it is given out first, then the entry itself, then its units.
    """
    held: _Draft | None = None
    for entry in entries:
        started = _started(entry, undone)
        told = ends(entry)
        if held is not None and (told or started is not None):
            yield held.done()
            held = None
        if told:
            yield entry
        if started is not None:
            held = _Draft(started)
        for row in entry.rows:
            if row.message.role == "tool":
                held = held or _Draft(Unit("results", at_ms=row.message.at_ms or entry.at_ms, place=row.place))
                held.results.append(row.message)
                held.places.append(row.place)
                continue
            if held is not None:
                yield held.done()
            facts = _facts(entry) if row.place.ord == 0 else {}
            who = entry.body.get("principal")
            who = who if isinstance(who, str) else ""
            held = _Draft(Unit(message=row.message, at_ms=entry.at_ms, facts=facts, principal=who, place=row.place))
    if held is not None:
        yield held.done()


def _started(entry: Entry, undone: Collection[int]) -> Unit | None:
    """The unit that a mark begins; None for all other entries."""
    place, body = MessageRef(entry.seq, 0), entry.body
    if entry.kind == "clear":
        return Unit("clear", at_ms=entry.at_ms, facts=_facts(entry), place=place)
    if entry.kind != "compaction" or entry.seq in undone:
        return None
    first = body.get("first_kept", 0)
    kept = MessageRef(first, body.get("kept_ord", 0)) if 0 < first <= entry.seq else None
    tokens = body.get("tokens_before")
    about: dict[str, Any] = {"trigger": str(body.get("trigger") or "manual")}
    if type(tokens) is int and tokens:
        about["tokens_before"] = tokens
    summary = str(body.get("summary", ""))
    facts = _facts(entry)
    return Unit("compaction", None, (), entry.at_ms, facts, summary=summary, about=about, kept=kept, place=place)


def _facts(entry: Entry) -> dict[str, Any]:
    found = entry.body.get(FACTS)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def log_entries(entries: Iterable[Entry], undone: Collection[int] = ()) -> Iterator[LogEntry]:
    """The turn log of a session's entries, one at a time; none for an empty session.

    Every message is in it, whatever was compacted or cleared. Pins, ends of turns and undone compactions are not.
    """
    at = Position()
    places: list[MessageRef] = []
    indexes: list[int] = []
    for unit in log_units(entries, undone):
        if isinstance(unit, Entry):
            continue
        kept = bisect_left(places, unit.kept) if unit.kept is not None else len(places)
        new, at = entries_for(replace(unit, kept_from=indexes[kept]) if kept < len(places) else unit, at)
        if unit.kind != "results":
            places.append(unit.place)
            indexes.append(new[1 if new[0].extra.get("made") else 0].index)
        yield from new


def strict_entries(entries: Iterable[LogEntry], told: Counter[str]) -> Iterator[LogEntry]:
    """The entries in the printed form alone. What that leaves out is added to `told`, in words, as they are given out."""
    for entry in entries:
        shown = without_extra(entry)
        told += lost_details(entry.extra)
        if entry.written != shown.written:
            told["what another program wrote beside the printed form"] += 1
        yield shown


def log_texts(entries: Iterable[LogEntry]) -> Iterator[str]:
    """The texts of a JSON file of these entries, as the document prints it; joined they are the file."""
    between = "[\n"
    for entry in entries:
        yield f"{between}{printed_entry(entry)}"
        between = ",\n"
    yield "[]\n" if between[0] == "[" else "\n]\n"
