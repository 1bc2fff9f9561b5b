"""Cuts: how a history that exceeds the budget is truncated, in one decision.

A cut first shortens tool results, then omits the oldest groups. It fires when the budget is full and goes down to 40 %
of it, or to 55 % if one group lies across that point, so that the prefix then stays the same for a while. The command
`python -m benchmarks prefix` measures these shares. Images of older turns become notes where the profile wants that, and
results that are not among the newest are shortened first; if this is enough, no message is omitted.

The decision is a value in the context, deterministic in the head, the view and the budget. Recording the turn stores it.
System prompt, tools, current event, last group and pins are never cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from msgspec import Struct, structs

from nexus.assembly.fit.cut_pins import (
    excerpt_pins,
    lasting_pins,
    opening_pins_tokens,
    pending_request,
    pin_places,
    request_at,
    reserved_places,
)
from nexus.assembly.fit.digest import UNLIMITED, digest_pins, grow_digest
from nexus.assembly.fit.excerpts import (
    EXCERPT_TOKENS,
    MOST_WITHHELD,
    Excerpts,
    add_closing_texts,
    choose_user_turns,
    last_excerpt,
    lost_turns,
    turn_places,
)
from nexus.assembly.fit.omission_notice import omission_notice, omission_notice_tokens
from nexus.assembly.fit.pins import Pinned, merge_pins
from nexus.assembly.fit.request_images import request_images
from nexus.assembly.fit.result import FitResult, FixedTokens, fixed_parts, total_tokens, with_event
from nexus.assembly.fit.token_sums import (
    CutEstimates,
    first_group_within,
    group_before,
    image_eviction_pays_off,
    image_notes_until,
    last_aged_seq,
    projected_sums,
    recent_turns_start,
    strip_thinking_until_seq,
)
from nexus.assembly.fit.truncate_results import LEAST_TOKENS, limit_within, result_tokens
from nexus.assembly.fit.window import Window
from nexus.errors import BudgetTooSmall
from nexus.ledger.replay import visible_start
from nexus.tokens.counter import TokenCounter
from nexus.types.ledger_entries import Cut, DigestChunk, Entry, MessageRef
from nexus.types.message import Message, is_program_output
from nexus.types.settings import Strategy

KEEP_USER_TURNS: frozenset[Strategy] = frozenset({"keep_user_turns", "digest"})

LOW_MARK = 0.40
"""A cut goes down to this share of the available tokens."""

LEAST_HISTORY = 0.20
"""Share that a cut keeps of the tokens that system prompt, tools and event leave, if they leave little."""

REACH = 0.55
"""The group across the low mark is kept while everything stays under this share."""

NEWEST_RESULTS = 0.25
"""Tool results within the newest 25 % of the budget are never truncated."""

AGED_PARTS = (2, 4, 8)
"""Older results are limited to one of these parts of the usual limit: the mildest that is enough."""

LEAST_GAIN = 0.05
"""Older results are truncated only if that frees at least this share of the available tokens."""

ENOUGH = 0.50
"""No message is omitted if truncated results bring everything under this share."""

HIGH_MARK = 0.60
"""Excerpts of user turns may lift what a cut leaves above the low mark, up to this share."""

TAIL_REACH = 0.45
"""With `keep_user_turns`, the group across the low mark is kept while everything but excerpts stays under this share."""

TRUNCATED_RESULT = 0.75
"""A new result that is too large gets this share of the room that a whole one could take, so that messages may follow."""

DIGEST_SHARE = 0.20
"""Share of the available tokens that excerpts and digest may take together."""

HEAD = 0.30
"""Share of the available tokens that `middle_out` keeps in front of the omission notice."""


_NO_CUT = Cut("", 0, 0, MessageRef(0, 0), "", 0, 0, 0)
"""Stands for the cut of a window without one: it omits nothing."""


class CutContext(Struct, frozen=True):
    """The conditions of a cut, besides the window and the budget."""

    session: str
    view: str

    number: int
    """Number of the view's next cut."""

    mark: Entry | None
    """The newest clear or the current compaction."""

    strategy: Strategy = "keep_user_turns"

    floor: float = LEAST_HISTORY
    """Share that a cut keeps of the tokens that system prompt, tools and event leave."""

    ceiling: float = 1.0
    """Share of the available tokens that the history may take."""

    image_turns: int = 0
    """Number of the newest turns that keep their images; 0 is unlimited."""

    keeps_fitting: bool = False
    """True if a history that fits is shown as it is, such as a caller's own list."""

    rewrites_prefix: bool = False
    """True if the provider has none of the history in its cache."""


