"""Checks of forks, rewinds and checkpoints: shared entries, compactions, undo, pins, cuts, manifests."""

from __future__ import annotations

import hashlib

from nexus.errors import BadReference, HeadMoved, NoSuchSession
from nexus.ledger import replay
from nexus.ledger.records import BlobRecord
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import (
    LedgerCase,
    append,
    compaction,
    cut,
    entries,
    entry,
    equal,
    manifest,
    mark,
    put,
    raises,
    texts,
    thread_of,
)
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, MessageRef, NewEntry

# forks ----------------------------------------------------------------------------------------------------------------


def check_isolated_sessions(case: LedgerCase) -> None:
    """A fork shares the path up to its entry; after it both go on apart."""
    store = case.store
    for text in ("one", "two", "three"):
        append(store, "main", text)
    equal(store.fork("branch", "main", 2), 2, "the fork's thread")
    shared = entries(store, "main")[:2]
    equal(entries(store, "branch"), shared, "the fork's entries at first")
    equal(store.head(2), (2, shared[1].hash), "the fork's head at first")
    equal(append(store, "branch", "other three"), Committed(2, 3, 1, 3), "the fork's first entry")
    append(store, "main", "four")
    equal(texts(store, "main"), ["one", "two", "three", "four"], "the source's texts")
    equal(texts(store, "branch"), ["one", "two", "other three"], "the fork's texts")
    equal(entries(store, "branch")[:2], shared, "what they share")
    row = store.thread(2)
    equal((row.parent, row.fork_seq, row.root_hash), (1, 2, shared[1].hash), "where the fork begins")
    equal((row.messages, row.head_seq), (1, 3), "the fork's own messages, and its head")


def check_every_place(case: LedgerCase) -> None:
    """A fork may begin at every entry and before the first; another place is refused, and nothing is made."""
    store = case.store
    for number in range(1, 4):
        append(store, "main", f"{number}")
    all_entries = entries(store, "main")
    for at_seq in range(4):
        thread = store.fork(f"at {at_seq}", "main", at_seq)
        equal(list(store.entries(thread)), all_entries[:at_seq], f"the entries of a fork at {at_seq}")
        equal(store.head(thread)[0], at_seq, f"the head of a fork at {at_seq}")
        equal(append(store, f"at {at_seq}", "on").head, at_seq + 1, f"the head after a fork at {at_seq} went on")
    equal(store.thread(2).root_hash, store.thread(1).root_hash, "the root hash of a fork before the first entry")
    before = list(store.dump())
    for at_seq in (-1, 4, 1 << 40):
        with raises(BadReference, f"a fork at entry {at_seq} of 3"):
            store.fork("no", "main", at_seq)
    with raises(NoSuchSession, "a fork of a session that is not there"):
        store.fork("no", "nobody", 0)
    equal(list(store.dump()), before, "what is stored")


def check_rewind(case: LedgerCase) -> None:
    """A session that is forked onto itself continues from the earlier entry, and later ones stay readable."""
    store = case.store
    for text in ("one", "two", "three"):
        append(store, "main", text)
    equal(store.fork("main", "main", 1, reason="rewind"), 2, "the new thread")
    append(store, "main", "other two")
    equal(texts(store, "main"), ["one", "other two"], "the session's texts")
    old = [row.message.text() for stored in store.entries(1) for row in stored.rows]
    equal(old, ["one", "two", "three"], "the texts of the old thread")
    moves = [(move.number, move.thread, move.reason) for move in store.ref_updates("main")]
    equal(moves, [(1, 1, "created"), (2, 2, "rewind")], "the session's moves")
    store.update_refs([], [])
    equal(store.fork("main", "main", 0), 3, "the thread after a rewind to the beginning")
    equal(texts(store, "main"), [], "the session's texts after that")


