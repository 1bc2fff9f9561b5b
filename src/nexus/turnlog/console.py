"""The console display of document 001: speakers, times, turns, and tool calls with their reasons.

Beyond the document, tool results follow their calls and checkpoints are on lines of their own. Every further line of a
text is indented or begins with `> `, so that no text can imitate an entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from msgspec.structs import replace

from nexus.render.console import (
    Signs,
    checkpoint_text,
    parameter_list,
    part_lines,
    printable,
    quoted_lines,
    result_lines,
    visible_lines,
)
from nexus.turnlog import times
from nexus.turnlog.entries import FINISH, NO_SYSTEM, POST, LogEntry, LogPosition, Unit, parse_bare, slices
from nexus.turnlog.json_text import json_string, string_of
from nexus.turnlog.write import entries_for, log_units
from nexus.types.ledger_entries import Entry, MessageRef
from nexus.types.message import Note, Part, Text, Thinking, ToolCall, ToolResult

SYSTEM_CHARS = 300

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]|\n")


EMOJI = Signs("🧠 ", "👤 ", "🤖 ", "🕐 ", "🔧 ", "💬 ", "✅ ")
"""As the document prints them."""


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
    return visible_lines(_Display(signs, numbered, full).lines(iter(entries)))


def unit_lines(unit: Unit, entries: Iterable[LogEntry], *, signs: Signs = EMOJI, full: bool = False) -> Iterator[str]:
    """Yield the lines of one message, or of a compaction, with its log entries. Tool results are not shown."""
    return visible_lines(
        _Display(signs, numbered=False, full=full).unit(replace(unit, results=(), result_places=()), [*entries])
    )


def checkpoint_line(entry: Entry, kinds: Mapping[object, str], *, signs: Signs = EMOJI, place: str = "") -> str:
    """Return the line of an entry apart from its messages; empty for most. Arguments as of `checkpoint_text`."""
    text = checkpoint_text(entry, kinds)
    if text:
        return f"{signs.rule} {place}{text} {signs.rule}"
    return ""


@dataclass(frozen=True, slots=True)
class _Display:
    """The options of `console_lines`."""

    signs: Signs
    numbered: bool
    full: bool

    def lines(self, entries: Iterator[Entry]) -> Iterator[str]:
        at, entries = _start(entries)
        kinds: dict[object, str] = {}
        first = True
        for unit in log_units(entries, ends=lambda entry: bool(checkpoint_text(entry, {}))):
            # The lines of a compaction or clear belong to the checkpoint above them.
            if not first and (isinstance(unit, Entry) or unit.kind not in ("compaction", "clear")):
                yield ""
            first = False
            if isinstance(unit, Entry):
                kinds[unit.seq] = unit.kind
                place = f"entry {unit.seq}: " if self.numbered else ""
                yield checkpoint_line(unit, kinds, signs=self.signs, place=place)
                continue
            new, at = entries_for(unit, at)
            yield from self.unit(unit, new)

    def unit(self, unit: Unit, entries: list[LogEntry]) -> Iterator[str]:
        if unit.kind == "compaction":
            yield from quoted_lines(unit.summary)
        message = unit.message
        if message is None:  # checkpoints, and results without a preceding message, have results only
            yield from self._results(unit, lambda _: True)
            return
        groups = slices(message)
        last = max(len(groups) - 1, 0)
        owners: dict[str, int] = {}
        for number, group in enumerate(groups):
            owners.update((part.id, number) for part in group if isinstance(part, ToolCall))
        for number, entry in enumerate(entries):
            if number:
                yield ""
            yield from self._entry(unit, entry)
            if number == last and message.role != "user":
                yield from chain.from_iterable(part_lines(part) for part in message.parts if not _is_in_entry(part))
            yield from self._results(unit, lambda call_id, number=number: owners.get(call_id, last) == number)

    def _results(self, unit: Unit, is_shown: Callable[[str], bool]) -> Iterator[str]:
        """Yield the parts of a unit's results whose call, empty for parts of other kinds, is shown here."""
        for message, place in zip(unit.results, unit.result_places, strict=True):
            for part in message.parts:
                if is_shown(part.call_id if isinstance(part, ToolResult) else ""):
                    yield from self._result(part, place)

    def _result(self, part: Part, place: MessageRef) -> Iterator[str]:
        if not isinstance(part, ToolResult):
            return part_lines(part)
        at = ""
        if self.numbered:
            at = f" (entry {place.seq}.{place.ord})"
        return result_lines(part, place=at, branch=self.signs.branch, dots=self.signs.dots, full=self.full)

    def _entry(self, unit: Unit, entry: LogEntry) -> Iterator[str]:
        signs = self.signs
        place = ""
        if self.numbered:
            place = f"entry {unit.place.seq}.{unit.place.ord}"
        bare = parse_bare(entry.role, entry.content)
        if entry.role == "system":
            yield from self._system(bare.text, f" [{place}]" if place else "")
            return
        fields = {} if isinstance(entry.content, str) else dict(entry.content)
        if place:
            turn = f"[Turn {entry.turn}, {place}]"
        else:
            turn = f"[Turn {entry.turn}]"
        if entry.role == "user":
            user = string_of(fields.get("userid", "")) or ""
            yield f"{signs.user}User {printable(user)} {turn}"
        else:
            yield f"{signs.assistant}Assistant {turn}"
        if at_ms := (unit.message.at_ms if unit.message else 0) or unit.at_ms:
            is_valid = times.FIRST_US <= at_ms * 1_000 <= times.LAST_US
            time = entry.timestamp if is_valid else f"[no time: {at_ms}]"
            yield f"{signs.time}{time}"
        if entry.role == "user":
            yield from _word_lines(unit)
            return
        if not bare.tool:  # text without a call, from another program
            fields = {"text": json_string(bare.text), "reasoning": json_string(bare.reasoning)}
            fields["toolCall"] = json_string(POST)
        yield from self._call(fields)

    def _system(self, text: str, place: str) -> Iterator[str]:
        """Yield a system text; unless `full`, its first sentence without the full stop, then `...`."""
        text = text.strip()
        if not self.full:
            end = _SENTENCE_END.search(text)
            short = text[:SYSTEM_CHARS]
            if end is not None and end.start() <= SYSTEM_CHARS:
                short = text[: end.end() if end[0] in "!?！？" else end.start()]
            if short != text:
                text = f"{short}..."
        first, *more = text.splitlines() or [""]
        yield f"{self.signs.system}System{place}: {first}"
        yield from (f"   {line}" for line in more)

    def _call(self, fields: Mapping[str, str]) -> Iterator[str]:
        """Yield a call: its tool and parameters, the text of a post on its own line, and the reason."""
        signs = self.signs
        tool = string_of(fields.get("toolCall", "")) or ""
        sign = {POST: signs.post, FINISH: signs.finish}.get(tool, signs.tool)
        hidden = {"toolCall", "reasoning"}
        if tool == POST:
            hidden.add("text")
        shown = ((printable(name), raw) for name, raw in fields.items() if name not in hidden)
        call = f"{sign}{printable(tool)}{parameter_list(shown, dots=signs.dots, full=self.full)}"
        if tool == POST:
            yield f"{call}:"
            text = string_of(fields.get("text", "")) or ""
            yield from (f"   {line}" for line in f'"{text}"'.splitlines())
        else:
            yield call
        if reasoning := string_of(fields.get("reasoning", "")):
            first, *more = reasoning.splitlines() or [""]
            yield f"   {signs.branch} Reason: {first}"
            yield from (f"      {line}" for line in more)


def _is_in_entry(part: Part) -> bool:
    """Return True for a part that an entry shows: texts, calls and readable thinking."""
    return isinstance(part, (Text, ToolCall)) or (isinstance(part, Thinking) and bool(part.text))


def _word_lines(unit: Unit) -> Iterator[str]:
    """Yield a user's words, then the notes that were sent with them, which are not the user's words."""
    parts = unit.message.parts if unit.message else ()
    for part in sorted(parts, key=lambda part: isinstance(part, Note)):
        if isinstance(part, Note):
            yield from (f"  ({line})" for line in part.text.splitlines())
        else:
            yield from part_lines(part)


def _start(entries: Iterator[Entry]) -> tuple[LogPosition, Iterator[Entry]]:
    """Return the position of the first message by its turn in the ledger: the display may start within a session."""
    consumed: list[Entry] = []
    for entry in entries:
        consumed.append(entry)
        if entry.rows:
            answers = entry.rows[0].message.role in ("assistant", "tool")
            turn = max(entry.turn - (not answers), 0)
            return LogPosition(turn=turn, instructions=NO_SYSTEM), chain(consumed, entries)
    return LogPosition(instructions=NO_SYSTEM), iter(consumed)
