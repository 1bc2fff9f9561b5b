"""The ledger in plain Python: nothing on disk, every promise of the store protocol kept.

For tests, for conversations that need not outlive their process, and as the model that other stores are compared with.
One lock guards all tenants; a snapshot holds it, so others wait to write until it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from nexus.errors import LedgerClosed
from nexus.ledger import chain
from nexus.ledger.records import CalibrationRecord, Record
from nexus.ledger.sessions import (
    Alias,
    EraseResult,
    NewRefUpdate,
    Query,
    RefUpdate,
    SearchHit,
    Segment,
    SessionInfo,
    SessionMetadata,
    Thread,
)
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.testing.memory_ledger import copying as memory_copy
from nexus.testing.memory_ledger import search as memory_search
from nexus.testing.memory_ledger import write as memory_write
from nexus.testing.memory_ledger.names import alias_of, move_of
from nexus.testing.memory_ledger.rows import END, Rows
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, Entry, StoredCalibration, StoredMessage


class MemoryLedger:
    """A ledger that is gone when its last reference is. See `LedgerStore` for what each method promises.

    `clock_ms` gives the time of what is written, in milliseconds since 1970. No row stands in a second place, so `erase`
    has nothing to search afterwards: its proof counts no needles.
    """

    def __init__(self, tenant: str = "local", *, clock_ms: Callable[[], int] | None = None) -> None:
        self._tenant = tenant
        self._clock_ms = clock_ms or _now_ms
        self._lock = threading.RLock()
        self._tenants: dict[str, Rows] = {}
        self._closed = False

    def for_tenant(self, tenant: str, *, clock_ms: Callable[[], int] | None = None) -> MemoryLedger:
        """Another store on the same storage, bound to this tenant. Each is closed by itself; the rows stay."""
        other = MemoryLedger(tenant, clock_ms=clock_ms or self._clock_ms)
        other._lock, other._tenants = self._lock, self._tenants
        return other

    @property
    def place(self) -> str:
        """That it is in memory."""
        return ":memory:"

    @property
    def tenant(self) -> str:
        """Whose rows this store reads and writes."""
        return self._tenant

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Holds the lock: what others write waits until the end."""
        with self._rows():
            yield

    def close(self) -> None:
        """Later calls raise LedgerClosed."""
        with self._lock:
            self._closed = True

    @contextmanager
    def _rows(self) -> Generator[Rows]:
        with self._lock:
            if self._closed:
                raise LedgerClosed("this ledger in memory was closed; open another store on it, or make a new one")
            yield self._tenants.setdefault(self._tenant, Rows(self._tenant))

    # sessions ----------------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> str | None:
        """The label that a name stands for."""
        with self._rows() as rows:
            label = rows.names.resolve(encode_text(name))
            return decode_text(label) if label is not None else None

    def thread_of(self, session: str) -> int | None:
        """The thread that a session's label or alias points to."""
        with self._rows() as rows:
            label = rows.names.resolve(encode_text(session))
            return rows.names.thread_of(label) if label is not None else None

    def session(self, label: str) -> RefUpdate | None:
        """The newest move of exactly this label."""
        with self._rows() as rows:
            newest = rows.names.newest(encode_text(label))
            return move_of(newest) if newest is not None else None

    def sessions(self, *, every: bool = False) -> list[SessionInfo]:
        """The sessions, newest first."""
        with self._rows() as rows:
            return memory_search.sessions(rows, every=every)

    def moves(self, label: str) -> list[RefUpdate]:
        """All moves of exactly this label, oldest first."""
        with self._rows() as rows:
            return [move_of(record) for record in rows.names.moves.get(encode_text(label), [])]

    def move(self, moves: Sequence[NewRefUpdate], aliases: Sequence[Alias] = ()) -> list[RefUpdate]:
        """Appends moves and alias changes."""
        with self._rows() as rows:
            return memory_write.move(rows, moves, aliases, self._clock_ms())

    def aliases(self, *, every: bool = False) -> list[Alias]:
        """The aliases that hold now, or every change there was; by name."""
        with self._rows() as rows:
            changes = [rows.names.aliases[name] for name in sorted(rows.names.aliases)]
        found = [record for one in changes for record in (one if every else one[-1:])]
        return [alias_of(record) for record in found if every or record.target is not None]

    # writing -----------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        """Everything, or nothing."""
        with self._rows() as rows:
            return memory_write.commit(rows, session, commit, facts, self._clock_ms())

    def fork(
        self,
        session: str,
        source: str,
        at_seq: int,
        *,
        reason: str = "fork",
        facts: SessionMetadata | None = None,
        expected_number: int | None = None,
    ) -> int:
        """A new thread that begins with the source's chain value at `at_seq`."""
        with self._rows() as rows:
            new = NewRefUpdate(session, None, reason, facts, expected_number)
            return memory_write.fork(rows, new, source, at_seq, self._clock_ms())

    def calibrate(self, provider: str, model: str, calibration: StoredCalibration) -> None:
        """Stores a newer calibration."""
        with self._rows() as rows:
            known = rows.calibrations.setdefault((encode_text(provider), encode_text(model)), [])
            at_ms = calibration.at_ms or self._clock_ms()
            columns = (encode_text(provider), encode_text(model), len(known) + 1)
            row = (*columns, calibration.factor_64, calibration.samples, at_ms)
            digest = chain.calibration_hash(self._tenant, CalibrationRecord(*row, b""))
            known.append(CalibrationRecord(*row, digest))

    def erase(self, threads: Sequence[int] | None, labels: Sequence[str] = ()) -> EraseResult:
        """Deletes threads and labels for good."""
        with self._rows() as rows:
            self._tenants[self._tenant], erased = memory_copy.erase(rows, threads, labels)
            return erased

    # reading -----------------------------------------------------------------------------------------------------

    def thread(self, thread: int) -> Thread:
        """A thread's row."""
        with self._rows() as rows:
            return rows.get(thread).row

    def threads(self) -> list[Thread]:
        """All threads, by number."""
        with self._rows() as rows:
            return [rows.threads[number].row for number in sorted(rows.threads)]

    def path(self, thread: int) -> list[Segment]:
        """The thread's path, root first."""
        with self._rows() as rows:
            return rows.path(thread)

    def head(self, thread: int) -> tuple[int, bytes]:
        """The path's last seq and its hash."""
        with self._rows() as rows:
            row = rows.get(thread).row
            return row.head_seq, row.head_hash

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The path's entries, all checked before the first one is given out."""
        with self._rows() as rows:
            return iter(rows.read(thread, after, END if until is None else until))

    def marks(self, thread: int) -> list[Entry]:
        """The path's marks, newest first."""
        with self._rows() as rows:
            return rows.marks(thread)

    def instructions(self, thread: int) -> Sequence[StoredMessage]:
        """The leading system messages of the path's first entry."""
        found: list[StoredMessage] = []
        for entry in self.entries(thread, 0, 1):
            for row in entry.rows:
                if row.message.role != "system":
                    break
                found.append(row)
        return found

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """The view's newest cut on the path."""
        with self._rows() as rows:
            return rows.last_cut(thread, encode_text(view))

    def cuts(self, thread: int, view: str) -> list[Cut]:
        """Every cut of the view on the path, by number."""
        with self._rows() as rows:
            return rows.cuts(thread, encode_text(view))

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest manifest of the view on the path."""
        return next((row for row in reversed(self.assemblies(thread)) if row.view == view), None)

    def assemblies(self, thread: int, after: int = 0, until: int | None = None) -> list[AssemblyRow]:
        """The manifests on the path with `after < seq <= until`, oldest first."""
        with self._rows() as rows:
            return rows.manifests(thread, after, END if until is None else until)

    def blob(self, sha256: str) -> bytes | None:
        """What is stored by this hash; None if it is not there."""
        with self._rows() as rows:
            return rows.blob(sha256) if sha256 in rows.blobs else None

    def known_keys(self, session: str) -> dict[str, int]:
        """The idempotency keys that were used on the session's path, and where."""
        with self._rows() as rows:
            label = rows.names.resolve(encode_text(session))
            thread = rows.names.thread_of(label) if label is not None else None
            return {
                decode_text(key): seq
                for part in (rows.path(thread) if thread is not None else ())
                for key, (seq, _) in rows.get(part.thread).keys.items()
                if seq <= part.high
            }

    def holders(self, key: str) -> list[tuple[int, int]]:
        """Where an idempotency key was used: thread and seq, by thread."""
        name = encode_text(key)
        with self._rows() as rows:
            return [(number, one.keys[name][0]) for number, one in sorted(rows.threads.items()) if name in one.keys]

    def search(self, query: Query) -> list[SearchHit]:
        """The messages that have all words of the query, the newest first."""
        with self._rows() as rows:
            return memory_search.search(rows, query)

    def calibration(self, provider: str, model: str) -> StoredCalibration | None:
        """The newest calibration."""
        with self._rows() as rows:
            known = rows.calibrations.get((encode_text(provider), encode_text(model)))
            return StoredCalibration(known[-1].factor_64, known[-1].samples, known[-1].at_ms) if known else None

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Every provider and model that has one."""
        with self._rows() as rows:
            newest = [(*map(decode_text, name), rows.calibrations[name][-1]) for name in sorted(rows.calibrations)]
            return [(p, m, StoredCalibration(last.factor_64, last.samples, last.at_ms)) for p, m, last in newest]

    def dump(self) -> Iterator[Record]:
        """All rows as records, as they are now."""
        with self._rows() as rows:
            return iter(list(memory_copy.dump(rows)))

    def load(self, records: Iterable[Record]) -> int:
        """Stores records that `dump` gave; all or none."""
        with self._rows() as rows:
            self._tenants[self._tenant], new = memory_copy.load(rows, records)
            return new


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
