"""Service processes that share a ledger and a NATS server: kills and a restart of the server lose no run and double none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import nexus
from nexus.bus import Message, open_bus
from nexus.services import Run, RunClient, Topics
from nexus.services.messages import request_again
from nexus.services.orchestrator import RunState
from nexus.testing.model_server import ModelServer, model_server, reply
from support.nats_server import NatsServer, require_nats_server

SESSIONS, TURNS, BUILDS = 6, 3, 60


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    require_nats_server()
    server = NatsServer(tmp_path / "nats")
    yield server
    server.stop()


class Processes:
    """Processes of `nexus services run` on one workspace."""

    def __init__(self, folder: Path, nats: NatsServer, model: ModelServer) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self._env = {**os.environ, "NEXUS_HOME": str(folder / "home"), "NEXUS_BUS": nats.url, "TEST_KEY": "test"}
        self._arguments = ["-w", str(self.workspace), "--json"]
        self._model = ["-m", "gpt-4o", "--base-url", model.openai_url, "--key-variable", "TEST_KEY"]
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> None:
        """Start a process, and return when it serves."""
        command = [sys.executable, "-m", "nexus", "services", "run", *self._arguments, *self._model, *arguments]
        process = subprocess.Popen(command, env=self._env, stdout=subprocess.PIPE)
        self.running.append(process)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["pid"] == process.pid

    def send(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `nexus services send`."""
        command = [sys.executable, "-m", "nexus", "services", "send", *arguments]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)

    def kill(self) -> None:
        """Kill the oldest process."""
        process = self.running.pop(0)
        process.kill()
        self._close(process)

    def stop(self) -> list[int]:
        """End all processes with SIGTERM, and return their exit codes."""
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        codes = [self._close(process) for process in self.running]
        self.running.clear()
        return codes

    def _close(self, process: subprocess.Popen[bytes]) -> int:
        process.wait(120)
        assert process.stdout is not None
        process.stdout.close()
        return process.returncode


@pytest.fixture
def processes(tmp_path: Path, nats: NatsServer) -> Iterator[Processes]:
    with ExitStack() as stack:
        model = stack.enter_context(model_server(reply("Good morning.")))
        running = Processes(tmp_path, nats, model)
        yield running
        for process in running.running:
            process.kill()
        running.stop()


def test_send_prints_the_reply_and_sigterm_ends_the_process(processes: Processes) -> None:
    processes.start()
    sent = processes.send("Hello", "--owner", "ada")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "Good morning.\n", "")
    assert processes.stop() == [0]


def test_kills_and_a_restart_of_nats_lose_no_run_and_double_none(processes: Processes, nats: NatsServer) -> None:
    for _ in range(3):
        processes.start()

    async def one_user(client: RunClient, owner: str) -> list[RunState]:
        turns = (Run(owner, f"{owner}: question {turn}", f"{owner}-{turn}") for turn in range(TURNS))
        return [await client.run(run, timeout_s=240) for run in turns]

    async def disturb() -> None:
        await asyncio.to_thread(processes.kill)
        await asyncio.to_thread(nats.stop, kill=True)
        await asyncio.to_thread(nats.start)
        await asyncio.to_thread(processes.kill)
        await asyncio.to_thread(processes.start)

    async def main() -> None:
        bus = await open_bus(nats.url)
        client = RunClient(bus)
        owners = [f"user{number}" for number in range(SESSIONS)]
        working = [asyncio.ensure_future(one_user(client, owner)) for owner in owners]
        request = {"run": {"owner_key": "guest", "current_input": "What now?"}}
        building = [
            asyncio.ensure_future(
                request_again(bus, Message(Topics.CONTEXT_BUILD_REQUEST, request), try_s=5.0, total_s=120.0)
            )
            for _ in range(BUILDS)
        ]
        await disturb()
        for built in await asyncio.gather(*building):
            assert len(built.content["messages"]) == 5
        for owner, ends in zip(owners, await asyncio.gather(*working), strict=True):
            assert [(end.run_id, end.state, end.text) for end in ends] == [
                (f"{owner}-{turn}", "done", "Good morning.") for turn in range(TURNS)
            ]
        await bus.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    assert set(processes.stop()) == {0}
    with nexus.open(processes.workspace) as nx:
        assert sorted(info.label for info in nx.sessions()) == [f"dm:user{number}" for number in range(SESSIONS)]
        for info in nx.sessions():
            owner = info.label.removeprefix("dm:")
            texts = [message.text() for message in nx.history(info.label)]
            assert texts == [text for turn in range(TURNS) for text in (f"{owner}: question {turn}", "Good morning.")]
