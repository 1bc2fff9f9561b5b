"""The asynchronous face: tasks at once, writes that go on when nobody waits, reads that no write holds up."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from nexus.errors import HeadMoved, IdempotencyConflict, LedgerClosed
from nexus.ledger.aio import AsyncLedger, AsyncReads
from nexus.ledger.sessions import Alias, NewRefUpdate, Query, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.making import append, cut, entry, manifest, mark
from nexus.testing.memory_ledger import MemoryLedger
from nexus.types.ledger_entries import Commit, Committed, StoredCalibration

Scene = Callable[[AsyncLedger], Coroutine[Any, Any, None]]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LedgerStore:
    return MemoryLedger() if request.param == "memory" else SqliteLedger(str(tmp_path / "ledger.db"))


def play(scene: Scene, store: LedgerStore) -> None:
    async def whole() -> None:
        async with AsyncLedger(store) as ledger:
            await asyncio.wait_for(scene(ledger), 30)

    asyncio.run(whole())


def saying(text: str, key: str = "") -> Commit:
    return Commit((entry(text, keys=(key,) if key else ()),))


def test_it_has_every_method_of_the_store_with_the_same_parameters() -> None:
    for name, method in vars(LedgerStore).items():
        if name.startswith("_") or not callable(method):
            continue
        own = getattr(AsyncLedger, name)
        assert list(inspect.signature(own).parameters) == list(inspect.signature(method).parameters), name
        assert inspect.iscoroutinefunction(own) or name == "snapshot", name


def test_each_call_does_what_the_store_does(store: LedgerStore) -> None:
    async def scene(ledger: AsyncLedger) -> None:
        commit = Commit((entry("word", keys=("k",)), mark("clear")), cut("v", 1, 0), manifest("v", 1))
        done = await ledger.commit("main", commit, SessionMetadata(title="T"))
        assert done == Committed(1, 2, 2, 1)
        assert await ledger.fork("branch", "main", 1, reason="try") == 2
        assert len(await ledger.move([NewRefUpdate("b", 2, "named")], [Alias("m", "main", "short")])) == 1
        await ledger.calibrate("p", "m", StoredCalibration(64, 1, 5))
        assert (ledger.place, ledger.tenant) == (store.place, "local")
        assert await ledger.entries(1, 0, 1) == list(store.entries(1, 0, 1))
        assert await ledger.dump() == list(store.dump())
        for found, wanted in (
            (await ledger.resolve("m"), "main"),
            (await ledger.thread_of("b"), 2),
            (await ledger.session("main"), store.session("main")),
            (await ledger.sessions(every=True), store.sessions(every=True)),
            (await ledger.moves("branch"), store.moves("branch")),
            (await ledger.aliases(every=True), store.aliases(every=True)),
            (await ledger.thread(2), store.thread(2)),
            (await ledger.threads(), store.threads()),
            (await ledger.path(2), store.path(2)),
            (await ledger.head(1), store.head(1)),
            (await ledger.marks(1), store.marks(1)),
            (list(await ledger.instructions(1)), []),
            (await ledger.last_cut(1, "v"), cut("v", 1, 0)),
            (await ledger.last_assembly(1, "v"), store.last_assembly(1, "v")),
            (await ledger.assemblies(1), store.assemblies(1)),
            (await ledger.known_keys("main"), {"k": 1}),
            (await ledger.holders("k"), [(1, 1)]),
            (await ledger.search(Query("word")), store.search(Query("word"))),
            (await ledger.calibration("p", "m"), StoredCalibration(64, 1, 5)),
            (await ledger.calibrations(), [("p", "m", StoredCalibration(64, 1, 5))]),
        ):
            assert found == wanted
            assert found is not None
        assert await ledger.load(await ledger.dump()) == 0
        assert (await ledger.erase([2], ["branch", "b"])).threads == (2,)
        with pytest.raises(IdempotencyConflict):
            await ledger.commit("main", saying("other", "k"))

    play(scene, store)


def test_many_tasks_append_at_once_and_nothing_is_lost(store: LedgerStore) -> None:
    async def scene(ledger: AsyncLedger) -> None:
        async def worker(name: int) -> None:
            for number in range(10):
                await ledger.commit("main", saying(f"{name}/{number}"))
                await ledger.head(1)

        await asyncio.gather(*(worker(name) for name in range(20)))
        read = await ledger.entries(1)
        assert [one.seq for one in read] == list(range(1, 201))
        said = [row.message.text() for one in read for row in one.rows]
        for name in range(20):
            own = [text for text in said if text.startswith(f"{name}/")]
            assert own == [f"{name}/{number}" for number in range(10)]
        moved = await asyncio.gather(
            *(ledger.commit("main", Commit((entry("x"),), expected_head=200)) for _ in range(5)), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in moved) == ["Committed", *["HeadMoved"] * 4]
        assert {one.actual for one in moved if isinstance(one, HeadMoved)} == {201}

    play(scene, store)


class Slow(MemoryLedger):
    """Commits to the session `slow` wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()
        self.writers: set[str] = set()
        self.readers: set[str] = set()

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        self.writers.add(threading.current_thread().name)
        if session == "slow":
            self.begun.set()
            assert self.go.wait(600)
        return super().commit(session, commit, facts)

    def head(self, thread: int) -> tuple[int, bytes]:
        self.readers.add(threading.current_thread().name)
        return super().head(thread)


