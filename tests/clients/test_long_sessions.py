"""Long conversations of the clients through `nexus proxy`, with kills, disconnects, overflows and full disks on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from clients.installation import is_installed
from clients.long_judge import Judge, Verdict, table
from clients.long_talk import Fault, Talk, Upstream, new_talk
from clients.programs import CLIENTS, Client
from clients.proxy_process import ProxyProcess
from clients.tap import tap
from nexus.testing.model_server import model_server

pytestmark = pytest.mark.slow

SCALE = float(os.environ.get("NEXUS_TURNS", "1"))
"""Share of the turns, for a shorter run while one works on this."""


@dataclass(frozen=True)
class Run:
    """A conversation with faults, and another one at the same time."""

    client: Client
    mode: str
    turns: int
    budget: int = 0
    second_turns: int = 0

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.client.name} {self.mode}"


BUDGETS = {"claude": 30_000, "codex": 30_000, "opencode": 16_000, "gemini": 18_000, "aider": 5_000, "llm": 6_000}
"""Tokens that leave each client its tools and system prompt, and room for the newest turns."""

LONG = ("claude", "codex")
FIT_RUNS = [
    Run(client, "fit", 100 if client.name in LONG else 20, BUDGETS[client.name], 25 if client.name in LONG else 8)
    for client in CLIENTS
]
RECORD_RUNS = [Run(client, "record", 9, 0, 3) for client in CLIENTS]

LONG_FAULTS: dict[int, Fault] = {
    3: "kill idle", 7: "gone", 12: "kill", 17: "kill", 22: "overflow", 27: "stop", 30: "rate limit", 34: "stop",
    38: "file limit", 42: "gone", 47: "overflow", 51: "kill", 56: "full disk", 60: "kill", 66: "overflow in stream",
    71: "gone", 77: "kill", 81: "full disk", 85: "rate limit", 90: "overflow", 94: "stop", 97: "kill idle",
}  # fmt: skip
SHORT_FAULTS: dict[int, Fault] = {
    2: "kill", 4: "gone", 5: "overflow", 7: "file limit", 9: "rate limit", 11: "kill", 13: "stop", 15: "full disk",
    16: "stop", 17: "gone", 18: "kill idle",
}  # fmt: skip
RECORD_FAULTS: dict[int, Fault] = {1: "kill", 2: "gone", 3: "file limit", 4: "rate limit", 5: "stop", 7: "full disk"}


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    assert is_installed(), "the clients are not installed (run `make clients`, which needs npm)"


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[list[Verdict]]:
    """What was found of all conversations; printed at the end."""
    verdicts: list[Verdict] = []
    yield verdicts
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("", *table(verdicts), sep="\n")


@contextmanager
def small_disk(folder: Path) -> Generator[Path | None]:
    """A folder on a disk of its own that can be filled; None where this process may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def faults_of(run: Run, *, has_disk: bool) -> dict[int, Fault]:
    """Return what goes wrong in the turns of a conversation."""
    faults = RECORD_FAULTS if run.mode == "record" else LONG_FAULTS if run.turns > 20 else SHORT_FAULTS
    chosen: dict[int, Fault] = {}
    for turn, fault in faults.items():
        chosen[turn] = fault
        if fault == "full disk" and not has_disk:
            chosen[turn] = "file limit"
        if fault == "overflow in stream" and run.client.format != "responses":
            chosen[turn] = "overflow"
    return chosen


def hold(run: Run, folder: Path) -> tuple[list[Verdict], list[str]]:
    """Hold both conversations of a run and judge them."""
    turns = max(int(run.turns * SCALE), 4)
    second_turns = max(int(run.second_turns * SCALE), 2)
    words = ["--budget", str(run.budget)] if run.budget else ["--mode", run.mode]
    users = ("ada", "bob") if run.mode == "fit" else ()
    upstream = Upstream()
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk"))
        provider = stack.enter_context(model_server(upstream))
        proxy = ProxyProcess(folder, provider.anthropic_url, words, users, disk or folder)
        first, second = (
            new_talk(
                f"{run.name} {number}",
                run.client,
                stack.enter_context(tap(f"{run.name} {number}", proxy.port)),
                count,
                folder,
                proxy.path_of(user),
            )
            for number, count, user in ((1, turns, "ada"), (2, second_turns, "bob"))
        )
        upstream.talks |= {talk.name: talk for talk in (first, second)}
        for talk in (first, second):
            talk.all_talks = (first, second)
            talk.set_up(provider.anthropic_url)
        proxy.start()
        try:
            _at_once(first, second, proxy, faults_of(run, has_disk=disk is not None))
        finally:
            proxy.stop()
        judge = Judge((first, second), proxy.ledger, run.budget or None, proxy.log)
        return judge.verdicts()


def _at_once(first: Talk, second: Talk, proxy: ProxyProcess, faults: dict[int, Fault]) -> None:
    other = Thread(target=second.run, args=(None, {1: "gone"}))
    other.start()
    try:
        first.run(proxy, faults)
    finally:
        other.join()


@pytest.mark.parametrize("run", [*FIT_RUNS, *RECORD_RUNS], ids=lambda run: run.name)
def test_nothing_is_lost_mixed_or_over_the_budget(run: Run, rows: list[Verdict]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        verdicts, faults = hold(run, Path(folder))
        rows += verdicts
        assert [*faults, *(fault for verdict in verdicts for fault in verdict.faults)] == []
        if run.budget:
            assert all(verdict.cuts for verdict in verdicts[:1])
