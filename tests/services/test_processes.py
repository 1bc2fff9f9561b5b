"""Service processes that share a ledger and a NATS server: kills and a restart of the server lose no run and double none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexus.testing.model_server import model_server, reply
from services.process_load import ANSWER, Processes, check_ledger, play
from support.nats_server import NatsServer, require_nats_server


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    require_nats_server()
    server = NatsServer(tmp_path / "nats")
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def processes(request: pytest.FixtureRequest, tmp_path: Path, nats: NatsServer) -> Iterator[Processes]:
    ledger = request.getfixturevalue("postgres_server").new_ledger() if request.param == "postgres" else ""
    with model_server(reply(ANSWER)) as model:
        running = Processes(tmp_path, nats, model, ledger)
        yield running
        for process in running.running:
            process.kill()
        running.stop()


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)
def test_send_prints_the_reply_and_sigterm_ends_the_process(processes: Processes) -> None:
    processes.start()
    sent = processes.send("Hello", "--owner", "ada")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, f"{ANSWER}\n", "")
    assert processes.stop() == [0]


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)
def test_send_without_services_ends_soon_and_says_what_to_start(processes: Processes) -> None:
    sent = processes.send("Hello", "--owner", "ada")
    advice = "no services on the bus (start them with the same bus and prefix: nexus services run)"
    assert (sent.returncode, sent.stdout) == (1, "")
    assert sent.stderr == f"waiting for services…\nnexus: {advice}\n"


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)
def test_send_names_no_topic_and_no_class_for_a_refused_run(processes: Processes) -> None:
    processes.start()
    assert processes.send("Hello", "--owner", "ada", "--run-id", "r1").returncode == 0
    sent = processes.send("Goodbye", "--owner", "ada", "--run-id", "r1")
    assert sent.returncode == 1
    assert sent.stderr.startswith("nexus: event id 'r1'")
    assert "Conflict" not in sent.stderr
    assert "run.request" not in sent.stderr


def test_kills_and_a_restart_of_nats_lose_no_run_and_double_none(processes: Processes, nats: NatsServer) -> None:
    for _ in range(3):
        processes.start()
    asyncio.run(asyncio.wait_for(play(processes, nats, users=6, turns=3, sessions=20, builds=3), 300))
    assert set(processes.stop()) == {0}
    check_ledger(processes, users=6, turns=3)
