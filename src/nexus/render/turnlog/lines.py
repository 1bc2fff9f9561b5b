r"""Lines of a turn log in a conversation: JSON objects, each an entry of document 001 or a note sent with a message.

JSON escapes line breaks in texts as `\n`, so no text begins a line and none can imitate an entry. A note
has the extra key alone: `{"nexus":{"memory":"…"}}`. Where a text contains a frame tag that counts in the middle of a
line, its bracket is written as a JSON escape: all strings are parsed back unchanged.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from nexus.render.turnlog.entries import EXTRA, FIELDS, LOG_ROLES, LogEntry, entry_text
from nexus.render.turnlog.json_text import Members, json_string, members, object_text, string_of
from nexus.render.turnlog.write import bare_content
from nexus.text.frames import escape

_BREAK = re.compile("[\x85\u2028\u2029]")


def note_line(kind: str, text: str) -> str:
    """Return a note sent with a message as a line, with its kind."""
    return _without_tags(object_text(((EXTRA, object_text(((kind, json_string(text)),))),)))


def entry_line(entry: LogEntry, mark: str = "") -> str:
    """Return an entry as a line in the printed form; `mark` is the extra key's kind of checkpoint."""
    return _without_tags(entry_text(replace(entry, extra={"mark": mark} if mark else {}, written="")))


def parse_note_line(line: str) -> tuple[str, str] | None:
    """Return the kind and text of a note's line; None for any other line."""
    pairs = members(line)
    if pairs is None or [name for name, _ in pairs] != [EXTRA]:
        return None
    notes = [(kind, text) for kind, value in members(pairs[0][1]) or () if (text := string_of(value)) is not None]
    return notes[0] if len(notes) == 1 else None


def parse_entry_line(line: str) -> LogEntry | None:
    """Return the entry of a line without its extra key; None for any other line."""
    fields = dict(members(line) or ())
    content = bare_content(fields.get("content", ""))
    role, time = string_of(fields.get("role", "")), string_of(fields.get("timestamp", ""))
    numbers = [fields.get(name, "") for name in ("index", "turn")]
    if tuple(fields)[: len(FIELDS)] != FIELDS or content is None or time is None:
        return None
    if role not in LOG_ROLES or not all(number.isdecimal() for number in numbers):
        return None
    index, turn = map(int, numbers)
    return LogEntry(index, turn, time, role, content)


def parse_entry_text(line: str) -> str | None:
    """Return the `text` of an entry's line, or a system entry's content; None for any other line."""
    entry = parse_entry_line(line)
    if entry is None:
        return None
    return entry.content if isinstance(entry.content, str) else string_of(dict(entry.content).get("text", '""'))


def with_entry_text(line: str, text: str) -> str:
    """Return the line of an entry with another text."""
    entry = parse_entry_line(line)
    if entry is None:
        return line
    content: str | Members = text
    if not isinstance(entry.content, str):
        content = tuple((name, json_string(text) if name == "text" else value) for name, value in entry.content)
    return entry_line(replace(entry, content=content))


def _without_tags(line: str) -> str:
    """Return the line with JSON escapes for other line separators and for the brackets of frame tags."""
    line = _BREAK.sub(lambda match: _json_escape(match[0]), line)
    escaped = escape(line)
    if escaped is line:
        return line
    # `escape` puts one more backslash after the bracket of a tag; here the bracket itself is escaped instead.
    pieces: list[str] = []
    end = at = 0
    for char in escaped:
        if at < len(line) and line[at] == char:
            at += 1
            continue
        bracket = len(line[end:at].rstrip("\\")) + end - 1
        pieces += (line[end:bracket], _json_escape(line[bracket]))
        end = bracket + 1
    return "".join((*pieces, line[end:]))


def _json_escape(char: str) -> str:
    """Return a character as a JSON escape: two of them outside the basic plane."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
