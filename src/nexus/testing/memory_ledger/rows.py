"""What the memory ledger holds of one tenant: records, and how a path of entries is read from them.

Records are kept as `dump` gives them. An entry is checked against its hash when it is first read; its messages
are kept as read, because they cannot be changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import cast

import msgspec

from nexus.errors import LedgerDamaged, NoSuchSession
from nexus.ledger import chain
from nexus.ledger.codec import decode_body, read_entry
from nexus.ledger.records import AssemblyRecord, CalibrationRecord, DecisionRecord, EntryRecord, ThreadRecord
from nexus.ledger.sessions import Segment, Thread
from nexus.ledger.text_encoding import decode_text, from_json
from nexus.testing.memory_ledger.names import Names
from nexus.types.ledger_entries import STEPS, AssemblyRow, Cut, Entry, EntryKind, StoredMessage

_cut = msgspec.json.Decoder(Cut)

END = 1 << 62
"""A seq beyond all others."""


class ThreadRows:
    """A thread with its own entries, keys, decisions and manifests, and the totals of what it holds.

    `turn` and `open_turn` begin as they are on the parent's path at the fork.
    """

    def __init__(self, row: Thread) -> None:
        self.row = row
        self.entries: list[EntryRecord] = []
        self.keys: dict[str, tuple[int, bytes]] = {}
        self.decisions: dict[str, list[DecisionRecord]] = {}
        self.assemblies: dict[tuple[str, int], AssemblyRecord] = {}
        self.mark_seqs: list[int] = []
        self.read: dict[int, tuple[StoredMessage, ...]] = {}

    def copy(self) -> ThreadRows:
        """The same thread, to be changed."""
        copied = ThreadRows(self.row)
        copied.entries, copied.keys, copied.read = list(self.entries), dict(self.keys), dict(self.read)
        copied.decisions = {view: list(rows) for view, rows in self.decisions.items()}
        copied.assemblies, copied.mark_seqs = dict(self.assemblies), list(self.mark_seqs)
        return copied

    def record(self) -> ThreadRecord:
        """The thread's row as a record."""
        row = self.row
        return ThreadRecord(
            row.id, row.parent, row.fork_seq, row.root_hash, row.at_ms, row.head_seq, row.head_hash, row.erased
        )

    def append(self, record: EntryRecord) -> None:
        """Adds the thread's next entry."""
        row = self.row
        is_mark = record.kind not in STEPS
        self.entries.append(record)
        self.keys.update({key.key: (record.seq, key.payload) for key in record.keys})
        if is_mark:
            self.mark_seqs.append(record.seq)
        self.row = msgspec.structs.replace(
            row,
            head_seq=record.seq,
            head_hash=record.hash,
            turn=record.turn,
            open_turn=opened(record, open_turn=row.open_turn),
            marks=row.marks + is_mark,
            messages=row.messages + len(record.messages),
            tokens=row.tokens + tokens(record),
            first_ms=min(row.first_ms, record.at_ms) if row.first_ms else record.at_ms,
            last_ms=max(row.last_ms, record.at_ms),
        )

    def erased(self) -> ThreadRows:
        """What stays of the thread when it is deleted for good: its number and where it began."""
        row = self.row
        parts = (row.id, row.parent, row.fork_seq, row.root_hash, row.at_ms)
        return ThreadRows(Thread(*parts, row.fork_seq, row.root_hash, erased=True))


