r"""The tagged dialogue of document 000 as text: five messages whose blocks begin with a tag in square brackets.

Rows of a history become entries of the shared memory ("Key Behaviors"). All of an AI's rows in one run are one entry at
the position of the first row; the newest entries are kept, and each is truncated, never within a grapheme.

In the block [SHARED_MEMORY], a human's entry begins with its time; the AI's answer after it is indented by two spaces.
Further lines are not indented. Tool calls are one line, whatever their arguments contain:
`[tool_use:web_search, query:…; tool_use:calculator, expression:…]`. A separator inside a name or value has a backslash
before it, and backslashes before a separator or at the end are doubled: an even number before a separator means that it
separates.

Parsing is exact: `parse(format(x)) == x`. Frame tags and line breaks in texts are escaped by `nexus.text.frames`; a text
without a tag is formatted with the document's own characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any, TypeAlias, cast

from msgspec import Struct

from nexus.errors import UnreadableFile
from nexus.render.tool_list import capabilities_text
from nexus.text.frames import escape, escape_line_breaks, unescape, unescape_line_breaks
from nexus.text.frames.tags import HEADS
from nexus.types.user_profile import FRIEND_HEADING

LIMIT = 20
"""Limit of entries after merging (document 000: `limit: int = 20`)."""

TEXT_CHARS = 500
"""Limit of an entry in code points. Document 000, "Key Behaviors": longer messages end with `...`."""

NAME_CHARS = 128
VALUE_CHARS = 100
"""Limits of a tool's name, and of an argument's name or value."""

HUMAN = ("human", "user")
AI = ("ai", "assistant")
"""Names of the two roles in the memory."""

UNKNOWN_TIME = "unknown time"
"""Text for a missing time or one outside the calendar."""

PREFERRED = "query"
"""Name of the argument to show; by default a call's first one."""

HEADING = "Recent conversation memory:"
NOTHING_YET = "(No earlier conversation.)"
PART_ENTRIES = 4
"""Entries in one part of a block that providers cache by parts."""

DOTS = "..."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_HEAD = re.compile(rf"\[SHARED_MEMORY(?: count=([0-9]+))?\]\n{re.escape(HEADING)}\n\n")
_TAG = re.compile("[A-Z][A-Z0-9_]*")
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d"
_ENTRY = re.compile(rf"(?:\A|(?<=\n))(?:\[({_TIME}|{UNKNOWN_TIME})\] (Human|Nexus): |  Nexus: )", re.ASCII)

OPENING = "[tool_use:"
_BETWEEN = "; tool_use:"
_NAME = ",;]"
_KEY = ":;]"
_VALUE = ";]"
"""Separators that are escaped in each of the three."""

_FRIENDS = f"[FRIENDS_INFO]\n{FRIEND_HEADING}\n\n"
_MOMENT = re.compile(
    r"\[THIS_MOMENT\]\n<current_time>([^<\n]*)</current_time>\n<human_input>\n(.*)\n</human_input>", re.DOTALL
)


class DialogueCall(Struct, frozen=True):
    """A tool call of a row: arguments as an object or as received text."""

    name: str
    arguments: str | Mapping[str, Any] = ""


class DialogueRow(Struct, frozen=True):
    """One message of a history. Roles `human` (`user`) and `ai` (`assistant`) are shown, in any letter case."""

    role: str
    text: str = ""
    run_id: str = ""
    at_ms: int | None = None
    """Unix time; None if unknown."""
    calls: tuple[DialogueCall, ...] = ()


class ToolUse(Struct, frozen=True):
    """A tool call: the tool's name, and one argument with its value as text. `key` is None without arguments."""

    name: str
    key: str | None = None
    value: str = ""


Parts: TypeAlias = tuple[str | tuple[ToolUse, ...], ...]
"""Texts, none empty and no two in a row, with the tool calls between them."""


class Human(Struct, frozen=True, tag="human"):
    """A user's message. `time` is `YYYY-MM-DD HH:MM` or `unknown time`."""

    time: str
    text: str


