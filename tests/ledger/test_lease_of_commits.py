"""The lease of a call: taken with its event, ended with its reply, and never assembled before another call's reply."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nexus
from nexus.errors import BudgetTooSmall, LateReply, SessionBusy
from nexus.ledger import lease
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, Committed, NewEntry

REPLY = nexus.AgentResult((nexus.assistant("Yes."),), model="gpt-4o")
SECONDS = 60


def _new_lock(*_: object) -> SimpleNamespace:
    return SimpleNamespace(lock=threading.Lock())


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[nexus.Engine, nexus.Engine]]:
    """Two engines of one ledger that share no lock, as in two programs."""
    monkeypatch.setattr(lease, "_lock_of", _new_lock)
    path = tmp_path / "ledger.db"
    with nexus.open(ledger=path, home=tmp_path) as one, nexus.open(ledger=path, home=tmp_path) as other:
        yield one, other


def holder(nx: nexus.Engine) -> str:
    """Return who has the session's lease, and leave it to him."""
    found = nx.ledger.store.take_lease("main", "nobody", 0).holder
    nx.ledger.store.release_lease("main", "nobody")
    return found


def texts(nx: nexus.Engine) -> list[str]:
    return [message.text() for message in nx.history("main")]


def test_call_holds_the_session_from_its_event_to_its_reply(engines: tuple[nexus.Engine, nexus.Engine]) -> None:
    one, other = engines
    holders: list[str] = []

    def send(_ctx: object) -> nexus.AgentResult:
        holders.append(holder(other))
        with pytest.raises(SessionBusy):
            nexus.call(other, "Two?", lambda _: REPLY, session="main", wait=0)
        return REPLY

    nexus.call(one, "One?", send, session="main")
    assert holders[0].startswith("process ")
    assert holder(other) == "nobody"
    assert texts(one) == ["One?", "Yes."]


def test_lease_ends_with_a_call_that_fails(engines: tuple[nexus.Engine, nexus.Engine]) -> None:
    one, other = engines

    def fail(_ctx: object) -> object:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        nexus.call(one, "One?", fail, session="main")
    assert holder(other) == "nobody"
    with pytest.raises(BudgetTooSmall):
        nexus.call(one, "One? " * 1_000, lambda _: REPLY, session="main", budget=100)
    assert holder(other) == "nobody"


@pytest.mark.parametrize("is_async", [False, True])
def test_call_that_waited_sees_the_reply_of_the_other(
    engines: tuple[nexus.Engine, nexus.Engine], *, is_async: bool
) -> None:
    one, other = engines
    is_sent = threading.Event()
    may_answer = threading.Event()
    seen: list[list[str]] = []

    def send_one(_ctx: object) -> nexus.AgentResult:
        is_sent.set()
        assert may_answer.wait(SECONDS)
        return REPLY

    def send_two(ctx: nexus.AssembledContext) -> nexus.AgentResult:
        seen.append([message.text() for message in ctx.messages])
        return REPLY

    async def await_two(ctx: nexus.AssembledContext) -> nexus.AgentResult:
        return send_two(ctx)

    async def call_two() -> None:
        async with nexus.AsyncEngine(other) as engine:
            await nexus.acall(engine, "Two?", await_two, session="main")

    def two() -> None:
        if is_async:
            asyncio.run(call_two())
        else:
            nexus.call(other, "Two?", send_two, session="main")

    first = threading.Thread(target=lambda: nexus.call(one, "One?", send_one, session="main"))
    second = threading.Thread(target=two)
    first.start()
    assert is_sent.wait(SECONDS)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    may_answer.set()
    first.join(SECONDS)
    second.join(SECONDS)
    assert [text.splitlines()[-1] for text in seen[0]] == ["One?", "Yes.", "Two?"]
    assert texts(one) == ["One?", "Yes.", "Two?", "Yes."]


