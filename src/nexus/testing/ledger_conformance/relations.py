"""Checks of what belongs to a session, and of pages of the list while sessions change."""

from __future__ import annotations

from nexus.ledger.sessions import Alias, NewRefUpdate, SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import LedgerCase, append, entry, equal, holds, put, rename, thread_of


def check_listed_in_pages_after_changes(case: LedgerCase) -> None:
    """Pages are the list after forks, renaming, merging, archiving, retiring and erasing, and after new entries."""
    store = case.store
    names = ("a", "b", "c", "d", "e", "f")
    for name in names:
        case.clock.now_ms += 10
        append(store, name, "one")
    append(store, "e", "of a worker")
    store.fork("fork", "a", 1)
    store.fork("fork of fork", "fork", 1)
    store.fork("at the beginning", "b", 0)
    store.fork("c", "c", 0)  # a rewind
    _equal_pages(store, "after forks")
    store.update_refs([NewRefUpdate("second", 2, "another label of the thread")])
    rename(store, "d", "z")
    archived = SessionMetadata(status="archived")
    store.update_refs(
        [NewRefUpdate("e", None, "merged"), NewRefUpdate("e~merged", 5, "was e", archived)], [Alias("e", "z", "merged")]
    )
    _equal_pages(store, "after renaming and merging")
    case.clock.now_ms += 10
    append(store, "fork of fork", "goes on")
    put(store, "fork", entry("imported", at_ms=1))  # older than what it shares
    store.fork("late", "fork of fork", 2)
    store.update_refs([NewRefUpdate("a", 1, "archived", archived), NewRefUpdate("f", None, "retired")])
    _equal_pages(store, "after new entries")
    erased = thread_of(store, "z")
    store.erase([erased], ["z"])
    append(store, "z", "anew")
    _equal_pages(store, "after erasing")


def _equal_pages(store: LedgerStore, when: str) -> None:
    for every in (False, True):
        infos = store.sessions(every=every)
        holds(len(infos) > 3, f"several sessions are listed {when}")
        equal(sorted(infos, key=lambda info: (-info.last_ms, info.label)), infos, f"the order {when}")
        for size in (1, 3):
            pages = [store.sessions(every=every, limit=size, offset=at) for at in range(0, len(infos) + size, size)]
            equal([info for page in pages for info in page], infos, f"the pages of {size} {when}")


def check_related_sessions(case: LedgerCase) -> None:
    """Sessions that a session spawned or owns are found under each of its names, whatever characters these have."""
    store = case.store
    long = "x" * 80
    names = ('a"b', "é", "\x00\ud800", long, f"{long}y", "a")
    for place, name in enumerate(names):
        case.clock.now_ms += 1
        append(store, name, "one")
        case.clock.now_ms += 1
        by_title = ("plain", "\ud800")[place % 2]  # metadata with a lone surrogate are stored with escapes
        put(store, f"worker {place}", entry("x"), metadata=SessionMetadata(title=by_title, parent_session=name))
        store.fork(f"fork {place}", name, 1, metadata=SessionMetadata(owner_session=name))
    for place, name in enumerate(names):
        equal([info.label for info in store.spawned(name)], [f"worker {place}"], f"what {name!r} spawned")
        equal([update.label for update in store.owned(name)], [f"fork {place}"], f"what {name!r} owns")
    equal(store.forks(1), [3], "the threads that continue the first one")
    title = SessionMetadata(title='"parent_session":"a"', status="deleted", parent_session="a")
    put(store, "second", entry("y"), metadata=title)
    put(store, "other", entry("y"), metadata=SessionMetadata(title='"parent_session":"a"'))
    rename(store, "a", "renamed")
    store.update_refs([], [Alias("z", "renamed", "short")])
    equal([info.label for info in store.spawned("renamed")], ["second", "worker 5"], "what a renamed session spawned")
    equal([info.status for info in store.spawned("renamed")], ["deleted", "active"], "the status of these")
    equal((store.spawned("a"), store.owned("a")), ([], []), "what an earlier name spawned")
    equal(sorted(store.names_of("renamed")), ["a", "renamed", "z"], "the names of a session")
    moved = store.thread_of("worker 5")
    store.update_refs([NewRefUpdate("worker 5", moved, "moved", SessionMetadata(parent_session=long))])
    store.update_refs([NewRefUpdate("worker 3", None, "retired")])
    equal([info.label for info in store.spawned("renamed")], ["second"], "what is left of it")
    equal([info.label for info in store.spawned(long)], ["worker 5"], "what the new parent spawned")
    second = store.thread_of("second") or 0
    equal((store.labels_of(second), store.labels_of(second, every=True)), ([], ["second"]), "the labels of a thread")
    store.fork("second", "second", 0)
    equal((store.labels_of(second, every=True), store.former_labels_of(second)), ([], ["second"]), "after a rewind")
    store.erase([3], ["fork 0"])
    equal(store.forks(1), [], "the threads that continue it after one was erased")
