"""Writes of entries, cuts and manifests to an SQL ledger, inside a write transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from nexus.errors import (
    BadReference,
    CompactionSuperseded,
    HeadMoved,
    SessionBusy,
    TurnSuperseded,
    session_moved,
)
from nexus.ledger import chain, replay
from nexus.ledger.codec import CallRow, blobs_of, body_json, call_rows, indexed, message_rows, payload_hash
from nexus.ledger.records import (
    AssemblyRecord,
    CalibrationRecord,
    DecisionRecord,
    EntryRecord,
    KeyRecord,
)
from nexus.ledger.sessions import (
    SessionMetadata,
    Thread,
    holder_of,
)
from nexus.ledger.shared_sql.connection import Connection, Value
from nexus.ledger.shared_sql.idempotency import is_repeat
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_threads import THREAD_COLUMNS
from nexus.ledger.shared_sql.write_sessions import PUT_LEASE, SessionWriter, thread_columns, upsert
from nexus.ledger.text_encoding import decode_text, encode_text, to_json
from nexus.types.ledger_entries import (
    STEPS,
    AssemblyRow,
    Commit,
    Committed,
    Cut,
    NewEntry,
    StoredCalibration,
    TurnPosition,
)

_CHANGING = THREAD_COLUMNS.split(",")[5:]
_SET = "".join(f"{name}=?," for name in _CHANGING)
_UPDATE = f"UPDATE thread SET {_SET}hash=? WHERE tenant=? AND id=?"  # noqa: S608 - constants


_PUT_VIEW_HEAD = upsert(
    "view_head", "tenant,thread,view", "decisions,decision_hash,assemblies,assembly_seq,assembly_hash,hash"
)
_PUT_CALIBRATION = upsert("calibration_head", "tenant,provider,model", "number,hash")


class Writing(SessionWriter):
    """One transaction's writes for one tenant. `reader` reads on the same connection."""

    def __init__(self, db: Connection, reader: Reader, clock_ms: Callable[[], int]) -> None:
        super().__init__(db, reader, clock_ms)
        self.hashes: list[bytes] = []
        """Hashes of the entries that `commit` stored."""
        self._memo: dict[Any, Any] = {}  # of the connection, once `commit` has checked it

    # entries -----------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None) -> Committed:
        """Write a commit's entries, cut and manifest; see `LedgerStore.commit`."""
        memo = self._memo = self.db.last_writes()
        cached = memo.get((self.tenant, session)) if commit.base is None else None
        thread = memo.pop((self.tenant, cached), None) if cached is not None else None
        thread = thread or self._target(session, metadata, commit.base, commit.leaves)
        number = thread.id
        fence = commit.fence or 0
        changes_lease = False
        if not commit.entries:
            self._check_expectations(session, commit, thread)
            fence = self._pass_fence(session, commit)
        seqs: list[int] = []
        hashes: dict[int, bytes] = {}
        added = 0
        for entry in commit.entries:
            blobs: dict[str, bytes] = {}
            rows = message_rows(entry, blobs)
            body = body_json(entry.body)
            payload = payload_hash(entry, rows, body)
            if is_repeat(self.reader, thread, session, entry, payload):
                seqs.append(thread.head_seq + 1)  # of the next one
                continue
            if not added:  # what is known already is no reason to refuse: the caller only asks again
                self._check_expectations(session, commit, thread)
                fence = self._pass_fence(session, commit)
                changes_lease = commit.lease is not None and commit.fence is not None
            seq, turn = thread.head_seq + 1, thread.turn + entry.starts_turn
            if added and entry.kind not in STEPS:
                self.put_thread(thread)  # what follows reads what was just appended
            self._check_entry(number, entry, seq)
            at_ms = entry.at_ms or self.clock_ms()
            digest = chain.entry_hash(thread.head_hash, self.tenant, (number, seq, entry.kind, turn, at_ms, body), rows)
            keys = [KeyRecord(encode_text(key), payload) for key in dict.fromkeys(entry.keys)]
            record = EntryRecord(number, seq, entry.kind, turn, at_ms, body, digest, rows, keys)
            texts = [indexed(sized.message.parts, row[7]) for sized, row in zip(entry.messages, rows, strict=True)]
            calls = call_rows(tuple(sized.message for sized in entry.messages))
            for sha256, data in blobs.items():
                self.db.run("INSERT INTO blob VALUES (?,?,?) ON CONFLICT DO NOTHING", (self.tenant, sha256, data))
            self.insert(record, texts, calls)
            thread, added = grown(thread, record), added + 1
            hashes[seq] = digest
            self.hashes.append(digest)
            seqs.append(seq)
        if added:
            if commit.cut is not None:
                self._cut(number, commit.cut)
            if commit.assembly is not None:
                row = _with_head_hash(commit.assembly, hashes)
                self._assembly(number, seqs[commit.assembly_at], row, commit.blobs)
            self.put_thread(thread)
            memo[self.tenant, session], memo[self.tenant, number] = number, thread
        return Committed(number, thread.head_seq, added, thread.turn, fence, changes_lease, thread.head_hash)

    def insert(self, record: EntryRecord, texts: Sequence[str], calls: Iterable[CallRow]) -> None:
        """Insert an entry's rows: entry, messages, search index, calls, images and keys."""
        db, where = self.db, (self.tenant, record.thread, record.seq)
        head = (record.kind, record.turn, record.at_ms, record.body, record.hash)
        db.run("INSERT INTO entry VALUES (?,?,?,?,?,?,?,?)", (*where, *head))
        if record.messages:
            db.insert_messages([(*where, *row) for row in record.messages], texts)
            for row in record.messages:
                for sha256 in blobs_of(row[7]):
                    use = (self.tenant, sha256, *where[1:])
                    db.run("INSERT INTO blob_use VALUES (?,?,?,?) ON CONFLICT DO NOTHING", use)
        call_values = [
            (*where[:2], c.call_id, record.seq, c.ord, c.part, c.name, int(c.is_result), int(c.is_error)) for c in calls
        ]
        if call_values:
            db.run_many("INSERT INTO tool_call VALUES (?,?,?,?,?,?,?,?,?)", call_values)
        for key in record.keys:
            values = (*where[:2], key.key, record.seq, key.payload)
            db.run("INSERT INTO idempotency VALUES (?,?,?,?,?)", values)

    def put_thread(self, thread: Thread) -> None:
        """Store the thread's current row."""
        columns = thread_columns(thread)
        digest = chain.columns_hash("thread", (self.tenant, *columns))
        self.db.run(_UPDATE, (*columns[5:], digest, self.tenant, thread.id))

    def put_decision(self, record: DecisionRecord) -> None:
        """Store a view's decision as its newest."""
        decisions, _, *manifests = self._view_head(record.thread, record.view)
        self.db.run("INSERT INTO decision VALUES (?,?,?,?,?,?,?,?,?)", (self.tenant, *astuple(record)))
        self.put_view_head(record.thread, record.view, (decisions + 1, record.hash, *manifests))

    def put_view_head(self, thread: int, view: str, columns: tuple[Value, ...]) -> None:
        """Store a view's row on a thread: decisions and last hash, manifests and last seq and hash."""
        row = (self.tenant, thread, view, *columns)
        digest = chain.columns_hash("view_head", row)
        self.db.run(_PUT_VIEW_HEAD, (*row, digest))
        self._memo[self.tenant, thread, view] = columns

    def _view_head(self, thread: int, view: str) -> tuple[int, bytes, int, int, bytes]:
        head = self._memo.get((self.tenant, thread, view)) or self.reader.view_head(thread, view)
        return head or (0, b"", 0, 0, b"")

    def put_assembly(self, record: AssemblyRecord) -> None:
        """Store a manifest as the newest of its view."""
        head = self._view_head(record.thread, record.view)
        row = (self.tenant, record.thread, record.seq, record.view, record.manifest, record.at_ms, record.hash)
        self.db.run("INSERT INTO assembly(tenant,thread,seq,view,manifest,at_ms,hash) VALUES (?,?,?,?,?,?,?)", row)
        self.put_view_head(record.thread, record.view, (*head[:2], head[2] + 1, record.seq, record.hash))

    def _target(
        self,
        session: str,
        metadata: SessionMetadata | None,
        base: tuple[int, int] | None,
        leaves: tuple[int, int] | None,
    ) -> Thread:
        """Return the thread to append to; made, with its session, if it is new. `base` requires that, or `leaves`."""
        name = encode_text(session)
        move = self.reader.move_of(name)
        if move is None or move.thread is None:
            label = self.reader.resolve(name)
            move = self.reader.move_of(label) if label is not None else None
        if move is not None and move.thread is not None:
            self.db.lock("thread", move.thread)
            thread = self.reader.thread(move.thread)
            if base is None:
                return thread
            if leaves != (thread.id, thread.head_seq):
                raise session_moved(session, 0, move.number)
            name = move.label
            self.db.forget_writes()
        self.db.require_alone()
        if base is not None and base[0]:
            parent, seq = base
            if self.reader.thread(parent).erased:
                raise BadReference(f"thread {parent} was erased (nothing was stored)")
            if not 0 <= seq <= self.reader.thread(parent).head_seq:
                raise BadReference(f"entry {seq} not found in thread {parent} (nothing was stored)")
            thread = self.new_thread(holder_of(self.reader.path(parent), seq), seq, self.reader.hash_at(parent, seq))
        else:
            thread = self.new_thread(None, 0, b"")
        self.point(self.reader.last_target(name), thread.id, "created" if leaves is None else "continued", metadata)
        return thread

    def _check_expectations(self, session: str, commit: Commit, thread: Thread) -> None:
        head = thread.head_seq
        if commit.turn is not None:
            self._check_turn(session, commit.turn, thread, must_be_open=commit.fence is not None)
        if commit.expected_head is not None and commit.expected_head != head:
            raise HeadMoved(session, commit.expected_head, head)
        if commit.follows is not None:
            seq, digest = commit.follows
            stored = thread.head_hash
            if seq < head:
                stored = self.reader.hash_on(self.reader.path(thread.id), seq)
            if seq > head or stored != digest:
                raise HeadMoved(session, seq, head)
        if commit.expected_checkpoint is not None:
            newest = self.reader.newest_mark(thread.id)
            if newest != commit.expected_checkpoint:
                raise CompactionSuperseded(
                    f"session {session!r} has the mark {newest} and not {commit.expected_checkpoint}, after which this was "
                    "planned: another compaction, undo, pin or clear came first. Nothing was stored; plan again"
                )

    def _check_turn(self, session: str, position: TurnPosition, thread: Thread, *, must_be_open: bool) -> None:
        """Raise TurnSuperseded unless a turn is the newest of the session, and open, or failed: then it is tried again."""
        seq, turn = position.seq, position.turn
        is_there = position.thread == thread.id
        if not is_there:
            path = self.reader.path(thread.id)
            is_there = any(part.thread == position.thread and seq <= part.high for part in path)
        if seq > thread.head_seq or not is_there:
            raise TurnSuperseded(session, turn, "the session went back behind it, or was erased")
        if turn != thread.turn:
            raise TurnSuperseded(session, turn, f"turn {thread.turn} has begun since")
        if must_be_open and not thread.open_turn and self._newest_step(thread) != "failed":
            raise TurnSuperseded(session, turn, "it has ended")

    def _newest_step(self, thread: Thread) -> str:
        """Return the kind of the newest entry apart from checkpoints; empty without one."""
        sql = "SELECT kind FROM entry WHERE tenant=? AND thread=? AND seq>? AND seq<=? ORDER BY seq DESC"
        for part in reversed(self.reader.path(thread.id)):
            for (kind,) in self.db.each(sql, (self.tenant, part.thread, part.low, part.high)):
                if kind in STEPS:
                    return str(kind)
        return ""

    def _pass_fence(self, session: str, commit: Commit) -> int:
        """Check that no later writer wrote to the session, and return the token of this one.

        A writer without a token gets the next one. From then on it is the least that may write. The lease keeps the token
        of its holder, who is too late if a larger one wrote meanwhile. The commit may take the lease, end it, or both.

        Raises TurnSuperseded, SessionBusy.
        """
        if commit.fence is None:
            return 0
        key: tuple[str, str] | None = self._memo.get((self.tenant, session, "lease"))
        if key is None:
            key = self._memo[self.tenant, session, "lease"] = self._lease_key(session)
        self.db.lock("lease", key[1])
        before = self._lease(key)
        holder, expires_ms, token, fence = before
        change = commit.lease
        if change is not None and change.ms:
            holder, expires_ms, token = self._taken(before, encode_text(change.holder), change.ms)
            if holder != encode_text(change.holder):
                raise SessionBusy(session, decode_text(holder), 0)
            passing = token
        else:
            passing = commit.fence or max(token, fence) + 1
        if passing < fence:
            raise TurnSuperseded(session, commit.turn.turn if commit.turn else 0, "another program has taken over")
        is_over = change is not None and (change.is_brief or not change.ms)
        if change is not None and is_over and holder == encode_text(change.holder):
            holder, expires_ms = "", 0
        row = (holder, expires_ms, token, passing)
        if row != before:
            self.db.run(PUT_LEASE, (*key, *row))
        return passing

    def _check_entry(self, thread: int, entry: NewEntry, seq: int) -> None:
        """Raise BadReference when an entry names positions that are not there."""
        if entry.kind == "messages":
            return
        if entry.kind == "undone":
            wrong = replay.wrong_undo(entry, self.reader.checkpoints(thread))
        elif entry.kind in ("pin", "unpin"):
            place = replay.place_of(entry)
            entries = self.reader.entries(thread, place.seq - 1, place.seq) if 0 < place.seq < seq else []
            there = any(row.ref == place for found_entry in entries for row in found_entry.rows)
            wrong = "" if there else f"there is no message {place.ord} in entry {place.seq}"
        else:
            wrong = replay.wrong_fields(entry, seq)
        if wrong:
            raise BadReference(f"{wrong} (nothing was stored)", code="bad_entry")

    def _cut(self, thread: int, cut: Cut) -> None:
        """Store a cut, unless another process decided for this view first."""
        view = encode_text(cut.view)
        newest = self.reader.last_cut(thread, cut.view)
        number = newest.number + 1 if newest is not None else 1
        if cut.number < number:
            return
        head = self.reader.view_head(thread, view)
        before = head[1] if head is not None else b""
        fields = msgspec.to_builtins(replace(cut, number=number))
        for name in ("unshown_turns", "withheld_turns", "instructions"):
            if not fields[name]:  # cuts of earlier versions have no such field
                del fields[name]
        columns = (view, number, "cut", cut.at_seq, to_json(fields), self.clock_ms())
        digest = chain.decision_hash(before, (self.tenant, thread, *columns))
        self.put_decision(DecisionRecord(thread, *columns, digest))

    def _assembly(self, thread: int, seq: int, row: AssemblyRow, inputs: Iterable[bytes]) -> None:
        columns = (thread, encode_text(row.view), seq, body_json(row.manifest), row.at_ms or self.clock_ms())
        digest = chain.assembly_hash(self.tenant, AssemblyRecord(*columns, b""))
        self.put_assembly(AssemblyRecord(*columns, digest))
        for data in inputs:  # large ones mostly: an existing one is not bound to a statement again
            key = (self.tenant, hashlib.sha256(data).hexdigest())
            if (*key, "blob") in self._memo:
                continue
            if self.db.row("SELECT 1 FROM blob WHERE tenant=? AND sha256=?", key) is None:
                self.db.run("INSERT INTO blob VALUES (?,?,?) ON CONFLICT DO NOTHING", (*key, data))
            self._memo[*key, "blob"] = True

    def calibrate(self, provider: str, model: str, new: StoredCalibration) -> None:
        """Append a calibration as the newest of its model."""
        names = (encode_text(provider), encode_text(model))
        self.db.lock("calibration", *names)
        sql = "SELECT number FROM calibration_head WHERE tenant=? AND provider=? AND model=?"
        number = int(self.db.value(sql, (self.tenant, *names)) or 0) + 1
        columns = (*names, number, new.factor_64, new.samples, new.at_ms or self.clock_ms())
        digest = chain.calibration_hash(self.tenant, CalibrationRecord(*columns, b""))
        self.put_calibration(CalibrationRecord(*columns, digest))

    def put_calibration(self, record: CalibrationRecord) -> None:
        """Store a calibration as the newest of its model."""
        row = (self.tenant, *astuple(record))
        self.db.run("INSERT INTO calibration VALUES (?,?,?,?,?,?,?,?)", row)
        self.db.run(_PUT_CALIBRATION, (*row[:4], record.hash))


