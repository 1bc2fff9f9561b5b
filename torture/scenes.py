"""What is done to a ledger while its disk fails or fills: making one, appending, compacting, migrating, backing up.

A scene starts from a closed file, opens it, does one thing and says how many appends were acknowledged in all. The same
scenes are used for I/O errors and for full disks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from nexus.errors import LedgerError, NexusError
from nexus.ledger import maintenance as care
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, Compaction, NewEntry
from torture import traffic, version_1
from torture.figures import lost, require

SESSION: Final = "s"
APPENDS: Final = 7
"""Appends in the file that a scene starts from."""

COPY_APPENDS: Final = 40
"""The same for a migration and a backup, so that they have more than a few pages to write."""


class Work(Struct):
    """What a scene works on: the file, and the ledger if it is open; and what was acknowledged and begun there."""

    path: Path
    appends: int
    ledger: SqliteLedger | None = None
    begun: int = 0
    marks: int = 0

    def opened(self) -> SqliteLedger:
        """The open ledger."""
        if self.ledger is None:
            self.ledger = SqliteLedger(str(self.path))
        return self.ledger

    def append(self) -> None:
        """One more append."""
        self.begun = self.appends + 1
        traffic.write(self.opened(), SESSION, self.begun)
        self.appends = self.begun

    @property
    def copy(self) -> Path:
        """Where a backup goes."""
        return self.path.with_name("copy.db")


class Scene(Struct, frozen=True):
    """A scene: what the file is before, whether its ledger is open when faults begin, and what is done then."""

    name: str
    act: Callable[[Work], None]
    appends: int = APPENDS
    opened: bool = True
    old: bool = False
    checkpoint_pages: int = 0


class Outcome(Struct, frozen=True):
    """How a scene went under a fault: the error's name (empty: none), and how many appends are acknowledged and begun."""

    error: str
    text: str
    work: Work


def prepare(scene: Scene, path: Path) -> None:
    """Makes the file that the scene starts from; none for a scene that makes one."""
    if scene.old:
        version_1.make(path, SESSION, scene.appends)
    elif scene.appends:
        work = Work(path, 0)
        for _ in range(scene.appends):
            work.append()
        work.opened().close()


def begun(scene: Scene, template: Path, path: Path) -> Work:
    """A fresh copy of the scene's file, its ledger open and written to if the scene wants that."""
    if scene.appends:
        shutil.copyfile(template, path)
    if scene.checkpoint_pages:
        traffic.frequent_checkpoints(scene.checkpoint_pages)
    work = Work(path, scene.appends, begun=scene.appends)
    if scene.opened:
        work.append()
    return work


def acted(scene: Scene, work: Work) -> Outcome:
    """Does what the scene does. Raises AssertionError for an error that is none of ours."""
    try:
        scene.act(work)
    except LedgerError as error:
        return Outcome(type(error).__name__, str(error), work)
    except NexusError as error:
        lost(f"{scene.name}: {type(error).__name__} instead of a LedgerError: {error}")
    return Outcome("", "", work)


def goes_on(work: Work) -> None:
    """The same process, the fault gone: the append that failed can be repeated, then another one."""
    try:
        if work.begun > work.appends:
            traffic.write(work.opened(), SESSION, work.begun)
            work.appends = work.begun
        work.append()
        traffic.check(work.opened(), SESSION, work.appends, work.appends)
        work.opened().close()
    except LedgerError as error:
        lost(f"the fault is gone, and the same process still gets {type(error).__name__}: {error}")


def verify(work: Work) -> None:
    """Another process, later: everything acknowledged is there, and a copy that is there is whole."""
    ledger = SqliteLedger(str(work.path))
    traffic.check(ledger, SESSION, work.appends, work.begun)
    thread = ledger.thread_of("marked")
    marks = ledger.checkpoints(thread) if thread is not None else []
    require(len(marks) >= work.marks, f"{work.marks} compactions were acknowledged, {len(marks)} are there")
    ledger.close()
    traffic.sound(work.path)
    if work.copy.exists():
        copied = SqliteLedger(str(work.copy), create=False)
        traffic.check(copied, SESSION, COPY_APPENDS, work.appends)
        copied.close()
        traffic.sound(work.copy)


def _open(work: Work) -> None:
    work.opened()


def _append(work: Work) -> None:
    work.append()
    work.append()


def _append_often(work: Work) -> None:
    for _ in range(5):
        work.append()


def _first_append(work: Work) -> None:
    work.append()


def _read(work: Work) -> None:
    traffic.check(work.opened(), SESSION, work.appends, work.appends)


def _compact(work: Work) -> None:
    ledger = work.opened()
    ledger.commit("marked", Commit((NewEntry(at_ms=traffic.FIRST_MS),)))
    summary = msgspec.to_builtins(Compaction(1, 1, 2, "A summary. " * 200))
    ledger.commit("marked", Commit((NewEntry("compaction", body=summary, keys=("k",)),), expected_checkpoint=0))
    work.marks += 1


def _back_up(work: Work) -> None:
    care.backup(work.path, work.copy)


def _close(work: Work) -> None:
    ledger = work.opened()
    work.ledger = None
    ledger.close()


SCENES: Final = (
    Scene("make", _open, appends=0, opened=False),
    Scene("open", _open, opened=False),
    Scene("first append", _first_append, opened=False),
    Scene("append", _append),
    Scene("read", _read),
    Scene("checkpoint", _append_often, checkpoint_pages=1),
    Scene("compaction", _compact),
    Scene("migration", _open, appends=COPY_APPENDS, opened=False, old=True),
    Scene("backup", _back_up, appends=COPY_APPENDS),
    Scene("close", _close),
)
