"""Checks of commits: idempotency keys, expected heads, atomicity, tenants, snapshots, and several writers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from nexus.errors import (
    BadReference,
    CompactionSuperseded,
    HeadMoved,
    IdempotencyConflict,
    LedgerError,
    LedgerUnusable,
    NoSuchSession,
)
from nexus.ledger.records import Header
from nexus.ledger.sessions import Alias, NewRefUpdate, Query, SessionMetadata
from nexus.testing.ledger_conformance.harness import (
    START_MS,
    WAIT_SECONDS,
    LedgerCase,
    append,
    compaction,
    cut,
    entries,
    entry,
    equal,
    holds,
    manifest,
    mark,
    put,
    raises,
    texts,
    thread_of,
    together,
    with_sizes,
)
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, NewEntry, SizedMessage, StoredCalibration
from nexus.types.message import Image, Message, TokenSize, user

# conditions -----------------------------------------------------------------------------------------------------------


def check_same_payload(case: LedgerCase) -> None:
    """A key that comes again with the same payload adds nothing and reports the session's head."""
    append(case.store, "main", "one", key="k1")
    append(case.store, "main", "two")
    before = list(case.store.dump())
    for _ in range(10):
        case.clock.now_ms += 1
        equal(append(case.store, "main", "one", key="k1"), Committed(1, 2, 0, 2), "the commit that came again")
    equal(list(case.store.dump()), before, "what is stored")


def check_other_payload(case: LedgerCase) -> None:
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


def check_some_keys(case: LedgerCase) -> None:
    """Of an entry's several keys all must be known, or none."""
    put(case.store, "main", entry("one", keys=("a", "b")))
    equal(put(case.store, "main", entry("one", keys=("b",))).added, 0, "entries added when one of its keys comes again")
    equal(put(case.store, "main", entry("one", keys=("b", "a"))).added, 0, "entries added when both come again")
    with raises(IdempotencyConflict, "a known key beside a new one"):
        put(case.store, "main", entry("one", keys=("a", "c")))
    equal(case.store.known_keys("main"), {"a": 1, "b": 1}, "the known keys")


def check_key_twice_in_a_commit(case: LedgerCase) -> None:
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


def check_counts_are_no_payload(case: LedgerCase) -> None:
    """Other counts of the same messages make no other payload, and the first ones stay."""
    append(case.store, "main", "one", key="k")
    recounted = NewEntry(messages=(SizedMessage(user("one"), TokenSize(9, 9, 9)),), starts_turn=True, keys=("k",))
    equal(put(case.store, "main", recounted).added, 0, "entries added")
    equal(entries(case.store, "main")[0].rows[0].size, with_sizes("one")[0].size, "the counts")


def check_keys_of_threads(case: LedgerCase) -> None:
    """A key belongs to the thread that used it; a fork may use an inherited key again."""
    append(case.store, "main", "one", key="k")
    append(case.store, "main", "two", key="later")
    case.store.fork("branch", "main", 1)
    equal(case.store.known_keys("branch"), {"k": 1}, "the keys of a new fork: those from before its entry")
    equal(append(case.store, "branch", "other", key="k"), Committed(2, 2, 1, 2), "the same key on the fork")
    equal(case.store.known_keys("branch"), {"k": 2}, "the keys of the fork that used one again")
    append(case.store, "third", "else", key="k")
    equal(case.store.holders("k"), [(1, 1), (2, 2), (3, 1)], "the holders of the key")
    equal(case.store.holders("k", 2), [(1, 1), (2, 2)], "the holders of the key on the fork's path")
    equal(case.store.holders("later", 2), [], "the holders of a key of the source behind the fork")
    equal(case.store.known_keys("main"), {"k": 1, "later": 2}, "the keys of the source")
    equal(case.store.holders("unused"), [], "the holders of another key")


def check_retry_after_fork_and_rewind(case: LedgerCase) -> None:
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


def check_expected_head(case: LedgerCase) -> None:
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
        conflict = (caught[0].session, caught[0].expected, caught[0].actual)
        equal(conflict, ("main", expected, 2), "what the error says")
    equal(texts(store, "main"), ["one", "two"], "what is stored")


def check_follows(case: LedgerCase) -> None:
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


def check_expected_mark(case: LedgerCase) -> None:
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


def check_inherited_mark(case: LedgerCase) -> None:
    """The newest checkpoint of a fork is the one before its fork point."""
    put(case.store, "main", entry("one"), compaction(1, 1, 2), entry("two"), mark("clear"))
    case.store.fork("branch", "main", 3)
    case.store.commit("branch", Commit((entry("three"),), expected_checkpoint=2))
    with raises(CompactionSuperseded, "a mark that came after the fork point"):
        case.store.commit("branch", Commit((entry("four"),), expected_checkpoint=4))


