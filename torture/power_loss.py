"""Power is lost at a random write, again and again; with `synchronous=FULL` nothing acknowledged may be lost.

Every third ledger is one of version 1 at first, so that losses hit its migration.

The ledger runs on a disk that keeps what was synced and of the rest a random part (see `torture.disk`). Each round opens
the ledger that the loss before it has left, checks all that was ever acknowledged, and appends until power is lost
again; so losses also hit the making of a ledger and the recovery from a loss.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nexus.ledger.sqlite import SqliteLedger
from torture import traffic, version_1
from torture.disk import LOST, Disk
from torture.figures import Figures, Progress, require
from torture.processes import Numbers, answer, ended, started

NAME = "power_loss"
ROUNDS = 10_000

ROUNDS_OF_A_FILE = 12
CHECKPOINT_PAGES = (8, 40, 1_000)
MOST_CHANGES = 1_200
"""Writes, syncs and the like of one round, at most, before power is lost."""

OLD, OLD_APPENDS = "old", 12
"""The session of a ledger that was of version 1, and its appends."""

EARLY, EARLY_OF_FIRST, EARLY_CHANGES = 0.2, 0.8, 40
"""Shares of the losses that come so early that they hit the recovery, and of a file's first one the making of it."""

TOLD = ("losses", "writes dropped", "writes torn", "new files lost")
OPENED, IS_OLD, BASE = len(TOLD), len(TOLD) + 1, len(TOLD) + 2
"""Cells: what the disk told; whether this round has opened and checked the ledger; whether it was of version 1 at first;
then, for each round, appends begun and acknowledged."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Loses power so many times. Raises AssertionError with what was lost or damaged."""
    dice, cells = random.Random(seed), Numbers(BASE + 2 * ROUNDS_OF_A_FILE)
    counts = Counter[str]()
    for number in range(rounds):
        part = number % ROUNDS_OF_A_FILE
        path = folder / f"{number - part}.db"
        if part == 0:
            cells.clear()
            cells[IS_OLD] = number // ROUNDS_OF_A_FILE % 3 == 2
            if cells[IS_OLD]:
                answer(version_1.make, path, OLD, OLD_APPENDS)
        _lose_once(path, part, cells, dice)
        early = not cells[OPENED]
        counts["losses before the ledger was open and checked"] += early
        counts["losses before one of version 1 was migrated and checked"] += early and cells[IS_OLD] and not cells[BASE]
        if part == ROUNDS_OF_A_FILE - 1 or number == rounds - 1:
            counts["appends acknowledged"] += answer(_check, path, part + 1, cells)
            counts.update({name: cells[cell] for cell, name in enumerate(TOLD) if cell})
            for old in folder.glob(f"{path.name}*"):
                old.unlink()
        progress(number + 1, rounds)
    return Figures(NAME, rounds, {**counts, "acknowledged appends lost": 0, "ledgers damaged": 0})


def _lose_once(path: Path, part: int, cells: Numbers, dice: random.Random) -> None:
    cells[OPENED] = 0
    early = dice.random() < (EARLY if part else EARLY_OF_FIRST)
    until = dice.randint(1, EARLY_CHANGES) if early else 1 + int(MOST_CHANGES * dice.random() ** 2)
    pid = started(_append, path, part, cells, dice.getrandbits(64), until, dice.choice(CHECKPOINT_PAGES))
    code = ended(pid)
    if code == 1:
        answer(_check_all, path, part, cells)
    require(code == LOST, f"a process ended with {code} before power was lost; what it said stands above")


def _append(path: Path, part: int, cells: Numbers, seed: int, until: int, pages: int) -> None:
    traffic.frequent_checkpoints(pages)
    disk = Disk(random.Random(seed), until, _told(cells))
    _check_all(path, part, cells)
    cells[OPENED] = 1
    ledger = SqliteLedger(str(path))
    begun, acknowledged = BASE + 2 * part, BASE + 2 * part + 1
    for number in range(1, MOST_CHANGES):
        cells[begun] = number
        traffic.write(ledger, f"s{part}", number)
        cells[acknowledged] = number
    disk.lose()


def _told(cells: Numbers) -> Callable[[Counter[str]], None]:
    def told(seen: Counter[str]) -> None:
        for cell, name in enumerate(TOLD):
            cells[cell] += seen[name]

    return told


def _check(path: Path, parts: int, cells: Numbers) -> int:
    """How many appends were acknowledged, when all of them are there."""
    _check_all(path, parts, cells)
    traffic.sound(path)
    return sum(cells[BASE + 2 * part + 1] for part in range(parts))


def _check_all(path: Path, parts: int, cells: Numbers) -> None:
    ledger = SqliteLedger(str(path))
    if cells[IS_OLD]:
        traffic.check(ledger, OLD, OLD_APPENDS, OLD_APPENDS)
    for part in range(parts):
        traffic.check(ledger, f"s{part}", cells[BASE + 2 * part + 1], cells[BASE + 2 * part])
    ledger.close()
