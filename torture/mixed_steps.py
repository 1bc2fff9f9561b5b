"""What the tasks and threads of `torture.mixed_load` do: turns, lists, compactions, undos and forks, with scripted replies.

A way of talking is a generator that yields wherever another program may come between, so that tasks and threads share it.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

import nexus
from nexus.errors import NexusError
from torture import talks, traffic
from torture.figures import require

Steps: TypeAlias = Generator[None]

SESSIONS: Final = 12
SCOPES: Final = 4
EVENTS: Final = 40
"""Ids of events of one session that may be sent again."""

MODELS: Final = {"gpt-4o": 1.0, "claude-sonnet-4-5": 3.0, "claude-opus-4-1": 3.0, "gemini-2.5-pro": 1.2}
"""Models, with their tokens per base token of these texts, rounded up."""

PROFILES: Final = ("layered", "bare", "tagged", "tagged_stable", "turnlog", "workspace")
LIST_PROFILES: Final = ("bare", "bare", "turnlog", "tagged")
BUDGETS: Final = (900, 1_300, 1_900, 3_000)
MORE_TOKENS: Final = {"tagged": 3_300, "tagged_stable": 3_300, "turnlog": 400}
"""Base tokens of the system prompts of some profiles."""

USUAL: Final = 2
"""Kinds of calls that a session usually has, of a model, a profile and a budget. Other kinds are rarer."""

TOOLS: Final = ({"name": "run", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}},)
EXPECTED: Final = (NexusError, OverflowError, TimeoutError)
"""Errors that end what was being done: others came first, the budget is too small, or the model failed."""

FEWEST, MOST = 2, 14
"""Messages of a client's list."""


