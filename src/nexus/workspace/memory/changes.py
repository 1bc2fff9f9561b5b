"""Journal of the changes to memory: the facts that each one added and removed, from which it can be undone.

A change has its line in `.nexus/memory-changes.jsonl` before the files are written, and a second one afterwards. If a program
stops in between, the files decide whether the change took place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.types.decoding import decodable
from nexus.workspace.memory import files
from nexus.workspace.memory.facts import comparison_key

JOURNAL = ".nexus/memory-changes.jsonl"
PROFILE = "user profile"
"""`file` of a fact in a user's profile."""


class StoredFact(Struct, frozen=True):
    """A fact with its place: the memory file or a user's profile."""

    file: str
    section: str
    date: str
    text: str
    principal: str = ""
    """Whose profile it is; empty for the local user's."""

    @property
    def key(self) -> tuple[bool, str, str]:
        """Key under which equal facts of the same file are found."""
        return self.file == PROFILE, self.principal, comparison_key(self.text)


class Change(Struct, frozen=True):
    """One change to memory: the facts that it added and removed."""

    number: int
    at: str
    """Local time."""
    by: str
    """`accept`, `add`, `forget`, `write` or `undo`."""
    added: tuple[StoredFact, ...] = ()
    removed: tuple[StoredFact, ...] = ()
    of: int = 0
    """Change that an undo reverts."""
    undone_by: int = 0
    """Undo that reverts this change."""


class _ChangeLine(Struct, frozen=True, omit_defaults=True):
    change: Change | None = None
    number: int = 0
    state: Literal["", "done", "dropped"] = ""


def begin(root: Path, change: Change) -> None:
    """Write a change to the journal, before the files. Hold the lock."""
    _append(root, _ChangeLine(change))


def finish(root: Path, number: int, *, dropped: bool = False) -> None:
    """Mark a change as written, or as not written. Hold the lock."""
    _append(root, _ChangeLine(number=number, state="dropped" if dropped else "done"))


def changes(root: Path, is_written: Callable[[Change], bool]) -> list[Change]:
    """Return the changes that reached the files, oldest first, each with the undo that reverts it.

    `is_written` compares a change with the files: it decides about the last one if its program stopped.
    """
    return [change for change, state in _journal(root) if state == "done" or (state == "" and is_written(change))]


def next_number(root: Path, is_written: Callable[[Change], bool]) -> int:
    """Return the number of a new change. Marks one whose program stopped as written or not. Hold the lock."""
    journal = _journal(root)
    for change, state in journal:
        if not state:
            finish(root, change.number, dropped=not is_written(change))
    return max((change.number for change, _ in journal), default=0) + 1


def _journal(root: Path) -> list[tuple[Change, str]]:
    """Return every change with its state: `done`, `dropped`, or empty if its program stopped or is still writing."""
    by_number: dict[int, Change] = {}
    states: dict[int, str] = {}
    for line in _lines(root):
        if line.change is not None:
            by_number[line.change.number] = line.change
        states |= {line.number: line.state} if line.state else {}
    undone_by: dict[int, int] = {}
    for number, change in by_number.items():
        if change.by == "undo" and change.of in by_number and states.get(number) != "dropped":
            undone_by[change.of] = number
            undone_by.pop(by_number[change.of].of, None)  # an undo that is undone reverts nothing
    return [
        (replace(change, undone_by=undone_by.get(number, 0)), states.get(number, ""))
        for number, change in by_number.items()
    ]


def _lines(root: Path) -> Iterator[_ChangeLine]:
    for text in files.lines(root, JOURNAL):
        try:
            yield msgspec.convert(json.loads(text), decodable(_ChangeLine))
        except ValueError:  # a line that a crash tore
            continue


def _append(root: Path, line: _ChangeLine) -> None:
    files.append(root, JOURNAL, json.dumps(msgspec.to_builtins(line)) + "\n")  # files have surrogates
