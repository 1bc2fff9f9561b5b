"""Checks of leases, and of the fences and turns that keep out writers that come too late."""

from __future__ import annotations

from collections.abc import Callable

from nexus.errors import BadReference, HeadMoved, SessionBusy, TurnSuperseded
from nexus.ledger.sessions import Alias, NewRefUpdate
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import (
    WAIT_SECONDS,
    LedgerCase,
    append,
    entry,
    equal,
    holds,
    mark,
    raises,
    rename,
    texts,
    thread_of,
    together,
)
from nexus.types.ledger_entries import Commit, Committed, LeaseChange, NewEntry, TurnPosition

MINUTE_MS = 60_000

# leases ---------------------------------------------------------------------------------------------------------------


def check_lease(case: LedgerCase) -> None:
    """A lease has one holder until it expires or is given back, and belongs to a session whatever its name."""
    store = case.store
    first = store.take_lease("main", "ann", 60_000)
    equal((first.session, first.holder), ("main", "ann"), "the lease of a session that is not there yet")
    equal(store.take_lease("main", "bob", 60_000).holder, "ann", "the holder when another asks")
    equal(store.take_lease("other", "bob", 60_000).holder, "bob", "the holder of another session's lease")
    holds(
        store.take_lease("main", "ann", 120_000).expires_ms > first.expires_ms, "a renewed lease does not last longer"
    )
    store.release_lease("main", "bob")
    equal(store.take_lease("main", "bob", 60_000).holder, "ann", "the holder after another gave it back")
    append(store, "main", "one")
    store.update_refs([], [Alias("alias", "main", "renamed")])
    equal(store.take_lease("alias", "bob", 60_000).holder, "ann", "the holder by the session's other name")
    store.release_lease("alias", "ann")
    equal(store.take_lease("main", "bob", 0).holder, "bob", "the holder after it was given back")
    equal(store.take_lease("main", "ann", 60_000).holder, "ann", "the holder after it expired")
    equal(case.open("another").take_lease("main", "bob", 60_000).holder, "bob", "the holder for another tenant")


def check_longest_lease(case: LedgerCase) -> None:
    """No lease lasts longer than two minutes."""
    short = case.store.take_lease("main", "ann", 1)
    long = case.store.take_lease("main", "ann", 1_000 * MINUTE_MS)
    most_ms = 2 * MINUTE_MS + int(WAIT_SECONDS * 1_000)
    holds(short.expires_ms < long.expires_ms < short.expires_ms + most_ms, f"expected 2 minutes, found {short}, {long}")
    equal(case.store.take_lease("main", "bob", MINUTE_MS).holder, "ann", "the holder")


def check_lease_and_clock(case: LedgerCase) -> None:
    """A lease lasts by the store's own clock, whatever the time of day."""
    store = case.store
    store.take_lease("main", "ann", MINUTE_MS)
    for now_ms in (1, 1 << 50):
        case.clock.now_ms = now_ms
        equal(case.open().take_lease("main", "bob", MINUTE_MS).holder, "ann", f"the holder at {now_ms}")


def check_lease_tokens(case: LedgerCase) -> None:
    """Each holder of a lease gets a larger token than all before, and renewing keeps it."""
    store = case.store
    tokens = [store.take_lease("main", "ann", MINUTE_MS).fence]
    equal(store.take_lease("main", "ann", 0).fence, tokens[0], "the token of a renewed lease")
    for holder in ("bob", "ann", "ann", "bob"):
        tokens.append(store.take_lease("main", holder, MINUTE_MS).fence)
        equal(store.take_lease("main", "other", MINUTE_MS).fence, tokens[-1], "the token that another is shown")
        store.release_lease("main", holder)
    holds(tokens[0] > 0 and tokens == sorted(set(tokens)), f"expected rising tokens from 1, found {tokens}")