def check_whole_or_absent(case: LedgerCase) -> None:
    """A commit whose second entry is refused leaves nothing behind: no entry, key, image, session or thread."""
    store = case.store
    append(store, "main", "one", key="used")
    before = list(store.dump())
    good = entry(Message("user", (Image("image/png", data="QUJD"),)), keys=("new",))
    bad: tuple[tuple[type[LedgerError], str, NewEntry], ...] = (
        (BadReference, "bad_entry", mark("pin", seq=9, ord=0)),
        (BadReference, "bad_entry", mark("undone", of=1)),
        (BadReference, "bad_entry", compaction(3, 1, 1)),
        (BadReference, "bad_entry", mark("lost")),
        (IdempotencyConflict, IdempotencyConflict.code, entry("other", keys=("new",))),
    )
    for session in ("main", "new session"):
        for kind, code, wrong in bad:
            with raises(kind, f"a commit with {wrong.kind} {wrong.body}", code=code):
                store.commit(session, Commit((good, wrong), cut("v", 1, 0), manifest("v", 1)))
            equal(list(store.dump()), before, f"what is stored after a refused commit to {session}")
    equal(append(store, "after", "it").thread, 2, "the number of the next thread")


def check_nothing_added(case: LedgerCase) -> None:
    """A commit that adds nothing stores no cut and no manifest."""
    store = case.store
    append(store, "main", "one", key="k")
    store.commit("main", Commit((entry("one", keys=("k",)),), cut("v", 1, 1), manifest("v", 1)))
    store.commit("main", Commit((), cut("v", 1, 1), manifest("v", 1)))
    thread = thread_of(store, "main")
    equal((store.last_cut(thread, "v"), store.assemblies(thread)), (None, []), "cut and manifests")


def check_lost_is_not_appended(case: LedgerCase) -> None:
    """An entry of kind `lost` cannot be appended."""
    attempts: tuple[Callable[[], object], ...] = (
        lambda: put(case.store, "main", mark("lost")),
        lambda: put(case.store, "main", NewEntry("lost", with_sizes("text"))),
    )
    for attempt in attempts:
        with raises(BadReference, "appending a lost entry", code="bad_entry"):
            attempt()
    equal(case.store.threads(), [], "the threads")


# tenants and several stores -------------------------------------------------------------------------------------------


def check_tenants(case: LedgerCase) -> None:
    """No tenant sees another one's rows, by no method, and equal names and keys do not meet."""
    other = case.open("other")
    new = (entry("word", Message("user", (Image("image/png", data="QUJD"),)), keys=("k",)), compaction(1, 1, 2))
    for store in (case.store, case.open("third")):
        store.commit("main", Commit(new, cut("v", 1, 0), manifest("v", 1)))
        store.fork("branch", "main", 1)
        store.update_refs([], [Alias("m", "main", "")])
        store.calibrate("p", "m", StoredCalibration(64, 1))
    nothing: tuple[tuple[str, object, object], ...] = (
        ("resolve", (other.resolve("main"), other.resolve("m")), (None, None)),
        ("thread_of", other.thread_of("main"), None),
        ("session", other.session("main"), None),
        ("sessions", other.sessions(every=True), []),
        ("moves", other.ref_updates("main"), []),
        ("aliases", other.aliases(every=True), []),
        ("threads", other.threads(), []),
        ("known_keys", other.known_keys("main"), {}),
        ("holders", other.holders("k"), []),
        ("search", other.search(Query("word")), []),
        ("calibration", other.calibration("p", "m"), None),
        ("calibrations", other.calibrations(), []),
        ("dump", list(other.dump()), [Header(tenant="other")]),
    )
    for method, actual, wanted in nothing:
        equal(actual, wanted, f"what {method} gives a tenant that has nothing")
    reads: tuple[Callable[[int], object], ...] = (
        other.thread,
        other.head,
        other.path,
        lambda thread: list(other.entries(thread)),
    )
    for read in reads:
        with raises(NoSuchSession, "reading another tenant's thread"):
            read(1)
    with raises(NoSuchSession, "forking another tenant's session"):
        other.fork("mine", "main", 1)
    with raises(BadReference, "a parent in another tenant"):
        put(other, "sub", entry("one"), metadata=SessionMetadata(parent_session="main"))
    equal(append(other, "main", "mine", key="k"), Committed(1, 1, 1, 1), "the tenant's own first commit")
    with raises(BadReference, "a move to another tenant's thread"):
        other.update_refs([NewRefUpdate("main", 2, "no")])
    equal((texts(other, "main"), texts(case.store, "main")), (["mine"], ["word", ""]), "the texts of both")
    holds(other.head(1)[1] != case.store.head(1)[1], "expected chain values that differ by tenant, found the same")


