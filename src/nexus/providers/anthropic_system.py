"""System messages among Anthropic's messages: the models that take them, and the places where they may be.

The rules are from the page "Mid-conversation system messages" of platform.claude.com: a system message is not first, is
after a user message or an assistant message that ends with a server tool's call, and is last or before an assistant
message. The models are Opus from 4.8 on and others from the fifth generation on. Endpoints of other companies name them
differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nexus.providers.turns import ConversationParts, Fragment, as_blocks, joined_turns
from nexus.text.message_text import SYSTEM_NOTE

_MODEL = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_FIRST_VERSION = {"opus": (4, 8)}
_LATER = 2
"""Fragments before the last settled one whose role still depends on what follows."""


def takes_system_messages(model: str) -> bool:
    """Return True if a model takes system messages among its messages."""
    match = _MODEL.match(model)
    if match is None:
        return False
    version = (int(match[2]), int(match[3] or 0))
    return version >= _FIRST_VERSION.get(match[1], (5, 0))


def with_placed_system(conversation: ConversationParts) -> ConversationParts:
    """Return a conversation whose misplaced system messages are user messages, joined with adjacent user messages."""
    fragments = conversation.fragments
    if not any(fragment["role"] == "system" for fragment in fragments):
        return conversation
    placed = list[Fragment]()
    settled = 0
    for index, fragment in enumerate(fragments):
        before = placed[-1] if placed else None
        after = None
        if index + 1 < len(fragments):
            after = fragments[index + 1]
        is_misplaced = fragment["role"] == "system" and not _may_be_between(before, after)
        placed = joined_turns(placed, [_as_users(fragment) if is_misplaced else fragment], "content")
        if index < conversation.settled - _LATER:
            settled = len(placed) - 1
    return ConversationParts(placed, max(settled, 0))


def system_blocks(fragments: Iterable[Fragment]) -> int:
    """Return the number of blocks of system messages."""
    return sum(len(as_blocks(fragment["content"])) for fragment in fragments if fragment["role"] == "system")


def _may_be_between(before: Fragment | None, after: Fragment | None) -> bool:
    if before is None or (after is not None and after["role"] != "assistant"):
        return False
    return before["role"] == "user" or _ends_with_server_call(as_blocks(before["content"]))


def _ends_with_server_call(blocks: list[dict[str, Any]]) -> bool:
    return bool(blocks) and blocks[-1].get("type") == "server_tool_use"


def _as_users(fragment: Fragment) -> Fragment:
    texts = [block for block in as_blocks(fragment["content"]) if block.get("type") == "text"]
    return {"role": "user", "content": [{"type": "text", "text": SYSTEM_NOTE}, *texts]}
