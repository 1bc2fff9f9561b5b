"""Processes of `nexus proxy` are killed (`kill -9`) under load; a call whose answer a client has whole must be recorded.

Clients hold conversations with whole lists, two of them with the same texts, streamed and not, in all three modes. After
each kill a proxy is started on the same ledger, and they go on with what they have. At the end each answer that arrived
whole is in its conversation's session behind its own question, each recorded call is replayed, and the ledger is whole.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx

import nexus
from nexus.ledger import maintenance
from nexus.testing.model_server import ModelRequest, Response, model_server, reply
from torture.figures import Figures, Progress, require
from torture.server_process import program

Process: TypeAlias = "subprocess.Popen[str]"

NAME = "kill_proxy"
ROUNDS = 400
"""Kills."""

CLIENTS: Final = 6
KILLS_OF_A_LEDGER: Final = 25
LONGEST_LIFE_S: Final = 1.5
MODES: Final = (("--mode", "record"), ("--mode", "heal"), ("--budget", "4000"))
ANSWERED: Final = "answers that arrived whole"
BROKEN: Final = "answers that broke off, or never began"
LANDED: Final = "kills with a request under way"
REPLAYED: Final = "recorded calls replayed"


@dataclass
class Client:
    """A client with its whole list."""

    name: str
    text: str
    streams: bool
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answers: list[str] = field(default_factory=list[str])
    """Those that arrived whole."""
    asked: int = 0
    is_asking: bool = False

    def ask(self, url: str, counts: Counter[str]) -> None:
        """Ask the next question, and keep the answer if it arrives whole."""
        question = f"{self.text} question {self.asked}. " + "word " * 60
        self.asked += 1
        listed = [*self.messages, {"role": "user", "content": question}]
        body = {"model": "claude-sonnet-4-5", "max_tokens": 99, "messages": listed, "stream": self.streams}
        self.is_asking = True
        text = _answer(url, body, self.name)
        self.is_asking = False
        counts[ANSWERED if text else BROKEN] += 1
        if text:
            self.messages = [*listed, {"role": "assistant", "content": text}]
            self.answers.append(text)


def _answer(url: str, body: dict[str, Any], name: str) -> str:
    """Return the text of an answer; empty if it is not whole.

    A stream is whole with its last event, as for the providers' packages: none of them waits for the connection's end.
    """
    data = b""
    headers = {"x-claude-code-session-id": name}
    with suppress(httpx.HTTPError), httpx.Client(trust_env=False, timeout=20) as http:
        with http.stream("POST", f"{url}/v1/messages", json=body, headers=headers) as answer:
            if answer.status_code != 200:
                return ""
            for piece in answer.iter_raw():
                data += piece
                if body["stream"] and b'"message_stop"}\n\n' in data:
                    break
        return _text_of(data.decode(), streams=body["stream"])
    return _text_of(data.decode(), streams=True) if body["stream"] else ""


def _text_of(data: str, *, streams: bool) -> str:
    """Return the text of a whole answer; empty if its end is missing."""
    if not streams:
        return json.loads(data)["content"][0]["text"]
    if '"message_stop"}\n\n' not in data:
        return ""
    events = [json.loads(line.removeprefix("data: ")) for line in data.splitlines() if line.startswith("data: ")]
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kill so many proxies. Raises AssertionError with what was lost."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    done = 0
    while done < rounds:
        kills = min(KILLS_OF_A_LEDGER, rounds - done)
        room = folder / str(done)
        room.mkdir(parents=True)
        _kill_on_one_ledger(room, kills, chance, counts, lambda number, before=done: progress(before + number, rounds))
        done += kills
    return Figures(NAME, rounds, {"kills": rounds, **counts})


def _kill_on_one_ledger(room: Path, kills: int, chance: random.Random, counts: Counter[str], told: Any) -> None:
    """Kill some proxies that record in one ledger, and check it."""
    ledger = room / "proxy.db"
    clients = [Client(f"client {n}", "same" if n < 2 else f"own {n}", n % 2 == 0) for n in range(CLIENTS)]
    answers = iter(range(1 << 30))
    lock = threading.Lock()

    def answer(request: ModelRequest) -> Response:
        with lock:
            number = next(answers)
        return reply(f"answer {number} in some words", event_interval_s=0.004)(request)

    with model_server(answer) as provider:
        for number in range(kills):
            _one_life(room, ledger, provider.anthropic_url, MODES[number % 3], clients, chance, counts)
            told(number + 1)
    check(ledger, clients, counts)


@contextmanager
def proxy_process(room: Path, ledger: Path, upstream: str, *options: str) -> Generator[tuple[Process, str]]:
    """Run `nexus proxy` with its home in a folder, and yield the process and its address; it is killed at the end."""
    command = [*program(), "proxy", "--port", "0", "--json", "--ledger", str(ledger), "--upstream", upstream, *options]
    environment = {**os.environ, "HOME": str(room)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


def _one_life(
    room: Path,
    ledger: Path,
    upstream: str,
    mode: tuple[str, ...],
    clients: list[Client],
    chance: random.Random,
    counts: Counter[str],
) -> None:
    """Run a proxy with its clients, and kill it after a while."""
    ended = threading.Event()
    with proxy_process(room, ledger, upstream, *mode) as (proxy, url):

        def converse(client: Client) -> None:
            while not ended.is_set():
                client.ask(url, counts)

        threads = [threading.Thread(target=converse, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.1, LONGEST_LIFE_S))
        counts[LANDED] += any(client.is_asking for client in clients)
        ended.set()
        proxy.kill()
        for thread in threads:
            thread.join()


def check(ledger: Path, clients: list[Client], counts: Counter[str]) -> None:
    """Check that the ledger is whole and has each answer behind its question. Raises AssertionError."""
    require(not maintenance.verify(str(ledger)), "the ledger is damaged")
    with nexus.open(ledger=ledger) as nx:
        histories = {info.label: nx.history(info.label) for info in nx.sessions()}
        for client in clients:
            said = [message.get("content") for message in client.messages]
            own = {
                label: [message.text() for message in messages]
                for label, messages in histories.items()
                if label.startswith(f"claude-code/{client.name}~")
            }
            require(
                not said or any(texts[: len(said)] == said for texts in own.values()),
                f"{client.name}: no session has its {len(client.answers)} answers behind their questions",
            )
        for info in nx.sessions():
            for turn in range(1, info.turns + 1):
                try:
                    nx.calls.find(info.label, turn)
                except nexus.errors.BadReference:
                    continue
                nx.replay(info.label, turn)
                counts[REPLAYED] += 1