def check_two_stores(case: LedgerCase) -> None:
    """Two stores on the same storage see each other's writes at once."""
    other = case.open()
    for number in range(5):
        writer, reader = (case.store, other) if number % 2 else (other, case.store)
        append(writer, "main", f"{number}")
        equal(texts(reader, "main")[-1:], [f"{number}"], "the newest text in the other store")
    other.fork("main", "main", 2)
    equal(texts(case.store, "main"), ["0", "1"], "the texts after the other store rewound")
    equal((case.store.location, case.store.tenant), (other.location, "local"), "place and tenant")


def check_snapshots(case: LedgerCase) -> None:
    """Inside a snapshot all reads see one state, whatever another thread writes; after it they see the new one."""
    store = case.store
    append(store, "main", "one")
    written = threading.Event()

    def write() -> None:
        append(store, "main", "two")
        append(store, "other", "word")
        written.set()

    writer = threading.Thread(target=write, daemon=True)
    with store.snapshot():
        before = (store.head(1), entries(store, "main"), store.sessions(), list(store.dump()))
        writer.start()
        written.wait(0.1)
        after = (store.head(1), entries(store, "main"), store.sessions(), list(store.dump()))
        equal(after, before, "what is read inside the snapshot")
        equal((store.thread_of("other"), store.search(Query("word"))), (None, []), "what came after it began")
    holds(
        written.wait(WAIT_SECONDS), "expected the other thread's writes to end after the snapshot, found them waiting"
    )
    writer.join(WAIT_SECONDS)
    equal((texts(store, "main"), texts(store, "other")), (["one", "two"], ["word"]), "what is read after it")


def check_many_threads(case: LedgerCase) -> None:
    """Eight threads that append 50 times each to one session lose nothing, and the numbers have no gaps."""
    stores = (case.store, case.open())

    def write(worker: int) -> Callable[[], object]:
        return lambda: [append(stores[worker % 2], "main", f"{worker}/{number}") for number in range(50)]

    for result in together(*(write(worker) for worker in range(8))):
        holds(not isinstance(result, Exception), f"expected no error, found {result!r}")
    stored_texts = texts(case.store, "main")
    equal(
        sorted(stored_texts), sorted(f"{worker}/{number}" for worker in range(8) for number in range(50)), "the texts"
    )
    equal([stored.seq for stored in entries(case.store, "main")], list(range(1, 401)), "the numbers")
    equal([stored.turn for stored in entries(case.store, "main")], list(range(1, 401)), "the turns")
    for worker in range(8):
        thread_texts = [text for text in stored_texts if text.startswith(f"{worker}/")]
        equal(
            thread_texts, [f"{worker}/{number}" for number in range(50)], f"the order of what thread {worker} appended"
        )


def check_same_key_at_once(case: LedgerCase) -> None:
    """Of eight threads that append under one key, one adds the entry, and all get its position."""
    results = together(*[lambda: append(case.store, "main", "one", key="k")] * 8)
    added = sorted(result.added if isinstance(result, Committed) else -1 for result in results)
    equal(added, [0, 0, 0, 0, 0, 0, 0, 1], "how many entries each added")
    equal((texts(case.store, "main"), len(case.store.threads())), (["one"], 1), "what is stored")


def check_one_head_at_once(case: LedgerCase) -> None:
    """Of eight threads that expect the same head, one is stored and seven are told that it moved."""
    append(case.store, "main", "one")

    def write(worker: int) -> Callable[[], object]:
        return lambda: case.store.commit("main", Commit((entry(f"{worker}"),), expected_head=1))

    results = together(*(write(worker) for worker in range(8)))
    equal(sum(isinstance(result, Committed) for result in results), 1, "how many were stored")
    equal(sum(isinstance(result, HeadMoved) for result in results), 7, "how many were told that the head moved")
    equal(case.store.head(1)[0], 2, "the head")


def check_calibrations(case: LedgerCase) -> None:
    """The newest calibration of a provider and model is what holds."""
    store = case.store
    store.calibrate("p", "m", StoredCalibration(60, 1, 9))
    store.calibrate("p", "m", StoredCalibration(70, 2))
    store.calibrate("p", "other", StoredCalibration(80, 3))
    store.calibrate("q\x00\ud800", "m", StoredCalibration(90, 4))
    actual = [store.calibration(*name) for name in (("p", "m"), ("p", "other"), ("q\x00\ud800", "m"), ("q", "m"))]
    wanted = [
        StoredCalibration(70, 2, START_MS),
        StoredCalibration(80, 3, START_MS),
        StoredCalibration(90, 4, START_MS),
        None,
    ]
    equal(actual, wanted, "the calibrations")
    names = [("p", "m"), ("p", "other"), ("q\x00\ud800", "m")]
    listed = [(*name, calibration) for name, calibration in zip(names, wanted, strict=False)]
    equal(store.calibrations(), listed, "the list of calibrations")


