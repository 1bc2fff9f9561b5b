"""Blocks of a tagged dialogue that are one text after a tag, written and parsed back.

Document 000, "Message Structure": [CAPABILITIES], [FRIENDS_INFO], [THIS_MOMENT]; "Extensibility" and "Future
Enhancements": [MOOD] and [CONSTRAINTS].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nexus.errors import BadContext
from nexus.render.tool_list import capabilities_text
from nexus.text.frames import escape, unescape
from nexus.types.user_profile import FRIEND_HEADING

_MOMENT = re.compile(
    r"\[THIS_MOMENT\]\n<current_time>([^<\n]*)</current_time>\n<human_input>\n(.*)\n</human_input>", re.DOTALL
)


def capabilities_block(definitions: Iterable[Mapping[str, Any]]) -> str:
    """Return the tools of definitions in any provider's format, or the placeholder. Raises BadTool."""
    return _block("[CAPABILITIES]\n", capabilities_text(definitions))


def parse_capabilities(block: str) -> str:
    """Return the text of `capabilities_text`. Raises BadContext."""
    return _text("[CAPABILITIES]\n", block)


def friends_block(text: str) -> str:
    """Return the block for a description of the user from `nexus.types.user_profile.friend_text`."""
    return _block(f"[FRIENDS_INFO]\n{FRIEND_HEADING}\n\n", text)


def parse_friends(block: str) -> str:
    """Return the description of the user. Raises BadContext."""
    return _text(f"[FRIENDS_INFO]\n{FRIEND_HEADING}\n\n", block)


def mood_block(text: str) -> str:
    """Return the block for the user's apparent mood."""
    return _block("[MOOD]\n", text)


def parse_mood(block: str) -> str:
    """Return the text of `mood_block`. Raises BadContext."""
    return _text("[MOOD]\n", block)


def constraints_block(text: str) -> str:
    """Return the block for the limits of the current task."""
    return _block("[CONSTRAINTS]\n", text)


def parse_constraints(block: str) -> str:
    """Return the text of `constraints_block`. Raises BadContext."""
    return _text("[CONSTRAINTS]\n", block)


def moment_block(time: str, text: str) -> str:
    """Return the block for the user's message and its time from `moment_time`."""
    return f"[THIS_MOMENT]\n<current_time>{time}</current_time>\n<human_input>\n{escape(text)}\n</human_input>"


def parse_moment(block: str) -> tuple[str, str]:
    """Return time and text of `moment_block`. Raises BadContext."""
    match = _MOMENT.fullmatch(block)
    if match is None:
        raise BadContext(f"not a block of the current message: {block[:60]!r}")
    return match[1], unescape(match[2])


def _block(head: str, text: str) -> str:
    return head + escape(text)


def _text(head: str, block: str) -> str:
    if not block.startswith(head):
        raise BadContext(f"{block[:60]!r} does not begin with {head!r}")
    return unescape(block.removeprefix(head))
