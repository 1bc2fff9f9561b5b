"""The conversation in a wire's form: message by message, or in turns, where messages of one role in a row become one.

What the history shows is turned into fragments once; the fragments are kept with the history (joined ones as they were
joined), so a call makes only what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from nexus.types.history import History
from nexus.types.message import Message

Fragment: TypeAlias = dict[str, Any]
"""One message, or several joined ones, as it is sent: its role, and its blocks under the wire's word for them."""

Content: TypeAlias = Literal["content", "parts"]
"""A wire's word for the blocks of a message."""


_ONLY_FIRST = ("thinking", "redacted_thinking")
"""Thinking opens an assistant's turn; that of a message joined to an earlier one has no place."""


OWN_MESSAGES = 64
"""How many of a body's last messages are copies in depth. Copying all so took a warm call from 1.4 to 2.1 ms."""


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """The conversation in a wire's form, to be read only. `found[:settled]` stays so in later calls of one window."""

    found: list[Any]
    settled: int


def blocks_or_text(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as the receiver's own: a new list of new messages, in depth for the last `OWN_MESSAGES`.

    What is inside older messages is shared with later bodies and is to be read only.
    """
    return [*map(dict[str, Any].copy, found[:-OWN_MESSAGES]), *msgspec.to_builtins(found[-OWN_MESSAGES:])]


def items(
    history: History,
    wire: str,
    current: Iterable[Message],
    fragment: Callable[[Message], list[dict[str, Any]]],
    *,
    leading: Iterable[dict[str, Any]] = (),
) -> ConversationParts:
    """The whole conversation for a wire that joins nothing: each message's own items, after `leading`."""
    found = [*leading, *(item for message in history.opening for item in fragment(message))]
    found.extend(item for made in _one_by_one(history, wire, fragment) for item in made)
    settled = len(found)
    found.extend(item for message in (*history.closing, *current) for item in fragment(message))
    return ConversationParts(found, settled)


def _one_by_one(
    history: History, wire: str, fragment: Callable[[Message], list[dict[str, Any]]]
) -> list[list[dict[str, Any]]]:
    cache = history.fragments.get(wire, [])
    if len(cache) < history.end:
        # A new list, put in place at once: others may be reading the old one.
        cache = [*cache, *map(fragment, history.shared[len(cache) : history.end])]
        history.fragments[wire] = cache
    return cache if len(cache) == history.end else cache[: history.end]


@dataclass(frozen=True, slots=True)
class Joined:
    """The history's first `count` messages as joined fragments. The last one may still grow."""

    count: int = 0
    fragments: list[Fragment] = field(default_factory=list[Fragment])


def turns(
    history: History, wire: str, current: Iterable[Message], fragment: Callable[[Message], Fragment], blocks: Content
) -> ConversationParts:
    """The whole conversation as joined fragments; they are shared, so copy before you change one."""
    joined = _shared(history, wire, fragment, blocks)
    opening = [fragment(message) for message in history.opening]
    after = [fragment(message) for message in (*history.closing, *current)]
    start = _join([], opening, blocks)
    if joined and start and start[-1]["role"] == joined[0]["role"]:
        start = _join(start, joined[:1], blocks)
        joined = joined[1:]
    # The last of them may still grow.
    settled = max(len(start) + len(joined) - 1, 0)
    return ConversationParts(_join([*start, *joined[:-1]], [*joined[-1:], *after], blocks), settled)


def _shared(history: History, wire: str, fragment: Callable[[Message], Fragment], blocks: Content) -> list[Fragment]:
    """The history's messages as joined fragments. What is kept is replaced, never changed: others may be reading it."""
    joined: Joined = next(iter(history.fragments.get(wire, ())), Joined())
    if joined.count > history.end:
        joined = Joined()
    new = [fragment(message) for message in history.shared[joined.count : history.end]]
    if new:
        last = _join([], [*joined.fragments[-1:], *new], blocks)
        joined = Joined(history.end, [*joined.fragments[:-1], *last])
        history.fragments[wire] = [joined]
    return joined.fragments


def _join(start: list[Fragment], more: Iterable[Fragment], blocks: Content) -> list[Fragment]:
    """Appends fragments to `start`, joining those of one role. What was there before is not changed."""
    own = False
    for one in more:
        follows = bool(start) and start[-1]["role"] == one["role"]
        new = [block for block in one[blocks] if block.get("type") not in _ONLY_FIRST] if follows else one[blocks]
        if not new:
            continue
        if not follows:
            start.append(one)
            own = False
        elif own:
            start[-1][blocks].extend(new)
        else:
            start[-1] = {"role": one["role"], blocks: [*start[-1][blocks], *new]}
            own = True
    return start
