"""Checks of checkpoints and views: compactions, undo, pins, cuts, manifests, and their inheritance."""

from __future__ import annotations

import hashlib

from nexus.errors import BadEntry
from nexus.ledger import replay
from nexus.ledger.records import BlobRecord
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.expecting import equal, raises
from nexus.testing.ledger_conformance.making import (
    append,
    compaction,
    cut,
    entry,
    manifest,
    mark,
    put,
    texts,
    thread_of,
)
from nexus.testing.ledger_conformance.running import Case, Checks
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, MessageRef, NewEntry

checks = Checks()


def record_call(
    store: LedgerStore, session: str, cut_made: Cut | None = None, row: AssemblyRow | None = None
) -> Committed:
    """Append a message as after a call: with the cut that the context needed, and its manifest."""
    return store.commit(session, Commit((entry("sent"),), cut_made, row))


@checks.add
def newest_first(case: Case) -> None:
    """Checkpoints are all entries except steps, newest first, on a fork those from before its entry."""
    store = case.store
    steps = (entry("one"), mark("pin", seq=1, ord=0), mark("completed"), compaction(1, 1, 2), entry("two"))
    put(store, "main", *steps, mark("failed"), mark("undone", of=4), mark("clear"), mark("unpin", seq=1, ord=0))
    actual = [(stored.seq, stored.kind) for stored in store.checkpoints(1)]
    wanted = [(9, "unpin"), (8, "clear"), (7, "undone"), (4, "compaction"), (2, "pin")]
    equal(actual, wanted, "the marks")
    by_seq = {stored.seq: stored for stored in store.entries(1)}
    equal(store.checkpoints(1), [by_seq[seq] for seq, _ in wanted], "the marks, compared with the entries")
    store.fork("branch", "main", 6)
    put(store, "branch", mark("clear"))
    actual = [(stored.seq, stored.kind) for stored in store.checkpoints(2)]
    equal(actual, [(7, "clear"), (4, "compaction"), (2, "pin")], "the fork's marks")


@checks.add
def undo_and_redo(case: Case) -> None:
    """Undoing a compaction and undoing the undo change which compaction is live, and a fork sees its own state."""
    store = case.store
    put(store, "main", entry("one"), compaction(1, 1, 2), entry("two"), compaction(1, 3, 4))
    steps = ((4, 2), (5, 4), (6, 2), (2, 0), (8, 2), (7, 4))
    for number, (of, live) in enumerate(steps, 5):
        put(store, "main", mark("undone", of=of))
        live_mark = replay.live_checkpoints(store.checkpoints(1)).checkpoint
        equal(live_mark.seq if live_mark else 0, live, f"the live compaction after undo {number} of entry {of}")
    for at_seq, live in ((5, 2), (6, 4), (8, 0)):
        live_mark = replay.live_checkpoints(store.checkpoints(store.fork("branch", "main", at_seq))).checkpoint
        equal(live_mark.seq if live_mark else 0, live, f"the live compaction of a fork at {at_seq}")


@checks.add
def wrong_undo(case: Case) -> None:
    """Only a compaction or undo that is current and on the same path can be undone."""
    store = case.store
    put(store, "main", entry("one"), mark("clear"), compaction(1, 1, 2), mark("undone", of=3), compaction(1, 1, 2))
    append(store, "other", "one")
    store.fork("early", "main", 4)
    before = list(store.dump())
    wrong = (("main", 1), ("main", 2), ("main", 3), ("main", 0), ("main", 6), ("main", 7), ("other", 3), ("early", 5))
    for session, of in wrong:
        with raises(BadEntry, f"undoing entry {of} of {session}"):
            put(store, session, mark("undone", of=of))
    with raises(BadEntry, "an undo that names nothing"):
        put(store, "main", mark("undone"))
    equal(list(store.dump()), before, "what is stored")
    equal(put(store, "early", mark("undone", of=4)).head, 5, "the head after the fork undid an inherited undo")