class Ai(Struct, frozen=True, tag="ai"):
    """The AI's answer in one run. `time` is None after a human's entry."""

    time: str | None
    parts: Parts


Entry: TypeAlias = Human | Ai


class MergedEntry(Struct, frozen=True):
    """Rows of one entry, as (index in the history, row): one of a human, or all of an AI's run, oldest first."""

    rows: tuple[tuple[int, DialogueRow], ...]
    human: bool

    def parts(self) -> Parts:
        """Return texts and tool calls in order, not truncated. Consecutive texts are joined by a newline."""
        parts: list[str | tuple[ToolUse, ...]] = []
        texts: list[str] = []
        for _, row in self.rows:
            if row.text.strip():
                texts.append(row.text)
            if row.calls:
                parts += ["\n".join(texts)] if texts else []
                parts.append(tuple(tool_use(call.name, call.arguments) for call in row.calls))
                texts = []
        if texts:
            return (*parts, "\n".join(texts))
        return tuple(parts)


class MemoryEntries(Struct, frozen=True):
    """Entries of the memory, oldest first, and the number of omitted rows by role or reason."""

    entries: tuple[Entry, ...]
    omitted: dict[str, int]


# Times and truncation --------------------------------------------------------------------------------------------


def memory_time(at_ms: int | None, zone: tzinfo) -> str:
    """Return Unix time in milliseconds as `YYYY-MM-DD HH:MM` in the zone, or UNKNOWN_TIME."""
    local = _local(at_ms, zone)
    if local is None:
        return UNKNOWN_TIME
    return local.replace(tzinfo=None).isoformat(" ", "minutes")


def moment_time(at_ms: int | None, zone: tzinfo) -> str:
    """Return Unix time in milliseconds as `YYYY-MM-DD HH:MM:SS±HH:MM` in the zone, or UNKNOWN_TIME."""
    local = _local(at_ms, zone)
    if local is None:
        return UNKNOWN_TIME
    offset = local.strftime("%z")  # isoformat would add seconds to the offset of an old local time
    return f"{local.replace(tzinfo=None).isoformat(' ', 'seconds')}{offset[:3]}:{offset[3:5]}"


def _local(at_ms: int | None, zone: tzinfo) -> datetime | None:
    if at_ms is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
    except OverflowError:
        return None


def truncate_at_grapheme(text: str, most_chars: int = TEXT_CHARS) -> str:
    """Return at most so many characters (more than three) of a text, three dots included."""
    if len(text) <= most_chars:
        return text
    return text[: _boundary(text, most_chars - len(DOTS))] + DOTS


def truncate_parts(parts: Parts, most_chars: int = TEXT_CHARS) -> Parts:
    """Truncate the texts of the parts together to so many characters; all tool calls stay."""
    joined = "\n".join(part for part in parts if isinstance(part, str))
    if len(joined) <= most_chars:
        return parts
    cut = _boundary(joined, most_chars - len(DOTS))
    truncated: list[str | tuple[ToolUse, ...]] = []
    at = 0
    for part in parts:
        if not isinstance(part, str):
            truncated.append(part)
            continue
        if at <= cut and at + len(part) < cut:
            truncated.append(part)
        elif at <= cut:
            truncated.append(part[: cut - at] + DOTS)
            cut = -1  # later texts are omitted completely
        at += len(part) + 1
    return tuple(truncated)


def _boundary(text: str, limit: int) -> int:
    """Return the last grapheme boundary (Unicode Standard Annex 29) up to `limit`; `limit` if there is none."""
    # In ASCII only CR LF is one grapheme: most texts need no segmentation and no import.
    if text.isascii() and text[limit - 1 : limit + 1] != "\r\n":
        return limit
    import regex

    ends = (match.end() for match in regex.finditer(r"\X", text[: limit + 1]))
    return max((end for end in ends if end <= limit), default=limit)


# Entries of the memory -------------------------------------------------------------------------------------------


def is_shown(role: str) -> bool:
    """Return true if rows of the role are entries of the memory."""
    return role.strip().casefold() in (*HUMAN, *AI)


