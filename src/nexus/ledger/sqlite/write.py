"""Appends to a SQLite ledger, inside the writer's transaction. Only this module inserts entries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadEntry, CompactionSuperseded, HeadMoved, IdempotencyConflict
from nexus.ledger import chain, replay
from nexus.ledger.codec import CallRow, blobs_of, body_json, call_rows, indexed, message_rows, payload_hash
from nexus.ledger.records import AssemblyRecord, DecisionRecord, EntryRecord, KeyRecord
from nexus.ledger.sessions import SessionMetadata, Thread
from nexus.ledger.sqlite.connection import Value
from nexus.ledger.sqlite.read import THREAD_COLUMNS
from nexus.ledger.sqlite.write_sessions import SessionWriter, thread_columns
from nexus.ledger.text_encoding import encode_text, to_json
from nexus.types.ledger_entries import STEPS, AssemblyRow, Commit, Committed, Cut, NewEntry

_CHANGING = THREAD_COLUMNS.split(",")[5:]
_SET = "".join(f"{name}=?," for name in _CHANGING)
_UPDATE = f"UPDATE thread SET {_SET}hash=? WHERE tenant=? AND id=?"  # noqa: S608 - constants

MOST_REMEMBERED = 1_000


class Writing(SessionWriter):
    """One transaction's writes for one tenant."""

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None) -> Committed:
        """Write a commit's entries, cut and manifest; see `LedgerStore.commit`."""
        memo = self._memo()
        cached = memo.get((self.tenant, session))
        thread = memo.pop((self.tenant, cached), None) if cached is not None else None
        thread = thread or self._target(session, facts)
        number = thread.id
        if not commit.entries:
            self._check_expectations(session, commit, thread)
        first = thread.head_seq + 1
        added = 0
        for entry in commit.entries:
            blobs: dict[str, bytes] = {}
            rows = message_rows(entry, blobs)
            body = body_json(entry.body)
            payload = payload_hash(entry, rows, body)
            if self._is_repeat(thread, session, entry, payload):
                continue
            if not added:  # what is known already is no reason to refuse: the caller only asks again
                self._check_expectations(session, commit, thread)
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
                self.db.run("INSERT OR IGNORE INTO blob VALUES (?,?,?)", (self.tenant, sha256, data))
            self.insert(record, texts, calls)
            thread, added = grown(thread, record), added + 1
        if added:
            if commit.cut is not None:
                self._cut(number, commit.cut)
            if commit.assembly is not None:
                self._assembly(number, first, commit.assembly)
                self._put_inputs(commit.blobs)
            self.put_thread(thread)
            memo[self.tenant, session], memo[self.tenant, number] = number, thread
        return Committed(number, thread.head_seq, added, thread.turn)

    def insert(self, record: EntryRecord, texts: Sequence[str], calls: Iterable[CallRow]) -> None:
        """Insert an entry's rows: entry, messages, search index, calls, images and keys."""
        db, where = self.db, (self.tenant, record.thread, record.seq)
        head = (record.kind, record.turn, record.at_ms, record.body, record.hash)
        db.run("INSERT INTO entry VALUES (?,?,?,?,?,?,?,?)", (*where, *head))
        if record.messages:
            db.run_many(
                "INSERT INTO message(tenant,thread,seq,ord,role,id,run_id,source,model,at_ms,content,meta,"
                "openai,anthropic,gemini,aside) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                [(*where, *row) for row in record.messages],
            )
            # The rows of one statement have numbers in a row: each is one more than the largest there is.
            first = db.last_row() - len(record.messages) + 1
            searchable = [(first + place, text) for place, text in enumerate(texts) if text.strip()]
            db.run_many("INSERT INTO search(rowid, text) VALUES (?,?)", searchable)
            for row in record.messages:
                for sha256 in blobs_of(row[7]):
                    use = (self.tenant, sha256, *where[1:])
                    db.run("INSERT OR IGNORE INTO blob_use VALUES (?,?,?,?)", use)
        call_values = [
            (*where[:2], c.call_id, record.seq, c.ord, c.part, c.name, c.is_result, c.is_error) for c in calls
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
        columns = (record.number, record.kind, record.at_seq, record.body, record.at_ms, record.hash)
        decisions, _, *manifests = self.reader.view_head(record.thread, record.view) or (0, b"", 0, 0, b"")
        self.db.run(
            "INSERT INTO decision VALUES (?,?,?,?,?,?,?,?,?)", (self.tenant, record.thread, record.view, *columns)
        )
        self.put_view_head(record.thread, record.view, (decisions + 1, record.hash, *manifests))

    def put_view_head(self, thread: int, view: str, columns: tuple[Value, ...]) -> None:
        """Store a view's row on a thread: decisions and last hash, manifests and last seq and hash."""
        digest = chain.columns_hash("view_head", (self.tenant, thread, view, *columns))
        self.db.run(
            "INSERT OR REPLACE INTO view_head VALUES (?,?,?,?,?,?,?,?,?)", (self.tenant, thread, view, *columns, digest)
        )

    def put_assembly(self, record: AssemblyRecord) -> None:
        """Store a manifest as the newest of its view."""
        head = self.reader.view_head(record.thread, record.view) or (0, b"", 0, 0, b"")
        row = (record.thread, record.seq, record.view, record.manifest, record.at_ms, record.hash)
        self.db.run(
            "INSERT INTO assembly(tenant, thread, seq, view, manifest, at_ms, hash) VALUES (?,?,?,?,?,?,?)",
            (self.tenant, *row),
        )
        self.put_view_head(record.thread, record.view, (*head[:2], head[2] + 1, record.seq, record.hash))

    def _memo(self) -> dict[Any, Any]:
        """Return the threads of this connection's last writes by session; empty after another writer."""
        memo, version = self.db.memo, self.db.value("PRAGMA data_version")
        if memo.get("version") != version or len(memo) > MOST_REMEMBERED:
            memo.clear()
            memo["version"] = version
        return memo

    def _target(self, session: str, facts: SessionMetadata | None) -> Thread:
        """Return the thread to append to; made, with its session, if it is new."""
        name = encode_text(session)
        move = self.reader.move_of(name)
        if move is None or move.thread is None:
            label = self.reader.resolve(name)
            move = self.reader.move_of(label) if label is not None else None
        if move is not None and move.thread is not None:
            return self.reader.thread(move.thread)
        thread = self.new_thread(None, 0, b"")
        self.point(self.reader.last_target(name), thread.id, "created", facts)
        return thread

    def _check_expectations(self, session: str, commit: Commit, thread: Thread) -> None:
        head = thread.head_seq
        if commit.expected_head is not None and commit.expected_head != head:
            raise HeadMoved(session, commit.expected_head, head)
        if commit.follows is not None:
            seq, digest = commit.follows
            if seq > head or self.reader.hash_on(self.reader.path(thread.id), seq) != digest:
                raise HeadMoved(session, seq, head)
        if commit.expected_checkpoint is not None:
            newest = self.reader.newest_mark(thread.id)
            if newest != commit.expected_checkpoint:
                raise CompactionSuperseded(
                    f"session {session!r} has the mark {newest} and not {commit.expected_checkpoint}, after which this was "
                    "planned: another compaction, undo, pin or clear came first. Nothing was stored; plan again"
                )

    def _is_repeat(self, thread: Thread, session: str, entry: NewEntry, payload: bytes) -> bool:
        """Return True if all the entry's keys are bound to this payload.

        Raises IdempotencyConflict for another payload.
        """
        if not entry.keys:
            return False
        sql = "SELECT payload FROM idempotency WHERE tenant=? AND thread=? AND key=?"
        payloads: list[bytes | None] = [
            self.db.value(sql, (self.tenant, thread.id, encode_text(key))) for key in entry.keys
        ]
        if not any(payloads):
            return thread.parent is not None and self._inherited(thread.id, entry, payload)
        if all(stored == payload for stored in payloads):
            return True
        used = {key: stored == payload for key, stored in zip(entry.keys, payloads, strict=True) if stored}
        raise IdempotencyConflict(session, min(used, key=used.__getitem__), alike=all(used.values()))

    def _inherited(self, thread: int, entry: NewEntry, payload: bytes) -> bool:
        """Return True if the same append is on the path from before a fork or rewind.

        It is then a repeated request.
        """
        sql = "SELECT payload FROM idempotency WHERE tenant=? AND thread=? AND key=? AND seq<=?"
        for part in self.reader.path(thread)[:-1]:
            uses = [self.db.value(sql, (self.tenant, part.thread, encode_text(k), part.high)) for k in entry.keys]
            if uses and all(stored == payload for stored in uses):
                return True
        return False

    def _check_entry(self, thread: int, entry: NewEntry, seq: int) -> None:
        """Raise BadEntry when an entry names positions that are not there."""
        if entry.kind == "messages":
            return
        if entry.kind == "undone":
            wrong = replay.wrong_undo(entry, self.reader.marks(thread))
        elif entry.kind in ("pin", "unpin"):
            place = replay.place_of(entry)
            entries = self.reader.entries(thread, place.seq - 1, place.seq) if 0 < place.seq < seq else []
            there = any(row.ref == place for found_entry in entries for row in found_entry.rows)
            wrong = "" if there else f"there is no message {place.ord} in entry {place.seq}"
        else:
            wrong = replay.wrong_fields(entry, seq)
        if wrong:
            raise BadEntry(f"{wrong} (nothing was stored)")

    def _cut(self, thread: int, cut: Cut) -> None:
        """Store a cut, unless another process decided for this view first."""
        view = encode_text(cut.view)
        newest = self.reader.last_cut(thread, cut.view)
        number = newest.number + 1 if newest is not None else 1
        if cut.number < number:
            return
        head = self.reader.view_head(thread, view)
        before = head[1] if head is not None else b""
        columns = (view, number, "cut", cut.at_seq, to_json(replace(cut, number=number)), self.clock_ms())
        digest = chain.decision_hash(before, (self.tenant, thread, *columns))
        self.put_decision(DecisionRecord(thread, *columns, digest))

    def _put_inputs(self, blobs: Iterable[bytes]) -> None:
        """Store the blobs that a manifest names. Existing ones are not bound to a statement again."""
        for data in blobs:
            key = (self.tenant, hashlib.sha256(data).hexdigest())
            if self.db.row("SELECT 1 FROM blob WHERE tenant=? AND sha256=?", key) is None:
                self.db.run("INSERT INTO blob VALUES (?,?,?)", (*key, data))

    def _assembly(self, thread: int, seq: int, row: AssemblyRow) -> None:
        columns = (thread, encode_text(row.view), seq, body_json(row.manifest), row.at_ms or self.clock_ms())
        digest = chain.assembly_hash(self.tenant, AssemblyRecord(*columns, b""))
        self.put_assembly(AssemblyRecord(*columns, digest))


def grown(thread: Thread, record: EntryRecord) -> Thread:
    """Return a thread's row after one more entry."""
    is_mark = record.kind not in STEPS
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
        last_ms=max(thread.last_ms, record.at_ms),
    )
