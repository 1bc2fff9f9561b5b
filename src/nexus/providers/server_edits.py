"""A provider's own edits of a prompt (compactions, cleared tool results), and its reason for a cache miss.

Anthropic: context_management.applied_edits of a reply, blocks of type `compaction`, diagnostics.cache_miss_reason.
OpenAI: items of type `compaction`, from a reply or from `/responses/compact`.
"""

from __future__ import annotations

from typing import Any

from nexus.providers.received import items_of, mapping, text_of
from nexus.types.message import Message, Unknown

COMPACTION = "compaction"
"""Type of the block or item that replaces everything before it, in both providers' formats."""

_NO_REASON = ("", "unavailable")
_PLACES = ("diagnostics", "usage", "cache_diagnostics", "prompt_cache")


def cache_miss_reason(body: dict[str, Any]) -> str:
    """Return the provider's reason for a cache miss of the last prompt; empty if it names none."""
    for fields in (body, *(mapping(body.get(name)) for name in _PLACES)):
        reason = fields.get("cache_miss_reason")
        kind = text_of(reason) or text_of(mapping(reason).get("type"))
        if kind not in _NO_REASON:
            return kind
    return ""


def context_edits(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the types of the edits that a provider made to the prompt of a reply."""
    applied = [mapping(edit) for edit in items_of(mapping(body.get("context_management")).get("applied_edits"))]
    kinds = [text_of(edit.get("type")) for edit in applied]
    blocks = [mapping(item) for item in (*items_of(body.get("content")), *items_of(body.get("output")))]
    if any(block.get("type") == COMPACTION for block in blocks):
        kinds.append(COMPACTION)
    return tuple(dict.fromkeys(filter(None, kinds)))


SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


def is_paused(message: Message) -> bool:
    """Return True if Anthropic continues this message of the model: it calls the server's tools alone.

    The rule: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
    """
    if message.role != "assistant" or any(True for _ in message.calls()):
        return False
    return any(isinstance(part, Unknown) and part.kind in SERVER_CALLS for part in message.parts)


def has_compaction(message: Message) -> bool:
    """Return True if a message has a provider's compaction, which replaces everything before it."""
    if any(isinstance(part, Unknown) and part.kind == COMPACTION for part in message.parts):
        return True
    return f'"type":"{COMPACTION}"' in message.received
