r"""Entries of a turn log: the printed form, the extra key `nexus`, and the messages between which they translate.

The printed form shows text, reasoning, and one tool call with its arguments. The extra key contains everything else of a
message and repeats nothing printed, except arguments in another form: a part of kind `text` or `thinking` without `text`
has the entry's, and a `tool_call` without name or arguments has the entry's. An entry that reads back correctly without
the key has none.

In a conversation, each entry, or note sent with a message, is one line of JSON, which escapes line breaks in texts as
`\n`: no text begins a line and none can imitate an entry. A note has the extra key alone: `{"nexus":{"memory":"…"}}`.
Where a text contains a frame tag that counts in the middle of a line, its bracket is written as a JSON escape: all
strings are parsed back unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.codec import MOST_MS
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.text.frames import escape
from nexus.turnlog.json_text import (
    Members,
    escape_surrogates,
    json_string,
    members,
    object_text,
    shallow_members,
    string_of,
    value_text,
)
from nexus.types.decoding import decodable
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message, Note, Part, Text, Thinking, ToolCall

LogRole: TypeAlias = Literal["system", "user", "assistant"]
LOG_ROLES = ("system", "user", "assistant")
"""Document 001, "Implementation Requirements", 5: only these roles are used."""

FIELDS = ("index", "turn", "timestamp", "role", "content")
"""Fields of every entry in the printed order."""

EXTRA = "nexus"
"""Key for content without a place in the printed form."""

POST = "postMessage"
FINISH = "finishRequest"
"""The `toolCall` of a text that was not posted, where both tools were offered. The text is its `reasoning`."""
NO_USER = "<@user>"
"""The `userid` of an unknown user."""

NO_SYSTEM = "(This conversation has no system message of its own.)"
"""First system entry of a session without a system text."""
CLEARED = "(The conversation was cleared here.)"
"""System entry after a clear, unless the log began with a system text."""
SUMMARY = SUMMARY_MARKER
"""First line of the system entry after a compaction."""

RESERVED = frozenset({"text", "reasoning", "toolCall", "arguments"})
"""Names of the printed form: a tool's parameter with such a name goes into `arguments`.

A `reasoning` that is text is printed as the entry's own, except in the older form.
"""

_MOMENT = re.compile(
    r"(?:Current time: \d{4}-\d\d-\d\dT[\d:.]+Z(?:\nLocal time: [^\n]+)?\nTimezone: [^\n]+"
    r"|Current date: \d{4}-\d\d-\d\d, Current time: \d\d:\d\d \(local\)"
    r"|\[Runtime Context — metadata only, not instructions\]\nCurrent Time: [^\n]+(?:\nTimezone: [^\n]+)?)"
    r"(?:\n(?:Channel|Chat ID|Platform|Available actions): [^\n]+)*(?=\n\n)"
)
"""Time and place of a message, which a profile sends before the user's words."""

UNNAMED = "(unnamed)"
"""The `toolCall` of a call without a tool name."""

Extra: TypeAlias = dict[str, Any]


MOST_DIGITS = 16
"""Most digits of an index or a turn."""


class LogEntry(Struct, frozen=True):
    """One entry of a turn log."""

    index: int
    turn: int
    timestamp: str
    role: LogRole
    content: str | Members
    """A system text, or the members of the printed object as JSON texts."""
    extra: dict[str, Any] = {}
    """The object under the key `nexus`."""
    written: str = ""
    """JSON text of an imported entry that another program formatted differently; it is shown unchanged."""


class LogPosition(Struct, frozen=True):
    """State of a log before its next entry."""

    index: int = 0
    turn: int = 0
    role: str = ""
    """Role of the previous entry that is not a system entry."""
    at_us: int | None = None
    """Time of the previous entry in microseconds since 1970."""
    instructions: str | None = None
    """System text at the beginning of the log; None before the first entry."""
    first: int = 0
    """First index that is still shown: after a clear, or where the last compaction stopped."""
    posting: tuple[int, bool] = (0, False)
    """A turn of the ledger, and whether its last call offered to post."""


class Unit(Struct, frozen=True):
    """A message, or a compaction or clear, with the tool results that follow it."""

    kind: Literal["message", "results", "compaction", "clear"] = "message"
    message: Message | None = None
    """None for checkpoints and for results without a preceding message."""
    results: tuple[Message, ...] = ()
    at_ms: int = 0
    """Time of the ledger entry, for messages without one."""
    facts: dict[str, Any] = {}
    """Details of an imported entry without a place in a message (see `nexus.turnlog.reader`)."""
    turn: int = 0
    """Turn of the ledger entry."""
    posting: bool | None = None
    """Whether posting was offered, None if the entry names no tools."""
    principal: str = ""
    summary: str = ""
    about: dict[str, Any] = {}
    """Trigger and token count of a compaction."""
    kept_ref: MessageRef | None = None
    """First message that a compaction kept, and its index in the log."""
    kept_from: int | None = None
    place: MessageRef = MessageRef(0, 0)
    result_places: tuple[MessageRef, ...] = ()


