"""The conversation in a wire's form: message by message, or in turns, where messages of one role in a row become one.

What the history shows is turned into fragments once; the fragments are kept with the history (joined ones as they were
joined), so a call makes only what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from nexus.history import History
from nexus.message import Message

Fragment: TypeAlias = tuple[str, list[dict[str, Any]]]
"""A role and the blocks (or parts) of one message or of several joined ones."""


_ONLY_FIRST = ("thinking", "redacted_thinking")
"""Thinking opens an assistant's turn; that of a message joined to an earlier one has no place."""


OWN_MESSAGES = 64
"""How many of a body's last messages are copies in depth. Copying all of them took a warm call from 1.4 to 2.1 ms."""


@dataclass(frozen=True, slots=True)
class Said:
    """The conversation in a wire's form, to be read only. `found[:settled]` stays so in later calls of one window."""

    found: list[Any]
    settled: int


def copied(fragments: list[Fragment], content: str) -> list[dict[str, Any]]:
    """The fragments as messages of the receiver's own: new dicts and lists, in depth for the last `OWN_MESSAGES`.

    The blocks of older messages are shared with later bodies and are to be read only.
    """
    messages = [{"role": role, content: [*blocks]} for role, blocks in fragments[:-OWN_MESSAGES]]
    messages.extend({"role": role, content: msgspec.to_builtins(blocks)} for role, blocks in fragments[-OWN_MESSAGES:])
    return messages


def items(
    history: History,
    wire: str,
    current: Iterable[Message],
    fragment: Callable[[Message], list[dict[str, Any]]],
    *,
    leading: Iterable[dict[str, Any]] = (),
) -> Said:
    """The whole conversation for a wire that joins nothing: each message's own items, after `leading`."""
    found = [*leading, *(item for message in history.opening for item in fragment(message))]
    found.extend(item for made in _one_by_one(history, wire, fragment) for item in made)
    settled = len(found)
    found.extend(item for message in (*history.closing, *current) for item in fragment(message))
    return Said(found, settled)


def own(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as the receiver's own, in the way that `copied` says."""
    return [*({**item} for item in found[:-OWN_MESSAGES]), *msgspec.to_builtins(found[-OWN_MESSAGES:])]


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


def turns(history: History, wire: str, current: Iterable[Message], fragment: Callable[[Message], Fragment]) -> Said:
    """The whole conversation as joined fragments; their lists are shared, so copy before you change one."""
    joined = _shared(history, wire, fragment)
    opening = [fragment(message) for message in history.opening]
    after = [fragment(message) for message in (*history.closing, *current)]
    start = _join([], opening)
    if joined and start and start[-1][0] == joined[0][0]:
        start = _join(start, joined[:1])
        joined = joined[1:]
    # The last of them may still grow.
    settled = max(len(start) + len(joined) - 1, 0)
    return Said(_join([*start, *joined[:-1]], [*joined[-1:], *after]), settled)


def _shared(history: History, wire: str, fragment: Callable[[Message], Fragment]) -> list[Fragment]:
    """The history's messages as joined fragments. What is kept is replaced, never changed: others may be reading it."""
    joined: Joined = next(iter(history.fragments.get(wire, ())), Joined())
    if joined.count > history.end:
        joined = Joined()
    new = [fragment(message) for message in history.shared[joined.count : history.end]]
    if new:
        last = _join([], [*joined.fragments[-1:], *new])
        joined = Joined(history.end, [*joined.fragments[:-1], *last])
        history.fragments[wire] = [joined]
    return joined.fragments


def _join(start: list[Fragment], more: Iterable[Fragment]) -> list[Fragment]:
    """Appends fragments to `start`, joining those of one role. Lists that were there before are not changed."""
    own = False
    for role, all_blocks in more:
        follows = bool(start) and start[-1][0] == role
        blocks = [block for block in all_blocks if block.get("type") not in _ONLY_FIRST] if follows else all_blocks
        if not blocks:
            continue
        if not follows:
            start.append((role, blocks))
            own = False
        elif own:
            start[-1][1].extend(blocks)
        else:
            start[-1] = (role, [*start[-1][1], *blocks])
            own = True
    return start
