"""Queue of accepted events in an SQL ledger.

An event keeps the label that its session had when it was accepted. Names are resolved on reading, so a renamed or merged
session has the events of its earlier names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from msgspec.structs import astuple, replace

from nexus.errors import BadEntry
from nexus.ledger import chain
from nexus.ledger.records import EventRecord
from nexus.ledger.sessions import EVENT_STATES, PENDING, AcceptedEvent, EventState, NewQueuedEvent, QueuedEvent
from nexus.ledger.sql.connection import Connection
from nexus.ledger.sql.read import Reader
from nexus.ledger.sql.write import Writing
from nexus.ledger.text_encoding import decode_text, encode_text

EVENT_COLUMNS = "id, session, number, state, body, reason, turn, accepted_ms, changed_ms, hash"
_SELECT = f"SELECT {EVENT_COLUMNS} FROM event WHERE tenant=?"  # noqa: S608 - constants
_FINISHED = tuple(state for state in EVENT_STATES if state not in PENDING)


def accept(writing: Writing, events: Iterable[NewQueuedEvent]) -> list[AcceptedEvent]:
    """Insert the events whose id is new; see `LedgerStore.accept_events`."""
    db, reader = writing.db, writing.reader
    db.lock("events")  # the next number is one more than the largest
    number = int(db.value("SELECT coalesce(max(number),0) FROM event WHERE tenant=?", (writing.tenant,)))
    accepted: list[AcceptedEvent] = []
    for new in events:
        if not new.id:
            raise BadEntry("event has no id (give it one: it is what makes a repeated event known; nothing was stored)")
        _check_states((new.state,))
        stored = event(reader, new.id)
        if stored is not None:
            accepted.append(AcceptedEvent(stored, added=False))
            continue
        number, at_ms, name = number + 1, writing.clock_ms(), encode_text(new.session)
        label, accepted_ms = reader.resolve(name) or name, new.accepted_ms or at_ms
        texts = (new.state, encode_text(new.body), encode_text(new.reason))
        record = EventRecord(encode_text(new.id), label, number, *texts, 0, accepted_ms, at_ms, b"")
        put(db, writing.tenant, replace(record, hash=chain.event_hash(writing.tenant, record)))
        place = (decode_text(label), number, new.state)
        value = QueuedEvent(new.id, *place, new.body, new.reason, 0, accepted_ms, at_ms)
        accepted.append(AcceptedEvent(value, added=True))
    return accepted


def put(db: Connection, tenant: str, record: EventRecord) -> None:
    """Insert an event's row."""
    row = (tenant, *astuple(record))
    db.run(f"INSERT INTO event(tenant, {EVENT_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)  # noqa: S608 - constants


def update(
    writing: Writing, ids: Iterable[str], state: EventState, reason: str, turn: int, expected: Collection[EventState]
) -> list[QueuedEvent]:
    """Change the events that are in an expected state; see `LedgerStore.update_events`."""
    _check_states((state, *expected))
    sql = (
        "UPDATE event SET state=?, reason=?, turn=?, changed_ms=? WHERE tenant=? AND id=?"  # noqa: S608 - constants
        f" AND state IN ({marks(expected)}) RETURNING {EVENT_COLUMNS}"
    )
    change = (state, encode_text(reason), turn, writing.clock_ms(), writing.tenant)
    rows = [
        row
        for id_ in sorted(dict.fromkeys(ids))
        for row in writing.db.rows(sql, (*change, encode_text(id_), *expected))
    ]
    return _values(writing.reader, rows)


def delete_finished(writing: Writing, age_ms: int) -> int:
    """Delete old finished events; see `LedgerStore.delete_finished_events`."""
    where = f"FROM event WHERE tenant=? AND state IN ({marks(_FINISHED)}) AND changed_ms<?"
    values = (writing.tenant, *_FINISHED, writing.clock_ms() - age_ms)
    writing.db.lock("events")
    number = int(writing.db.value(f"SELECT count(*) {where}", values))
    writing.db.run(f"DELETE {where}", values)
    return number


def event(reader: Reader, id: str) -> QueuedEvent | None:  # noqa: A002 - the field's name
    """Return the event with this id; None if there is none."""
    rows = reader.db.rows(f"{_SELECT} AND id=?", (reader.tenant, encode_text(id)))
    return _values(reader, rows)[0] if rows else None


def events(reader: Reader, session: str | None = None, states: Collection[EventState] = PENDING) -> list[QueuedEvent]:
    """Return the events of a session, or all, by number."""
    _check_states(states)
    names: Sequence[str] = ()
    if session is not None:
        label = encode_text(session)
        names = names_of(reader, reader.resolve(label) or label)
    of_session = f" AND session IN ({marks(names)})" if session is not None else ""
    sql = f"{_SELECT} AND state IN ({marks(states)}){of_session}"
    return _values(reader, reader.db.rows(sql, (reader.tenant, *states, *names)))


def sessions(reader: Reader) -> list[str]:
    """Return the labels of the sessions that have queued or running events, by their first one."""
    sql = f"SELECT session, number FROM event WHERE tenant=? AND state IN ({marks(PENDING)})"  # noqa: S608 - constants
    first: dict[str, int] = {}
    for stored, number in reader.db.rows(sql, (reader.tenant, *PENDING)):
        reader.whole_numbers(number)
        first[str(stored)] = min(number, first.get(str(stored), number))
    names = sorted(first, key=lambda name: first[name])
    return list(dict.fromkeys(decode_text(reader.resolve(name) or name) for name in names))


def names_of(reader: Reader, label: str) -> list[str]:
    """Return the encoded names that mean a session: its label, and the aliases that lead to it."""
    names = [label]
    for target in names:
        rows = reader.db.rows("SELECT DISTINCT name FROM alias WHERE tenant=? AND target=?", (reader.tenant, target))
        names += [str(name) for (name,) in rows if name not in names and reader.resolve(str(name)) == label]
    return names


def _values(reader: Reader, rows: Iterable[tuple[Any, ...]]) -> list[QueuedEvent]:
    """Return rows as checked values, by number."""
    # Sorted here: with ORDER BY, SQLite reads all rows of the tenant in the order of their numbers.
    labels: dict[str, str] = {}
    values: list[QueuedEvent] = []
    for row in rows:
        record = EventRecord(*row)
        is_readable = record.state in EVENT_STATES and isinstance(record.reason, str)
        intact = is_readable and chain.event_hash(reader.tenant, record) == record.hash
        reader.check(intact, f"queued event {record.id!r}")
        reader.whole_numbers(record.turn, record.changed_ms)
        if record.session not in labels:
            labels[record.session] = decode_text(reader.resolve(record.session) or record.session)
        id_, body, reason = decode_text(record.id), decode_text(record.body), decode_text(record.reason)
        state = cast("EventState", record.state)
        place = (labels[record.session], record.number, state)
        values.append(QueuedEvent(id_, *place, body, reason, record.turn, record.accepted_ms, record.changed_ms))
    return sorted(values, key=lambda value: value.number)


def _check_states(states: Iterable[str]) -> None:
    unknown = next((state for state in states if state not in EVENT_STATES), None)
    if unknown is not None:
        raise BadEntry(f"event state {unknown!r} is unknown (use one of {', '.join(EVENT_STATES)})")


def marks(values: Collection[str]) -> str:
    """Return a mark for each value of a list; a list that contains nothing if there are none."""
    return ",".join("?" * len(values)) or "NULL"
