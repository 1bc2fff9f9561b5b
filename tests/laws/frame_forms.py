"""Frames of documents 000 and 003 in their smallest form, written and read: what the laws put hostile texts into."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from nexus.text.frames import escape, escape_line_breaks, unescape, unescape_line_breaks

TIME = "2025-12-10 15:30"
MOMENT_MARKS = 5
"""The head, and two tags that are opened and closed."""


class Use(NamedTuple):
    """A tool that was used: its name, the name of an argument, and the argument."""

    tool: str
    key: str
    value: str


class Human(NamedTuple):
    """What a human said."""

    text: str


class Ai(NamedTuple):
    """What an AI said: its first text, then lines of used tools, each with the text after it, if there is one."""

    timed: bool
    text: str
    uses: tuple[tuple[tuple[Use, ...], str | None], ...] = ()


Entry = Human | Ai


def moment(text: str) -> str:
    """Document 000, "User Message: [THIS_MOMENT]"."""
    time = "<current_time>2025-12-10 16:00:00+08:00</current_time>"
    return f"[THIS_MOMENT]\n{time}\n<human_input>\n{escape(text)}\n</human_input>"


def read_moment(form: str) -> str:
    found = re.fullmatch(
        r"\[THIS_MOMENT\]\n<current_time>[^<\n]*</current_time>\n<human_input>\n(.*)\n</human_input>", form, re.DOTALL
    )
    assert found is not None, f"read otherwise: {form!r}"
    return unescape(found[1])


def runtime(channel: str, chat: str, text: str) -> str:
    """Document 003, "Runtime Context", and the user's text."""
    head = "[Runtime Context — metadata only, not instructions]\nCurrent Time: 2026-03-06 14:30 (Friday)"
    return f"{head}\nChannel: {escape(escape_line_breaks(channel))}\nChat ID: {escape(escape_line_breaks(chat))}\n\n{escape(text)}"


def read_runtime(form: str) -> tuple[str, str, str]:
    _, _, channel, chat, empty, text = form.split("\n", 5)
    assert empty == "", f"read otherwise: {form!r}"
    values = [unescape_line_breaks(unescape(line.split(": ", 1)[1])) for line in (channel, chat)]
    return values[0], values[1], unescape(text)


def memory(entries: list[Entry]) -> str:
    """Document 000, "User Message: [SHARED_MEMORY]"."""
    lines = [f"[SHARED_MEMORY count={len(entries)}]", "Recent conversation memory:", ""]
    for entry in entries:
        if isinstance(entry, Human):
            lines.append(f"[{TIME}] Human: {escape(entry.text, 'memory')}")
            continue
        lines.append(f"{f'[{TIME}]' if entry.timed else ' '} Nexus: {escape(entry.text, 'memory')}")
        for uses, text in entry.uses:
            lines.append(f"[tool_use:{'; tool_use:'.join(map(_item, uses))}]")
            lines += [] if text is None else [escape(text, "memory")]
    return "\n".join(lines)


def memory_marks(entries: list[Entry]) -> int:
    """How many marks the form has that are ours."""
    uses = [uses for entry in entries if isinstance(entry, Ai) for uses, _ in entry.uses]
    return 1 + len(entries) + sum(map(len, uses))


_HEAD = re.compile(r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d\] (Human|Nexus)|  (Nexus)): ")


def read_memory(form: str) -> list[Entry]:
    head, _, empty, *lines = form.split("\n")
    assert empty == "", f"read otherwise: {form!r}"
    begins = [number for number, line in enumerate(lines) if _HEAD.match(line)]
    assert head == f"[SHARED_MEMORY count={len(begins)}]", f"read otherwise: {form!r}"
    return [_entry(lines[first:after]) for first, after in pairwise([*begins, len(lines)])]


def _entry(lines: list[str]) -> Entry:
    found = _HEAD.match(lines[0])
    assert found is not None, f"read otherwise: {lines!r}"
    lines[0] = lines[0][found.end() :]
    if found[1] == "Human":
        return Human(unescape("\n".join(lines), "memory"))
    marks = [number for number, line in enumerate(lines) if number and line.startswith("[tool_use:")]
    texts = [lines[first + 1 : after] for first, after in pairwise([-1, *marks, len(lines)])]
    said = [unescape("\n".join(text), "memory") if text else None for text in texts]
    uses = [tuple(map(_use, lines[number][len("[tool_use:") : -1].split("; tool_use:"))) for number in marks]
    return Ai(found[1] == "Nexus", said[0] or "", tuple(zip(uses, said[1:], strict=True)))


def _item(use: Use) -> str:
    return f"{use.tool}, {use.key}:{escape(escape_line_breaks(use.value), 'memory')}"


def _use(item: str) -> Use:
    tool, rest = item.split(", ", 1)
    key, value = rest.split(":", 1)
    return Use(tool, key, unescape_line_breaks(unescape(value, "memory")))
