"""Writes of threads, pointers, aliases and leases to an SQL ledger, inside a write transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import astuple, replace

from nexus.errors import BadReference, NoSuchSession, session_moved
from nexus.ledger import chain
from nexus.ledger.records import AliasRecord, MoveRecord
from nexus.ledger.sessions import (
    Alias,
    Lease,
    NewRefUpdate,
    RefUpdate,
    SessionMetadata,
    Thread,
    checked,
    holder_of,
    parent_of,
)
from nexus.ledger.shared_sql.connection import Connection, Value
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ALIAS
from nexus.ledger.shared_sql.read_threads import THREAD_COLUMNS
from nexus.ledger.text_encoding import decode_text, encode_text, to_json
from nexus.types.counts import count_noun


def upsert(table: str, key: str, columns: str) -> str:
    """Return the statement that inserts a row or replaces the one with the same key; the key comes first."""
    marks = ",".join("?" * len(f"{key},{columns}".split(",")))
    changes = ",".join(f"{name}=excluded.{name}" for name in columns.split(","))
    return f"INSERT INTO {table}({key},{columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}"  # noqa: S608


_PUT_POINTER = upsert("session", "tenant,label", "number,thread,status,hash")
_TIME = "SELECT at_ms FROM entry WHERE tenant=? AND thread=? AND seq=?"
PUT_LEASE = upsert("lease", "tenant,label", "holder,expires_ms,token,fence")

MOST_LEASE_MS = 120_000
"""Longest time for which a lease is taken."""

MOST_PARENTS = 1_000
"""Sessions that spawn sessions, at most so many deep."""


def thread_columns(thread: Thread) -> tuple[Value, ...]:
    """Return a thread's columns as stored: flags are 0 or 1."""
    columns = astuple(thread)
    return (*columns[:8], int(columns[8]), *columns[9:14], int(columns[14]))


