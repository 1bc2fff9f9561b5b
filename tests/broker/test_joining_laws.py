"""Events of several senders in one session: each is answered once, with its own options, and with no other sender's tools."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

import nexus
from laws.mutants import Fault, broken_by
from nexus import Event, Text, ToolCall
from nexus.agents import Agent
from nexus.broker import Broker, QueueMode
from nexus.broker.queue_modes import MODES
from nexus.context import AssembledContext
from nexus.errors import IdempotencyConflict
from nexus.ledger.sessions import QueuedEvent
from nexus.policy import Policy
from nexus.policy.values import Principal, Toolset
from support.scripted_agent import Scenario, said

TOOLS = {"boss": {"look", "pay"}, "guest": {"look"}}
POLICY = Policy(
    "house",
    principals={name: Principal(toolset=name) for name in TOOLS},
    toolsets={name: Toolset(tuple(sorted(tools))) for name, tools in TOOLS.items()},
)
SESSION = "group:team"


class Sent(Struct, frozen=True):
    """An event of a sender: ids and contents come again, and senders use each other's ids."""

    sender: str
    id: str
    mode: QueueMode = "followup"
    system: str = ""
    content: int = 0

    @property
    def text(self) -> str:
        return f"{self.sender}/{self.id}/{self.content}"


class Case(Struct, frozen=True):
    sent: tuple[Sent, ...]
    cap: int = 20


SENT = st.builds(
    Sent,
    st.sampled_from(sorted(TOOLS)),
    st.sampled_from("abcd"),
    st.sampled_from(MODES),
    st.sampled_from(["", "Be brief."]),
    st.sampled_from([0, 0, 0, 1]),
)
CASES = st.builds(Case, st.lists(SENT, min_size=2, max_size=7).map(tuple), st.sampled_from([1, 2, 20]))


def pay() -> str:
    """Pay."""
    return "paid"


async def run(case: Case) -> None:
    gate, looking = asyncio.Event(), asyncio.Event()
    calls: defaultdict[int, list[AssembledContext]] = defaultdict(list)

    async def look() -> str:
        """Look."""
        looking.set()
        await gate.wait()
        return "seen"

    def answer(ctx: AssembledContext) -> list[Any]:
        stored = ctx.provenance.stored_event
        assert stored is not None
        calls[stored.turn].append(ctx)
        has_looked = any(list(message.results()) for message in ctx.current)
        return said("Seen.") if has_looked else said("", ToolCall(f"c{stored.turn}", "look", "{}"))

    accepted: dict[tuple[str, str], tuple[Sent, QueuedEvent]] = {}
    async with nexus.open_async(ledger=":memory:", model="gpt-4o", policy=POLICY) as nx:
        agent = Agent(nx, Scenario(answer), tools=[look, pay], builtin=False)
        async with Broker(agent, collect_s=0.005, cap=case.cap, drop="summarize") as broker:
            for sent in case.sent:
                event, key = Event((Text(sent.text),), id=sent.id), (sent.sender, sent.id)
                options: Any = {"principal": sent.sender, "system": sent.system}
                before = accepted.get(key)
                try:
                    row = await broker.submit(event, session=SESSION, mode=sent.mode, **options)
                except IdempotencyConflict:
                    assert before is not None, "a first event is nobody else's"
                    assert before[0].content != sent.content, "the same event again is no conflict"
                    continue
                assert before is None or before[0].content == sent.content, "another content under one id is an error"
                assert before is None or before[1].key == row.key
                accepted.setdefault(key, (sent, row))
                await looking.wait()
            gate.set()
            ends = [(sent, (await broker.result(row, timeout_s=30)).event) for sent, row in accepted.values()]
            await broker.join()
            rows = nx.engine.history(SESSION)
            entries = nx.engine.ledger.entries(SESSION)
    texts = Counter(message.text() for message in rows if message.role == "user")
    turns = {row.message.text(): entry.turn for entry in entries for row in entry.rows if row.message.role == "user"}
    for sent, end in ends:
        if end.state == "dropped":
            excerpts = {turn for text, turn in turns.items() if f"- {sent.text}" in text}
            assert not texts[sent.text]
            assert len(excerpts) <= 1
            check_calls(sent, [ctx for turn in excerpts for ctx in calls[turn]])
            continue
        assert end.state == "done" or end.reason.startswith("interrupted by event"), end.reason
        assert texts[sent.text] == 1, "its message is there once"
        assert turns[sent.text] == end.turn
        check_calls(sent, calls[end.turn])


def check_calls(sent: Sent, calls: list[AssembledContext]) -> None:
    for ctx in calls:
        assert {tool.name for tool in ctx.tools} <= TOOLS[sent.sender], "a sender's words reach no other's tools"
        assert ctx.provenance.settings.principal == sent.sender
        assert ctx.provenance.request is not None
        assert ctx.provenance.request.settings.system == sent.system


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_event_is_answered_once_by_a_turn_with_its_own_options(case: Case) -> None:
    asyncio.run(asyncio.wait_for(run(case), 60))


def sent(*names: str, mode: QueueMode = "collect", **fields: Any) -> tuple[Sent, ...]:
    return tuple(Sent(*name.split("/"), mode=mode, **fields) for name in names)


QUEUE, MODES_MODULE = "nexus.broker.queue:EventQueue", "nexus.broker.queue_modes"
ALIKE = "row.settings == rows[0].settings"
FIRST = (Sent("boss", "first"),)
FAULTS = [
    (
        Fault("events of all senders are joined", f"{MODES_MODULE}:next_batch", ALIKE, "True"),
        Case(FIRST + sent("guest/a", "boss/b")),
    ),
    (
        Fault("an interrupt takes all that wait", f"{MODES_MODULE}:next_batch", ALIKE, "True"),
        Case(FIRST + sent("guest/a") + sent("boss/b", mode="interrupt")),
    ),
    (
        Fault(
            "one sender's events are joined whatever their options",
            f"{MODES_MODULE}:next_batch",
            ALIKE,
            "row.principal == rows[0].principal",
        ),
        Case(FIRST + sent("boss/a") + sent("boss/b", system="Be brief.")),
    ),
    (
        Fault(
            "everybody steers",
            "nexus.broker.broker:Broker._steer",
            " or row.settings != running.settings",
            "",
        ),
        Case(FIRST + sent("guest/a", mode="steer")),
    ),
    (
        Fault(
            "everybody's dropped events are summarized",
            f"{QUEUE}.left_out",
            "elif decoded.settings == settings:",
            "else:",
        ),
        Case(FIRST + sent("guest/a", "boss/b"), cap=1),
    ),
    (
        Fault("senders share their ids", f"{QUEUE}.accept", "reason, 0, principal)", "reason, 0)"),
        Case(FIRST + sent("guest/a", "boss/a")),
    ),
    (
        Fault("another content is the same event", f"{QUEUE}.accept", "!= event_digest(event)", "is None"),
        Case(FIRST + sent("guest/a") + sent("guest/a", content=1)),
    ),
    (
        Fault("a joined event has the digest of all", f"{MODES_MODULE}:joined_event", "digests=digests", "digests={}"),
        Case(FIRST + sent("guest/a", "guest/b")),
    ),
]


@pytest.mark.parametrize(("fault", "case"), FAULTS, ids=[fault.name for fault, _ in FAULTS])
def test_broken_broker_is_found(fault: Fault, case: Case) -> None:
    asyncio.run(asyncio.wait_for(run(case), 60))
    with broken_by(fault), pytest.raises(AssertionError):
        asyncio.run(asyncio.wait_for(run(case), 60))
