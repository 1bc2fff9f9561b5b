"""A session or a context for people: the console view of document 001, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from nexus.assembled import AssembledContext
from nexus.ledger.entries import STEPS, Entry
from nexus.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

_HARMLESS = "\u200c\u200d\u3000\u00a0\u202f"
"""Not printable by their category, but parts of texts: joiners (Persian, emoji), the wide space and those that do not break."""

RESULT_CHARS = 300
VALUE_CHARS = 60
_SIGNS = {"system": "🧠 ", "user": "👤 ", "assistant": "🤖 ", "time": "🕐 ", "call": "🔧 ", "post": "💬 ", "end": "✅ "}


def console_lines(
    entries: Iterable[Entry], *, plain: bool = False, numbered: bool = False, full: bool = False
) -> Iterator[str]:
    """The lines of the console view; `plain` leaves emoji out. Long tool results are shortened and say so, unless `full`.

    `numbered` adds each message's place (entry and order in it) and each mark's entry.
    """
    signs = dict.fromkeys(_SIGNS, "") if plain else _SIGNS
    return _shown(_console(entries, signs, numbered=numbered, full=full))


def _console(entries: Iterable[Entry], signs: dict[str, str], *, numbered: bool, full: bool) -> Iterator[str]:
    kinds: dict[object, str] = {}
    for entry in entries:
        if entry.kind not in STEPS:
            kinds[entry.seq] = entry.kind
        if told := _mark(entry, kinds):
            yield f"── {f'entry {entry.seq}: ' if numbered else ''}{told} ──"
            if entry.kind == "compaction":
                yield from _quoted(str(entry.body.get("summary", "")))
            yield ""
        for row in entry.rows:
            place = f", entry {row.place.seq}.{row.place.ord}" if numbered else ""
            yield from _message(row.message, f" [Turn {entry.turn}{place}]", signs, full=full)
            yield ""


def _mark(entry: Entry, kinds: Mapping[object, str]) -> str:
    """What an entry says besides its messages; empty for most. `kinds` are those of the marks before it, by seq."""
    body = entry.body
    match entry.kind:
        case "compaction":
            return f"compacted: a summary stands for entries {body.get('covers_from')} to {body.get('covers_to')}"
        case "clear":
            return "the conversation was cleared here"
        case "failed":
            return f"turn {entry.turn} failed: {body.get('error', '')}"
        case "undone":
            of = body.get("of")
            told = {
                "compaction": "the compaction at entry {} was undone",
                "undone": "the undo at entry {} was taken back",
            }
            return told.get(kinds.get(of, ""), "entry {} was undone").format(of)
        case "pin" | "unpin":
            reason = f": {body['reason']}" if body.get("reason") else ""
            return f"message {body.get('seq')}.{body.get('ord', 0)} was {entry.kind}ned{reason}"
        case "lost":
            return f"entry {entry.seq} was damaged; what it held is lost"
        case _:
            return ""


def markdown_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """The session as Markdown: a heading for each message, calls and results as fenced blocks."""
    lines = (line for block in _markdown_blocks(entries) for line in block.split("\n"))
    return _shown(lines)


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
    signs = dict.fromkeys(_SIGNS, "")
    lines = ["=== system ===", ctx.system_prompt, "", f"=== history: {len(ctx.history)} messages ===", ""]
    for message in ctx.history:
        lines.extend(_message(message, "", signs, full=True))
        lines.append("")
    lines.append("=== current ===")
    for message in ctx.current:
        lines.extend(_message(message, "", signs, full=True))
    return "\n".join(_shown(line for block in lines for line in block.split("\n")))


def printable(text: str) -> str:
    """One line of text without power over a terminal: control characters and line breaks show as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """A text of several lines, each of them `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a session, each of them safe; tabs stay."""
    return (printable(line.replace("\t", "    ")) for line in lines)


def _message(message: Message, at: str, signs: dict[str, str], *, full: bool = False) -> Iterator[str]:
    who = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}[message.role]
    yield f"{signs.get(message.role, '')}{who}{at}"
    if message.at_ms:
        yield f"{signs['time']}{_time(message.at_ms)}"
    for part in message.parts:
        yield from _part(part, signs, full=full)


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"[no time: {at_ms}]"


def _part(part: Part, signs: dict[str, str], *, full: bool) -> Iterator[str]:
    match part:
        case Text(text) | Note(text=text):
            yield from _quoted(text)
        case Thinking(text):
            yield from (f"  ({line})" for line in (text or "reasoning kept by its provider").splitlines())
        case ToolCall(name=name, arguments=arguments):
            yield f"{signs['call']}{name}{_parameters(arguments)}"
        case ToolResult(call_id, content, _, is_error):
            text = "\n".join(item.text if isinstance(item, Text) else _image(item) for item in content)
            short = text if full else _shortened(text)
            yield f"   └─ {'Error' if is_error else 'Result'} of {call_id}:"
            yield from (f"      {line}" for line in short.splitlines())
        case Image():
            yield f"> {_image(part)}"
        case Unknown(kind):
            yield f"> [a part of kind {kind}]"


def _quoted(text: str) -> Iterator[str]:
    return (f"> {line}" for line in text.splitlines())


def _shortened(text: str) -> str:
    if len(text) <= RESULT_CHARS:
        return text
    return f"{text[:RESULT_CHARS]}\n… {len(text) - RESULT_CHARS:,} more characters"


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
