"""Checks of a commit's conditions: keys that work once, expected heads, and atomicity."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nexus.errors import BadEntry, CompactionSuperseded, HeadMoved, IdempotencyConflict
from nexus.testing.ledger_conformance.expecting import equal, raises
from nexus.testing.ledger_conformance.making import (
    append,
    compaction,
    cut,
    entries,
    entry,
    manifest,
    mark,
    put,
    texts,
    thread_of,
    with_sizes,
)
from nexus.testing.ledger_conformance.running import Case, Checks
from nexus.types.ledger_entries import Commit, Committed, NewEntry, SizedMessage
from nexus.types.message import Image, Message, TokenSize, user

checks = Checks()


@checks.add
def same_payload(case: Case) -> None:
    """A key that comes again with the same payload adds nothing and reports the session's head."""
    append(case.store, "main", "one", key="k1")
    append(case.store, "main", "two")
    before = list(case.store.dump())
    for _ in range(10):
        case.clock.now_ms += 1
        equal(append(case.store, "main", "one", key="k1"), Committed(1, 2, 0, 2), "the commit that came again")
    equal(list(case.store.dump()), before, "what is stored")


@checks.add
def other_payload(case: Case) -> None:
    """A key that comes again with another payload is refused, and nothing is stored."""
    append(case.store, "main", "one", key="k1")
    before = list(case.store.dump())
    others = (
        entry("other", keys=("k1",)),
        replace(entry("one", keys=("k1",)), kind="completed"),
        replace(entry("one", keys=("k1",)), body={"a": 1}),
        entry(user("one", id="with an id"), keys=("k1",)),
        entry("one", "and more", keys=("k1",)),
    )
    for other in others:
        with raises(IdempotencyConflict, f"the key with {other}"):
            put(case.store, "main", entry("new", keys=("k2",)), other)
    equal(list(case.store.dump()), before, "what is stored")


@checks.add
def some_keys(case: Case) -> None:
    """Of an entry's several keys all must be known, or none."""
    put(case.store, "main", entry("one", keys=("a", "b")))
    equal(put(case.store, "main", entry("one", keys=("b",))).added, 0, "entries added when one of its keys comes again")
    equal(put(case.store, "main", entry("one", keys=("b", "a"))).added, 0, "entries added when both come again")
    with raises(IdempotencyConflict, "a known key beside a new one"):
        put(case.store, "main", entry("one", keys=("a", "c")))
    equal(case.store.known_keys("main"), {"a": 1, "b": 1}, "the known keys")


@checks.add
def key_twice_in_a_commit(case: Case) -> None:
    """A key works once within a commit too: the same payload is skipped, another one refuses the whole."""
    committed = put(case.store, "main", entry("one", keys=("k",)), entry("two"), entry("one", keys=("k",)))
    equal((committed.added, texts(case.store, "main")), (2, ["one", "two"]), "what was added")
    with raises(IdempotencyConflict, "one key for two payloads"):
        put(case.store, "main", entry("three", keys=("n",)), entry("four", keys=("n",)))
    equal(put(case.store, "main", entry("five", keys=("m", "m"))).added, 1, "entries added under a key named twice")
    expected = {"k": 1, "m": 3}
    equal(
        (texts(case.store, "main"), case.store.known_keys("main")), (["one", "two", "five"], expected), "what is stored"
    )


@checks.add
def counts_are_no_payload(case: Case) -> None:
    """Other counts of the same messages make no other payload, and the first ones stay."""
    append(case.store, "main", "one", key="k")
    recounted = NewEntry(messages=(SizedMessage(user("one"), TokenSize(9, 9, 9)),), starts_turn=True, keys=("k",))
    equal(put(case.store, "main", recounted).added, 0, "entries added")
    equal(entries(case.store, "main")[0].rows[0].size, with_sizes("one")[0].size, "the counts")


@checks.add
def keys_of_threads(case: Case) -> None:
    """A key belongs to the thread that used it; a fork may use an inherited key again."""
    append(case.store, "main", "one", key="k")
    append(case.store, "main", "two", key="later")
    case.store.fork("branch", "main", 1)
    equal(case.store.known_keys("branch"), {"k": 1}, "the keys of a new fork: those from before its entry")
    equal(append(case.store, "branch", "other", key="k"), Committed(2, 2, 1, 2), "the same key on the fork")
    equal(case.store.known_keys("branch"), {"k": 2}, "the keys of the fork that used one again")
    append(case.store, "third", "else", key="k")
    equal(case.store.holders("k"), [(1, 1), (2, 2), (3, 1)], "the holders of the key")
    equal(case.store.known_keys("main"), {"k": 1, "later": 2}, "the keys of the source")
    equal(case.store.holders("unused"), [], "the holders of another key")


@checks.add
def retry_after_fork_and_rewind(case: Case) -> None:
    """The very same append is known on a fork and after a rewind too, as far as their path goes."""
    store = case.store
    append(store, "main", "one", key="k1")
    append(store, "main", "two", key="k2")
    store.fork("main", "main", 2, reason="rewind")
    store.fork("early", "main", 1)
    before = list(store.dump())
    for session, text, key in (("main", "one", "k1"), ("main", "two", "k2"), ("early", "one", "k1")):
        equal(append(store, session, text, key=key).added, 0, f"entries added to {session} under its inherited {key}")
    equal(list(store.dump()), before, "what is stored")
    equal(append(store, "early", "two", key="k2").added, 1, "entries added under a key from after the fork")
    equal(
        append(store, "main", "else", key="k1").added, 1, "entries added under an inherited key, with another payload"
    )
    with raises(IdempotencyConflict, "the first payload, on the thread that used its key for another one"):
        append(store, "main", "one", key="k1")