class SessionWriter:
    """One transaction's writes of sessions for one tenant. `reader` reads on the same connection."""

    def __init__(self, db: Connection, reader: Reader, clock_ms: Callable[[], int]) -> None:
        self.db, self.reader, self.clock_ms = db, reader, clock_ms
        self.tenant = reader.tenant

    def new_thread(self, parent: int | None, fork_seq: int, digest: bytes) -> Thread:
        """Create an empty thread, or one that continues its parent after `fork_seq` with chain value `digest`."""
        number = int(self.db.value("SELECT coalesce(max(id),0)+1 FROM thread WHERE tenant=?", (self.tenant,)))
        root = digest or chain.root_hash(self.tenant, number)
        thread = self.begun(Thread(number, parent, fork_seq, root, self.clock_ms(), fork_seq, root))
        self.put_new_thread(thread)
        return thread

    def begun(self, thread: Thread) -> Thread:
        """Return a thread without entries of its own with what it takes over: turn, open turn and time."""
        if thread.parent is None:
            return thread
        turn, open_turn = self.end_of(thread.parent, thread.fork_seq)
        return replace(thread, turn=turn, open_turn=open_turn, last_ms=self._time_of(thread.parent, thread.fork_seq))

    def _time_of(self, thread: int, seq: int) -> int:
        """Return the time of an entry of a path in milliseconds; 0 if it is not there."""
        for part in self.reader.path(thread):
            if part.low < seq <= part.high:
                at_ms = self.db.value(_TIME, (self.tenant, part.thread, seq)) or 0
                self.reader.whole_numbers(at_ms)
                return at_ms
        return 0

    def put_new_thread(self, thread: Thread) -> None:
        """Insert a thread's row."""
        stored = thread_columns(thread)
        digest = chain.columns_hash("thread", (self.tenant, *stored))
        values = (self.tenant, *stored, digest)
        marks = ",".join("?" * len(values))
        self.db.run(f"INSERT INTO thread(tenant,{THREAD_COLUMNS},hash) VALUES ({marks})", values)  # noqa: S608 - constants

    def end_of(self, thread: int, seq: int) -> tuple[int, bool]:
        """Return the turn at entry `seq` of a path, and whether it was open there."""
        row = self.reader.thread(thread)
        if row.head_seq == seq:
            return row.turn, row.open_turn
        turn: int | None = None
        sql = "SELECT turn, kind FROM entry WHERE tenant=? AND thread=? AND seq>? AND seq<=? ORDER BY seq DESC"
        for part in reversed(self.reader.path(thread)):
            for at_turn, kind in self.db.each(sql, (self.tenant, part.thread, part.low, min(part.high, seq))):
                self.reader.whole_numbers(at_turn)
                turn = int(at_turn) if turn is None else turn
                if kind in ("messages", "lost", "completed", "failed", "clear"):
                    return turn, kind in ("messages", "lost") and turn > 0
        return turn or 0, False

    def fork(self, new: NewRefUpdate, source: str, at_seq: int) -> int:
        """Move a session to a new thread that shares `source`'s path up to `at_seq`; see `LedgerStore.fork`."""
        self.db.require_alone()
        self.db.forget_writes()
        parent = self.reader.thread_of(source)
        if parent is None:
            raise NoSuchSession(f"session {source!r} not found (list sessions: nexus sessions)")
        head = self.reader.thread(parent).head_seq
        if not 0 <= at_seq <= head:
            raise BadReference(
                f"entry {at_seq} not found in session {source!r}: its newest entry is {head} (nothing was forked)"
            )
        digest = self.reader.hash_at(parent, at_seq)
        label = self.reader.resolve(encode_text(new.label)) or encode_text(new.label)
        self._expect(label, new.expected_number)
        thread = self.new_thread(holder_of(self.reader.path(parent), at_seq), at_seq, digest)
        self.point(label, thread.id, new.reason, new.metadata)
        return thread.id

    def point(
        self,
        label: str,
        thread: int | None,
        reason: str,
        metadata: SessionMetadata | None,
        known_parents: Collection[tuple[str, int, str]] = (),
    ) -> MoveRecord:
        """Append a pointer update of an encoded label; without `metadata` it keeps its metadata.

        The parent of a session is checked when it is new. `known` are parents that another label passes on.
        """
        old = self.reader.updates_of(label)
        before_metadata = self.reader.metadata(old[-1]) if old and old[-1].thread is not None else SessionMetadata()
        metadata = checked(metadata) if metadata is not None else before_metadata
        if parent_of(metadata) not in (parent_of(before_metadata), *known_parents):
            self._check_parent(label, metadata)
        before = old[-1].hash if old else b""
        columns = (label, len(old) + 1, thread, to_json(metadata), encode_text(reason), self.clock_ms())
        record = MoveRecord(*columns, chain.move_hash(self.tenant, before, MoveRecord(*columns, b"")))
        self.put_move(record, metadata.status)
        return record

    def put_move(self, record: MoveRecord, status: str) -> None:
        """Store an update as the label's newest. A label with an alias and no thread stays an alias."""
        self.db.run("INSERT INTO session_move VALUES (?,?,?,?,?,?,?,?)", (self.tenant, *astuple(record)))
        alias = self.reader.aliases_of(record.label) if record.thread is None else []
        if alias and alias[-1].target is not None:
            self._point_row(record.label, alias[-1].number, None, ALIAS, alias[-1].hash)
        else:
            self._point_row(record.label, record.number, record.thread, status, record.hash)

    def point_again(self, label: str) -> None:
        """Point to the newest update of a label that had an alias, if there is one."""
        updates = self.reader.updates_of(label)
        if updates:
            newest = updates[-1]
            self._point_row(label, newest.number, newest.thread, self.reader.metadata(newest).status, newest.hash)

    def _point_row(self, label: str, number: int, thread: int | None, status: str, digest: bytes) -> None:
        row = (self.tenant, label, number, thread, status, digest)
        self.db.run(_PUT_POINTER, row)

    def update_refs(self, updates: Sequence[NewRefUpdate], aliases: Sequence[Alias]) -> list[RefUpdate]:
        """Append pointer updates and alias changes; see `LedgerStore.update_refs`."""
        self.db.require_alone()
        self.db.forget_writes()
        stored: list[RefUpdate] = []
        newest = [self.reader.move_of(encode_text(new.label)) for new in updates]
        known_parents = [parent_of(self.reader.metadata(record)) for record in newest if record is not None]
        for new in updates:
            label = encode_text(new.label)
            self._expect(label, new.expected_number)
            try:
                is_erased = new.thread is not None and self.reader.thread(new.thread).erased
            except NoSuchSession as error:
                raise BadReference(f"thread {new.thread} not found (nothing was changed)") from error
            if is_erased:
                raise BadReference(f"thread {new.thread} was erased (nothing was changed)")
            stored.append(self.reader.move(self.point(label, new.thread, new.reason, new.metadata, known_parents)))
        for alias in aliases:
            self._alias(alias)
        self._move_leases(updates)
        return stored

    def _expect(self, label: str, expected: int | None) -> None:
        """Raise HeadMoved unless the label's newest update has the expected number."""
        if expected is None:
            return
        last = self.reader.move_of(label)
        number = last.number if last is not None else 0
        if expected != number:
            raise session_moved(decode_text(label), expected, number)

    def _alias(self, alias: Alias) -> None:
        name = encode_text(alias.name)
        target = encode_text(alias.target) if alias.target is not None else None
        if target is not None and self.reader.resolve(name) == name:
            raise BadReference(f"{alias.name!r} is a session (rename or merge it instead of using it as an alias)")
        old = self.reader.aliases_of(name)
        before = old[-1].hash if old else b""
        columns = (name, len(old) + 1, target, encode_text(alias.reason), alias.at_ms or self.clock_ms())
        record = AliasRecord(*columns, chain.alias_hash(self.tenant, before, AliasRecord(*columns, b"")))
        self.put_alias(record)
        if target is not None and self.reader.resolve(name) is None:
            raise BadReference(f"target {alias.target!r} of alias {alias.name!r} is not a session")

    def put_alias(self, record: AliasRecord) -> None:
        """Store an alias change as the newest of its name. A session of that name takes precedence."""
        self.db.run("INSERT INTO alias VALUES (?,?,?,?,?,?,?)", (self.tenant, *astuple(record)))
        pointer = self.db.row("SELECT thread FROM session WHERE tenant=? AND label=?", (self.tenant, record.name))
        if pointer is None or pointer[0] is None:
            self._point_row(record.name, record.number, None, ALIAS, record.hash)

    def _check_parent(self, label: str, metadata: SessionMetadata) -> None:
        """Raise BadReference when the session that spawned this one is not there, or was spawned by it."""
        if not metadata.parent_session:
            return
        at, deep = encode_text(metadata.parent_session), 0
        while at:
            parent = self.reader.resolve(at)
            if parent is None and deep:
                break
            if parent is None:
                raise BadReference(f"parent session {decode_text(at)!r} of {decode_text(label)!r} not found")
            if parent == label or deep > MOST_PARENTS:
                raise BadReference(f"session {decode_text(label)!r} would be its own parent (nothing was stored)")
            move = self.reader.move_of(parent)
            at = encode_text(self.reader.metadata(move).parent_session) if move is not None else ""
            deep += 1
        thread = self.reader.thread_of(metadata.parent_session)
        if thread is None:
            return
        turns = self.reader.thread(thread).turn
        if metadata.parent_turn > turns:
            what = f"turn {metadata.parent_turn} not found: session {metadata.parent_session!r}"
            raise BadReference(f"{what} has {count_noun(turns, 'turn')}")
        sql = "SELECT 1 FROM tool_call WHERE tenant=? AND thread=? AND call_id=? AND seq<=? AND is_result=0 LIMIT 1"
        key = encode_text(metadata.parent_call_id)
        parts = self.reader.path(thread)
        if key and not any(self.db.row(sql, (self.tenant, part.thread, key, part.high)) for part in parts):
            raise BadReference(
                f"tool call {metadata.parent_call_id!r} not found in session {metadata.parent_session!r}"
            )

    def take_lease(self, session: str, holder: str, ms: int) -> Lease:
        """Take or renew a lease; see `LedgerStore.take_lease`."""
        key, name = self._lease_key(session), encode_text(holder)
        self.db.lock("lease", key[1])
        before = self._lease(key)
        held_by, expires_ms, token = self._taken(before, name, ms)
        if held_by == name:
            self.db.run(PUT_LEASE, (*key, held_by, expires_ms, token, before[3]))
        return Lease(session, decode_text(held_by), expires_ms, token)

    def _taken(self, lease: tuple[str, int, int, int], name: str, ms: int) -> tuple[str, int, int]:
        """Return a lease's holder, end and token after `name` tried to take it: its own, or those of another holder."""
        held_by, expires_ms, token, fence = lease
        now_ms = self.db.lease_clock_ms()
        # A lease that seems to last longer than any does was taken by another clock, such as before a restart.
        is_held = bool(held_by) and held_by != name and now_ms < expires_ms <= now_ms + MOST_LEASE_MS
        if is_held:
            return held_by, expires_ms, token
        if held_by != name:
            token = max(token, fence) + 1
        return name, now_ms + min(ms, MOST_LEASE_MS), token

    def release_lease(self, session: str, holder: str) -> None:
        """End a holder's lease. Its row stays, so that tokens only rise."""
        key = self._lease_key(session)
        sql = "UPDATE lease SET holder='', expires_ms=0 WHERE tenant=? AND label=? AND holder=?"
        self.db.run(sql, (*key, encode_text(holder)))

    def _move_leases(self, updates: Sequence[NewRefUpdate]) -> None:
        """Let the leases of renamed sessions follow them: their writers go on under the new name."""
        labels = {new.thread: encode_text(new.label) for new in updates if new.thread is not None}
        for new in updates:
            before = self.reader.updates_of(encode_text(new.label))[-2:-1] if new.thread is None else []
            target = next((labels[old.thread] for old in before if old.thread in labels), None)
            label = encode_text(new.label)
            sql = "SELECT 1 FROM lease WHERE tenant=? AND label=?"
            if target is not None and self.db.row(sql, (self.tenant, label)) is not None:
                self.db.run("DELETE FROM lease WHERE tenant=? AND label=?", (self.tenant, target))
                self.db.run("UPDATE lease SET label=? WHERE tenant=? AND label=?", (target, self.tenant, label))

    def _lease_key(self, session: str) -> tuple[str, str]:
        name = encode_text(session)
        return self.tenant, self.reader.resolve(name) or name

    def _lease(self, key: tuple[str, str]) -> tuple[str, int, int, int]:
        """Return a lease's newest holder, its end, the holder's token, and the least token that may write."""
        row = self.db.row("SELECT holder, expires_ms, token, fence FROM lease WHERE tenant=? AND label=?", key)
        holder, expires_ms, token, fence = row if row is not None else ("", 0, 0, 0)
        self.reader.whole_numbers(expires_ms, token, fence)
        return str(holder), expires_ms, token, fence