class BareEntry(Struct, frozen=True):
    """Printed content of an entry; `arguments` is one JSON text."""

    text: str
    reasoning: str = ""
    tool: str = ""
    arguments: str = ""


def entry_text(entry: LogEntry) -> str:
    """Return the entry as the text of a JSON object without spaces."""
    if entry.written:
        return entry.written
    if isinstance(entry.content, str):
        content = json_string(entry.content)
    else:
        content = object_text(entry.content)
    fields = {"index": entry.index, "turn": entry.turn, "timestamp": entry.timestamp, "role": entry.role}
    extra = ""
    if entry.extra:
        extra = f',"{EXTRA}":{value_text(entry.extra)}'
    return f'{value_text(fields)[:-1]},"content":{content}{extra}}}'


# The printed form -------------------------------------------------------------------------------------------------


def slices(message: Message) -> list[tuple[Part, ...]]:
    """Return the parts for each entry of a message: an assistant's are cut after each call."""
    if message.role != "assistant":
        return [message.parts]
    ends = [number for number, part in enumerate(message.parts, 1) if isinstance(part, ToolCall)]
    cuts = [0, *ends[:-1], len(message.parts)]
    return [message.parts[first:last] for first, last in pairwise(cuts)]


def content_of(
    role: LogRole, parts: tuple[Part, ...], user: str, *, older: bool = False, unposted: bool = False
) -> str | Members:
    """Return the printed `content` for the parts of one entry.

    Text and thinking next to a call are its reasoning, and so is its parameter `reasoning`, except in the older form.
    Text without a call is a `postMessage` with the thinking as its reasoning; `unposted`: a `finishRequest` with both.
    """
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    if role == "system":
        return text
    if role == "user":
        return (("userid", json_string(user)), ("text", json_string(text)))
    call = next((part for part in parts if isinstance(part, ToolCall)), None)
    kinds = (Text, Thinking) if call or unposted else (Thinking,)
    texts = [part.text for part in parts if isinstance(part, kinds) and part.text]
    content: Members = (("toolCall", json_string(POST)), ("text", json_string(text)))
    if unposted:
        content = (("toolCall", json_string(FINISH)),)
    if call:
        arguments = shallow_members(call.arguments)
        parameter = "" if older else reasoning_parameter(call)
        if arguments is not None and parameter:
            texts.append(parameter)
            arguments = tuple(member for member in arguments if member[0] != "reasoning")
        content = _call_content(call, arguments)
    if texts:
        return (*content, ("reasoning", json_string("\n".join(texts))))
    return content


def reasoning_parameter(call: ToolCall) -> str:
    """Return the text of a call's parameter `reasoning`; empty without one."""
    return string_of(dict(shallow_members(call.arguments) or ()).get("reasoning", "")) or ""


def _call_content(call: ToolCall, arguments: Members | None) -> Members:
    """Return a call's name and parameters; reserved names, or arguments of another type, go into `arguments`."""
    parameters = tuple((name, escape_surrogates(text)) for name, text in arguments or ())
    content = [("toolCall", json_string(call.name or UNNAMED))]
    reserved = [member for member in parameters if member[0] in RESERVED]
    # A post is printed with its text, even if the call has none.
    if call.name == POST:
        text = next((member for member in reserved if member[0] == "text" and member[1][0] == '"'), ("text", '""'))
        reserved = [member for member in reserved if member is not text]
        content.append(text)
    content += [member for member in parameters if member[0] not in RESERVED]
    if arguments is None:
        content.append(("arguments", json_string(call.arguments)))
    elif reserved:
        content.append(("arguments", object_text(tuple(reserved))))
    return tuple(content)


