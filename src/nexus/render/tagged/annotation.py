r"""The line that says which tools an AI used: `[tool_use:web_search, query:…; tool_use:calculator, expression:…]`.

It is one whole line, whatever a call's arguments hold. Line breaks in them are escaped by `nexus.text.frames`. A
separator that belongs to a name or a value has a backslash before it, and backslashes that stand before one, or end a
name or value, are doubled: an even number before a separator means that it separates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nexus.errors import BadContext
from nexus.render.tagged.use import ToolUse
from nexus.text.frames import escape, escape_line_breaks, unescape, unescape_line_breaks

OPENING = "[tool_use:"
_BETWEEN = "; tool_use:"
_NAME, _KEY, _VALUE = ",;]", ":;]", ";]"
"""The separators that have a backslash in each of the three."""


def annotation_text(uses: Sequence[ToolUse]) -> str:
    """The line for tools that were used at once; "" for none."""
    return f"{OPENING}{_BETWEEN.join(map(_item, uses))}]" if uses else ""


def parse_annotation(line: str) -> tuple[ToolUse, ...]:
    """The tools of a line that `annotation_text` made. Raises BadContext for any other line."""
    if not (line.startswith(OPENING) and line.endswith("]")) or "\n" in line:
        raise BadContext(f"{line[:60]!r} is no line of used tools")
    return tuple(map(_use, _split(line[len(OPENING) : -1])))


def _split(text: str) -> list[str]:
    starts = [0, *(found.end() + len(_BETWEEN) - 1 for found in _unescaped(";").finditer(text))]
    ends = [*(start - len(_BETWEEN) for start in starts[1:]), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _item(use: ToolUse) -> str:
    """One tool with its argument. Each piece between closing brackets is escaped as if it began a line of the memory.

    Behind a bracket, as behind a time, a speaker's name could be read as one.
    """
    text = _field(use.name, _NAME)
    if use.key is not None:
        text = f"{text}, {_field(use.key, _KEY)}:{_field(use.value, _VALUE)}"
    return "]".join(escape(piece, "memory") for piece in text.split("]"))


def _use(item: str) -> ToolUse:
    text = "]".join(unescape(piece, "memory") for piece in item.split("]"))
    comma = _unescaped(",").search(text)
    if comma is None:
        return ToolUse(_unfield(text, _NAME))
    name, rest = text[: comma.end() - 1], text[comma.end() + 1 :]
    colon = _unescaped(":").search(rest)
    if colon is None:
        raise BadContext(f"{item[:60]!r} says no value of an argument")
    key, value = rest[: colon.end() - 1], rest[colon.end() :]
    return ToolUse(_unfield(name, _NAME), _unfield(key, _KEY), _unfield(value, _VALUE))


def _field(text: str, stops: str) -> str:
    """The text on one line; backslashes before a separator or the end are doubled, and one stands before a separator."""
    found = re.compile(rf"(\\*)([{re.escape(stops)}])|(\\+)\Z")
    return found.sub(lambda hit: hit[3] * 2 if hit[3] else f"{hit[1] * 2}\\{hit[2]}", escape_line_breaks(text))


def _unfield(text: str, stops: str) -> str:
    found = re.compile(rf"(\\+)([{re.escape(stops)}]|\Z)")
    return unescape_line_breaks(found.sub(lambda hit: "\\" * (len(hit[1]) // 2) + hit[2], text))


def _unescaped(separator: str) -> re.Pattern[str]:
    """Finds the separator after an even number of backslashes; it is the last character that is found."""
    return re.compile(rf"(?<!\\)(?:\\\\)*{separator}")
