"""Instructions and tools that a client has in its list: the head of a conversation, which no cut omits.

Codex sends its tools and instructions as items of the list; Claude Code and aider send system messages among the
messages. Tools, the instructions that the list begins with, and the newest instruction of each kind are never omitted.
When a reminder or a description of the environment is repeated, for example, the older one is omitted with its turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from nexus.assembly.fit.pins import Pinned
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Message, Text, Unknown

TOOL_KINDS = ("additional_tools", "tool_addition", "tool_removal")
"""Kinds of parts with tools: an item of OpenAI's Responses, and blocks of Anthropic's system messages."""

_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|session_context|permissions[_ ]instructions|skills_instructions)\b"
    r"|# AGENTS\.md instructions)"
)
"""Beginnings of user messages in which Codex and Gemini CLI describe environment, permissions and the user's rules."""

_TAG = re.compile(r"<([^<>=\"']{1,60}?)(?:\s[^<>]{0,200})?>\s*")
_REMINDERS = ("system-reminder", "system_reminder", "reminder")
_NUMBER = re.compile(r"\d+")
_LINE_CHARS = 60


def is_instruction(message: Message) -> bool:
    """Return True for tools, for a system message of a provider's list, and for a description of the environment."""
    if message.role == "system":
        return bool(message.received)
    return message.role == "user" and (has_tools(message) or any(_is_context(part) for part in message.parts[:1]))


def has_tools(message: Message) -> bool:
    """Return True for a message with definitions of tools."""
    return any(isinstance(part, Unknown) and part.kind in TOOL_KINDS for part in message.parts)


def instruction_pins(rows: Iterable[StoredMessage]) -> list[Pinned]:
    """Return the pins of those rows with instructions that no cut omits, in order."""
    ordered = sorted({row.ref: row for row in rows}.values(), key=lambda row: row.ref)
    opening = _opening(ordered)
    later_kinds = set[str]()
    newest = set[MessageRef]()
    for row in reversed(ordered):
        kinds = _kinds(row.message)
        if not kinds <= later_kinds:
            newest.add(row.ref)
        later_kinds |= kinds
    return [instruction_pin(row) for row in ordered if row.ref in opening or row.ref in newest]


def instruction_pin(row: StoredMessage) -> Pinned:
    """Return the pin of an instruction."""
    return Pinned(row.ref, (row,), kind="instruction")


def instruction_refs(cut: Cut | None, mark: Entry | None) -> tuple[MessageRef, ...]:
    """Return the positions of the instructions that the cut, else the compaction, keeps."""
    if cut is not None:
        return cut.instructions
    stored = None
    if mark is not None:
        stored = mark.body.get("instructions")
    return msgspec.convert(stored or (), decodable(tuple[MessageRef, ...]))


def _opening(rows: Sequence[StoredMessage]) -> set[MessageRef]:
    """Return the positions of the instructions that the conversation begins with."""
    refs = set[MessageRef]()
    seq = 0
    for row in rows:
        if row.ref.seq > seq + 1:
            break
        seq = row.ref.seq
        refs.add(row.ref)
    return refs


def _is_context(part: object) -> bool:
    return isinstance(part, Text) and _CONTEXT.match(part.text) is not None


def _kinds(message: Message) -> set[str]:
    """Return the kinds of a message's instructions. A later message of the same kinds replaces it."""
    return {kind for part in message.parts if (kind := _kind(part))}


def _kind(part: object) -> str:
    if isinstance(part, Unknown):
        return f"{part.kind}: {_tool_names(part.raw)}"
    if not isinstance(part, Text) or not part.text.strip():
        return ""
    text = part.text.strip()
    tag = _TAG.match(text)
    if tag is None or tag[1] in _REMINDERS:
        line = text[tag.end() if tag else 0 :].partition("\n")[0]
        return f"text: {_NUMBER.sub('#', line.casefold())[:_LINE_CHARS]}"
    return f"element: {tag[1]}"


def _tool_names(raw: str) -> str:
    """Return the names of the tools in a part, or the part itself if it has none."""
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    names = sorted(_names(value))
    if names:
        return ", ".join(names)
    return raw


def _names(value: object) -> Iterable[str]:
    """Yield the names in a part's tools, not those inside their schemas."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _names(item)
    elif isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        name = fields.get("name") or fields.get("tool_name")
        if isinstance(name, str):
            yield name
        for key in ("tools", "tool", "function"):
            yield from _names(fields.get(key))
