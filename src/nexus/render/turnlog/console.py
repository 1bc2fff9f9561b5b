"""The console display of document 001: speakers, times, turns, and tool calls with their reasons.

Beyond the document, tool results follow their calls and checkpoints are on lines of their own. Every further line of a
text is indented or begins with `> `, so that no text can imitate an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct

from nexus.render.console import part_lines, printable, quoted_lines, result_lines, visible_lines
from nexus.render.turnlog import times
from nexus.render.turnlog.entries import NO_SYSTEM, POST, LogEntry, Position, Unit, slices
from nexus.render.turnlog.json_text import string_of
from nexus.render.turnlog.write import entries_for, log_units
from nexus.types.ledger_entries import Entry, MessageRef
from nexus.types.message import Message, Part, Text, Thinking, ToolCall, ToolResult

VALUE_CHARS = 60
SYSTEM_CHARS = 300
FINISH = "finishRequest"

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]|\n")


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


EMOJI = Signs("🧠 ", "👤 ", "🤖 ", "🕐 ", "🔧 ", "💬 ", "✅ ")
"""As the document prints them."""
PLAIN = Signs()
"""Without emoji."""
ASCII = Signs(branch="`-", rule="--", dots="...")
"""For an output that is limited to ASCII."""


def console_lines(
    entries: Iterable[Entry], *, signs: Signs = EMOJI, numbered: bool = False, full: bool = False
) -> Iterator[str]:
    """Yield the lines of the console display of a session's entries.

    Args:
        entries: Entries of the session.
        signs: Prefixes of the lines.
        numbered: Add the reference of each message and the entry of each checkpoint.
        full: Show system texts, values and tool results without truncation.
    """
    return visible_lines(_lines(entries, signs, numbered=numbered, full=full))


def _lines(entries: Iterable[Entry], signs: Signs, *, numbered: bool, full: bool) -> Iterator[str]:
    at, entries = _start(iter(entries))
    kinds: dict[object, str] = {}
    first = True
    for unit in log_units(entries, ends=lambda entry: bool(_checkpoint_text(entry, {}))):
        # The lines of a compaction or clear belong to the checkpoint above them.
        if not first and (isinstance(unit, Entry) or unit.kind not in ("compaction", "clear")):
            yield ""
        first = False
        if isinstance(unit, Entry):
            kinds[unit.seq] = unit.kind
            place = f"entry {unit.seq}: " if numbered else ""
            yield f"{signs.rule} {place}{_checkpoint_text(unit, kinds)} {signs.rule}"
            continue
        new, at = entries_for(unit, at)
        yield from _unit(unit, new, signs, numbered=numbered, full=full)


def _start(entries: Iterator[Entry]) -> tuple[Position, Iterator[Entry]]:
    """Return the position of the first message by its turn in the ledger: the display may start within a session."""
    consumed: list[Entry] = []
    for entry in entries:
        consumed.append(entry)
        if entry.rows:
            answers = entry.rows[0].message.role in ("assistant", "tool")
            turn = max(entry.turn - (not answers), 0)
            return Position(turn=turn, instructions=NO_SYSTEM), chain(consumed, entries)
    return Position(instructions=NO_SYSTEM), iter(consumed)


def _checkpoint_text(entry: Entry, kinds: Mapping[object, str]) -> str:
    """Describe an entry apart from its messages; empty for most. `kinds` are those of earlier checkpoints, by seq."""
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


def _unit(unit: Unit, entries: list[LogEntry], signs: Signs, *, numbered: bool, full: bool) -> Iterator[str]:
    place = f", entry {unit.place.seq}.{unit.place.ord}" if numbered else ""
    if unit.kind == "compaction":
        yield from quoted_lines(unit.summary)
    parts = slices(unit.message) if unit.message else []
    owners = {part.id: number for number, group in enumerate(parts) for part in group if isinstance(part, ToolCall)}
    last = max(len(parts) - 1, 0)
    for number, entry in enumerate(entries if unit.message else ()):
        if number:
            yield ""
        yield from _entry(unit, entry, place, signs, full=full)
        if number == last and unit.message and unit.message.role != "user":
            yield from _other_parts(unit.message)
        results = [result for result in _results(unit) if owners.get(result[0], last) == number]
        yield from _result_lines(results, signs, numbered=numbered, full=full)
    if unit.message is None:
        yield from _result_lines(_results(unit), signs, numbered=numbered, full=full)


def _results(unit: Unit) -> Iterator[tuple[str, Part, MessageRef]]:
    """Yield the parts of the unit's tool messages with the id of their call, empty for other parts."""
    for message, place in zip(unit.results, unit.result_places, strict=True):
        for part in message.parts:
            yield part.call_id if isinstance(part, ToolResult) else "", part, place


