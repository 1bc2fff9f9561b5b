"""The omission notice: the text in place of the messages that a cut omits."""

from __future__ import annotations

from nexus.assembly.fit.lookup import session_lookup
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.history import Lookup
from nexus.types.message import Message, ProviderFormat, Text


def omission_notice(
    session: str,
    messages: int,
    tokens: int,
    *,
    summary: bool = False,
    pins: bool = False,
    excerpts: bool = False,
    unshown: int = 0,
    lookup: Lookup = "command",
) -> str:
    """Return the omission notice: the number of omitted messages and tokens, and where they can be read.

    `summary`: a summary is omitted too. `pins`: pinned messages are shown before the notice. `excerpts`: user turns too,
    except `unshown` of them.
    """
    with_summary = ""
    if summary:
        with_summary = ", and the summary of what came before them"
    with_pins = ""
    if pins:
        with_pins = " What was asked first, and what was pinned among them, stands above."
    if excerpts:
        with_pins = " What the user said in them stands above."
    if unshown:
        are_not = f"{unshown:,} of the user's turns {'is' if unshown == 1 else 'are'} not shown."
        if with_pins:
            with_pins = f"{with_pins.removesuffix('.')}, but {are_not}"
        else:
            with_pins = f" {are_not}"
    return (
        f"[Earlier messages left out to stay within the token budget: {messages:,} messages, about {tokens:,} tokens"
        f"{with_summary}.{session_lookup(lookup, session)}{with_pins}]"
    )


def omission_notice_tokens(
    session: str,
    messages: int,
    tokens: int,
    *,
    summary: bool,
    lookup: Lookup,
    wire: ProviderFormat,
    counter: TokenCounter,
) -> int:
    """Return the base tokens of the largest omission notice on at most so many messages and tokens."""
    largest = omission_notice(session, messages, tokens, summary=summary, pins=True, unshown=messages, lookup=lookup)
    return message_tokens(Message("user", (Text(largest),)), counter).on(wire)
