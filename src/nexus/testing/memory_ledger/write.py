"""Appending to the memory ledger: a commit is checked as a whole before anything is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from nexus.errors import (
    BadEntry,
    BadReference,
    CompactionSuperseded,
    HeadMoved,
    IdempotencyConflict,
    NoSuchSession,
    SessionMoved,
)
from nexus.ledger import chain, replay
from nexus.ledger.codec import body_json, message_rows, payload_hash
from nexus.ledger.records import AssemblyRecord, DecisionRecord, EntryRecord, KeyRecord, MoveRecord
from nexus.ledger.sessions import Alias, NewRefUpdate, RefUpdate, SessionMetadata, checked, holder_of, parent_of
from nexus.ledger.text_encoding import decode_text, encode_text, to_json
from nexus.testing.memory_ledger.names import Names, facts_of, move_of
from nexus.testing.memory_ledger.rows import Rows, ThreadRows
from nexus.types.ledger_entries import STEPS, AssemblyRow, Commit, Committed, Cut, Entry, NewEntry


class Draft:
    """The entries of one commit while they are checked; nothing of the ledger is changed."""

    def __init__(self, rows: Rows, thread: ThreadRows, session: str, *, is_new: bool) -> None:
        self.rows, self.thread, self.session, self.is_new = rows, thread, session, is_new
        self.seq, self.digest, self.turn = thread.row.head_seq, thread.row.head_hash, thread.row.turn
        self.records: list[EntryRecord] = []
        self.keys: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        # Newest first, as `replay` reads them.
        self.marks: list[Entry] = [] if is_new else rows.marks(thread.row.id)

    def add(self, entry: NewEntry, new: Commit, now: int) -> None:
        """Takes an entry, unless all its keys are known. Raises BadEntry, IdempotencyConflict."""
        blobs: dict[str, bytes] = {}
        messages = message_rows(entry, blobs)
        body = body_json(entry.body)
        payload = payload_hash(entry, messages, body)
        if self._known(entry, payload):
            return
        if not self.records:  # what is known already is no reason to refuse: the caller only asks again
            self.check(new)
        seq, turn = self.seq + 1, self.turn + entry.opens_turn
        wrong = self._wrong(entry, seq)
        if wrong:
            raise BadEntry(f"{wrong}; nothing was stored")
        number, at_ms = self.thread.row.id, entry.at_ms or now
        columns = (number, seq, entry.kind, turn, at_ms, body)
        digest = chain.entry_hash(self.digest, self.rows.tenant, columns, messages)
        keys = [KeyRecord(key, payload) for key in sorted({encode_text(key) for key in entry.keys})]
        self.records.append(EntryRecord(*columns, digest, messages, keys))
        self.keys.update({key.key: payload for key in keys})
        self.blobs.update(blobs)
        if entry.kind not in STEPS:
            self.marks.insert(0, Entry(seq, entry.kind, turn, at_ms, entry.body, (), digest))
        self.seq, self.digest, self.turn = seq, digest, turn

    def check(self, new: Commit) -> None:
        """Raises HeadMoved or CompactionSuperseded when the session is not where the commit was made for."""
        row, session = self.thread.row, self.session
        if new.expected_head is not None and new.expected_head != row.head_seq:
            raise HeadMoved(session, new.expected_head, row.head_seq)
        if new.follows is not None:
            seq, digest = new.follows
            there = row.root_hash if self.is_new and seq == 0 else None
            if (there if self.is_new else self.rows.hash_at(row.id, seq)) != digest:
                raise HeadMoved(session, seq, row.head_seq)
        newest = self.marks[0].seq if self.marks else 0
        if new.expected_mark is not None and new.expected_mark != newest:
            raise CompactionSuperseded(
                f"session {session!r} has the mark {newest} and not {new.expected_mark}, after which this was planned: "
                "another compaction, undo, pin or clear came first. Nothing was stored; plan again"
            )

    def _known(self, entry: NewEntry, payload: bytes) -> bool:
        """Whether all the entry's keys were used for this very payload. Raises IdempotencyConflict for another one."""
        found = {key: self._payload(encode_text(key)) for key in entry.keys}
        used = {key: stored == payload for key, stored in found.items() if stored is not None}
        if not used:
            return self._inherited(entry, payload)
        if all(stored == payload for stored in found.values()):
            return True
        raise IdempotencyConflict(self.session, min(used, key=used.__getitem__), alike=all(used.values()))

    def _inherited(self, entry: NewEntry, payload: bytes) -> bool:
        """Whether the very same append is on the path from before a fork or rewind: then it is only asked for again."""
        parts = self.rows.path(self.thread.row.id)[:-1] if self.thread.row.parent is not None else []
        known = [(self.rows.get(part.thread).keys, part.high) for part in parts]
        wanted = {encode_text(key) for key in entry.keys}
        return any(
            bool(wanted) and all(key in keys and keys[key][1] == payload and keys[key][0] <= high for key in wanted)
            for keys, high in known
        )

    def _payload(self, key: str) -> bytes | None:
        stored = self.thread.keys.get(key)
        return stored[1] if stored is not None else self.keys.get(key)

    def _wrong(self, entry: NewEntry, seq: int) -> str:
        """What is wrong with the positions that an entry names; empty if nothing is."""
        if entry.kind == "messages":
            return ""
        if entry.kind == "undone":
            return replay.wrong_undo(entry, self.marks)
        if entry.kind in ("pin", "unpin"):
            place = replay.place_of(entry)
            there = 0 <= place.ord < self._messages_at(place.seq)
            return "" if there else f"there is no message {place.ord} in entry {place.seq}"
        return replay.wrong_fields(entry, seq)

    def _messages_at(self, seq: int) -> int:
        head = self.thread.row.head_seq
        if seq > head:
            return len(self.records[seq - head - 1].messages) if seq <= self.seq else 0
        number = self.thread.row.id
        record = self.rows.record_at(number, seq) if number in self.rows.threads else None
        return len(record.messages) if record is not None else 0


