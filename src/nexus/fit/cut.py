"""When the history does not fit: one cut, at a group boundary, deep enough that nothing moves again for a while.

A cut fires when the budget is full and goes down to 45 % of it, or to 60 % where one group lies across that mark:
results of tools are large, and dropping one more of them would empty the prompt for nothing. On real sessions at 16,000
tokens this processes 1.28 tokens for each new one at a mean prompt of 64 % (`make bench`); going only from 85 % to 60 %
would process 2.09. A cut is a value in the context, deterministic in the head, the view and the budget; recording the
turn stores it. Never cut: system, tools, current event, last group.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from nexus.budget.counter import TokenCounter
from nexus.budget.measure import message_tokens
from nexus.errors import BudgetTooSmall
from nexus.fit import repair
from nexus.fit.window import Window, restart
from nexus.ledger.entries import Cut, Entry, Place
from nexus.message import Message

LOW_MARK = 0.45
"""A cut goes down to this share of the available tokens."""

LEAST_HISTORY = 0.25
"""Where system, tools and event leave little, a cut still keeps this share of what they leave."""

REACH = 0.60
"""The group that lies across the low mark is kept while everything stays under this share."""

KEEP_RECENT_TURNS = 3
"""Turns that a cut keeps whole while they fit in half of the room."""

MARKER_TOKENS = 90
"""Allowance for a cut's marker; its text always fits."""


class Fixed(Struct, frozen=True):
    """Base counts of what is never cut besides the last group."""

    system: int
    tools: int
    current: int

    @property
    def total(self) -> int:
        """Their sum."""
        return self.system + self.tools + self.current


class Fitted(Struct, frozen=True):
    """What fits: the window to show, the results that its open group lacks, their count, and the cut if one was made."""

    window: Window
    closing: tuple[Message, ...]
    closing_tokens: int
    cut: Cut | None


class Site(Struct, frozen=True):
    """Where a cut belongs: session, view, the number of the view's next cut, and the newest compaction or clear."""

    session: str
    view: str
    number: int
    mark: Entry | None


def fit(window: Window, room: int, fixed: Fixed, site: Site, counter: TokenCounter, *, answers: bool) -> Fitted:
    """The window as it is, or after one cut, so that everything is at most `room` base tokens.

    `answers`: the current event holds the open group's results, so none are supplied. Raises BudgetTooSmall.
    """
    closing, closing_tokens = _closing(window, counter, answers=answers)
    if fixed.total + window.tokens + closing_tokens <= room:
        return Fitted(window, closing, closing_tokens, None)
    plain_until = _plain_until(window, answers=answers)
    index, keeps_summary = _choose(window, room, fixed, closing_tokens, plain_until)
    first = window.rows[window.row_of[index]].place if index < len(window.messages) else Place(window.head + 1, 0)
    before = window.cut
    left_out = index + (before.left_out_messages if before else 0)
    tokens = window.sums[index] + (before.left_out_tokens if before else 0)
    marker = marker_text(site.session, left_out, tokens)
    cut = Cut(site.view, site.number, window.head, first, marker, left_out, tokens, plain_until, keeps_summary)
    cut_window = restart(window, cut, site.mark, counter)
    return Fitted(cut_window, *_closing(cut_window, counter, answers=answers), cut)


def _closing(window: Window, counter: TokenCounter, *, answers: bool) -> tuple[tuple[Message, ...], int]:
    """The results that the open group lacks, and their tokens; none where the event brings them."""
    closing = () if answers else tuple(repair.closing(window.fold))
    return closing, sum(message_tokens(message, counter).on(window.wire) for message in closing)


def marker_text(session: str, messages: int, tokens: int) -> str:
    """What stands in place of the messages that a cut leaves out: how many, and how to get them."""
    name = session if len(session) <= 40 else f"{session[:40]}…"
    return (
        f"[Earlier messages left out to stay within the token budget: {messages:,} messages, about {tokens:,} tokens. "
        f"Nothing is lost: `nexus history {name}` shows the whole conversation.]"
    )


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
    begin = max(window.row_of[index], 0) if index < len(window.row_of) else len(window.rows)
    return sum(
        window.aside_of(row.message.role, row.size)
        for row in window.rows[begin:]
        if window.plain_until < row.place.seq <= plain_until
    )


def _choose(window: Window, room: int, fixed: Fixed, closing_tokens: int, plain_until: int) -> tuple[int, bool]:
    """The index of the first message to keep (a group's start), and whether the summary stays."""
    summary = window.summary_tokens
    last = window.groups[-1] if window.groups else 0
    last_tokens = window.sums[-1] - window.sums[last] + closing_tokens - _plainer(window, last, plain_until)
    marker = MARKER_TOKENS if last > 0 or window.opening else 0
    if fixed.total + marker + last_tokens > room:
        raise _too_small(room, fixed, last_tokens, marker)
    kept_before = window.cut is None or window.cut.keeps_summary
    keeps_summary = kept_before and fixed.total + marker + summary + last_tokens <= room
    spent = fixed.total + marker + (summary if keeps_summary else 0)
    free = room - spent
    low = max(int(LOW_MARK * room) - spent, int(LEAST_HISTORY * free))
    index = _first_group(window, low - closing_tokens)
    across = _group_before(window, index)
    if window.sums[-1] - window.sums[across] + closing_tokens <= max(int(REACH * room) - spent, low):
        index = across
    recent = window.turns[-KEEP_RECENT_TURNS] if len(window.turns) >= KEEP_RECENT_TURNS else 0
    if window.sums[-1] - window.sums[recent] + closing_tokens <= free // 2:
        index = min(index, recent)
    return min(index, last), keeps_summary


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


def _too_small(room: int, fixed: Fixed, last_group: int, marker: int) -> BudgetTooSmall:
    parts = {"system": fixed.system, "tools": fixed.tools, "current event": fixed.current, "last group": last_group}
    needed = fixed.total + last_group + marker
    return BudgetTooSmall(room, needed, {**parts, "marker of what is left out": marker})
