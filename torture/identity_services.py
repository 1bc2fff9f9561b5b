"""What the users of the torture `identity` send to services: runs, commands and requests for contexts on a bus.

Each tenant has a bus in this process with the services of two programs. The owners have the same keys in all tenants, and
many runs the same ids. Some users ask for the runs and contexts of others, and as another tenant: all of that is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

import nexus
from nexus import ToolCall
from nexus.bus import Bus, Message, open_bus
from nexus.context import AssembledContext
from nexus.errors import BusError, BusRequestFailed, ModelCallFailed
from nexus.ledger.sqlite import SqliteLedger
from nexus.services import Run, RunClient, RunMetadata, Topics
from nexus.services.messages import BuildRequest, StoredCall
from nexus.services.orchestrator import RunState
from nexus.services.serve import serve
from nexus.types.stream_events import Token
from torture.identity_brokers import CALL_ID, LOOK_S, PATIENCE_S, PROGRAMS, look
from torture.identity_judge import IDS, Ask, Judge, Spoken, Talk, about, exchanges, first_missing, spoken
from torture.identity_model import FAILURE, PAUSE_S, JudgedModel

AT_ONCE: Final = 24
"""Users who send runs at the same time: a command has to be answered before its deadline."""

CANCELED: Final = "canceled"
REFUSALS: Final = ("NotAccepted", "NotAllowed")
METADATA: Final = RunMetadata("2026-11-24T08:00:00Z", -60)
"""The same for all, so that contexts differ in their words alone."""

ENTRY: Final = re.compile(r"(?:\[[^\]]*\] (Human|Nexus)|  (Nexus)): (.*)")
INPUT: Final = re.compile(r"<human_input>\n(.*)\n</human_input>", re.DOTALL)


@dataclass(slots=True)
class Services:
    """The bus of one tenant, its users, and the model of the services."""

    judge: Judge
    tenant: str
    bus: Bus
    talks: dict[str, Talk] = field(default_factory=dict[str, Talk])
    """By the owner key of the user."""
    accepted: list[tuple[Talk, str]] = field(default_factory=list[tuple[Talk, str]])
    """Accepted runs whose id nobody else has."""
    answered: defaultdict[int, set[Spoken]] = field(default_factory=lambda: defaultdict[int, set[Spoken]](set))
    """Questions with the answers that ended their turns, by conversation."""
    turns: defaultdict[int, dict[int, Ask]] = field(default_factory=lambda: defaultdict[int, dict[int, Ask]](dict))
    """Runs that are done, by conversation and turn."""
    canceled: set[Ask] = field(default_factory=set[Ask])
    """Runs that their own users canceled."""

    # the model ----------------------------------------------------------------------------------------------------

    def reply(self, ctx: AssembledContext) -> nexus.Message:
        """Check the context of a run, and answer it: some runs use a tool first, some fail."""
        judge, dice = self.judge, self.judge.dice
        talk, body = self.talks[ctx.session_label.removeprefix("dm:")], ctx.to_openai()
        said = self._check(talk, body)
        seen, starts_turn = next(text for role, text in reversed(said) if role == "user"), said[-1][0] == "user"
        # The call of a canceled run may come here after later turns.
        is_canceled = any(ask.text == seen and ask in self.canceled for ask in talk.asks)
        judge.order(talk, said, known=0 if is_canceled else len(talk.answered))
        if starts_turn and dice.random() < 0.05:
            raise ModelCallFailed(FAILURE, "auth")
        calls = [ToolCall(CALL_ID, "look", "{}")] if starts_turn and dice.random() < 0.3 else []
        text = judge.answer(talk, talk.users[0], seen)
        if not calls:
            self.answered[talk.number].add((seen, text))
        return nexus.assistant(text, *calls)

    def _check(self, talk: Talk, body: dict[str, Any]) -> list[Spoken]:
        """Check whose words and profile a context has; return what is said in it."""
        user = talk.users[0]
        self.judge.whose(talk, body, about(self.tenant, user) if _has_profile(user) else "")
        return _dialogue(body["messages"])

    # the users ----------------------------------------------------------------------------------------------------

    async def user(self, key: str, things: int) -> None:
        """Send runs of one user, one after the other, and wait for the ends of all."""
        judge, talk, ends = self.judge, self.talks[key], list[asyncio.Task[None]]()
        (user,) = talk.users
        for number in range(things):
            if judge.faults:
                break
            text, run_id = judge.question(talk, user), judge.dice.choice((f"r{number}-{user}", *IDS))
            known = talk.uses.get((user, run_id))
            text = known.text if known is not None and judge.dice.random() < 0.7 else text
            ask = known or Ask(user, text)
            talk.uses[user, run_id] = ask
            if known is None:
                talk.asks.append(ask)
            run = _run(self.tenant, user, key, text, run_id)
            what = f"{talk}: run {run_id!r} of user {user} ({text!r})"
            if await self._accept(run, ask, what):
                if run_id not in IDS:
                    self.accepted.append((talk, run_id))
                ends.append(asyncio.ensure_future(self._end(run, talk, ask, what)))
            if judge.dice.random() < 0.2:
                await self._request_context(key, talk)
            if judge.dice.random() < 0.2:
                await self._intrude(key, talk)
            await asyncio.sleep(PAUSE_S * judge.dice.random())
        await asyncio.gather(*ends)

    async def _accept(self, run: Run, ask: Ask, what: str) -> bool:
        """Send a run, and return whether it was accepted."""
        try:
            await RunClient(self.bus).accept(run, METADATA, timeout_s=PATIENCE_S)
        except BusRequestFailed as refused:
            is_taken = refused.error_code == "idempotency_conflict" and ask.text != run.current_input
            self.judge.require(is_taken, f"{what} was refused: {refused}")
            self.judge.counts["runs refused: the id was used for another text"] += 1
            return False
        self.judge.require(ask.text == run.current_input, f"{what} was accepted, though its id had another text")
        return True

    async def _end(self, run: Run, talk: Talk, ask: Ask, what: str) -> None:
        """Wait for the end of an accepted run, maybe with its events or after a cancellation, and check it."""
        luck, client = self.judge.dice.random(), RunClient(self.bus)
        try:
            if luck < 0.1:
                self.canceled.add(ask)
                await client.cancel(run.id, run.owner_key)
            elif luck < 0.3:
                await self._watch(client, run, talk)
            end = await client.run(run, METADATA, timeout_s=PATIENCE_S)
        except BusError as error:
            self.judge.faults.append(f"{what} has no end: {error}")
            return
        self.judge.counts[f"runs {end.state}"] += 1
        if end.state != "done":
            is_expected = end.reason.startswith(FAILURE) or (end.reason == CANCELED and ask in self.canceled)
            self.judge.require(is_expected, f"{what} is {end.state}: {end.reason!r}")
            return
        self._answer(talk, ask, end, what)

    async def _watch(self, client: RunClient, run: Run, talk: Talk) -> None:
        """Take the events of a run, and check that they are of its conversation."""
        async for item in client.stream(run, METADATA, timeout_s=PATIENCE_S):
            if isinstance(item, Token):
                self.judge.only(talk, item.text, "an event")
                self.judge.counts["events of runs"] += 1

    def _answer(self, talk: Talk, ask: Ask, end: RunState, what: str) -> None:
        """Check the answer of a run: it was given to its question, in a turn of its own."""
        is_given = (ask.text, end.text) in self.answered[talk.number]
        self.judge.require(is_given, f"{what} has the answer {end.text!r}, which it was not given")
        self.judge.require(ask.answer in ("", end.text), f"{what} has the answer {end.text!r} after {ask.answer!r}")
        turns = self.turns[talk.number]
        other = turns.setdefault(end.turn, ask)
        self.judge.require(other is ask, f"{what} has the turn of {other.text!r}")
        ask.answer = end.text
        self.judge.due.add(end.text)
        talk.answered[:] = [(ask.text, ask.answer) for _, ask in sorted(turns.items(), key=lambda item: item[0])]

    async def _request_context(self, key: str, talk: Talk) -> None:
        """Request a context without a run."""
        (user,) = talk.users
        text = self.judge.question(talk, user)
        request, known = BuildRequest(_run(self.tenant, user, key, text, "no run"), METADATA), [*talk.answered]
        answer = await self.bus.request(self._message(request), timeout_s=PATIENCE_S)
        *said, asked = self._check(talk, answer.content)
        self.judge.require(asked == ("user", text), f"a context of {talk} asks {asked}, not {text!r}")
        self.judge.order(talk, said)
        missing = first_missing(known, exchanges(said))
        self.judge.require(missing is None, f"a context of {talk} lacks the answer {missing}")

    async def _intrude(self, key: str, talk: Talk) -> None:
        """Ask for a run or a context of another user, or as another tenant."""
        others = [item for item in self.accepted if item[0] is not talk]
        if not others:
            return
        other, run_id = self.judge.dice.choice(others)
        owner, client = other.label.removeprefix("dm:"), RunClient(self.bus)
        stranger = RunClient(self.bus, tenant=f"not {self.tenant}")
        call = StoredCall(other.label, 1 + self.judge.dice.randrange(3))
        request = BuildRequest(Run(key, "Hi", "no run"), METADATA, call=call)
        attempts: dict[str, Callable[[], Awaitable[Any]]] = {
            "result": lambda: client.result(run_id, key, wait_s=PATIENCE_S),
            "cancellation": lambda: client.cancel(run_id, key),
            "context": lambda: self.bus.request(self._message(request), timeout_s=PATIENCE_S),
            "result as another tenant": lambda: stranger.result(run_id, owner, wait_s=PATIENCE_S),
            "cancellation as another tenant": lambda: stranger.cancel(run_id, owner),
            "repetition as another tenant": lambda: stranger.accept(Run(owner, "Hi", run_id)),
        }
        what = self.judge.dice.choice([*attempts])
        try:
            got, is_refused = await attempts[what](), False
        except BusRequestFailed as refused:
            got, is_refused = refused, refused.kind in REFUSALS
        asked = f"user {key!r} asked for the {what} of run {run_id!r} of {other}"
        self.judge.require(is_refused, f"{asked}, and got {got!s:.200}")
        self.judge.counts[f"refused to another user: {what}"] += 1

    def _message(self, request: BuildRequest) -> Message:
        return Message(Topics.CONTEXT_BUILD_REQUEST, msgspec.to_builtins(request), tenant=self.tenant)


async def run_services(judge: Judge, path: Path, tenants: Sequence[str], users: int, things: int) -> None:
    """Let all users send runs to the services of their tenants, and wait for all ends."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def talk(services: Services, key: str) -> None:
        async with slots:
            await services.user(key, things)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for number, tenant in enumerate(tenants):
            bus = await open_bus()
            stack.push_async_callback(bus.close)
            services = Services(judge, tenant, bus)
            model = JudgedModel(judge, services.reply)
            for _ in range(PROGRAMS):
                store = SqliteLedger(str(path), tenant=tenant)
                opening = nexus.open_async(ledger=store, model="gpt-4o", home=path.parent, local_user=tenant == "local")
                nx = await stack.enter_async_context(opening)
                await stack.enter_async_context(serve(bus, nx, model, tool_registry=[look], look_s=LOOK_S))
            for user in range(number, users, len(tenants)):
                key = f"owner{user // len(tenants)}"
                services.talks[key] = judge.talk(tenant, (user,), "services", f"dm:{key}")
                if user % 2:
                    nx.engine.user_profiles.put(key, {"friends_profile": about(tenant, user)})
            for key in services.talks:
                group.create_task(talk(services, key))


def _has_profile(user: int) -> bool:
    """Return whether a user has a profile: in the ledger, or in each run."""
    return user % 4 != 0


def _run(tenant: str, user: int, key: str, text: str, run_id: str) -> Run:
    is_sent = _has_profile(user) and not user % 2
    return Run(key, text, run_id, {"friends_profile": about(tenant, user)} if is_sent else {})


def _dialogue(messages: Sequence[dict[str, Any]]) -> list[Spoken]:
    """Return what is said in the five messages of a tagged dialogue and those after them."""
    said = list[Spoken]()
    for role, text in spoken(messages):
        if text.startswith("[SHARED_MEMORY"):
            said += [
                ("user" if entry[1] == "Human" else "assistant", entry[3])
                if (entry := ENTRY.fullmatch(line))
                else ("assistant", line)
                for line in text.split("\n")[3:]
                if line and not line.startswith(("[tool_use", "(No earlier"))
            ]
        elif text.startswith("[THIS_MOMENT]"):
            said += [(role, item) for item in INPUT.findall(text)]
        elif not text.startswith(("[CAPABILITIES]", "[FRIENDS_INFO]")):
            said.append((role, text))
    return said