def check_moved_leases(case: LedgerCase) -> None:
    """A lease follows its session to another name, and no other session's lease does."""
    store = case.store
    append(store, "old", "one")
    append(store, "other", "two")
    token = store.take_lease("old", "ann", MINUTE_MS).fence
    store.take_lease("other", "bob", MINUTE_MS)
    rename(store, "old", "new")
    for name in ("old", "new"):
        lease = store.take_lease(name, "cat", MINUTE_MS)
        equal((lease.holder, lease.fence), ("ann", token), f"holder and token by {name}")
    equal(store.take_lease("other", "cat", MINUTE_MS).holder, "bob", "the holder of the other session")
    store.take_lease("next", "dan", MINUTE_MS)
    store.release_lease("old", "ann")
    rename(store, "new", "next")
    equal(store.take_lease("new", "eve", MINUTE_MS).holder, "eve", "the holder after the lease was given back")


def check_lease_of_commits(case: LedgerCase) -> None:
    """A commit takes a free lease with its token, and writes nothing if another has it; a later one ends it."""
    store = case.store
    if not getattr(store, "changes_leases_in_commits", False):
        return
    before = store.take_lease("main", "ann", MINUTE_MS).fence
    begin = Commit((entry("one", keys=("one",)),), fence=0, lease=LeaseChange("bob", MINUTE_MS))
    with raises(SessionBusy, "taking a lease that another has"):
        store.commit("main", begin)
    equal(list(store.sessions()), [], "the sessions after a commit without its lease")
    store.release_lease("main", "ann")
    taken = store.commit("main", begin)
    holds(taken.changed_lease and taken.fence > before, f"expected the lease with a later token, found {taken}")
    equal(taken.head_hash or store.head(taken.thread)[1], store.head(taken.thread)[1], "the hash of the newest entry")
    equal(store.take_lease("main", "cat", MINUTE_MS).holder, "bob", "the holder after the commit")
    again = store.commit("main", begin)
    equal((again.added, again.changed_lease), (0, False), "what the same commit again did")
    with raises(TurnSuperseded, "writing with the token before"):
        write(store, "main", "late", before)
    store.commit("main", Commit((entry("two"),), fence=taken.fence, lease=LeaseChange("cat")))
    equal(store.take_lease("main", "cat", MINUTE_MS).holder, "bob", "the holder after another ended its own")
    store.commit("main", Commit((entry("three"),), fence=taken.fence, lease=LeaseChange("bob")))
    after = store.take_lease("main", "cat", MINUTE_MS)
    equal(after.holder, "cat", "the holder after the lease ended")
    holds(after.fence > taken.fence, f"expected a later token than {taken.fence}, found {after.fence}")
    brief = Commit((entry("four"),), fence=0, lease=LeaseChange("bob", MINUTE_MS, is_brief=True))
    with raises(SessionBusy, "a commit under a lease that another has"):
        store.commit("main", brief)
    store.release_lease("main", "cat")
    passed = store.commit("main", brief)
    holds(passed.fence > after.fence, f"expected a later token than {after.fence}, found {passed.fence}")
    with raises(TurnSuperseded, "writing with the token of the lease before"):
        write(store, "main", "late", after.fence)
    equal(
        store.take_lease("main", "dan", MINUTE_MS).holder, "dan", "the holder after a commit that ended its own lease"
    )
    equal(texts(store, "main"), ["one", "two", "three", "four"], "the texts")


# fences ---------------------------------------------------------------------------------------------------------------


def write(store: LedgerStore, session: str, text: str, fence: int | None, *new: NewEntry) -> Committed:
    """Append a message that starts a turn, and further entries, with a fencing token."""
    return store.commit(session, Commit((entry(text), *new), fence=fence))