@checks.add
def expected_head(case: Case) -> None:
    """A commit with an expected head is refused when the session has another one, and nothing is stored."""
    store = case.store
    with raises(HeadMoved, "a head expected of a session that is not there"):
        store.commit("main", Commit((entry("one"),), expected_head=1))
    equal((store.thread_of("main"), store.threads()), (None, []), "what is there")
    equal(store.commit("main", Commit((entry("one"),), expected_head=0)).head, 1, "the head")
    equal(store.commit("main", Commit((entry("two"),), expected_head=1)).head, 2, "the head")
    for expected in (0, 1, 3):
        with raises(HeadMoved, f"head {expected} expected") as caught:
            store.commit("main", Commit((entry("three"),), expected_head=expected))
        conflict = (caught.error.session, caught.error.expected, caught.error.actual)
        equal(conflict, ("main", expected, 2), "what the error says")
    equal(texts(store, "main"), ["one", "two"], "what is stored")


@checks.add
def follows(case: Case) -> None:
    """A commit follows an entry that the session must have, by seq and hash; later appends do not matter."""
    store = case.store
    append(store, "main", "one")
    _, first = store.head(1)
    append(store, "main", "two")
    _, second = store.head(1)
    store.commit("main", Commit((entry("three"),), follows=(1, first)))
    store.commit("main", Commit((entry("four"),), follows=(0, store.thread(1).root_hash)))
    store.fork("main", "main", 1)
    for follow in ((2, second), (1, second), (2, first), (9, first), (0, first)):
        with raises(HeadMoved, f"following entry {follow[0]}, which is not there or another one"):
            store.commit("main", Commit((entry("no"),), follows=follow))
    with raises(HeadMoved, "following an entry of a session that is not there"):
        store.commit("new", Commit((entry("no"),), follows=(1, first)))
    store.commit("main", Commit((entry("other two"),), follows=(1, first)))
    equal(texts(store, "main"), ["one", "other two"], "what is stored")
    equal(store.thread_of("new"), None, "the session that was refused")


@checks.add
def expected_mark(case: Case) -> None:
    """A compaction is superseded by another checkpoint that came after its plan, and by no append."""
    store = case.store
    put(store, "main", entry("one"), entry("two"))
    store.commit("main", Commit((compaction(1, 1, 2),), expected_checkpoint=0))
    append(store, "main", "meanwhile")
    store.commit("main", Commit((compaction(1, 3, 4),), expected_checkpoint=3))
    for other in (mark("undone", of=5), mark("pin", seq=1, ord=0), mark("clear")):
        newest = store.checkpoints(1)[0].seq
        put(store, "main", other)
        with raises(CompactionSuperseded, f"a plan from before a mark of kind {other.kind}"):
            store.commit("main", Commit((entry("no"), compaction(1, 1, 2)), expected_checkpoint=newest))
    with raises(CompactionSuperseded, "a plan from before all marks"):
        store.commit("main", Commit((entry("no"),), expected_checkpoint=0))
    equal(texts(store, "main"), ["one", "two", "meanwhile"], "what is stored")


@checks.add
def inherited_mark(case: Case) -> None:
    """The newest checkpoint of a fork is the one before its fork point."""
    put(case.store, "main", entry("one"), compaction(1, 1, 2), entry("two"), mark("clear"))
    case.store.fork("branch", "main", 3)
    case.store.commit("branch", Commit((entry("three"),), expected_checkpoint=2))
    with raises(CompactionSuperseded, "a mark that came after the fork point"):
        case.store.commit("branch", Commit((entry("four"),), expected_checkpoint=4))


@checks.add
def whole_or_absent(case: Case) -> None:
    """A commit whose second entry is refused leaves nothing behind: no entry, key, image, session or thread."""
    store = case.store
    append(store, "main", "one", key="used")
    before = list(store.dump())
    good = entry(Message("user", (Image("image/png", data="QUJD"),)), keys=("new",))
    bad: tuple[tuple[type[Exception], NewEntry], ...] = (
        (BadEntry, mark("pin", seq=9, ord=0)),
        (BadEntry, mark("undone", of=1)),
        (BadEntry, compaction(3, 1, 1)),
        (BadEntry, mark("lost")),
        (IdempotencyConflict, entry("other", keys=("new",))),
    )
    for session in ("main", "new session"):
        for kind, wrong in bad:
            with raises(kind, f"a commit with {wrong.kind} {wrong.body}"):
                store.commit(session, Commit((good, wrong), cut("v", 1, 0), manifest("v", 1)))
            equal(list(store.dump()), before, f"what is stored after a refused commit to {session}")
    equal(append(store, "after", "it").thread, 2, "the number of the next thread")


@checks.add
def nothing_added(case: Case) -> None:
    """A commit that adds nothing stores no cut and no manifest."""
    store = case.store
    append(store, "main", "one", key="k")
    store.commit("main", Commit((entry("one", keys=("k",)),), cut("v", 1, 1), manifest("v", 1)))
    store.commit("main", Commit((), cut("v", 1, 1), manifest("v", 1)))
    thread = thread_of(store, "main")
    equal((store.last_cut(thread, "v"), store.assemblies(thread)), (None, []), "cut and manifests")


@checks.add
def lost_is_not_appended(case: Case) -> None:
    """An entry of kind `lost` cannot be appended."""
    attempts: tuple[Callable[[], object], ...] = (
        lambda: put(case.store, "main", mark("lost")),
        lambda: put(case.store, "main", NewEntry("lost", with_sizes("text"))),
    )
    for attempt in attempts:
        with raises(BadEntry, "appending a lost entry"):
            attempt()
    equal(case.store.threads(), [], "the threads")


CHECKS = checks.failures
