"""The extra key `nexus` of an entry: what a message holds beyond the printed form, and nothing that is printed already.

A part of kind `text` or `thinking` without `text` has the one that the entry shows; a `tool_call` without name or
arguments has those of the entry. What an entry without the key would be read as needs no key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from nexus.ledger.codec import MOST_MS
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.render.turnlog.bare import BareEntry
from nexus.types.message import Message, Part, Text, ToolCall

Extra: TypeAlias = dict[str, Any]

_NAMES = ("id", "run_id", "source", "model", "meta")

LOST = {
    "results": "results of tools",
    "tool_call": "ids of calls",
    "arguments": "arguments as they were written",
    "text": "texts that are shown as calls, as reasoning, or joined",
    "thinking": "thoughts apart from what was said, with their signatures",
    "image": "images",
    "note": "notes that were sent with a message",
    "tool_result": "results of tools",
    "unknown": "parts of unknown kinds",
    "more": "that calls were made together",
    "id": "ids of messages",
    "run_id": "ids of runs",
    "source": "sources of messages",
    "model": "models that wrote messages",
    "meta": "what else a source said of messages",
    "at_ms": "exact times",
    "mark": "marks of compactions and clears",
    "made": "that the first system entry was made",
}
"""What goes with the extra key, by the name or kind that it stands under there."""


def extra_of(message: Message, parts: tuple[Part, ...], plain: Message, shown: BareEntry, number: int) -> Extra:
    """What entry `number` of a message has to say beside what it shows; `plain` is what it would be read as alone."""
    extra: Extra = {"more": True} if number else {}
    if not number:
        for name in _NAMES:
            if value := getattr(message, name):
                extra[name] = encode_text(value)
        if message.at_ms != plain.at_ms:
            extra["at_ms"] = message.at_ms
    if parts != plain.parts:
        said = _said(shown, called=any(isinstance(part, ToolCall) for part in parts))
        extra["parts"] = [_item(part, shown, said) for part in parts]
    return extra


def _said(shown: BareEntry, *, called: bool) -> str:
    """The text that a part of kind `text` stands for: beside a call it is shown as reasoning."""
    return shown.reasoning if called else shown.text


def _item(part: Part, shown: BareEntry, said: str) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(part)
    if isinstance(part, ToolCall):
        names = (("name", shown.tool), ("arguments", shown.arguments))
    else:
        names = (("text", said if isinstance(part, Text) else shown.reasoning),)
    for name, known in names:
        if value["type"] in ("text", "thinking", "tool_call") and value[name] == known:
            del value[name]
    return value


def message_with(extra: Extra, plain: Message, parts: tuple[Part, ...]) -> Message | None:
    """The message whose first entry has this extra key, with the parts of all its entries; None where it says no such thing."""
    names = {name: extra.get(name, "") for name in _NAMES}
    at_ms = extra.get("at_ms", plain.at_ms)
    if not all(isinstance(value, str) for value in names.values()) or not is_time(at_ms):
        return None
    return Message(plain.role, parts, at_ms=at_ms, **{name: decode_text(value) for name, value in names.items()})


def is_time(value: object) -> bool:
    """Whether a value is a time that a ledger can hold, in milliseconds since 1970."""
    return type(value) is int and -MOST_MS <= value <= MOST_MS


def parts_with(extra: Extra, plain: Message, shown: BareEntry) -> tuple[Part, ...] | None:
    """The parts that an entry stands for; None where its extra key says no such thing."""
    if "parts" not in extra:
        return plain.parts
    try:
        items = msgspec.convert(extra["parts"], list[dict[str, Any]])
        said = _said(shown, called=any(item.get("type") == "tool_call" for item in items))
        return tuple(msgspec.convert(_filled(item, shown, said), Part) for item in items)
    except (msgspec.ValidationError, RecursionError):
        return None


def _filled(item: dict[str, Any], shown: BareEntry, said: str) -> dict[str, Any]:
    match item.get("type"):
        case "text":
            return {"text": said, **item}
        case "thinking":
            return {"text": shown.reasoning, **item}
        case "tool_call":
            return {"name": shown.tool, "arguments": shown.arguments, **item}
        case _:
            return item


def results_extra(results: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of tools as they stand under `results`."""
    return [_with_names(msgspec.to_builtins(message), encode_text) for message in results]


def results_with(extra: Extra) -> tuple[Message, ...] | None:
    """The messages of tools under `results`; None where they are none."""
    try:
        values = msgspec.convert(extra.get("results", []), list[dict[str, Any]])
        found = tuple(msgspec.convert(_with_names(value, decode_text), Message) for value in values)
    except (msgspec.ValidationError, RecursionError, TypeError):
        return None
    return found if all(message.role == "tool" and is_time(message.at_ms) for message in found) else None


def _with_names(value: dict[str, Any], rule: Callable[[str], str]) -> dict[str, Any]:
    return {name: rule(one) if name in _NAMES and isinstance(one, str) else one for name, one in value.items()}


def lost_details(extra: Extra) -> Counter[str]:
    """What goes when an extra key is left out, in words, with how often."""
    counted: Counter[str] = Counter()
    for name, value in extra.items():
        if name == "results":
            counted[LOST[name]] += len(value)
        elif name == "parts":
            counted.update(LOST[item["type"]] for item in value)
            counted[LOST["arguments"]] += sum(item["type"] == "tool_call" and "arguments" in item for item in value)
        elif name in LOST:
            counted[LOST[name]] += 1
    return +counted
