"""What context came with a message, kept beside its text: document 002's `context_json`, with the names printed there.

A user's message has it in `Message.meta`. A system prompt is no message of the ledger: its record stands with the
manifest of its call, on the assembly row. Other messages have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nexus.types.block import Block
from nexus.types.environment import ORIGIN, Environment
from nexus.types.request import Attachment, Event

HASH_CHARS = 16
"""Hex digits of a hash that are kept, as of the manifest's `blocks`."""


def meta_of_user(event: Event, at_ms: int) -> str:
    """`Message.meta` of the message that carries an event and to which context was added at `at_ms`.

    `hookCount` counts the hooks and callers that gave data; a file attached whole has no `lines`, one from a line on to
    its end has null as the second.
    """
    record = {
        "event": {"platform": event.platform or None, "hookCount": len(event.hook_data)},
        "attachments": [_attached(one) for one in event.attachments],
        "injectedAt": at_ms,
    }
    return json.dumps({"context_json": record}, separators=(",", ":"))


def of_system(
    blocks: Sequence[Block], persona: str, environment: Environment | None, last: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The record of a system prompt made of `blocks`; `last` is the manifest of the view's call before.

    `version` counts the texts that AGENTS.md had in this view, from 1. `memory` lists the memory files in the prompt,
    null if there are none. What the prompt does not hold is null.
    """
    rules = _hash_of(blocks, "AGENTS.md")
    return {
        "workspace": {"agentsMdHash": rules, "version": _version(rules, last)},
        "persona": {"id": persona or None, "soulHash": _hash_of(blocks, "SOUL.md")},
        "nexusEnv": None
        if environment is None
        else {
            "capabilityCount": len(environment.capabilities),
            "snapshotAt": environment.at_ms,
            "snapshotHash": _hash_of(blocks, ORIGIN),
        },
        "memory": [block.source for block in blocks if block.layer == "Memory"] or None,
    }


def _attached(one: Attachment) -> dict[str, Any]:
    lines = {"lines": [one.first_line, one.last_line or None]} if one.first_line else {}
    return {"path": one.path, **lines}


def _hash_of(blocks: Sequence[Block], name: str) -> str | None:
    """The hash of the file of that name, or of the block's text where it is made of no file."""
    found = next((block for block in reversed(blocks) if block.source.rsplit("/", 1)[-1] == name), None)
    return (found.files[0] if found.files else found.hash)[:HASH_CHARS] if found is not None else None


def _version(rules: str | None, last: Mapping[str, Any] | None) -> int:
    earlier: Mapping[str, Any] = (last or {}).get("context_json") or {}
    before: Mapping[str, Any] = earlier.get("workspace", {})
    number = int(before.get("version", 0))
    return number if number and before.get("agentsMdHash") == rules else number + 1
