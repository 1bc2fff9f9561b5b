"""The blocks of a tagged dialogue that are one text behind a tag, and what they were made of, read back from them.

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
    """The tools of the definitions, in any provider's form, or the placeholder for none. Raises BadTool."""
    return _block("[CAPABILITIES]\n", capabilities_text(definitions))


def parse_capabilities(block: str) -> str:
    """What stands under the tag, as `capabilities_text` made it. Raises BadContext."""
    return _text("[CAPABILITIES]\n", block)


def friends_block(text: str) -> str:
    """What is known of the user, as `nexus.types.user_profile.friend_text` gives it."""
    return _block(f"[FRIENDS_INFO]\n{FRIEND_HEADING}\n\n", text)


def parse_friends(block: str) -> str:
    """What is known of the user. Raises BadContext."""
    return _text(f"[FRIENDS_INFO]\n{FRIEND_HEADING}\n\n", block)


def mood_block(text: str) -> str:
    """How the user seems to feel."""
    return _block("[MOOD]\n", text)


def parse_mood(block: str) -> str:
    """The text of `mood_block`. Raises BadContext."""
    return _text("[MOOD]\n", block)


def constraints_block(text: str) -> str:
    """What limits the present task."""
    return _block("[CONSTRAINTS]\n", text)


def parse_constraints(block: str) -> str:
    """The text of `constraints_block`. Raises BadContext."""
    return _text("[CONSTRAINTS]\n", block)


def moment_block(time: str, text: str) -> str:
    """What the user says now, and when: `time` as `moment_time` gives it."""
    return f"[THIS_MOMENT]\n<current_time>{time}</current_time>\n<human_input>\n{escape(text)}\n</human_input>"


def parse_moment(block: str) -> tuple[str, str]:
    """Time and text of `moment_block`. Raises BadContext."""
    found = _MOMENT.fullmatch(block)
    if found is None:
        raise BadContext(f"this is no block of the moment: {block[:60]!r}")
    return found[1], unescape(found[2])


def _block(head: str, text: str) -> str:
    return head + escape(text)


def _text(head: str, block: str) -> str:
    if not block.startswith(head):
        raise BadContext(f"{block[:60]!r} does not begin with {head!r}")
    return unescape(block.removeprefix(head))
