"""Queue of accepted events in an SQL ledger.

An event keeps the label that its session had when it was accepted. Names are resolved on reading, so a renamed or merged
session has the events of its earlier names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from msgspec.structs import astuple, replace

from nexus.errors import BadReference
from nexus.ledger import chain
from nexus.ledger.records import EventRecord
from nexus.ledger.sessions import (
    EVENT_STATES,
    KEY_SEPARATOR,
    PENDING,
    AcceptedEvent,
    EventState,
    NewQueuedEvent,
    QueuedEvent,
    event_id,
    event_key,
)
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.text_encoding import decode_text, encode_text

EVENT_COLUMNS = "id, session, number, state, body, reason, turn, accepted_ms, changed_ms, hash"
_SELECT = f"SELECT {EVENT_COLUMNS} FROM event WHERE tenant=?"  # noqa: S608 - constants
_FINISHED = tuple(state for state in EVENT_STATES if state not in PENDING)


def accept(writing: Writing, events: Iterable[NewQueuedEvent]) -> list[AcceptedEvent]:
    """Insert the events that are new; see `LedgerStore.accept_events`."""
    db = writing.db
    reader = writing.reader
    db.lock("events")  # the next number is one more than the largest
    number = int(db.value("SELECT coalesce(max(number),0) FROM event WHERE tenant=?", (writing.tenant,)))
    accepted: list[AcceptedEvent] = []
    for new in events:
        if not new.id:
            raise BadReference(
                "event has no id (give it one: it is what makes a repeated event known; nothing was stored)",
                code="bad_entry",
            )
        _check_states((new.state,))
        name = encode_text(new.session)
        label = reader.resolve(name) or name
        stored = _accepted_before(reader, new, label)
        if stored is not None:
            accepted.append(AcceptedEvent(stored, added=False))
            continue
        number = number + 1
        at_ms = writing.clock_ms()
        accepted_ms = new.accepted_ms or at_ms
        session = decode_text(label)
        key = event_key(new.id, session, new.principal)
        texts = (new.state, encode_text(new.body), encode_text(new.reason))
        record = EventRecord(encode_text(key), label, number, *texts, 0, accepted_ms, at_ms, b"")
        put(db, writing.tenant, replace(record, hash=chain.event_hash(writing.tenant, record)))
        value = QueuedEvent(key, session, number, new.state, new.body, new.reason, 0, accepted_ms, at_ms)
        accepted.append(AcceptedEvent(value, added=True))
    return accepted


def _accepted_before(reader: Reader, new: NewQueuedEvent, label: str) -> QueuedEvent | None:
    """Return the event as it was accepted before, under any name of its session; None if it is new."""
    for name in names_of(reader, label):
        stored = event(reader, event_key(new.id, decode_text(name), new.principal))
        if stored is not None:
            return stored
    before = event(reader, new.id)  # by an earlier version, whose keys were the ids
    is_known = before is not None and before.id == new.id and encode_text(before.session) == label
    if is_known:
        return before
    return None


def put(db: Connection, tenant: str, record: EventRecord) -> None:
    """Insert an event's row."""
    row = (tenant, *astuple(record))
    db.run(f"INSERT INTO event(tenant, {EVENT_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)  # noqa: S608 - constants


def update(
    writing: Writing, keys: Iterable[str], state: EventState, reason: str, turn: int, expected: Collection[EventState]
) -> list[QueuedEvent]:
    """Change the events that are in an expected state; see `LedgerStore.update_events`."""
    _check_states((state, *expected))
    db = writing.db
    reader = writing.reader
    select = f"{_SELECT} AND id=? AND state IN ({marks(expected)})"
    change = "UPDATE event SET state=?, reason=?, turn=?, changed_ms=?, hash=? WHERE tenant=? AND id=? AND hash=?"
    rows: list[tuple[Any, ...]] = []
    for key in sorted(dict.fromkeys(keys)):
        while row := db.row(select, (reader.tenant, encode_text(key), *expected)):
            _check(reader, old := EventRecord(*row))
            new = replace(old, state=state, reason=encode_text(reason), turn=turn, changed_ms=writing.clock_ms())
            new = replace(new, hash=chain.event_hash(reader.tenant, new))
            columns = (new.state, new.reason, new.turn, new.changed_ms, new.hash)
            if db.rows(f"{change} RETURNING id", (*columns, reader.tenant, old.id, old.hash)):
                rows.append(astuple(new))
                break  # else another writer changed it meanwhile
    return _values(reader, rows)


def delete_finished(writing: Writing, age_ms: int) -> int:
    """Delete old finished events; see `LedgerStore.delete_finished_events`."""
    where = f"FROM event WHERE tenant=? AND state IN ({marks(_FINISHED)}) AND changed_ms<?"
    values = (writing.tenant, *_FINISHED, writing.clock_ms() - age_ms)
    writing.db.lock("events")
    number = int(writing.db.value(f"SELECT count(*) {where}", values))
    writing.db.run(f"DELETE {where}", values)
    return number


def event(reader: Reader, key: str) -> QueuedEvent | None:
    """Return the event with this key; None if there is none."""
    rows = reader.db.rows(f"{_SELECT} AND id=?", (reader.tenant, encode_text(key)))
    if rows:
        return _values(reader, rows)[0]
    return None


def events_with_id(reader: Reader, id: str) -> list[QueuedEvent]:  # noqa: A002 - the field's name
    """Return the events with this id, one for each session and principal, by number."""
    name = encode_text(id)
    keys = (f"{name}{KEY_SEPARATOR}", f"{name}{chr(ord(KEY_SEPARATOR) + 1)}")
    rows = reader.db.rows(f"{_SELECT} AND (id=? OR (id>? AND id<?))", (reader.tenant, name, *keys))
    return [event for event in _values(reader, rows) if event.id == id]


def events(reader: Reader, session: str | None = None, states: Collection[EventState] = PENDING) -> list[QueuedEvent]:
    """Return the events of a session, or all, by number."""
    _check_states(states)
    names: Sequence[str] = ()
    if session is not None:
        label = encode_text(session)
        names = names_of(reader, reader.resolve(label) or label)
    of_session = ""
    if session is not None:
        of_session = f" AND session IN ({marks(names)})"
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
        _check(reader, record)
        if record.session not in labels:
            labels[record.session] = decode_text(reader.resolve(record.session) or record.session)
        key = decode_text(record.id)
        body = decode_text(record.body)
        reason = decode_text(record.reason)
        state = cast("EventState", record.state)
        place = (labels[record.session], record.number, state)
        values.append(QueuedEvent(key, *place, body, reason, record.turn, record.accepted_ms, record.changed_ms))
    return sorted(values, key=lambda value: value.number)


def _check(reader: Reader, record: EventRecord) -> None:
    """Raise LedgerDamaged unless a row is as it was written."""
    is_readable = record.state in EVENT_STATES and isinstance(record.reason, str)
    intact = is_readable and chain.is_event_intact(reader.tenant, record)
    reader.check(intact, f"queued event {event_id(decode_text(record.id))!r}")
    reader.whole_numbers(record.turn, record.changed_ms)


def _check_states(states: Iterable[str]) -> None:
    unknown = next((state for state in states if state not in EVENT_STATES), None)
    if unknown is not None:
        raise BadReference(
            f"event state {unknown!r} is unknown (use one of {', '.join(EVENT_STATES)})", code="bad_entry"
        )


def marks(values: Collection[str]) -> str:
    """Return a mark for each value of a list; a list that contains nothing if there are none."""
    return ",".join("?" * len(values)) or "NULL"
