"""What the users of the torture `identity` send to brokers: two programs of each tenant share its sessions.

Users have sessions of their own and share others. Their events have all queue modes and few different ids; while a turn
runs, others steer it, join it, interrupt it, or overflow its queue. The model spawns workers under equal call ids.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import apsw

import nexus
from nexus import ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.broker import Broker
from nexus.broker.queue_modes import MODES, DropPolicy
from nexus.context import AssembledContext
from nexus.errors import IdempotencyConflict, ModelCallFailed
from nexus.ledger.sessions import QueuedEvent
from nexus.ledger.sqlite import SqliteLedger
from nexus.tools import ToolRegistry
from torture.identity_judge import IDS, MARK, Ask, Judge, Talk, spoken
from torture.identity_model import FAILURE, PAUSE_S, JudgedModel

PROGRAMS: Final = 2
CAP: Final = 3
DROPS: Final[tuple[DropPolicy, ...]] = ("old", "new", "summarize")
LOOK_S: Final = 0.1
PATIENCE_S: Final = 120.0
CALL_ID: Final = "call_1"
REPORT: Final = "Report on "
SUMMARY: Final = "["
"""Beginning of the message that summarizes what a full queue left out."""
REASONS: Final = {"failed": ("interrupted by event ", FAILURE), "dropped": ("queue full",)}


@dataclass(slots=True)
class Brokers:
    """The brokers of one tenant, and the model of their agents."""

    judge: Judge
    tenant: str
    programs: list[Broker] = field(default_factory=list[Broker])
    talks: dict[str, Talk] = field(default_factory=dict[str, Talk])
    """By session."""
    questions: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    """What the model saw in the turn under way, by session."""
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """Task of the worker that a session waits for."""
    answered: defaultdict[tuple[int, str], list[list[str]]] = field(
        default_factory=lambda: defaultdict[tuple[int, str], list[list[str]]](list)
    )
    """The questions of each answer's turn, by conversation and answer."""
    accepted: dict[str, tuple[Talk, Ask]] = field(default_factory=dict[str, tuple[Talk, Ask]])
    """Accepted events by key."""

    @property
    def dice(self) -> random.Random:
        """The choices of the round."""
        return self.judge.dice

    # the model ----------------------------------------------------------------------------------------------------

    def reply(self, ctx: AssembledContext) -> nexus.Message:
        """Check a context, and return the reply."""
        return self._work(ctx) if ctx.role == "worker" else self._reply(ctx)

    def _work(self, ctx: AssembledContext) -> nexus.Message:
        """Return a worker's report: it names the task."""
        body = ctx.to_openai()
        said = spoken(body["messages"])
        task = next((text for role, text in reversed(said) if role == "user"), "")
        talk = self.judge.talks[int(MARK.findall(task)[0][2])]
        self.judge.body(talk, body)
        self.judge.require(len(said) == 1, f"a worker of {talk} has more than its task: {said}")
        self.judge.counts["contexts of workers"] += 1
        return nexus.assistant(f"{REPORT}{task}")

    def _reply(self, ctx: AssembledContext) -> nexus.Message:
        """Check the context of a session's turn, and answer it: some turns use a tool or a worker first, some fail."""
        judge, dice, label = self.judge, self.dice, ctx.session_label
        talk, body = self.talks[label], ctx.to_openai()
        said = judge.body(talk, body)
        said = [one for one in said if not (one[0] == "user" and one[1].startswith(SUMMARY))]
        judge.order(talk, said)
        results = [part for message in ctx.current for part in message.results()]
        new = [message.text() for message in ctx.current if message.role == "user"]
        principal = ctx.provenance.settings.principal
        senders = {f"u{match[2]}" for text in new for match in MARK.finditer(text)}
        judge.require(senders <= {principal}, f"a turn of {principal} in {talk} has messages of {sorted(senders)}")
        self.questions[label] = [*self.questions[label], *new] if results else new
        task = self.tasks.pop(label, "")
        if results and task:
            reports = [
                "".join(part.text for part in result.content if isinstance(part, nexus.Text)) for result in results
            ]
            judge.require(
                reports == [f"{REPORT}{task}"], f"{talk}: the reports of the worker for {task!r} are {reports}"
            )
        seen = next((text for role, text in reversed(said) if role == "user"), "")
        user = int(principal[1:])
        if not results and dice.random() < 0.05:
            raise ModelCallFailed(FAILURE, "auth")
        calls: list[ToolCall] = []
        luck = dice.random()
        if luck < 0.25:
            calls = [ToolCall(CALL_ID, "look", "{}")]
        elif luck < 0.4 and len(said) < 40:
            self.tasks[label] = f"Task {judge.mark('r', talk, user)}"
            calls = [ToolCall(CALL_ID, "spawn_worker", json.dumps({"task": self.tasks[label], "wait": True}))]
        text = judge.answer(talk, user, seen)
        if not calls:
            self.answered[talk.number, text].append(self.questions[label])
        return nexus.assistant(text, *calls)

    # the users ----------------------------------------------------------------------------------------------------

    async def user(self, user: int, sessions: Sequence[str], things: int) -> None:
        """Send events of one user, one after the other, and wait for the results of all."""
        dice, results = self.dice, list[asyncio.Task[None]]()
        for number in range(things):
            if self.judge.faults:
                break
            talk = self.talks[dice.choice(sessions)]
            text, event_id = self.judge.question(talk, user), dice.choice((f"e{number}-{user}", *IDS))
            known = talk.uses.get((user, event_id))
            text = known.text if known is not None and dice.random() < 0.7 else text
            ask = known or Ask(user, text)
            talk.uses[user, event_id] = ask
            if known is None:
                talk.asks.append(ask)
            what = f"{talk}: event {event_id!r} of user {user} ({text!r})"
            try:
                row = await dice.choice(self.programs).submit(
                    nexus.Event((nexus.Text(text),), id=event_id),
                    session=talk.label,
                    mode=dice.choice(MODES),
                    principal=f"u{user}",
                )
            except IdempotencyConflict:
                self.judge.require(ask.text != text, f"{what} was taken for another one")
                self.judge.counts["queued events refused: the id was used for another text"] += 1
                continue
            self.judge.require(ask.text == text, f"{what} was accepted, though its id had another text")
            before = self.accepted.setdefault(row.key, (talk, ask))
            self.judge.require(before[1] is ask, f"{what} was taken for {before[1].text!r} of {before[0]}")
            results.append(asyncio.ensure_future(self._result(row, talk, ask, what)))
            if dice.random() < 0.5:
                await asyncio.sleep(PAUSE_S * dice.random())
        await asyncio.gather(*results)

    async def _result(self, row: QueuedEvent, talk: Talk, ask: Ask, what: str) -> None:
        """Wait for the result of an event, and check it."""
        result = await self.dice.choice(self.programs).result(row, timeout_s=PATIENCE_S)
        state, reason = result.event.state, result.event.reason
        self.judge.counts[f"queued events {state}"] += 1
        if state != "done":
            self.judge.require(reason.startswith(REASONS[state]), f"{what} is {state}: {reason!r}")
            return
        turns = self.answered[talk.number, result.text]
        is_answered = any(ask.text in questions for questions in turns)
        self.judge.require(is_answered, f"{what} has the answer {result.text!r}, which was given to {turns}")


