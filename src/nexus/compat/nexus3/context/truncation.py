"""Which groups of messages are shown when not all fit: the two strategies of document 004, over whole groups only.

By the letter each call fills the budget again, there is no marker for what is left out, and the most recent group stays
even where nothing fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from nexus.assembly.fit import repair
from nexus.compat.nexus3.context.stamps import MOMENT_SOURCE
from nexus.types.message import Message

Group: TypeAlias = tuple[Message, ...]
"""A message with the tool results (and stamps of time) that follow it: one call group, or one message alone."""

Count: TypeAlias = Callable[[Group], int]


def identify_message_groups(messages: Iterable[Message]) -> list[Group]:
    """The messages as groups, in order; flattened they are the same messages again.

    What the repair would not show as a step of its own (a result, an orphan, an empty message) goes with what is before.
    """
    fold = repair.Fold(started=True)
    groups: list[list[Message]] = []
    for message in messages:
        answers = any(result.call_id in fold.waiting for result in message.results())
        steps = repair.step(fold, is_complete(message), plain=False)
        starts = any(is_start for _, is_start, _ in steps) and not answers and message.source != MOMENT_SOURCE
        if starts or not groups:
            groups.append([message])
        else:
            groups[-1].append(message)
    return [tuple(group) for group in groups]


def is_complete(message: Message) -> Message:
    """The message without its id: ids join pieces of one message as they stream in, and here each is complete."""
    return replace(message, id="") if message.id else message


def flatten_groups(groups: Iterable[Group]) -> list[Message]:
    """All messages of the groups, in order."""
    return [message for group in groups for message in group]


def newest_within(groups: Sequence[Group], budget: int, count: Count) -> list[Group]:
    """The newest groups that fit into the budget, up to the first one that does not."""
    kept: list[Group] = []
    for group in reversed(groups):
        budget -= count(group)
        if budget < 0:
            break
        kept.append(group)
    return kept[::-1]


def truncate_oldest_first(groups: Sequence[Group], budget: int, count: Count) -> list[Group]:
    """The newest groups that fit, and the most recent one in any case."""
    return newest_within(groups, budget, count) or list(groups[-1:])


def truncate_middle_out(groups: Sequence[Group], budget: int, count: Count) -> list[Group]:
    """The first and the last group, and between them the newest that fit.

    Where these two alone are too large it is as `truncate_oldest_first`.
    """
    if len(groups) < 2:
        return list(groups)
    first, *middle, last = groups
    rest = budget - count(first) - count(last)
    if rest < 0:
        return truncate_oldest_first(groups, budget, count)
    return [first, *newest_within(middle, rest, count), last]


STRATEGIES: Mapping[str, Callable[[Sequence[Group], int, Count], list[Group]]] = {
    "oldest_first": truncate_oldest_first,
    "middle_out": truncate_middle_out,
}
"""The strategies by their documented names."""
