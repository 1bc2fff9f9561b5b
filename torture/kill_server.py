"""Processes of `nexus serve` are killed (`kill -9`) under load; agents must come back, and no request be lost or doubled.

Clients create agents, send messages, run their own loops, fork, compact, cancel and close. After each kill a server is
started on the same ledger. Clients repeat most of the requests that were not answered, with the same `request_id`, and
give up the others: a turn that had begun must end without them. Some servers are killed before they listen, some while
they continue the turns of the one before and no client may use them. The record of acknowledged requests is compared
through the next server, and with the ledger at its end. All of it goes to SQLite, then to PostgreSQL.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import nexus
from nexus.ledger import maintenance
from nexus.testing.model_server import model_server
from torture import server_checks as checks
from torture.figures import Figures, Progress, require
from torture.postgres_server import PostgresServer
from torture.processes import answer
from torture.server_load import ACKNOWLEDGED, GIVEN_UP, REPEATED, Load
from torture.server_process import CALL_S, MODEL, ModelScript, ServerProcess

NAME = "kill_server"
ROUNDS = 200
"""Kills with each kind of ledger."""

KILLS_OF_A_LEDGER: Final = 25
LONGEST_LIFE_S, LONGEST_START_S, LONGEST_RECOVERY_S = 2.4, 0.6, 0.4
"""Seconds until a kill: of a server with clients, of one that does not listen yet, and of one without clients."""
START_SHARE, RECOVERY_SHARE = 0.15, 0.2

KILLS: Final = "kills"
LANDED: Final = "kills with a request under way"
STARTING: Final = "kills during start-up"
RECOVERING: Final = "kills while turns of earlier servers were continued, without clients"
RESTORED: Final = "agents listed after a kill"
CONTINUED: Final = "turns continued by the next process"
COUNTED: Final = (KILLS, LANDED, STARTING, RECOVERING, ACKNOWLEDGED, REPEATED, GIVEN_UP, RESTORED, CONTINUED)


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kill so many servers with each kind of ledger. Raises AssertionError with what was lost, doubled or in part."""
    folder.mkdir(exist_ok=True)
    counts = {"SQLite": answer(_kill_with_sqlite, rounds, seed, folder, progress)}
    database = PostgresServer(("recovery_init_sync_method = syncfs",))
    try:
        counts["PostgreSQL"] = answer(_kill_with_postgres, rounds, seed, folder, progress, database)
    finally:
        database.stop()
    figures = {f"{kind}: {name}": number for kind, numbers in counts.items() for name, number in numbers.items()}
    return Figures(NAME, rounds, figures)


def _kill_with_sqlite(rounds: int, seed: int, folder: Path, progress: Progress) -> dict[str, int]:
    def verify(ledger: str) -> None:
        damages = maintenance.verify(ledger)
        require(not damages, f"the ledger is damaged: {damages[:3]}")

    room = folder / "sqlite"
    return _kill_servers(rounds, seed, room, lambda number: str(room / f"{number}.db"), verify, progress)


def _kill_with_postgres(
    rounds: int, seed: int, folder: Path, progress: Progress, database: PostgresServer
) -> dict[str, int]:
    from nexus.ledger.maintenance import server as server_maintenance

    def verify(ledger: str) -> None:
        damages = server_maintenance.verify(ledger)
        require(not damages, f"{len(damages)} rows are damaged, the first: {damages[:1]}")

    urls = database.new_ledger
    return _kill_servers(rounds, seed, folder / "postgres", lambda _number: urls(), verify, progress)


def _kill_servers(
    rounds: int,
    seed: int,
    folder: Path,
    new_ledger: Callable[[int], str],
    verify: Callable[[str], None],
    progress: Progress,
) -> dict[str, int]:
    """Kill servers on one ledger after the other; return the counts."""
    dice, counts = random.Random(seed), Counter[str](dict.fromkeys(COUNTED, 0))
    folder.mkdir()
    ledgers = 0
    while counts[KILLS] < rounds:
        ledgers += 1
        kills = min(KILLS_OF_A_LEDGER, rounds - counts[KILLS])
        ledger = LedgerUnderKills(folder / str(ledgers), new_ledger(ledgers), dice, counts)
        try:
            ledger.run(kills, lambda: progress(counts[KILLS], rounds))
        except AssertionError as error:
            log = (folder / str(ledgers) / "server.log").read_text("utf-8")
            error.args = (
                f"{folder.name} ledger {ledgers}, after kill {counts[KILLS]}: {error} {log[-2_000:]}".strip(),
            )
            raise
        verify(ledger.location)
    return {"ledgers": ledgers, **counts, "requests lost or doubled": 0}


class LedgerUnderKills:
    """One ledger, its clients, and the servers that are killed one after the other."""

    def __init__(self, folder: Path, location: str, dice: random.Random, counts: Counter[str]) -> None:
        self.location, self._folder, self._dice, self._counts = location, folder, dice, counts
        self._script = ModelScript(dice.randrange(1 << 30))
        self._load = Load(dice.randrange(1 << 30), self._script)
        folder.mkdir()

    def run(self, kills: int, progress: Callable[[], None]) -> None:
        """Kill so many servers under load, let the last one end all requests, and check the ledger."""
        with model_server(self._script.step) as model:
            self._load.start()
            try:
                for _ in range(kills):
                    self._live(ServerProcess(self._folder, self.location, model.openai_url))
                    self._load.check()
                    model.requests.clear()
                    progress()
                self._end(ServerProcess(self._folder, self.location, model.openai_url))
            finally:
                self._load.gate.end()
        self._counts.update(self._load.counts)
        self._counts[CONTINUED] += len(self._script.continued)
        log = (self._folder / "server.log").read_text("utf-8")
        require(not log, "the servers reported errors:")
        with nexus.open(ledger=self.location, model=MODEL) as nx:
            statuses = checks.check_ledger(nx, self._load)
        self._counts.update(checks.describe(statuses))

    def _live(self, server: ServerProcess) -> None:
        """Run a server and kill it at a random time."""
        self._script.life += 1
        kind = self._dice.random()
        try:
            if kind < START_SHARE:
                time.sleep(self._dice.random() * LONGEST_START_S)
                return
            client = server.wait_until_it_serves()
            if kind < START_SHARE + RECOVERY_SHARE:
                time.sleep(self._dice.random() * LONGEST_RECOVERY_S)
                self._counts[RECOVERING] += 1
                return
            self._load.gate.open(client)
            life_s = self._dice.random() ** 2 * LONGEST_LIFE_S
            check_s = self._dice.random() * life_s
            time.sleep(check_s)
            if self._counts[KILLS]:
                self._counts[RESTORED] += checks.check_server(client, self._load, self._dice)
            time.sleep(life_s - check_s)
        finally:
            is_running = server.is_running
            self._counts[LANDED] += bool(self._load.gate.close())
            self._counts[STARTING] += not server.kill()
            self._counts[KILLS] += 1
        require(is_running, "a server ended before it was killed")

    def _end(self, server: ServerProcess) -> None:
        """Let clients end their requests, wait for the turns of those that were given up, and stop the server."""
        self._script.life += 1
        try:
            client = server.wait_until_it_serves()
            self._load.gate.open(client)
            self._load.finish(CALL_S)
            server.wait_until_idle()
            self._counts[RESTORED] += checks.check_server(client, self._load, self._dice)
            server.stop()
        finally:
            self._load.gate.close()
            server.kill()
        self._load.check()
