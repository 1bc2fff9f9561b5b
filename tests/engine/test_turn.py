"""Turns: what is given to one is durable at once, and each of its calls is replayed as it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import nexus
from nexus import AgentResult, Event, Text, ToolCall, assistant
from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.errors import (
    BadEvent,
    BadReply,
    HeadMoved,
    IdempotencyConflict,
    LateReply,
    LedgerFull,
    SessionBusy,
    UnreadableFile,
)
from nexus.ledger.lease import session_lease
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.render.context_json import from_json, to_json
from nexus.types.ledger_entries import Commit, Committed, Entry, MessageRef, NewEntry
from support.errors import has_code

CALLS = assistant("", ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))


class RateLimitError(Exception):
    status_code = 429


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[Engine]:
    with nexus.open(model="claude-sonnet-4-5", ledger=tmp_path / "ledger.db") as opened:
        yield opened


def reply(text: str = "Done.") -> AgentResult:
    return AgentResult((assistant(text),))


def said(nx: Engine, session: str) -> list[str]:
    return [message.text() for message in nx.history(session)]


def test_message_is_stored_before_any_call(nx: Engine) -> None:
    turn = nx.begin("Will it rain?", session="s")
    assert said(nx, "s") == ["Will it rain?"]
    assert turn.status == "pending"
    assert turn.is_open


def test_loop_over_the_calls_of_a_turn_needs_nothing_else(tmp_path: Path) -> None:
    """After a restart it goes on where it stopped: with the call that has no result."""
    replies = [AgentResult((CALLS,)), reply()]
    with nexus.open(model="claude-sonnet-4-5", ledger=tmp_path / "ledger.db") as nx:
        turn = nx.begin("Look twice.", session="s")
        assert turn.calls == ()
        turn.assemble()
        turn.record(replies.pop(0))
        assert turn.calls == (*CALLS.calls(),)
        turn.result("a", "one")
    with nexus.open(model="claude-sonnet-4-5", ledger=tmp_path / "ledger.db") as nx:
        current = nx.current_turn("s")
        assert current is not None
        while current.is_open:
            for call in current.calls:
                current.result(call.id, f"result of {call.id}")
            current.assemble()
            current.record(replies.pop(0))
        assert current.calls == ()
        assert said(nx, "s")[-1] == "Done."
        assert [record.id for record in current.tool_calls if record.status == "completed"] == ["a", "b"]


def test_results_are_stored_one_by_one_and_extend_the_prefix(nx: Engine) -> None:
    turn = nx.begin("Look twice.", session="s")
    turn.assemble()
    turn.record(AgentResult((CALLS,)))
    turn.result("b", "two")
    assert turn.result("b", "two").added == 0
    with pytest.raises(IdempotencyConflict):
        turn.result("b", "three")
    turn.result("a", "one")
    ctx = turn.assemble()
    turn.record(reply())
    assert ctx.accounting.prefix.state == "extends"
    assert turn.status == "completed"
    assert nx.assemble("Thanks.", session="s").accounting.prefix.state == "extends"


def test_every_call_of_a_turn_is_replayed(nx: Engine) -> None:
    turn = nx.begin("Look twice.", session="s")
    first = turn.assemble().body_hash
    turn.record(AgentResult((CALLS,)))
    turn.result("a", "one")
    turn.result("b", "two")
    second = turn.assemble().body_hash
    turn.record(reply())
    assert [nx.replay("s", 1, call=number).body_hash for number in (1, 2)] == [first, second]


def test_same_event_is_the_same_turn(nx: Engine) -> None:
    event = Event((Text("Hi."),), id="update-1")
    first, second = nx.begin(event, session="s"), nx.begin(event, session="s")
    assert (first.number, said(nx, "s")) == (second.number, ["Hi."])
    second.assemble()
    second.record(reply())
    assert nx.begin(event, session="s").status == "completed"


def test_turn_continues_after_the_program_stopped(tmp_path: Path) -> None:
    with nexus.open(model="gpt-4o", ledger=tmp_path / "l.db") as nx:
        nx.begin("Hi.", session="s")
    with nexus.open(model="gpt-4o", ledger=tmp_path / "l.db") as nx:
        turn = nx.current_turn("s")
        assert turn is not None
        assert turn.status == "interrupted"
        turn.assemble()
        turn.record(reply())
        assert nx.current_turn("s") is None
        assert nx.current_turn("none") is None
        assert said(nx, "s") == ["Hi.", "Done."]


@pytest.mark.parametrize("profile", ["layered", "workspace", "repl", "tagged", "tagged_stable", "turnlog", "bare"])
def test_continued_turn_gives_the_context_that_it_began_with(nx: Engine, profile: str) -> None:
    nx.record(nx.assemble("Good morning.", session="s", profile=profile), reply())
    begun = nx.begin("Will it rain?", session="s", profile=profile)
    continued = nx.current_turn("s", profile=profile)
    assert continued is not None
    assert continued.assemble().body_hash == begun.assemble().body_hash


def test_context_of_another_process_is_recorded_as_the_turns_own(nx: Engine) -> None:
    nx.record(nx.assemble("Good morning.", session="s"), reply())
    turn, other = nx.begin("Will it rain?", session="s"), nx.current_turn("s")
    assert other is not None
    ctx = turn.attach(from_json(to_json(other.assemble())))
    turn.record(AgentResult((CALLS,)), ctx)
    assert said(nx, "s") == ["Good morning.", "Done.", "Will it rain?", ""]
    assert nx.replay("s", 2).body_hash == ctx.body_hash
    turn.result("a", "one")
    turn.result("b", "two")
    with pytest.raises(UnreadableFile, match="next call", check=has_code("bad_context")):
        turn.attach(ctx)


def test_attached_context_is_compacted_by_the_process_that_has_the_turn(nx: Engine) -> None:
    for number in range(12):
        nx.record(nx.assemble(f"Question {number}. {'word ' * 200}", session="s"), reply("word " * 200))
    turn, other = nx.begin("Will it rain?", session="s"), nx.current_turn("s")
    assert other is not None
    ctx = turn.attach(from_json(to_json(other.assemble())))
    assert not ctx.compaction_due
    plan = ctx.plan("manual", 0.01)
    assert plan is not None
    assert plan.session == "s"


def test_partial_reply_stays_until_the_turn_is_tried_again(nx: Engine) -> None:
    turn = nx.begin("Tell a story.", session="s")
    turn.assemble()
    turn.fail("connection", "reset", partial=AgentResult((assistant("Once", ToolCall("a", "look", "{}")),)))
    assert said(nx, "s") == ["Tell a story.", "Once"]
    assert list(nx.history("s")[-1].calls()) == []
    assert turn.status == "failed"
    turn.assemble()
    turn.record(reply("Once upon a time."))
    assert said(nx, "s") == ["Tell a story.", "Once upon a time."]
    assert nx.assemble("More.", session="s").accounting.prefix.state == "extends"


def test_canceled_turn_is_interrupted(nx: Engine) -> None:
    turn = nx.begin("Wait.", session="s")
    turn.cancel(partial="I was")
    assert (turn.status, said(nx, "s")) == ("interrupted", ["Wait.", "I was"])


def test_empty_reply_never_completes_a_turn(nx: Engine) -> None:
    turn = nx.begin("Hi.", session="s")
    turn.assemble()
    with pytest.raises(BadReply, match="empty"):
        turn.record(reply(" "))
    assert turn.is_open
    with pytest.raises(BadReply, match="empty"):
        nexus.call(nx, "Hi.", lambda _: reply(""), session="t")
    assert nx.ledger.turns("t")[-1].status == "failed"


def test_turn_without_anything_to_answer_says_so(nx: Engine) -> None:
    turn = nx.begin("Hi.", session="s")
    turn.assemble()
    turn.record(reply())
    with pytest.raises(BadEvent, match="waits for no reply"):
        turn.assemble()
    waiting = nx.begin("Look.", session="w")
    waiting.assemble()
    waiting.record(AgentResult((CALLS,)))
    with pytest.raises(BadEvent, match=r"waits for results of look \(a\), look \(b\)"):
        waiting.assemble()


def test_failed_call_leaves_the_message_and_the_same_event_tries_again(nx: Engine) -> None:
    def limited(_: object) -> AgentResult:
        raise RateLimitError("slow down")

    event = Event((Text("Hi."),), id="update-1")
    with pytest.raises(RateLimitError):
        nexus.call(nx, event, limited, session="s")
    assert nx.ledger.entries("s")[-1].body["kind"] == "rate_limit"
    answer = nexus.call(nx, event, lambda _: reply(), session="s")
    assert (answer.committed.turn, said(nx, "s")) == (1, ["Hi.", "Done."])
    repeated = nexus.call(nx, event, limited, session="s")
    assert [message.text() for message in repeated.result.messages] == ["Done."]


class Killed(BaseException):
    """The end of the process."""


def run_tool_loop(folder: Path, stops: Iterator[bool]) -> list[str]:
    """The loop of the README, as a program that is killed where `stops` says so. Both replies call two tools."""
    replies = [AgentResult((CALLS,)), AgentResult((CALLS,)), reply()]

    def step(result: AgentResult | str) -> AgentResult | str:
        if next(stops, False):
            raise Killed
        return result

    def send(ctx: nexus.AssembledContext) -> object:
        assistants = [message for message in ctx.messages if message.role == "assistant"]
        return step(replies[len(assistants)])

    with nexus.open(model="claude-sonnet-4-5", ledger=folder / "ledger.db", clock_ms=lambda: 7) as nx:
        answer = nexus.call(nx, Event((Text("Look twice."),), id="mail-17"), send, session="s")
        while results := [nexus.tool(call.id, str(step(call.id))) for call in answer.result.tool_calls]:
            answer = nexus.call(nx, results, send, session="s")
    return [message.text() for message in answer.result.messages]


@pytest.mark.parametrize("second", range(8))
@pytest.mark.parametrize("first", range(8))
def test_tool_loop_that_is_killed_twice_goes_on_with_the_same_event(tmp_path: Path, first: int, second: int) -> None:
    """Of its seven steps each may be the last one before a stop; afterwards nothing is sent and no tool runs again."""
    whole = run_tool_loop(tmp_path, iter(()))
    folder = tmp_path / "killed"
    folder.mkdir()
    for stop in (first, second):
        with suppress(Killed):
            run_tool_loop(folder, iter([*[False] * stop, True]))
    assert run_tool_loop(folder, iter(())) == whole
    assert run_tool_loop(folder, iter([True])) == whole
    with nexus.open(ledger=folder / "ledger.db") as nx, nexus.open(ledger=tmp_path / "ledger.db") as other:
        assert [message.parts for message in nx.history("s")] == [message.parts for message in other.history("s")]


def test_call_waits_for_its_session(nx: Engine) -> None:
    with session_lease(nx.ledger.store, "s"), pytest.raises(SessionBusy, match="not free after 0 s"):
        nexus.call(nx, "Hi.", lambda _: reply(), session="s", wait=0)
    nexus.call(nx, "Hi.", lambda _: reply(), session="s", wait=0)


def test_lease_of_another_process_is_respected_until_it_expires(nx: Engine) -> None:
    nx.ledger.store.take_lease("s", "another process", 60_000)
    with pytest.raises(SessionBusy, match="another process"):
        nexus.call(nx, "Hi.", lambda _: reply(), session="s", wait=0)
    nx.ledger.store.take_lease("s", "another process", -1)
    nexus.call(nx, "Hi.", lambda _: reply(), session="s", wait=0)


def test_asynchronous_calls_of_a_session_come_one_after_the_other(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async def send(_: object) -> AgentResult:
            await asyncio.sleep(0.01)
            return reply()

        async with nexus.open_async(model="gpt-4o", ledger=tmp_path / "l.db") as nx:
            await asyncio.gather(*(nexus.acall(nx, f"m{number}", send, session="s") for number in range(5)))
            return [message.role for message in await nx.history("s")]

    assert asyncio.run(main()) == ["user", "assistant"] * 5


def test_canceled_task_leaves_an_interrupted_turn(tmp_path: Path) -> None:
    async def main() -> str:
        sent = asyncio.Event()

        async def send(_: object) -> AgentResult:
            sent.set()
            return await asyncio.Future()

        async with nexus.open_async(model="gpt-4o", ledger=tmp_path / "l.db") as nx:
            task = asyncio.create_task(nexus.acall(nx, "Hi.", send, session="s"))
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return nx.engine.ledger.turns("s")[-1].status

    assert asyncio.run(main()) == "interrupted"


def test_call_and_turn_read_their_own_entries_of_a_long_session(nx: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(150):
        nx.record(nx.assemble(f"question {number}", session="s"), reply())
    seen: list[int] = []
    entries = SqliteLedger.entries

    def counted(store: SqliteLedger, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        found = list(entries(store, thread, after, until))
        seen.append(len(found))
        return iter(found)

    monkeypatch.setattr(SqliteLedger, "entries", counted)
    nexus.call(nx, "one more", lambda _ctx: reply(), session="s")
    turn = nx.begin("and another", session="s")
    turn.record(reply("Yes."))
    assert (turn.status, [message.text() for message in turn.replies], turn.tool_calls) == ("completed", ["Yes."], ())
    assert sum(seen) < 150, "of 304 entries"
    nx.begin("left open", session="s")
    assert [found.number for found in nx.ledger.turns("s", 151)] == [151, 152, 153]
    assert nx.ledger.turns("s", 151) == nx.ledger.turns("s")[150:]


def test_reply_to_an_event_that_a_rewind_took_away_is_refused(tmp_path: Path) -> None:
    with nexus.open(model="gpt-4o", ledger=tmp_path / "l.db") as nx, nexus.open(ledger=tmp_path / "l.db") as other:
        nx.record(nx.assemble("Good morning.", session="s"), reply())
        turn = nx.begin("Will it rain?", session="s")
        ctx = turn.assemble()
        other.ledger.rewind("s", seq=ctx.provenance.manifest.head)
        other.begin("Something else.", session="s", model="gpt-4o")
        with pytest.raises(LateReply):
            turn.record(reply(), ctx)
        with pytest.raises(HeadMoved):
            turn.assemble(budget=2_000)
        assert said(nx, "s") == ["Good morning.", "Done.", "Something else."]


class InterruptedLedger(SqliteLedger):
    """A ledger that lets others come first before its next commit."""

    before_commit: Callable[[], object] | None = None

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        interruption, self.before_commit = self.before_commit, None
        if interruption is not None:
            interruption()
        return super().commit(session, commit, metadata)


def test_event_that_two_processes_begin_at_once_is_one_turn(tmp_path: Path) -> None:
    event = Event((Text("Hi."),), id="update-1", at_ms=1_700_000_000_000)
    ledger = InterruptedLedger(str(tmp_path / "l.db"))
    with nexus.open(model="gpt-4o", ledger=ledger) as nx, nexus.open(model="gpt-4o", ledger=tmp_path / "l.db") as other:

        def come_first() -> None:
            first = other.begin(event, session="s")
            first.assemble()
            first.record(AgentResult((CALLS,)))

        ledger.before_commit = come_first
        second = nx.begin(event, session="s")
        assert (second.number, second.is_new) == (1, False)
        second.result("a", "one")
        second.result("b", "two")
        sent = second.assemble().body_hash
        second.record(reply())
        assert said(nx, "s") == ["Hi.", "", "", "", "Done."]
        assert nx.replay("s", 1, call=2).body_hash == sent


def test_result_that_comes_after_a_partial_reply_keeps_it(nx: Engine) -> None:
    turn = nx.begin("Look twice.", session="s")
    turn.assemble()
    turn.record(AgentResult((CALLS,)))
    turn.result("a", "one")
    turn.fail("connection", "reset", partial="So far")
    turn.result("b", "two")
    again = nx.current_turn("s")
    assert again is not None
    sent = again.assemble().body_hash
    again.record(reply())
    assert [message.text() for message in nx.history("s") if message.role != "tool"] == [
        "Look twice.",
        "",
        "So far",
        "Done.",
    ]
    assert nx.replay("s", 1).body_hash == sent
    assert len(nx.ledger.sessions.ref_updates("s")) == 1


def test_result_costs_the_same_whatever_came_before(tmp_path: Path) -> None:
    """Counted are the statements of SQLite, which are the same in every run."""
    statements: list[str] = []

    def count(event: dict[str, Any]) -> None:
        statements.append(event["sql"])

    def watch(db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, count)

    apsw.connection_hooks.append(watch)
    try:
        with nexus.open(model="claude-sonnet-4-5", ledger=tmp_path / "ledger.db") as nx:
            turn = nx.begin("Look often.", session="s")
            turn.assemble()
            turn.record(AgentResult((assistant("", *(ToolCall(f"c{at}", "look", "{}") for at in range(300))),)))
            costs: list[int] = []
            for at in range(300):
                statements.clear()
                turn.result(f"c{at}", f"result {at}")
                costs.append(sum("fts" not in sql and "message_text" not in sql for sql in statements))
            assert max(costs[250:]) <= max(costs[1:50])
            assert not turn.calls
    finally:
        apsw.connection_hooks.remove(watch)


def test_results_of_several_calls_are_stored_together_and_once(nx: Engine) -> None:
    turn = nx.begin("Look twice.", session="s")
    turn.assemble()
    turn.record(AgentResult((CALLS,)))
    other = nx.current_turn("s")
    assert other is not None
    results = [nexus.tool("a", "one"), nexus.tool("b", "two")]
    assert turn.result("a", "one").added == 1
    assert turn.results(*results).added == 1
    assert turn.results(*results).added == turn.result("b", "two").added == 0
    for wrong in ((), (results[0], results[0]), (nexus.assistant("no result"),)):
        with pytest.raises(BadEvent, match="results are not one of each call"):
            turn.results(*wrong)
    with pytest.raises(IdempotencyConflict):
        turn.results(nexus.tool("b", "another"))
    again = nx.current_turn("s")
    assert again is not None and again.calls == ()
    assert again.results(*results).added == 0, "what another object stored is no conflict"


def test_result_that_another_writer_stored_meanwhile_is_no_conflict(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with nexus.open(model="claude-sonnet-4-5", ledger=path) as nx:
        turn = nx.begin("Look twice.", session="s")
        turn.assemble()
        turn.record(AgentResult((CALLS,)))
        turn.result("a", "one")  # the turn now knows its results
        rows = nx.ledger.entries("s")
        reply = next(entry.seq for entry in rows if entry.rows and entry.rows[0].message.role == "assistant")
        with nexus.open(model="claude-sonnet-4-5", ledger=path) as second:
            message = nexus.tool("b", "two")
            entry = NewEntry(messages=with_sizes((message,), second.counter), keys=(f"result:{reply}:b",))
            second.ledger.store.commit("s", Commit((entry,)))
        assert turn.results(message).added == 0
        with pytest.raises(IdempotencyConflict):
            turn.result("b", "another")


def test_result_that_could_not_be_stored_is_stored_under_the_key_that_others_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is compacted between two tries: both programs must still find the same result."""
    path = tmp_path / "ledger.db"
    with nexus.open(model="claude-sonnet-4-5", ledger=path) as nx:
        turn = nx.begin("Look twice.", session="s")
        turn.assemble()
        turn.record(AgentResult((CALLS,)))

        def full(*_: object, **__: object) -> None:
            raise LedgerFull("disk full")

        with monkeypatch.context() as stopped:
            stopped.setattr(type(nx.ledger), "commit", full)
            with pytest.raises(LedgerFull):
                turn.result("a", "one")
        nx.ledger.pin("s", MessageRef(1, 0))  # an entry behind the reply
        assert turn.result("a", "one").added == 1
        with nexus.open(model="claude-sonnet-4-5", ledger=path) as second:
            other = second.current_turn("s")
            assert other is not None
            assert other.result("a", "one").added == 0
            assert [call.id for call in other.calls] == ["b"]
            with pytest.raises(IdempotencyConflict):
                other.result("a", "another")


def test_results_of_a_later_reply_have_its_key(tmp_path: Path) -> None:
    """Another program, which reads the reply from the ledger, must see that its result is not the stored one."""
    path = tmp_path / "ledger.db"
    with nexus.open(model="claude-sonnet-4-5", ledger=path) as nx:
        turn = nx.begin("Look twice.", session="s")
        for name in ("a", "b"):
            turn.assemble()
            turn.record(AgentResult((assistant("", ToolCall(name, "look", "{}"), ToolCall(f"{name}2", "look", "{}")),)))
            turn.result(name, "one")
            if name == "a":
                turn.result("a2", "two")
        with nexus.open(model="claude-sonnet-4-5", ledger=path) as second:
            other = second.current_turn("s")
            assert other is not None
            with pytest.raises(IdempotencyConflict):
                other.result("b", "another")
