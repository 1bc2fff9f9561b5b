"""The SHA-256 of a request body's JSON in the model's own form, without making the body anew.

The conversation stands last in every form, and what is older than the last few messages is the same in the next call.
So the hash of the settled part is kept with the window, and a call hashes what came since: `body_hash` is the hash of
`msgspec.json.encode(body)`, at the cost of what is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from nexus.context import AssembledContext
from nexus.providers import anthropic, gemini, openai
from nexus.providers.turns import ConversationParts, Fragment
from nexus.types.message import Message, ProviderFormat

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Form:
    """A wire's body in its parts: what stands before the conversation, the conversation's key, a message as it is sent.

    `marked` gives the blocks of messages that are changed for one call only.
    """

    key: str
    frame: Callable[[AssembledContext], dict[str, Any]]
    said: Callable[[AssembledContext], ConversationParts]
    sent: Callable[[list[Any], int, frozenset[int]], dict[str, Any]]
    marked: Callable[[AssembledContext, list[Any]], list[tuple[int, int]]] = lambda _ctx, _found: []


@dataclass(frozen=True, slots=True)
class _Running:
    """The hash of a body up to its message `count`. It holds for this frame, system slot and opening."""

    frame: bytes
    system: str
    opening: tuple[Message, ...]
    count: int
    hash: Any


def body_hash(ctx: AssembledContext) -> str:
    """SHA-256 of the JSON of the body in the model's own form, as 64 hex digits.

    Raises TypeError or ValueError where something in the body has no JSON form.
    """
    form = _FORMS[ctx.accounting.model_info.wire]
    frame, said = _encode({**form.frame(ctx), form.key: []}), form.said(ctx)
    marked: dict[int, frozenset[int]] = {}
    for message, block in form.marked(ctx, said.found):
        marked[message] = marked.get(message, frozenset()) | {block}
    settled = min(said.settled, *marked, len(said.found))
    name = f"hash:{ctx.accounting.model_info.wire}:{ctx.model}"
    running = _kept(ctx, name, frame, settled) or _Running(
        frame, ctx.system_prompt, ctx.history.opening, 0, hashlib.sha256(frame[: -len(b"]}")])
    )
    hashed = running.hash.copy()
    _add(hashed, form, said.found, range(running.count, settled), {})
    # A new list, put in place at once: others may be reading the old one.
    kept = _Running(frame, ctx.system_prompt, ctx.history.opening, settled, hashed.copy())
    ctx.history.fragments[name] = [kept]
    _add(hashed, form, said.found, range(settled, len(said.found)), marked)
    hashed.update(b"]}")
    return hashed.hexdigest()


def _kept(ctx: AssembledContext, name: str, frame: bytes, settled: int) -> _Running | None:
    """The hash that an earlier call left, if it is of a part of this body."""
    running: _Running | None = next(iter(ctx.history.fragments.get(name, ())), None)
    if running is None or running.count > settled or running.opening is not ctx.history.opening:
        return None
    return running if (running.frame, running.system) == (frame, ctx.system_prompt) else None


def _add(hashed: Any, form: _Form, found: list[Any], places: range, marked: dict[int, frozenset[int]]) -> None:
    for index in places:
        if index:
            hashed.update(b",")
        hashed.update(_encode(form.sent(found, index, marked.get(index, frozenset()))))


def _item(found: list[Any], index: int, _marked: frozenset[int]) -> dict[str, Any]:
    return found[index]


def _anthropic(found: list[Fragment], index: int, marked: frozenset[int]) -> dict[str, Any]:
    content = found[index]["content"]
    marks = {block: {**content[block], "cache_control": anthropic.MARK} for block in marked}
    return {**found[index], "content": [marks.get(place, block) for place, block in enumerate(content)]}


def _gemini(found: list[Fragment], index: int, _marked: frozenset[int]) -> dict[str, Any]:
    message = found[index]
    return {**message, "parts": gemini.ordered(found[index - 1]["parts"], message["parts"])} if index else message


_FORMS: dict[ProviderFormat, _Form] = {
    "openai": _Form("messages", openai.body_without_messages, openai.conversation_parts, _item),
    "anthropic": _Form(
        "messages",
        anthropic.body_without_messages,
        anthropic.conversation_parts,
        _anthropic,
        anthropic.add_cache_breakpoints,
    ),
    "gemini": _Form("contents", gemini.body_without_messages, gemini.conversation_parts, _gemini),
}
