r"""Lines of a turn log in a conversation: each is one JSON object, an entry of document 001 or what came with a message.

JSON writes a line end inside of a text as `\n`, so no text that somebody wrote begins a line, and none can look like an
entry. A line that is no entry has the extra key alone: `{"nexus":{"memory":"…"}}`. Where a text holds a mark that counts
in the middle of a line, its bracket is written as an escape of JSON: all strings are read back as they were.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from nexus.render.turnlog.entry import EXTRA, FIELDS, LOG_ROLES, LogEntry, entry_text
from nexus.render.turnlog.texts import Members, json_string, members, object_text, string_of
from nexus.render.turnlog.write import bare_content
from nexus.text.frames import escape

_BREAK = re.compile("[\x85\u2028\u2029]")


def note_line(kind: str, text: str) -> str:
    """What came with a message, and is none of its words, as a line: `kind` says what it is."""
    return _quiet(object_text(((EXTRA, object_text(((kind, json_string(text)),))),)))


def entry_line(entry: LogEntry, mark: str = "") -> str:
    """An entry as a line, in the printed form; `mark` says under the extra key what a system entry is made of."""
    return _quiet(entry_text(replace(entry, extra={"mark": mark} if mark else {}, written="")))


def parse_note_line(line: str) -> tuple[str, str] | None:
    """The kind and text of such a line; None for any other."""
    found = members(line)
    if found is None or [name for name, _ in found] != [EXTRA]:
        return None
    told = [(kind, text) for kind, value in members(found[0][1]) or () if (text := string_of(value)) is not None]
    return told[0] if len(told) == 1 else None


def parse_entry_line(line: str) -> LogEntry | None:
    """The entry that a line is, without its extra key; None for any other text."""
    found = dict(members(line) or ())
    content = bare_content(found.get("content", ""))
    role, time = string_of(found.get("role", "")), string_of(found.get("timestamp", ""))
    numbers = [found.get(name, "") for name in ("index", "turn")]
    if tuple(found)[: len(FIELDS)] != FIELDS or content is None or time is None:
        return None
    if role not in LOG_ROLES or not all(one.isdecimal() for one in numbers):
        return None
    index, turn = map(int, numbers)
    return LogEntry(index, turn, time, role, content)


def parse_entry_text(line: str) -> str | None:
    """The text that an entry's line says, of a system entry all of it; None for any other text."""
    entry = parse_entry_line(line)
    if entry is None:
        return None
    return entry.content if isinstance(entry.content, str) else string_of(dict(entry.content).get("text", '""'))


def with_entry_text(line: str, text: str) -> str:
    """The line of an entry with another text in the place of what it says."""
    entry = parse_entry_line(line)
    if entry is None:
        return line
    content: str | Members = text
    if not isinstance(entry.content, str):
        content = tuple((name, json_string(text) if name == "text" else value) for name, value in entry.content)
    return entry_line(replace(entry, content=content))


def _quiet(line: str) -> str:
    """The line with escapes of JSON in the place of what ends a line elsewhere, and of the brackets of marks."""
    line = _BREAK.sub(lambda found: _escaped(found[0]), line)
    shown = escape(line)
    return line if shown is line else _without_brackets(line, shown)


def _without_brackets(line: str, shown: str) -> str:
    """The line with an escape of JSON in the place of each bracket behind which `shown` has one more backslash."""
    pieces: list[str] = []
    done = at = 0
    for char in shown:
        if at < len(line) and line[at] == char:
            at += 1
            continue
        bracket = len(line[done:at].rstrip("\\")) + done - 1
        pieces += (line[done:bracket], _escaped(line[bracket]))
        done = bracket + 1
    return "".join((*pieces, line[done:]))


def _escaped(char: str) -> str:
    """A character as an escape of JSON; two of them where it has no short one."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
