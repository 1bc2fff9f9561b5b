"""Exports of complete sessions: every message, call and result in the ledger, without repairs or omissions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from nexus.providers import anthropic, openai
from nexus.text.as_received import received_items
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Part, Thinking, ToolCall, Unknown, with_parts
from nexus.types.sanitize import arguments_as_object


def as_openai(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return `{"messages": […]}` in chat format, with thinking in `reasoning_content` and unknown parts in `_unknown`."""
    messages: list[dict[str, Any]] = []
    for message in (row.message for entry in entries for row in entry.rows):
        received = received_items(message, "openai")
        items = received or openai.fragment(message) or [{"role": message.role, "content": ""}]
        if message.role == "system":
            items = [{**items[0], "role": "system"}]
        thinking = "\n".join(part.text for part in message.parts if isinstance(part, Thinking))
        if thinking:
            items[0] = {**items[0], "reasoning_content": thinking}
        if received is None and (unknown := _unknown(message)):
            items[0] = {**items[0], "_unknown": unknown}
        messages.extend(items)
    return {"messages": messages}


def as_anthropic(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return `{"system": …, "messages": […]}` with content blocks; later system messages become user messages."""
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    for message in (row.message for entry in entries for row in entry.rows):
        if message.role == "system" and not messages:
            system.append(message.text())
            continue
        received = None
        if message.role != "system":
            received = received_items(message, "anthropic")
        if received:
            item = received[0]
        else:
            item = anthropic.fragment(with_parts(message, map(_with_object, message.parts)), message.model)
            item["content"].extend(_unknown(message))
        # The API expects all results of one answer in one user message.
        if messages and messages[-1]["role"] == item["role"] == "user" and message.role == "tool":
            messages[-1]["content"].extend(item["content"])
        else:
            messages.append(item)
    if not system:
        return {"messages": messages}
    return {"system": "\n\n".join(system), "messages": messages}


def as_values(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the entries as plain values with their messages, tokens and hashes."""
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


def _with_object(part: Part) -> Part:
    """Return a part as the format requires: a call's arguments that are no JSON object are wrapped."""
    if isinstance(part, ToolCall):
        return ToolCall(part.id, part.name, arguments_as_object(part.arguments))
    return part


def _unknown(message: Message) -> list[dict[str, Any]]:
    return [json.loads(part.raw) for part in message.parts if isinstance(part, Unknown)]