@checks.add
def wrong_compaction(case: Case) -> None:
    """A compaction covers entries that are there and keeps what follows; it may cover nothing, and keep nothing."""
    store = case.store
    put(store, "main", entry("one"), entry("two"), entry("three"))
    wrong = ((0, 1, 2), (2, 0, 3), (1, 2, 2), (1, 2, 1), (1, 3, 6), (3, 1, 3), (5, 5, 6), (-1, -1, 1))
    for places in wrong:
        with raises(BadEntry, f"a compaction of {places} as entry 4"):
            put(store, "main", compaction(*places))
    with raises(BadEntry, "a compaction without places"):
        put(store, "main", mark("compaction", summary="so far"))
    with raises(BadEntry, "a compaction whose places are no numbers"):
        put(store, "main", mark("compaction", covers_from="1", covers_to="2", first_kept="3", summary=""))
    equal(store.head(1)[0], 3, "the head after compactions that were refused")
    for number, places in enumerate(((1, 1, 2), (1, 0, 1), (1, 3, 4), (1, 6, 8)), 4):
        equal(put(store, "main", compaction(*places)).head, number, f"the head after a compaction of {places}")
    read = [stored.body["summary"] for stored in store.checkpoints(1)]
    equal(read, ["so far"] * 4, "the summaries")


@checks.add
def pins(case: Case) -> None:
    """A pin names a message that is there; forks inherit pins up to their entry."""
    store = case.store
    put(store, "main", entry("one", "two"), mark("pin", seq=1, ord=1), entry("three"), mark("pin", seq=3, ord=0))
    put(store, "main", mark("unpin", seq=1, ord=1))
    equal(replay.live_checkpoints(store.checkpoints(1)).pins, (MessageRef(3, 0),), "the pins")
    wanted = {1: (), 2: (MessageRef(1, 1),), 3: (MessageRef(1, 1),), 4: (MessageRef(1, 1), MessageRef(3, 0))}
    for at_seq, places in wanted.items():
        actual = replay.live_checkpoints(store.checkpoints(store.fork("branch", "main", at_seq))).pins
        equal(actual, places, f"the pins of a fork at {at_seq}")
    store.fork("branch", "main", 1)
    for session, seq, order in (("main", 1, 2), ("main", 2, 0), ("main", 9, 0), ("main", 0, 0), ("branch", 3, 0)):
        for wrong in (mark("pin", seq=seq, ord=order), mark("unpin", seq=seq, ord=order)):
            with raises(BadEntry, f"{wrong.kind} of message {order} of entry {seq} of {session}"):
                put(store, session, wrong)
    for body in ({}, {"seq": "1", "ord": 0}, {"seq": 1, "ord": -1}):
        with raises(BadEntry, f"a pin of {body}"):
            put(store, "main", NewEntry("pin", body=dict(body)))
    put(store, "branch", entry("new"), mark("pin", seq=2, ord=0))
    equal(
        replay.live_checkpoints(store.checkpoints(thread_of(store, "branch"))).pins,
        (MessageRef(2, 0),),
        "a pin of the same commit's message",
    )
    equal(texts(store, "main"), ["one", "two", "three"], "the texts")


@checks.add
def cuts(case: Case) -> None:
    """A cut is stored with its turn, per view, unless a decision of that number is there already."""
    store = case.store
    record_call(store, "main", cut("v", 1, 0))
    equal(store.last_cut(1, "v"), cut("v", 1, 0), "the first cut")
    record_call(store, "main", cut("v", 1, 1))
    equal(store.last_cut(1, "v"), cut("v", 1, 0), "the cut after another one of its number came")
    record_call(store, "main", cut("v", 2, 2))
    record_call(store, "main", cut("w", 1, 3))
    record_call(store, "main")
    actual = (store.last_cut(1, "v"), store.last_cut(1, "w"), store.last_cut(1, "x"))
    equal(actual, (cut("v", 2, 2), cut("w", 1, 3), None), "the newest cut of each view")
    every = (store.cuts(1, "v"), store.cuts(1, "w"), store.cuts(1, "x"))
    equal(every, ([cut("v", 1, 0), cut("v", 2, 2)], [cut("w", 1, 3)], []), "all cuts of each view")


