"""Backups are made while another process appends: each is whole and has every append acknowledged before it began."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from nexus.errors import LedgerError
from nexus.ledger import maintenance as care
from nexus.ledger.sqlite import SqliteLedger
from torture import traffic
from torture.figures import Figures, Progress, require
from torture.processes import Numbers, Signal, answer, ended, started

NAME = "backup_load"
ROUNDS = 300

ROUNDS_OF_A_FILE = 4
LONGEST_PAUSE_SECONDS = 0.03
BEGUN, ACKNOWLEDGED, STOP = range(3)
"""Cells: the append that was begun last and that was acknowledged last, and whether to end."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """So many backups. Raises AssertionError when one is not whole or lacks what was acknowledged before it."""
    dice, cells = random.Random(seed), Numbers(3)
    counts = Counter[str]()
    copy = folder / "copy.db"
    for begin in range(0, rounds, ROUNDS_OF_A_FILE):
        path, session = folder / f"{begin}.db", f"s{begin}"
        cells.clear()
        ready = Signal()
        pid = started(_append, path, session, cells, ready)
        require(ready.wait(), "the process that should append ended by itself; what it said stands above")
        try:
            for number in range(begin, min(begin + ROUNDS_OF_A_FILE, rounds)):
                time.sleep(dice.random() * LONGEST_PAUSE_SECONDS)
                before = cells[ACKNOWLEDGED]
                answer(_back_up, path, copy)
                found = answer(_check, copy, session, before, cells[BEGUN])
                counts["appends acknowledged before their backup began"] += before
                counts["appends in the backups"] += found
                progress(number + 1, rounds)
        finally:
            cells[STOP] = 1
            code = ended(pid)
        path.unlink()
        require(code == 0, f"the process that appended ended with {code}; what it said stands above")
    text = "appends lost in a backup, backups not whole"
    return Figures(NAME, rounds, {**counts, text: 0})


def _append(path: Path, session: str, cells: Numbers, ready: Signal) -> None:
    ledger = SqliteLedger(str(path))
    number = 0
    while not cells[STOP]:
        number += 1
        cells[BEGUN] = number
        traffic.write(ledger, session, number)
        cells[ACKNOWLEDGED] = number
        if number == 1:
            ready.give()
    ledger.close()


def _back_up(path: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    care.backup(path, copy)


def _check(copy: Path, session: str, acknowledged: int, begun: int) -> int:
    """How many appends the copy has. It is opened in the place that it has: alone, without another file's log."""
    try:
        ledger = SqliteLedger(str(copy), create=False)
        found = traffic.check(ledger, session, acknowledged, begun).appends
        ledger.close()
    except LedgerError as error:
        raise AssertionError(f"the backup cannot be read: {error}") from error
    traffic.sound(copy)
    return found
