"""Laws of a turn's events and of what is stored, for random scripts of a model, its tools, cancellations and limits.

A script has turns of one session. After each turn: the events obey their laws, the joined tokens are the stored text, the
last event agrees with the turn's status, every call has at most one result, and the next context is valid in all formats.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

import nexus
from laws.call import bodies
from nexus import AgentResult, Event, Text, ToolCall
from nexus.agents import Agent, Limits
from nexus.agents.workers import TurnHooks
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.engine.overflow_recovery import despite_learned_limit
from nexus.errors import ModelCallFailed
from nexus.ledger import integrity
from nexus.models import ModelReply
from nexus.types.stream_events import Retry, StreamEnd, StreamError, StreamEvent, ToolStatus
from support.scripted_agent import ScriptedClient, check_laws, said, streamed_text
from support.validity import CHECKS

Ending = Literal["whole", "broken", "overflow", "withheld", "retried", "empty", "unfinished", "error"]
Stop = Literal["", "event", "task"]

ENDINGS: list[Ending] = ["whole"] * 8 + ["retried", "retried", "broken", "overflow", "withheld", "empty"]
ENDINGS += ["unfinished", "error"]
TOOLS = ("look", "wait", "fail", "shout", "compact", "missing")
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."


class Reply(Struct, frozen=True):
    """A call of the model: its words, tools and end."""

    words: int = 2
    tools: tuple[str, ...] = ()
    ending: Ending = "whole"
    thinking: bool = False
    same_ids: bool = False


class ScriptedTurn(Struct, frozen=True):
    """A turn. It is canceled when so many events came, or while an operation of the ledger is under way."""

    replies: tuple[Reply, ...]
    stop: Stop = ""
    stop_event: int = 0
    stop_operation: int = 0
    steps: int = 50
    steers: bool = False
    fallback: bool = False


def script_of(seed: int) -> list[ScriptedTurn]:
    """Return a random script. It is drawn here, because a draw of Hypothesis seldom has several steps."""
    dice = random.Random(seed)

    def reply() -> Reply:
        tools = tuple(dice.choices(TOOLS, k=dice.choice([0, 1, 1, 2, 3])))
        ending = dice.choice(ENDINGS)
        return Reply(dice.randrange(4), tools, ending, thinking=dice.random() < 0.3, same_ids=dice.random() < 0.1)

    def turn() -> ScriptedTurn:
        by_event = dice.random() < 0.5
        return ScriptedTurn(
            tuple(reply() for _ in range(dice.randint(1, 4))),
            dice.choice(["", "event", "task"]),
            dice.randint(1, 12) if by_event else 0,
            dice.randint(1, 24),
            dice.choice([50, 50, 2]),
            steers=dice.random() < 0.4,
            fallback=dice.random() < 0.4,
        )

    return [turn() for _ in range(dice.randint(1, 4))]


def items_of(reply: Reply, number: int) -> list[Any]:
    """The items that a client yields for a reply."""
    text = " ".join(f"word{number}" for _ in range(reply.words))
    calls = [ToolCall(f"call_{0 if reply.same_ids else place}", name, "{}") for place, name in enumerate(reply.tools)]
    items = said(text, *calls, thinking="Hm." if reply.thinking else "")
    pieces = items[:-1]
    match reply.ending:
        case "broken":
            return [*pieces, ModelCallFailed("overloaded", "overloaded", retryable=True)]
        case "withheld":
            return [*pieces, ModelCallFailed("withheld", "content")]
        case "overflow":
            return [*pieces, ModelCallFailed(OVERFLOW, "context_overflow")]
        case "retried":
            return [*pieces[:1], Retry("connection", "broke off"), *items]
        case "empty":
            return [ModelReply(AgentResult((nexus.assistant(""),), stop_reason="end_turn"), 0.001)]
        case "unfinished":
            return pieces
        case "error":
            return [*pieces, RuntimeError("a fault of the program")]
        case "whole":
            return items if text or calls else said("ok")


async def wait() -> str:
    """Wait."""
    await asyncio.sleep(0.001)
    return "waited"


def look() -> str:
    """Look."""
    return "seen"


def fail() -> str:
    """Fail."""
    raise ValueError("no such thing")


def shout() -> str:
    """Return much."""
    return "loud and clear " * 200


class Run:
    """One session and its script."""

    def __init__(self, nx: AsyncEngine, budget: int) -> None:
        self.nx, self.budget, self.number = nx, budget, 0

    async def turn(self, script: ScriptedTurn) -> list[StreamEvent]:
        """Run a turn, and return its events."""
        loop, cancel = asyncio.get_running_loop(), asyncio.Event()
        events: list[StreamEvent] = []

        def stop() -> None:
            if script.stop == "event":
                cancel.set()
            elif script.stop == "task":
                task.cancel()

        def sink(event: StreamEvent) -> None:
            events.append(event)
            if len(events) == script.stop_event:
                stop()

        async def steer(turn: AsyncTurn) -> None:
            if script.steers:
                await self.nx.run(
                    turn.turn.add, Event((Text(f"also {len(events)}"),), id=f"{self.number}+{len(events)}")
                )

        self.number += 1
        client = ScriptedClient(*(items_of(reply, number) for number, reply in enumerate(script.replies)))
        client.steps += [said("The end.")] * 60
        agent = Agent(
            self.nx,
            client,
            tools=[look, wait, fail, shout],
            limits=Limits(steps=script.steps),
            fallbacks=["claude-sonnet-4-5"] if script.fallback else (),
            budget=self.budget,
        )
        event = Event((Text(f"Question {self.number}. " + "It is long. " * 20),), id=f"e{self.number}")
        if script.stop and not script.stop_event:
            self.nx.run = stopping_run(self.nx, script.stop_operation, partial(loop.call_soon_threadsafe, stop))
        task = asyncio.ensure_future(agent.run(event, session="s", sink=sink, cancel=cancel, hooks=TurnHooks(steer)))
        try:
            await task
        except asyncio.CancelledError:
            assert script.stop == "task"
        finally:
            self.nx.__dict__.pop("run", None)
            await self.nx.run(int)  # what was canceled while it ran has ended
        return events

    def check(self, events: list[StreamEvent]) -> None:
        """Check the laws of the newest turn."""
        engine = self.nx.engine
        if not events:  # canceled before the event was stored, or while it was
            return
        check_laws(events)
        (turn,) = engine.ledger.turns("s")[-1:]
        messages = turn_messages(engine, turn.number)
        stored = "".join(message.text() for message in messages if message.role == "assistant")
        assert streamed_text(events) == stored
        assert isinstance(events[-1], StreamEnd) == (turn.status == "completed"), (events[-1], turn.status)
        if isinstance(events[-1], StreamError):
            assert (events[-1].kind, turn.status in ("failed", "interrupted")) == (turn.failure_kind, True)
        results = [result.call_id for message in messages for result in message.results()]
        calls = [part.id for message in messages for part in message.parts if isinstance(part, ToolCall)]
        assert all(results.count(id_) <= calls.count(id_) for id_ in results)
        completed = [event.call_id for event in events if isinstance(event, ToolStatus) and event.status == "completed"]
        assert all(completed.count(id_) <= results.count(id_) for id_ in completed)
        assemble = partial(engine.assemble, "Is it valid?", session="s", budget=self.budget)
        for name, body in bodies(despite_learned_limit(engine, None, assemble)).items():
            assert CHECKS[name](body) == []


def stopping_run(nx: AsyncEngine, number: int, stop: Callable[[], object]) -> Any:
    """Return a `run` that cancels while the operation of this number is under way."""
    original, count = nx.run, 0

    async def run(function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return await original(partial(_stop_within, stop, function) if count == number else function, *args, **options)

    return run


def _stop_within(stop: Callable[[], object], function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Cancel while a function of the ledger is under way."""
    stop()
    time.sleep(0.003)
    return function(*args, **options)