def fit(
    uncut_result: FitResult,
    available: int,
    fixed: FixedTokens,
    context: CutContext,
    counter: TokenCounter,
    event: tuple[Message, ...],
) -> FitResult:
    """Return the whole window with its event, or after one cut, so that all takes at most `available` base tokens.

    If everything fits, old images may still become notes, by a cut that omits no message. Raises BudgetTooSmall.
    """
    window = uncut_result.window
    total = total_tokens(uncut_result, fixed)
    history = window.tokens + uncut_result.closing_tokens
    limit = total - history + int(context.ceiling * available)

    def cutter(limit_tokens: int) -> _Cutter:
        return _Cutter(uncut_result, limit_tokens, fixed, context, counter, event)

    result = uncut_result
    if total > min(available, limit):
        try:
            result = cutter(min(available, limit)).fit()
        except BudgetTooSmall:
            if limit >= available:
                raise
            # The parts that are never cut take precedence over a ceiling.
            if total > available:
                result = cutter(available).fit()
    elif not context.keeps_fitting:
        until = image_notes_until(window, context.image_turns)
        if until > window.rules.limits.images and image_eviction_pays_off(
            window, until, available, rewrites_prefix=context.rewrites_prefix
        ):
            noted = cutter(available).with_image_notes(until)
            if total_tokens(noted, fixed) < total:
                result = noted
    return structs.replace(result, whole_tokens=total, images=request_images(result.window, result.visible))