def _with_head_hash(row: AssemblyRow, hashes: Mapping[int, bytes]) -> AssemblyRow:
    """Return a manifest with the hash of its head if that was stored just now, and nobody could know it before."""
    digest = hashes.get(row.manifest.get("head", 0))
    if digest is not None:
        return replace(row, manifest={**row.manifest, "head_hash": digest.hex()})
    return row


def grown(thread: Thread, record: EntryRecord) -> Thread:
    """Return a thread's row after one more entry."""
    is_mark = record.kind not in STEPS
    last_ms = thread.last_ms
    if thread.head_seq == thread.fork_seq:
        last_ms = 0  # the time of an entry that it shares
    open_turn = thread.open_turn
    if record.kind in STEPS:
        open_turn = record.kind in ("messages", "lost") and record.turn > 0
    elif record.kind == "clear":
        open_turn = False
    return replace(
        thread,
        head_seq=record.seq,
        head_hash=record.hash,
        turn=record.turn,
        open_turn=open_turn,
        marks=thread.marks + is_mark,
        messages=thread.messages + len(record.messages),
        tokens=thread.tokens + sum(max(row[9:12]) for row in record.messages),
        first_ms=min(thread.first_ms, record.at_ms) if thread.first_ms else record.at_ms,
        last_ms=max(last_ms, record.at_ms),
    )
