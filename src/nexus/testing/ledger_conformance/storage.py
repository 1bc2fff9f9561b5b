"""Checks of `dump`, `load` and `erase`: the same records from every store, taken or deleted as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from nexus.errors import BadReference, LedgerDamaged, LedgerError, NoSuchSession
from nexus.ledger.records import (
    AliasRecord,
    AssemblyRecord,
    BlobRecord,
    CalibrationRecord,
    DecisionRecord,
    EntryRecord,
    Header,
    MoveRecord,
    Record,
    ThreadRecord,
)
from nexus.ledger.sessions import Alias, EraseResult, NewRefUpdate, Query, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import (
    HOSTILE,
    LedgerCase,
    append,
    compaction,
    cut,
    entry,
    equal,
    holds,
    manifest,
    mark,
    put,
    raises,
    read_messages,
    texts,
)
from nexus.types.ledger_entries import Commit, StoredCalibration
from nexus.types.message import Image, Message, ToolCall, assistant

# dump and load --------------------------------------------------------------------------------------------------------


def fill(store: LedgerStore) -> None:
    """Write something of every kind, in an order in which nothing is sorted."""
    image = Message("user", (Image("image/png", data="QUJD"),))
    call = assistant("", ToolCall("c", "spawn", HOSTILE), id=HOSTILE)
    put(store, "z", entry("one", image, keys=("k2", HOSTILE, "k1")), entry(call, starts_turn=False))
    put(store, "z", compaction(1, 1, 2), mark("undone", of=3), mark("pin", seq=1, ord=0))
    store.fork(
        "a", "z", 2, reason=HOSTILE, metadata=SessionMetadata(title=HOSTILE, parent_session="z", parent_call_id="c")
    )
    for view, number, at_seq in (("w", 1, 2), ("v", 1, 2), ("w", 2, 4), (HOSTILE, 1, 5)):
        new = entry(f"after {at_seq}", Message("tool", (Image("image/gif", data=view),)))
        store.commit("a", Commit((new,), cut(view, number, at_seq), manifest(view, number)))
    append(store, "gone", "secret")
    store.erase([3], ["gone"])
    store.fork("z", "a", 4)
    put(store, "z", entry("on", at_ms=5), mark("completed"))
    store.update_refs(
        [NewRefUpdate("b", 1, "kept"), NewRefUpdate("b", None, "retired")],
        [Alias("y", "a", "one"), Alias("x", "z", "two")],
    )
    store.update_refs([], [Alias("y", None, HOSTILE)])
    for provider, model, factor in (("p", "z", 60), ("p", "a", 61), ("o", "z", 62), ("p", "z", 63)):
        store.calibrate(provider, model, StoredCalibration(factor, 3, 4 if factor == 61 else 0))


def filled(case: LedgerCase) -> tuple[LedgerStore, list[Record]]:
    """Return a ledger in memory on the case's clock with something of every kind, and its records."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    fill(source)
    return source, list(source.dump())


def check_order_of_records(case: LedgerCase) -> None:
    """Records come in their fixed order: images, threads each with what is theirs, moves, aliases, calibrations."""
    fill(case.store)
    records = list(case.store.dump())
    equal(records[0], Header(tenant="local"), "the first record")
    keys = [_key(record) for record in records[1:]]
    equal(keys, sorted(keys), "the order")
    kinds = {type(record) for record in records}
    equal(len(kinds), 9, "how many kinds of records there are")
    equal(len(set(keys)), len(keys), "how many records have a place of their own")
    names = [[key.key for key in record.keys] for record in records if isinstance(record, EntryRecord)]
    equal(names, [sorted(keys_of_entry) for keys_of_entry in names], "the order of an entry's keys")


