"""A session as a conversation: who spoke and when, the words, the tool calls and their results.

Every line of a message is indented, so that no text can imitate a heading or the line of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain

from msgspec import Struct

from nexus.render.console import (
    PLAIN,
    Signs,
    call_values,
    checkpoint_text,
    parameter_list,
    part_lines,
    printable,
    result_text,
    visible_lines,
)
from nexus.text.one_line import collapse_whitespace
from nexus.types.ledger_entries import Entry, StoredMessage
from nexus.types.message import Note, Part, Text, Thinking, ToolCall, ToolResult

INDENT = "  "
LONG_CHARS = 600
"""Characters of a system text, a thought and a tool result that are shown unless all are."""

Paint = Callable[[str, str], str]
"""Returns a speaker's name in the color of a role."""

SPARE_CHARS = 100
"""No text is cut for so few characters."""


class _Layout(Struct, frozen=True):
    signs: Signs
    numbered: bool
    full: bool
    paint: Paint


def conversation_lines(
    entries: Iterable[Entry],
    *,
    signs: Signs = PLAIN,
    numbered: bool = False,
    full: bool = False,
    paint: Paint = lambda name, role: name,  # noqa: ARG005 - without color
) -> Iterator[str]:
    """Yield the lines of a conversation.

    Args:
        entries: Entries of the session.
        signs: Line-drawing characters.
        numbered: Add the reference of each message and the entry of each checkpoint.
        full: Show notes, system texts, thoughts, values and results without truncation.
        paint: Colors the speakers' names.
    """
    layout = _Layout(signs, numbered, full, paint)
    tools: dict[str, str] = {}
    kinds: dict[object, str] = {}
    is_first = True
    for entry in entries:
        for block in _blocks(entry, layout, tools, kinds):
            if not is_first:
                yield ""
            is_first = False
            yield from block


def _blocks(entry: Entry, layout: _Layout, tools: dict[str, str], kinds: dict[object, str]) -> Iterator[list[str]]:
    """Yield the lines of an entry's checkpoint, then of each of its messages."""
    kinds[entry.seq] = entry.kind
    if text := checkpoint_text(entry, kinds):
        place = f"entry {entry.seq}: " if layout.numbered else ""
        summary = ""
        if entry.kind == "compaction":
            summary = str(entry.body.get("summary", ""))
        rule = layout.signs.rule
        yield [f"{rule} {printable(place + text)} {rule}", *visible_lines(_indented(summary))]
    for row in entry.rows:
        tools.update({call.id: call.name for call in row.message.calls()})
        groups: list[tuple[str, list[Part]]] = []
        for part in row.message.parts:
            is_result = isinstance(part, ToolResult)
            if not groups or is_result or groups[-1][0] != row.message.role.capitalize():
                groups.append((_speaker(part, row, tools), []))
            groups[-1][1].append(part)
        for name, parts in groups or [(row.message.role.capitalize(), [])]:
            lines: list[str] = []
            for part in parts:
                if row.message.role == "system" and isinstance(part, Text):
                    lines += _part_lines(Text(_shortened(part.text, layout)), layout)
                else:
                    lines += _part_lines(part, layout)
            yield [_heading(name, entry, row, layout), *visible_lines(lines)]


def _speaker(part: Part, row: StoredMessage, tools: dict[str, str]) -> str:
    if not isinstance(part, ToolResult):
        return row.message.role.capitalize()
    name = printable(collapse_whitespace(part.name or tools.get(part.call_id, "") or part.call_id))
    if part.is_error:
        return f"Tool {name} failed"
    return f"Tool {name}"


def _heading(name: str, entry: Entry, row: StoredMessage, layout: _Layout) -> str:
    facts = [_time(row.message.at_ms or entry.at_ms)]
    if name == "User":
        facts.insert(0, f"turn {entry.turn}")
    if layout.numbered:
        facts.append(f"entry {row.ref.seq}.{row.ref.ord}")
    return f"{layout.paint(name, row.message.role)}  {', '.join(filter(None, facts))}".rstrip()


def _time(at_ms: int) -> str:
    if not at_ms:
        return ""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # imported files may contain any number
        return f"[no time: {at_ms}]"


def _part_lines(part: Part, layout: _Layout) -> Iterator[str]:
    dots = layout.signs.dots
    full = layout.full
    match part:
        case Text(text):
            return _indented(text)
        case Note():  # a note is not the user's words
            if full:
                return part_lines(part)
            return iter(())
        case Thinking(text=""):
            return iter(())
        case Thinking(text):
            lines = _indented(_shortened(text, layout))
            return chain([f"{INDENT}(thinking)"], (f"{INDENT}{line}".rstrip() for line in lines))
        case ToolCall(name=name, arguments=arguments):
            values = call_values(arguments)
            shown = f" ({arguments})" if values is None else parameter_list(values, dots=dots, full=full)
            return iter([f"{INDENT}{layout.signs.branch} {collapse_whitespace(name)}{collapse_whitespace(shown)}"])
        case ToolResult():
            return _indented(_shortened(result_text(part), layout) or "(no output)")
        case _:
            return (f"{INDENT}{line.removeprefix('> ')}" for line in part_lines(part))


def _indented(text: str) -> Iterator[str]:
    return (f"{INDENT}{line}".rstrip() for line in text.strip("\r\n").splitlines())


def _shortened(text: str, layout: _Layout) -> str:
    if layout.full or len(text) <= LONG_CHARS + SPARE_CHARS:
        return text
    return f"{text[:LONG_CHARS].rstrip()}\n{layout.signs.dots} {len(text) - LONG_CHARS:,} more characters"
