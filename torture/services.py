"""Services in three processes on NATS and PostgreSQL: processes, the bus and the database are killed under load.

Requests for contexts come for many users, and runs for some of them. Every request must be answered or fail before its
deadline, every run must have one turn with its own reply, and no answer may contain a word of another user or tenant.
Then the same load goes to the services in one process, on the bus in process and SQLite, without kills.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nexus
from nexus.bus import Bus, Message, open_bus
from nexus.bus.message import now_ms
from nexus.errors import BusError, BusRequestFailed
from nexus.ledger.postgres import PostgresLedger
from nexus.ledger.sqlite import SqliteLedger
from nexus.models import open_client
from nexus.services import Run, RunClient, Topics
from nexus.services.persistence import owner_session
from nexus.services.serve import serve
from nexus.testing.model_server import ModelRequest, Response, model_server, reply
from torture.figures import Figures, Progress, require
from torture.nats_server import NatsServer
from torture.postgres_server import PostgresServer

NAME = "services"
ROUNDS = 1_000
"""Users whose contexts are requested; a fifth of them has runs."""

BUILDS, TURNS = 20, 5
"""Requests for contexts of a user, and runs of one that has some."""

PROCESSES = 3
KILLS = {"process": 6, "bus": 2, "database": 2}
DEADLINE_S, SHORT_DEADLINE_S = 30.0, 10.0
"""Of a request; the short one in a run of fewer users."""

SLACK_S = 5.0
"""How late the failure of a request may be seen on a busy machine."""

RUN_S = 600.0
AT_ONCE = 48
MODEL = "gpt-4o"
SECRET = "word of another tenant"

ANSWERED, FAILED, DONE, REPEATED = "requests answered", "requests failed", "runs done", "runs sent again"


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Put the load on the services. Raises AssertionError with what was lost, doubled or crossed."""
    load = _Load(rounds, seed, progress)
    folder.mkdir(exist_ok=True)
    asyncio.run(load.on_processes(folder))
    counts = dict(load.counts)
    calm = _Load(rounds, seed, progress)
    asyncio.run(calm.in_process(folder / "in_process.db"))
    require(not calm.counts[FAILED], f"requests failed without a kill: {calm.counts}")
    counts |= {f"in process: {name}": count for name, count in calm.counts.items()}
    return Figures(NAME, rounds, counts)


