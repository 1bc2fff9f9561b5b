"""The console display of document 001: who said what, when, in which turn, which tool was called and why.

Beyond what the document prints, results of tools stand under their calls, marks of the session on lines of their own,
and each further line of a text is indented or begins with `> `, so that no text looks like an entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

from msgspec import Struct

from nexus.render.console import part_lines, printable, quoted_lines, result_lines, visible_lines
from nexus.render.turnlog import times
from nexus.render.turnlog.bare import slices
from nexus.render.turnlog.entry import NO_SYSTEM, POST, LogEntry, Position, Unit
from nexus.render.turnlog.texts import string_of
from nexus.render.turnlog.units import log_units
from nexus.render.turnlog.write import entries_for
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Text, Thinking, ToolCall, ToolResult

VALUE_CHARS = 60
SYSTEM_CHARS = 300
FINISH = "finishRequest"

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]|\n")


class Signs(Struct, frozen=True):
    """What stands before each kind of line."""

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
PLAIN = Signs()
ASCII = Signs(branch="`-", rule="--", dots="...")
"""As the document prints them; without emoji; for an output that has ASCII alone."""


def console_lines(
    entries: Iterable[Entry], *, signs: Signs = EMOJI, numbered: bool = False, full: bool = False
) -> Iterator[str]:
    """The lines of the console display of a session's entries.

    `full` shows system texts, values and results of tools whole. `numbered` adds each message's place (entry and order in
    it) and each mark's entry.
    """
    return visible_lines(_lines(entries, signs, numbered=numbered, full=full))


def _lines(entries: Iterable[Entry], signs: Signs, *, numbered: bool, full: bool) -> Iterator[str]:
    at, entries = _start(iter(entries))
    kinds: dict[object, str] = {}
    between = False
    for found in log_units(entries, ends=lambda entry: bool(_mark(entry, {}))):
        if between and (isinstance(found, Entry) or found.kind not in ("compaction", "clear")):
            yield ""
        between = True
        if isinstance(found, Entry):
            kinds[found.seq] = found.kind
            place = f"entry {found.seq}: " if numbered else ""
            yield f"{signs.rule} {place}{_mark(found, kinds)} {signs.rule}"
            continue
        new, at = entries_for(found, at)
        yield from _unit(found, new, signs, numbered=numbered, full=full)


def _start(entries: Iterator[Entry]) -> tuple[Position, Iterator[Entry]]:
    """The position of the first message, by its turn in the ledger: what is shown may begin in the middle of a session."""
    seen: list[Entry] = []
    for entry in entries:
        seen.append(entry)
        if entry.rows:
            answers = entry.rows[0].message.role in ("assistant", "tool")
            turn = max(entry.turn - (not answers), 0)
            return Position(turn=turn, instructions=NO_SYSTEM), chain(seen, entries)
    return Position(instructions=NO_SYSTEM), iter(seen)


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


def _unit(unit: Unit, entries: list[LogEntry], signs: Signs, *, numbered: bool, full: bool) -> Iterator[str]:
    place = f", entry {unit.place.seq}.{unit.place.ord}" if numbered else ""
    if unit.kind == "compaction":
        yield from quoted_lines(unit.summary)
    parts = slices(unit.message) if unit.message else []
    owners = {part.id: number for number, some in enumerate(parts) for part in some if isinstance(part, ToolCall)}
    last = max(len(parts) - 1, 0)
    for number, entry in enumerate(entries if unit.message else ()):
        if number:
            yield ""
        yield from _entry(unit, entry, place, signs, full=full)
        if number == last and unit.message and unit.message.role != "user":
            yield from _other_parts(unit.message)
        yield from _results(unit, partial(_answers, owners, last, number), signs, numbered=numbered, full=full)
    if unit.message is None:
        yield from _results(unit, lambda _: True, signs, numbered=numbered, full=full)


def _answers(owners: Mapping[str, int], last: int, number: int, call_id: str) -> bool:
    """Whether a result stands under entry `number`: that of its call, else the last one."""
    return owners.get(call_id, last) == number


def _results(unit: Unit, belongs: Callable[[str], bool], signs: Signs, *, numbered: bool, full: bool) -> Iterator[str]:
    """What tools returned for the calls of one entry; what else their messages hold stands with the last one's."""
    for message, where in zip(unit.results, unit.result_places, strict=True):
        at = f" (entry {where.seq}.{where.ord})" if numbered else ""
        for part in message.parts:
            if isinstance(part, ToolResult) and belongs(part.call_id):
                yield from result_lines(part, place=at, branch=signs.branch, dots=signs.dots, full=full)
            elif not isinstance(part, ToolResult) and belongs(""):
                yield from part_lines(part)


