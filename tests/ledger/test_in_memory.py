"""`SqliteLedger` in memory: clocks, snapshots, failed loads and erasures, and laws that hold after any calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nexus.errors import LedgerDamaged, LedgerError
from nexus.ledger.records import DecisionRecord, EntryRecord
from nexus.ledger.sessions import Alias, NewRefUpdate, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import append, compaction, entry, mark, put, texts
from nexus.types.ledger_entries import AssemblyRow, Commit, Cut, MessageRef, NewEntry


def test_it_is_a_store_in_memory_of_one_tenant() -> None:
    ledger = SqliteLedger(":memory:", tenant="me")
    store: LedgerStore = ledger
    assert (store.location, store.tenant) == (":memory:", "me")


def test_times_are_those_of_the_machine_unless_a_clock_is_given() -> None:
    assert append(SqliteLedger(), "main", "one").head == 1
    ticking = SqliteLedger(clock_ms=lambda: 100)
    append(ticking, "main", "one")
    now = ticking.session("main")
    assert now is not None and now.at_ms == 100
    ledger = SqliteLedger()
    append(ledger, "main", "one")
    assert next(ledger.entries(1)).at_ms > 1_700_000_000_000


def test_write_waits_for_a_snapshot_of_another_thread() -> None:
    ledger = SqliteLedger()
    append(ledger, "main", "one")
    writer = threading.Thread(target=append, args=(ledger, "main", "two"))
    with ledger.snapshot(), ledger.snapshot():
        writer.start()
        writer.join(0.05)
        assert writer.is_alive()
        assert texts(ledger, "main") == ["one"]
    writer.join()
    assert texts(ledger, "main") == ["one", "two"]


def test_changing_returned_values_does_not_change_the_ledger() -> None:
    ledger = SqliteLedger()
    body: dict[str, Any] = {"list": [1]}
    put(ledger, "main", NewEntry(body=body), entry("one"))
    body["list"].append(2)
    next(ledger.entries(1)).body["list"].append(3)
    assert next(ledger.entries(1)).body == {"list": [1]}
    ledger.threads().clear()
    ledger.path(1).clear()
    ledger.ref_updates("main").clear()
    assert (len(ledger.threads()), len(ledger.path(1)), len(ledger.ref_updates("main"))) == (1, 1, 1)


def test_damaged_decisions_and_manifests_are_not_served_either() -> None:
    source = SqliteLedger()
    commit = Commit((entry("one"),), Cut("v", 1, 0, MessageRef(1, 0), "m", 1, 1, 1), AssemblyRow("v", {"a": 1}, 1))
    source.commit("main", commit)
    target = SqliteLedger()
    target.load(_tampered(source))
    with pytest.raises(LedgerDamaged, match="view decision 1 of thread 1"):
        target.last_cut(1, "v")
    with pytest.raises(LedgerDamaged, match="manifest 1 of thread 1"):
        target.last_assembly(1, "v")
    assert texts(target, "main") == ["one"]


def _tampered(ledger: SqliteLedger) -> list[Any]:
    from msgspec.structs import replace

    return [
        record
        if not hasattr(record, "view")
        else replace(record, body=record.body + " ")
        if isinstance(record, DecisionRecord)
        else replace(record, manifest='{"a":2}')
        for record in ledger.dump()
    ]


def test_a_failed_load_or_deletion_leaves_every_list_as_it_was() -> None:
    ledger, other = SqliteLedger(), SqliteLedger()
    append(ledger, "main", "one", key="k")
    put(other, "main", entry("one", keys=("k",)), entry("two"))
    before = (list(ledger.dump()), ledger.threads())
    cut_off = [record for record in other.dump() if not (isinstance(record, EntryRecord) and record.seq == 2)]
    for attempt in (lambda: ledger.load(cut_off), lambda: ledger.erase([1]), lambda: ledger.erase([2])):
        with pytest.raises(LedgerError):
            attempt()
        assert (list(ledger.dump()), ledger.threads()) == before


# ------------------------------------------------------------------------------------------------ laws

LABELS = st.sampled_from(["a", "b", "c"])


class AnyCalls(RuleBasedStateMachine):
    """Any calls in any order, refused ones included; after each the laws of the ledger hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.ledger = SqliteLedger(clock_ms=self.clock)

    def clock(self) -> int:
        self.now += 1
        return self.now

    def attempt(self, *entries: NewEntry, session: str) -> None:
        before = list(self.ledger.dump())
        try:
            put(self.ledger, session, *entries)
        except LedgerError:
            assert list(self.ledger.dump()) == before

    @rule(session=LABELS, text=st.text(max_size=3), key=st.sampled_from(["", "k1", "k2"]))
    def says(self, session: str, text: str, key: str) -> None:
        self.attempt(entry(text, keys=(key,) if key else ()), session=session)

    @rule(session=LABELS, kind=st.sampled_from(["completed", "failed", "clear"]))
    def closes(self, session: str, kind: Any) -> None:
        self.attempt(mark(kind), session=session)

    @rule(session=LABELS, seq=st.integers(0, 9), kind=st.sampled_from(["pin", "unpin", "undone"]))
    def marks(self, session: str, seq: int, kind: Any) -> None:
        self.attempt(entry("before"), mark(kind, of=seq, seq=seq, ord=0), session=session)

    @rule(session=LABELS, places=st.tuples(*[st.integers(0, 9)] * 3))
    def compacts(self, session: str, places: tuple[int, int, int]) -> None:
        self.attempt(compaction(*places), session=session)

    @rule(session=LABELS, source=LABELS, at_seq=st.integers(-1, 9))
    def forks(self, session: str, source: str, at_seq: int) -> None:
        before = list(self.ledger.dump())
        try:
            self.ledger.fork(session, source, at_seq)
        except LedgerError:
            assert list(self.ledger.dump()) == before

    @rule(label=LABELS, thread=st.one_of(st.none(), st.integers(1, 4)), parent=st.sampled_from(["", "a", "b"]))
    def moves(self, label: str, thread: int | None, parent: str) -> None:
        before = list(self.ledger.dump())
        try:
            self.ledger.update_refs([NewRefUpdate(label, thread, "moved", SessionMetadata(parent_session=parent))])
        except LedgerError:
            assert list(self.ledger.dump()) == before

    @rule(name=st.sampled_from(["a", "b", "x", "y"]), to=st.sampled_from(["a", "b", "x", "y", None]))
    def names(self, name: str, to: str | None) -> None:
        before = list(self.ledger.dump())
        try:
            self.ledger.update_refs([], [Alias(name, to, "named")])
        except LedgerError:
            assert list(self.ledger.dump()) == before

    @rule(threads=st.lists(st.integers(1, 5), max_size=3), labels=st.lists(LABELS, max_size=3))
    def erases(self, threads: list[int], labels: list[str]) -> None:
        before = list(self.ledger.dump())
        try:
            self.ledger.erase(threads, labels)
        except LedgerError:
            assert list(self.ledger.dump()) == before

    @invariant()
    def every_path_reads_without_gaps_and_agrees_with_its_row(self) -> None:
        for row in self.ledger.threads():
            if row.erased:
                continue
            read = list(self.ledger.entries(row.id))
            assert [one.seq for one in read] == list(range(1, row.head_seq + 1))
            assert (read[-1].hash if read else row.root_hash) == row.head_hash
            assert self.ledger.checkpoints(row.id) == [
                one for one in reversed(read) if one.kind not in ("messages", "completed", "failed")
            ]
            assert row.turn == (read[-1].turn if read else 0)

    @invariant()
    def its_records_make_the_same_ledger_again(self) -> None:
        again = SqliteLedger(clock_ms=self.clock)
        records = list(self.ledger.dump())
        again.load(records)
        assert list(again.dump()) == records
        assert again.threads() == self.ledger.threads()
        assert again.sessions(every=True) == self.ledger.sessions(every=True)


TestAnyCalls = AnyCalls.TestCase
TestAnyCalls.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(codec=None), max_size=8), max_size=6))
def test_any_text_comes_back_as_it_was(said: list[str]) -> None:
    ledger = SqliteLedger()
    put(ledger, "main", entry(*said))
    assert texts(ledger, "main") == said
