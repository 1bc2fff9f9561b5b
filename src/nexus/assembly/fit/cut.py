"""When the history does not fit: results of tools are shortened, then the oldest groups left out, in one decision.

It fires when the budget is full and goes down to 40 % of it, or to 55 % where one group lies across that mark, so that
nothing in the prefix moves again for a while; the figures behind the marks are those of `python -m benchmarks prefix`.
Images of older turns become notes, where that is wanted, and results that are not among the newest are shortened first;
if that is enough by itself, nothing is left out. The decision is a value in the context, deterministic in the head, the
view and the budget; recording the turn stores it. Never cut: system, tools, current event, last group, pins (the first
task and the request that the kept messages answer among them).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from nexus.assembly.fit import repair
from nexus.assembly.fit.clip import LEAST_TOKENS, truncate_results
from nexus.assembly.fit.omission_notice import omission_notice, omission_notice_tokens
from nexus.assembly.fit.pins import Pinned, merge_pins
from nexus.assembly.fit.token_sums import (
    first_group_within,
    group_before,
    image_eviction_pays_off,
    image_notes_until,
    projected_sums,
    strip_thinking_until_seq,
)
from nexus.assembly.fit.window import Window, restart
from nexus.errors import BudgetTooSmall
from nexus.ledger.replay import visible_start
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.ledger_entries import Cut, Entry, MessageRef
from nexus.types.message import Message

Strategy: TypeAlias = Literal["oldest_first", "middle_out"]

LOW_MARK = 0.40
"""A cut goes down to this share of the available tokens."""

LEAST_HISTORY = 0.20
"""Where system, tools and event leave little, a cut still keeps this share of what they leave."""

REACH = 0.55
"""The group that lies across the low mark is kept while everything stays under this share."""

KEEP_RECENT_TURNS = 3
"""Turns that a cut keeps whole while they fit in half of the room."""

FRESH = 0.25
"""Results in the newest groups that take this share of the room are not shortened."""

AGED_PARTS = (2, 4, 8)
"""Older results are shortened to one of these parts of the largest that a result may be, the mildest that is enough."""

LEAST_GAIN = 0.05
"""Results are shortened only where that gives at least this share of the room."""

ENOUGH = 0.50
"""Nothing is left out where shortened results bring everything under this share."""

HEAD = 0.30
"""What `middle_out` keeps in front of its marker, as a share of the room."""


class FixedTokens(Struct, frozen=True):
    """Base counts of what is never cut besides the current event and the last group: `ahead` are blocks in messages."""

    system: int
    tools: int
    preamble: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.system + self.tools + self.preamble


class FitResult(Struct, frozen=True):
    """What fits: the window to show, what stands after it, its tokens, and the cut if one was made.

    `shown` is the event as it is shown, with results that the open group lacks: `ahead` of them before it. `shortened`
    counts results of the event that are not shown whole; `whole_tokens` is what everything took before a cut.
    `spared` are the event's messages that are shown whole as part of a pin, `given` all before results are shortened.
    """

    window: Window
    visible: tuple[Message, ...]
    closing_count: int
    closing_tokens: int
    current_tokens: int
    cut: Cut | None
    truncated_results: int = 0
    whole_tokens: int = 0
    spared: tuple[int, ...] = ()
    given: tuple[Message, ...] = ()


class CutContext(Struct, frozen=True):
    """Where a cut belongs: session, view, the number of the view's next cut, and the newest compaction or clear.

    `floor` is the share that a cut keeps of what system, tools and event leave; `ceiling` that of the room which the
    history may take. Images are kept in the newest `image_turns` turns (0: in all); `anew` says that the provider has
    nothing of the history in its cache.
    """

    session: str
    view: str
    number: int
    mark: Entry | None
    strategy: Strategy = "oldest_first"
    floor: float = LEAST_HISTORY
    ceiling: float = 1.0
    image_turns: int = 0
    rewrites_prefix: bool = False


def fit(
    window: Window, room: int, fixed: FixedTokens, site: CutContext, counter: TokenCounter, event: tuple[Message, ...]
) -> FitResult:
    """The window as it is, or after one cut, so that everything is at most `room` base tokens. Raises BudgetTooSmall.

    Where it fits, old images may still become notes: that is a cut of its own, which leaves no message out.
    """
    fitted = _with_event(window, event, counter, None)
    whole = _total(fitted, fixed)
    history = window.tokens + fitted.closing_tokens
    most = whole - history + int(site.ceiling * room)
    if whole > min(room, most):
        try:
            fitted = _Cutter(fitted, min(room, most), fixed, site, counter, event).fit()
        except BudgetTooSmall:
            if most >= room:
                raise
            # What is never cut goes before a ceiling.
            if whole > room:
                fitted = _Cutter(fitted, room, fixed, site, counter, event).fit()
    else:
        until = image_notes_until(window, site.image_turns)
        if until > window.limits.images and image_eviction_pays_off(window, until, room, anew=site.rewrites_prefix):
            noted = _Cutter(fitted, room, fixed, site, counter, event).of_images(until)
            fitted = noted if _total(noted, fixed) < whole else fitted
    return structs.replace(fitted, whole_tokens=whole)


def pending_request(window: Window, index: int) -> Pinned | None:
    """The user's message that what is kept from message `index` on still answers, if it does not begin with one."""
    if index >= len(window.messages):
        return None
    at = bisect_right(window.turns, index) - 1
    row = window.rows[window.row_of[window.turns[at]]] if at >= 0 else None
    if (
        row is None or row.message.role == "assistant"
    ):  # what opens a conversation that an assistant begins is no request
        before = next((pin for pin in window.pins if pin.place == window.pending_request), None)
        return structs.replace(before, limit=window.limits.max_tokens, kind="asked") if before is not None else None
    if window.turns[at] == index or row.message.role != "user":
        return None
    return Pinned(row.place, (row,), window.limits.max_tokens, "asked")


