"""Checks of tenants, threads and snapshots, and of stores that are closed and opened again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nexus.errors import BadReference, HeadMoved, LedgerClosed, NoSuchSession
from nexus.ledger.records import Header
from nexus.ledger.sessions import Alias, NewRefUpdate, Query, SessionMetadata
from nexus.testing.ledger_conformance.expecting import equal, holds, raises
from nexus.testing.ledger_conformance.making import (
    WAIT_SECONDS,
    append,
    compaction,
    cut,
    entries,
    entry,
    manifest,
    put,
    texts,
    together,
)
from nexus.testing.ledger_conformance.running import START_MS, Case, Checks
from nexus.types.ledger_entries import Commit, Committed, StoredCalibration
from nexus.types.message import Image, Message

checks = Checks()


@checks.add
def tenants(case: Case) -> None:
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
        put(other, "sub", entry("one"), facts=SessionMetadata(parent_session="main"))
    equal(append(other, "main", "mine", key="k"), Committed(1, 1, 1, 1), "the tenant's own first commit")
    with raises(BadReference, "a move to another tenant's thread"):
        other.update_refs([NewRefUpdate("main", 2, "no")])
    equal((texts(other, "main"), texts(case.store, "main")), (["mine"], ["word", ""]), "the texts of both")
    holds(other.head(1)[1] != case.store.head(1)[1], "expected chain values that differ by tenant, found the same")


@checks.add
def two_stores(case: Case) -> None:
    """Two stores on the same storage see each other's writes at once."""
    other = case.open()
    for number in range(5):
        writer, reader = (case.store, other) if number % 2 else (other, case.store)
        append(writer, "main", f"{number}")
        equal(texts(reader, "main")[-1:], [f"{number}"], "the newest text in the other store")
    other.fork("main", "main", 2)
    equal(texts(case.store, "main"), ["0", "1"], "the texts after the other store rewound")
    equal((case.store.location, case.store.tenant), (other.location, "local"), "place and tenant")


@checks.add
def snapshots(case: Case) -> None:
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


@checks.add
def many_threads(case: Case) -> None:
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


@checks.add
def same_key_at_once(case: Case) -> None:
    """Of eight threads that append under one key, one adds the entry, and all get its position."""
    results = together(*[lambda: append(case.store, "main", "one", key="k")] * 8)
    added = sorted(result.added if isinstance(result, Committed) else -1 for result in results)
    equal(added, [0, 0, 0, 0, 0, 0, 0, 1], "how many entries each added")
    equal((texts(case.store, "main"), len(case.store.threads())), (["one"], 1), "what is stored")


@checks.add
def one_head_at_once(case: Case) -> None:
    """Of eight threads that expect the same head, one is stored and seven are told that it moved."""
    append(case.store, "main", "one")

    def write(worker: int) -> Callable[[], object]:
        return lambda: case.store.commit("main", Commit((entry(f"{worker}"),), expected_head=1))

    results = together(*(write(worker) for worker in range(8)))
    equal(sum(isinstance(result, Committed) for result in results), 1, "how many were stored")
    equal(sum(isinstance(result, HeadMoved) for result in results), 7, "how many were told that the head moved")
    equal(case.store.head(1)[0], 2, "the head")


@checks.add
def calibrations(case: Case) -> None:
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


@checks.add
def closed(case: Case) -> None:
    """Every call on a closed store raises LedgerClosed; closing it again does nothing."""
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
        with raises(LedgerClosed, f"{method} on a closed store"):
            call()
    with raises(LedgerClosed, "a snapshot of a closed store"), store.snapshot():
        store.head(1)
    store.close()
    holds(bool(store.location) and store.tenant == "local", "expected place and tenant of a closed store, found none")
    equal(texts(case.store, "main"), ["one"], "what another store on the same storage reads")


@checks.add
def opened_again(case: Case) -> None:
    """Everything written is intact after closing and opening again; a store that is not durable may lose all of it."""
    append(case.store, "main", "one", key="k")
    case.store.fork("branch", "main", 1)
    case.store.update_refs([], [Alias("m", "main", "")])
    before = list(case.store.dump())
    case.close()
    reopened = case.open()
    actual = list(reopened.dump())
    wanted = (before,) if case.backend.durable else (before, [Header(tenant="local")])
    holds(actual in wanted, f"expected one of {wanted}, found {actual}")
    if actual == before:
        equal(
            (texts(reopened, "m"), append(reopened, "main", "one", key="k").added),
            (["one"], 0),
            "texts, and entries added",
        )


CHECKS = checks.failures
