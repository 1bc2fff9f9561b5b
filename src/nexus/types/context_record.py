"""Records of the context that came with a message, stored as `context_json` under documented key names.

A user message has its record in `Message.meta`. The system prompt is not a message of the ledger, so its record is
stored with the manifest of its call. Other messages have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nexus.types.block import Block
from nexus.types.environment import ORIGIN, Environment
from nexus.types.request import Attachment, Event

HASH_CHARS = 16
"""Hex digits of a stored hash, as in the manifest's `blocks`."""


def meta_of_user(event: Event, at_ms: int) -> str:
    """Return `Message.meta` of the message that carries an event, to which context was added at `at_ms`.

    `hookCount` is the number of hooks and callers that added data. A file that is attached as a whole has no `lines`; one
    that is attached from a line to its end has null as the second.
    """
    record = {
        "event": {"platform": event.platform or None, "hookCount": len(event.hook_data)},
        "attachments": [_attachment_record(attachment) for attachment in event.attachments],
        "injectedAt": at_ms,
    }
    return json.dumps({"context_json": record}, separators=(",", ":"))


def of_system(
    blocks: Sequence[Block], persona: str, environment: Environment | None, previous: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the record of a system prompt made of `blocks`; `previous` is the record of the view's last call.

    `version` counts the texts that AGENTS.md had in this view, from 1. `memory` lists the memory files in the prompt.
    Missing parts are null.
    """
    rules = _hash_of(blocks, "AGENTS.md")
    return {
        "workspace": {"agentsMdHash": rules, "version": _version(rules, previous)},
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


def _attachment_record(attachment: Attachment) -> dict[str, Any]:
    lines = {"lines": [attachment.first_line, attachment.last_line or None]} if attachment.first_line else {}
    return {"path": attachment.path, **lines}


def _hash_of(blocks: Sequence[Block], name: str) -> str | None:
    """Return the hash of the file with this name, or of the block's text if it is not from a file."""
    block = next((block for block in reversed(blocks) if block.source.rsplit("/", 1)[-1] == name), None)
    return (block.files[0] if block.files else block.hash)[:HASH_CHARS] if block is not None else None


def _version(rules: str | None, previous: Mapping[str, Any]) -> int:
    workspace: Mapping[str, Any] = previous.get("workspace", {})
    number = int(workspace.get("version", 0))
    return number if number and workspace.get("agentsMdHash") == rules else number + 1
