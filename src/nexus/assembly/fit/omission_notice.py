"""What stands in place of the messages that a cut leaves out."""

from __future__ import annotations

import shlex

from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.message import Message, ProviderFormat, Text

LONGEST_NAME = 60
"""A marker names a session that is no longer and plain, so that the command in it can be copied."""


def omission_notice(session: str, messages: int, tokens: int, *, summary: bool = False, pins: bool = False) -> str:
    """What stands in place of the messages that a cut leaves out: how many, and how to get them."""
    plain = session.isascii() and session.isprintable() and len(session) <= LONGEST_NAME
    way = f"`nexus history {shlex.quote(session)}` shows" if plain else "`nexus sessions` and `nexus history` show"
    with_summary = ", and the summary of what came before them" if summary else ""
    with_pins = " What was asked first, and what was pinned among them, stands above." if pins else ""
    return (
        f"[Earlier messages left out to stay within the token budget: {messages:,} messages, about {tokens:,} tokens"
        f"{with_summary}. Nothing is lost: {way} the whole conversation.{with_pins}]"
    )


def omission_notice_tokens(session: str, wire: ProviderFormat, counter: TokenCounter) -> int:
    """Base tokens of the largest marker for a session."""
    largest = omission_notice(session, 999_999_999, 999_999_999_999, summary=True, pins=True)
    return message_tokens(Message("user", (Text(largest),)), counter).on(wire)
