"""Service processes on a NATS server and a ledger, and a load with kills: for tests and for the torture."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nexus
from nexus.bus import Message, open_bus
from nexus.services import Run, RunClient, Topics
from nexus.services.messages import request_again
from nexus.services.orchestrator import RunState
from nexus.testing.model_server import ModelServer
from support.nats_server import NatsServer

ANSWER = "Good morning."
PATIENCE_S = 1_200.0


class Processes:
    """Processes of `nexus services run` on one workspace."""

    def __init__(self, folder: Path, nats: NatsServer, model: ModelServer, ledger: str = "") -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self._env = {**os.environ, "NEXUS_HOME": str(folder / "home"), "NEXUS_BUS": nats.url, "TEST_KEY": "test"}
        self.ledger = ledger or str(folder / "ledger.db")
        self._arguments = ["-w", str(self.workspace), "--ledger", self.ledger, "--json"]
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


async def play(
    processes: Processes, nats: NatsServer, *, users: int, turns: int, sessions: int, builds: int, kills: int = 2
) -> None:
    """Send the runs of all users, each after its last one, and build requests; meanwhile kill processes and NATS.

    Raises AssertionError unless every request is answered, and every run is done.
    """
    bus = await open_bus(nats.url)
    client = RunClient(bus)

    async def one_user(owner: str) -> list[RunState]:
        runs = (Run(owner, f"{owner}: question {turn}", f"{owner}-{turn}") for turn in range(turns))
        return [await client.run(run, timeout_s=PATIENCE_S) for run in runs]

    async def one_session(owner: str) -> None:
        for number in range(builds):
            content = {"run": {"owner_key": owner, "current_input": f"{owner}: what now, {number}?"}}
            message = Message(Topics.CONTEXT_BUILD_REQUEST, content)
            built = await request_again(bus, message, try_s=5.0, total_s=PATIENCE_S)
            texts = [message["content"] for message in built.content["messages"]]
            assert len(texts) == 5, texts
            assert f"{owner}: what now, {number}?" in texts[4]
            assert "question" not in texts[2], texts[2]  # the memory of another user

    async def disturb() -> None:
        for number in range(kills):
            await asyncio.to_thread(processes.kill)
            if number % 2 == 0:
                await asyncio.to_thread(nats.stop, kill=True)
                await asyncio.to_thread(nats.start)
            await asyncio.to_thread(processes.start)

    owners = [f"user{number}" for number in range(users)]
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one_user(owner)) for owner in owners]
            for number in range(sessions):
                group.create_task(one_session(f"guest{number}"))
            group.create_task(disturb())
    finally:
        await bus.close()
    for owner, task in zip(owners, running, strict=True):
        ends = [(end.run_id, end.state, end.text) for end in task.result()]
        assert ends == [(f"{owner}-{turn}", "done", ANSWER) for turn in range(turns)], ends


def check_ledger(processes: Processes, *, users: int, turns: int) -> None:
    """Check that the ledger has each message of each user once, in order, and nothing else."""
    with nexus.open(processes.workspace, ledger=processes.ledger) as nx:
        labels = sorted(info.label for info in nx.sessions())
        assert labels == sorted(f"dm:user{number}" for number in range(users)), labels
        for label in labels:
            owner = label.removeprefix("dm:")
            texts = [message.text() for message in nx.history(label)]
            assert texts == [text for turn in range(turns) for text in (f"{owner}: question {turn}", ANSWER)], texts