def merge_rows(rows: Iterable[DialogueRow], current_run_id: str = "") -> tuple[list[MergedEntry], Counter[str]]:
    """Group the rows into entries, oldest first, and count omitted rows by role or reason.

    Other roles, rows of the current run, and an AI's rows without text and calls are omitted.
    """
    groups: list[tuple[bool, list[tuple[int, DialogueRow]]]] = []
    runs: dict[str, list[tuple[int, DialogueRow]]] = {}
    omitted: Counter[str] = Counter()
    for place, row in enumerate(rows):
        role = row.role.strip().casefold()
        if not is_shown(role):
            omitted[role or "without a role"] += 1
        elif current_run_id and row.run_id == current_run_id:
            omitted["of the current run"] += 1
        elif role in HUMAN:
            groups.append((True, [(place, row)]))
        elif not row.text.strip() and not row.calls:
            omitted["empty"] += 1
        elif row.run_id in runs:
            runs[row.run_id].append((place, row))
        else:
            group = [(place, row)]
            groups.append((False, group))
            if row.run_id:  # rows without a run are entries of their own
                runs[row.run_id] = group
    return [MergedEntry(tuple(group), human) for human, group in groups], omitted


def memory_entries(
    rows: Iterable[DialogueRow],
    zone: tzinfo = UTC,
    *,
    limit: int = LIMIT,
    current_run_id: str = "",
    most_chars: int = TEXT_CHARS,
) -> MemoryEntries:
    """Return the newest `limit` entries of the rows (oldest first), truncated to `most_chars`, with times in the zone.

    An AI's entry has a time unless it follows a human's entry.
    """
    groups, omitted = merge_rows(rows, current_run_id)
    newest = groups[-limit:] if limit > 0 else []
    older = sum(len(group.rows) for group in groups[: len(groups) - len(newest)])
    if older:
        omitted["older"] += older
    entries: list[Entry] = []
    for group in newest:
        first = group.rows[0][1]
        time = memory_time(first.at_ms, zone)
        if group.human:
            entries.append(Human(time, truncate_at_grapheme(first.text, most_chars)))
        else:
            follows = bool(entries) and isinstance(entries[-1], Human)
            entries.append(Ai(None if follows else time, truncate_parts(group.parts(), most_chars)))
    return MemoryEntries(tuple(entries), dict(sorted(omitted.items())))


