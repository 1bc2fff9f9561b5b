"""Sessions as Markdown, contexts as text, and lines of messages that are safe to print on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from nexus.context import AssembledContext
from nexus.ledger.replay import undoes_cut
from nexus.text.message_text import visible_parts
from nexus.types.ledger_entries import Entry
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

_HARMLESS = "\u200c\u200d\u3000\u00a0\u202f"
"""Not printable by category, but parts of texts: joiners (Persian, emoji), the wide and the no-break spaces."""

RESULT_CHARS = 300
VALUE_CHARS = 60


class Signs(Struct, frozen=True):
    """Prefixes and line-drawing characters of the display."""

    system: str = ""
    user: str = ""
    assistant: str = ""
    time: str = ""
    tool: str = ""
    post: str = ""
    finish: str = ""
    branch: str = "└─"
    rule: str = "──"
    dots: str = "…"


PLAIN = Signs()
"""Without emoji."""
ASCII = Signs(branch="`-", rule="--", dots="...")
"""For an output that is limited to ASCII."""


def markdown_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the session as Markdown: a heading for each message, calls and results as fenced blocks."""
    return visible_lines(line for block in _markdown_blocks(entries) for line in block.split("\n"))


def _markdown_blocks(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.kind == "compaction":
            yield from ("## Summary of compacted messages", "", str(entry.body.get("summary", "")), "")
        for row in entry.rows:
            yield from (f"## {row.message.role.capitalize()} (turn {entry.turn})", "")
            for part in row.message.parts:
                match part:
                    case Text(text) | Note(text=text):
                        yield text
                    case ToolCall(name=name, arguments=arguments):
                        yield from (f"Calls `{name}`:", "", *_fenced(arguments, "json"))
                    case ToolResult():
                        yield from _fenced(result_text(part), "")
                    case Thinking(text):
                        yield from (f"> {line}" for line in text.splitlines())
                    case Image():
                        yield _image(part)
                    case Unknown(kind):
                        yield f"[a part of kind {kind}]"
                yield ""


def _fenced(text: str, language: str) -> tuple[str, ...]:
    fence = "```"
    while fence in text:  # a fence ends only at one that is as long: longer than any in the text
        fence += "`"
    return (f"{fence}{language}", text, fence)


def context_text(ctx: AssembledContext) -> str:
    """Return everything that is sent to the model as one text: system prompt, history, current message."""
    lines = ["=== system ===", ctx.system_prompt, "", f"=== history: {len(ctx.history)} messages ===", ""]
    for message in ctx.history:
        lines += (*_message(message), "")
    lines.append("=== current ===")
    for message in ctx.current:
        lines += _message(message)
    return "\n".join(visible_lines(line for block in lines for line in block.split("\n")))


def _message(message: Message) -> Iterator[str]:
    yield message.role.capitalize()
    if message.at_ms:
        try:
            yield datetime.fromtimestamp(message.at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):
            yield f"[no time: {message.at_ms}]"
    # Every provider gets a user's notes joined to the text.
    for part in visible_parts(message) if message.role == "user" else message.parts:
        yield from part_lines(part)


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


def part_lines(part: Part) -> Iterator[str]:
    """Yield a part of a message as lines: texts after `> `, thinking in parentheses."""
    match part:
        case Text(text) | Note(text=text):
            yield from quoted_lines(text)
        case Thinking(text):
            yield from (f"  ({line})" for line in (text or "reasoning kept by its provider").splitlines())
        case ToolCall(name=name, arguments=arguments):
            values = call_values(arguments)
            if values is None:
                yield f"{name} ({arguments[:VALUE_CHARS]})"
            else:
                yield f"{name}{parameter_list(values)}"
        case ToolResult():
            yield from result_lines(part)
        case Image():
            yield f"> {_image(part)}"
        case Unknown(kind):
            yield f"> [a part of kind {kind}]"


def call_values(arguments: str) -> list[tuple[str, str]] | None:
    """Return the names of a call's arguments with their JSON texts; None if they are not a JSON object."""
    try:
        values = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return [(key, bytes(raw).decode()) for key, raw in values.items()]


def result_lines(
    part: ToolResult, *, place: str = "", branch: str = "└─", dots: str = "…", full: bool = True
) -> Iterator[str]:
    """Yield a tool result after a line with its call; truncated with a note unless `full`."""
    text = result_text(part)
    if not full and len(text) > RESULT_CHARS:
        text = f"{text[:RESULT_CHARS]}\n{dots} {len(text) - RESULT_CHARS:,} more characters"
    yield f"   {branch} {'Error' if part.is_error else 'Result'} of {part.call_id}{place}:"
    yield from (f"      {line}" for line in text.splitlines())


def quoted_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each after `> `."""
    return (f"> {line}" for line in text.splitlines())


def parameter_list(values: Iterable[tuple[str, str]], *, dots: str = "…", full: bool = False) -> str:
    """Return ` (name: value, …)` for names and JSON texts, empty for none; values are truncated unless `full`."""
    parameters: list[str] = []
    for name, raw in values:
        text = raw[1:-1] if raw.startswith('"') else raw
        if not full and len(text) > VALUE_CHARS:
            text = f"{text[:VALUE_CHARS]}{dots}"
        parameters.append(f"{name}: {text}")
    if parameters:
        return f" ({', '.join(parameters)})"
    return ""


def result_text(part: ToolResult) -> str:
    """Return a tool result's texts, with a line for each image."""
    return "\n".join(item.text if isinstance(item, Text) else _image(item) for item in part.content)


def _image(image: Image) -> str:
    size = f" {image.width}x{image.height}" if image.width else ""
    return f"[image: {image.media_type}{size}]"


def checkpoint_text(entry: Entry, kinds: Mapping[object, str]) -> str:
    """Describe an entry apart from its messages; empty for most. `kinds`: kinds of earlier checkpoints, by seq."""
    body = entry.body
    match entry.kind:
        case "compaction":
            return f"compacted: a summary replaces entries {body.get('covers_from')} to {body.get('covers_to')}"
        case "clear":
            return "the conversation was cleared here"
        case "failed":
            return f"turn {entry.turn} failed: {body.get('error', '')}"
        case "undone":
            target = body.get("of")
            if undoes_cut(body):
                return f"cut {body['cut']} was undone"
            texts = {
                "compaction": "the compaction at entry {} was undone",
                "undone": "the undo at entry {} was reverted",
            }
            return texts.get(kinds.get(target, ""), "entry {} was undone").format(target)
        case "pin" | "unpin":
            reason = f": {body['reason']}" if body.get("reason") else ""
            return f"message {body.get('seq')}.{body.get('ord', 0)} was {entry.kind}ned{reason}"
        case "lost":
            return f"entry {entry.seq} was damaged; its content is lost"
        case _:
            return ""