def commit(rows: Rows, session: str, new: Commit, facts: SessionMetadata | None, now: int) -> Committed:
    """Stores a commit's entries, cut and manifest; see `LedgerStore.commit`."""
    names, thread = rows.names, _thread_of(rows, session)
    is_new = thread is None
    if thread is None:
        thread = rows.new_thread(None, 0, now)
        name = encode_text(session)
        names = names.copy()
        point(rows, names, names.resolve(name) or names.last_target(name), thread.row.id, "created", facts, now)
    draft = Draft(rows, thread, session, is_new=is_new)
    if not new.entries:
        draft.check(new)
    for entry in new.entries:
        draft.add(entry, new, now)
    first = thread.row.head_seq + 1
    decision = _decision(draft, new.cut, now, is_new=is_new) if draft.records and new.cut is not None else None
    manifest = _manifest(draft, first, new.assembly, now) if draft.records and new.assembly is not None else None
    rows.names = names
    rows.threads[thread.row.id] = thread
    rows.blobs.update(draft.blobs)
    if manifest is not None:
        rows.blobs.update((hashlib.sha256(data).hexdigest(), data) for data in new.blobs)
    for record in draft.records:
        rows.append(record)
    if decision is not None:
        thread.decisions.setdefault(decision.view, []).append(decision)
    if manifest is not None:
        thread.assemblies[manifest.view, first] = manifest
    return Committed(thread.row.id, thread.row.head_seq, len(draft.records), thread.row.turn)


def fork(rows: Rows, new: NewRefUpdate, source: str, at_seq: int, now: int) -> int:
    """Moves a session to a new thread that shares the source's path; see `LedgerStore.fork`."""
    parent = _thread_of(rows, source)
    if parent is None:
        raise NoSuchSession(f"there is no session {source!r} to fork; `nexus sessions` lists them")
    if not 0 <= at_seq <= parent.row.head_seq:
        newest = parent.row.head_seq
        raise BadReference(f"session {source!r} has no entry {at_seq}, its newest is {newest}; nothing was forked")
    names = rows.names.copy()
    name = encode_text(new.label)
    label = names.resolve(name) or name
    _expect(names, label, new.expected_number)
    thread = rows.new_thread(holder_of(rows.path(parent.row.id), at_seq), at_seq, now)
    point(rows, names, label, thread.row.id, new.reason, new.facts, now)
    rows.names = names
    rows.threads[thread.row.id] = thread
    return thread.row.id


