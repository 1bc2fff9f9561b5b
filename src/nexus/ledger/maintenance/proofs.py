"""What the rows of threads prove of each other and of entries: how far a thread reached, and chain values on it."""

from __future__ import annotations

from collections import defaultdict

from nexus.ledger import chain
from nexus.ledger.maintenance.rows import Rows, ThreadRow


class Proofs:
    """`hints` are chain values by thread and seq; `reach` is the newest entry that a thread is known to have had."""

    def __init__(self, tenant: str, rows: Rows) -> None:
        self._tenant, self._rows = tenant, rows
        self.hints: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.reach: dict[int, int] = defaultdict(int)
        self._sure: dict[tuple[int, int], bytes] = {}
        for candidates in rows.threads.values():
            for row in candidates:
                self._take(row)

    def _take(self, row: ThreadRow) -> None:
        """A thread's row says which chain value stands at its newest entry, and at the one where it leaves its parent."""
        ends = [(row.id, row.head_seq, row.head_hash)]
        if row.parent is not None:
            ends.append((row.parent, row.fork_seq, row.root_hash))
        proven = self.proven(row) and not row.erased
        for thread, seq, digest in ends:
            self.hints[thread, seq].add(digest)
            if proven:
                self._sure[thread, seq] = digest
                self.reach[thread] = max(seq, self.reach[thread])

    def proven(self, row: ThreadRow) -> bool:
        """Whether a row matches its own hash; version 1 had none."""
        return bool(row.hash) and chain.columns_hash("thread", (self._tenant, *row.columns)) == row.hash

    def sure(self, thread: int, seq: int) -> bytes | None:
        """The chain value after an entry as a proven row has it."""
        return self._sure.get((thread, seq))

    def trust(self, row: ThreadRow) -> None:
        """Believes a row of version 1, which has no hash: one entry beyond those that are there."""
        newest = max(self._rows.entries.get(row.id, ()), default=row.fork_seq)
        if not row.hash and row.head_seq <= newest + 1:
            self.reach[row.id] = max(row.head_seq, self.reach[row.id])
