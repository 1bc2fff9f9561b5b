"""Sessions as Markdown, contexts as text, and lines of messages that are safe to print on a terminal."""

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
"""Not printable by category, but parts of texts: joiners (Persian, emoji), the wide and the no-break spaces."""

RESULT_CHARS = 300
VALUE_CHARS = 60


def markdown_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the session as Markdown: a heading for each message, calls and results as fenced blocks."""
    return visible_lines(line for block in _markdown_blocks(entries) for line in block.split("\n"))


def _markdown_blocks(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.kind == "compaction":
            yield from ("## Summary of compacted messages", "", str(entry.body.get("summary", "")), "")
        for row in entry.rows:
            message = row.message
            yield f"## {message.role.capitalize()} (turn {entry.turn})"
            yield ""
            for part in message.parts:
                yield from _markdown(part)
                yield ""


def context_text(ctx: AssembledContext) -> str:
    """Return everything that is sent to the model as one text: system prompt, history, current message."""
    lines = ["=== system ===", ctx.system_prompt, "", f"=== history: {len(ctx.history)} messages ===", ""]
    for message in ctx.history:
        lines.extend(_message(_as_sent(message)))
        lines.append("")
    lines.append("=== current ===")
    for message in ctx.current:
        lines.extend(_message(_as_sent(message)))
    return "\n".join(visible_lines(line for block in lines for line in block.split("\n")))


def _as_sent(message: Message) -> Message:
    """Return a user's message with its notes joined to its text, as every provider gets them."""
    return replace(message, parts=tuple(visible_parts(message))) if message.role == "user" else message


def printable(text: str) -> str:
    """Return one line that cannot control a terminal: control characters and line breaks become escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Return a text with every line made `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def visible_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines made `printable`, with tabs as four spaces."""
    return (printable(line.replace("\t", "    ")) for line in lines)


def _message(message: Message) -> Iterator[str]:
    yield message.role.capitalize()
    if message.at_ms:
        try:
            yield datetime.fromtimestamp(message.at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):
            yield f"[no time: {message.at_ms}]"
    for part in message.parts:
        yield from part_lines(part)


def part_lines(part: Part) -> Iterator[str]:
    """Yield a part of a message as lines: texts after `> `, thinking in parentheses."""
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
    """Yield a tool result after a line with its call; truncated with a note unless `full`."""
    text = "\n".join(item.text if isinstance(item, Text) else _image(item) for item in part.content)
    if not full and len(text) > RESULT_CHARS:
        text = f"{text[:RESULT_CHARS]}\n{dots} {len(text) - RESULT_CHARS:,} more characters"
    yield f"   {branch} {'Error' if part.is_error else 'Result'} of {part.call_id}{place}:"
    yield from (f"      {line}" for line in text.splitlines())


def quoted_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each after `> `."""
    return (f"> {line}" for line in text.splitlines())


def _parameters(arguments: str) -> str:
    try:
        values = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return f" ({arguments[:VALUE_CHARS]})"
    parameters: list[str] = []
    for name, raw in values.items():
        text = bytes(raw).decode()
        text = text[1:-1] if text.startswith('"') else text
        parameters.append(f"{name}: {text if len(text) <= VALUE_CHARS else f'{text[:VALUE_CHARS]}…'}")
    return f" ({', '.join(parameters)})" if parameters else ""


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
