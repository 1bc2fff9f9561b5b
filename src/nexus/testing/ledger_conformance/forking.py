"""Checks of forks and rewinds: shared entries, and independent histories after them."""

from __future__ import annotations

from nexus.errors import BadReference, NoSuchSession, SessionMoved
from nexus.ledger.sessions import SessionMetadata
from nexus.testing.ledger_conformance.expecting import equal, raises
from nexus.testing.ledger_conformance.making import append, compaction, entries, entry, mark, put, texts, thread_of
from nexus.testing.ledger_conformance.running import Case, Checks
from nexus.types.ledger_entries import Committed

checks = Checks()


@checks.add
def isolated_sessions(case: Case) -> None:
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


@checks.add
def every_place(case: Case) -> None:
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


@checks.add
def rewind(case: Case) -> None:
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


@checks.add
def forks_of_forks(case: Case) -> None:
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


@checks.add
def forks_are_no_deeper_than_needed(case: Case) -> None:
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


@checks.add
def fork_of_what_was_moved(case: Case) -> None:
    """A fork or rewind that expects an update of its session is refused when another one came."""
    store = case.store
    append(store, "main", "one")
    before = list(store.dump())
    for session, expected in (("main", 0), ("main", 2), ("new", 1)):
        with raises(SessionMoved, f"a fork of {session} after move {expected}"):
            store.fork(session, "main", 0, expected_number=expected)
    equal(list(store.dump()), before, "what is stored")
    store.fork("new", "main", 1, expected_number=0)
    store.fork("main", "main", 0, reason="rewind", expected_number=1)
    equal((texts(store, "new"), texts(store, "main")), (["one"], []), "the texts after both")


@checks.add
def path_of_segments(case: Case) -> None:
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


@checks.add
def turn_at_the_fork(case: Case) -> None:
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


@checks.add
def totals_begin_anew(case: Case) -> None:
    """A fork's totals count its own rows only."""
    store = case.store
    put(store, "main", entry("one"), compaction(1, 1, 2))
    row = store.thread(store.fork("branch", "main", 2))
    equal((row.messages, row.tokens, row.marks, row.head_seq), (0, 0, 0, 2), "the totals at the fork")
    put(store, "branch", entry("x", at_ms=5), mark("undone", of=2))
    row = store.thread(2)
    equal((row.messages, row.tokens, row.marks, row.first_ms), (1, 4, 1, 5), "the totals of what came after it")


@checks.add
def facts_of_forks(case: Case) -> None:
    """A fork keeps its session's metadata, takes given metadata, and gets none from its source."""
    store = case.store
    put(store, "main", entry("one"), facts=SessionMetadata(title="Main", status="archived"))
    store.fork("new", "main", 1)
    store.fork("titled", "main", 1, reason="retry", facts=SessionMetadata(title="Titled"))
    store.fork("titled", "main", 0)
    store.fork("main", "main", 0)
    actual = [(move.reason, move.facts) for name in ("new", "titled", "main") for move in store.ref_updates(name)]
    main = SessionMetadata(title="Main", status="archived")
    wanted = [
        ("fork", SessionMetadata()),
        ("retry", SessionMetadata(title="Titled")),
        ("fork", SessionMetadata(title="Titled")),
        ("created", main),
        ("fork", main),
    ]
    equal(actual, wanted, "reasons and facts")
    with raises(BadReference, "a fork whose facts name a parent that is not there"):
        store.fork("new", "main", 0, facts=SessionMetadata(parent_session="nobody"))
    equal(len(store.threads()), 5, "the number of threads")


CHECKS = checks.failures