def _key(record: Record) -> tuple[int | str, ...]:
    """Return a record's sort key in the order of a dump."""
    if isinstance(record, BlobRecord):
        return (1, record.sha256)
    if isinstance(record, ThreadRecord):
        return (2, record.id, 0)
    if isinstance(record, EntryRecord):
        return (2, record.thread, 1, record.seq)
    if isinstance(record, DecisionRecord):
        return (2, record.thread, 2, record.view, record.number)
    if isinstance(record, AssemblyRecord):
        return (2, record.thread, 3, record.view, record.seq)
    if isinstance(record, MoveRecord):
        return (3, record.label, record.number)
    if isinstance(record, AliasRecord):
        return (4, record.name, record.number)
    if isinstance(record, CalibrationRecord):
        return (5, record.provider, record.model, record.number)
    return (0,)


def check_same_records(case: LedgerCase) -> None:
    """The same calls by the same clock give the same records as `SqliteLedger` in memory."""
    fill(case.store)
    _, wanted = filled(case)
    _same(list(case.store.dump()), wanted)


def _same(actual: Sequence[Record], wanted: Sequence[Record]) -> None:
    for number, (record, other) in enumerate(zip(actual, wanted, strict=False)):
        equal(record, other, f"record {number}")
    equal(len(actual), len(wanted), "the number of records")


def check_there_and_back(case: LedgerCase) -> None:
    """Records that are loaded into an empty ledger give the same records, and the same reads, again."""
    source, records = filled(case)
    store = case.store
    equal(store.load(records), len(records) - 1, "how many records were new")
    _same(list(store.dump()), records)
    equal(store.threads(), source.threads(), "the threads")
    equal(store.sessions(every=True), source.sessions(every=True), "the sessions")
    for row in source.threads():
        if not row.erased:
            equal(list(store.entries(row.id)), list(source.entries(row.id)), f"the entries of thread {row.id}")
            equal(store.checkpoints(row.id), source.checkpoints(row.id), f"the marks of thread {row.id}")
            equal(store.assemblies(row.id), source.assemblies(row.id), f"the manifests of thread {row.id}")
            for view in ("v", "w", HOSTILE):
                equal(store.last_cut(row.id, view), source.last_cut(row.id, view), f"the cut of {row.id}, {view}")
    equal((store.aliases(every=True), store.resolve("x")), (source.aliases(every=True), "z"), "the aliases")
    equal(store.calibration("p", "z"), source.calibration("p", "z"), "a calibration")
    equal(store.known_keys("b"), source.known_keys("b"), "the keys of a session")
    query = Query("after", order="newest")
    equal([hit.text for hit in store.search(query)], [hit.text for hit in source.search(query)], "what a search finds")
    for ledger in (store, source):
        put(ledger, "a", entry("goes on", keys=("new",)))
        put(ledger, "b", entry("anew"))
        ledger.update_refs([], [Alias("y", "a", "again")])
        ledger.calibrate("p", "z", StoredCalibration(64, 1))
    _same(list(store.dump()), list(source.dump()))


def check_loaded_twice(case: LedgerCase) -> None:
    """Loading existing records again adds nothing, also into a ledger that was continued since."""
    fill(case.store)
    records = list(case.store.dump())
    equal(case.store.load(records), 0, "how many records were new")
    append(case.store, "z", "later")
    store_later = list(case.store.dump())
    equal(case.store.load(records), 0, "how many of the older records were new")
    _same(list(case.store.dump()), store_later)


def check_loaded_later(case: LedgerCase) -> None:
    """A newer dump of the same ledger adds the new records only."""
    source, records = filled(case)
    case.store.load(records)
    append(source, "z", "later", key="k")
    append(source, "new", "one")
    source.fork("a", "z", 3)
    equal(case.store.load(source.dump()), 6, "how many records were new")
    _same(list(case.store.dump()), list(source.dump()))
    equal(append(case.store, "z", "later", key="k").added, 0, "entries added with a key that was loaded")


