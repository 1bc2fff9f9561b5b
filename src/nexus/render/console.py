"""A session or a context for people: Markdown, a context as text, and the lines that the console display shares with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.text.message_text import visible_parts
from nexus.types.ledger_entries import Entry
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

_HARMLESS = "\u200c\u200d\u3000\u00a0\u202f"
"""Not printable by their category, but parts of texts: joiners (Persian, emoji), the wide space and those that do not break."""

RESULT_CHARS = 300
VALUE_CHARS = 60


def markdown_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """The session as Markdown: a heading for each message, calls and results as fenced blocks."""
    lines = (line for block in _markdown_blocks(entries) for line in block.split("\n"))
    return visible_lines(lines)


def _markdown_blocks(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.kind == "compaction":
            yield from ("## Summary of what was compacted", "", str(entry.body.get("summary", "")), "")
        for row in entry.rows:
            message = row.message
            yield f"## {message.role.capitalize()} (turn {entry.turn})"
            yield ""
            for part in message.parts:
                yield from _markdown(part)
                yield ""


def context_text(ctx: AssembledContext) -> str:
    """Everything that the model sees, as one text: system slot, history, current message."""
    lines = ["=== system ===", ctx.system_prompt, "", f"=== history: {len(ctx.history)} messages ===", ""]
    for message in ctx.history:
        lines.extend(_message(_as_sent(message)))
        lines.append("")
    lines.append("=== current ===")
    for message in ctx.current:
        lines.extend(_message(_as_sent(message)))
    return "\n".join(visible_lines(line for block in lines for line in block.split("\n")))


def _as_sent(message: Message) -> Message:
    """The message with its notes and the user's words as one text, as every provider gets them."""
    return replace(message, parts=tuple(visible_parts(message))) if message.role == "user" else message


def printable(text: str) -> str:
    """One line of text without power over a terminal: control characters and line breaks show as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """A text of several lines, each of them `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def visible_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a session, each of them safe; tabs stay."""
    return (printable(line.replace("\t", "    ")) for line in lines)


def _message(message: Message) -> Iterator[str]:
    yield message.role.capitalize()
    if message.at_ms:
        yield _time(message.at_ms)
    for part in message.parts:
        yield from part_lines(part)


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"[no time: {at_ms}]"


def part_lines(part: Part) -> Iterator[str]:
    """A part of a message as lines: texts begin with `> `, thoughts stand in brackets."""
    match part:
        case Text(text) | Note(text=text):
            yield from quoted_lines(text)
        case Thinking(text):
            yield from (f"  ({line})" for line in (text or "reasoning kept by its provider").splitlines())
        case ToolCall(name=name, arguments=arguments):
            yield f"{name}{_parameters(arguments)}"
        case ToolResult():
            yield from result_lines(part)
        case Image():
            yield f"> {_image(part)}"
        case Unknown(kind):
            yield f"> [a part of kind {kind}]"


def result_lines(
    part: ToolResult, *, place: str = "", branch: str = "└─", dots: str = "…", full: bool = True
) -> Iterator[str]:
    """What a call returned, under a line that names it; shortened, which is said, unless `full`."""
    text = "\n".join(item.text if isinstance(item, Text) else _image(item) for item in part.content)
    if not full and len(text) > RESULT_CHARS:
        text = f"{text[:RESULT_CHARS]}\n{dots} {len(text) - RESULT_CHARS:,} more characters"
    yield f"   {branch} {'Error' if part.is_error else 'Result'} of {part.call_id}{place}:"
    yield from (f"      {line}" for line in text.splitlines())


def quoted_lines(text: str) -> Iterator[str]:
    """The lines of a text, each behind `> `."""
    return (f"> {line}" for line in text.splitlines())


def _parameters(arguments: str) -> str:
    try:
        values = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return f" ({arguments[:VALUE_CHARS]})"
    shown = [f"{name}: {_value(bytes(raw).decode())}" for name, raw in values.items()]
    return f" ({', '.join(shown)})" if shown else ""


def _value(raw: str) -> str:
    text = raw[1:-1] if raw.startswith('"') else raw
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"


def _image(image: Image) -> str:
    size = f" {image.width}x{image.height}" if image.width else ""
    return f"[image: {image.media_type}{size}]"


def _markdown(part: Part) -> Iterator[str]:
    match part:
        case Text(text) | Note(text=text):
            yield text
        case ToolCall(name=name, arguments=arguments):
            yield from (f"Calls `{name}`:", "", *_fenced(arguments, "json"))
        case ToolResult(content=content):
            text = "\n".join(item.text if isinstance(item, Text) else _image(item) for item in content)
            yield from _fenced(text, "")
        case Thinking(text):
            yield from (f"> {line}" for line in text.splitlines())
        case Image():
            yield _image(part)
        case Unknown(kind):
            yield f"[a part of kind {kind}]"


def _fenced(text: str, language: str) -> tuple[str, ...]:
    fence = "```"
    while fence in text:
        fence += "`"
    return (f"{fence}{language}", text, fence)
