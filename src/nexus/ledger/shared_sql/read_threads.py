"""Reads of threads and their paths of an SQL ledger, each row checked against its hash."""

from __future__ import annotations

from typing import Any, cast

from nexus.errors import BadReference, NoSuchSession
from nexus.ledger import chain
from nexus.ledger.sessions import Segment, Thread
from nexus.ledger.shared_sql.read_sessions import SessionReader, remember

END = 1 << 62
"""A seq beyond all others."""

THREAD_COLUMNS = (
    "id,parent,fork_seq,root_hash,at_ms,head_seq,head_hash,turn,open_turn,marks,messages,tokens,first_ms,last_ms,erased"
)


class ThreadReader(SessionReader):
    """Reads of one tenant's threads."""

    def thread(self, thread: int) -> Thread:
        """Return a thread's row, checked. Raises NoSuchSession if there is none."""
        sql = f"SELECT {THREAD_COLUMNS}, hash FROM thread WHERE tenant=? AND id=?"  # noqa: S608 - constants
        row = self.row(sql, (self.tenant, thread))
        if row is None:
            # Unless something belongs to the thread, whose row is then lost.
            for table, column in (("session_move", "thread"), ("entry", "thread"), ("thread", "parent")):
                sql = f"SELECT 1 FROM {table} WHERE tenant=? AND {column}=? LIMIT 1"  # noqa: S608 - constants
                if self.db.row(sql, (self.tenant, thread)):
                    self.damaged(f"the row of thread {thread} is lost")
            raise NoSuchSession(f"thread {thread} not found in {self.place}")
        # In a damaged tree a search for one row can end at another one, which is whole.
        self.check(row[0] == thread, f"the row of thread {thread}")
        return self._thread(row)

    def threads(self) -> list[Thread]:
        """Return all threads, checked."""
        sql = f"SELECT {THREAD_COLUMNS}, hash FROM thread WHERE tenant=? ORDER BY id"  # noqa: S608 - constants
        return [self._thread(row) for row in self.db.rows(sql, (self.tenant,))]

    def _thread(self, row: tuple[Any, ...]) -> Thread:
        self.check(chain.columns_hash("thread", (self.tenant, *row[:-1])) == row[-1], f"the row of thread {row[0]}")
        columns = list(row[:-1])
        columns[8], columns[14] = bool(columns[8]), bool(columns[14])
        return Thread(*columns)

    def head(self, thread: int) -> tuple[int, bytes]:
        """Return the path's last seq and its hash."""
        row = self.thread(thread)
        return row.head_seq, row.head_hash

    def path(self, thread: int) -> list[Segment]:
        """Return the thread's path as segments, root first; each joint is checked once."""
        cached = self.segments.get(thread)
        if cached is None:
            cached = list[Segment]()
            at = cast("int | None", thread)
            high = END
            while at is not None:
                row = self.thread(at)
                if row.erased:
                    raise NoSuchSession(f"thread {at} of {self.place} was erased")
                cached.append(Segment(at, row.fork_seq, high, row.root_hash))
                high = min(row.fork_seq, high)
                at = row.parent
            cached.reverse()
            for place, part in enumerate(cached[1:], 1):
                if part.low < part.high and self.hash_on(cached[:place], part.low) != part.root:
                    self.damaged(f"thread {part.thread} does not continue its parent at entry {part.low}")
            remember(self.segments, thread, cached)
        return cached

    def hash_at(self, thread: int, seq: int) -> bytes:
        """Return the chain value after entry `seq` of the path. Raises BadReference if it does not exist."""
        digest = self.hash_on(self.path(thread), seq)
        if digest is None:
            head = self.thread(thread).head_seq
            raise BadReference(f"entry {seq} not found in thread {thread}: its newest entry is {head}")
        return digest

    def hash_on(self, path: list[Segment], seq: int) -> bytes | None:
        """Return the chain value after entry `seq` on a path, None if it is not there."""
        if seq == 0:
            return path[0].root
        for part in path:
            if seq == part.low and part.low < part.high:
                return part.root
            if part.low < seq <= part.high:
                sql = "SELECT hash FROM entry WHERE tenant=? AND thread=? AND seq=?"
                return self.db.value(sql, (self.tenant, part.thread, seq))
        return None