@dataclass(frozen=True, slots=True)
class _Cutter:
    """One decision about a window that exceeds its budget."""

    before: FitResult
    available: int
    fixed: FixedTokens
    context: CutContext
    counter: TokenCounter
    event: tuple[Message, ...]

    @property
    def window(self) -> Window:
        """The window before the cut."""
        return self.before.window

    @property
    def previous(self) -> Cut:
        """The window's current cut, or one that omits nothing."""
        return self.window.cut or _NO_CUT

    @property
    def _answers_calls(self) -> bool:
        return any(message.role == "tool" or is_program_output(message) for message in self.event)

    @property
    def _has_summary(self) -> bool:
        return self.context.mark is not None and bool(self.context.mark.body)

    @property
    def _has_excerpts(self) -> bool:
        return self.context.strategy in KEEP_USER_TURNS

    def fit(self) -> FitResult:
        """Return the result of the first choice that fits, from the usual one to the last resort.

        Raises BudgetTooSmall.
        """
        result = self.before
        cuts = self._choices()
        if not self._answers_calls and self.fixed.total + result.current_tokens > self.available:
            # No cut makes room for the user's words: the last one has the least besides them.
            cuts = deque(cuts, maxlen=1)
        for cut in cuts:
            result = self._after(cut)
            if total_tokens(result, self.fixed) <= self.available:
                return result
        parts = fixed_parts(result, self.fixed, self.counter)
        raise BudgetTooSmall(self.available, sum(parts.values()), parts)

    def with_image_notes(self, until: int) -> FitResult:
        """Return the result when images up to entry `until` are notes and the current cut stays the same otherwise."""
        window = self.window
        current = window.cut
        if current is None:  # a compaction's request and excerpts stay
            pins = window.opening.pins
            excerpt_limits = [pin.limit for pin in pins if pin.kind == "excerpt"]
            current = structs.replace(
                _NO_CUT,
                view=self.context.view,
                first=window.first,
                pending_request_ref=window.opening.pending_request,
                excerpts=pin_places(pins, "excerpt"),
                excerpt_tokens=excerpt_limits[0] if excerpt_limits else 0,
                unshown_turns=window.opening.unshown_turns,
                withheld_turns=pin_places(pins, "withheld"),
                instructions=pin_places(pins, "instruction"),
            )
        return self._after(
            structs.replace(
                current,
                number=self.context.number,
                at_seq=window.head,
                images_until_seq=until,
                reason="old images",
                strip_thinking_until_seq=self._plain_until(),
            )
        )

    def _plain_until(self) -> int:
        return strip_thinking_until_seq(self.window, answers=self._answers_calls)

    def _after(self, cut: Cut) -> FitResult:
        request = request_at(self.window, cut.pending_request_ref)
        excerpts = [*excerpt_pins(self.window, cut), *digest_pins(cut.digest, self.counter)]
        pins = merge_pins(*lasting_pins(self.window), *request, *excerpts)
        window = self.window.after_cut(cut, self.context.mark, self.counter, pins)
        return with_event(window, self.event, self.counter, cut)

    def _choices(self) -> Iterator[Cut]:
        """Yield the cuts to try.

        The usual one; the last group alone; with shorter and shorter results; the last group as an excerpt, if the event
        does not answer it; without the pending request, without the first user message, without both; the event with the
        first user message; the event alone.
        """
        window = self.window
        estimates = self._estimates()
        last = estimates.last_group
        index, head, keeps_summary, estimates = self._usual(estimates)
        yield self._cut(estimates, index, head=head, keeps_summary=keeps_summary)
        yield self._cut(estimates, last)
        limit = window.rules.limits.max_tokens
        if estimates.clip_until > window.head:
            limit = estimates.clip_tokens
        for part in (1, 2):  # the smallest excerpts of all turns, then of the newest
            most = estimates.most_turn_tokens // part
            yield self._cut(replace(estimates, turn_tokens=0, most_turn_tokens=most, closing_tokens=0), last)
        estimates = replace(estimates, turn_tokens=0, most_turn_tokens=0, closing_tokens=0, digest_tokens=0)
        yield self._cut(estimates, last)
        while limit > LEAST_TOKENS or (limit and estimates.clip_until <= window.head):
            limit = max(limit // 2, LEAST_TOKENS)
            estimates = replace(estimates, clip_until=window.head + 1, clip_tokens=limit)
            yield self._cut(estimates, last)
        after_last = len(window.messages)
        may_go = not window.fold.waiting and not self._answers_calls
        if may_go:  # a last answer that is too large becomes an excerpt
            for tokens in EXCERPT_TOKENS[:3]:
                yield self._cut(replace(estimates, turn_tokens=tokens), after_last)
        yield self._cut(estimates, last, shows_request=False)
        yield self._cut(estimates, last, shows_task=False)
        yield self._cut(estimates, last, shows_request=False, shows_task=False)
        if may_go:
            yield self._cut(estimates, after_last)
            yield self._cut(estimates, after_last, shows_task=False)

    def _estimates(self) -> CutEstimates:
        """Choose the results to truncate, and estimate what every message then takes."""
        window = self.window
        limits = window.rules.limits
        available = self.available
        plain_until = self._plain_until()
        images_until = image_notes_until(window, self.context.image_turns)
        clip_until = limits.until
        clip_tokens = limits.tokens
        sums = projected_sums(window, clip_until, clip_tokens, plain_until, images_until)
        fresh_index = first_group_within(window, sums, int(NEWEST_RESULTS * available))
        fresh_seq = window.head + 1
        if fresh_index < len(window.messages):
            fresh_seq = window.row_at(fresh_index).ref.seq
        if limits.whole_new:
            clip_until = last_aged_seq(window, fresh_index, fresh_seq)
            clip_tokens = limits.max_tokens
            sums = projected_sums(window, clip_until, clip_tokens, plain_until, images_until)
        rest = total_tokens(self.before, self.fixed) - window.sums[-1]
        notes_are_enough = images_until > limits.images and rest + sums[-1] <= ENOUGH * available
        if limits.max_tokens and not (notes_are_enough or limits.whole_new):
            unaged = sums[-1]
            for part in AGED_PARTS:
                limit = max(limits.max_tokens // part, LEAST_TOKENS)
                shorter = projected_sums(window, fresh_seq - 1, limit, plain_until, images_until)
                if unaged - shorter[-1] >= LEAST_GAIN * available:
                    clip_until = fresh_seq - 1
                    clip_tokens = limit
                    sums = shorter
                    if rest + shorter[-1] <= ENOUGH * available:
                        break
        estimates = CutEstimates(
            clip_until,
            clip_tokens,
            plain_until,
            sums,
            last_group=window.indexes.groups[-1] if window.indexes.groups else 0,
            notice_tokens=self._notice_tokens() + window.rules.path_format.framing_tokens,
            images_until=images_until,
            current_tokens=self.before.current_tokens,
            result_tokens=sum(self._result_sizes()),
        )
        if limits.whole_new:
            return self._with_event_limit(estimates)
        return estimates

    def _notice_tokens(self) -> int:
        """Return an upper bound of the base tokens of the cut's omission notice."""
        window = self.window
        return omission_notice_tokens(
            self.context.session,
            len(window.rows) + len(window.opening.lead) + self.previous.preceding_messages,
            window.sums[-1] + window.opening.tokens + self.previous.omitted_tokens,
            summary=self._has_summary,
            lookup=window.rules.lookup,
            wire=window.rules.wire,
            counter=self.counter,
        )

    def _with_event_limit(self, estimates: CutEstimates) -> CutEstimates:
        """Return the estimates with a limit of the event's results if they do not fit whole beside what is never cut.

        The room grows with the budget, and a result that is one token too large still shows more than half of it.
        """
        window = self.window
        results = self._result_sizes()
        rest = max(self.before.current_tokens - sum(results), 0)
        free = self.available - self.fixed.total - rest - window.opening.header_tokens
        last_tokens = estimates.sums[-1] - estimates.sums[estimates.last_group] + self.before.closing_tokens
        excerpts = choose_user_turns(
            window, estimates.last_group, UNLIMITED, reserved_places(window, estimates.last_group), self.counter
        )
        never_cut = opening_pins_tokens(window, estimates.last_group) + estimates.notice_tokens + last_tokens
        room = free - never_cut - min(excerpts.tokens, free // 2)
        if not results or sum(results) <= room:
            return estimates
        limit = max(limit_within(results, int(TRUNCATED_RESULT * room)), LEAST_TOKENS)
        result_total = sum(min(size, limit) for size in results)
        sums = projected_sums(window, window.head + 1, limit, estimates.plain_until, estimates.images_until)
        return replace(
            estimates,
            clip_until=window.head + 1,
            clip_tokens=limit,
            sums=sums,
            current_tokens=rest + result_total,
            result_tokens=result_total,
        )

    def _result_sizes(self) -> list[int]:
        return [tokens for message in self.event for tokens in result_tokens(message, self.counter)]

    def _usual(self, estimates: CutEstimates) -> tuple[int, int, bool, CutEstimates]:
        """Return the first message to keep (a group's start), the end of the head, and whether the summary stays.

        Last come the estimates, with the room for excerpts.
        """
        window = self.window
        opening = window.opening
        sums = estimates.sums
        available = self.available
        closing = self.before.closing_tokens
        base = self.fixed.total + estimates.current_tokens + opening.header_tokens
        summary = opening.summary_tokens if self.previous.keeps_summary else 0
        visible = base + summary + opening.lead_tokens + opening.pinned_tokens + sums[-1] + closing
        if window.cut:
            visible += estimates.notice_tokens
        if visible <= ENOUGH * available:
            return 0, 0, True, replace(estimates, turn_tokens=available)
        head = self._head(estimates)
        never_cut = base + estimates.notice_tokens + opening.lead_tokens + sums[head]
        never_cut += opening_pins_tokens(window, estimates.last_group, head)
        last_tokens = sums[-1] - sums[estimates.last_group] + closing
        if head and never_cut + last_tokens > available:
            never_cut -= sums[head]
            head = 0
        keeps_summary = bool(summary) and never_cut + summary + last_tokens <= available
        spent = never_cut + summary if keeps_summary else never_cut
        free = available - spent
        target = max(int(LOW_MARK * available) - spent, int(self.context.floor * free))
        reach = int(REACH * available) - spent
        turn_tokens = 0
        if self._has_excerpts:
            highest = max(int(HIGH_MARK * available) - spent, free // 2, target)
            room = max(min((available - base) // 2, highest - last_tokens), 0)
            most = max(min((available - base + estimates.result_tokens) // 2, free - last_tokens), 0)
            reserved = reserved_places(window, estimates.last_group)
            excerpts = choose_user_turns(window, estimates.last_group, room, reserved, self.counter, most=most)
            turn_tokens = excerpts.tokens
            estimates = replace(estimates, turn_tokens=room, most_turn_tokens=most)
            target = min(target, highest - turn_tokens)
            reach = min(int(TAIL_REACH * available) - spent, highest - turn_tokens)
        index = first_group_within(window, sums, target - closing)
        across = group_before(window, index)
        if sums[-1] - sums[across] + closing <= max(reach, target):
            index = across
        if self._has_excerpts:
            index = min(index, estimates.last_group)
            spare = int(LOW_MARK * available) - spent - turn_tokens - (sums[-1] - sums[index] + closing)
            digest_tokens = 0
            if self.context.strategy == "digest":
                digest_tokens = min(int(DIGEST_SHARE * available), free // 4)
            estimates = replace(estimates, closing_tokens=max(spare, 0), digest_tokens=digest_tokens)
            return index, 0, keeps_summary, estimates
        recent = recent_turns_start(window)
        if sums[-1] - sums[recent] + closing <= free // 2:
            index = min(index, recent)
        index = min(index, estimates.last_group)
        return index, head if head < index else 0, keeps_summary, estimates

    def _head(self, estimates: CutEstimates) -> int:
        """Return the end of the head that stays in front. It is chosen once, by the first cut, and never changes."""
        if self.context.strategy != "middle_out" or self.window.cut or self._has_summary:
            return 0
        end = bisect_right(estimates.sums, int(HEAD * self.available)) - 1
        return group_before(self.window, end + 1)

    def _cut(
        self,
        estimates: CutEstimates,
        index: int,
        *,
        head: int = 0,
        keeps_summary: bool = False,
        shows_request: bool = True,
        shows_task: bool = True,
    ) -> Cut:
        """Return the cut that keeps everything from message `index` on, and everything before message `head`."""
        window = self.window
        context = self.context
        opening = window.opening
        previous = self.previous
        begin, first = self._start(index)
        head_end = window.row_at(head).ref if head else previous.head
        request = pending_request(window, index)
        note = self._excerpts(index, estimates, shows_request=shows_request, shows_task=shows_task)
        chunks = self._digest(index, estimates, note.tokens)
        pins = lasting_pins(window)
        if request is not None:
            pins.append(request)
        pins += [*note.pins, *digest_pins(chunks, self.counter)]
        shows = {"asked": shows_request, "task": shows_task}
        hidden = [pin for pin in self._hidden_pins(pins, first, head_end) if shows.get(pin.kind, True)]

        stored_rows = [row for pin in hidden if pin.kind != "digest" for row in pin.rows]
        hidden_turns = note.hidden_turns({row.ref for row in stored_rows})
        unshown = lost_turns(window) + len(hidden_turns)
        passed = begin + previous.preceding_messages
        visible_from = visible_start(context.mark)
        pinned = sum(visible_from <= row.ref < first for row in stored_rows)
        omitted = passed - pinned - (window.indexes.row_of[head] if head else len(opening.lead))
        tokens = window.sums[index] - window.sums[head] + opening.pinned_tokens + previous.omitted_tokens
        tokens -= sum(pin.tokens(window.rules.wire, window.rules.images) for pin in hidden)
        tokens = max(tokens, 0)
        notice = omission_notice(
            context.session,
            max(omitted, 0),
            tokens,
            lookup=window.rules.lookup,
            summary=self._has_summary and not keeps_summary,
            pins=bool(hidden),
            excerpts=note.has_user_turns(),
            unshown=unshown,
        )
        shows_after = (keeps_summary or not opening.summary_tokens, shows_request, shows_task)
        if index == 0 and shows_after == self._shows_now() and omitted == previous.omitted_messages:
            # Nothing more is omitted than before, so the old notice stays and the prefix with it.
            notice = previous.omission_notice
        return Cut(
            context.view,
            context.number,
            at_seq=window.head,
            first=first,
            omission_notice=notice,
            omitted_messages=max(omitted, 0),
            omitted_tokens=tokens,
            strip_thinking_until_seq=estimates.plain_until,
            keeps_summary=keeps_summary,
            truncate_until_seq=estimates.clip_until,
            max_result_tokens=estimates.clip_tokens,
            pending_request_ref=request.place if request else None,
            head=head_end,
            shows_first_message=shows_task,
            shows_pending_request=shows_request,
            preceding_messages=passed,
            images_until_seq=estimates.images_until,
            excerpts=pin_places(note.pins, "excerpt"),
            excerpt_tokens=note.limit,
            unshown_turns=unshown,
            withheld_turns=hidden_turns[-MOST_WITHHELD:],
            instructions=pin_places(hidden, "instruction"),
            digest=chunks,
        )

    def _start(self, index: int) -> tuple[int, MessageRef]:
        """Return the index and the position of the first row that a cut at message `index` keeps."""
        window = self.window
        if index == 0:
            return 0, window.first
        if index == len(window.messages):
            return len(window.rows), MessageRef(window.head + 1, 0)
        begin = window.indexes.row_of[index]
        return begin, window.rows[begin].ref

    def _hidden_pins(self, pins: Iterable[Pinned], first: MessageRef, head_end: MessageRef | None) -> Iterator[Pinned]:
        """Yield the pins before the first row that stays, without those in the head, each group once."""
        lead = self.window.opening.lead
        head_start = lead[0].ref if lead else self.window.first
        for pin in merge_pins(*pins):
            is_in_head = head_end is not None and head_start <= pin.place < head_end
            if pin.place < first and not is_in_head:
                yield pin

    def _digest(self, index: int, estimates: CutEstimates, excerpt_tokens: int) -> tuple[DigestChunk, ...]:
        """Return the digest of a cut at message `index`, in the tokens that the excerpts leave of their limit."""
        window = self.window
        if self.context.strategy != "digest" or not estimates.digest_tokens or index == len(window.messages):
            return ()
        if index == 0:
            return self.previous.digest
        reserved = {row.ref for pin in lasting_pins(window) for row in pin.rows}
        limit = max(estimates.digest_tokens - excerpt_tokens, 0)
        escape = window.rules.path_format.late_text
        return grow_digest(window, index, self.available, limit, self.counter, reserved, escape)

    def _shows_now(self) -> tuple[bool, bool, bool]:
        """Return whether summary, pending request and first message are shown before the cut."""
        previous = self.previous
        keeps_summary = previous.keeps_summary or not self.window.opening.summary_tokens
        return keeps_summary, previous.shows_pending_request, previous.shows_first_message

    def _excerpts(self, index: int, estimates: CutEstimates, *, shows_request: bool, shows_task: bool) -> Excerpts:
        """Return the excerpts of a cut at message `index`: the current ones where it omits nothing more."""
        window = self.window
        omits_all = index == len(window.messages)
        if not self._has_excerpts:
            if not omits_all:
                return Excerpts()
            excerpts = last_excerpt(window, estimates.turn_tokens, reserved_places(window, index))
            return structs.replace(excerpts, turns=frozenset())
        if index == 0 and (estimates.turn_tokens or estimates.most_turn_tokens):
            pins = tuple(pin for pin in window.opening.pins if pin.kind == "excerpt")
            tokens = sum(pin.tokens(window.rules.wire) for pin in pins)
            return Excerpts(pins, pins[0].limit if pins else 0, tokens, turn_places(window, 0))
        reserved = reserved_places(window, index, shows_request=shows_request, shows_task=shows_task)
        if omits_all:
            return last_excerpt(window, estimates.turn_tokens, reserved)
        excerpts = choose_user_turns(
            window, index, estimates.turn_tokens, reserved, self.counter, most=estimates.most_turn_tokens
        )
        return add_closing_texts(excerpts, window, index, estimates.closing_tokens, self.counter)
