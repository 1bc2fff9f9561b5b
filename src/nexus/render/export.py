"""A whole session in other forms: every message, call and result that the ledger holds, nothing repaired or left out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from nexus.providers import anthropic, openai
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Thinking, ToolCall, Unknown
from nexus.types.sanitize import arguments_as_object


def as_openai(entries: Iterable[Entry]) -> dict[str, Any]:
    """`{"messages": […]}` in chat form. Thinking goes into `reasoning_content`, unknown parts into `_unknown`."""
    messages: list[dict[str, Any]] = []
    for message in _messages(entries):
        items = openai.fragment(message) or [{"role": message.role, "content": ""}]
        if message.role == "system":
            items = [{**items[0], "role": "system"}]
        thinking = "\n".join(part.text for part in message.parts if isinstance(part, Thinking))
        if thinking:
            items[0] = {**items[0], "reasoning_content": thinking}
        if unknown := _unknown(message):
            items[0] = {**items[0], "_unknown": unknown}
        messages.extend(items)
    return {"messages": messages}


def as_anthropic(entries: Iterable[Entry]) -> dict[str, Any]:
    """`{"system": …, "messages": […]}` with content blocks; later system messages stay in their place as user text."""
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    for message in _messages(entries):
        if message.role == "system" and not messages:
            system.append(message.text())
            continue
        shown = anthropic.fragment(_decodable(message), message.model)
        shown["content"].extend(_unknown(message))
        if messages and messages[-1]["role"] == shown["role"] == "user" and message.role == "tool":
            messages[-1]["content"].extend(shown["content"])
        else:
            messages.append(shown)
    return {**({"system": "\n\n".join(system)} if system else {}), "messages": messages}


def as_values(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The entries as plain values, with their messages, tokens and hashes."""
    return [
        {
            "seq": entry.seq,
            "kind": entry.kind,
            "turn": entry.turn,
            "atMs": entry.at_ms,
            "body": entry.body,
            "messages": [{**msgspec.to_builtins(row.message), "tokens": row.size.tokens} for row in entry.rows],
            "hash": entry.hash.hex(),
        }
        for entry in entries
    ]


def _messages(entries: Iterable[Entry]) -> Iterable[Message]:
    return (row.message for entry in entries for row in entry.rows)


def _decodable(message: Message) -> Message:
    """The message with arguments that are no JSON object wrapped, since this form holds objects only."""
    parts = tuple(
        ToolCall(part.id, part.name, arguments_as_object(part.arguments)) if isinstance(part, ToolCall) else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def _unknown(message: Message) -> list[dict[str, Any]]:
    return [json.loads(part.raw) for part in message.parts if isinstance(part, Unknown)]