def check_forks_of_forks(case: LedgerCase) -> None:
    """A hundred forks of forks read as one path, and each may go on."""
    store = case.store
    append(store, "0", "0")
    for number in range(1, 101):
        store.fork(f"{number}", f"{number - 1}", number)
        append(store, f"{number}", f"{number}")
    equal(texts(store, "100"), [f"{number}" for number in range(101)], "the texts of the last fork")
    equal([stored.seq for stored in entries(store, "100")], list(range(1, 102)), "their numbers")
    equal(texts(store, "50"), [f"{number}" for number in range(51)], "the texts of the fork in the middle")
    middle = thread_of(store, "100")
    equal([stored.seq for stored in store.entries(middle, 40, 43)], [41, 42, 43], "a range of the path")
    store.fork("early", "100", 3)
    equal(texts(store, "early"), ["0", "1", "2"], "the texts of a fork that begins far up")
    append(store, "early", "on")
    store.fork("late", "early", 2)
    equal(texts(store, "late"), ["0", "1"], "the texts of its fork")


def check_forks_are_no_deeper_than_needed(case: LedgerCase) -> None:
    """A fork continues the thread that its entry lies in, whatever threads it was reached through."""
    store = case.store
    put(store, "main", entry("one"), entry("two"))
    for _ in range(50):
        store.fork("main", "main", 1, reason="rewind")
    store.fork("first", "main", 0)
    append(store, "main", "other two")
    store.fork("second", "main", 2)
    actual = [(row.parent, row.fork_seq) for row in store.threads()]
    equal(actual, [(None, 0), *[(1, 1)] * 50, (1, 0), (51, 2)], "what each thread continues, and after which entry")
    equal(texts(store, "second"), ["one", "other two"], "the texts of the last fork")


def check_fork_of_what_was_moved(case: LedgerCase) -> None:
    """A fork or rewind that expects an update of its session is refused when another one came."""
    store = case.store
    append(store, "main", "one")
    before = list(store.dump())
    for session, expected in (("main", 0), ("main", 2), ("new", 1)):
        with raises(HeadMoved, f"a fork of {session} after move {expected}", code="session_moved"):
            store.fork(session, "main", 0, expected_number=expected)
    equal(list(store.dump()), before, "what is stored")
    store.fork("new", "main", 1, expected_number=0)
    store.fork("main", "main", 0, reason="rewind", expected_number=1)
    equal((texts(store, "new"), texts(store, "main")), (["one"], []), "the texts after both")


def check_path_of_segments(case: LedgerCase) -> None:
    """The path lists the entries of each thread it consists of, and the chain value before each part."""
    store = case.store
    put(store, "main", entry("one"), entry("two"), entry("three"))
    store.fork("a", "main", 2)
    append(store, "a", "three of a")
    store.fork("b", "a", 1)
    append(store, "b", "two of b")
    wanted = {"main": [(1, 1), (1, 2), (1, 3)], "a": [(1, 1), (1, 2), (2, 3)], "b": [(1, 1), (3, 2)]}
    for session, places in wanted.items():
        thread = thread_of(store, session)
        head, _ = store.head(thread)
        actual = [
            (part.thread, seq) for part in store.path(thread) for seq in range(part.low + 1, min(part.high, head) + 1)
        ]
        equal(actual, places, f"the path of {session}")
        for part in store.path(thread):
            equal(part.root, store.thread(part.thread).root_hash, f"what stands before thread {part.thread}")


def check_turn_at_the_fork(case: LedgerCase) -> None:
    """A fork's turn, and whether it is open, are as they were at its entry."""
    store = case.store
    steps = (entry("before", starts_turn=False), entry("one"), mark("pin", seq=2, ord=0), mark("completed"))
    put(store, "main", *steps, entry("two"), compaction(1, 5, 6), mark("clear"), mark("unpin", seq=2, ord=0))
    wanted = [(0, False), (0, False), (1, True), (1, True), (1, False), (2, True), (2, True), (2, False), (2, False)]
    for at_seq, state in enumerate(wanted):
        row = store.thread(store.fork("branch", "main", at_seq))
        equal((row.turn, row.open_turn), state, f"turn, and whether it is open, of a fork at {at_seq}")
        deeper = store.thread(store.fork("deeper", "branch", at_seq))
        equal((deeper.turn, deeper.open_turn), state, f"the same of a fork of the fork at {at_seq}")
    store.fork("branch", "main", 5)
    committed = put(store, "branch", mark("completed"), entry("three"))
    equal(committed.turn, 3, "the turn that a fork at turn 2 opens")


