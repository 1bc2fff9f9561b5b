"""Bodies for messages that a program has: all but the last are stored as a session, the last are the event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import nexus
from nexus.assembly.record import unanswered_calls, with_sizes
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message

PROFILE = nexus.Profile("own", "a program's own messages", system=(), current=())

BODIES: dict[str, tuple[str, str, Callable[[Any], list[Any]]]] = {
    "openai": ("gpt-4o", "openai", lambda ctx: ctx.to_openai()["messages"]),
    "responses": ("gpt-5", "openai", lambda ctx: ctx.to_responses()["input"]),
    "anthropic": ("claude-sonnet-4-5", "anthropic", lambda ctx: without_breakpoints(ctx.to_anthropic()["messages"])),
    "gemini": ("gemini-2.5-pro", "gemini", lambda ctx: ctx.to_gemini()["contents"]),
}
"""Each format's model, its provider, and the messages of its body."""


def without_breakpoints(messages: list[Any]) -> list[Any]:
    """The messages without cache breakpoints, which are placed anew in each body: a plain string becomes a block there."""
    return [
        {**m, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks_of(m)]}
        for m in messages
    ]


def blocks_of(message: Any) -> list[Any]:
    """The blocks of a message, whose content may be a plain string."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def sent(items: Any, provider: str, to: str = "", **request: Any) -> list[Any]:
    """The messages of the next body in a format, by default the one of the items; open calls wait for the event."""
    messages = nexus.read_messages(items, provider)  # pyright: ignore[reportArgumentType]
    model, _, body = BODIES[to or provider]
    with nexus.open(ledger=":memory:", model=model, profiles={"own": PROFILE}) as nx:
        if messages and messages[-1].role in ("user", "tool"):
            return body(context(nx, messages, **request))
        return body(context(nx, [*messages, nexus.user("go on")], **request))[:-1]


def context(nx: nexus.Engine, messages: Sequence[Message], **request: Any) -> nexus.AssembledContext:
    """The context after these messages, the last of which are the event."""
    start = len(messages)
    while start and messages[start - 1].role == "user" and start == len(messages):
        start -= 1
    while start and messages[start - 1].role == "tool":
        start -= 1
    past, event = messages[:start], messages[start:]
    store(nx, past)
    last = event[-1] if event and event[-1].role == "user" else Message("user", ())
    results = tuple(message for message in event if message.role == "tool")
    asked = nexus.Event(last.parts, results, at_ms=1_760_000_000_000, received=last.received)
    return nx.assemble(asked, session="s", profile="own", **request)


def store(nx: nexus.Engine, messages: Sequence[Message]) -> None:
    """Store messages as a session's history, a turn for each user message."""
    starts = [index for index, message in enumerate(messages) if message.role in ("user", "system") or not index]
    for first, end in pairwise([*starts, len(messages)]):
        turn = messages[first:end]
        entries = [
            NewEntry(messages=with_sizes(turn, nx.counter), at_ms=1, starts_turn=turn[0].role != "system" or not first)
        ]
        if not unanswered_calls(turn):
            entries.append(NewEntry("completed", at_ms=1))
        nx.ledger.commit("s", Commit(tuple(entries)))