async def run_brokers(judge: Judge, path: Path, tenants: Sequence[str], users: int, things: int) -> None:
    """Let all users send events to the brokers of their tenants, and wait for all results."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for number, tenant in enumerate(tenants):
            brokers = Brokers(judge, tenant)
            model = JudgedModel(judge, brokers.reply)
            tools = ToolRegistry()
            tools.tool(repeatable=True)(look)
            for _ in range(PROGRAMS):
                store = SqliteLedger(str(path), tenant=tenant)
                nx = await stack.enter_async_context(nexus.open_async(ledger=store, model="gpt-4o", home=path.parent))
                agent = Agent(nx, model, tools=tools, builtin=False, workers=WorkerLimits(), profile="bare")
                broker = Broker(agent, cap=CAP, drop=judge.dice.choice(DROPS), collect_s=PAUSE_S, look_s=LOOK_S)
                brokers.programs.append(await stack.enter_async_context(broker))
            own = range(number, users, len(tenants))
            labels = [*(f"b{user}" for user in own), "team", "office"]
            for label in labels:
                owners = [int(label[1:])] if label.startswith("b") else [*own]
                brokers.talks[label] = judge.talk(tenant, owners, "brokers", label)
            for user in own:
                group.create_task(brokers.user(user, (f"b{user}", "team", "office"), things))


async def look() -> str:
    """Look."""
    await asyncio.sleep(PAUSE_S)
    return "seen"


def unsettled(path: Path) -> list[tuple[str, str]]:
    """Return key and state of events that have not ended, or have no reason, read without Nexus."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        sql = "SELECT id, state FROM event WHERE state NOT IN ('done', 'failed', 'dropped') OR (state!='done' AND reason='')"
        return [(str(key), str(state)) for key, state in db.execute(sql).fetchall()]
    finally:
        db.close()