def check_later_writers(case: LedgerCase) -> None:
    """A later writer shuts out all earlier ones, which write nothing; each token may write again until then."""
    store = case.store
    tokens: list[int] = []
    for holder in ("ann", "bob", "cat"):
        tokens.append(store.take_lease("main", holder, MINUTE_MS).fence)
        store.release_lease("main", holder)
    for at in (0, 0, 1, 2, 2):
        equal(write(store, "main", f"by {at}", tokens[at]).fence, tokens[at], "the token of the commit")
        before = list(store.dump())
        for late in tokens[:at]:
            with raises(TurnSuperseded, f"writing with token {late} after {tokens[at]}"):
                write(case.open(), "main", "late", late, mark("completed"))
        equal(list(store.dump()), before, "what is stored")
    equal(write(store, "main", "by nobody", None).fence, 0, "the token of a commit without one")
    write(store, "other", "another session", tokens[0])
    write(store, "main", "by 2", tokens[2])
    equal(texts(store, "main"), ["by 0", "by 0", "by 1", "by 2", "by 2", "by nobody", "by 2"], "the texts")


def check_taken_fences(case: LedgerCase) -> None:
    """Token 0 takes the next one: all writers and holders before are too late, and later ones are not."""
    store = case.store
    ann = store.take_lease("main", "ann", MINUTE_MS).fence
    write(store, "main", "by ann", ann)
    tokens = [ann, write(store, "main", "taken", 0).fence, write(store, "main", "taken again", 0).fence]
    holds(tokens == sorted(set(tokens)), f"expected rising tokens, found {tokens}")
    for late in (ann, tokens[1], store.take_lease("main", "ann", MINUTE_MS).fence):
        with raises(TurnSuperseded, f"writing with token {late} after {tokens[2]}"):
            write(store, "main", "late", late)
    equal(write(store, "main", "goes on", tokens[2]).fence, tokens[2], "the token of the writer that took over")
    store.release_lease("main", "ann")
    bob = store.take_lease("main", "bob", MINUTE_MS).fence
    holds(bob > tokens[2], f"expected a token larger than {tokens[2]} for the next holder, found {bob}")
    write(store, "main", "by bob", bob)
    with raises(TurnSuperseded, "the writer that took over, after the next holder wrote"):
        write(store, "main", "late", tokens[2])
    equal(store.commit("main", Commit((), fence=0)).fence, bob + 1, "the token taken by a commit without entries")
    with raises(TurnSuperseded, "the holder, after a commit without entries took over"):
        write(store, "main", "late", bob)


def check_fences_of_repeats(case: LedgerCase) -> None:
    """A commit whose entries are all known is answered, whoever wrote meanwhile."""
    new = Commit((entry("one", keys=("k",)),), fence=case.store.take_lease("main", "ann", MINUTE_MS).fence)
    case.store.commit("main", new)
    later = write(case.store, "main", "two", 0)
    equal(case.store.commit("main", new), Committed(later.thread, 2, 0, 2, new.fence or 0), "the answer")
    write(case.store, "main", "three", later.fence)


def check_fences_of_failed_commits(case: LedgerCase) -> None:
    """A commit that fails takes no token: the writer before goes on."""
    token = write(case.store, "main", "one", 0).fence
    with raises(HeadMoved, "a commit for another head"):
        case.store.commit("main", Commit((entry("two"),), expected_head=9, fence=0))
    with raises(BadReference, "a commit with a bad entry", code="bad_entry"):
        write(case.store, "main", "two", token + 5, mark("undone", of=9))
    equal(write(case.store, "main", "two", token).fence, token, "the token of the writer before")
    equal(texts(case.store, "main"), ["one", "two"], "the texts")


def check_fences_of_renamed_sessions(case: LedgerCase) -> None:
    """A token of before a renaming still writes after it, by either name, and is too late after a later writer."""
    store = case.store
    write(store, "old", "one", 0)
    token = store.take_lease("old", "ann", MINUTE_MS).fence
    rename(store, "old", "new")
    for name in ("old", "new"):
        equal(write(store, name, f"as {name}", token).fence, token, f"the token of a commit as {name}")
    later = write(store, "old", "later", 0).fence
    for name in ("old", "new"):
        with raises(TurnSuperseded, f"writing as {name} after token {later}"):
            write(store, name, "late", token)
    equal(texts(store, "new"), ["one", "as old", "as new", "later"], "the texts")


