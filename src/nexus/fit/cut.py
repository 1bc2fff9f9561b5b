"""When the history does not fit: one cut, at a group boundary, deep enough that nothing moves again for a while.

A cut fires when the budget is full and goes down to 45 % of it, or to 60 % where one group lies across that mark:
results of tools are large, and dropping one more of them would empty the prompt for nothing. On real sessions at 16,000
tokens this processes 1.28 tokens for each new one at a mean prompt of 64 % (`make bench`); going only from 85 % to 60 %
would process 2.09. A cut is a value in the context, deterministic in the head, the view and the budget; recording the
turn stores it. Never cut: system, tools, current event, last group, pins (the first task among them).
"""

from __future__ import annotations

import shlex
from bisect import bisect_left

from msgspec import Struct

from nexus.budget.counter import TokenCounter
from nexus.budget.measure import message_tokens
from nexus.errors import BudgetTooSmall
from nexus.fit import repair
from nexus.fit.window import Window, restart
from nexus.ledger.entries import Cut, Entry, Place
from nexus.message import Message, Text
from nexus.size import Wire

LOW_MARK = 0.45
"""A cut goes down to this share of the available tokens."""

LEAST_HISTORY = 0.25
"""Where system, tools and event leave little, a cut still keeps this share of what they leave."""

REACH = 0.60
"""The group that lies across the low mark is kept while everything stays under this share."""

KEEP_RECENT_TURNS = 3
"""Turns that a cut keeps whole while they fit in half of the room."""

LONGEST_NAME = 60
"""A marker names a session that is no longer and plain, so that the command in it can be copied."""


class Fixed(Struct, frozen=True):
    """Base counts of what is never cut besides the current event and the last group."""

    system: int
    tools: int


class Fitted(Struct, frozen=True):
    """What fits: the window to show, what stands after it, its tokens, and the cut if one was made.

    `shown` is the event as it is shown, with results that the open group lacks: `ahead` of them before it.
    """

    window: Window
    shown: tuple[Message, ...]
    ahead: int
    closing_tokens: int
    current_tokens: int
    cut: Cut | None


class Site(Struct, frozen=True):
    """Where a cut belongs: session, view, the number of the view's next cut, and the newest compaction or clear."""

    session: str
    view: str
    number: int
    mark: Entry | None


def fit(
    window: Window, room: int, fixed: Fixed, site: Site, counter: TokenCounter, event: tuple[Message, ...]
) -> Fitted:
    """The window as it is, or after one cut, so that everything is at most `room` base tokens. Raises BudgetTooSmall."""
    fitted = _with_event(window, event, counter, None)
    if _total(fitted, fixed) <= room:
        return fitted
    answers = any(message.role == "tool" for message in event)
    plain_until = _plain_until(window, answers=answers)
    index, keeps_summary = _choose(fitted, room, fixed, plain_until, site.session, counter)
    begin = window.row_of[index] if index < len(window.messages) else len(window.rows)
    first = window.rows[begin].place if begin < len(window.rows) else Place(window.head + 1, 0)
    before = window.cut
    kept = [pin for pin in window.hidden(first) if pin.place >= window.first]
    left_out = begin + (before.left_out_messages if before else 0) - sum(len(pin.rows) for pin in kept)
    tokens = window.sums[index] + (before.left_out_tokens if before else 0)
    tokens = max(tokens - sum(pin.tokens(window.wire) for pin in kept), 0)
    lost_summary = bool(site.mark and site.mark.body) and not keeps_summary
    marker = marker_text(site.session, left_out, tokens, summary=lost_summary, pins=bool(window.hidden(first)))
    cut = Cut(site.view, site.number, window.head, first, marker, left_out, tokens, plain_until, keeps_summary)
    fitted = _with_event(restart(window, cut, site.mark, counter), event, counter, cut)
    if _total(fitted, fixed) > room:
        kept = fitted.window
        last = kept.sums[-1] + fitted.closing_tokens
        marker = kept.opening_tokens - kept.pinned_tokens
        raise _too_small(room, fixed, fitted.current_tokens, last, marker, kept.pinned_tokens)
    return fitted


def marker_text(session: str, messages: int, tokens: int, *, summary: bool = False, pins: bool = False) -> str:
    """What stands in place of the messages that a cut leaves out: how many, and how to get them."""
    plain = session.isascii() and session.isprintable() and len(session) <= LONGEST_NAME
    way = f"`nexus history {shlex.quote(session)}` shows" if plain else "`nexus sessions` and `nexus history` show"
    with_summary = ", and the summary of what came before them" if summary else ""
    with_pins = " What was asked first, and what was pinned among them, follows." if pins else ""
    return (
        f"[Earlier messages left out to stay within the token budget: {messages:,} messages, about {tokens:,} tokens"
        f"{with_summary}. Nothing is lost: {way} the whole conversation.{with_pins}]"
    )


