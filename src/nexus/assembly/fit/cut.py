"""Cuts: how a history that exceeds the budget is truncated, in one decision.

A cut first shortens tool results, then omits the oldest groups. It fires when the budget is full and goes down to 40 %
of it, or to 55 % if one group lies across that point, so that the prefix then stays the same for a while. The command
`python -m benchmarks prefix` measures these shares. Images of older turns become notes where the profile wants that, and
results that are not among the newest are shortened first; if this is enough, no message is omitted.

The decision is a value in the context, deterministic in the head, the view and the budget. Recording the turn stores it.
System prompt, tools, current event, last group and pins are never cut.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec import Struct, structs

from nexus.assembly.fit.cut_pins import (
    excerpt_pins,
    lasting_pins,
    opening_pins_tokens,
    pending_request,
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
from nexus.assembly.fit.instructions import has_tools, is_instruction
from nexus.assembly.fit.omission_notice import omission_notice, omission_notice_tokens
from nexus.assembly.fit.pins import merge_pins
from nexus.assembly.fit.request_images import request_images
from nexus.assembly.fit.result import FitResult, FixedTokens, total_tokens, with_event
from nexus.assembly.fit.token_sums import (
    CutEstimates,
    first_group_within,
    group_before,
    image_eviction_pays_off,
    image_notes_until,
    projected_sums,
    recent_turns_start,
    strip_thinking_until_seq,
)
from nexus.assembly.fit.truncate import LEAST_TOKENS, limit_within, result_tokens
from nexus.assembly.fit.window import Window
from nexus.errors import BudgetTooSmall
from nexus.ledger.replay import visible_start
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.ledger_entries import Cut, DigestChunk, Entry, MessageRef
from nexus.types.message import Message
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
    result, window = uncut_result, uncut_result.window
    total = total_tokens(result, fixed)
    history = window.tokens + result.closing_tokens
    limit = total - history + int(context.ceiling * available)
    if total > min(available, limit):
        try:
            result = _Cutter(result, min(available, limit), fixed, context, counter, event).fit()
        except BudgetTooSmall:
            if limit >= available:
                raise
            # The parts that are never cut take precedence over a ceiling.
            if total > available:
                result = _Cutter(result, available, fixed, context, counter, event).fit()
    elif not context.keeps_fitting:
        until = image_notes_until(window, context.image_turns)
        if until > window.rules.limits.images and image_eviction_pays_off(
            window, until, available, rewrites_prefix=context.rewrites_prefix
        ):
            noted = _Cutter(result, available, fixed, context, counter, event).with_image_notes(until)
            result = noted if total_tokens(noted, fixed) < total else result
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

    def fit(self) -> FitResult:
        """Return the result of the first choice that fits, from the usual one to the last resort.

        Raises BudgetTooSmall.
        """
        result, cuts = self.before, self._choices()
        if self.fixed.total + result.current_tokens > self.available and not any(m.role == "tool" for m in self.event):
            cuts = deque(
                cuts, maxlen=1
            )  # no cut makes room for the user's words: the last one has the least besides them
        for cut in cuts:
            result = self._after(cut)
            if total_tokens(result, self.fixed) <= self.available:
                return result
        parts = self._fixed_parts(result)
        raise BudgetTooSmall(self.available, sum(parts.values()), parts)

    def _fixed_parts(self, result: FitResult) -> dict[str, int]:
        """Return the base tokens of the parts that no cut omits, by name."""
        window, opening, fixed = result.window, result.window.opening, self.fixed
        hidden = [pin for pin in window.hidden_pins() if pin.kind == "instruction"]
        heads = {"tools in the list": 0, "instructions in the list": 0}
        for message, tokens in (
            *((pin.rows[0].message, pin.tokens(window.rules.wire, window.rules.images)) for pin in hidden),
            *((each, message_tokens(each, self.counter).on(window.rules.wire)) for each in result.event),
        ):
            if is_instruction(message):
                heads["tools in the list" if has_tools(message) else "instructions in the list"] += tokens
        in_opening = min(
            sum(pin.tokens(window.rules.wire, window.rules.images) for pin in hidden), opening.pinned_tokens
        )
        in_event = min(sum(heads.values()) - in_opening, result.current_tokens)
        parts = {
            "system": fixed.system,
            "tools": fixed.tools,
            **{name: tokens for name, tokens in heads.items() if tokens},
            "current event": result.current_tokens - in_event,
            **({"blocks before the conversation": fixed.preamble} if fixed.preamble else {}),
            "last group": window.sums[-1] + result.closing_tokens,
            "omission notice": opening.tokens - opening.pinned_tokens,
        }
        if opening.pinned_tokens > in_opening:
            parts["pinned messages"] = opening.pinned_tokens - in_opening
        return parts

    def with_image_notes(self, until: int) -> FitResult:
        """Return the result when images up to entry `until` are notes and the current cut stays the same otherwise."""
        window, context = self.window, self.context
        excerpts = [pin for pin in window.opening.pins if pin.kind == "excerpt"]
        current = window.cut or Cut(  # a compaction's request and excerpts stay
            context.view,
            0,
            0,
            window.first,
            "",
            0,
            0,
            0,
            pending_request_ref=window.opening.pending_request,
            excerpts=tuple(pin.place for pin in excerpts),
            excerpt_tokens=excerpts[0].limit if excerpts else 0,
            unshown_turns=window.opening.unshown_turns,
            withheld_turns=tuple(pin.place for pin in window.opening.pins if pin.kind == "withheld"),
            instructions=tuple(pin.place for pin in window.opening.pins if pin.kind == "instruction"),
        )
        return self._after(
            structs.replace(
                current,
                number=context.number,
                at_seq=window.head,
                images_until_seq=until,
                reason="old images",
                strip_thinking_until_seq=self._plain_until(),
            )
        )

    def _plain_until(self) -> int:
        return strip_thinking_until_seq(self.window, answers=any(message.role == "tool" for message in self.event))

    def _after(self, cut: Cut) -> FitResult:
        request = request_at(self.window, cut.pending_request_ref)
        excerpts = [*excerpt_pins(self.window, cut), *digest_pins(cut.digest, self.counter)]
        window = self.window.after_cut(
            cut, self.context.mark, self.counter, merge_pins(*lasting_pins(self.window), *request, *excerpts)
        )
        return with_event(window, self.event, self.counter, cut)

    def _choices(self) -> Iterator[Cut]:
        """Yield the cuts to try.

        The usual one; the last group alone; with shorter and shorter results; the last group as an excerpt, if the event
        does not answer it; without the pending request, without the first user message, without both; the event with the
        first user message; the event alone.
        """
        estimates = self._estimates()
        window, limits, last = self.window, self.window.rules.limits, estimates.last_group
        index, head, keeps_summary, estimates = self._usual(estimates)
        yield self._cut(estimates, index, head=head, keeps_summary=keeps_summary)
        yield self._cut(estimates, last)
        limit = estimates.clip_tokens if estimates.clip_until > window.head else limits.max_tokens
        for part in (1, 2):  # the smallest excerpts of all turns, then of the newest
            smallest = replace(
                estimates, turn_tokens=0, most_turn_tokens=estimates.most_turn_tokens // part, closing_tokens=0
            )
            yield self._cut(smallest, last)
        estimates = replace(estimates, turn_tokens=0, most_turn_tokens=0, closing_tokens=0, digest_tokens=0)
        yield self._cut(estimates, last)
        while limit > LEAST_TOKENS or (limit and estimates.clip_until <= window.head):
            limit = max(limit // 2, LEAST_TOKENS)
            estimates = replace(estimates, clip_until=window.head + 1, clip_tokens=limit)
            yield self._cut(estimates, last)
        after_last = len(window.messages)
        may_go = not window.fold.waiting and not any(message.role == "tool" for message in self.event)
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
        window, rules, available = self.window, self.window.rules, self.available
        limits, plain_until = rules.limits, self._plain_until()
        images_until = image_notes_until(window, self.context.image_turns)
        clip_until, clip_tokens = limits.until, limits.tokens
        current = sums = projected_sums(window, clip_until, clip_tokens, plain_until, images_until)
        fresh_index = first_group_within(window, current, int(NEWEST_RESULTS * available))
        fresh_seq = window.row_at(fresh_index).ref.seq if fresh_index < len(window.messages) else window.head + 1
        if limits.whole_new:
            clip_until, clip_tokens = self._last_aged_seq(fresh_index, fresh_seq), limits.max_tokens
            current = sums = projected_sums(window, clip_until, clip_tokens, plain_until, images_until)
        rest = total_tokens(self.before, self.fixed) - window.sums[-1]
        notes_are_enough = images_until > limits.images and rest + current[-1] <= ENOUGH * available
        for part in AGED_PARTS if limits.max_tokens and not (notes_are_enough or limits.whole_new) else ():
            limit = max(limits.max_tokens // part, LEAST_TOKENS)
            shorter = projected_sums(window, fresh_seq - 1, limit, plain_until, images_until)
            if current[-1] - shorter[-1] >= LEAST_GAIN * available:
                clip_until, clip_tokens, sums = fresh_seq - 1, limit, shorter
                if rest + shorter[-1] <= ENOUGH * available:
                    break
        estimates = CutEstimates(
            clip_until,
            clip_tokens,
            plain_until,
            sums,
            window.groups[-1] if window.groups else 0,
            self._notice_tokens() + rules.path_format.framing_tokens,
            images_until,
            self.before.current_tokens,
            sum(self._result_sizes()),
        )
        return self._with_event_limit(estimates) if limits.whole_new else estimates

    def _last_aged_seq(self, fresh_index: int, fresh_seq: int) -> int:
        """Return the seq of the last entry whose results are not fresh: a reply is stored in the entry of results before it."""
        rows = itertools.takewhile(
            lambda row: row.ref.seq == fresh_seq, map(self.window.row_at, range(fresh_index, len(self.window.messages)))
        )
        return fresh_seq - any(any(row.message.results()) for row in rows)

    def _notice_tokens(self) -> int:
        """Return an upper bound of the base tokens of the cut's omission notice."""
        window, current = self.window, self.window.cut
        return omission_notice_tokens(
            self.context.session,
            len(window.rows) + len(window.opening.lead) + (current.preceding_messages if current else 0),
            window.sums[-1] + window.opening.tokens + (current.omitted_tokens if current else 0),
            summary=self.context.mark is not None and bool(self.context.mark.body),
            lookup=window.rules.lookup,
            wire=window.rules.wire,
            counter=self.counter,
        )

    def _with_event_limit(self, estimates: CutEstimates) -> CutEstimates:
        """Return the estimates with a limit of the event's results if they do not fit whole beside what is never cut.

        The room grows with the budget, and a result that is one token too large still shows more than half of it.
        """
        window, current, results = self.window, self.before.current_tokens, self._result_sizes()
        rest = max(current - sum(results), 0)
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

    @property
    def _has_excerpts(self) -> bool:
        return self.context.strategy in KEEP_USER_TURNS

    def _usual(self, estimates: CutEstimates) -> tuple[int, int, bool, CutEstimates]:
        """Return the first message to keep (a group's start), the end of the head, and whether the summary stays.

        Last come the estimates, with the room for excerpts.
        """
        window, opening, sums = self.window, self.window.opening, estimates.sums
        available, closing = self.available, self.before.closing_tokens
        base = self.fixed.total + estimates.current_tokens + opening.header_tokens
        summary = opening.summary_tokens if window.cut is None or window.cut.keeps_summary else 0
        visible = base + summary + opening.lead_tokens + opening.pinned_tokens + sums[-1] + closing
        if visible + (estimates.notice_tokens if window.cut else 0) <= ENOUGH * available:
            return 0, 0, True, replace(estimates, turn_tokens=available)
        head = self._head(estimates)
        lead_tokens = opening.lead_tokens + sums[head]
        never_cut = (
            base + estimates.notice_tokens + lead_tokens + opening_pins_tokens(window, estimates.last_group, head)
        )
        last_tokens = sums[-1] - sums[estimates.last_group] + closing
        if head and never_cut + last_tokens > available:
            head, never_cut = 0, never_cut - sums[head]
        keeps_summary = bool(summary) and never_cut + summary + last_tokens <= available
        spent = never_cut + (summary if keeps_summary else 0)
        free = available - spent
        target, reach = int(LOW_MARK * available) - spent, int(REACH * available) - spent
        target = max(target, int(self.context.floor * free))
        turn_tokens = 0
        if self._has_excerpts:
            highest = max(int(HIGH_MARK * available) - spent, free // 2, target)
            room = max(min((available - base) // 2, highest - last_tokens), 0)
            most = max(min((available - base + estimates.result_tokens) // 2, free - last_tokens), 0)
            reserved = reserved_places(window, estimates.last_group)
            turn_tokens = choose_user_turns(
                window, estimates.last_group, room, reserved, self.counter, most=most
            ).tokens
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
            digest_tokens = min(int(DIGEST_SHARE * available), free // 4) if self.context.strategy == "digest" else 0
            return (
                index,
                0,
                keeps_summary,
                replace(estimates, closing_tokens=max(spare, 0), digest_tokens=digest_tokens),
            )
        recent = recent_turns_start(window)
        if sums[-1] - sums[recent] + closing <= free // 2:
            index = min(index, recent)
        index = min(index, estimates.last_group)
        return index, head if head < index else 0, keeps_summary, estimates

    def _head(self, estimates: CutEstimates) -> int:
        """Return the end of the head that stays in front. It is chosen once, by the first cut, and never changes."""
        if self.context.strategy != "middle_out" or self.window.cut or (self.context.mark and self.context.mark.body):
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
        window, opening, current, context = self.window, self.window.opening, self.window.cut, self.context
        begin = window.row_of[index] if 0 < index < len(window.messages) else len(window.rows) if index else 0
        first = window.first
        if index:
            first = window.rows[begin].ref if begin < len(window.rows) else MessageRef(window.head + 1, 0)
        head_end = window.row_at(head).ref if head else current.head if current else None
        request, lead = pending_request(window, index), opening.lead
        note = self._excerpts(index, estimates, shows_request=shows_request, shows_task=shows_task)
        chunks = self._digest(index, estimates, note.tokens)
        lead_start = lead[0].ref if lead else window.first
        omitted_kinds = {kind for kind, is_shown in (("asked", shows_request), ("task", shows_task)) if not is_shown}
        hidden = [
            pin
            for pin in merge_pins(
                *lasting_pins(window), *((request,) if request else ()), *note.pins, *digest_pins(chunks, self.counter)
            )
            if pin.place < first
            and pin.kind not in omitted_kinds
            and not (head_end is not None and lead_start <= pin.place < head_end)
        ]
        passed = begin + (current.preceding_messages if current else 0)
        stored = [row for pin in hidden if pin.kind != "digest" for row in pin.rows]
        hidden_turns = note.hidden_turns({row.ref for row in stored})
        unshown = lost_turns(window) + len(hidden_turns)
        pinned = sum(visible_start(context.mark) <= row.ref < first for row in stored)
        omitted = passed - pinned - (window.row_of[head] if head else len(opening.lead))
        tokens = window.sums[index] - window.sums[head] + opening.pinned_tokens
        tokens += current.omitted_tokens if current else 0
        tokens = max(tokens - sum(pin.tokens(window.rules.wire, window.rules.images) for pin in hidden), 0)
        notice = omission_notice(
            context.session,
            max(omitted, 0),
            tokens,
            lookup=window.rules.lookup,
            summary=bool(context.mark and context.mark.body) and not keeps_summary,
            pins=bool(hidden),
            excerpts=any(row.message.role == "user" for pin in note.pins for row in pin.rows),
            unshown=unshown,
        )
        stays = (keeps_summary or not opening.summary_tokens, shows_request, shows_task)
        if index == 0 and stays == self._shows_now() and omitted == (current.omitted_messages if current else 0):
            # Nothing more is omitted than before, so the old notice stays and the prefix with it.
            notice = current.omission_notice if current else ""
        return Cut(
            context.view,
            context.number,
            window.head,
            first,
            notice,
            max(omitted, 0),
            tokens,
            estimates.plain_until,
            keeps_summary,
            truncate_until_seq=estimates.clip_until,
            max_result_tokens=estimates.clip_tokens,
            pending_request_ref=request.place if request else None,
            head=head_end,
            shows_first_message=shows_task,
            shows_pending_request=shows_request,
            preceding_messages=passed,
            images_until_seq=estimates.images_until,
            excerpts=tuple(pin.place for pin in note.pins),
            excerpt_tokens=note.limit,
            unshown_turns=unshown,
            withheld_turns=hidden_turns[-MOST_WITHHELD:],
            instructions=tuple(pin.place for pin in hidden if pin.kind == "instruction"),
            digest=chunks,
        )

    def _digest(self, index: int, estimates: CutEstimates, excerpt_tokens: int) -> tuple[DigestChunk, ...]:
        """Return the digest of a cut at message `index`, in the tokens that the excerpts leave of their limit."""
        window = self.window
        if self.context.strategy != "digest" or not estimates.digest_tokens or index == len(window.messages):
            return ()
        if index == 0:
            return window.cut.digest if window.cut is not None else ()
        reserved = {row.ref for pin in lasting_pins(window) for row in pin.rows}
        limit = max(estimates.digest_tokens - excerpt_tokens, 0)
        escape = window.rules.path_format.late_text
        return grow_digest(window, index, self.available, limit, self.counter, reserved, escape)

    def _shows_now(self) -> tuple[bool, bool, bool]:
        """Return whether summary, pending request and first message are shown before the cut."""
        current = self.window.cut
        if current is None:
            return True, True, True
        keeps_summary = current.keeps_summary or not self.window.opening.summary_tokens
        return keeps_summary, current.shows_pending_request, current.shows_first_message

    def _excerpts(self, index: int, estimates: CutEstimates, *, shows_request: bool, shows_task: bool) -> Excerpts:
        """Return the excerpts of a cut at message `index`: the current ones where it omits nothing more."""
        window = self.window
        if not self._has_excerpts:
            is_last = index == len(window.messages)
            excerpts = (
                last_excerpt(window, estimates.turn_tokens, reserved_places(window, index)) if is_last else Excerpts()
            )
            return structs.replace(excerpts, turns=frozenset())
        if index == 0 and (estimates.turn_tokens or estimates.most_turn_tokens):
            pins = tuple(pin for pin in window.opening.pins if pin.kind == "excerpt")
            tokens = sum(pin.tokens(window.rules.wire) for pin in pins)
            return Excerpts(pins, pins[0].limit if pins else 0, tokens, turn_places(window, 0))
        reserved = reserved_places(window, index, shows_request=shows_request, shows_task=shows_task)
        if index == len(window.messages):
            return last_excerpt(window, estimates.turn_tokens, reserved)
        excerpts = choose_user_turns(
            window, index, estimates.turn_tokens, reserved, self.counter, most=estimates.most_turn_tokens
        )
        return add_closing_texts(excerpts, window, index, estimates.closing_tokens, self.counter)