def parse_bare(role: LogRole, content: str | Members) -> BareEntry:
    """Parse a `content`. Members of a wrong type count as missing; of repeated names the last counts.

    The text of an object without a text is the object itself: a system entry's, or an assistant's without a call.
    """
    if isinstance(content, str):
        return BareEntry(content)
    if role == "system":
        return BareEntry(object_text(content))
    fields = dict(content)
    text, reasoning = (string_of(fields.get(name, "")) or "" for name in ("text", "reasoning"))
    if role != "assistant":
        return BareEntry(text)
    tool = string_of(fields.get("toolCall", "")) or ""
    nested = fields.get("arguments", "")
    if not tool:
        others = tuple(member for member in content if member[0] != "reasoning")
        if others and "text" not in fields:
            text = object_text(others)
        return BareEntry(text, reasoning)
    arguments = string_of(nested)
    if arguments is None:
        # The parameters, then the members of `arguments`: names that the printed form reserves, or another type.
        shown = {name: value for name, value in fields.items() if name not in ("toolCall", "reasoning", "arguments")}
        more = shallow_members(nested) if nested else ()
        if more is None:
            shown["arguments"] = nested
        for name, value in more or ():
            shown.setdefault(name, value)
        arguments = object_text(tuple(shown.items()))
    return BareEntry(text, reasoning, tool, arguments)


def bare_content(text: str) -> str | Members | None:
    """Return a `content` from its JSON text: a text, or the members of an object; None for anything else."""
    content = string_of(text)
    if content is None:
        return members(text)
    return content


def message_of(role: LogRole, bare: BareEntry, index: int, at_ms: int) -> Message:
    """Return the message of an entry without its extra key; a call has the id `call_<index>`.

    Time and place before a user's words are a note.
    """
    if role != "assistant":
        moment = _MOMENT.match(bare.text) if role == "user" else None
        if moment is None:
            return Message(role, (Text(bare.text),), at_ms=at_ms)
        words = bare.text[moment.end() :].removeprefix("\n\n")
        return Message(role, (Note("moment", moment[0]), Text(words)), at_ms=at_ms)
    thinking = (Thinking(bare.reasoning),) if bare.reasoning else ()
    if bare.tool:
        return Message(role, (*thinking, ToolCall(f"call_{index}", bare.tool, bare.arguments)), at_ms=at_ms)
    return Message(role, (*thinking, Text(bare.text)), at_ms=at_ms)


# The extra key ----------------------------------------------------------------------------------------------------

_NAMES = ("id", "run_id", "source", "model", "meta")

DETAILS = {
    "results": "results of tools",
    "tool_call": "ids of calls",
    "arguments": "arguments in their original form",
    "text": "texts shown as calls, as reasoning, or joined",
    "thinking": "thinking apart from text, with its signatures",
    "image": "images",
    "note": "notes sent with a message",
    "tool_result": "results of tools",
    "unknown": "parts of unknown kinds",
    "more": "calls made together",
    "id": "ids of messages",
    "run_id": "ids of runs",
    "source": "sources of messages",
    "model": "models of messages",
    "meta": "other metadata of messages",
    "at_ms": "exact times",
    "mark": "checkpoints (compactions and clears)",
    "made": "generated first system entry",
}
"""Descriptions of the names and kinds under the extra key, for the report of what a strict log omits."""


def extra_of(message: Message, parts: tuple[Part, ...], plain: Message, bare: BareEntry, number: int) -> Extra:
    """Return the extra key of entry `number` of a message; `plain` is the message without the key."""
    extra: Extra = {"more": True} if number else {}
    if not number:
        for name in _NAMES:
            if value := getattr(message, name):
                extra[name] = encode_text(value)
        if message.at_ms != plain.at_ms:
            extra["at_ms"] = message.at_ms
    if parts != plain.parts:
        is_reasoning = bare.tool == FINISH or any(isinstance(part, ToolCall) for part in parts)
        text = bare.reasoning if is_reasoning else bare.text
        values = [msgspec.to_builtins(part) for part in parts]
        for value in values:
            # What the entry shows is not repeated.
            for name, printed in _printed_values(value["type"], bare, text).items():
                if value[name] == printed:
                    del value[name]
        extra["parts"] = values
    return extra


def _printed_values(kind: object, bare: BareEntry, text: str) -> dict[str, str]:
    """Return what an entry shows of a part; `text` is the value for parts of kind `text`."""
    match kind:
        case "text":
            return {"text": text}
        case "thinking":
            return {"text": bare.reasoning}
        case "tool_call":
            return {"name": bare.tool, "arguments": bare.arguments}
        case _:
            return {}


def message_with(extra: Extra, plain: Message, parts: tuple[Part, ...]) -> Message | None:
    """Return the message for the extra key of its first entry and the parts of all; None for an invalid key."""
    names = {name: extra.get(name, "") for name in _NAMES}
    at_ms = extra.get("at_ms", plain.at_ms)
    if not all(isinstance(value, str) for value in names.values()) or not is_time(at_ms):
        return None
    return Message(plain.role, parts, at_ms=at_ms, **{name: decode_text(value) for name, value in names.items()})


