"""Services of different ledgers on one bus: the second ledger is refused with a sentence, and `NEXUS_LEDGER` is the same for all."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nexus
from nexus.bus import MemoryBus
from nexus.errors import BusRequestFailed, NotAllowed
from nexus.models import open_client
from nexus.services import Run, RunClient
from nexus.services.orchestrator import Command
from nexus.services.serve import serve
from nexus.testing.model_server import ModelServer, model_server, reply
from support.nats_server import NatsServer, require_nats_server


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    require_nats_server()
    server = NatsServer(tmp_path / "nats")
    yield server
    server.stop()


class Deployment:
    """Processes of `nexus services` in folders of their own, with the variables of one shell."""

    def __init__(self, folder: Path, nats: NatsServer, model: ModelServer, **env: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "NEXUS_HOME": str(folder / "home"), "NEXUS_BUS": nats.url, **env}
        self.model = ("-m", "gpt-4o", "--base-url", model.openai_url)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "nexus", "services", *arguments]

    @contextmanager
    def run(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        (self.folder / name).mkdir(exist_ok=True)
        command = self.command("run", *self.model, "--json", *arguments)
        where = self.folder / name
        with subprocess.Popen(command, cwd=where, env=self.env, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None and json.loads(process.stdout.readline())["pid"] == process.pid
                yield process
            finally:
                process.kill()

    def finish(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (self.folder / name).mkdir(exist_ok=True)
        command = self.command(*arguments)
        where = self.folder / name
        return subprocess.run(command, cwd=where, env=self.env, capture_output=True, text=True, check=False)


def test_process_with_another_ledger_is_refused_at_its_start(tmp_path: Path, nats: NatsServer) -> None:
    with model_server(reply("Good morning.")) as model:
        deployment = Deployment(tmp_path, nats, model)
        with deployment.run("one") as first:
            refused = deployment.finish("two", "run", *deployment.model)
            assert refused.returncode == 2, refused.stderr
            assert "bus has services of another ledger" in refused.stderr and "NEXUS_LEDGER" in refused.stderr
            assert str(tmp_path / "one") in refused.stderr and "Traceback" not in refused.stderr
            sent = deployment.finish("two", "send", "Hello", "--owner", "ada", "--timezone", "Asia/Shanghai")
            assert (sent.returncode, sent.stdout) == (0, "Good morning.\n"), sent.stderr
            assert "+08:00" in json.dumps(model.bodies[-1]) or "Asia/Shanghai" in json.dumps(model.bodies[-1])
            with deployment.run("two", "--prefix", "other"):
                pass
            first.kill()
            first.wait()
        with deployment.run("two"):
            assert deployment.finish("two", "send", "Hello", "--owner", "ada").returncode == 0


def test_variable_names_the_ledger_of_all_processes(tmp_path: Path, nats: NatsServer) -> None:
    with model_server(reply("Good morning.")) as model:
        deployment = Deployment(tmp_path, nats, model, NEXUS_LEDGER=str(tmp_path / "shared.db"))
        with deployment.run("one") as first, deployment.run("two"):
            assert deployment.finish("one", "send", "Hello", "--owner", "ada").returncode == 0
            first.kill()
            assert deployment.finish("three", "send", "Hello", "--owner", "ada").returncode == 0
        with nexus.open(ledger=str(tmp_path / "shared.db")) as nx:
            assert len(nx.history("dm:ada")) == 4
        assert not (tmp_path / "one" / ".nexus").exists()


def test_unknown_time_zone_is_one_line(tmp_path: Path, nats: NatsServer) -> None:
    with model_server(reply("Good morning.")) as model:
        sent = Deployment(tmp_path, nats, model).finish("a", "send", "Hi", "--owner", "ada", "--timezone", "Moon/Base")
    assert sent.returncode == 2 and "'Moon/Base' not found" in sent.stderr and "Europe/Paris" in sent.stderr


def test_services_of_one_program_refuse_a_second_ledger(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        bus, models = MemoryBus(), open_client(base_url=url)
        async with (
            nexus.open_async(ledger=tmp_path / "one.db", model="gpt-4o") as one,
            nexus.open_async(ledger=tmp_path / "one.db", model="gpt-4o") as same,
            nexus.open_async(ledger=tmp_path / "two.db", model="gpt-4o") as other,
        ):
            async with serve(bus, one, models), serve(bus, same, models):
                with pytest.raises(NotAllowed, match="another ledger"):
                    async with serve(bus, other, models):
                        pass
                client = RunClient(bus)
                end = await client.run(Run("ada", "Hello", "r1"))
                assert end.state == "done"
                with pytest.raises(BusRequestFailed, match="another ledger") as caught:
                    await client._command(Command("result", "r1", "ada", ledger="of another"), 0.0, 5.0)
                assert caught.value.kind == "NotAllowed"
            async with serve(bus, other, models):  # once the others have stopped
                assert (await client.run(Run("ada", "Hello", "r1"))).state == "done"
        await models.aclose()
        await bus.close()

    with model_server(reply("Good morning.")) as model:
        asyncio.run(asyncio.wait_for(main(model.openai_url), 60))