def check_totals_begin_anew(case: LedgerCase) -> None:
    """A fork's totals count its own rows only."""
    store = case.store
    put(store, "main", entry("one"), compaction(1, 1, 2))
    row = store.thread(store.fork("branch", "main", 2))
    equal((row.messages, row.tokens, row.marks, row.head_seq), (0, 0, 0, 2), "the totals at the fork")
    put(store, "branch", entry("x", at_ms=5), mark("undone", of=2))
    row = store.thread(2)
    equal((row.messages, row.tokens, row.marks, row.first_ms), (1, 4, 1, 5), "the totals of what came after it")


def check_facts_of_forks(case: LedgerCase) -> None:
    """A fork keeps its session's metadata, takes given metadata, and gets none from its source."""
    store = case.store
    put(store, "main", entry("one"), metadata=SessionMetadata(title="Main", status="archived"))
    store.fork("new", "main", 1)
    store.fork("titled", "main", 1, reason="retry", metadata=SessionMetadata(title="Titled"))
    store.fork("titled", "main", 0)
    store.fork("main", "main", 0)
    actual = [(move.reason, move.metadata) for name in ("new", "titled", "main") for move in store.ref_updates(name)]
    main = SessionMetadata(title="Main", status="archived")
    wanted = [
        ("fork", SessionMetadata()),
        ("retry", SessionMetadata(title="Titled")),
        ("fork", SessionMetadata(title="Titled")),
        ("created", main),
        ("fork", main),
    ]
    equal(actual, wanted, "reasons and facts")
    with raises(BadReference, "a fork whose metadata name a parent that is not there"):
        store.fork("new", "main", 0, metadata=SessionMetadata(parent_session="nobody"))
    equal(len(store.threads()), 5, "the number of threads")


# checkpoints and views ------------------------------------------------------------------------------------------------


def record_call(
    store: LedgerStore, session: str, cut_made: Cut | None = None, row: AssemblyRow | None = None
) -> Committed:
    """Append a message as after a call: with the cut that the context needed, and its manifest."""
    return store.commit(session, Commit((entry("sent"),), cut_made, row))


def check_newest_first(case: LedgerCase) -> None:
    """Checkpoints are all entries except steps, newest first, on a fork those from before its entry."""
    store = case.store
    steps = (entry("one"), mark("pin", seq=1, ord=0), mark("completed"), compaction(1, 1, 2), entry("two"))
    put(store, "main", *steps, mark("failed"), mark("undone", of=4), mark("clear"), mark("unpin", seq=1, ord=0))
    actual = [(stored.seq, stored.kind) for stored in store.checkpoints(1)]
    wanted = [(9, "unpin"), (8, "clear"), (7, "undone"), (4, "compaction"), (2, "pin")]
    equal(actual, wanted, "the marks")
    by_seq = {stored.seq: stored for stored in store.entries(1)}
    equal(store.checkpoints(1), [by_seq[seq] for seq, _ in wanted], "the marks, compared with the entries")
    for until in range(10):
        every = [stored for stored in store.checkpoints(1) if stored.seq <= until]
        equal(store.checkpoints(1, until), every, f"the marks up to entry {until}")
        live = replay.live_checkpoints(store.checkpoints(1, until, replaced=False))
        equal(live, replay.live_checkpoints(every), f"the current marks at entry {until}")
    store.fork("branch", "main", 6)
    put(store, "branch", mark("clear"))
    actual = [(stored.seq, stored.kind) for stored in store.checkpoints(2)]
    equal(actual, [(7, "clear"), (4, "compaction"), (2, "pin")], "the fork's marks")