def turn_messages(engine: nexus.Engine, number: int) -> list[nexus.Message]:
    entries = engine.ledger.entries("s")
    return [row.message for entry in entries if entry.turn == number for row in entry.rows]


def check_script(turns: list[ScriptedTurn], budget: int) -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o") as nx:
            run = Run(nx, budget)
            for turn in turns:
                run.check(await run.turn(turn))
            assert list(integrity.check(nx.engine.ledger.store.dump())) == []

    asyncio.run(main())


@settings(max_examples=60)
@given(seed=st.integers(0, 2**48), budget=st.sampled_from([1_500, 2_500, 20_000]))
def test_stream_laws_hold_for_random_scripts(seed: int, budget: int) -> None:
    script = script_of(seed)
    try:
        check_script(script, budget)
    except BaseException as error:
        error.add_note("\n".join(map(str, script)))
        raise


SEEDS_OF_FAULTS = {
    "a retried reply without content, then a break": (415, 2_500),
    "a limit learned from overflows that is too low for the next turn": (130, 2_500),
    "a cancellation while the session's lease is taken": (362, 20_000),
}


@pytest.mark.parametrize("name", SEEDS_OF_FAULTS)
def test_stream_laws_hold_for_scripts_that_once_broke_them(name: str) -> None:
    seed, budget = SEEDS_OF_FAULTS[name]
    check_script(script_of(seed), budget)


@pytest.mark.parametrize("stop", ["event", "task"])
@pytest.mark.parametrize("tools", [(), ("look", "wait"), ("look", "look")])
def test_cancellation_within_any_operation_of_the_ledger_keeps_the_laws(stop: Stop, tools: tuple[str, ...]) -> None:
    replies = (Reply(2, tools, same_ids=tools == ("look", "look")), Reply(1))
    check_script([ScriptedTurn(replies, stop, stop_operation=number) for number in range(1, 20)], 20_000)


@pytest.mark.parametrize("stop", ["event", "task"])
def test_cancellation_within_any_operation_of_a_recovery_ends_it(stop: Stop) -> None:
    earlier = [ScriptedTurn((Reply(3),)) for _ in range(10)]
    replies = (Reply(0, ending="overflow"), Reply(1))
    for number in range(1, 16):
        check_script([*earlier, ScriptedTurn(replies, stop, stop_operation=number)], 2_500)
        gc.collect()  # a recovery that was left would be ended now, and its events have no loop any more