def on_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Let something happen once before the next commit: between the assembly of a context and its event."""
    store_commit = SqliteLedger.commit
    acts = [act]

    def commit(self: SqliteLedger, session: str, new: Commit, metadata: Any = None) -> Committed:
        if acts:
            acts.pop()()
        return store_commit(self, session, new, metadata)

    monkeypatch.setattr(SqliteLedger, "commit", commit)


def test_call_is_assembled_again_if_another_came_between(
    engines: tuple[nexus.Engine, nexus.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = engines
    nexus.call(one, "Zero?", lambda _: REPLY, session="main")
    seen: list[str] = []

    def send(ctx: nexus.AssembledContext) -> nexus.AgentResult:
        seen.extend(message.text().splitlines()[-1] for message in ctx.messages)
        return REPLY

    on_commit(monkeypatch, lambda: nexus.call(other, "One?", lambda _: REPLY, session="main"))
    nexus.call(one, "Two?", send, session="main")
    assert seen == ["Zero?", "Yes.", "One?", "Yes.", "Two?"]


def test_event_that_another_call_stored_meanwhile_is_answered_once(
    engines: tuple[nexus.Engine, nexus.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = engines
    event = nexus.Event((nexus.Text("One?"),), id="e1")
    on_commit(monkeypatch, lambda: nexus.call(other, event, lambda _: REPLY, session="main"))
    answer = nexus.call(one, event, lambda _: pytest.fail("called a second time"), session="main")
    assert answer.result.messages[0].text() == "Yes."
    assert texts(one) == ["One?", "Yes."]
    assert holder(other) == "nobody"


def test_reply_behind_an_expired_lease_is_late(engines: tuple[nexus.Engine, nexus.Engine]) -> None:
    """The program was suspended for longer than its lease, and another one has answered since."""
    one, other = engines

    def send(_ctx: object) -> nexus.AgentResult:
        other.ledger.store.release_lease("main", holder(other))
        nexus.call(other, "Two?", lambda _: REPLY, session="main")
        return REPLY

    with pytest.raises(LateReply):
        nexus.call(one, "One?", send, session="main")
    assert holder(other) == "nobody"
    assert texts(one) == ["One?", "Two?", "Yes."]


def test_lease_that_a_canceled_call_took_too_late_is_given_back(engines: tuple[nexus.Engine, nexus.Engine]) -> None:
    one, other = engines
    with lease.session_of_process(one.ledger.store, "main") as late:
        pass
    late.take()
    assert holder(other) == "nobody"


@pytest.mark.parametrize("takes_before", [False, True])
def test_lease_that_a_thread_takes_behind_the_cancellation_is_given_back(
    engines: tuple[nexus.Engine, nexus.Engine], *, takes_before: bool
) -> None:
    """A canceled call may have handed its work to a thread that begins only then."""
    nx, _ = engines
    begun = threading.Event()
    may_begin = threading.Event()
    ended = threading.Event()

    async def run(function: Any, /, *args: Any) -> Any:
        def work() -> Any:
            begun.set()
            may_begin.wait(30)
            try:
                return function(*args)
            finally:
                ended.set()

        return await asyncio.get_running_loop().run_in_executor(None, work)

    def begin(late: lease.SessionLease) -> None:
        commit = Commit((NewEntry(),), fence=0, lease=late.beginning())
        late.note(nx.ledger.store.commit("main", commit), commit.lease)

    async def hold() -> None:
        async with lease.async_session_of_process(nx.ledger.store, "main", run) as late:
            if takes_before:
                await late.take_async(run)
            await run(begin, late)

    async def cancel() -> None:
        holding = asyncio.ensure_future(hold())
        await asyncio.to_thread(begun.wait, 30)
        holding.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_begin.set()
        with suppress(asyncio.CancelledError):
            await holding
        await asyncio.to_thread(ended.wait, 30)

    asyncio.run(cancel())
    assert holder(nx) == "nobody"
