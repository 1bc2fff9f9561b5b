"""Reads of sessions in an SQL ledger: pointers, updates and aliases, each checked against its hash.

Each pointer is stored twice: in a row that names the newest update or alias change, and in those rows. A name that
seems unknown is looked up in both tables before it is reported as missing, so that a lost row is noticed.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import msgspec

from nexus.errors import BadReference, LedgerDamaged
from nexus.ledger import chain
from nexus.ledger.records import AliasRecord, MoveRecord
from nexus.ledger.sessions import Alias, RefUpdate, Segment, SessionMetadata
from nexus.ledger.shared_sql.connection import Connection, Value
from nexus.ledger.text_encoding import decode_text, encode_text, from_json
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import StoredCalibration

_metadata = msgspec.json.Decoder(decodable(SessionMetadata))

MOST_ALIASES = 32
"""Aliases that lead to aliases, at most."""

MOST_CACHED = 10_000
"""Rows of one kind in a cache, at most: a list of all sessions reads each row once."""

ALIAS = "alias"
"""The status of a pointer row whose newest word is an alias and not an update."""


# Two statements, and in ascending order: a join of the tables or a descending order takes three times as long.
_POINTER = "SELECT number, thread, status, hash FROM session WHERE tenant=? AND label=?"
_MOVES = (
    "SELECT thread, facts, reason, at_ms, hash, number FROM session_move"
    " WHERE tenant=? AND label=? AND number BETWEEN ? AND ?"
)


_Pointer: TypeAlias = tuple[int, int | None, str, bytes]
"""The row of a label: number of its newest move, thread, status, and the move's hash."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def remember(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Put a value into a cache, which is emptied first if it is full."""
    if len(cache) >= MOST_CACHED:
        cache.clear()
    cache[key] = value


