"""Keys of the messages that a path of the ledger really has, whatever keys its entries were stored with."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from nexus.engine.mirror.keys import KeyChain
from nexus.ledger.store import HistoryStore

MAX_THREADS = 1_024
MAX_MESSAGES = 500_000
"""Threads whose chains are remembered, while these have no more messages; the least recently used goes first."""

POSITIONS = 4
"""Positions of one thread that are remembered."""


class StoredChains:
    """Chains of stored paths. They are remembered, so that only a path's new entries are read. Threads may share it."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._chains: OrderedDict[tuple[bytes, int], dict[int, KeyChain]] = OrderedDict()
        self._messages = 0
        self._lock = Lock()

    def read(self, root: bytes, thread: int, seq: int) -> KeyChain:
        """Return the chain of a path's messages up to an entry; the caller does not change it."""
        with self._lock:
            known_until, chain = self._nearest(root, thread, seq)
            if known_until < seq:
                chain = chain.copy()
                for entry in self._store.entries(thread, known_until, seq):
                    for row in entry.rows:
                        chain.add(row.message)
            self._remember(root, thread, known_until, seq, chain)
            return chain

    def _nearest(self, root: bytes, thread: int, seq: int) -> tuple[int, KeyChain]:
        """Return the newest position of the path that is remembered, and its chain."""
        nearest = (0, KeyChain(root))
        for part in self._store.path(thread):
            for at, chain in self._chains.get((root, part.thread), {}).items():
                if nearest[0] < at <= min(part.high, seq):
                    nearest = (at, chain)
        return nearest

    def _remember(self, root: bytes, thread: int, known_until: int, seq: int, chain: KeyChain) -> None:
        """Remember a chain in place of the one that it continues."""
        positions = self._chains.pop((root, thread), {})
        self._messages -= sum(other.count for other in positions.values())
        positions.pop(known_until, None)
        positions[seq] = chain
        while len(positions) > POSITIONS:
            del positions[next(iter(positions))]
        self._chains[root, thread] = positions
        self._messages += sum(other.count for other in positions.values())
        while len(self._chains) > 1 and (len(self._chains) > MAX_THREADS or self._messages > MAX_MESSAGES):
            _, oldest = self._chains.popitem(last=False)
            self._messages -= sum(other.count for other in oldest.values())
