"""Kills of a proxy at the moment at which a client has a whole answer: it is recorded behind its question.

Two clients with the same texts talk through one proxy, one of them with streams. After some calls it is killed as soon as
the last answer is there, so that nothing of it can be recorded later.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Final

from nexus.testing.model_server import ModelRequest, Response, model_server, reply
from torture.figures import require
from torture.kill_proxy import MODES, Client, check, proxy_process
from torture.processes import answer

CALLS: Final = 3
"""Answers before the kill; the first ones of a process take the longest to record."""


def killed_proxies(folder: Path) -> int:
    """Kill a proxy behind an answer in each mode: behind a plain one, a streamed one, and a plain one again."""
    return answer(_kill_and_check, folder)  # a process with threads must not be forked


def _kill_and_check(folder: Path) -> int:
    ledger = folder / "l.db"
    clients = [Client("plain", "same", streams=False), Client("streamed", "same", streams=True)]
    numbers = count()

    def step(request: ModelRequest) -> Response:
        return reply(f"answer {next(numbers)} in some words")(request)

    with model_server(step) as model:
        for mode in MODES:
            _one_life(folder, ledger, model.anthropic_url, mode, *clients)
            check(ledger, clients, Counter())
            clients.reverse()
    return len(MODES)


def _one_life(folder: Path, ledger: Path, upstream: str, mode: tuple[str, ...], last: Client, first: Client) -> None:
    counts: Counter[str] = Counter()
    before = len(last.answers)
    with proxy_process(folder, ledger, upstream, *mode) as (proxy, url):
        for _ in range(CALLS):
            first.ask(url, counts)
            last.ask(url, counts)
        proxy.kill()
    require(len(last.answers) == before + CALLS, f"{last.name}: {counts} of {2 * CALLS} calls")


def prepare() -> None:
    """Nothing is prepared: a process that forks often is kept small."""


CASES: Final = (killed_proxies,)

FOUND_BY: Final = (
    ("unheld_ends", killed_proxies, "no session has"),
    ("unawaited_records", killed_proxies, "no session has"),
    ("mixed_conversations", killed_proxies, "no session has"),
)
"""Each broken build of `torture.broken`, the case that finds it, and a part of what that case reports."""
