"""The server under load: contexts per second and memory beside LangChain's trimming in a Starlette handler; open streams.

Each server is a process of its own on loopback; the clients are in this one. Both get the same messages and budget.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import psutil
from msgspec import Struct

from benchmarks.report import Cell, NotRun, Outcome, Table, Target

COMMAND = "python -m benchmarks server"
MESSAGES, BUDGET = 200, 8_000
"""Messages of a session, about 16,000 tokens, and the tokens of a context."""

SESSIONS, REQUESTS, CLIENTS = 300, 1_600, 16
STREAMS, AGENTS, TURNS = 500, 10, 5
MODEL = "gpt-4o"
ANSWER = " ".join(f"word{number}" for number in range(200))
QUESTION = "And what does that mean for the next release?"

_LOAD_NOTES = (
    f"{REQUESTS:,} requests of {CLIENTS} clients to one process, over {SESSIONS} sessions of {MESSAGES} messages (16,000 tokens),",
    f"  {BUDGET:,} tokens a context; of whole turns {REQUESTS // 4:,} requests. One client: each request alone. Nexus: `nexus serve` with a SQLite ledger on disk. A turn is three",
    "  requests: begin, assemble and record, each stored before its answer. LangChain: trim_messages as documented, with its",
    "  approximate counter, in a Starlette handler under the same uvicorn; nothing is stored.",
    f"memory: growth of the process from the first to the last of {SESSIONS} sessions, each used once, by session.",
)
_STREAM_NOTES = (
    f"{AGENTS} agents with {TURNS} turns each, one after the other; a scripted model streams 200 words at once. For each agent one",
    "  reader takes everything at once; of the other readers half take 512 bytes every 0.5 s, half nothing until the end.",
    "readers: have every event in order, or continue behind a gap; none lost an event without one.",
)


Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Load(Struct, frozen=True):
    """What a load took."""

    per_second: float
    p50_ms: float
    p99_ms: float
    alone_p50_ms: float
    """With one client."""
    cpu_ms: float
    """Of the server, for one request."""
    memory_kb: float | None = None
    """Of one session."""


def run() -> Outcome:
    """Measure both servers, then the streams."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "langchain_core")):
        raise NotRun("starlette, uvicorn or langchain-core is not installed")
    rows: list[tuple[Cell, ...]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_ledger(folder / "ledger.db")
        for what, measure in (("Nexus", nexus_loads), ("LangChain", trimming_loads)):
            for title, load in asyncio.run(measure(folder)).items():
                rows.append((f"{what}: {title}", *msgspec.structs.astuple(load)))
        streams = [asyncio.run(stream_load(folder, count)) for count in (AGENTS, STREAMS)]
    columns = ("server", "per second", "p50 ms", "p99 ms", "one client p50 ms", "CPU ms", "memory KB/session")
    load_table = Table(f"Contexts of {MESSAGES} messages", COMMAND, "synthetic", columns, tuple(rows), _LOAD_NOTES)
    columns = ("open streams", "turns/s", "turn p50 ms", "turn p99 ms", "memory KB/stream", "complete", "gap", "ended")
    stream_table = Table("Open streams", COMMAND, "synthetic", columns, tuple(streams), _STREAM_NOTES)
    whole = sum(int(cell or 0) for cell in streams[-1][-3:-1])
    target = Target("open streams with slow readers", f"{STREAMS} hold", f"{whole} hold", whole == STREAMS)
    return Outcome((load_table, stream_table), (target,))


# contexts ------------------------------------------------------------------------------------------------------------


def session_messages() -> list[dict[str, Any]]:
    """Return the messages of a session in OpenAI's form, the system message first."""
    from benchmarks.talk import TURN_MESSAGES, Talk
    from nexus.providers import openai

    talk = Talk()
    for _ in range(MESSAGES // TURN_MESSAGES):
        talk.turn()
    system = {"role": "system", "content": "You are brief."}
    return [system, *(item for message in talk.messages for item in openai.fragment(message))]


def write_ledger(path: Path) -> None:
    """Write all sessions."""
    import nexus
    from benchmarks.talk import TURN_MESSAGES, Talk
    from nexus.types.ledger_entries import Commit

    talk = Talk()
    turns = [talk.turn() for _ in range(MESSAGES // TURN_MESSAGES)]
    entries = tuple(entry for turn in turns for entry in turn)
    with nexus.open(ledger=path, model=MODEL) as nx:
        for number in range(SESSIONS):
            nx.ledger.store.commit(agent_name(number), Commit(entries))


def agent_name(number: int) -> str:
    """Return the id of an agent, the label of its session."""
    return f"agent-{number}"


async def nexus_loads(folder: Path) -> dict[str, Load]:
    """Measure `assemble`, `mirror` and whole turns of `nexus serve`."""
    with served(folder, folder / "ledger.db") as server, closing(Clients(server, CLIENTS)) as pool:

        async def call(method: str, number: int, **params: Any) -> Any:
            return await pool.rpc(method, params, f"/agent/{agent_name(number % SESSIONS)}")

        for number in range(SESSIONS):
            values = {"agent_id": agent_name(number), "budget": BUDGET, "system_prompt": "You are brief."}
            await pool.rpc("create_agent", values)

        async def assemble(number: int) -> None:
            await call("assemble", number, format="openai")

        async def turn(number: int) -> None:
            sent = await call("assemble", number, format="openai")
            await call("record", number, reply=ANSWER, context_id=sent["context_id"])
            await call("begin", number, content=QUESTION)

        async def use(number: int) -> None:
            await call("begin", number, content=QUESTION)
            await turn(number)

        async def mirror(number: int, earlier: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
            sent = [*messages, *earlier, {"role": "user", "content": QUESTION}]
            return await call("mirror", number, messages=sent, format="openai")

        async def mirror_stored(number: int) -> None:
            sent = await mirror(number)
            await call("record", number, reply=ANSWER, context_id=sent["context_id"])

        async def mirror_again(number: int) -> None:
            await mirror(number, exchange)

        exchange = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
        messages = session_messages()
        memory_kb = await memory_of_sessions(server, use)
        loads = {
            "assemble, messages in the ledger": await load(server, assemble, REQUESTS, memory_kb),
            "whole turn, three requests": await load(server, turn, REQUESTS // 4),
        }
        for number in range(SESSIONS):
            await mirror_stored(number)
        return loads | {"mirror, messages in the request": await load(server, mirror_again, REQUESTS)}


async def trimming_loads(_folder: Path) -> dict[str, Load]:
    """Measure LangChain's trimming, with the list in the request and in the server's memory."""
    command = [sys.executable, "-m", "benchmarks.trimming_server"]
    with process(command, {**os.environ}) as server, closing(Clients(server, CLIENTS)) as pool:
        messages = session_messages()
        question = {"role": "user", "content": QUESTION}

        async def store(number: int) -> None:
            await pool.send("PUT", f"/session/{number}", {"messages": messages})
            await from_memory(number)

        async def from_memory(number: int) -> None:
            await pool.send("POST", f"/session/{number % SESSIONS}", question)

        async def from_request(_number: int) -> None:
            await pool.send("POST", "/trim", {"messages": [*messages, question]})

        memory_kb = await memory_of_sessions(server, store)
        return {
            "trim_messages, messages in memory": await load(server, from_memory, REQUESTS, memory_kb),
            "trim_messages, messages in the request": await load(server, from_request, REQUESTS),
        }


async def memory_of_sessions(server: Server, use: Callable[[int], Any]) -> float:
    """Use each session once; return the KB by which a session let the process grow."""
    await use(0)
    before = server.memory_bytes()
    for number in range(1, SESSIONS):
        await use(number)
    return (server.memory_bytes() - before) / 1024 / (SESSIONS - 1)


async def load(server: Server, work: Callable[[int], Any], requests: int, memory_kb: float | None = None) -> Load:
    """Let all clients work at the same time, then one alone."""
    numbers = iter(range(requests))
    took: list[float] = []

    async def client() -> None:
        took.extend([await timed(work, number) for number in numbers])

    for number in range(CLIENTS):
        await work(number)  # warms
    start, cpu_s = time.perf_counter(), server.cpu_s()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    seconds, cpu_s = time.perf_counter() - start, server.cpu_s() - cpu_s
    alone = [await timed(work, number) for number in range(requests // 10)]
    took.sort()
    alone.sort()
    return Load(
        requests / seconds,
        1000 * took[len(took) // 2],
        1000 * took[len(took) * 99 // 100],
        1000 * alone[len(alone) // 2],
        1000 * cpu_s / requests,
        memory_kb,
    )


async def timed(work: Callable[[int], Any], number: int) -> float:
    """Return the seconds that a piece of work took."""
    start = time.perf_counter()
    await work(number)
    return time.perf_counter() - start


# streams -------------------------------------------------------------------------------------------------------------


async def stream_load(folder: Path, count: int) -> tuple[Cell, ...]:
    """Run turns while so many streams are open; return the row of the table."""
    from benchmarks.server_streams import open_readers, read_on

    agents = [agent_name(number) for number in range(AGENTS)]
    with served(folder, folder / f"{count}.db") as server, closing(Clients(server, AGENTS)) as pool:
        for agent in agents:
            await pool.rpc("create_agent", {"agent_id": agent, "profile": "bare"})
            await pool.rpc("send", {"content": "Hello?"}, f"/agent/{agent}")
        before = psutil.Process(server.pid).memory_info().rss
        readers = await open_readers(server.url, {"Authorization": f"Bearer {server.token}"}, agents, count)
        memory_kb = (server.memory_bytes() - before) / 1024 / count

        async def turns(agent: str) -> list[float]:
            async def turn(number: int) -> None:
                result = await pool.rpc("send", {"content": f"{number}?"}, f"/agent/{agent}")
                assert result["content"] == ANSWER, result

            return [await timed(turn, number) for number in range(TURNS)]

        start = time.perf_counter()
        took = sorted(second for some in await asyncio.gather(*map(turns, agents)) for second in some)
        seconds = time.perf_counter() - start
        found = await read_on(readers, agents, TURNS)
        for reader in readers:
            await reader.close()
    times = (len(took) / seconds, 1000 * took[len(took) // 2], 1000 * took[len(took) * 99 // 100])
    return (count, *times, memory_kb, found.complete, found.with_gap, found.disconnected)


# processes and connections --------------------------------------------------------------------------------------------


class Server(Struct, frozen=True):
    """A running server."""

    url: str
    pid: int
    token: str = ""

    def memory_bytes(self) -> int:
        """Return the memory that it has."""
        return psutil.Process(self.pid).memory_info().rss

    def cpu_s(self) -> float:
        """Return the CPU time that it has taken."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@contextmanager
def served(folder: Path, ledger: Path) -> Generator[Server]:
    """Run `nexus serve` with a scripted model; the token is in the folder."""
    from nexus.testing.model_server import model_server, reply

    (folder / "workspace").mkdir(exist_ok=True)
    with model_server(reply(ANSWER)) as model:
        command = [sys.executable, "-m", "nexus", "serve", "-w", str(folder / "workspace"), "--ledger", str(ledger)]
        command += ["--port", "0", "--json", "--rate", "100000", "--base-url", model.openai_url, "--model", MODEL]
        with process(command, {**os.environ, "NEXUS_HOME": str(folder / "home")}) as server:
            yield server


@contextmanager
def process(command: Sequence[str], environment: dict[str, str]) -> Generator[Server]:
    """Run a server that prints its address as JSON."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
        try:
            assert server.stdout is not None
            printed = json.loads(server.stdout.readline())
            file = printed.get("token_file")
            token = Path(file).read_text("utf-8").split()[0] if file else ""
            yield Server(printed["url"], server.pid, token)
        finally:
            server.terminate()


class Clients:
    """Connections that stay open, each with one request at a time.

    Args:
        server: The server.
        count: Requests at the same time.
    """

    def __init__(self, server: Server, count: int) -> None:
        self._address, self._token = urlsplit(server.url), server.token
        self._free: asyncio.LifoQueue[Connection | None] = asyncio.LifoQueue()
        for _ in range(count):
            self._free.put_nowait(None)

    async def rpc(self, method: str, params: dict[str, Any], path: str = "/rpc") -> Any:
        """Call a method of `nexus serve`. Raises AssertionError for an error."""
        answer = await self.send("POST", path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        assert "result" in answer, answer
        return answer["result"]

    async def send(self, method: str, path: str, value: object) -> Any:
        """Send a JSON value and return the answer's. Raises AssertionError for another status than 200."""
        body = json.dumps(value).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._address.netloc}\r\nAuthorization: Bearer {self._token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection = await self._free.get()
        try:
            if connection is None or connection[0].at_eof():  # a server closes connections that wait for long
                connection = await asyncio.open_connection(self._address.hostname, self._address.port, limit=2**24)
            reader, writer = connection
            writer.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
            answer = await reader.readexactly(length)
        finally:
            self._free.put_nowait(connection)
        assert " 200 " in lines[0], (lines[0], answer[:500])
        return json.loads(answer)

    def close(self) -> None:
        """Close all connections; none has a request."""
        while not self._free.empty():
            if (connection := self._free.get_nowait()) is not None:
                connection[1].close()