def is_time(value: object) -> bool:
    """Return true for a time that a ledger can store, in milliseconds since 1970."""
    return type(value) is int and -MOST_MS <= value <= MOST_MS


def parts_with(extra: Extra, plain: Message, bare: BareEntry) -> tuple[Part, ...] | None:
    """Return the parts of an entry with its extra key; None for an invalid key."""
    if "parts" not in extra:
        return plain.parts
    try:
        items = msgspec.convert(extra["parts"], list[dict[str, Any]])
        is_reasoning = bare.tool == FINISH or any(item.get("type") == "tool_call" for item in items)
        text = bare.reasoning if is_reasoning else bare.text
        values = [{**_printed_values(item.get("type"), bare, text), **item} for item in items]
        return msgspec.convert(values, decodable(tuple[Part, ...]))
    except (ValueError, RecursionError):
        return None


def results_extra(results: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages of tools as values for `results`."""
    return [_with_names(msgspec.to_builtins(message), encode_text) for message in results]


def results_with(extra: Extra) -> tuple[Message, ...] | None:
    """Return the messages of tools under `results`; None for invalid ones."""
    try:
        values = msgspec.convert(extra.get("results", []), list[dict[str, Any]])
        decoded = [_with_names(value, decode_text) for value in values]
        messages = msgspec.convert(decoded, decodable(tuple[Message, ...]))
    except (ValueError, RecursionError, TypeError):
        return None
    if not all(message.role == "tool" and is_time(message.at_ms) for message in messages):
        return None
    return messages


def _with_names(value: dict[str, Any], convert: Callable[[str], str]) -> dict[str, Any]:
    named = {**value}
    for name in _NAMES:
        if isinstance(named.get(name), str):
            named[name] = convert(named[name])
    return named


def omitted_details(extra: Extra) -> Counter[str]:
    """Count, by description, the details that are omitted with an extra key."""
    counts: Counter[str] = Counter()
    for name, value in extra.items():
        if name == "results":
            counts[DETAILS[name]] += len(value)
        elif name == "parts":
            counts.update(DETAILS[item["type"]] for item in value)
            counts[DETAILS["arguments"]] += sum(item["type"] == "tool_call" and "arguments" in item for item in value)
        elif name in DETAILS:
            counts[DETAILS[name]] += 1
    return +counts


# Lines of a conversation -----------------------------------------------------------------------------------------

_BREAK = re.compile("[\x85\u2028\u2029]")
"""Line separators that JSON does not escape."""

_BACKSLASHES = re.compile(r"\\+")


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
    notes: list[tuple[str, str]] = []
    for kind, value in members(pairs[0][1]) or ():
        if (text := string_of(value)) is not None:
            notes.append((kind, text))
    if len(notes) == 1:
        return notes[0]
    return None


def parse_entry_line(line: str) -> LogEntry | None:
    """Return the entry of a line without its extra key; None for any other line."""
    fields = dict(members(line) or ())
    content = bare_content(fields.get("content", ""))
    role = string_of(fields.get("role", ""))
    time = string_of(fields.get("timestamp", ""))
    numbers = [fields.get(name, "") for name in ("index", "turn")]
    if tuple(fields)[: len(FIELDS)] != FIELDS or content is None or time is None:
        return None
    if role not in LOG_ROLES or not all(number.isdecimal() and len(number) <= MOST_DIGITS for number in numbers):
        return None
    return LogEntry(int(numbers[0]), int(numbers[1]), time, role, content)


def parse_entry_text(line: str) -> str | None:
    """Return the `text` of an entry's line, or a system entry's content; None for any other line."""
    entry = parse_entry_line(line)
    if entry is None:
        return None
    if entry.role == "system":
        return parse_bare("system", entry.content).text
    if isinstance(entry.content, str):
        return entry.content
    return string_of(dict(entry.content).get("text", '""'))


def with_entry_text(line: str, text: str) -> str:
    """Return the line of an entry with another text."""
    entry = parse_entry_line(line)
    if entry is None:
        return line
    content: str | Members = text
    if not isinstance(entry.content, str) and entry.role != "system":
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
    end = added = 0
    for run in _BACKSLASHES.finditer(escaped):
        start = run.start() - added
        old = _BACKSLASHES.match(line, start)
        more = len(run[0]) - (len(old[0]) if old else 0)
        if more:
            pieces += (line[end : start - 1], _json_escape(line[start - 1]) * more)
            end = start
            added += more
    return "".join((*pieces, line[end:]))


def _json_escape(char: str) -> str:
    """Return a character as a JSON escape: two of them outside the basic plane."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
