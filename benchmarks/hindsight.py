"""What no policy can exceed: cutting oldest groups first, with the whole session known in advance.

For a price per token of prompt, the cheapest sequence of cuts is found exactly (dynamic programming over calls and
first groups). Each price bounds the mean prompt of every such policy at a given ratio of processed to new tokens; the
least of these bounds counts (weak duality). It says whether a target can be reached on given sessions at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from msgspec import Struct

from benchmarks.bodies import Body, Remembered, pieces_of
from benchmarks.policies import group_starts

PRICES = (0.05, 0.07, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
MARKER_START_TOKENS = 60
"""Generous: what two bodies with different cuts may share after the system message."""


class Course(Struct, frozen=True):
    """A never-cut session in tokens: what stands first, sums over messages, group starts, the messages at each call."""

    system: int
    sums: tuple[int, ...]
    groups: tuple[int, ...]
    ends: tuple[int, ...]


class Found(Struct, frozen=True):
    """The least of processed tokens less priced prompt tokens; and what the calls that fit add up to."""

    least: float
    new: int
    calls: int


def course_of(bodies: Sequence[Body], counter: Remembered) -> Course:
    """The session whose never-cut bodies these are."""
    head, *pieces = pieces_of(bodies[-1])
    sizes = [counter.count(piece) for piece in pieces]
    ends = tuple(len(body["messages"]) for body in bodies)
    groups = tuple(group_starts(bodies[-1]["messages"]))
    return Course(counter.count(head) + sizes[0], tuple(accumulate(sizes, initial=0)), groups, ends)


def most_prompt(courses: Iterable[Course], budget: int, ratio: float) -> float:
    """An upper bound of the mean prompt, as a share of the budget, at `ratio` processed tokens for each new one."""
    known = tuple(courses)
    bounds: list[float] = []
    for price in PRICES:
        found = [_cheapest(course, budget, price) for course in known]
        new, calls = sum(one.new for one in found), sum(one.calls for one in found)
        bounds.append((ratio * new - sum(one.least for one in found)) / price / calls / budget)
    return min(bounds)


def _cheapest(course: Course, budget: int, price: float) -> Found:
    best: dict[int, float] = {course.groups[0]: 0.0}
    new = calls = before = sent_before = 0
    for end in course.ends:
        reached = _step(course, budget, price, best, (sent_before, end))
        gained = course.sums[end] - course.sums[before] + (0 if before else course.system - course.sums[1])
        before = end
        if reached:
            best, sent_before, calls, new = reached, end, calls + 1, new + gained
    return Found(min(best.values()), new, calls)


def _step(course: Course, budget: int, price: float, best: dict[int, float], call: tuple[int, int]) -> dict[int, float]:
    """The least sums after a call, by first group shown. Empty when the newest group alone exceeds the budget."""
    sent_before, end = call
    reached: dict[int, float] = {}
    for first in (group for group in course.groups if group < end):
        prompt = course.system + course.sums[end] - course.sums[first]
        if prompt > budget:
            continue
        kept = best.get(first)
        moved = min((value for group, value in best.items() if group < first), default=None)
        options: list[float] = []
        if kept is not None:
            options.append(kept + (course.sums[end] - course.sums[sent_before] if sent_before else prompt))
        if moved is not None:
            shared = course.system + MARKER_START_TOKENS if sent_before else 0
            options.append(moved + max(0, prompt - shared))
        if options:
            reached[first] = min(options) - price * prompt
    return reached
