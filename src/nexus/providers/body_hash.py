"""Incremental SHA-256 of a request body's JSON in the model's own provider format.

The conversation is last in every format, and all but its newest messages is repeated in the next call. So the hash of the
settled part is kept with the history, and each call hashes only new messages. The result equals the hash of
`msgspec.json.encode(body)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from nexus.context import AssembledContext
from nexus.providers import anthropic, gemini, openai
from nexus.providers.turns import ConversationParts, Fragment, as_blocks
from nexus.types.message import Message, ProviderFormat

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _BodyParts:
    """Functions that make one format's body in parts."""

    key: str
    """Key of the conversation."""
    without_messages: Callable[[AssembledContext], dict[str, Any]]
    conversation: Callable[[AssembledContext], ConversationParts]
    message: Callable[[list[Any], int, frozenset[int]], dict[str, Any]]
    """The message at an index as it is sent, with breakpoints on some of its blocks."""
    breakpoints: Callable[[AssembledContext, list[Any]], list[tuple[int, int]]] = lambda _ctx, _fragments: []
    """Blocks that carry a breakpoint in this call only, as (message, block)."""


@dataclass(frozen=True, slots=True)
class _RunningHash:
    """The hash of a body up to its message `count`."""

    valid_for: tuple[bytes, str]
    """Frame and system prompt."""
    opening: tuple[Message, ...]
    count: int
    hash: Any


def body_hash(ctx: AssembledContext) -> str:
    """Return the SHA-256 of the body's JSON in the model's own format, as 64 hex digits.

    Raises TypeError or ValueError if something in the body has no JSON form.
    """
    provider_format = ctx.accounting.model_info.provider_format
    parts = _BODY_PARTS[provider_format]
    frame = _encode({**parts.without_messages(ctx), parts.key: []})
    conversation = parts.conversation(ctx)
    fragments = conversation.fragments
    marked: dict[int, frozenset[int]] = {}
    for message, block in parts.breakpoints(ctx, fragments):
        marked[message] = marked.get(message, frozenset()) | {block}
    settled = min(conversation.settled, *marked, len(fragments))

    def add(digest: Any, start: int, end: int) -> None:
        for index in range(start, end):
            if index:
                digest.update(b",")
            digest.update(_encode(parts.message(fragments, index, marked.get(index, frozenset()))))

    name = f"hash:{provider_format}:{ctx.model}"
    opening = ctx.history.opening
    running: _RunningHash | None = next(iter(ctx.history.fragments.get(name, ())), None)
    valid_for = (frame, ctx.system_prompt)
    if running is None or running.count > settled or running.opening is not opening or running.valid_for != valid_for:
        # The frame without its end: the messages follow inside its empty list.
        running = _RunningHash(valid_for, opening, 0, hashlib.sha256(frame[: -len(b"]}")]))
    digest = running.hash.copy()
    add(digest, running.count, settled)
    # A new list, assigned at once: other threads may be reading the old one.
    ctx.history.fragments[name] = [_RunningHash(valid_for, opening, settled, digest.copy())]
    add(digest, settled, len(fragments))
    digest.update(b"]}")
    return digest.hexdigest()


def _anthropic_message(fragments: list[Fragment], index: int, marked: frozenset[int]) -> dict[str, Any]:
    if not marked:
        return fragments[index]
    content = as_blocks(fragments[index]["content"])
    blocks = {block: {**content[block], "cache_control": anthropic.CACHE_CONTROL} for block in marked}
    return {**fragments[index], "content": [blocks.get(number, block) for number, block in enumerate(content)]}


def _gemini_message(fragments: list[Fragment], index: int, _marked: frozenset[int]) -> dict[str, Any]:
    message = fragments[index]
    if index == 0:
        return message
    return {**message, "parts": gemini.ordered(fragments[index - 1]["parts"], message["parts"])}


_BODY_PARTS: dict[ProviderFormat, _BodyParts] = {
    "openai": _BodyParts(
        "messages",
        openai.body_without_messages,
        openai.conversation_parts,
        lambda fragments, index, _marked: fragments[index],
    ),
    "anthropic": _BodyParts(
        "messages",
        anthropic.body_without_messages,
        anthropic.conversation_parts,
        _anthropic_message,
        anthropic.cache_breakpoints,
    ),
    "gemini": _BodyParts("contents", gemini.body_without_messages, gemini.conversation_parts, _gemini_message),
}
