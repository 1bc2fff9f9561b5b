"""Checks of erasing: deleted rows, remaining rows, and refusals."""

from __future__ import annotations

import msgspec

from nexus.errors import ForksDepend, NoSuchSession
from nexus.ledger.records import BlobRecord, Header, ThreadRecord
from nexus.ledger.sessions import Alias, EraseResult, NewRefUpdate, Query, SessionMetadata
from nexus.testing.ledger_conformance.expecting import equal, holds, raises
from nexus.testing.ledger_conformance.making import append, cut, entries, entry, manifest, put, texts
from nexus.testing.ledger_conformance.running import Case, Checks
from nexus.types.ledger_entries import Commit, StoredCalibration
from nexus.types.message import Image, Message

checks = Checks()


@checks.add
def erased_entries_stay_erased(case: Case) -> None:
    """Erased text is found nowhere; only a thread's number remains, marked as erased."""
    store = case.store
    append(store, "kept", "harmless")
    new = (entry("a secret", keys=("secret key",)), entry("another secret", "and more"))
    facts = SessionMetadata(title="secret title")
    store.commit("secret label", Commit(new, cut("secret view", 1, 0), manifest("secret view", 1)), facts)
    root = store.thread(2).root_hash
    erased = store.erase([2], ["secret label"])
    wanted = EraseResult((2,), 2, 3, 0, erased.needles, 0)
    equal(erased, wanted, "the proof")
    remaining = [record for record in store.dump() if b"secret" in msgspec.json.encode(record)]
    equal(remaining, [], "the records that still have a word of it")
    equal((store.thread_of("secret label"), store.ref_updates("secret label")), (None, []), "its session")
    equal(store.search(Query("secret")), [], "what a search finds of it")
    equal(store.holders("secret key"), [], "the holders of its key")
    row = store.thread(2)
    totals = (row.erased, row.head_seq, row.head_hash, row.messages, row.tokens, row.turn, row.open_turn, row.last_ms)
    equal(totals, (True, 0, root, 0, 0, 0, False, 0), "what stays of the thread")
    equal(texts(store, "kept"), ["harmless"], "the other session")
    equal(append(store, "next", "one").thread, 3, "the number of the next thread")


@checks.add
def forks_depend(case: Case) -> None:
    """Nothing is deleted while a fork continues it, or another label points to it."""
    store = case.store
    append(store, "main", "one")
    store.fork("branch", "main", 1)
    append(store, "branch", "two")
    store.update_refs([NewRefUpdate("second name", 2, "shared")])
    before = list(store.dump())
    attempts: tuple[tuple[list[int], list[str]], ...] = (
        ([1], ["main"]),
        ([2], ["branch"]),
        ([1, 2], ["main", "branch"]),
        ([1], []),
        ([2], []),
    )
    for threads, labels in attempts:
        with raises(ForksDepend, f"deleting threads {threads} and labels {labels}"):
            store.erase(threads, labels)
    with raises(NoSuchSession, "deleting a thread that is not there"):
        store.erase([9], [])
    equal(list(store.dump()), before, "what is stored")
    equal(store.erase([2], ["branch", "second name"]).threads, (2,), "the threads deleted")
    equal(texts(store, "main"), ["one"], "the texts that the fork had shared")
    equal(store.erase([1], ["main"]).threads, (1,), "the threads deleted when no fork is left")
    equal(store.sessions(every=True), [], "the sessions")


@checks.add
def fork_and_source_together(case: Case) -> None:
    """A session and its forks are deleted together."""
    store = case.store
    append(store, "main", "one")
    store.fork("main", "main", 0)
    append(store, "main", "two")
    store.fork("branch", "main", 1)
    append(store, "branch", "three")
    erased = store.erase([3, 1, 2], ["main", "branch"])
    equal((erased.threads, erased.entries, erased.messages), ((1, 2, 3), 3, 3), "the proof")
    rows = [(row.id, row.erased, row.head_seq) for row in store.threads()]
    equal(rows, [(1, True, 0), (2, True, 0), (3, True, 1)], "what stays of the threads")
    kinds = {type(record) for record in store.dump()}
    equal(kinds, {Header, ThreadRecord}, "the kinds of records that are left")


@checks.add
def images_in_use(case: Case) -> None:
    """An image goes with the last message that shows it."""
    store = case.store
    shared = Message("user", (Image("image/png", data="c2hhcmVk"),))
    own_message = Message("user", (Image("image/png", data="b3du"),))
    append(store, "main", shared)
    append(store, "other", shared, own_message)
    equal(store.erase([2], ["other"]).blobs, 1, "the images deleted with the first session")
    blobs = [record.data for record in store.dump() if isinstance(record, BlobRecord)]
    equal(blobs, [b"c2hhcmVk"], "the images left")
    equal(
        [row.message for stored in entries(store, "main") for row in stored.rows], [shared], "the message that shows it"
    )
    equal(store.erase([1], ["main"]).blobs, 1, "the images deleted with the last session")
    equal([record for record in store.dump() if isinstance(record, BlobRecord)], [], "the images left")


@checks.add
def aliases_go_too(case: Case) -> None:
    """Aliases from and to a deleted label go with it; its threads may stay."""
    store = case.store
    append(store, "main", "one")
    append(store, "other", "two")
    store.update_refs([], [Alias("m", "main", ""), Alias("mm", "main", ""), Alias("o", "other", "")])
    store.update_refs([], [Alias("mm", "other", "")])
    equal(store.erase([], ["main"]).threads, (), "the threads deleted")
    equal((store.resolve("m"), store.resolve("main"), store.resolve("o")), (None, None, "other"), "where names lead")
    targets = [alias.target for alias in store.aliases(every=True)]
    holds("main" not in targets, f"expected no alias to the deleted label, found aliases to {targets}")
    equal(store.thread(1).head_seq, 1, "the head of the thread that the label pointed to")


@checks.add
def everything(case: Case) -> None:
    """Deleting everything leaves a tenant nothing but the last thread's number, and other tenants' rows alone."""
    other = case.open("other")
    for store in (case.store, other):
        append(store, "main", "one", Message("user", (Image("image/png", data="c2hhcmVk"),)), key="k")
        store.fork("branch", "main", 1)
        store.update_refs([], [Alias("m", "main", "")])
        store.calibrate("p", "m", StoredCalibration(64, 1))
    before = list(other.dump())
    erased = case.store.erase(None)
    equal((erased.threads, erased.entries, erased.messages, erased.blobs), ((1, 2), 1, 2, 1), "the proof")
    remaining = list(case.store.dump())
    equal(remaining[:1], [Header(tenant="local")], "the header of what is left")
    equal([(row.id, row.erased, row.messages) for row in case.store.threads()], [(2, True, 0)], "the threads left")
    equal(len(remaining), 2, "how many records are left")
    equal((case.store.aliases(every=True), case.store.calibration("p", "m")), ([], None), "aliases and calibration")
    equal(list(other.dump()), before, "what the other tenant has")
    put(case.store, "main", entry("anew", keys=("k",)))
    equal(case.store.thread_of("main"), 3, "the new session's thread: no number is used again")
    equal((texts(case.store, "main"), texts(other, "main")), (["anew"], ["one", ""]), "the texts of both")


CHECKS = checks.failures
