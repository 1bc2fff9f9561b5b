"""What depends on a session: the forks that continue it and the sessions that it spawned. And how it is deleted for good.

A session names its parent by label. So where a label is given up, what it spawned gets the parent's new label, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec.structs import replace

from nexus.errors import EraseIncomplete
from nexus.ledger.sessions import Erased, NewMove, SessionInfo
from nexus.ledger.store import LedgerStore


def children(store: LedgerStore, labels: Collection[str]) -> list[SessionInfo]:
    """The sessions that those of these labels spawned."""
    everyone = store.sessions(every=True)
    return [one for one in everyone if one.parent_session and store.resolve(one.parent_session) in labels]


def given_parent(store: LedgerStore, spawned: Iterable[SessionInfo], reason: str, **parent: Any) -> list[NewMove]:
    """The moves that give sessions another parent (`parent_…` of SessionFacts)."""
    moves = (store.session(one.label) for one in spawned)
    return [
        NewMove(old.label, old.thread, reason, replace(old.facts, **parent), old.number)
        for old in moves
        if old is not None
    ]


def erase(store: LedgerStore, label: str, *, with_forks: bool) -> Erased:
    """Deletes a session for good: every thread that it ever pointed to, its label and its aliases.

    What it spawned stays, without a parent: another session may get the parent's label. Raises ForksDepend,
    EraseIncomplete.
    """
    threads, labels = _all_of(store, label), {label}
    if with_forks:
        _add_forks(store, threads, labels)
    orphans = [one for one in children(store, labels) if one.label not in labels]
    try:
        erased = store.erase(sorted(threads), sorted(labels))
    except EraseIncomplete:
        _orphan(store, orphans)
        raise
    _orphan(store, orphans)
    return erased


def _orphan(store: LedgerStore, orphans: list[SessionInfo]) -> None:
    none = {"parent_session": "", "parent_turn": 0, "parent_call_id": ""}
    moves = given_parent(store, orphans, "the parent was deleted for good", **none)
    if moves:
        store.move(moves)


def _all_of(store: LedgerStore, label: str) -> set[int]:
    """Every thread that a session or one of its names ever pointed to, and no other session points to now."""
    elsewhere = {one.thread for one in store.sessions(every=True) if one.label != label}
    threads = _ever(store, label)
    for alias in store.aliases():
        if store.resolve(alias.name) == label:  # its names from before it was renamed
            threads |= _ever(store, alias.name)
    return threads - elsewhere


def _ever(store: LedgerStore, label: str) -> set[int]:
    """Every thread that a label pointed to."""
    return {move.thread for move in store.moves(label) if move.thread is not None}


def _add_forks(store: LedgerStore, threads: set[int], labels: set[str]) -> None:
    """Adds every thread that continues one of these, and every session that points to one of them now."""
    rows = store.threads()
    now = {one.label: one.thread for one in store.sessions(every=True)}
    size = -1
    while size != len(threads) + len(labels):
        size = len(threads) + len(labels)
        threads |= {row.id for row in rows if row.parent in threads and not row.erased}
        for label in {label for label, thread in now.items() if thread in threads} - labels:
            labels.add(label)
            threads |= _ever(store, label) - {thread for other, thread in now.items() if other not in labels}