@dataclass(slots=True)
class Talker:
    """One task or thread: its engine, its dice, and what it counted."""

    nx: nexus.Engine
    name: str
    dice: random.Random
    sessions: list[str]
    blocks: bool
    """True for a thread, which may wait; tasks share their engine's thread."""
    counts: Counter[str] = field(default_factory=Counter[str])

    def options(self, session: str, profiles: Sequence[str] = PROFILES) -> dict[str, Any]:
        """Return the arguments of a call."""
        usual = random.Random(f"{session} {self.dice.randrange(USUAL)}")
        dice = usual if self.dice.random() < 0.8 else self.dice
        tools = {"tools": TOOLS} if dice.random() < 0.7 else {}
        profile, model = dice.choice(profiles), dice.choice([*MODELS])
        budget = int(MODELS[model] * (dice.choice(BUDGETS) + MORE_TOKENS.get(profile, 0)))
        return {"model": model, "profile": profile, "budget": budget, **tools}

    def session(self) -> str:
        """Return the label of a session that all share, or of a fork."""
        return self.dice.choice(self.sessions)

    def event(self, session: str) -> nexus.Event:
        """Return a user's message. Some have an id that others use at the same time for the same message."""
        dice = self.dice
        if dice.random() < 0.3:
            number = dice.randrange(EVENTS)
            same = random.Random(f"{session} {number}")
            parts = (nexus.Text(talks.prose(same, same.randint(3, 60))),)
            return nexus.Event(parts, id=f"{session}-{number}", at_ms=traffic.FIRST_MS + number)
        text = nexus.Text(f"{self.name} asks. {talks.prose(dice, dice.randint(1, 80))}")
        return nexus.Event((text, _picture(dice)) if dice.random() < 0.15 else (text,))

    def reply(self, ctx: nexus.AssembledContext) -> nexus.AgentResult:
        """Return the model's reply, after checking that the hash that will be recorded is that of the body as sent."""
        dice = self.dice
        body = ctx.to_provider(ctx.accounting.model_info.provider_format)
        sent = hashlib.sha256(msgspec.json.encode(body)).hexdigest()
        require(sent == ctx.body_hash, f"{ctx.session_label}: the body of a call has another hash than its context")
        calls = [
            nexus.ToolCall(f"call_{dice.randrange(1 << 20)}", "run", '{"command": "make"}')
            for _ in range(dice.choice((0, 0, 1, 2)) if ctx.tools else 0)
        ]
        usage = nexus.TokenUsage(int(ctx.token_budget.used.total * dice.uniform(0.8, 1.4)), 40)
        text = talks.prose(dice, dice.randint(1, 90))
        return nexus.AgentResult((nexus.assistant(text, *calls),), usage)

    def answer(self, ctx: nexus.AssembledContext) -> nexus.AgentResult:
        """Return the reply to a call of `nexus.call`. Some contexts are too large for the model, or the call fails."""
        if (luck := self.dice.random()) < 0.1:
            raise OverflowError("This model's maximum context length is 1500 tokens. Please reduce your prompt.")
        if luck < 0.15:
            raise TimeoutError("the model did not answer")
        return self.reply(ctx)

    def result(self) -> str:
        """Return a tool's result."""
        return talks.lines(self.dice, self.dice.randint(1, 9))

    def talk(self) -> Steps:
        """Take one turn by `begin`, with results that come late or never, failures, and a reply that broke off."""
        dice, session = self.dice, self.session()
        turn = self.nx.begin(self.event(session), session=session, **self.options(session))
        for _ in range(dice.randint(1, 4)):
            yield
            if not turn.is_open:
                return
            ctx = turn.assemble() if dice.random() < 0.6 else turn.assemble(**self.options(session))
            yield
            reply = self.reply(ctx)
            if dice.random() < 0.08:
                turn.fail("timeout", "broke off", partial=reply.messages[0])
                yield
                again = self.nx.current_turn(session, **self.options(session))
                if again is None:
                    return
                turn = again
                continue
            turn.record(reply)
            self.counts["calls of turns recorded"] += 1
            if not reply.tool_calls:
                return
            waiting = [*reply.tool_calls]
            dice.shuffle(waiting)
            for call in waiting:
                yield
                if dice.random() < 0.85:
                    turn.result(call.id, self.result())
        yield
        turn.fail_if_open("timeout", "given up")

    def assemble(self) -> Steps:
        """Assemble a call without a turn and record its reply, with its results in further calls."""
        session = self.session()
        options = self.options(session)
        event: Any = self.event(session)
        for _ in range(3):
            ctx = self.nx.assemble(event, session=session, **options)
            yield
            reply = self.reply(ctx)
            self.nx.record(ctx, reply)
            self.counts["calls recorded"] += 1
            if not reply.tool_calls:
                return
            yield
            event = [nexus.tool(call.id, self.result(), "run") for call in reply.tool_calls]

    def mirror(self) -> Steps:
        """Send a list that grows; several clients of one scope send the same one, or one with an edited message."""
        dice = self.dice
        scope = f"scope{dice.randrange(SCOPES)}"
        same, edited = random.Random(scope), dice.random() < 0.2
        count = dice.randrange(FEWEST, MOST, 2)
        items = [{"role": role, "content": talks.prose(same, 30)} for role in ("user", "assistant") * (MOST // 2)]
        items = items[: count + 1]
        if edited:
            items[dice.randrange(len(items))] = {"role": "user", "content": talks.prose(dice, 20)}
        if items[-1]["role"] != "user":
            items.pop()
        ctx = self.nx.mirror(items, scope=scope, **self.options(scope, LIST_PROFILES))
        yield
        reply = self.reply(ctx)
        if dice.random() < 0.6:  # what the other clients have next
            reply = nexus.AgentResult((nexus.assistant(_after(scope, len(items))),), reply.usage)
        self.nx.record(ctx, reply)
        self.counts["calls of lists recorded"] += 1

    def call(self) -> Steps:
        """Make a whole call with recovery."""
        session = self.session()
        yield
        nexus.call(self.nx, self.event(session), self.answer, session=session, wait=20, **self.options(session))
        self.counts["calls by nexus.call"] += 1

    def pin(self) -> Steps:
        """Pin a message, or take a pin back."""
        session = self.session()
        entries = [entry for entry in self.nx.ledger.entries(session) if entry.rows]
        yield
        if entries:
            place = self.dice.choice(entries).rows[-1].ref
            is_pinned = place in self.nx.ledger.live(session).pins
            (self.nx.ledger.unpin if is_pinned else self.nx.ledger.pin)(session, place)
            self.counts["pins and unpins"] += 1

    def compact(self) -> Steps:
        """Compact a session, by a plan that is some time old."""
        session = self.session()
        options = self.options(session)
        plan = self.nx.plan(session, share=self.dice.uniform(0.2, 0.6), **options)
        yield
        if plan is not None:
            self.nx.compact(session, plan=plan)
            self.counts["compactions"] += 1

    def undo(self) -> Steps:
        """Undo a compaction, or an undo."""
        session = self.session()
        yield
        (self.nx.ledger.undo if self.dice.random() < 0.7 else self.nx.ledger.redo)(session)
        self.counts["undos and redos"] += 1

    def fork(self) -> Steps:
        """Fork a session at its end or in its past, and use the fork like the others."""
        session, label = self.session(), f"fork {self.name} {len(self.sessions)}"
        turns = self.nx.ledger.thread_info(session).turn
        yield
        turn = self.dice.randint(max(turns - 3, 0), turns) if self.dice.random() < 0.5 else None
        self.nx.ledger.fork(label, session, turn=turn)
        self.sessions.append(label)
        self.counts["forks"] += 1

    def rewind(self) -> Steps:
        """Take a session back by a turn or two."""
        session = self.session()
        turns = self.nx.ledger.thread_info(session).turn
        yield
        self.nx.ledger.rewind(session, turn=max(turns - self.dice.randint(0, 2), 0))
        self.counts["rewinds"] += 1

    def steps(self) -> Steps:
        """Do one thing. An error of ours ends it: others came first, or the budget is too small."""
        ways: tuple[tuple[Callable[[], Steps], int], ...] = (
            (self.talk, 8),
            (self.assemble, 5),
            (self.mirror, 4),
            (self.call, 3 * self.blocks),
            (self.compact, 2),
            (self.undo, 1),
            (self.pin, 1),
            (self.fork, 1),
            (self.rewind, 1),
        )
        (way,) = self.dice.choices([way for way, _ in ways], [weight for _, weight in ways])
        try:
            yield from way()
        except EXPECTED as error:
            self.counts[f"refused: {type(error).__name__}"] += 1


def _after(scope: str, count: int) -> str:
    same = random.Random(scope)
    return [talks.prose(same, 30) for _ in range(MOST)][min(count, MOST - 1)]


def _picture(dice: random.Random) -> nexus.Image:
    data = base64.b64encode(dice.randbytes(60)).decode()
    return nexus.Image("image/png", data=data, width=dice.choice((32, 200)), height=64)
