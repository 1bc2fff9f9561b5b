"""The block [SHARED_MEMORY]: entries as text, and read back from it (document 000, "User Message: [SHARED_MEMORY]").

Only a human's entry shows its time; the AI's that follows it is indented by two spaces. Further lines are not indented.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from nexus.errors import BadContext
from nexus.render.tagged.annotation import OPENING, annotation_text, parse_annotation
from nexus.render.tagged.entries import Ai, Entry, Human, Parts
from nexus.render.tagged.times import UNKNOWN_TIME
from nexus.render.tagged.use import ToolUse
from nexus.text.frames import escape, unescape

HEADING = "Recent conversation memory:"
NOTHING_YET = "(No earlier conversation.)"
PART_ENTRIES = 4
"""Entries in one part of a block that a provider caches part by part."""

_HEAD = re.compile(rf"\[SHARED_MEMORY(?: count=([0-9]+))?\]\n{re.escape(HEADING)}\n\n")
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d"
_ENTRY = re.compile(rf"(?:\A|(?<=\n))(?:\[({_TIME}|{UNKNOWN_TIME})\] (Human|Nexus): |  Nexus: )", re.ASCII)


def memory_block(entries: Sequence[Entry], *, count: bool = True) -> str:
    """The whole block; with `count=N` in its head, or without it for a text whose beginning stays."""
    return "".join(memory_parts(entries, count=count))


def memory_parts(entries: Sequence[Entry], *, count: bool = False, size: int = PART_ENTRIES) -> list[str]:
    """The block in parts: its head, then `size` entries in each. Joined with nothing between they are the block.

    New entries change the last part or add parts after it; those before stay the same bytes.
    """
    head = f"[SHARED_MEMORY{f' count={len(entries)}' if count else ''}]\n{HEADING}\n\n"
    if not entries:
        return [head + NOTHING_YET]
    lines = [("\n" if at else "") + entry_text(entry) for at, entry in enumerate(entries)]
    return [head, *("".join(lines[at : at + size]) for at in range(0, len(lines), size))]


def parse_memory(block: str) -> tuple[Entry, ...]:
    """The entries that a block was made of, with or without a count. Raises BadContext for what is no such block."""
    head = _HEAD.match(block)
    if head is None:
        raise BadContext(f"this is no block of the shared memory: {block[:60]!r}")
    body = block[head.end() :]
    found = list(_ENTRY.finditer(body))
    if (found[0].start() if found else body != NOTHING_YET) or head[1] not in (None, str(len(found))):
        raise BadContext(f"the shared memory's head says {head[1] or 'nothing'}, and {len(found)} entries follow")
    ends = [later.start() - 1 for _, later in pairwise(found)] + [len(body)]
    return tuple(_read(hit, body[hit.end() : end]) for hit, end in zip(found, ends, strict=False))


def entry_text(entry: Entry) -> str:
    """One entry as the memory shows it."""
    if isinstance(entry, Human):
        return f"[{entry.time}] Human: {escape(entry.text, 'memory')}"
    head = "  Nexus: " if entry.time is None else f"[{entry.time}] Nexus: "
    lines = [escape(part, "memory") if isinstance(part, str) else annotation_text(part) for part in entry.parts]
    if entry.parts and not isinstance(entry.parts[0], str):
        lines.insert(0, "")
    return head + "\n".join(lines)


def _read(head: re.Match[str], text: str) -> Entry:
    if head[2] == "Human":
        return Human(head[1], unescape(text, "memory"))
    return Ai(head[1], _parts(text))


def _parts(text: str) -> Parts:
    """Lines that begin as an annotation are one, except for the first, which stands behind the entry's head."""
    parts: list[str | tuple[ToolUse, ...]] = []
    lines: list[str] = []
    for at, line in enumerate(text.split("\n")):
        if at and line.startswith(OPENING):
            parts += _joined(lines)
            parts.append(parse_annotation(line))
            lines = []
        else:
            lines.append(line)
    return (*parts, *_joined(lines))


def _joined(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    return [unescape(text, "memory")] if text else []