class _Load:
    """Requests and runs of many users, and what became of them."""

    def __init__(self, users: int, seed: int, progress: Progress) -> None:
        self.users, self.runners = users, max(users // 5, 1)
        self.dice, self._progress = random.Random(seed), progress
        self.counts = Counter[str]({ANSWERED: 0, FAILED: 0, DONE: 0, REPEATED: 0})
        self.done, self.all = 0, users * BUILDS + self.runners * TURNS
        self.deadline_s = DEADLINE_S if users >= ROUNDS else SHORT_DEADLINE_S
        self.slowest_s = 0.0
        self._moved = asyncio.Event()

    # where it goes -----------------------------------------------------------------------------------------------

    async def on_processes(self, folder: Path) -> None:
        """Run processes of `nexus services run`, and kill them, the bus and the database meanwhile."""
        database = PostgresServer(("recovery_init_sync_method = syncfs",))
        bus_server = NatsServer(folder / "nats")
        url = database.new_ledger()
        try:
            await asyncio.to_thread(_add_other_tenant, lambda tenant: PostgresLedger(url, tenant=tenant), self.runners)
            with scripted_model() as model_url:
                command = member_command(bus_server.url, url, model_url)
                members = [Member(command, folder) for _ in range(PROCESSES)]
                try:
                    await asyncio.gather(*(asyncio.to_thread(member.start) for member in members))
                    bus = await open_bus(bus_server.url)
                    killing = asyncio.ensure_future(self._kill(members, bus_server, database))
                    try:
                        await self._put_load_on(bus)
                        await killing
                    finally:
                        killing.cancel()
                        await asyncio.gather(killing, return_exceptions=True)
                        await bus.close()
                finally:
                    for member in members:
                        member.end()
            await asyncio.to_thread(self._check, lambda tenant: PostgresLedger(url, tenant=tenant))
        finally:
            bus_server.stop()
            database.stop()

    async def in_process(self, file: Path) -> None:
        """Run the services in this process."""
        _add_other_tenant(lambda tenant: SqliteLedger(str(file), tenant=tenant), self.runners)
        with scripted_model() as model_url:
            models, bus = open_client(base_url=model_url, api_key="test"), await open_bus()
            async with nexus.open_async(ledger=str(file), model=MODEL) as nx, serve(bus, nx, models):
                await self._put_load_on(bus)
            await bus.close()
            await models.aclose()
        self._check(lambda tenant: SqliteLedger(str(file), tenant=tenant))

    async def _kill(self, members: list[Member], bus: NatsServer, database: PostgresServer) -> None:
        """Kill one thing after the other, each at a share of the work."""
        kinds = [kind for kind, count in KILLS.items() for _ in range(count)]
        self.dice.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            while self.done < self.all * number // (len(kinds) + 2):
                self._moved.clear()
                await self._moved.wait()
            if kind == "process":
                member = self.dice.choice(members)
                member.end()
                await asyncio.to_thread(member.start)
            elif kind == "bus":
                bus.stop(kill=True)
                await asyncio.to_thread(bus.start)
            else:
                await asyncio.to_thread(database.kill)
                await asyncio.to_thread(database.start)
            self.counts[f"kills: {kind}"] += 1

    # the load ----------------------------------------------------------------------------------------------------

    async def _put_load_on(self, bus: Bus) -> None:
        slots, client = asyncio.Semaphore(AT_ONCE), RunClient(bus)

        async def within(work: Callable[..., Any], *args: Any) -> None:
            async with slots:
                await work(*args)

        async with asyncio.TaskGroup() as group:
            for user in range(self.users):
                if user < self.runners:
                    group.create_task(within(self._send_runs, client, user))
                group.create_task(within(self._request_contexts, bus, user))

    async def _request_contexts(self, bus: Bus, user: int) -> None:
        for number in range(BUILDS):
            text = f"Request {number} of user {user}."
            content = {
                "run": {"owner_key": f"user-{user}", "current_input": text, "id": f"b-{user}-{number}"},
                "metadata": {"client_timestamp_utc": "2026-11-24T08:00:00Z", "client_timezone_offset": -60},
            }
            deadline_ms = now_ms() + round(1000 * self.deadline_s)
            message = Message(
                Topics.CONTEXT_BUILD_REQUEST,
                content,
                session=f"user-{user}",
                tenant="local",
                deadline_ms=deadline_ms,
            )
            began_s = time.monotonic()
            try:
                answer = await bus.request(message)
            except BusError as error:
                self.counts[FAILED] += 1
                kind = error.kind if isinstance(error, BusRequestFailed) else type(error).__name__
                self.counts[f"{FAILED}: {kind}"] += 1
                if type(error).__name__ == "BusNoResponder":
                    await asyncio.sleep(0.1)  # all processes, or the bus, are starting again
            else:
                self.counts[ANSWERED] += 1
                _check_context(answer.content, user, text)
            took_s = time.monotonic() - began_s
            self.slowest_s = max(self.slowest_s, took_s)
            require(took_s < self.deadline_s + SLACK_S, f"request {number} of user {user} took {took_s:.0f} s")
            self._count()

    async def _send_runs(self, client: RunClient, user: int) -> None:
        for turn in range(TURNS):
            run_ = Run(f"user-{user}", _text(user, turn), f"run-{user}-{turn}")
            end = None
            until = time.monotonic() + RUN_S
            while end is None:
                try:
                    end = await client.run(run_, timeout_s=RUN_S)
                except BusRequestFailed as failed:  # the database is starting again: the same id is the same run
                    require(time.monotonic() < until, f"run {run_.id}: {failed}")
                    self.counts[REPEATED] += 1
                    await asyncio.sleep(0.2)
            require(end.state == "done", f"run {run_.id} is {end.state}: {end.reason}")
            require(end.text == _reply_text(user, turn), f"run {run_.id} has the reply {end.text!r}")
            self.counts[DONE] += 1
            if self.dice.random() < 0.2:
                with suppress(BusError):
                    await client.accept(run_, timeout_s=self.deadline_s)
                    self.counts[REPEATED] += 1
            self._count()

    def _count(self) -> None:
        self.done += 1
        self._moved.set()
        self._progress(self.done, self.all)

    # checks ------------------------------------------------------------------------------------------------------

    def _check(self, open_ledger: Callable[[str], Any]) -> None:
        """Check that each run has one turn, with its reply, and that the other tenant has what it had."""
        with nexus.open(ledger=open_ledger("local"), model=MODEL) as nx:
            for user in range(self.runners):
                label = owner_session(f"user-{user}")
                stored = [(m.role, m.text()) for m in nx.history(label) if m.role in ("user", "assistant")]
                asked = [text for role, text in stored if role == "user"]
                replies = [text for role, text in stored if role == "assistant" and text]
                require(asked == [_text(user, turn) for turn in range(TURNS)], f"user {user} asked {asked}")
                wanted = [_reply_text(user, turn) for turn in range(TURNS)]
                # A process that was killed leaves its reply unstored; a reply that was stored is never asked for again.
                require(replies == wanted, f"user {user} has the replies {replies}")
                ends = [turn.status for turn in nx.ledger.turns(label)]
                require(ends == ["completed"] * TURNS, f"turns of user {user}: {ends}")
        with nexus.open(ledger=open_ledger("other"), model=MODEL) as nx:
            labels = {info.label for info in nx.sessions(include_inactive=True)}
            require(
                labels == {owner_session(f"user-{user}") for user in range(self.runners)}, f"other tenant: {labels}"
            )
        self.counts["slowest request, ms"] = round(1000 * self.slowest_s)


def _add_other_tenant(open_ledger: Callable[[str], Any], users: int) -> None:
    """Give another tenant sessions of the same labels."""
    with nexus.open(ledger=open_ledger("other"), model=MODEL) as nx:
        for user in range(users):
            nx.add_system_message(f"{SECRET} {user}", session=owner_session(f"user-{user}"))
    with nexus.open(ledger=open_ledger("local"), model=MODEL):
        pass  # so that three processes need not create it at once


def _answer(request: ModelRequest) -> Response:
    """Return the scripted model's reply to the text in the last message."""
    text = json.dumps(request.body["messages"][-1]["content"])
    user, turn = text.rpartition("User ")[2].partition(" asks ")[::2]
    return reply(_reply_text(int(user), int(turn.partition(".")[0])))(request)


def _text(user: int, turn: int) -> str:
    return f"User {user} asks {turn}."


def _reply_text(user: int, turn: int) -> str:
    return f"Reply to {user} {turn}."


def _check_context(content: Any, user: int, text: str) -> None:
    """Raise AssertionError unless these are the five messages of this user and request."""
    messages = [message["content"] for message in content["messages"]]
    require(len(messages) == 5, f"{len(messages)} messages for user {user}")
    require(text in messages[4] and text not in messages[2], f"input of user {user}: {messages[2:]}")
    memory = messages[2]
    others = {line.partition("User ")[2].partition(" asks")[0] for line in memory.split("\n") if "User " in line}
    require(others <= {str(user)}, f"memory of user {user} has rows of {others}")
    require(SECRET not in json.dumps(messages), f"user {user} sees another tenant")


@contextmanager
def scripted_model() -> Generator[str]:
    """Run the scripted model; yield its address."""
    with model_server(_answer) as server:
        yield server.openai_url


def member_command(bus_url: str, ledger_url: str, model_url: str) -> list[str]:
    """Return the command of a process with all services."""
    command = [sys.executable, "-m", "nexus", "services", "run", "--json", "-m", MODEL]
    return [*command, "--bus", bus_url, "--ledger", ledger_url, "--base-url", model_url]


class Member:
    """A process with all services. It may be killed and started again."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command, self._folder = command, folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and return when it serves."""
        log = (self._folder / "services.log").open("a")
        env = {**os.environ, "OPENAI_API_KEY": "test", "HOME": str(self._folder)}
        with log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=self._folder
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if '"serving"' not in line:
            self.end()
            self.start()  # the database or the bus was starting again

    def end(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