def _expect(names: Names, label: str, expected: int | None) -> None:
    """Raises SessionMoved unless the label's newest move has the expected number."""
    number = len(names.moves.get(label, ()))
    if expected is not None and number != expected:
        raise SessionMoved(decode_text(label), expected, number)


def move(rows: Rows, moves: Sequence[NewRefUpdate], aliases: Sequence[Alias], now: int) -> list[RefUpdate]:
    """Appends moves and alias changes; see `LedgerStore.move`."""
    names = rows.names.copy()
    newest = [names.newest(encode_text(new.label)) for new in moves]
    known = [parent_of(facts_of(one)) for one in newest if one is not None]
    done: list[RefUpdate] = []
    for new in moves:
        label = encode_text(new.label)
        _expect(names, label, new.expected_number)
        if new.thread is not None and (new.thread not in rows.threads or rows.threads[new.thread].row.erased):
            raise BadReference(f"there is no thread {new.thread}, or it was deleted for good; nothing was changed")
        done.append(move_of(point(rows, names, label, new.thread, new.reason, new.facts, now, known)))
    for alias in aliases:
        names.add_alias(alias, alias.at_ms or now)
    for new in moves:
        names.resolve(encode_text(new.label))
    rows.names = names
    return done


def point(
    rows: Rows,
    names: Names,
    label: str,
    thread: int | None,
    reason: str,
    facts: SessionMetadata | None,
    now: int,
    known: Collection[tuple[str, int, str]] = (),
) -> MoveRecord:
    """Appends a move to `names`; without facts the label keeps those that it has. Raises BadReference."""
    newest = names.newest(label)
    before = facts_of(newest) if newest is not None and newest.thread is not None else SessionMetadata()
    facts = checked(facts) if facts is not None else before
    if facts.parent_session and parent_of(facts) not in (parent_of(before), *known):
        _check_parent(rows, names, label, facts)
    return names.add_move(label, thread, facts, reason, now)


def _thread_of(rows: Rows, session: str) -> ThreadRows | None:
    label = rows.names.resolve(encode_text(session))
    thread = rows.names.thread_of(label) if label is not None else None
    return rows.get(thread) if thread is not None else None


def _check_parent(rows: Rows, names: Names, label: str, facts: SessionMetadata) -> None:
    """Raises BadReference when the parent session, its turn or its call is not there, or the parents lead back."""
    thread = names.thread_of(names.parent_of(label, facts))
    assert thread is not None  # a name resolves to a label that points to a thread, or to nothing
    turns = rows.get(thread).row.turn
    if facts.parent_turn > turns:
        raise BadReference(f"session {facts.parent_session!r} has {turns} turns, there is no turn {facts.parent_turn}")
    if facts.parent_call_id:
        calls = (call.id for entry in rows.read(thread) for row in entry.rows for call in row.message.calls())
        if facts.parent_call_id not in calls:
            raise BadReference(f"session {facts.parent_session!r} has no tool call {facts.parent_call_id!r}")


def _decision(draft: Draft, cut: Cut, now: int, *, is_new: bool) -> DecisionRecord | None:
    """A cut's row, unless another one was decided for this view first: that decision stands."""
    rows, number, view = draft.rows, draft.thread.row.id, encode_text(cut.view)
    newest = None if is_new else rows.last_cut(number, view)
    count = newest.number + 1 if newest is not None else 1
    if cut.number < count:
        return None
    decisions = draft.thread.decisions.get(view)
    before = decisions[-1].hash if decisions else b""
    columns = (number, view, count, "cut", cut.at_seq, to_json(replace(cut, number=count)), now)
    return DecisionRecord(*columns, chain.decision_hash(before, (rows.tenant, *columns)))


def _manifest(draft: Draft, seq: int, row: AssemblyRow, now: int) -> AssemblyRecord:
    columns = (draft.thread.row.id, encode_text(row.view), seq, body_json(row.manifest), row.at_ms or now)
    digest = chain.assembly_hash(draft.rows.tenant, AssemblyRecord(*columns, b""))
    return AssemblyRecord(*columns, digest)
