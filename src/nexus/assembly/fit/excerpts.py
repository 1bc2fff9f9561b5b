"""Excerpts: earlier messages that a cut keeps before its omission notice, at most a few hundred tokens of each.

User turns come first, then closing texts: the answers that end a turn. In coding sessions both are a few percent of the
tokens, and they say what was asked and how it ended; calls and results are the rest.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain

from nexus.assembly.fit.pins import Pinned
from nexus.assembly.fit.window import Window
from nexus.text.message_text import is_injected
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Role, Text, Thinking

EXCERPT_TOKENS = 400
"""Base tokens that an excerpt shows; longer messages are truncated to head and tail."""

EXCERPT_SHARE = 0.20
"""Share of the available tokens that all excerpts may take together."""

REFILL = 0.5
"""Where the excerpts exceed their limit, they leave down to this share of it, so that the prefix then stays the same."""


def choose_excerpts(
    window: Window,
    index: int,
    limit: int,
    reserved: Iterable[MessageRef],
    roles: Sequence[Role] = ("user", "assistant"),
) -> tuple[Pinned, ...]:
    """Return the excerpts of a cut that keeps everything from message `index` on, in at most `limit` base tokens.

    Candidates are the excerpts of the current cut and the rows before `index`. The oldest closing texts leave first,
    then the oldest user turns. `reserved` are positions that the opening shows anyway.
    """
    reserved = set(reserved)
    end = max(window.row_of[index], 0) if index < len(window.messages) else len(window.rows)
    rules, chosen, total = window.rules, list[Pinned](), 0
    for pin in _newest_first(window, end, reserved, roles):
        total += pin.tokens(rules.wire, rules.images)
        if total > limit:
            limit = int(limit * REFILL)
            break
    for role in roles:
        for pin in _newest_first(window, end, reserved, (role,)):
            limit -= pin.tokens(rules.wire, rules.images)
            if limit < 0:
                break
            chosen.append(pin)
    return tuple(sorted(chosen, key=lambda pin: pin.place))


def last_excerpt(window: Window, limit: int, reserved: Container[MessageRef]) -> tuple[Pinned, ...]:
    """Return the last message as an excerpt of at most `limit` base tokens, if it is a user turn or a closing text."""
    row = next(_excerpt_rows(window.rows, len(window.rows)), None)
    is_last = row is not None and row is window.rows[-1] and row.ref not in reserved
    return (Pinned(row.ref, (row,), limit, "excerpt"),) if row is not None and is_last else ()


def _newest_first(
    window: Window, end: int, reserved: Container[MessageRef], roles: Container[Role]
) -> Iterator[Pinned]:
    """Yield the candidates of these roles, newest first: a long session has many more of them than fit."""
    excerpts = [row for pin in window.opening.pins if pin.kind == "excerpt" for row in pin.rows]
    for row in chain(_excerpt_rows(window.rows, end), reversed(excerpts)):
        if row.message.role in roles and row.ref not in reserved:
            yield Pinned(row.ref, (row,), EXCERPT_TOKENS, "excerpt")


def _excerpt_rows(rows: Sequence[StoredMessage], end: int) -> Iterator[StoredMessage]:
    """Yield the user turns and closing texts among the first `end` rows, newest first."""
    for at in range(end - 1, -1, -1):
        message = rows[at].message
        if message.role == "user" and is_user_turn(message):
            yield rows[at]
        elif message.role == "assistant" and (at + 1 == len(rows) or rows[at + 1].message.role == "user"):
            only_text = all(isinstance(part, (Text, Thinking)) for part in message.parts)
            if only_text and message.text().strip():
                yield rows[at]


def is_user_turn(message: Message) -> bool:
    """Return True for a user's own words, not for results and what programs say in the user's name."""
    return bool(message.text().strip()) and not is_injected(message) and next(message.results(), None) is None