class ReadCache:
    """Checked rows that all connections of a store may use again.

    Attributes:
        segments: Path of each thread, which never changes.
        updates: Newest update of each label, with the pointer that it belongs to: another pointer makes it invalid.
        mark_kinds: Seq and kind of each thread's checkpoints, in order. Their number is compared with the thread's.
        calibrations: Newest calibration by provider and model, with the row that names it: another row makes it invalid.
    """

    def __init__(self, updates: dict[str, tuple[_Pointer, MoveRecord]] | None = None) -> None:
        self.segments: dict[int, list[Segment]] = {}
        self.mark_kinds: dict[int, list[tuple[int, str]]] = {}
        self.updates: dict[str, tuple[_Pointer, MoveRecord]] = {} if updates is None else updates
        self.calibrations: dict[tuple[str, str], tuple[tuple[Any, ...], StoredCalibration]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.segments.clear()
        self.mark_kinds.clear()
        self.updates.clear()
        self.calibrations.clear()


class SessionReader:
    """Reads of one tenant on one connection.

    A reader of a snapshot reads the rows of `row` once; one of a write transaction (`is_writing`), in which rows change,
    each time, and it adds no move to the cache.
    """

    def __init__(self, db: Connection, tenant: str, place: str, cache: ReadCache, *, is_writing: bool = False) -> None:
        self.db = db
        self.tenant = tenant
        self.place = place
        self.segments = cache.segments
        self._updates = cache.updates
        self.mark_kinds = cache.mark_kinds
        self._calibrations = cache.calibrations
        self.is_writing = is_writing
        self._rows: dict[Any, tuple[Any, ...] | None] | None = None if is_writing else {}

    def row(self, sql: str, values: tuple[Value, ...]) -> tuple[Any, ...] | None:
        """Return the first row of a statement."""
        if self._rows is None:
            return self.db.row(sql, values)
        key = (sql, values)
        if key not in self._rows:
            remember(self._rows, key, self.db.row(sql, values))
        return self._rows[key]

    def resolve(self, name: str) -> str | None:
        """Return the encoded label that an encoded name means; see `LedgerStore.resolve`."""
        move = self.pointed(name)
        if move is not None and move.thread is not None:
            return move.label
        return None

    def pointed(self, name: str) -> MoveRecord | None:
        """Return the newest, checked update of the session that an encoded name means."""
        at: str | None = name
        for _ in range(MOST_ALIASES):
            if at is None:
                return None
            row = self.pointer_row(at)
            if row is None:
                return None
            if row[2] != ALIAS:
                return self._newest(at, row)
            changes = self.aliases_of(at)
            if not changes or (changes[-1].number, changes[-1].hash) != (row[0], row[3]):
                self.damaged(f"the alias {decode_text(at)!r} is lost")
            at = changes[-1].target
        raise BadReference(f"aliases from {decode_text(name)!r} form a circle or exceed {MOST_ALIASES} steps")

    def last_target(self, name: str) -> str:
        """Return the last target of a name's aliases, whether or not it is a session."""
        at = name
        for _ in range(MOST_ALIASES):
            changes = self.aliases_of(at)
            if not changes or changes[-1].target is None:
                break
            at = changes[-1].target
        return at

    def label_of(self, name: str) -> str:
        """Return the label that a name means, or the name if it means none."""
        label = self.resolve(encode_text(name))
        if label is not None:
            return decode_text(label)
        return name

    def thread_of(self, session: str) -> int | None:
        """Return the thread of a label or alias."""
        move = self.pointed(encode_text(session))
        if move is not None:
            return move.thread
        return None

    def pointer_row(self, label: str) -> _Pointer | None:
        """Return the pointer of a label or alias: number, thread, status, hash. None if nothing has that name."""
        row = self.row(_POINTER, (self.tenant, label))
        if row is None:
            sql = (
                "SELECT 1 FROM session_move WHERE tenant=?1 AND label=?2"
                " UNION ALL SELECT 1 FROM alias WHERE tenant=?1 AND name=?2 LIMIT 1"
            )
            if self.db.row(sql, (self.tenant, label)):
                self.damaged(f"the pointer of session {decode_text(label)!r} is lost")
        return cast("_Pointer | None", row)

    def move_of(self, label: str) -> MoveRecord | None:
        """Return the newest update of exactly this label, checked against the pointer."""
        row = self.pointer_row(label)
        if row is None:
            return None
        if row[2] == ALIAS:
            updates = self.updates_of(label)
            if updates:
                return updates[-1]
            return None
        return self._newest(label, row)

    def _newest(self, label: str, pointer: _Pointer) -> MoveRecord:
        """Return the newest move, checked against the one before it and against the pointer."""
        cached = self._updates.get(label)
        if cached is not None and cached[0] == pointer:
            return cached[1]
        number, thread, status, digest = pointer
        self.whole_numbers(number)
        updates = self.db.rows(_MOVES, (self.tenant, label, number - 1, number))
        if [row[-1] for row in updates] != ([number - 1, number] if number > 1 else [number]):
            self.damaged(f"move {number} of session {decode_text(label)!r} is lost")
        moved, metadata, reason, at_ms, stored, _ = updates[-1]
        before = updates[0][4] if number > 1 else b""
        record = MoveRecord(label, number, moved, metadata, reason, at_ms, stored)
        intact = chain.move_hash(self.tenant, before, record) == stored
        self.check(intact, f"move {number} of {decode_text(label)!r}")
        if stored != digest or moved != thread or self.metadata(record).status != status:
            self.damaged(f"the pointer of session {decode_text(label)!r} is not its newest move")
        if self._rows is not None:  # a transaction that writes may be rolled back
            remember(self._updates, label, (pointer, record))
        return record

    def session(self, label: str) -> RefUpdate | None:
        """Return the newest update of exactly this label; None if it never had one."""
        record = self.move_of(encode_text(label))
        if record is not None:
            return self.move(record)
        return None

    def ref_updates(self, label: str) -> list[RefUpdate]:
        """Return all updates of exactly this label, oldest first."""
        return [self.move(record) for record in self.updates_of(encode_text(label))]

    def updates_of(self, label: str) -> list[MoveRecord]:
        """Return all updates of a label, oldest first, checked."""
        sql = "SELECT number, thread, facts, reason, at_ms, hash FROM session_move WHERE tenant=? AND label=? ORDER BY number"
        updates = [MoveRecord(label, *row) for row in self.db.rows(sql, (self.tenant, label))]
        before = b""
        for place, record in enumerate(updates, 1):
            intact = record.number == place and chain.move_hash(self.tenant, before, record) == record.hash
            self.check(intact, f"move {place} of session {decode_text(label)!r}")
            before = record.hash
        return updates

    def metadata(self, record: MoveRecord) -> SessionMetadata:
        """Return the metadata of an update."""
        return from_json(record.metadata, _metadata)

    def move(self, record: MoveRecord) -> RefUpdate:
        """Return an update as a value."""
        label = decode_text(record.label)
        reason = decode_text(record.reason)
        return RefUpdate(label, record.number, record.thread, self.metadata(record), reason, record.at_ms)

    def aliases_of(self, name: str) -> list[AliasRecord]:
        """Return all changes of an alias, oldest first, checked."""
        sql = "SELECT number, target, reason, at_ms, hash FROM alias WHERE tenant=? AND name=? ORDER BY number"
        changes = [AliasRecord(name, *row) for row in self.db.rows(sql, (self.tenant, name))]
        before = b""
        for place, record in enumerate(changes, 1):
            intact = record.number == place and chain.alias_hash(self.tenant, before, record) == record.hash
            self.check(intact, f"change {place} of alias {decode_text(name)!r}")
            before = record.hash
        return changes

    def aliases(self, *, every: bool = False) -> list[Alias]:
        """Return the current aliases, or every change there was; by name."""
        names = self.db.rows("SELECT DISTINCT name FROM alias WHERE tenant=? ORDER BY name", (self.tenant,))
        histories = [self.aliases_of(str(name)) for (name,) in names]
        records = [record for changes in histories for record in (changes if every else changes[-1:])]
        return [
            Alias(decode_text(r.name), decode_text(r.target) if r.target else r.target, decode_text(r.reason), r.at_ms)
            for r in records
            if every or r.target is not None
        ]

    def check(self, intact: bool, what: str) -> None:
        """Raise LedgerDamaged unless the rows that were read are intact."""
        if not intact:
            self.damaged(f"{what} does not match its hash")

    def whole_numbers(self, *values: object) -> None:
        """Raise LedgerDamaged unless all are whole numbers: a damaged row may have anything in any column."""
        for value in values:
            if type(value) is not int:
                self.damaged("a row has something else where a number belongs")

    def damaged(self, what: str) -> NoReturn:
        """Return the error for damaged rows, which are never returned."""
        raise LedgerDamaged(
            f"{self.place}: {what} (nothing was returned from it; list all damage: nexus ledger verify, "
            "restore a backup: nexus ledger restore, save the rest: nexus ledger repair)"
        )
