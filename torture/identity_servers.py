"""What the users of the torture `identity` ask of a server: turns of their own loops, by its methods, without HTTP.

Each agent has one server, whose contexts it records to, and two devices that begin turns at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import nexus
from nexus.errors import LateReply, NexusError
from nexus.models import Models
from nexus.server.jsonrpc import RpcError
from nexus.server.service import Service
from nexus.server.tenants import ServeOptions, Tenants
from torture.identity_judge import IDS, Ask, Judge, Spoken, Talk

DEVICES: Final = 2
PAUSE_S: Final = 0.002


@dataclass(slots=True)
class Device:
    """One of the programs with which a user talks to an agent."""

    judge: Judge
    service: Service
    talk: Talk
    user: int
    name: str

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method of the agent."""
        return await self.service.call(self.talk.tenant, method, params, agent_id=self.talk.label)

    async def use(self, things: int) -> None:
        """Take turns, and send lists now and then. Another device may supersede each turn."""
        items = list[Spoken]()
        for number in range(things):
            await asyncio.sleep(PAUSE_S * self.judge.dice.random())
            if self.judge.faults:
                return
            try:
                await (self._turn(number) if self.judge.dice.random() < 0.7 else self._list(items))
            except LateReply as late:
                self.judge.counts["server: late replies"] += bool(late.stored_as)
            except (RpcError, NexusError) as error:
                self.judge.counts[f"server: given up: {type(error).__name__}"] += 1

    async def _turn(self, number: int) -> None:
        judge, talk = self.judge, self.talk
        request, text = judge.dice.choice((f"{self.name}{number}", *IDS)), judge.question(talk, self.user)
        known = talk.uses.get((self.user, request))
        if known is not None:
            text = known.text
        ask = known or Ask(self.user, text)
        talk.uses[self.user, request] = ask
        talk.asks += [] if known else [ask]
        turn = await self.call("begin", content=text, request_id=request)
        if turn.status == "completed":
            return
        built = await self.call("assemble", format="openai")
        if built.turn != turn.turn:  # the other device has begun another turn meanwhile
            return
        said = judge.body(talk, built.body)
        judge.order(talk, said, known=0)
        seen = said[-1][1]
        judge.require(seen == text, f"a context of {talk} asks {seen!r}, not {text!r}")
        answer = judge.answer(talk, self.user, seen)
        await asyncio.sleep(PAUSE_S * judge.dice.random())
        recorded = await self.call("record", reply=answer, context_id=built.context_id)
        judge.require(recorded.turn == turn.turn, f"{answer!r} of turn {turn.turn} of {talk} is in {recorded.turn}")
        judge.due.add(answer)
        judge.counts["server: replies recorded"] += 1

    async def _list(self, items: list[Spoken]) -> None:
        judge, talk = self.judge, self.talk
        sent = [*items, ("user", judge.question(talk, self.user))]
        messages = [{"role": role, "content": text} for role, text in sent]
        built = await self.call("mirror", messages=messages, conversation=self.name, format="openai")
        seen = judge.exact(talk, built.body, sent, sent)
        answer = judge.answer(talk, self.user, seen)
        await self.call("record", reply=answer, context_id=built.context_id)
        judge.due.add(answer)
        items[:] = [*sent, ("assistant", answer)]
        judge.counts["server: lists recorded"] += 1


async def run_server(
    judge: Judge, open_engine: Callable[[str], nexus.Engine], tenants: Sequence[str], users: int, things: int
) -> None:
    """Let all users of all tenants talk to agents of one server."""
    async with Models({}) as models:
        served = Tenants(open_engine, models, options=ServeOptions(builtin=False, grace_s=1.0))
        service = Service(served)
        try:
            async with asyncio.TaskGroup() as group:
                for user in range(users):
                    talk = judge.talk(tenants[user % len(tenants)], (user,), "a server's turns and lists", f"s{user}")
                    settings = {"agent_id": talk.label, "principal": f"u{user}", "profile": "bare"}
                    await service.call(talk.tenant, "create_agent", settings)
                    for device in range(DEVICES):
                        group.create_task(Device(judge, service, talk, user, f"d{device}").use(things))
        finally:
            await served.close()