def check_fences_of_tenants(case: LedgerCase) -> None:
    """Tenants do not share fences."""
    other = case.open("other")
    tokens = [write(case.store, "main", "one", 0).fence for _ in range(3)]
    equal(write(other, "main", "one", 0).fence, tokens[0], "the first token of another tenant")
    write(other, "main", "two", tokens[0])


def check_fences_opened_again(case: LedgerCase) -> None:
    """Fences are intact after closing and opening again."""
    if not case.backend.durable:
        return
    first = write(case.store, "main", "one", 0).fence
    second = write(case.store, "main", "two", 0).fence
    case.close()
    store = case.open()
    with raises(TurnSuperseded, "the first writer"):
        write(store, "main", "late", first)
    write(store, "main", "three", second)
    holds(store.take_lease("main", "ann", MINUTE_MS).fence > second, "expected a larger token for the next holder")


def check_two_writers_at_once(case: LedgerCase) -> None:
    """Of two threads that write with different tokens, none with the smaller one's comes after the larger one's."""
    stores = (case.store, case.open())
    small = case.store.take_lease("main", "ann", 0).fence
    large = case.store.take_lease("main", "bob", 0).fence
    write(case.store, "main", "small", small)

    def call(worker: int) -> Callable[[], object]:
        def work() -> None:
            for _ in range(20):
                write(stores[worker], "main", ("small", "large")[worker], (small, large)[worker])

        return work

    early, late = together(call(0), call(1))
    holds(early is None or isinstance(early, TurnSuperseded), f"expected TurnSuperseded or nothing, found {early!r}")
    equal(late, None, "the error of the larger token's writer")
    stored = texts(case.store, "main")
    equal(stored[stored.index("large") :], ["large"] * 20, "the texts from the first of the larger token's")


def check_tokens_taken_at_once(case: LedgerCase) -> None:
    """Threads that take tokens at once, by lease or by commit, get one each."""
    stores = (case.store, case.open())
    append(case.store, "main", "one")

    def call(worker: int) -> Callable[[], object]:
        store = stores[worker % 2]
        if worker % 3:
            return lambda: [write(store, "main", "x", 0).fence for _ in range(5)]
        return lambda: [store.take_lease("main", f"{worker} {number}", 0).fence for number in range(5)]

    tokens: list[int] = []
    for result in together(*(call(worker) for worker in range(6))):
        holds(isinstance(result, list), f"expected tokens, found {result!r}")
        tokens += result if isinstance(result, list) else []
    equal(len(set(tokens)), 30, "how many different tokens there are")


# turns ----------------------------------------------------------------------------------------------------------------


def position(committed: Committed) -> TurnPosition:
    """Return the position of a turn by the entry that was just appended to it."""
    return TurnPosition(committed.thread, committed.head, committed.turn)


def go_on(store: LedgerStore, session: str, turn: TurnPosition, *new: NewEntry) -> Committed:
    """Append entries that continue a turn: without any, a message."""
    return store.commit(session, Commit(new or (entry("goes on", starts_turn=False),), turn=turn, fence=0))


def refused(case: LedgerCase, session: str, turn: TurnPosition, what: str) -> None:
    """Check that a turn cannot be continued, and that nothing is written."""
    before = list(case.store.dump())
    for new in ((), (entry("late", starts_turn=False), mark("completed"))):
        with raises(TurnSuperseded, what):
            go_on(case.store, session, turn, *new)
    equal(list(case.store.dump()), before, f"what is stored after {what}")