def tool_use(name: str, arguments: str | Mapping[str, Any]) -> ToolUse:
    """Return a truncated tool call. Arguments that are not a JSON object count as none."""
    values: object = arguments
    if isinstance(arguments, str):
        try:
            values = json.loads(arguments)
        except (ValueError, RecursionError):
            values = None
    name = truncate_at_grapheme(name, NAME_CHARS)
    if not isinstance(values, Mapping) or not values:
        return ToolUse(name)
    fields = cast("Mapping[str, Any]", values)
    key = PREFERRED if PREFERRED in fields else next(iter(fields))
    text = fields[key]
    if not isinstance(text, str):
        try:
            text = json.dumps(text, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            text = type(text).__name__  # an application's object without a JSON form
    return ToolUse(name, truncate_at_grapheme(str(key), VALUE_CHARS), truncate_at_grapheme(text, VALUE_CHARS))


# The block [SHARED_MEMORY] ---------------------------------------------------------------------------------------


def memory_block(entries: Sequence[Entry], *, count: bool = True) -> str:
    """Return the block; without `count=N` in its head its beginning stays the same when it grows."""
    return "".join(memory_parts(entries, count=count))


def memory_parts(entries: Sequence[Entry], *, count: bool = False, size: int = PART_ENTRIES) -> list[str]:
    """Return the block in parts to join: its head, then `size` entries in each.

    New entries change the last part or add parts; earlier parts stay the same bytes, for prompt caches.
    """
    head = f"[SHARED_MEMORY{f' count={len(entries)}' if count else ''}]\n{HEADING}\n\n"
    if not entries:
        return [head + NOTHING_YET]
    lines = [("\n" if at else "") + entry_text(entry) for at, entry in enumerate(entries)]
    return [head, *("".join(lines[at : at + size]) for at in range(0, len(lines), size))]


def entry_text(entry: Entry) -> str:
    """Return an entry as text."""
    if isinstance(entry, Human):
        return f"[{entry.time}] Human: {escape(entry.text, 'memory')}"
    if entry.time is None:
        head = "  Nexus: "
    else:
        head = f"[{entry.time}] Nexus: "
    lines = [escape(part, "memory") if isinstance(part, str) else annotation_text(part) for part in entry.parts]
    if entry.parts and not isinstance(entry.parts[0], str):
        lines.insert(0, "")  # the line of the head is always text (see `_parse_parts`)
    return head + "\n".join(lines)


def parse_memory(block: str) -> tuple[Entry, ...]:
    """Parse a block, with or without a count. Raises UnreadableFile for any other text."""
    head = _HEAD.match(block)
    if head is None:
        raise UnreadableFile(f"not a block of the shared memory: {block[:60]!r}", code="bad_context")
    body = block[head.end() :]
    heads = list(_ENTRY.finditer(body))
    if (heads[0].start() if heads else body != NOTHING_YET) or head[1] not in (None, str(len(heads))):
        raise UnreadableFile(
            f"shared memory with {len(heads)} entries instead of {head[1] or 'none'}", code="bad_context"
        )
    entries: list[Entry] = []
    for hit, end in zip(heads, [*(later.start() - 1 for _, later in pairwise(heads)), len(body)], strict=False):
        text = body[hit.end() : end]
        human = hit[2] == "Human"
        entries.append(Human(hit[1], unescape(text, "memory")) if human else Ai(hit[1], _parse_parts(text)))
    return tuple(entries)


def _parse_parts(text: str) -> Parts:
    # The first line follows the entry's head, so it is text even if it looks like tool calls.
    first, *more = text.split("\n")
    lines = [first]
    parts = list[str | tuple[ToolUse, ...]]()
    for line in more:
        if line.startswith(OPENING):
            parts += ("\n".join(lines), parse_annotation(line))
            lines = []
        else:
            lines.append(line)
    parts.append("\n".join(lines))
    return tuple(unescape(part, "memory") if isinstance(part, str) else part for part in parts if part)


def annotation_text(uses: Sequence[ToolUse]) -> str:
    """Return the line for tool calls of one row; empty for none."""
    items: list[str] = []
    for use in uses:
        text = _field(use.name, _NAME)
        if use.key is not None:
            text = f"{text}, {_field(use.key, _KEY)}:{_field(use.value, _VALUE)}"
        # After a bracket, as after a time, a speaker's name would count: each piece is escaped like a line of its own.
        items.append("]".join(escape(piece, "memory") for piece in text.split("]")))
    if uses:
        return f"{OPENING}{_BETWEEN.join(items)}]"
    return ""


def parse_annotation(line: str) -> tuple[ToolUse, ...]:
    """Parse a line of `annotation_text`. Raises UnreadableFile for any other line."""
    if not (line.startswith(OPENING) and line.endswith("]")) or "\n" in line:
        raise UnreadableFile(f"not a line of tool calls: {line[:60]!r}", code="bad_context")
    text = line[len(OPENING) : -1]
    starts = [0, *(match.end() + len(_BETWEEN) - 1 for match in _unescaped(";").finditer(text))]
    ends = [*(start - len(_BETWEEN) for start in starts[1:]), len(text)]
    return tuple(_parse_use(text[start:end]) for start, end in zip(starts, ends, strict=True))


def _parse_use(item: str) -> ToolUse:
    text = "]".join(unescape(piece, "memory") for piece in item.split("]"))
    comma = _unescaped(",").search(text)
    if comma is None:
        return ToolUse(_unfield(text, _NAME))
    name = text[: comma.end() - 1]
    rest = text[comma.end() + 1 :]
    colon = _unescaped(":").search(rest)
    if colon is None:
        raise UnreadableFile(f"argument without a value: {item[:60]!r}", code="bad_context")
    key = rest[: colon.end() - 1]
    value = rest[colon.end() :]
    return ToolUse(_unfield(name, _NAME), _unfield(key, _KEY), _unfield(value, _VALUE))


def _field(text: str, stops: str) -> str:
    """Return the text on one line with separators escaped, and backslashes before them or at the end doubled."""
    special = re.compile(rf"(\\*)([{re.escape(stops)}])|(\\+)\Z")
    return special.sub(lambda hit: hit[3] * 2 if hit[3] else f"{hit[1] * 2}\\{hit[2]}", escape_line_breaks(text))


def _unfield(text: str, stops: str) -> str:
    special = re.compile(rf"(\\+)([{re.escape(stops)}]|\Z)")
    return unescape_line_breaks(special.sub(lambda hit: "\\" * (len(hit[1]) // 2) + hit[2], text))


def _unescaped(separator: str) -> re.Pattern[str]:
    """Return a pattern for the separator after an even number of backslashes; it is the match's last character."""
    return re.compile(rf"(?<!\\)(?:\\\\)*{separator}")


# Blocks that are one text after a tag ----------------------------------------------------------------------------
# Document 000, "Message Structure": [CAPABILITIES], [FRIENDS_INFO], [THIS_MOMENT]; "Extensibility" and "Future
# Enhancements": [MOOD] and [CONSTRAINTS].


def capabilities_block(definitions: Iterable[Mapping[str, Any]]) -> str:
    """Return the tools of definitions in any provider's format, or the placeholder. Raises BadTool."""
    return capabilities_text_block(capabilities_text(definitions))


def capabilities_text_block(text: str) -> str:
    """Return the block for a description of the tools."""
    return "[CAPABILITIES]\n" + escape(text)


def parse_capabilities(block: str) -> str:
    """Return the text of `capabilities_text`. Raises UnreadableFile."""
    return _parse_block("[CAPABILITIES]\n", block)


def friends_block(text: str) -> str:
    """Return the block for a description of the user from `nexus.types.user_profile.friend_text`."""
    return _FRIENDS + escape(text)


def parse_friends(block: str) -> str:
    """Return the description of the user. Raises UnreadableFile."""
    return _parse_block(_FRIENDS, block)


def tag_block(tag: str, text: str) -> str:
    """Return a block with your own tag, such as `WEATHER`. Raises UnreadableFile for a tag of the format, or no tag."""
    if not _TAG.fullmatch(tag) or f"[{tag}" in HEADS:
        raise UnreadableFile(
            f"tag {tag[:80]!r} invalid (use capitals, digits and _, and none of the format's own tags)",
            code="bad_context",
        )
    return f"[{tag}]\n{escape(text)}"


def parse_tag(tag: str, block: str) -> str:
    """Return the text of `tag_block`. Raises UnreadableFile."""
    return _parse_block(f"[{tag}]\n", block)


def mood_block(text: str) -> str:
    """Return the block for the user's apparent mood."""
    return "[MOOD]\n" + escape(text)


def parse_mood(block: str) -> str:
    """Return the text of `mood_block`. Raises UnreadableFile."""
    return _parse_block("[MOOD]\n", block)


def constraints_block(text: str) -> str:
    """Return the block for the limits of the current task."""
    return "[CONSTRAINTS]\n" + escape(text)


def parse_constraints(block: str) -> str:
    """Return the text of `constraints_block`. Raises UnreadableFile."""
    return _parse_block("[CONSTRAINTS]\n", block)


def moment_block(time: str, text: str) -> str:
    """Return the block for the user's message and its time from `moment_time`."""
    return f"[THIS_MOMENT]\n<current_time>{time}</current_time>\n<human_input>\n{escape(text)}\n</human_input>"


def parse_moment(block: str) -> tuple[str, str]:
    """Return time and text of `moment_block`. Raises UnreadableFile."""
    match = _MOMENT.fullmatch(block)
    if match is None:
        raise UnreadableFile(f"not a block of the current message: {block[:60]!r}", code="bad_context")
    return match[1], unescape(match[2])


def _parse_block(head: str, block: str) -> str:
    if not block.startswith(head):
        raise UnreadableFile(f"{block[:60]!r} does not begin with {head!r}", code="bad_context")
    return unescape(block.removeprefix(head))
