"""A process of `nexus serve` that may be killed at any moment, and the scripted model that it calls."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from nexus.server.client import Client
from nexus.testing.model_server import ModelRequest, Response, reply
from nexus.types.message import ToolCall
from torture import broken
from torture.figures import require

MODEL: Final = "gpt-4o"
RATE: Final = 10_000
CALL_S: Final = 90.0
"""Seconds without a byte after which a request counts as lost."""
IDLE_S: Final = 60.0
"""Seconds in which a server must have continued all turns of earlier processes."""
LONGEST_DELAY_S, LONGEST_INTERVAL_S = 0.25, 0.02
"""Of the scripted model: before its reply, and between two events of it."""

TOKEN: Final = re.compile(r"\b[a-z][\w-]*#\d+\b")
"""A message's name: the id of its agent and a number."""


class ServerProcess:
    """One process of `nexus serve` on a ledger.

    Args:
        folder: Has the workspace, the token file and the log of all processes of a ledger.
        ledger: Path or URL of the ledger.
        model_url: Address of the scripted model.
    """

    def __init__(self, folder: Path, ledger: str, model_url: str) -> None:
        self.log, self._printed = folder / "server.log", dict[str, str]()
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        options = ["-w", str(folder / "workspace"), "--port", "0", "--json", "--ledger", ledger, "--rate", str(RATE)]
        options += ["--base-url", model_url, "--model", MODEL, "--summarizer", "extractive"]
        env = {**os.environ, "NEXUS_HOME": str(folder / "home"), "NO_COLOR": "1"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*program(), "serve", *options], stdout=subprocess.PIPE, stderr=log, text=True, env=env
            )

    def wait_until_it_serves(self) -> Client:
        """Return a client of the server once it listens. Raises AssertionError if it ended by itself."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        require(line, f"the server did not start: {self.log.read_text('utf-8')[-2_000:]}")
        self._printed = json.loads(line)
        return self.client()

    def client(self) -> Client:
        """Return another client of the server."""
        return Client(self._printed["url"], self._token, timeout_s=CALL_S)

    @property
    def _token(self) -> str:
        return Path(self._printed["token_file"]).read_text("utf-8").split()[0]

    @property
    def is_running(self) -> bool:
        """False after its end."""
        return self._process.poll() is None

    def kill(self) -> bool:
        """Kill the process as `kill -9` does, and return whether it had printed its address before."""
        assert self._process.stdout is not None
        self._process.kill()
        line = self._process.stdout.read()
        self._process.wait()  # a process that nobody waits for still counts as the holder of its leases
        self._process.stdout.close()
        return bool(self._printed or line)

    def wait_until_idle(self) -> None:
        """Return when all turns have ended that earlier processes left. Raises AssertionError after a minute."""
        until = time.monotonic() + IDLE_S
        while self._get("/ready")[0] != 200 or self._busy_sessions():
            require(time.monotonic() < until, f"turns have not ended within {IDLE_S:.0f} s")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server with SIGTERM. Raises AssertionError unless its exit code is 0."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(CALL_S)
        require(code == 0, f"the server ended with {code}: {self.log.read_text('utf-8')[-2_000:]}")

    def _busy_sessions(self) -> float:
        lines = self._get("/metrics")[1].splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("nexus_busy_sessions "))

    def _get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection(urlsplit(self._printed["url"]).netloc, timeout=CALL_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            with connection.getresponse() as response:
                return response.status, response.read().decode()
        finally:
            connection.close()


def program() -> list[str]:
    """Return the command of `nexus`; with a broken build, of the program that breaks it first."""
    if broken.APPLIED:
        return [sys.executable, "-m", "torture.broken_server", ",".join(broken.APPLIED)]
    return [sys.executable, "-m", "nexus"]


class ModelScript:
    """The scripted model: its reply is a function of the newest user message, and it checks each prompt.

    Attributes:
        life: Number of the server process that runs now.
        calls: Calls of the model for each message.
        lives: The newest process that called the model for each message.
        continued: Messages for which a later process called the model again.
        problems: Violations in prompts.
    """

    def __init__(self, seed: int) -> None:
        self.life, self.calls, self.continued, self.problems = 0, Counter[str](), set[str](), list[str]()
        self._dice, self._lock = random.Random(seed), Lock()
        self._prompts: dict[str, tuple[str, frozenset[str]]] = {}
        self.lives: dict[str, int] = {}

    def expect(self, message: str, system_prompt: str, agent_ids: frozenset[str]) -> None:
        """Register a message before it is sent: its prompt's beginning, and the agents whose words a prompt may have."""
        with self._lock:
            self._prompts[message] = system_prompt, agent_ids

    def step(self, request: ModelRequest) -> Response:
        """Return the reply to a request."""
        messages = [(message["role"], _text(message)) for message in request.body["messages"]]
        last = max(index for index, (role, _) in enumerate(messages) if role == "user")
        message = TOKEN.findall(messages[last][1])[-1]
        with self._lock:
            self.calls[message] += 1
            if self.lives.get(message, self.life) != self.life:
                self.continued.add(message)
            self.lives[message] = self.life
            self._check(message, messages)
        is_answered = any(role == "tool" for role, _ in messages[last:])
        step = reply(reply_text(message))
        if calls_tool(message) and not is_answered:
            step = reply(None, ToolCall(f"call-{message}", "list_files", "{}"))
        delay_s = self._dice.choice((0.0, 0.1, 1.0)) * self._dice.random() * LONGEST_DELAY_S
        return replace(step(request), delay_s=delay_s, event_interval_s=self._dice.random() * LONGEST_INTERVAL_S)

    def _check(self, message: str, messages: list[tuple[str, str]]) -> None:
        if message not in self._prompts:
            self.problems.append(f"the model was called for {message!r}, which was never sent")
            return
        system_prompt, agent_ids = self._prompts[message]
        if not messages[0][1].startswith(system_prompt):
            self.problems.append(f"the prompt for {message} has the settings {messages[0][1][:80]!r}")
        if strangers := agents_in(text for _, text in messages) - agent_ids:
            self.problems.append(f"the prompt for {message} has words of {sorted(strangers)}")


def agents_in(texts: Any) -> set[str]:
    """Return the ids of the agents whose messages are mentioned."""
    return {token.partition("#")[0] for text in texts for token in TOKEN.findall(text)}


def reply_text(message: str) -> str:
    """Return the reply to a message."""
    return f"This is the whole reply to {message} and to no other message of the client."


def calls_tool(message: str) -> bool:
    """Return whether the model calls a tool first."""
    return int(message.partition("#")[2]) % 3 == 0


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content)