@checks.add
def inherited_cuts(case: Case) -> None:
    """A fork inherits earlier cuts, continues their numbers, and leaves its source unchanged."""
    store = case.store
    append(store, "main", "one")
    record_call(store, "main", cut("v", 1, 1))
    append(store, "main", "three")
    record_call(store, "main", cut("v", 2, 3))
    for at_seq, wanted in ((0, None), (1, cut("v", 1, 1)), (2, cut("v", 1, 1)), (3, cut("v", 2, 3))):
        thread = store.fork("branch", "main", at_seq)
        equal(store.last_cut(thread, "v"), wanted, f"the newest cut of a fork at {at_seq}")
    store.fork("branch", "main", 2)
    record_call(store, "branch", cut("v", 1, 2))
    thread = thread_of(store, "branch")
    equal(store.last_cut(thread, "v"), cut("v", 1, 1), "the fork's cut after one of the inherited number came")
    record_call(store, "branch", cut("v", 2, 3))
    record_call(store, "branch", cut("v", 2, 4))
    equal(store.last_cut(thread, "v"), cut("v", 2, 3), "the fork's own cut, after another one of its number came")
    equal(store.last_cut(1, "v"), cut("v", 2, 3), "the source's cut")
    equal(store.cuts(thread, "v"), [cut("v", 1, 1), cut("v", 2, 3)], "all cuts of the fork, the inherited one first")
    deeper = store.fork("deeper", "branch", 3)
    equal(store.last_cut(deeper, "v"), cut("v", 2, 3), "the newest cut of a fork of the fork")


@checks.add
def manifests(case: Case) -> None:
    """A manifest is stored at the first new entry of its commit; a fork has those from before its entry."""
    store = case.store
    append(store, "main", "one", key="k")
    new = (entry("one", keys=("k",)), entry("two"), entry("three"))
    store.commit("main", Commit(new, assembly=manifest("v", 1)))
    record_call(store, "main", row=manifest("w", 2))
    record_call(store, "main", row=manifest("v", 3))
    actual = [(row.view, row.seq, row.manifest["number"], row.at_ms) for row in store.assemblies(1)]
    equal(actual, [("v", 2, 1, 7), ("w", 4, 2, 7), ("v", 5, 3, 7)], "the manifests")
    ranges = [[row.seq for row in store.assemblies(1, after, until)] for after, until in ((2, None), (0, 4), (2, 4))]
    equal(ranges, [[4, 5], [2, 4], [4]], "the manifests of a range")
    newest = store.last_assembly(1, "v")
    equal(newest, AssemblyRow("v", manifest("v", 3).manifest, 7, 5), "the newest manifest of a view")
    equal(store.last_assembly(1, "x"), None, "the newest manifest of a view without any")
    store.fork("branch", "main", 4)
    record_call(store, "branch", row=manifest("w", 4))
    actual = [(row.view, row.seq, row.manifest["number"]) for row in store.assemblies(2)]
    equal(actual, [("v", 2, 1), ("w", 4, 2), ("w", 5, 4)], "the fork's manifests")
    newest = store.last_assembly(2, "v")
    equal(newest.seq if newest else None, 2, "where the fork's newest manifest of the view stands")


@checks.add
def inputs(case: Case) -> None:
    """Inputs of manifests are stored once, and deleted with the last manifest that names them."""
    store = case.store
    system, tools = "the rules \ud83d".encode("utf-8", "surrogatepass"), b"[]"
    names = {"system": hashlib.sha256(system).hexdigest(), "tools": hashlib.sha256(tools).hexdigest()}
    for session, input_hashes in (("main", names), ("main", names), ("other", {"tools": names["tools"]})):
        row = AssemblyRow("v", {"inputs": input_hashes}, 7)
        store.commit(session, Commit((entry("said"),), assembly=row, blobs=(system, tools)[-len(input_hashes) :]))
    blobs = {record.sha256: record.data for record in store.dump() if isinstance(record, BlobRecord)}
    equal(blobs, {names["system"]: system, names["tools"]: tools}, "the inputs stored")
    equal((store.blob(names["system"]), store.blob("0" * 64)), (system, None), "an input by its hash")
    store.commit("main", Commit((entry("said", keys=("k",)),)))
    store.commit("main", Commit((entry("said", keys=("k",)),), assembly=manifest("v", 1), blobs=(b"never",)))
    equal(store.blob(hashlib.sha256(b"never").hexdigest()), None, "an input of a commit that added nothing")
    equal(store.erase([1], ["main"]).blobs, 1, "the inputs deleted with the session that alone named one")
    equal((store.blob(names["system"]), store.blob(names["tools"])), (None, tools), "what is left")


CHECKS = checks.failures