class Rows:
    """All rows of one tenant. `written` has each entry's thread and seq in the order in which they were stored."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.blobs: dict[str, bytes] = {}
        self.threads: dict[int, ThreadRows] = {}
        self.written: list[tuple[int, int]] = []
        self.names = Names(tenant)
        self.calibrations: dict[tuple[str, str], list[CalibrationRecord]] = {}

    def copy(self) -> Rows:
        """The same rows, to be changed."""
        copied = Rows(self.tenant)
        copied.blobs, copied.names = dict(self.blobs), self.names.copy()
        copied.threads = {number: thread.copy() for number, thread in self.threads.items()}
        copied.written = list(self.written)
        copied.calibrations = {name: list(rows) for name, rows in self.calibrations.items()}
        return copied

    def get(self, thread: int) -> ThreadRows:
        """A thread. Raises NoSuchSession."""
        found = self.threads.get(thread)
        if found is None:
            raise NoSuchSession(f"the ledger in memory has no thread {thread}")
        return found

    def append(self, record: EntryRecord) -> None:
        """Adds an entry to its thread."""
        self.threads[record.thread].append(record)
        self.written.append((record.thread, record.seq))

    def new_thread(self, parent: int | None, fork_seq: int, at_ms: int) -> ThreadRows:
        """The next thread, not yet among the others."""
        number = max(self.threads, default=0) + 1
        if parent is None:
            root = chain.root_hash(self.tenant, number)
            return ThreadRows(Thread(number, None, 0, root, at_ms, 0, root))
        root = self.hash_at(parent, fork_seq) or b""
        turn, open_turn = self.state_at(parent, fork_seq)
        return ThreadRows(Thread(number, parent, fork_seq, root, at_ms, fork_seq, root, turn, open_turn))

    # paths -------------------------------------------------------------------------------------------------------

    def path(self, thread: int) -> list[Segment]:
        """The thread's path, root first. The last segment has no end."""
        found: list[Segment] = []
        at: int | None = thread
        high = END
        while at is not None:
            row = self.get(at).row
            found.append(Segment(at, row.fork_seq, high, row.root_hash))
            high, at = min(row.fork_seq, high), row.parent
        found.reverse()
        return found

    def records(self, thread: int, after: int = 0, until: int = END) -> Iterator[EntryRecord]:
        """The path's entries with `after < seq <= until`, in order, as stored."""
        for part in self.path(thread):
            start, end = max(part.low, after), min(part.high, until)
            if start < end:
                yield from self.threads[part.thread].entries[start - part.low : end - part.low]

    def record_at(self, thread: int, seq: int) -> EntryRecord | None:
        """The path's entry `seq` as stored; None if there is none."""
        return next(self.records(thread, seq - 1, seq), None) if seq > 0 else None

    def hash_at(self, thread: int, seq: int) -> bytes | None:
        """The chain value after entry `seq` of the path, the root hash at 0; None if there is no such entry."""
        if seq == 0:
            return self.path(thread)[0].root
        found = self.record_at(thread, seq)
        return found.hash if found is not None else None

    def state_at(self, thread: int, seq: int) -> tuple[int, bool]:
        """The newest turn at entry `seq` of the path, and whether it is open."""
        turn = next((record.turn for record in self._backwards(thread, seq)), 0)
        last = next((record for record in self._backwards(thread, seq) if record.kind in STEPS | {"clear"}), None)
        return turn, last is not None and opened(last, open_turn=False)

    def _backwards(self, thread: int, seq: int) -> Iterator[EntryRecord]:
        for part in reversed(self.path(thread)):
            end = min(part.high, seq)
            if part.low < end:
                yield from reversed(self.threads[part.thread].entries[: end - part.low])

    def read(self, thread: int, after: int = 0, until: int = END) -> list[Entry]:
        """The path's entries with `after < seq <= until`, in order, checked. Raises LedgerDamaged, NoSuchSession."""
        row = self.get(thread).row
        last = min(until, row.head_seq)
        if last > after and row.erased:
            raise NoSuchSession(f"thread {thread} of the ledger in memory was deleted for good")
        found = [self._checked(record) for record in self.records(thread, max(after, 0), last)]
        if len(found) != max(last - max(after, 0), 0):
            raise _damaged(f"thread {thread} has lost entries")
        return found

    def marks(self, thread: int) -> list[Entry]:
        """The path's marks, newest first, checked."""
        return [
            self._checked(self.threads[part.thread].entries[seq - part.low - 1])
            for part in reversed(self.path(thread))
            for seq in reversed(self.threads[part.thread].mark_seqs)
            if seq <= part.high
        ]

    def _checked(self, record: EntryRecord) -> Entry:
        thread = self.threads[record.thread]
        rows = thread.read.get(record.seq)
        if rows is None:
            index = record.seq - thread.row.fork_seq - 1
            before = thread.entries[index - 1].hash if index else thread.row.root_hash
            columns = (record.thread, record.seq, record.kind, record.turn, record.at_ms, record.body)
            digest = record.hash
            if record.kind != "lost" or record.messages:
                digest = chain.entry_hash(before, self.tenant, columns, record.messages)
            if digest != record.hash:
                raise _damaged(f"entry {record.seq} of thread {record.thread} does not match its hash")
            head = (record.seq, record.kind, record.turn, record.at_ms, record.body, record.hash)
            rows = thread.read[record.seq] = read_entry(head, record.messages, self.blob).rows
        kind = cast("EntryKind", record.kind)
        return Entry(record.seq, kind, record.turn, record.at_ms, decode_body(record.body), rows, record.hash)

    def blob(self, sha256: str) -> bytes:
        """What is stored by a hash, checked against it. Raises LedgerDamaged."""
        data = self.blobs.get(sha256)
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            raise _damaged(f"image {sha256[:12]} is missing or damaged")
        return data

    # views -------------------------------------------------------------------------------------------------------

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """The view's newest cut on the path."""
        for part in reversed(self.path(thread)):
            decisions = self.threads[part.thread].decisions.get(view, [])
            for number in range(len(decisions) - 1, -1, -1):
                if decisions[number].at_seq <= part.high:
                    return self._cut(decisions, number)
        return None

    def cuts(self, thread: int, view: str) -> list[Cut]:
        """Every cut of the view on the path, by number."""
        return [
            self._cut(decisions, number)
            for part in self.path(thread)
            for decisions in [self.threads[part.thread].decisions.get(view, [])]
            for number, row in enumerate(decisions)
            if row.at_seq <= part.high
        ]

    def _cut(self, decisions: list[DecisionRecord], number: int) -> Cut:
        row, before = decisions[number], decisions[number - 1].hash if number else b""
        columns = (self.tenant, row.thread, row.view, row.number, row.kind, row.at_seq, row.body, row.at_ms)
        if chain.decision_hash(before, columns) != row.hash:
            raise _damaged(f"view decision {row.number} of thread {row.thread} does not match its hash")
        return from_json(row.body, _cut)

    def manifests(self, thread: int, after: int = 0, until: int = END) -> list[AssemblyRow]:
        """The manifests on the path with `after < seq <= until`, oldest first, checked."""
        return [
            self._manifest(rows[view, seq])
            for part in self.path(thread)
            for rows in [self.threads[part.thread].assemblies]
            for seq, view in sorted((seq, view) for view, seq in rows)
            if after < seq <= min(part.high, until)
        ]

    def _manifest(self, row: AssemblyRecord) -> AssemblyRow:
        if chain.assembly_hash(self.tenant, row) != row.hash:
            raise _damaged(f"manifest {row.seq} of thread {row.thread} does not match its hash")
        return AssemblyRow(decode_text(row.view), decode_body(row.manifest), row.at_ms, row.seq)


def tokens(record: EntryRecord) -> int:
    """The base tokens of an entry's messages, in the dearest wire form of each."""
    return sum(max(message[9:12]) for message in record.messages)


def opened(record: EntryRecord, *, open_turn: bool) -> bool:
    """Whether a turn is open after an entry. Marks leave it as it was, but for a clear."""
    if record.kind in ("messages", "lost"):
        return record.turn > 0
    return open_turn and record.kind not in ("completed", "failed", "clear")


def _damaged(what: str) -> LedgerDamaged:
    return LedgerDamaged(f"the ledger in memory: {what}; nothing was served from it. Load an undamaged dump")