async def happened(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


def test_a_slow_write_holds_up_neither_the_loop_nor_reads() -> None:
    store = Slow()

    async def scene(ledger: AsyncLedger) -> None:
        await ledger.commit("main", saying("one"))
        slow = asyncio.create_task(ledger.commit("slow", saying("two")))
        await happened(store.begun)
        heads = await asyncio.gather(*(ledger.head(1) for _ in range(20)))
        async with ledger.snapshot() as reads:
            assert await reads.head(1) == heads[0]
        assert (len(set(heads)), slow.done()) == (1, False)
        store.go.set()
        assert (await slow).thread == 2

    play(scene, store)
    assert {name.rsplit("_", 1)[0] for name in store.writers} == {"nexus-ledger-write"}
    assert {name.rsplit("_", 1)[0] for name in store.readers} == {"nexus-ledger-read", "nexus-ledger-snapshot"}
    assert len(store.writers) == 1


def test_a_cancelled_append_goes_on_and_is_found_by_its_key() -> None:
    store = Slow()

    async def scene(ledger: AsyncLedger) -> None:
        first = asyncio.create_task(ledger.commit("slow", saying("one", "k1")))
        waiting = asyncio.create_task(ledger.commit("main", saying("two", "k2")))
        await happened(store.begun)
        for task in (first, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await ledger.known_keys("slow") == {}
        store.go.set()
        again = await ledger.commit("slow", saying("one", "k1"))
        assert (again.added, again.head) == (0, 1)
        assert await ledger.known_keys("slow") == {"k1": 1}
        assert await ledger.known_keys("main") == {"k2": 1}

    play(scene, store)


def test_a_cancelled_append_that_is_refused_leaves_nothing() -> None:
    store = Slow()

    async def scene(ledger: AsyncLedger) -> None:
        refused = asyncio.create_task(ledger.commit("slow", Commit((entry("one"), mark("pin", seq=9, ord=0)))))
        await happened(store.begun)
        refused.cancel()
        with pytest.raises(asyncio.CancelledError):
            await refused
        store.go.set()
        assert (await ledger.commit("main", saying("two"))).thread == 1
        assert await ledger.thread_of("slow") is None

    play(scene, store)


def test_a_snapshot_sees_one_state_while_others_write(store: LedgerStore) -> None:
    async def scene(ledger: AsyncLedger) -> None:
        await ledger.commit("main", saying("one"))
        async with ledger.snapshot() as reads:
            before = (await reads.head(1), await reads.sessions(), await reads.dump())
            write = asyncio.create_task(ledger.commit("main", saying("two")))
            await asyncio.wait([write], timeout=0.05)
            assert (await reads.head(1), await reads.sessions(), await reads.dump()) == before
        assert (await write).head == 2
        assert (await ledger.head(1))[0] == 2
        with pytest.raises(LedgerClosed, match="snapshot"):
            await reads.head(1)

    play(scene, store)


def test_an_error_or_a_cancellation_inside_a_snapshot_ends_it(store: LedgerStore) -> None:
    async def scene(ledger: AsyncLedger) -> None:
        await ledger.commit("main", saying("one"))
        inside = asyncio.Event()

        async def staying() -> None:
            async with ledger.snapshot() as reads:
                await reads.head(1)
                inside.set()
                await asyncio.sleep(30)

        async def failing() -> None:
            async with ledger.snapshot() as reads:
                await reads.thread(7)

        task = asyncio.create_task(staying())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Exception, match="no thread 7"):
            await failing()
        assert (await ledger.commit("main", saying("two"))).head == 2

    play(scene, store)


def test_a_snapshot_that_is_cancelled_while_it_begins_holds_nothing() -> None:
    store = MemoryLedger()

    async def scene(ledger: AsyncLedger) -> None:
        begun, release = threading.Event(), threading.Event()

        def hold() -> None:
            with store.snapshot():
                begun.set()
                assert release.wait(600)

        async def enter() -> None:
            async with ledger.snapshot():
                raise AssertionError

        holder = asyncio.create_task(asyncio.to_thread(hold))
        await happened(begun)
        entering = asyncio.create_task(enter())
        await asyncio.sleep(0.02)
        entering.cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await holder
        assert (await ledger.commit("main", saying("one"))).head == 1

    play(scene, store)


def test_closing_waits_for_what_was_asked_and_refuses_what_comes_later(store: LedgerStore) -> None:
    async def scene() -> None:
        ledger = AsyncLedger(store)
        tasks = [asyncio.create_task(ledger.commit("main", saying(f"{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        await asyncio.gather(ledger.close(), ledger.close())
        assert [(await task).head for task in tasks] == list(range(1, 21))
        await ledger.close()
        for call in (ledger.threads(), ledger.commit("main", saying("late")), ledger.snapshot().__aenter__()):
            with pytest.raises(LedgerClosed, match="closed"):
                await call
        with pytest.raises(LedgerClosed):
            store.threads()

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_reads_of_a_snapshot_are_the_reads_of_the_ledger() -> None:
    writes = {"commit", "fork", "move", "calibrate", "erase", "load", "snapshot", "close"}
    public = {name for name in dir(AsyncLedger) if not name.startswith("_")}
    assert public - {name for name in dir(AsyncReads) if not name.startswith("_")} == writes


def test_it_serves_one_store_from_several_loops_one_after_the_other() -> None:
    store = MemoryLedger()
    ledger = AsyncLedger(store)
    for number in range(3):
        assert asyncio.run(ledger.commit("main", saying(f"{number}"))).head == number + 1
    asyncio.run(ledger.close())
    with pytest.raises(LedgerClosed):
        append(store, "main", "late")