def marker_tokens(session: str, wire: Wire, counter: TokenCounter) -> int:
    """Base tokens of the largest marker for a session."""
    largest = marker_text(session, 999_999_999, 999_999_999_999, summary=True, pins=True)
    return message_tokens(Message("user", (Text(largest),)), counter).on(wire)


def _with_event(window: Window, event: tuple[Message, ...], counter: TokenCounter, cut: Cut | None) -> Fitted:
    """The event as this window's history makes it appear, counted as it is shown."""
    shown = tuple(repair.preview(window.fold, event))
    answers = any(message.role == "tool" for message in event)
    ahead = 0 if answers else len(repair.closing(window.fold))
    sizes = [message_tokens(message, counter) for message in shown]
    tokens = [size.on(window.wire) + size.aside for size in sizes]
    return Fitted(window, shown, ahead, sum(tokens[:ahead]), sum(tokens[ahead:]), cut)


def _total(fitted: Fitted, fixed: Fixed) -> int:
    return fixed.system + fixed.tools + fitted.window.tokens + fitted.closing_tokens + fitted.current_tokens


def _plain_until(window: Window, *, answers: bool) -> int:
    """Up to where messages lose thinking and memory notes at a cut: the head, or before the turn that is still open.

    A provider wants the thinking of the tool loop that is going on back as it was; older signatures belong to a prefix
    that the cut changes.
    """
    if not answers or not window.rows:
        return window.head
    start = window.turns[-1] if window.turns else 0
    return window.rows[max(window.row_of[start], 0)].place.seq - 1


def _plainer(window: Window, index: int, plain_until: int) -> int:
    """The tokens that everything from message `index` on loses with its thinking and memory notes."""
    return sum(
        window.asides[place]
        for place in range(index, len(window.messages))
        if window.asides[place] and window.rows[window.row_of[place]].place.seq <= plain_until
    )


def _choose(
    fitted: Fitted, room: int, fixed: Fixed, plain_until: int, session: str, counter: TokenCounter
) -> tuple[int, bool]:
    """The index of the first message to keep (a group's start), and whether the summary stays."""
    window, closing = fitted.window, fitted.closing_tokens
    last = window.groups[-1] if window.groups else 0
    last_tokens = window.sums[-1] - window.sums[last] + closing - _plainer(window, last, plain_until)
    marker = marker_tokens(session, window.wire, counter) if last > 0 or window.opening else 0
    pinned = window.pinned_tokens + _pinned_before(window, last)
    never = fixed.system + fixed.tools + fitted.current_tokens + marker + pinned
    if never + last_tokens > room:
        raise _too_small(room, fixed, fitted.current_tokens, last_tokens, marker, pinned)
    kept_before = window.cut is None or window.cut.keeps_summary
    keeps_summary = kept_before and never + window.summary_tokens + last_tokens <= room
    spent = never + (window.summary_tokens if keeps_summary else 0)
    free = room - spent
    low = max(int(LOW_MARK * room) - spent, int(LEAST_HISTORY * free))
    index = _first_group(window, low - closing)
    across = _group_before(window, index)
    if window.sums[-1] - window.sums[across] + closing <= max(int(REACH * room) - spent, low):
        index = across
    recent = window.turns[-KEEP_RECENT_TURNS] if len(window.turns) >= KEEP_RECENT_TURNS else 0
    if window.sums[-1] - window.sums[recent] + closing <= free // 2:
        index = min(index, recent)
    return min(index, last), keeps_summary


def _pinned_before(window: Window, index: int) -> int:
    """Tokens of the pins among the messages shown that a cut at message `index` would hide."""
    place = window.rows[max(window.row_of[index], 0)].place if index < len(window.messages) else None
    return sum(
        pin.tokens(window.wire)
        for pin in window.pins
        if pin.place >= window.first and (place is None or pin.place < place)
    )


def _first_group(window: Window, tokens: int) -> int:
    """The start of the oldest group from which on everything takes at most `tokens`; past the end if none does."""
    if tokens <= 0:
        return len(window.messages)
    earliest = bisect_left(window.sums, window.sums[-1] - tokens)
    place = bisect_left(window.groups, earliest)
    return window.groups[place] if place < len(window.groups) else len(window.messages)


def _group_before(window: Window, index: int) -> int:
    """The start of the group that ends where the message `index` begins; 0 if there is none."""
    place = bisect_left(window.groups, index)
    return window.groups[place - 1] if place else 0


def _too_small(room: int, fixed: Fixed, current: int, last_group: int, marker: int, pinned: int) -> BudgetTooSmall:
    parts = {"system": fixed.system, "tools": fixed.tools, "current event": current, "last group": last_group}
    parts["marker of what is left out"] = marker
    if pinned:
        parts["pinned messages"] = pinned
    return BudgetTooSmall(room, sum(parts.values()), parts)
