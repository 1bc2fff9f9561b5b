"""The omission notice: the text in place of the messages that a cut omits."""

from __future__ import annotations

import shlex

from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.message import Message, ProviderFormat, Text

LONGEST_NAME = 60
"""Longest session name, in characters, that a notice contains. Its command must be safe to copy."""


def omission_notice(
    session: str,
    messages: int,
    tokens: int,
    *,
    summary: bool = False,
    pins: bool = False,
    excerpts: bool = False,
    unshown: int = 0,
) -> str:
    """Return the omission notice: the number of omitted messages and tokens, and the command that shows them.

    `summary`: a summary is omitted too. `pins`: pinned messages are shown before the notice. `excerpts`: user turns too,
    except `unshown` of them.
    """
    is_plain = session.isascii() and session.isprintable() and len(session) <= LONGEST_NAME
    command = (
        f"`nexus history {shlex.quote(session)}` shows" if is_plain else "`nexus sessions` and `nexus history` show"
    )
    with_summary = ", and the summary of what came before them" if summary else ""
    with_pins = " What was asked first, and what was pinned among them, stands above." if pins else ""
    if excerpts:
        with_pins = " What the user said in them stands above."
    if unshown:
        with_pins += f" {unshown:,} of the user's turns {'is' if unshown == 1 else 'are'} not shown."
    return (
        f"[Earlier messages left out to stay within the token budget: {messages:,} messages, about {tokens:,} tokens"
        f"{with_summary}. Nothing is lost: {command} the whole conversation.{with_pins}]"
    )


def omission_notice_tokens(session: str, wire: ProviderFormat, counter: TokenCounter) -> int:
    """Return the base tokens of a session's largest omission notice."""
    largest = omission_notice(session, 999_999_999, 999_999_999_999, summary=True, pins=True, unshown=999_999_999)
    return message_tokens(Message("user", (Text(largest),)), counter).on(wire)
