r"""The block [SHARED_MEMORY]: entries as text and parsed back (document 000, "User Message: [SHARED_MEMORY]").

A human's entry begins with its time; the AI's answer after it is indented by two spaces. Further lines are not indented.

Tool calls are one line, whatever their arguments contain:
`[tool_use:web_search, query:…; tool_use:calculator, expression:…]`. Line breaks are escaped by `nexus.text.frames`. A
separator inside a name or value has a backslash before it, and backslashes before a separator or at the end are doubled:
an even number before a separator means that it separates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from nexus.errors import BadContext
from nexus.render.tagged.entries import UNKNOWN_TIME, Ai, Entry, Human, Parts, ToolUse
from nexus.text.frames import escape, escape_line_breaks, unescape, unescape_line_breaks

HEADING = "Recent conversation memory:"
NOTHING_YET = "(No earlier conversation.)"
PART_ENTRIES = 4
"""Entries in one part of a block that providers cache by parts."""

_HEAD = re.compile(rf"\[SHARED_MEMORY(?: count=([0-9]+))?\]\n{re.escape(HEADING)}\n\n")
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d"
_ENTRY = re.compile(rf"(?:\A|(?<=\n))(?:\[({_TIME}|{UNKNOWN_TIME})\] (Human|Nexus): |  Nexus: )", re.ASCII)

OPENING = "[tool_use:"
_BETWEEN = "; tool_use:"
_NAME, _KEY, _VALUE = ",;]", ":;]", ";]"
"""Separators that are escaped in each of the three."""


def memory_block(entries: Sequence[Entry], *, count: bool = True) -> str:
    """Return the block; without `count=N` in its head its beginning stays the same when it grows."""
    return "".join(memory_parts(entries, count=count))


def memory_parts(entries: Sequence[Entry], *, count: bool = False, size: int = PART_ENTRIES) -> list[str]:
    """Return the block in parts to join: its head, then `size` entries in each.

    New entries change the last part or add parts; earlier parts stay the same bytes, for prompt caches.
    """
    head = f"[SHARED_MEMORY{f' count={len(entries)}' if count else ''}]\n{HEADING}\n\n"
    if not entries:
        return [head + NOTHING_YET]
    lines = [("\n" if at else "") + entry_text(entry) for at, entry in enumerate(entries)]
    return [head, *("".join(lines[at : at + size]) for at in range(0, len(lines), size))]


def parse_memory(block: str) -> tuple[Entry, ...]:
    """Parse a block, with or without a count. Raises BadContext for any other text."""
    head = _HEAD.match(block)
    if head is None:
        raise BadContext(f"not a block of the shared memory: {block[:60]!r}")
    body = block[head.end() :]
    heads = list(_ENTRY.finditer(body))
    if (heads[0].start() if heads else body != NOTHING_YET) or head[1] not in (None, str(len(heads))):
        raise BadContext(f"shared memory with {len(heads)} entries instead of {head[1] or 'none'}")
    ends = [later.start() - 1 for _, later in pairwise(heads)] + [len(body)]
    return tuple(_read(hit, body[hit.end() : end]) for hit, end in zip(heads, ends, strict=False))


def entry_text(entry: Entry) -> str:
    """Return an entry as text."""
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
    # The first line follows the entry's head, so it is text even if it looks like tool calls.
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


def annotation_text(uses: Sequence[ToolUse]) -> str:
    """Return the line for tool calls of one row; empty for none."""
    return f"{OPENING}{_BETWEEN.join(map(_item, uses))}]" if uses else ""


def parse_annotation(line: str) -> tuple[ToolUse, ...]:
    """Parse a line of `annotation_text`. Raises BadContext for any other line."""
    if not (line.startswith(OPENING) and line.endswith("]")) or "\n" in line:
        raise BadContext(f"not a line of tool calls: {line[:60]!r}")
    return tuple(map(_use, _split(line[len(OPENING) : -1])))


def _split(text: str) -> list[str]:
    starts = [0, *(match.end() + len(_BETWEEN) - 1 for match in _unescaped(";").finditer(text))]
    ends = [*(start - len(_BETWEEN) for start in starts[1:]), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _item(use: ToolUse) -> str:
    """Return one tool call as text."""
    text = _field(use.name, _NAME)
    if use.key is not None:
        text = f"{text}, {_field(use.key, _KEY)}:{_field(use.value, _VALUE)}"
    # After a bracket, as after a time, a speaker's name would count: each piece is escaped like a line of its own.
    return "]".join(escape(piece, "memory") for piece in text.split("]"))


def _use(item: str) -> ToolUse:
    text = "]".join(unescape(piece, "memory") for piece in item.split("]"))
    comma = _unescaped(",").search(text)
    if comma is None:
        return ToolUse(_unfield(text, _NAME))
    name, rest = text[: comma.end() - 1], text[comma.end() + 1 :]
    colon = _unescaped(":").search(rest)
    if colon is None:
        raise BadContext(f"argument without a value: {item[:60]!r}")
    key, value = rest[: colon.end() - 1], rest[colon.end() :]
    return ToolUse(_unfield(name, _NAME), _unfield(key, _KEY), _unfield(value, _VALUE))


def _field(text: str, stops: str) -> str:
    """Return the text on one line with separators escaped, and backslashes before them or at the end doubled."""
    special = re.compile(rf"(\\*)([{re.escape(stops)}])|(\\+)\Z")
    return special.sub(lambda hit: hit[3] * 2 if hit[3] else f"{hit[1] * 2}\\{hit[2]}", escape_line_breaks(text))


def _unfield(text: str, stops: str) -> str:
    special = re.compile(rf"(\\+)([{re.escape(stops)}]|\Z)")
    return unescape_line_breaks(special.sub(lambda hit: "\\" * (len(hit[1]) // 2) + hit[2], text))


def _unescaped(separator: str) -> re.Pattern[str]:
    """Return a pattern for the separator after an even number of backslashes; it is the match's last character."""
    return re.compile(rf"(?<!\\)(?:\\\\)*{separator}")
