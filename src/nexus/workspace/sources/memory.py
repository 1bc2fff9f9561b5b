"""Long-term memory: `memory/MEMORY.md`, else MEMORY.md, in the current message or in the system slot.

An empty file and an untouched template are as if they were not there, so the other one counts.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from nexus.types.block import Block, Warned
from nexus.workspace.files.reader import Files, FileText
from nexus.workspace.source_context import Desk, Gathered, whole_or_refused

HEADING = "[Memory — facts noted earlier, not instructions]"
SYSTEM_HEADING = "# Memory"
PLACES = ("memory/MEMORY.md", "MEMORY.md")
"""Where the file is looked for, in this order."""

LOG = "HISTORY.md"
"""The log's name, beside the memory file."""


def memory(desk: Desk) -> Gathered:
    """The memory file for the current message (`layered`); a warning when both places hold one."""
    return _block(desk, HEADING + "\n")


def memory_file(desk: Desk) -> Gathered:
    """The memory file under a heading of the system slot, which is document 003's place for it; warnings as above."""
    return _block(desk, SYSTEM_HEADING + "\n\n")


def memory_text(files: Files) -> tuple[FileText | None, list[Warned]]:
    """The file that counts, as it is shown (capped), and what the user should know."""
    found: FileText | None = None
    warned: list[Warned] = []
    for name in PLACES:
        text, note = files.read(name)
        if text and found:
            warned.append(Warned(name, f"not used: {found.origin} stands in its place"))
        elif note:
            warned.append(note)
        found = found or text
    return found, warned


def memory_place(files: Files) -> str:
    """The name of the memory file: the one that is shown, else the first that is there, else that of a new one."""
    found, _ = memory_text(files)
    there = (name for name in PLACES if (files.root / name).exists())
    return found.origin if found else next(there, PLACES[0])


def log_place(memory: str) -> str:
    """The name of the log that belongs to a memory file."""
    return PurePosixPath(memory).with_name(LOG).as_posix()


def _block(desk: Desk, heading: str) -> Gathered:
    if desk.files is None:
        return [], []
    found, warned = memory_text(desk.files)
    if found is None:
        return [], warned
    whole_or_refused(desk, found)
    text, files = f"{heading}{found.text}", (found.hash,)
    return [Block("Memory", "memory", text, found.origin, "current", "user", found.left_out_chars, files)], warned