def check_undo_and_redo(case: LedgerCase) -> None:
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


def check_wrong_undo(case: LedgerCase) -> None:
    """Only a compaction or undo that is current and on the same path can be undone."""
    store = case.store
    put(store, "main", entry("one"), mark("clear"), compaction(1, 1, 2), mark("undone", of=3), compaction(1, 1, 2))
    append(store, "other", "one")
    store.fork("early", "main", 4)
    before = list(store.dump())
    wrong = (("main", 1), ("main", 2), ("main", 3), ("main", 0), ("main", 6), ("main", 7), ("other", 3), ("early", 5))
    for session, of in wrong:
        with raises(BadReference, f"undoing entry {of} of {session}", code="bad_entry"):
            put(store, session, mark("undone", of=of))
    with raises(BadReference, "an undo that names nothing", code="bad_entry"):
        put(store, "main", mark("undone"))
    equal(list(store.dump()), before, "what is stored")
    equal(put(store, "early", mark("undone", of=4)).head, 5, "the head after the fork undid an inherited undo")


def check_wrong_compaction(case: LedgerCase) -> None:
    """A compaction covers entries that are there and keeps what follows; it may cover nothing, and keep nothing."""
    store = case.store
    put(store, "main", entry("one"), entry("two"), entry("three"))
    wrong = ((0, 1, 2), (2, 0, 3), (1, 2, 2), (1, 2, 1), (1, 3, 6), (3, 1, 3), (5, 5, 6), (-1, -1, 1))
    for places in wrong:
        with raises(BadReference, f"a compaction of {places} as entry 4", code="bad_entry"):
            put(store, "main", compaction(*places))
    with raises(BadReference, "a compaction without places", code="bad_entry"):
        put(store, "main", mark("compaction", summary="so far"))
    with raises(BadReference, "a compaction whose places are no numbers", code="bad_entry"):
        put(store, "main", mark("compaction", covers_from="1", covers_to="2", first_kept="3", summary=""))
    equal(store.head(1)[0], 3, "the head after compactions that were refused")
    for number, places in enumerate(((1, 1, 2), (1, 0, 1), (1, 3, 4), (1, 6, 8)), 4):
        equal(put(store, "main", compaction(*places)).head, number, f"the head after a compaction of {places}")
    read = [stored.body["summary"] for stored in store.checkpoints(1)]
    equal(read, ["so far"] * 4, "the summaries")


def check_pins(case: LedgerCase) -> None:
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
            with raises(BadReference, f"{wrong.kind} of message {order} of entry {seq} of {session}", code="bad_entry"):
                put(store, session, wrong)
    for body in ({}, {"seq": "1", "ord": 0}, {"seq": 1, "ord": -1}):
        with raises(BadReference, f"a pin of {body}", code="bad_entry"):
            put(store, "main", NewEntry("pin", body=dict(body)))
    put(store, "branch", entry("new"), mark("pin", seq=2, ord=0))
    equal(
        replay.live_checkpoints(store.checkpoints(thread_of(store, "branch"))).pins,
        (MessageRef(2, 0),),
        "a pin of the same commit's message",
    )
    equal(texts(store, "main"), ["one", "two", "three"], "the texts")


def check_cuts(case: LedgerCase) -> None:
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


def check_inherited_cuts(case: LedgerCase) -> None:
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


def check_manifests(case: LedgerCase) -> None:
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


def check_inputs(case: LedgerCase) -> None:
    """Inputs of manifests are stored once, and deleted with the last manifest that names them."""
    store = case.store
    system = "the rules \ud83d".encode("utf-8", "surrogatepass")
    tools = b"[]"
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
    row = AssemblyRow("v", {"inputs": names}, 7)
    store.commit("other", Commit((entry("said"),), assembly=row, blobs=(system, tools)))
    equal(store.blob(names["system"]), system, "an input that a later call has again")
