"""The memory ledger's rows as records, records as rows, and deleting for good.

Loading and deleting work on a copy that takes the place of the rows when all went well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from nexus.errors import BadReference, ForksDepend, LedgerConflict
from nexus.ledger import chain
from nexus.ledger.codec import blobs_of, inputs_of
from nexus.ledger.records import (
    AliasRecord,
    AssemblyRecord,
    BlobRecord,
    CalibrationRecord,
    DecisionRecord,
    EntryRecord,
    Header,
    MoveRecord,
    Record,
    ThreadRecord,
)
from nexus.ledger.sessions import EraseResult, Thread
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.testing.memory_ledger.rows import Rows, ThreadRows

Numbered = TypeVar("Numbered", MoveRecord, AliasRecord, CalibrationRecord, DecisionRecord)
Key = TypeVar("Key")
Value = TypeVar("Value")


def dump(rows: Rows) -> Iterator[Record]:
    """All rows, in the order that `Record` says."""
    yield Header(tenant=rows.tenant)
    for sha256 in sorted(rows.blobs):
        yield BlobRecord(sha256, rows.blobs[sha256])
    for number in sorted(rows.threads):
        thread = rows.threads[number]
        yield thread.record()
        yield from thread.entries
        for view in sorted(thread.decisions):
            yield from thread.decisions[view]
        for key in sorted(thread.assemblies):
            yield thread.assemblies[key]
    for label in sorted(rows.names.moves):
        yield from rows.names.moves[label]
    for name in sorted(rows.names.aliases):
        yield from rows.names.aliases[name]
    for model in sorted(rows.calibrations):
        yield from rows.calibrations[model]


class Loader:
    """Takes records in the order of `dump`. `rows` is a copy that is to be kept when `finish` was reached."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.new = 0
        self._told: ThreadRecord | None = None

    def take(self, record: Record) -> None:
        """Stores one record. Raises LedgerConflict, BadReference."""
        if isinstance(record, EntryRecord):
            self._entry(record)
            return
        self.finish()
        if isinstance(record, Header):
            if record.tenant != self.rows.tenant:
                raise BadReference(
                    f"these are records of tenant {record.tenant!r}, the ledger is {self.rows.tenant!r}'s"
                )
        elif isinstance(record, ThreadRecord):
            self._thread(record)
        elif isinstance(record, BlobRecord):
            self._put(self.rows.blobs, record.sha256, record.data, f"image {record.sha256[:12]}")
        elif isinstance(record, AssemblyRecord):
            manifests = self._thread_rows(record.thread).assemblies
            what = f"a manifest of thread {record.thread} at entry {record.seq}"
            self._put(manifests, (record.view, record.seq), record, what)
        else:
            self._numbered(record)

    def finish(self) -> None:
        """Checks that the thread whose entries were taken is whole. To be called after the last record."""
        told, self._told = self._told, None
        if told is not None:
            row = self.rows.threads[told.id].row
            if (row.head_seq, row.head_hash) != (told.head_seq, told.head_hash):
                raise BadReference(
                    f"thread {told.id} should end with entry {told.head_seq}, its records end with {row.head_seq}; "
                    "nothing was stored"
                )

    def _thread(self, record: ThreadRecord) -> None:
        rows, parent = self.rows, record.parent
        old = rows.threads.get(record.id)
        if old is not None:
            row = old.row
            said = (parent, record.fork_seq, record.root_hash, record.at_ms, record.erased)
            if said != (row.parent, row.fork_seq, row.root_hash, row.at_ms, row.erased):
                raise _conflict(f"thread {record.id}")
            # A ledger that went on since keeps what it has.
            self._told = record if record.head_seq > row.head_seq else None
            return
        if parent is not None and parent not in rows.threads:
            raise BadReference(f"thread {record.id} continues thread {parent}, which is not there; nothing was stored")
        turn, open_turn = rows.state_at(parent, record.fork_seq) if parent is not None else (0, False)
        begin = (record.id, parent, record.fork_seq, record.root_hash, record.at_ms, record.fork_seq, record.root_hash)
        rows.threads[record.id] = ThreadRows(Thread(*begin, turn, open_turn, erased=record.erased))
        self._told = record
        self.new += 1

    def _entry(self, record: EntryRecord) -> None:
        thread = self._thread_rows(record.thread)
        row, what = thread.row, f"entry {record.seq} of thread {record.thread}"
        if row.fork_seq < record.seq <= row.head_seq:
            if thread.entries[record.seq - row.fork_seq - 1] != record:
                raise _conflict(what)
            return
        if record.seq != row.head_seq + 1:
            raise BadReference(f"{what} comes after entry {row.head_seq}: one is missing; nothing was stored")
        if any(key.key in thread.keys for key in record.keys):
            raise _conflict(f"an idempotency key of {what}")
        missing = [
            sha256 for message in record.messages for sha256 in blobs_of(message[7]) if sha256 not in self.rows.blobs
        ]
        if missing:
            raise BadReference(f"{what} shows image {missing[0][:12]}, which is not there; nothing was stored")
        self.rows.append(record)
        self.new += 1

    def _numbered(self, record: MoveRecord | AliasRecord | CalibrationRecord | DecisionRecord) -> None:
        names = self.rows.names
        if isinstance(record, DecisionRecord):
            decisions = self._thread_rows(record.thread).decisions
            what = f"decision {record.number} of a view of thread {record.thread}"
            decisions[record.view] = self._grown(decisions.get(record.view, []), record, what)
        elif isinstance(record, MoveRecord):
            if record.thread is not None:
                self._thread_rows(record.thread)
            what = f"move {record.number} of session {decode_text(record.label)!r}"
            names.moves[record.label] = self._grown(names.moves.get(record.label, []), record, what)
        elif isinstance(record, AliasRecord):
            what = f"change {record.number} of alias {decode_text(record.name)!r}"
            names.aliases[record.name] = self._grown(names.aliases.get(record.name, []), record, what)
        else:
            model = (record.provider, record.model)
            what = f"calibration {record.number} of {decode_text(record.provider)}/{decode_text(record.model)}"
            self.rows.calibrations[model] = self._grown(self.rows.calibrations.get(model, []), record, what)

    def _grown(self, old: list[Numbered], record: Numbered, what: str) -> list[Numbered]:
        """The rows with the next one. Those of a fork's view go on from its parent's number; all others begin with 1."""
        there = next((row for row in old if row.number == record.number), None)
        if there is not None:
            if there != record:
                raise _conflict(what)
            return old
        first = 1 if not isinstance(record, DecisionRecord) else record.number
        if record.number != (old[-1].number + 1 if old else first):
            raise BadReference(f"{what} does not follow the one before; nothing was stored")
        self.new += 1
        return [*old, record]

    def _put(self, where: dict[Key, Value], key: Key, value: Value, what: str) -> None:
        if key in where:
            if where[key] != value:
                raise _conflict(what)
            return
        where[key] = value
        self.new += 1

    def _thread_rows(self, number: int) -> ThreadRows:
        found = self.rows.threads.get(number)
        if found is None:
            raise BadReference(f"a record belongs to thread {number}, which is not there; nothing was stored")
        return found