def check_closed(case: LedgerCase) -> None:
    """Every call on a closed store raises LedgerUnusable; closing it again does nothing."""
    store = case.open()
    append(store, "main", "one")
    store.close()
    calls: dict[str, Callable[[], object]] = {
        "resolve": lambda: store.resolve("main"),
        "thread_of": lambda: store.thread_of("main"),
        "session": lambda: store.session("main"),
        "sessions": store.sessions,
        "moves": lambda: store.ref_updates("main"),
        "move": lambda: store.update_refs([NewRefUpdate("main", 1, "no")]),
        "aliases": store.aliases,
        "commit": lambda: append(store, "main", "two"),
        "fork": lambda: store.fork("branch", "main", 1),
        "calibrate": lambda: store.calibrate("p", "m", StoredCalibration(64, 1)),
        "erase": lambda: store.erase([1], ["main"]),
        "thread": lambda: store.thread(1),
        "threads": store.threads,
        "path": lambda: store.path(1),
        "head": lambda: store.head(1),
        "entries": lambda: list(store.entries(1)),
        "marks": lambda: store.checkpoints(1),
        "instructions": lambda: store.instructions(1),
        "last_cut": lambda: store.last_cut(1, "v"),
        "cuts": lambda: store.cuts(1, "v"),
        "blob": lambda: store.blob("0" * 64),
        "last_assembly": lambda: store.last_assembly(1, "v"),
        "assemblies": lambda: store.assemblies(1),
        "known_keys": lambda: store.known_keys("main"),
        "holders": lambda: store.holders("k"),
        "search": lambda: store.search(Query("one")),
        "calibration": lambda: store.calibration("p", "m"),
        "calibrations": store.calibrations,
        "dump": lambda: list(store.dump()),
        "load": lambda: store.load([Header()]),
    }
    for method, call in calls.items():
        with raises(LedgerUnusable, f"{method} on a closed store", code="ledger_closed"):
            call()
    with raises(LedgerUnusable, "a snapshot of a closed store", code="ledger_closed"), store.snapshot():
        store.head(1)
    store.close()
    holds(bool(store.location) and store.tenant == "local", "expected place and tenant of a closed store, found none")
    equal(texts(case.store, "main"), ["one"], "what another store on the same storage reads")


def check_opened_again(case: LedgerCase) -> None:
    """Everything written is intact after closing and opening again; a store that is not durable may lose all of it."""
    append(case.store, "main", "one", key="k")
    case.store.fork("branch", "main", 1)
    case.store.update_refs([], [Alias("m", "main", "")])
    before = list(case.store.dump())
    case.close()
    reopened = case.open()
    actual = list(reopened.dump())
    if case.backend.durable:
        wanted = (before,)
    else:
        wanted = (before, [Header(tenant="local")])
    holds(actual in wanted, f"expected one of {wanted}, found {actual}")
    if actual == before:
        equal(
            (texts(reopened, "m"), append(reopened, "main", "one", key="k").added),
            (["one"], 0),
            "texts, and entries added",
        )


def check_base(case: LedgerCase) -> None:
    """A commit with a base makes a session that continues it, and is refused if the session is there."""
    store = case.store
    append(store, "main", "one")
    append(store, "main", "two")
    thread = thread_of(store, "main")
    put_from = Commit((entry("three"),), base=(thread, 1))
    equal(store.commit("branch", put_from).head, 2, "the head of the new session")
    equal(texts(store, "branch"), ["one", "three"], "its messages")
    equal(store.commit("fresh", Commit((entry("zero"),), base=(0, 0))).head, 1, "the head of a session of its own")
    before = list(store.dump())
    for session in ("main", "branch", "fresh"):
        with raises(HeadMoved, "a base for a session that is there", code="session_moved"):
            store.commit(session, put_from)
    with raises(BadReference, "a base behind the thread's end"):
        store.commit("late", Commit((entry("x"),), base=(thread, 3)))
    equal(list(store.dump()), before, "what is stored after refusals")


def check_manifest_of_a_later_entry(case: LedgerCase) -> None:
    """A manifest is stored at the entry that the commit names, with the hash of a head that the commit stores."""
    store = case.store
    row = AssemblyRow("v", {"head": 2, "head_hash": ""}, 7)
    committed = store.commit("main", Commit((entry("one"), entry("two"), entry("three")), assembly=row, assembly_at=2))
    (stored,) = store.assemblies(committed.thread)
    equal(stored.seq, 3, "the manifest's entry")
    second = next(iter(store.entries(committed.thread, 1, 2)))
    equal(stored.manifest["head_hash"], second.hash.hex(), "the hash of its head")
