"""Estimates for a cut: token sums under other limits, savings by image notes, groups that fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from nexus.assembly.fit.pins import FRAME_TOKENS
from nexus.assembly.fit.truncate_results import freed_tokens
from nexus.assembly.fit.window import Window

LEAST_IMAGES = 0.10
"""Images are replaced by notes without another reason for a cut if that frees this share of the available tokens."""


KEEP_RECENT_TURNS = 3
"""Turns that a cut keeps whole if they fit in half of the free tokens."""


@dataclass(frozen=True, slots=True)
class CutEstimates:
    """The figures that every choice of a cut starts from."""

    clip_until: int
    """Last entry whose results are truncated to `clip_tokens`."""

    clip_tokens: int
    plain_until: int
    """Last entry that loses thinking and memory notes."""

    sums: list[int]
    """Upper bound of cumulative tokens under these limits."""

    last_group: int
    """Index of the first message of the last group."""

    notice_tokens: int
    """Upper bound of the omission notice."""

    images_until: int
    """Last entry whose images become notes."""

    current_tokens: int = 0
    """Base tokens of the event, its results within their limit."""

    result_tokens: int = 0
    """The part of these that results take."""

    turn_tokens: int = 0
    """Room for excerpts of user turns."""

    most_turn_tokens: int = 0
    """Room for the smallest excerpts of all user turns, before some of them leave for good."""

    closing_tokens: int = 0
    """Further room for excerpts of closing texts."""

    digest_tokens: int = 0
    """Room for excerpts and digest together."""


def strip_thinking_until_seq(window: Window, *, answers: bool) -> int:
    """Return the seq up to which a cut removes thinking and memory notes: the head, or the start of the open turn.

    `answers` means that the event answers tool calls. Providers require the thinking of the open tool loop unchanged;
    older signatures belong to a prefix that the cut changes.
    """
    if not answers or not window.messages:
        return window.head
    start = window.indexes.turns[-1] if window.indexes.turns else 0
    return window.rows[max(window.indexes.row_of[start], 0)].ref.seq - 1


def projected_sums(window: Window, until: int, tokens: int, plain_until: int, images: int = 0) -> list[int]:
    """Return an upper bound of cumulative tokens after truncation and removal of thinking and memory notes.

    Results in entries up to `until` are limited to `tokens`. Thinking and memory notes go in entries up to `plain_until`.
    Images in entries up to `images` count as notes, all others as images, whatever the current cut made of them.
    """
    sums = [0]
    total = 0
    rules = window.rules
    reductions = window.reductions
    max_tokens = rules.limits.max_tokens
    new_tokens = rules.limits.new_tokens
    for index, message in enumerate(window.messages):
        size = window.sums[index + 1] - window.sums[index]
        if window.indexes.row_of[index] < 0:
            total += size
            sums.append(total)
            continue
        row = window.rows[window.indexes.row_of[index]]
        place = row.ref
        seq = place.seq
        if window.optional_tokens[index] and seq <= plain_until:
            size -= window.optional_tokens[index]
        has_notes = seq <= rules.limits.images and place not in rules.keeps_images
        is_limited = message.role == "tool" and max_tokens > 0 and place not in rules.verbatim
        if has_notes or is_limited:
            size += reductions.tokens_cut.get(place, 0)
        if seq <= images and place not in rules.keeps_images:
            size -= freed_tokens(row.message if has_notes else message, rules.images)
        if is_limited:
            limit = tokens if seq <= until else new_tokens
            if limit and size > limit:
                if seq <= until:
                    image_tokens = 0
                else:
                    image_tokens = rules.images.tokens_in(message)
                size = min(size, len(message.parts) * (limit + FRAME_TOKENS) + image_tokens)
        total += size
        sums.append(total)
    return sums


def image_notes_until(window: Window, turns: int) -> int:
    """Return the seq up to which images may become notes: everything before the newest `turns` turns (0: nothing).

    It is never less than in the current cut.
    """
    current = window.rules.limits.images
    savings = window.reductions.image_savings
    if not turns or len(window.indexes.turns) <= turns or not savings:
        return current
    index = window.indexes.turns[-turns]
    if savings[0][0] >= index:
        return current
    return max(window.row_at(index).ref.seq - 1, current)


def image_eviction_pays_off(window: Window, until: int, available: int, *, rewrites_prefix: bool) -> bool:
    """Return True if images up to entry `until` should become notes without another reason for a cut.

    They should if the provider processes the whole prompt again in any case (`rewrites_prefix`). Otherwise they must free
    a tenth of the available tokens, and at least as many tokens as the provider then processes again: with cached tokens
    at a tenth of the price and cache writes at five quarters, a dozen calls pay that back.
    """
    savings = window.reductions.image_savings
    gain = 0
    for index, tokens in savings:
        if window.rows[window.indexes.row_of[index]].ref.seq > until:
            break
        gain += tokens
    if rewrites_prefix:
        return gain > 0
    if gain < max(LEAST_IMAGES * available, 1):
        return False
    first_image, _ = savings[0]
    # A cut removes thinking and memory notes too, so the prefix may change before the first image.
    changed = next((index for index, tokens in enumerate(window.optional_tokens[:first_image]) if tokens), first_image)
    return gain >= window.sums[-1] - window.sums[changed] - gain


def first_group_within(window: Window, sums: Sequence[int], tokens: int) -> int:
    """Return the start of the oldest group from which everything fits in `tokens`; past the end if none fits."""
    if tokens <= 0:
        return len(window.messages)
    earliest = bisect_left(sums, sums[-1] - tokens)
    position = bisect_left(window.indexes.groups, earliest)
    if position < len(window.indexes.groups):
        return window.indexes.groups[position]
    return len(window.messages)


def last_aged_seq(window: Window, fresh_index: int, fresh_seq: int) -> int:
    """Return the seq of the last entry whose results are not fresh: a reply is stored in the entry of results before it."""
    for index in range(fresh_index, len(window.messages)):
        row = window.row_at(index)
        if row.ref.seq != fresh_seq:
            break
        if any(row.message.results()):
            return fresh_seq - 1
    return fresh_seq


def group_before(window: Window, index: int) -> int:
    """Return the start of the group that ends at message `index`; 0 if there is none."""
    position = bisect_left(window.indexes.groups, index)
    if position:
        return window.indexes.groups[position - 1]
    return 0


def recent_turns_start(window: Window) -> int:
    """Return the index of the message that starts the newest `KEEP_RECENT_TURNS` turns; 0 if there are fewer."""
    if len(window.indexes.turns) >= KEEP_RECENT_TURNS:
        return window.indexes.turns[-KEEP_RECENT_TURNS]
    return 0