def load(rows: Rows, records: Iterable[Record]) -> tuple[Rows, int]:
    """A copy of the rows with the records, and how many were new; see `LedgerStore.load`."""
    loader = Loader(rows.copy())
    for record in records:
        loader.take(record)
    loader.finish()
    return loader.rows, loader.new


def erase(rows: Rows, threads: Sequence[int] | None, labels: Sequence[str]) -> tuple[Rows, EraseResult]:
    """A copy of the rows without threads and labels, and what is gone; see `LedgerStore.erase`."""
    if threads is None:
        chosen = [number for number in sorted(rows.threads) if not rows.threads[number].row.erased]
        left = _emptied(rows)
    else:
        chosen, stored = sorted(set(threads)), {encode_text(label) for label in labels}
        stored |= {
            label
            for label, moves in rows.names.moves.items()
            if moves[-1].thread is None and any(move.thread in set(threads) for move in moves)
        }
        _check_free(rows, set(chosen), stored)
        left = _without(rows, set(chosen), stored)
    entries = sum(len(rows.threads[number].entries) for number in chosen)
    messages = sum(rows.threads[number].row.messages for number in chosen)
    return left, EraseResult(tuple(chosen), entries, messages, len(rows.blobs) - len(left.blobs))


def _emptied(rows: Rows) -> Rows:
    """Nothing but the last thread's number, so that no number is used again."""
    left = Rows(rows.tenant)
    last = max(rows.threads, default=0)
    if last:
        root = chain.root_hash(rows.tenant, last)
        row = Thread(last, None, 0, root, rows.threads[last].row.at_ms, 0, root, erased=True)
        left.threads[last] = ThreadRows(row)
    return left


def _check_free(rows: Rows, chosen: set[int], labels: set[str]) -> None:
    """Raises ForksDepend when something that stays needs one of the threads, NoSuchSession for an unknown thread."""
    for number in chosen:
        rows.get(number)
    active = rows.names.active()
    forks = {
        number
        for number, thread in rows.threads.items()
        if thread.row.parent in chosen and number not in chosen and not thread.row.erased
    }
    dependent = {decode_text(label) for label, move in active.items() if move.thread in chosen and label not in labels}
    for number in forks:
        named = {decode_text(label) for label, move in active.items() if move.thread == number}
        dependent |= named or {f"thread {number}"}
    if dependent:
        names = ", ".join(sorted(dependent))
        raise ForksDepend(
            f"{names} still needs what was to be deleted; delete it first or with it. Nothing was deleted"
        )


def _without(rows: Rows, chosen: set[int], labels: set[str]) -> Rows:
    left = rows.copy()
    for number in chosen:
        left.threads[number] = left.threads[number].erased()
    left.written = [place for place in left.written if place[0] not in chosen]
    names = left.names
    names.moves = {label: moves for label, moves in names.moves.items() if label not in labels}
    names.aliases = {
        name: changes
        for name, changes in names.aliases.items()
        if name not in labels and not any(change.target in labels for change in changes)
    }
    used = {
        sha256
        for thread in left.threads.values()
        for record in thread.entries
        for message in record.messages
        for sha256 in blobs_of(message[7])
    }
    manifests = (record for thread in left.threads.values() for record in thread.assemblies.values())
    used.update(sha256 for record in manifests for sha256 in inputs_of(record.manifest))
    left.blobs = {sha256: data for sha256, data in left.blobs.items() if sha256 in used}
    return left


def _conflict(what: str) -> LedgerConflict:
    return LedgerConflict(f"the ledger has another {what}; nothing was stored. Import into a new ledger")