def check_conflicts(case: LedgerCase) -> None:
    """Records of another history at the same places are refused as a whole."""
    store = case.store
    put(store, "main", entry("one"), entry("two"))
    store.calibrate("p", "m", StoredCalibration(64, 1))
    store.update_refs([], [Alias("m", "main", "")])
    before = list(store.dump())
    for place in range(5):
        other = SqliteLedger(":memory:", clock_ms=case.clock)
        put(other, "first", entry("new")) if place == 0 else None
        put(other, "main", entry("one"), entry("other" if place == 1 else "two"))
        other.calibrate("p", "m", StoredCalibration(65 if place == 2 else 64, 1))
        other.update_refs(
            [NewRefUpdate("main", 1, "again")] if place == 3 else [], [Alias("m", "main", "x" if place == 4 else "")]
        )
        if place == 3:
            store.update_refs([NewRefUpdate("main", 1, "otherwise")])
            before = list(store.dump())
        append(other, "last", "new")
        with raises(LedgerError, f"loading history {place}", code="ledger_conflict"):
            store.load(other.dump())
        _same(list(store.dump()), before)


def check_torn_write_is_detected(case: LedgerCase) -> None:
    """Records that do not fit together are refused as a whole."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    put(source, "main", entry("one"), entry("two"), entry("three"))
    source.fork("branch", "main", 2)
    append(source, "branch", "four")
    source.fork("main", "main", 1)
    records = list(source.dump())
    at = {(record.thread, record.seq): n for n, record in enumerate(records) if isinstance(record, EntryRecord)}
    threads = {record.id: n for n, record in enumerate(records) if isinstance(record, ThreadRecord)}
    first_move = next(
        n for n, record in enumerate(records) if isinstance(record, MoveRecord) and record.label == "main"
    )
    missing = {
        "the first entry": at[1, 1],
        "an entry in the middle": at[1, 2],
        "the newest entry": at[1, 3],
        "the only entry of a fork": at[2, 3],
        "a fork's own row": threads[2],
        "the row of the first thread": threads[1],
        "the first of two moves": first_move,
    }
    for what, number in missing.items():
        with raises(BadReference, f"records without {what}"):
            case.store.load(records[:number] + records[number + 1 :])
        equal(list(case.store.dump()), [Header(tenant="local")], f"what is stored without {what}")
    alone = [record for record in records if not isinstance(record, (ThreadRecord, EntryRecord))]
    with raises(BadReference, "moves to threads that are not there"):
        case.store.load(alone)
    equal(case.store.load(records), len(records) - 1, "how many records were new when none is missing")


def check_damage(case: LedgerCase) -> None:
    """A record that does not match its hash is loaded as it is and never served."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    put(source, "main", entry("one"), entry("two"), entry("three"))
    put(source, "other", entry("fine"))
    tampered = [
        replace(record, messages=[(*row[:7], row[7].replace("two", "TWO"), *row[8:]) for row in record.messages])
        if isinstance(record, EntryRecord)
        else record
        for record in source.dump()
    ]
    case.store.load(tampered)
    with raises(LedgerDamaged, "reading a path with a tampered entry"):
        list(case.store.entries(1))
    with raises(LedgerDamaged, "finding a tampered message"):
        case.store.search(Query("two"))
    equal([stored.seq for stored in case.store.entries(1, 0, 1)], [1], "the entries before it")
    equal([stored.seq for stored in case.store.entries(1, 2, 3)], [3], "the entries after it")
    equal(texts(case.store, "other"), ["fine"], "another session")