def _result_lines(
    results: Iterable[tuple[str, Part, MessageRef]], signs: Signs, *, numbered: bool, full: bool
) -> Iterator[str]:
    for _, part, place in results:
        at = f" (entry {place.seq}.{place.ord})" if numbered else ""
        if isinstance(part, ToolResult):
            yield from result_lines(part, place=at, branch=signs.branch, dots=signs.dots, full=full)
        else:
            yield from part_lines(part)


def _entry(unit: Unit, entry: LogEntry, place: str, signs: Signs, *, full: bool) -> Iterator[str]:
    if isinstance(entry.content, str):
        yield from _system(entry.content, f" [{place[2:]}]" if place else "", signs, full=full)
        return
    fields = dict(entry.content)
    turn = f"[Turn {entry.turn}{place}]"
    if entry.role == "user":
        yield f"{signs.user}User {printable(string_of(fields.get('userid', '')) or '')} {turn}"
    else:
        yield f"{signs.assistant}Assistant {turn}"
    if at_ms := (unit.message.at_ms if unit.message else 0) or unit.at_ms:
        valid = times.FIRST_US <= at_ms * 1_000 <= times.LAST_US
        yield f"{signs.time}{entry.timestamp if valid else f'[no time: {at_ms}]'}"
    if entry.role == "assistant":
        yield from _call(fields, signs, full=full)
        return
    for part in unit.message.parts if unit.message else ():
        yield from part_lines(part)


def _system(text: str, place: str, signs: Signs, *, full: bool) -> Iterator[str]:
    """Yield a system text, truncated after its first sentence with `...` unless `full`."""
    text = text.strip()
    if not full and (short := _first_sentence(text)) != text:
        text = f"{short}..."
    first, *more = text.splitlines() or [""]
    yield f"{signs.system}System{place}: {first}"
    yield from (f"   {line}" for line in more)


def _first_sentence(text: str) -> str:
    """Return the first sentence without its full stop, at most SYSTEM_CHARS long; the text if that is all of it."""
    end = _SENTENCE_END.search(text)
    if end is None or end.start() > SYSTEM_CHARS:
        return text if len(text) <= SYSTEM_CHARS else text[:SYSTEM_CHARS]
    return text[: end.end() if end[0] in "!?！？" else end.start()]


def _call(fields: Mapping[str, str], signs: Signs, *, full: bool) -> Iterator[str]:
    """Yield a call: its tool and parameters, the text of a post on its own line, and the reason."""
    tool, text = (string_of(fields.get(name, "")) or "" for name in ("toolCall", "text"))
    post = tool == POST
    sign = signs.post if post else signs.finish if tool == FINISH else signs.tool
    hidden = {"toolCall", "reasoning", *(("text",) if post else ())}
    values: list[str] = []
    for name, raw in fields.items():
        if name not in hidden:
            value = raw[1:-1] if raw[:1] == '"' else raw
            value = value if full or len(value) <= VALUE_CHARS else f"{value[:VALUE_CHARS]}{signs.dots}"
            values.append(f"{printable(name)}: {value}")
    parameters = f" ({', '.join(values)})" if values else ""
    yield f"{sign}{printable(tool)}{parameters}{':' if post else ''}"
    if post:
        yield from (f"   {line}" for line in f'"{text}"'.splitlines())
    if reasoning := string_of(fields.get("reasoning", "")):
        first, *more = reasoning.splitlines() or [""]
        yield f"   {signs.branch} Reason: {first}"
        yield from (f"      {line}" for line in more)


def _other_parts(message: Message) -> Iterator[str]:
    """Yield what an entry does not show: images, notes, parts of unknown kinds, thinking that its provider keeps."""
    for part in message.parts:
        if not isinstance(part, (Text, ToolCall)) and not (isinstance(part, Thinking) and part.text):
            yield from part_lines(part)