def _with_event(window: Window, event: tuple[Message, ...], counter: TokenCounter, cut: Cut | None) -> FitResult:
    """The event as this window's history makes it appear, counted as it is shown."""
    seq = window.head + 1
    limit, aged = window.limits.limit(seq), window.limits.aged(seq)
    told = tuple(truncate_results(message, limit, counter, pictures=not aged) for message in event) if limit else event
    spared: tuple[int, ...] = ()
    if window.pin_waits():
        spared = tuple(at for at in repair.with_answers(window.fold, event) if told[at] is not event[at])
        told = event
    shown = tuple(repair.preview(window.fold, told))
    answers = any(message.role == "tool" for message in event)
    ahead = 0 if answers else len(repair.missing_results(window.fold))
    sizes = [message_tokens(message, counter) for message in shown]
    tokens = [window.weight(message, size) + size.optional for message, size in zip(shown, sizes, strict=True)]
    shortened = sum(said is not message for said, message in zip(told, event, strict=True))
    return FitResult(window, shown, ahead, sum(tokens[:ahead]), sum(tokens[ahead:]), cut, shortened, 0, spared, event)


def _total(fitted: FitResult, fixed: FixedTokens) -> int:
    return fixed.total + fitted.window.tokens + fitted.closing_tokens + fitted.current_tokens


@dataclass(frozen=True, slots=True)
class _CutEstimates:
    """What every choice of a cut starts from: the effective tokens of each message, as sums, and what is never cut."""

    until: int
    tokens: int
    plain_until: int
    sums: list[int]
    last: int
    marker: int
    images: int


