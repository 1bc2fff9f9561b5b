"""Undo of a view's cut, by a checkpoint on each path that has it: no cut made before the checkpoint holds behind it."""

from __future__ import annotations

from collections.abc import Iterator

from nexus.errors import BadReference
from nexus.ledger.replay import live_checkpoints
from nexus.ledger.sessions import holder_of
from nexus.ledger.store import HistoryStore, LedgerStore
from nexus.types.ledger_entries import Commit, Cut, NewEntry


def undo_cut(store: LedgerStore, thread: int, cut: Cut) -> list[str]:
    """Undo a thread's cut in each session that shares it, and return their labels: their next calls begin with all messages.

    Raises BadReference if no session has it, or if it is undone everywhere.
    """
    has_cut = False
    labels: list[str] = []
    for sharing in _threads_with(store, thread, cut):
        for label in store.labels_of(sharing):
            has_cut = True
            if _undo(store, label, sharing, cut):
                labels.append(label)
    if labels:
        return labels
    if has_cut:
        raise BadReference(f"cut {cut.number} is undone already: later calls do not begin with it", code="cut_undone")
    raise BadReference(f"no session has cut {cut.number} any more: it was rewound or deleted", code="no_such_cut")


def _threads_with(store: HistoryStore, thread: int, cut: Cut) -> Iterator[int]:
    """Yield the threads whose paths have a thread's cut: the one that it was made on, and those that continue it.

    Threads of other conversations may have an equal cut.
    """
    waiting = [holder_of(store.path(thread), cut.at_seq)]
    while waiting:
        sharing = waiting.pop()
        if cut in store.cuts(sharing, cut.view):
            yield sharing
            waiting += store.forks(sharing)


def _undo(store: HistoryStore, label: str, thread: int, cut: Cut) -> bool:
    """Undo a cut in one session; return False if it is undone there."""
    if live_checkpoints(store.checkpoints(thread, replaced=False)).changed_at > cut.at_seq:
        return False
    # The key is that of one undo: of two at once only one is stored.
    key = f"undone:{cut.view}:{cut.number}:{cut.at_seq}"
    entry = NewEntry("undone", body={"of": 0, "cut": cut.number, "view": cut.view}, keys=(key,))
    return store.commit(label, Commit((entry,))).added > 0