def check_open_turns(case: LedgerCase) -> None:
    """Entries that continue a turn are written while it is the newest, and not after its end: a failed one is tried again."""
    store = case.store
    failed = position(append(store, "main", "question"))
    go_on(store, "main", failed, mark("failed", error="no network"))
    go_on(store, "main", failed, entry("answer", starts_turn=False), mark("completed"))
    refused(case, "main", failed, "a failed turn that was answered since")
    for end in ("completed", "clear"):
        question = append(store, "main", "question")
        turn = position(question)
        equal(go_on(store, "main", turn).turn, question.turn, "the turn of what continues it")
        go_on(store, "main", turn, entry("answer", starts_turn=False), mark(end))
        refused(case, "main", turn, f"a turn that ended with {end}")
    refused(case, "main", TurnPosition(1, 1, 9), "a turn that is yet to come")
    refused(case, "main", TurnPosition(1, 1, 0), "no turn")


def check_ends_of_turns(case: LedgerCase) -> None:
    """A turn ends once, and no later turn takes the entries of an earlier one."""
    first = append(case.store, "main", "one")
    second = append(case.store, "main", "two")
    refused(case, "main", position(first), "a turn before the newest")
    results = together(*[lambda: go_on(case.store, "main", position(second), mark("completed"))] * 2)
    equal(sorted(type(result).__name__ for result in results), ["Committed", "TurnSuperseded"], "two ends at once")


def check_rewound_turns(case: LedgerCase) -> None:
    """A turn that a rewind removed is not continued, also when another turn has its number since."""
    store = case.store
    append(store, "main", "one")
    question = append(store, "main", "two")
    turn = position(question)
    go_on(store, "main", turn)
    store.fork("main", "main", 2)
    equal(go_on(store, "main", turn).head, 3, "the head when the rewind left the turn's beginning")
    store.fork("main", "main", 1)
    refused(case, "main", turn, "a turn that a rewind removed")
    other = append(store, "main", "another two")
    equal(other.turn, question.turn, "the number of the next turn")
    refused(case, "main", turn, "a removed turn whose number another one has")
    equal(go_on(store, "main", position(other)).head, 3, "the head of the turn that has its number")
    store.fork("main", "main", 0)
    refused(case, "main", turn, "a turn of a session that went back to its start")


def check_turns_of_forks(case: LedgerCase) -> None:
    """A fork inside a turn continues it apart from its source."""
    store = case.store
    question = append(store, "main", "question")
    turn = position(question)
    store.fork("branch", "main", 1)
    go_on(store, "main", turn, mark("completed"))
    refused(case, "main", turn, "the turn that ended")
    go_on(store, "branch", turn)
    go_on(store, "branch", position(question), mark("completed"))
    refused(case, "branch", turn, "the turn that ended in the fork")


def check_turns_of_other_sessions(case: LedgerCase) -> None:
    """A turn is continued in its own session only: by its other names, and not by another session of its label."""
    store = case.store
    question = append(store, "main", "question")
    turn = position(question)
    append(store, "other", "question")
    refused(case, "other", turn, "the turn of another session")
    refused(case, "nobody", turn, "a turn in a session that is not there")
    store.update_refs([], [Alias("nick", "main", "")])
    rename(store, "main", "new")
    for name in ("main", "new", "nick"):
        go_on(store, name, turn)
    store.update_refs([NewRefUpdate("new", thread_of(store, "other"), "moved")])
    refused(case, "new", turn, "a turn whose label points to another session")


def check_turns_of_erased_sessions(case: LedgerCase) -> None:
    """A turn of an erased session is not continued, also when its label is used again."""
    store = case.store
    for label in ("main", "other"):
        question = append(store, label, "question")
        turn = position(question)
        store.erase([question.thread], [label]) if label == "main" else store.erase(None)
        refused(case, label, turn, "a turn of an erased session")
        other = append(store, label, "another question")
        equal(other.turn, question.turn, "the number of its turn")
        refused(case, label, turn, "a turn whose label was used again")
        go_on(store, label, position(other), mark("completed"))
