"""The disk fills at a random moment: what was acknowledged is stored, the error says so, and all goes on when there is room.

Three ways: writes fail with ENOSPC after so many bytes of growth (a short write first, as the system does it) in each
scene of `torture.scenes`; the file reaches `max_page_count`; the process reaches its limit of file size (RLIMIT_FSIZE).
"""

from __future__ import annotations

import random
import resource
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nexus.errors import LedgerError, LedgerFull
from nexus.ledger.sqlite import SqliteLedger, files
from torture import scenes, traffic
from torture.calls import Calls
from torture.figures import Figures, Progress, require
from torture.processes import answer
from torture.scenes import SCENES, SESSION, Scene, Work

NAME = "disk_full"
ROUNDS = 2_000

WRITING = tuple(scene for scene in SCENES if scene.name not in ("read", "open"))
"""Scenes that need room."""

FEW_APPENDS = 400
"""Appends that fill any of the small disks."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Fills a disk so many times. Raises AssertionError with what was lost or not said."""
    dice, counts = random.Random(seed), Counter[str]()
    needs = {scene.name: growth(scene, folder) for scene in WRITING}
    for number in range(rounds):
        ways = (*WRITING, page_limit, file_limit)
        way = ways[number % len(ways)]
        room = folder / "room"
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir()
        if isinstance(way, Scene):
            bytes_left = dice.randrange(needs[way.name])
            name = f"ENOSPC, {way.name}"
            told = _told(
                name, bytes_left, lambda way=way, left=bytes_left, room=room: fill_scene(way, folder, room, left)
            )
        else:
            limit = dice.randint(1, 60)
            name = way.__name__.replace("_", " ")
            told = _told(name, limit, lambda way=way, left=limit, room=room: answer(way, room / "l.db", left))
        counts[f"{name}: {told or 'success all the same'}"] += 1
        progress(number + 1, rounds)
    found = {name: counts[name] for name in sorted(counts)}
    return Figures(NAME, rounds, {**found, "acknowledged appends lost": 0, "other errors": 0})


def _told(name: str, limit: int, call: Callable[[], str]) -> str:
    try:
        return call()
    except AssertionError as error:
        raise AssertionError(f"{name}, limit {limit}: {error}") from error


def growth(scene: Scene, folder: Path) -> int:
    """How many bytes the scene's files grow by."""
    template = folder / f"{scene.name}.db"
    answer(scenes.prepare, scene, template)
    room = folder / "room"
    room.mkdir(exist_ok=True)
    grown = answer(_grown, scene, template, room / "l.db")
    shutil.rmtree(room)
    return grown


def _grown(scene: Scene, template: Path, path: Path) -> int:
    calls = Calls()
    work = scenes.begun(scene, template, path)
    calls.room = plenty = 1 << 40
    outcome = scenes.acted(scene, work)
    require(not outcome.error, f"{scene.name} fails without a fault: {outcome.text}")
    return max(1, plenty - calls.room)


def fill_scene(scene: Scene, folder: Path, room: Path, left: int) -> str:
    """Do what a scene does with so many bytes left, and check what is left of it. Returns the name of the error."""
    outcome, refused = answer(_attempt, scene, folder / f"{scene.name}.db", room / "l.db", left)
    answer(scenes.verify, outcome.work)
    require(outcome.error in ("", "LedgerFull"), f"a full disk is told as {outcome.error}: {outcome.text}")
    require(refused or not outcome.error, "LedgerFull was raised although there was room")
    return outcome.error


def _attempt(scene: Scene, template: Path, path: Path, left: int) -> tuple[scenes.Outcome, int]:
    calls = Calls()
    work = scenes.begun(scene, template, path)
    calls.room = left
    outcome = scenes.acted(scene, work)
    calls.room, refused = None, calls.refused
    scenes.goes_on(work)
    work.ledger = None
    return outcome, refused


def page_limit(path: Path, pages: int) -> str:
    """The ledger's own limit: fills it, looks at it, lifts it."""
    _fill(path, 3)
    settle, limit = files.settle, pages + path.stat().st_size // 4096

    def limited(db: Any) -> None:
        settle(db)
        db.run(f"PRAGMA max_page_count={limit}")

    files.settle = limited
    error, work = _filled(path)
    require(error == "LedgerFull", f"a full file is told as {error}")
    limit = 1 << 30
    work.opened().close()
    work.ledger = None
    scenes.goes_on(work)
    return error


def file_limit(path: Path, pages: int) -> str:
    """The process's limit of file size: the system refuses the write with EFBIG."""
    _fill(path, 3)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096 * pages + 100, most))
    error, work = _filled(path)
    require(error != "", "nothing was refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    scenes.goes_on(work)
    return error


def _fill(path: Path, appends: int) -> None:
    ledger = SqliteLedger(str(path))
    for number in range(1, appends + 1):
        traffic.write(ledger, SESSION, number)
    ledger.close()


def _filled(path: Path) -> tuple[str, Work]:
    """Appends until that is refused; what was acknowledged must be all there is."""
    work = Work(path, 3)
    error = ""
    for _ in range(FEW_APPENDS):
        try:
            work.append()
        except LedgerFull:
            error = "LedgerFull"
            break
        except LedgerError as refusal:
            error = type(refusal).__name__
            break
    stored = traffic.check(work.opened(), SESSION, work.appends, work.appends).appends
    require(stored == work.appends, f"{work.appends} appends were acknowledged and {stored} are stored")
    return error, work
