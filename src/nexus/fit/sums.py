"""What a choice of messages to leave out starts from: sums under other limits, and the groups at a given size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from nexus.fit.pins import FRAME_TOKENS
from nexus.fit.window import Window


def plain_until(window: Window, *, answers: bool) -> int:
    """Up to where messages lose thinking and memory notes at a cut: the head, or before the turn that is still open.

    A provider wants the thinking of the tool loop that is going on back as it was; older signatures belong to a prefix
    that the cut changes.
    """
    if not answers or not window.rows:
        return window.head
    start = window.turns[-1] if window.turns else 0
    return window.rows[max(window.row_of[start], 0)].place.seq - 1


def sums_if(window: Window, until: int, tokens: int, plain_until: int) -> list[int]:
    """What the messages would take at most, added up: older results shortened, thinking and memory notes gone."""
    sums, total = [0], 0
    largest = window.clips.largest
    for index, message in enumerate(window.messages):
        own = window.sums[index + 1] - window.sums[index]
        if window.row_of[index] < 0:
            total += own
            sums.append(total)
            continue
        place = window.rows[window.row_of[index]].place
        if window.asides[index] and place.seq <= plain_until:
            own -= window.asides[index]
        if message.role == "tool" and largest and place not in window.verbatim:
            own += window.clipped.get(place, 0)
            most = tokens if place.seq <= until else largest
            if own > most:
                own = min(own, len(message.parts) * (most + FRAME_TOKENS))
        total += own
        sums.append(total)
    return sums


def first_group(window: Window, sums: Sequence[int], tokens: int) -> int:
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
