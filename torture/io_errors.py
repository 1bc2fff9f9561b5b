"""Each operation on the disk fails once, or from there on: an error of ours or success, and nothing is lost.

For each scene (`torture.scenes`) the n-th system call or sync fails with EIO, for n = 1, 2, … until the scene gets
through without meeting it. Then the fault is gone: the same process goes on, and another one opens the ledger.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec import Struct

from torture import scenes
from torture.calls import Calls
from torture.figures import Figures, Progress, require
from torture.processes import answer
from torture.scenes import SCENES, Outcome, Scene

NAME = "io_errors"
ROUNDS = 10_000
"""Failing places of one scene, at most. No scene has so many, so each one is tried."""

RARE = 12
"""Places of an operation that a scene makes seldom: opening a file, deleting one, syncing."""


class Place(Struct, frozen=True):
    """Which operation fails, and whether all after it fail too."""

    number: int
    lasting: bool


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Fails each place, or `rounds` random ones of each scene. Raises AssertionError with what was lost."""
    dice, counts, done = random.Random(seed), Counter[str](), 0
    places = {scene.name: _places(scene, folder, rounds, dice) for scene in SCENES}
    whole = sum(map(len, places.values()))
    for scene in SCENES:
        for place in places[scene.name]:
            name = fail_once(scene, folder, place)
            counts[f"{scene.name}: {name or 'success all the same'}"] += 1
            done += 1
            progress(done, whole)
    found = {name: counts[name] for name in sorted(counts)}
    return Figures(NAME, done, {**found, "acknowledged appends lost": 0, "other errors": 0})


def _places(scene: Scene, folder: Path, most: int, dice: random.Random) -> list[Place]:
    """All places at which the scene can fail; of too many, those of rare operations and random ones of all others."""
    template = folder / f"{scene.name}.db"
    answer(scenes.prepare, scene, template)
    names = answer(operations, scene, template, empty_room(folder))
    kinds: dict[str, list[Place]] = {}
    for number, operation in enumerate(names, 1):
        kinds.setdefault(operation, []).extend(Place(number, lasting) for lasting in (False, True))
    for places in kinds.values():
        dice.shuffle(places)
    taken = [place for places in kinds.values() if len(places) <= RARE for place in places]
    others = [places for places in kinds.values() if len(places) > RARE]
    taken += [place for row in zip_longest(*others) for place in row if place is not None]
    return sorted(taken[:most], key=lambda place: (place.lasting, place.number))


def empty_room(folder: Path) -> Path:
    """An empty folder to work in."""
    room = folder / "room"
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir()
    return room / "l.db"


def fail_once(scene: Scene, folder: Path, place: Place) -> str:
    """Fail one place of a scene and check what is left. Returns the name of the error, empty for none."""
    where = f"{scene.name}, operation {place.number}{' and all after it' if place.lasting else ''}"
    try:
        outcome = answer(_attempt, scene, folder / f"{scene.name}.db", empty_room(folder), place)
        answer(scenes.verify, outcome.work)
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    return outcome.error


def operations(scene: Scene, template: Path, path: Path) -> list[str]:
    """The names of the operations that the scene makes when none fails."""
    calls, names = Calls(), list[str]()
    work = scenes.begun(scene, template, path)

    def noted(name: str, _: tuple[Any, ...]) -> int:
        names.append(name)
        return 0

    calls.rule = noted
    outcome = scenes.acted(scene, work)
    calls.rule = None
    require(not outcome.error, f"{scene.name} fails without a fault: {outcome.text}")
    return names


def _attempt(scene: Scene, template: Path, path: Path, place: Place) -> Outcome:
    calls = Calls()
    work = scenes.begun(scene, template, path)
    calls.rule = _Counter(place.number, lasting=place.lasting)
    outcome = scenes.acted(scene, work)
    calls.rule = None
    scenes.goes_on(work)
    work.ledger = None
    return outcome


class _Counter:
    """Counts operations and fails the one with the number, or it and all after it."""

    def __init__(self, number: int, *, lasting: bool) -> None:
        self.count, self._number, self._lasting = 0, number, lasting

    def __call__(self, *_: object) -> int:
        self.count += 1
        hit = self.count == self._number or (self._lasting and 0 < self._number < self.count)
        return errno.EIO if hit else 0
