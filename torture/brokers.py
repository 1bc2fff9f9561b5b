"""A broker in a process that may be killed: its events, its model and its tools.

Its agent calls a tool and spawns workers, waits for some of them, and fails for some events. Events have all queue modes.
Each process gets all of them, in an order of its own and some twice, whatever earlier processes did with them.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

import nexus
from nexus import AgentResult, Event, Text, ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.broker import Broker, QueueMode
from nexus.broker.queue_modes import MODES, DropPolicy
from nexus.context import AssembledContext
from nexus.errors import ModelCallFailed
from nexus.ledger.sessions import EVENT_STATES
from nexus.models import ModelReply
from nexus.tools import ToolRegistry
from nexus.types.stream_events import Token
from torture.processes import Numbers, Signal

SESSIONS: Final = 9
EVENTS_OF_A_SESSION: Final = 6
ACTS: Final = ("spawn", "look", "", "look", "fail")
"""What the model does for an event: it spawns two workers, calls a tool, answers at once, or fails."""

FAILURE: Final = "no credit"
PAUSE_SECONDS: Final = 0.004
DELIVERY_SECONDS: Final = 0.01
"""Pause between two deliveries of a process, at most."""

PATIENCE_SECONDS: Final = 60.0
ACCEPTED: Final = 1
TOLD: Final = {ACCEPTED + 1 + at: state for at, state in enumerate(EVENT_STATES)}
"""Numbers in the cell of an event, once its result was returned, and the state that it had."""


class Delivery(Struct, frozen=True):
    """An event that is delivered."""

    id: str
    session: str
    mode: QueueMode
    text: str


def _delivery(number: int) -> Delivery:
    at, session = divmod(number, SESSIONS)
    id_, act = f"e{number}", ACTS[(session + at) % len(ACTS)]
    return Delivery(id_, f"s{session}", MODES[(session + 2 * at) % len(MODES)], f"event {id_}. {act}".strip())


EVENTS: Final = tuple(_delivery(number) for number in range(SESSIONS * EVENTS_OF_A_SESSION))


class Queue(Struct, frozen=True):
    """What brokers that share a ledger get, and their settings."""

    drop: DropPolicy = "old"
    cap: int = 2
    events: tuple[Delivery, ...] = EVENTS
    pause: float = PAUSE_SECONDS
    """Seconds that a tool takes, and half of a call of the model."""


class _Client:
    """The model of all agents."""

    def __init__(self, pause: float) -> None:
        self.pause = pause

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        """Yield a reply."""
        text = " ".join(message.text() for message in ctx.current)
        await asyncio.sleep(self.pause)
        yield Token("Done.")
        await asyncio.sleep(self.pause)
        calls: list[ToolCall] = []
        if not any(list(message.results()) for message in ctx.current):
            if ctx.role == "worker" or "look" in text:
                calls = [ToolCall("l", "look", "{}")]
            elif "spawn" in text:
                tasks = {"s": {"task": "count", "wait": True}, "t": {"task": "weigh", "wait": False}}
                calls = [ToolCall(id_, "spawn_worker", json.dumps(task)) for id_, task in tasks.items()]
            elif "fail" in text:
                raise ModelCallFailed(FAILURE, "auth")
        message = nexus.assistant("Done.", *calls)
        result = AgentResult((message,), stop_reason="tool_use" if calls else "end_turn", model="gpt-4o")
        yield ModelReply(result, 0.001)

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply."""
        return [item async for item in self.stream(ctx)][-1]

    async def aclose(self) -> None:
        """Do nothing."""


def serve(path: Path, queue: Queue, seed: int, cells: Numbers, ready: Signal | None = None) -> None:
    """Deliver all events to a broker and wait until all are settled; `cells` get what it returned for each.

    Args:
        path: The ledger.
        queue: The broker's settings.
        seed: Decides on the order of the events and on repetitions; with 0 they come in order, each once.
        cells: One number for each event: 0, `ACCEPTED` or one of `TOLD`.
        ready: Given when the ledger is open.
    """
    asyncio.run(_serve(path, queue, random.Random(seed), cells, ready, in_order=not seed))


async def _serve(
    path: Path, queue: Queue, dice: random.Random, cells: Numbers, ready: Signal | None, *, in_order: bool
) -> None:
    tools = ToolRegistry()

    @tools.tool(repeatable=True)
    async def look() -> str:
        """Look."""
        await asyncio.sleep(queue.pause)
        return "seen"

    numbers = list(range(len(queue.events)))
    if not in_order:
        numbers += dice.sample(numbers, len(numbers) // 4)
        dice.shuffle(numbers)
    async with nexus.open_async(ledger=path, model="gpt-4o") as nx:
        agent = Agent(nx, _Client(queue.pause), tools=tools, workers=WorkerLimits())
        if ready is not None:
            ready.give()
        async with (
            Broker(agent, cap=queue.cap, drop=queue.drop, collect_s=queue.pause) as broker,
            asyncio.TaskGroup() as waiting,
        ):
            for number in numbers:
                one = queue.events[number]
                event = Event((Text(one.text),), id=one.id)
                await broker.submit(event, session=one.session, mode=one.mode)
                if not cells[number]:
                    cells[number] = ACCEPTED
                waiting.create_task(_await_result(broker, one.id, number, cells))
                await asyncio.sleep(DELIVERY_SECONDS * (in_order or dice.random()))
            while rows := await nx.run(nx.engine.ledger.store.queued_events):
                for row in rows:
                    await broker.result(row.id, timeout_s=PATIENCE_SECONDS)
            await broker.join()


async def _await_result(broker: Broker, id_: str, number: int, cells: Numbers) -> None:
    result = await broker.result(id_, timeout_s=PATIENCE_SECONDS)
    cells[number] = next(code for code, state in TOLD.items() if state == result.event.state)
