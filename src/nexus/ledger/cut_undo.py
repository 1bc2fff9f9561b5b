"""Undo of a view's cut, by a checkpoint on each path that has it: no cut made before the checkpoint holds behind it."""

from __future__ import annotations

from nexus.errors import BadReference
from nexus.ledger.replay import live_checkpoints
from nexus.ledger.store import LedgerStore
from nexus.types.ledger_entries import Commit, Cut, NewEntry


def undo_cut(store: LedgerStore, cut: Cut) -> list[str]:
    """Undo a cut in each session that has it, and return their labels: their next calls begin with all messages.

    Raises BadReference if no session has it, or if it is undone everywhere.
    """
    body = {"of": 0, "cut": cut.number, "view": cut.view}
    has_cut = False
    labels: list[str] = []
    for info in store.sessions(every=True):
        if info.status == "deleted" or cut not in store.cuts(info.thread, cut.view):
            continue
        has_cut = True
        if live_checkpoints(store.checkpoints(info.thread, replaced=False)).changed_at > cut.at_seq:
            continue
        # The key is that of one undo: of two at once only one is stored.
        entry = NewEntry("undone", body=body, keys=(f"undone:{cut.view}:{cut.number}:{cut.at_seq}",))
        if store.commit(info.label, Commit((entry,))).added:
            labels.append(info.label)
    if labels:
        return labels
    if has_cut:
        raise BadReference(f"cut {cut.number} is undone already: later calls do not begin with it", code="cut_undone")
    raise BadReference(f"no session has cut {cut.number} any more: it was rewound or deleted", code="no_such_cut")