def _entry(unit: Unit, entry: LogEntry, place: str, signs: Signs, *, full: bool) -> Iterator[str]:
    if isinstance(entry.content, str):
        yield from _system(entry.content, f" [{place[2:]}]" if place else "", signs, full=full)
        return
    named = dict(entry.content)
    turn = f"[Turn {entry.turn}{place}]"
    if entry.role == "user":
        yield f"{signs.user}User {printable(string_of(named.get('userid', '')) or '')} {turn}"
    else:
        yield f"{signs.assistant}Assistant {turn}"
    if at_ms := (unit.message.at_ms if unit.message else 0) or unit.at_ms:
        known = times.FIRST_US <= at_ms * 1_000 <= times.LAST_US
        yield f"{signs.time}{entry.timestamp if known else f'[no time: {at_ms}]'}"
    if entry.role == "assistant":
        yield from _call(named, signs, full=full)
        return
    for part in unit.message.parts if unit.message else ():
        yield from part_lines(part)


def _system(text: str, place: str, signs: Signs, *, full: bool) -> Iterator[str]:
    """A system text: whole, or its first sentence with `...` in the place of the rest."""
    text = text.strip()
    if not full and (short := _first_sentence(text)) != text:
        text = f"{short}..."
    first, *more = text.splitlines() or [""]
    yield f"{signs.system}System{place}: {first}"
    yield from (f"   {line}" for line in more)


def _first_sentence(text: str) -> str:
    """The first sentence of a text without its full stop, or as much of it as is shown; the text if that is all of it."""
    found = _SENTENCE_END.search(text)
    if found is None or found.start() > SYSTEM_CHARS:
        return text if len(text) <= SYSTEM_CHARS else text[:SYSTEM_CHARS]
    keeps = found[0] in "!?！？"
    return text[: found.end() if keeps else found.start()]


def _call(named: Mapping[str, str], signs: Signs, *, full: bool) -> Iterator[str]:
    """A call: its tool and parameters, for a post its text on a line of its own, and why it was made."""
    tool, text = (string_of(named.get(name, "")) or "" for name in ("toolCall", "text"))
    post = tool == POST
    sign = signs.post if post else signs.finish if tool == FINISH else signs.tool
    hidden = {"toolCall", "reasoning", *(("text",) if post else ())}
    values = [
        f"{printable(name)}: {_value(raw, signs, full=full)}" for name, raw in named.items() if name not in hidden
    ]
    parameters = f" ({', '.join(values)})" if values else ""
    yield f"{sign}{printable(tool)}{parameters}{':' if post else ''}"
    if post:
        yield from (f"   {line}" for line in f'"{text}"'.splitlines())
    if reasoning := string_of(named.get("reasoning", "")):
        first, *more = reasoning.splitlines() or [""]
        yield f"   {signs.branch} Reason: {first}"
        yield from (f"      {line}" for line in more)


def _value(raw: str, signs: Signs, *, full: bool) -> str:
    """A parameter's value on one line: a text without its quotes, all else as JSON."""
    text = raw[1:-1] if raw[:1] == '"' else raw
    return text if full or len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}{signs.dots}"


def _other_parts(message: Message) -> Iterator[str]:
    """What an entry has no place for: images, notes, parts of unknown kinds, reasoning that its provider keeps."""
    for part in message.parts:
        if not isinstance(part, (Text, ToolCall)) and not (isinstance(part, Thinking) and part.text):
            yield from part_lines(part)