def check_lost_entries(case: LedgerCase) -> None:
    """An entry that a repair found lost is loaded, keeps its place in the chain, and holds nothing."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    put(source, "main", entry("one"), entry("two", keys=("k",)), entry("three"))
    repaired = [
        replace(record, kind="lost", body="{}", messages=[], keys=[])
        if isinstance(record, EntryRecord) and record.seq == 2
        else record
        for record in source.dump()
    ]
    case.store.load(repaired)
    read = list(case.store.entries(1))
    actual = [(stored.seq, stored.kind, stored.turn, len(stored.rows)) for stored in read]
    equal(actual, [(1, "messages", 1, 1), (2, "lost", 2, 0), (3, "messages", 3, 1)], "the entries")
    equal([stored.hash for stored in read], [stored.hash for stored in source.entries(1)], "their chain values")
    equal(case.store.checkpoints(1), [], "the marks")
    equal(append(case.store, "main", "on").head, 4, "the head after it went on")
    _same([record for record in case.store.dump() if isinstance(record, EntryRecord)][:3], _entries(repaired))
    holds(case.store.holders("k") == [], "expected no holder of a lost entry's key, found one")


def _entries(records: Sequence[Record]) -> list[EntryRecord]:
    return [record for record in records if isinstance(record, EntryRecord)]


# erase ----------------------------------------------------------------------------------------------------------------


def check_erased_entries_stay_erased(case: LedgerCase) -> None:
    """Erased text is found nowhere; only a thread's number remains, marked as erased."""
    store = case.store
    append(store, "kept", "harmless")
    new = (entry("a secret", keys=("secret key",)), entry("another secret", "and more"))
    metadata = SessionMetadata(title="secret title")
    store.commit("secret label", Commit(new, cut("secret view", 1, 0), manifest("secret view", 1)), metadata)
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


def check_forks_depend(case: LedgerCase) -> None:
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
        with raises(LedgerError, f"deleting threads {threads} and labels {labels}", code="forks_depend"):
            store.erase(threads, labels)
    with raises(NoSuchSession, "deleting a thread that is not there"):
        store.erase([9], [])
    equal(list(store.dump()), before, "what is stored")
    equal(store.erase([2], ["branch", "second name"]).threads, (2,), "the threads deleted")
    equal(texts(store, "main"), ["one"], "the texts that the fork had shared")
    equal(store.erase([1], ["main"]).threads, (1,), "the threads deleted when no fork is left")
    equal(store.sessions(every=True), [], "the sessions")


def check_threads_in_use(case: LedgerCase) -> None:
    """Threads with an entry from after a time are not deleted if that time is named, nor anything with them."""
    store = case.store
    append(store, "old", "one")
    append(store, "used", "two")
    between_ms = case.clock.now_ms
    case.clock.now_ms += 1_000
    append(store, "used", "three")
    store.put_document("agent", "ann", {})
    before = list(store.dump())
    with raises(LedgerError, "deleting a thread in use", code="session_in_use"):
        store.erase([1, 2], ["old", "used"], documents=[("agent", "ann")], unused_since_ms=between_ms)
    equal(list(store.dump()), before, "what is stored")
    equal(store.erase([1], ["old"], unused_since_ms=between_ms, scrub=False).threads, (1,), "the threads deleted")
    equal(store.erase([2], ["used"], unused_since_ms=case.clock.now_ms).threads, (2,), "the threads deleted later")
    equal(store.erase([]).threads, (), "the threads deleted with nothing")


def check_fork_and_source_together(case: LedgerCase) -> None:
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


def check_images_in_use(case: LedgerCase) -> None:
    """An image goes with the last message that shows it."""
    store = case.store
    shared = Message("user", (Image("image/png", data="c2hhcmVk"),))
    own_message = Message("user", (Image("image/png", data="b3du"),))
    append(store, "main", shared)
    append(store, "other", shared, own_message)
    equal(store.erase([2], ["other"]).blobs, 1, "the images deleted with the first session")
    blobs = [record.data for record in store.dump() if isinstance(record, BlobRecord)]
    equal(blobs, [b"c2hhcmVk"], "the images left")
    equal(read_messages(store, "main"), [shared], "the message that shows it")
    equal(store.erase([1], ["main"]).blobs, 1, "the images deleted with the last session")
    equal([record for record in store.dump() if isinstance(record, BlobRecord)], [], "the images left")


def check_aliases_go_too(case: LedgerCase) -> None:
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


def check_everything(case: LedgerCase) -> None:
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