@dataclass(frozen=True, slots=True)
class _Cutter:
    """One decision about a window that is over its room."""

    fitted: FitResult
    room: int
    fixed: FixedTokens
    site: CutContext
    counter: TokenCounter
    event: tuple[Message, ...]

    def fit(self) -> FitResult:
        """The first of the choices that fits, from the usual one to the last resort. Raises BudgetTooSmall."""
        fitted = self.fitted
        for cut in self._choices():
            fitted = self._after(cut)
            if _total(fitted, self.fixed) <= self.room:
                return fitted
        kept, fixed = fitted.window, self.fixed
        parts = {
            "system": fixed.system,
            "tools": fixed.tools,
            "current event": fitted.current_tokens,
            **({"blocks before the conversation": fixed.preamble} if fixed.preamble else {}),
            "last group": kept.sums[-1] + fitted.closing_tokens,
            "marker of what is left out": kept.opening_tokens - kept.pinned_tokens,
        }
        if kept.pinned_tokens:
            parts["pinned messages"] = kept.pinned_tokens
        raise BudgetTooSmall(self.room, sum(parts.values()), parts)

    def of_images(self, until: int) -> FitResult:
        """What is left when images up to entry `until` are notes; all else stays as the cut in force has it."""
        window, site = self.fitted.window, self.site
        before = window.cut or Cut(site.view, 0, 0, window.first, "", 0, 0, 0, asked=window.pending_request)
        cut = structs.replace(
            before,
            number=site.number,
            at_seq=window.head,
            images_until=until,
            reason="old images",
            plain_until=self._plain(),
        )
        return self._after(cut)

    def _plain(self) -> int:
        return strip_thinking_until_seq(
            self.fitted.window, answers=any(message.role == "tool" for message in self.event)
        )

    def _after(self, cut: Cut) -> FitResult:
        """What a cut leaves."""
        pins = (pin for pin in self.fitted.window.pins if pin.kind != "asked")
        asked = self._asked_at(cut.asked)
        kept = restart(self.fitted.window, cut, self.site.mark, self.counter, merge_pins(*pins, *asked))
        return _with_event(kept, self.event, self.counter, cut)

    def _choices(self) -> Iterator[Cut]:
        """The usual cut; then the last group alone; then with its results shorter and shorter; then without own pins."""
        least = self._measures()
        window = self.fitted.window
        index, head, keeps_summary = self._usual(least)
        yield self._cut(least, index, head=head, keeps_summary=keeps_summary)
        last = least.last
        yield self._cut(least, last)
        limit = window.limits.max_tokens
        while limit > LEAST_TOKENS or (limit and least.until <= window.head):
            limit = max(limit // 2, LEAST_TOKENS)
            least = replace(least, until=window.head + 1, tokens=limit)
            yield self._cut(least, last)
        yield self._cut(least, last, asked=False)
        yield self._cut(least, last, task=False)
        yield self._cut(least, last, asked=False, task=False)

    def _measures(self) -> _CutEstimates:
        """Which results are shortened, and what every message then takes."""
        window, clips = self.fitted.window, self.fitted.window.limits
        plain = self._plain()
        images = image_notes_until(window, self.site.image_turns)
        last = window.groups[-1] if window.groups else 0
        marker = omission_notice_tokens(self.site.session, window.wire, self.counter) + window.shape.around
        until, tokens = clips.until, clips.tokens
        whole = sums = projected_sums(window, until, tokens, plain, images)
        begin = first_group_within(window, whole, int(FRESH * self.room))
        seq = window.rows[window.row_of[begin]].place.seq if begin < len(window.messages) else window.head + 1
        beside = _total(self.fitted, self.fixed) - window.sums[-1]
        enough = images > clips.images and beside + whole[-1] <= ENOUGH * self.room
        for part in AGED_PARTS if clips.max_tokens and not enough else ():
            limit = max(clips.max_tokens // part, LEAST_TOKENS)
            tried = projected_sums(window, seq - 1, limit, plain, images)
            if whole[-1] - tried[-1] >= LEAST_GAIN * self.room:
                until, tokens, sums = seq - 1, limit, tried
                if beside + tried[-1] <= ENOUGH * self.room:
                    break
        return _CutEstimates(until, tokens, plain, sums, last, marker, images)

    def _usual(self, least: _CutEstimates) -> tuple[int, int, bool]:
        """The index of the first message to keep (a group's start), that of the end of the head, whether the summary stays."""
        window, closing, sums, room = self.fitted.window, self.fitted.closing_tokens, least.sums, self.room
        base = self.fixed.total + self.fitted.current_tokens + window.header_tokens
        summary = window.summary_tokens if window.cut is None or window.cut.keeps_summary else 0
        shown = base + summary + window.lead_tokens + window.pinned_tokens + sums[-1] + closing
        if shown + (least.marker if window.cut else 0) <= ENOUGH * room:
            return 0, 0, True
        head = self._head(least)
        lead = window.lead_tokens + sums[head]
        never = base + least.marker + lead + window.pinned_tokens + self._pinned_before(least.last, head)
        last_tokens = sums[-1] - sums[least.last] + closing
        if head and never + last_tokens > room:
            head, never = 0, never - sums[head]
        keeps_summary = bool(summary) and never + summary + last_tokens <= room
        spent = never + (summary if keeps_summary else 0)
        free = room - spent
        low = max(int(LOW_MARK * room) - spent, int(self.site.floor * free))
        index = first_group_within(window, sums, low - closing)
        across = group_before(window, index)
        if sums[-1] - sums[across] + closing <= max(int(REACH * room) - spent, low):
            index = across
        recent = window.turns[-KEEP_RECENT_TURNS] if len(window.turns) >= KEEP_RECENT_TURNS else 0
        if sums[-1] - sums[recent] + closing <= free // 2:
            index = min(index, recent)
        index = min(index, least.last)
        return index, head if head < index else 0, keeps_summary

    def _head(self, least: _CutEstimates) -> int:
        """Where the head that stays in front ends: some whole groups, chosen once and never again."""
        window = self.fitted.window
        if self.site.strategy != "middle_out" or window.cut or (self.site.mark and self.site.mark.body):
            return 0
        most = bisect_right(least.sums, int(HEAD * self.room)) - 1
        return group_before(window, most + 1)

    def _cut(
        self,
        least: _CutEstimates,
        index: int,
        *,
        head: int = 0,
        keeps_summary: bool = False,
        asked: bool = True,
        task: bool = True,
    ) -> Cut:
        """The cut that keeps everything from message `index` on, and what stands before message `head`."""
        window, before, site = self.fitted.window, self.fitted.window.cut, self.site
        begin = window.row_of[index] if 0 < index < len(window.messages) else len(window.rows) if index else 0
        first = window.first if index == 0 else window.rows[begin].place if begin < len(window.rows) else None
        first = first or MessageRef(window.head + 1, 0)
        request = pending_request(self.fitted.window, index)
        lead = window.lead[0].place if window.lead else window.first
        until = window.rows[window.row_of[head]].place if head else before.head if before else None
        pins = merge_pins(*(pin for pin in window.pins if pin.kind != "asked"), *((request,) if request else ()))
        hidden = [pin for pin in pins if pin.place < first and not (until and lead <= pin.place < until)]
        hidden = [pin for pin in hidden if (task or pin.kind != "task") and (asked or pin.kind != "asked")]
        passed = begin + (before.passed if before else 0)
        gone = passed - self._staying(hidden, first) - (window.row_of[head] if head else len(window.lead))
        tokens = (
            window.sums[index] - window.sums[head] + window.pinned_tokens + (before.left_out_tokens if before else 0)
        )
        tokens = max(tokens - sum(pin.tokens(window.wire, window.images) for pin in hidden), 0)
        lost = bool(site.mark and site.mark.body) and not keeps_summary
        marker = omission_notice(site.session, max(gone, 0), tokens, summary=lost, pins=bool(hidden))
        stays = (keeps_summary or not window.summary_tokens, asked, task)
        was = (
            (before.keeps_summary or not window.summary_tokens, before.request, before.task) if before else (True,) * 3
        )
        if index == 0 and stays == was and gone == (before.left_out_messages if before else 0):
            marker = before.marker if before else ""
        return Cut(
            site.view,
            site.number,
            window.head,
            first,
            marker,
            max(gone, 0),
            tokens,
            least.plain_until,
            keeps_summary,
            clip_until=least.until,
            clip_tokens=least.tokens,
            asked=request.place if request else None,
            head=until,
            task=task,
            request=asked,
            passed=passed,
            images_until=least.images,
        )

    def _staying(self, hidden: list[Pinned], first: MessageRef) -> int:
        """How many of the messages before `first`, which are neither cleared nor summarised, stay as pins."""
        begin = visible_start(self.site.mark)
        return sum(begin <= row.place < first for pin in hidden for row in pin.rows)

    def _asked_at(self, place: MessageRef | None) -> tuple[Pinned, ...]:
        """The request at a place, from the pins or the rows."""
        window = self.fitted.window
        if place is None:
            return ()
        known = next((pin.rows for pin in window.pins if pin.place == place), ())
        rows = known or tuple(row for row in window.rows if row.place == place)
        return (Pinned(place, rows, window.limits.max_tokens, "asked"),) if rows else ()

    def _pinned_before(self, index: int, head: int) -> int:
        """Tokens of the pins among the messages shown, after the head, that a cut at message `index` would hide."""
        window = self.fitted.window
        place = window.rows[max(window.row_of[index], 0)].place if index < len(window.messages) else None
        begin = window.rows[window.row_of[head]].place if head else window.first
        request = pending_request(self.fitted.window, index)
        pins = merge_pins(*(pin for pin in window.pins if pin.place >= begin), *((request,) if request else ()))
        return sum(pin.tokens(window.wire, window.images) for pin in pins if place is None or pin.place < place)
