"""What a choice of messages to leave out starts from: sums under other limits, images that may go, groups of a size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile

from nexus.assembly.fit.images import freed_tokens
from nexus.assembly.fit.pins import FRAME_TOKENS
from nexus.assembly.fit.window import Window

LEAST_IMAGES = 0.10
"""Images become notes by themselves, without a cut for another reason, where that frees this share of the room."""


def strip_thinking_until_seq(window: Window, *, answers: bool) -> int:
    """Up to where messages lose thinking and memory notes at a cut: the head, or before the turn that is still open.

    A provider wants the thinking of the tool loop that is going on back as it was; older signatures belong to a prefix
    that the cut changes.
    """
    if not answers or not window.messages:
        return window.head
    start = window.turns[-1] if window.turns else 0
    return window.rows[max(window.row_of[start], 0)].place.seq - 1


def projected_sums(window: Window, until: int, tokens: int, plain_until: int, images: int = 0) -> list[int]:
    """What the messages would take at most, added up: older results shortened, thinking and memory notes gone.

    Images up to entry `images` count as notes, all others as images again, whatever the cut in force says of them.
    """
    sums, total = [0], 0
    largest = window.limits.max_tokens
    for index, message in enumerate(window.messages):
        own = window.sums[index + 1] - window.sums[index]
        if window.row_of[index] < 0:
            total += own
            sums.append(total)
            continue
        row = window.rows[window.row_of[index]]
        place, may_go = row.place, row.place not in window.keeps_images
        if window.optional_tokens[index] and place.seq <= plain_until:
            own -= window.optional_tokens[index]
        noted = may_go and place.seq <= window.limits.images
        is_limited = message.role == "tool" and largest > 0 and place not in window.verbatim
        if noted or is_limited:
            own += window.tokens_cut.get(place, 0)
        if may_go and place.seq <= images:
            own -= freed_tokens(row.message if noted else message, window.images)
        if is_limited:
            most = tokens if place.seq <= until else largest
            if own > most:
                pictures = 0 if place.seq <= until else window.images.tokens_in(message)
                own = min(own, len(message.parts) * (most + FRAME_TOKENS) + pictures)
        total += own
        sums.append(total)
    return sums


def image_notes_until(window: Window, turns: int) -> int:
    """The seq up to which images may become notes: all before the newest `turns` turns of the history (0: none).

    It is never less than what the cut in force says.
    """
    done = window.limits.images
    if not turns or len(window.turns) <= turns or not window.image_savings:
        return done
    index = window.turns[-turns]
    if window.image_savings[0][0] >= index:
        return done
    return max(window.rows[window.row_of[index]].place.seq - 1, done)


def image_eviction_pays_off(window: Window, until: int, room: int, *, anew: bool) -> bool:
    """Whether images up to entry `until` should become notes by themselves, without a cut for another reason.

    They should where the provider processes everything `anew` in any case, or where they take a tenth of the room and
    at least as much as what it then has to process again: where cached tokens cost a tenth, and what is written to the
    cache five quarters, a dozen calls pay that back.
    """
    going = [*takewhile(lambda one: window.rows[window.row_of[one[0]]].place.seq <= until, window.image_savings)]
    gain = sum(tokens for _, tokens in going)
    if anew or gain < max(LEAST_IMAGES * room, 1):
        return anew and gain > 0
    first = going[0][0]
    # Thinking and memory notes go with every cut, so the prefix may move before the first image.
    moved = next((at for at, aside in enumerate(window.optional_tokens[:first]) if aside), first)
    return gain >= window.sums[-1] - window.sums[moved] - gain


def first_group_within(window: Window, sums: Sequence[int], tokens: int) -> int:
    """The start of the oldest group from which on everything takes at most `tokens`; past the end if none does."""
    if tokens <= 0:
        return len(window.messages)
    earliest = bisect_left(sums, sums[-1] - tokens)
    place = bisect_left(window.groups, earliest)
    return window.groups[place] if place < len(window.groups) else len(window.messages)


def group_before(window: Window, index: int) -> int:
    """The start of the group that ends where the message `index` begins; 0 if there is none."""
    place = bisect_left(window.groups, index)
    return window.groups[place - 1] if place else 0
