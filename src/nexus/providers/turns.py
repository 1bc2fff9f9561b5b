"""The conversation in a provider's format: message by message, or in turns that join messages of one role.

Messages are converted to fragments once. The fragments are cached with the history (in turns: as they were joined), so
each call converts only new messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from nexus.text.message_text import RENDER_VERSION
from nexus.types.history import History
from nexus.types.message import Message

Fragment: TypeAlias = dict[str, Any]
"""One message, or several joined ones, as it is sent: its role, and its blocks under the provider's key for them."""


class SeparateFragment(dict[str, Any]):
    """A message that was received as one of its own: it is not joined with the one before it."""


BlocksKey: TypeAlias = Literal["content", "parts"]
"""A provider's key for the blocks of a message."""

COPIED_MESSAGES = 64
"""Last messages of a body that are copied deeply. Copying all of them took a warm call from 1.4 to 2.1 ms."""

# Thinking is valid only at the beginning of an assistant's turn, so it is dropped from messages joined to an earlier one.
_ONLY_FIRST = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """The conversation in a provider's format. Shared with later calls: read only."""

    fragments: list[Any]
    settled: int
    """Number of leading fragments that later calls of the same window repeat."""


@dataclass(frozen=True, slots=True)
class OpeningFragments:
    """The fragments of an opening's messages."""

    messages: tuple[Message, ...] = ()
    fragments: list[Any] = field(default_factory=list[Any])


@dataclass(frozen=True, slots=True)
class HistoryItems:
    """The history's messages as items: of the message at an index, those up to `ends[index]`."""

    fragments: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ends: list[int] = field(default_factory=list[int])

    def extended(self, new: Iterable[list[dict[str, Any]]]) -> HistoryItems:
        """Return them with the items of further messages."""
        fragments = self.fragments.copy()
        ends = self.ends.copy()
        for per_message in new:
            fragments += per_message
            ends.append(len(fragments))
        return HistoryItems(fragments, ends)


@dataclass(frozen=True, slots=True)
class JoinedHistory:
    """The history's first `count` messages as joined fragments. The last fragment may still grow."""

    count: int = 0
    fragments: list[Fragment] = field(default_factory=list[Fragment])


def owned(fragments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a new list of new messages that the caller may change.

    The insides of all but the last `COPIED_MESSAGES` are shared with later bodies and must not be changed.
    """
    older = fragments[:-COPIED_MESSAGES]
    newest = fragments[-COPIED_MESSAGES:]
    return [*map(dict[str, Any].copy, older), *msgspec.to_builtins(newest)]


def items(
    history: History,
    cache_key: str,
    current: Iterable[Message],
    fragment: Callable[[Message], list[dict[str, Any]]],
    *,
    leading: Iterable[dict[str, Any]] = (),
) -> ConversationParts:
    """Return the conversation for a format that joins nothing: each message's items, after `leading`."""
    cached: HistoryItems = next(iter(history.fragments.get(cache_key, ())), HistoryItems())
    if len(cached.ends) < history.end:
        # A new list, assigned at once: other threads may be reading the old one.
        cached = cached.extended(map(fragment, history.shared[len(cached.ends) : history.end]))
        history.fragments[cache_key] = [cached]
    opening = _opening_fragments(history, cache_key, fragment)
    fragments = [*leading, *(item for per_message in opening for item in per_message)]
    fragments += cached.fragments[: cached.ends[history.end - 1]] if history.end else []
    settled = len(fragments)
    fragments.extend(item for message in (*history.closing, *current) for item in fragment(message))
    return ConversationParts(fragments, settled)


def turns(
    history: History,
    cache_key: str,
    current: Iterable[Message],
    fragment: Callable[[Message], Fragment],
    blocks: BlocksKey,
) -> ConversationParts:
    """Return the conversation as joined fragments."""
    joined = _joined_history(history, cache_key, fragment, blocks)
    opening = _opening_fragments(history, cache_key, fragment)
    after = [fragment(message) for message in (*history.closing, *current)]
    start = joined_turns([], opening, blocks)
    if joined and start and start[-1]["role"] == joined[0]["role"]:
        start = joined_turns(start, joined[:1], blocks)
        joined = joined[1:]
    # The last of them may still grow.
    settled = max(len(start) + len(joined) - 1, 0)
    return ConversationParts(joined_turns([*start, *joined[:-1]], [*joined[-1:], *after], blocks), settled)


CONTINUE = "Continue."
"""Text of the user's message behind a model's unfinished one, for providers that answer only users."""

_CONTINUE_RENDER = 7
"""Render version from which on the message is added."""


def with_request(parts: ConversationParts, request: Fragment, render: int = RENDER_VERSION) -> ConversationParts:
    """Return the conversation with a user's request behind it, if it ends with a message of the model.

    It does so where one provider's turn is paused and another provider continues it.
    """
    role = ""
    if parts.fragments:
        role = parts.fragments[-1].get("role")
    if role not in ("assistant", "model") or render < _CONTINUE_RENDER:
        return parts
    return ConversationParts([*parts.fragments, request], parts.settled)


def _opening_fragments(history: History, cache_key: str, fragment: Callable[[Message], Any]) -> list[Any]:
    """Return the fragments of the opening's messages, which all calls of a window share."""
    key = f"opening:{cache_key}"
    cached: OpeningFragments = next(iter(history.fragments.get(key, ())), OpeningFragments())
    if cached.messages != history.opening:
        cached = OpeningFragments(history.opening, [fragment(message) for message in history.opening])
        history.fragments[key] = [cached]
    return cached.fragments


def _joined_history(
    history: History, cache_key: str, fragment: Callable[[Message], Fragment], blocks: BlocksKey
) -> list[Fragment]:
    """Return the history as joined fragments. Cached ones are replaced, never changed: others may be reading them."""
    joined: JoinedHistory = next(iter(history.fragments.get(cache_key, ())), JoinedHistory())
    if joined.count > history.end:
        joined = JoinedHistory()
    new = [fragment(message) for message in history.shared[joined.count : history.end]]
    if new:
        last = joined_turns([], [*joined.fragments[-1:], *new], blocks)
        joined = JoinedHistory(history.end, [*joined.fragments[:-1], *last])
        history.fragments[cache_key] = [joined]
    return joined.fragments


def joined_turns(start: list[Fragment], more: Iterable[Fragment], blocks: BlocksKey) -> list[Fragment]:
    """Append fragments to `start`, joining equal roles. Fragments that were there before are not changed."""
    is_copy = False
    for fragment in more:
        if not fragment[blocks]:
            continue
        last = start[-1] if start else None
        if last is None or last["role"] != fragment["role"] or isinstance(fragment, SeparateFragment):
            start.append(fragment)
            is_copy = False
            continue
        new = [block for block in as_blocks(fragment[blocks]) if block.get("type") not in _ONLY_FIRST]
        if is_copy:
            last[blocks].extend(new)
        elif new:
            joined: Fragment = {"role": fragment["role"], blocks: [*as_blocks(last[blocks]), *new]}
            start[-1] = SeparateFragment(joined) if isinstance(last, SeparateFragment) else joined
            is_copy = True
    return start


def as_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a message's content as blocks; a plain string is one text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content
