"""`nexus proxy` as a process of its own, on one port and one ledger, which can be killed, stopped and left without a disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

START_S = 60
STOP_S = 60

_FILLER = "filler"


class ProxyProcess:
    """A proxy of a folder: its home, its ledger and its log.

    Args:
        folder: Folder for its home and its log.
        upstream: Address of the models' server.
        words: Further arguments.
        users: Names of users with a token each; without them it asks for none.
        disk: Folder for its ledger.
    """

    def __init__(self, folder: Path, upstream: str, words: Sequence[str], users: Sequence[str], disk: Path) -> None:
        self.port = _free_port()
        self.ledger = disk / "proxy.db"
        self.log = folder / "proxy.log"
        self._disk = disk
        self._home = folder / "nexus"
        self._home.mkdir()
        self.tokens = {user: f"token-of-{user}-0123456789" for user in users}
        self._command = [sys.executable, "-m", "nexus", "proxy", "--port", str(self.port), "--upstream", upstream]
        self._command += ["--ledger", str(self.ledger), "--grace", "20", "--json", *words]
        if users:
            file = folder / "tokens"
            file.write_text("".join(f"{token} {user}\n" for user, token in self.tokens.items()))
            file.chmod(0o600)
            self._command += ["--token-file", str(file)]
        self._running: subprocess.Popen[str] | None = None

    def path_of(self, user: str) -> str:
        """Return what stands before a client's path, for a user's token."""
        return f"/nexus/as/{self.tokens[user]}" if user in self.tokens else ""

    def start(self) -> None:
        """Start it and wait until it listens."""
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        environment |= {"HOME": str(self._home), "NEXUS_HOME": str(self._home), "LANG": "C.UTF-8"}
        with self.log.open("a") as log:
            self._running = subprocess.Popen(
                self._command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._running.stdout is not None
        while line := self._running.stdout.readline():
            if line.startswith("{"):
                return
        raise AssertionError(f"the proxy did not start: {self.log.read_text()[-2_000:]}")

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait until it has. Raises AssertionError if it fails."""
        assert self._end(signal.SIGTERM) == 0, self.log.read_text()[-2_000:]

    def _end(self, number: signal.Signals) -> int:
        assert self._running is not None
        self._running.send_signal(number)
        try:
            return self._running.wait(STOP_S)
        finally:
            self._running.kill()
            assert self._running.stdout is not None
            self._running.stdout.close()

    def limit_files(self, size: int) -> None:
        """Let it write no file beyond a size."""
        self._set_limit(size)

    def end_limit(self) -> None:
        """Let it write files of any size again."""
        self._set_limit(resource.RLIM_INFINITY)

    def _set_limit(self, size: int) -> None:
        assert self._running is not None
        resource.prlimit(self._running.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def fill_disk(self) -> None:
        """Leave no space on the disk of its ledger."""
        with (self._disk / _FILLER).open("wb", buffering=0) as filler:
            for size in (2**20, 4_096, 1):
                _write_all(filler, size)

    def empty_disk(self) -> None:
        """Give the space back."""
        (self._disk / _FILLER).unlink()

    def get(self, path: str) -> httpx.Response:
        """Return the answer of one of its own pages, to its owner."""
        (file,) = (self._home / "proxies").glob(f"{self._pid}-*.json")
        token = json.loads(file.read_text())["token"]
        headers = {"x-nexus-token": token, "accept": "application/json"}
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, trust_env=False, timeout=60)

    @property
    def _pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    def report_of(self, call_id: str) -> dict[str, Any] | None:
        """Return what it says of a call; None if it does not know it."""
        answer = self.get(f"/nexus/calls/{call_id}")
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text[:500]
        return answer.json()


def _write_all(file: Any, size: int) -> None:
    try:
        while file.write(bytes(size)):
            pass
    except OSError:
        return


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def wait_until(condition: Any, what: str, seconds: float = 60) -> None:
    """Wait for something that another process does. Raises AssertionError."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"it did not happen: {what}")
