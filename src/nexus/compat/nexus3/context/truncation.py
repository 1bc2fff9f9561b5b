"""Document 004's two truncation strategies, over whole groups of messages.

As documented, each call fills the budget again, omitted messages leave no notice, and the newest group stays even if it
does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from nexus.assembly.fit import repair
from nexus.compat.nexus3.context.messages import M, stored_messages
from nexus.types.message import Message

__all__ = [
    "STRATEGIES",
    "Group",
    "flatten_groups",
    "identify_message_groups",
    "is_complete",
    "newest_within",
    "truncate_middle_out",
    "truncate_oldest_first",
]

MOMENT_SOURCE = "nexus:moment"
"""Source of a message that only contains a time stamp."""

Group: TypeAlias = tuple[M, ...]
"""A message with the tool results and time stamps that follow it: one call group, or a single message."""


def identify_message_groups(messages: Iterable[M]) -> list[Group[M]]:
    """Return the messages as groups, in order; flattened they are the same messages again.

    A message that the repair would not show as a step (a result, an orphan, an empty message) joins the group before
    it.
    """
    # The rules before late results were shown: a late one joins the group before it, whatever precedes the messages.
    fold = repair.Fold(started=True, render=repair.LATE_RESULTS_RENDER - 1)
    groups: list[list[M]] = []
    values = [*messages]
    for value, message in zip(values, stored_messages(values), strict=True):
        answers = any(result.call_id in fold.waiting for result in message.results())
        steps = repair.step(fold, is_complete(message), plain=False)
        starts = any(is_start for _, is_start, _ in steps) and not answers and message.source != MOMENT_SOURCE
        if starts or not groups:
            groups.append([value])
        else:
            groups[-1].append(value)
    return [tuple(group) for group in groups]


def is_complete(message: Message) -> Message:
    """Return the message without its id: ids join streamed pieces of one message, and here each message is complete."""
    if message.id:
        return replace(message, id="")
    return message


def flatten_groups(groups: Iterable[Iterable[M]]) -> list[M]:
    """Return all messages of the groups, in order."""
    return [message for group in groups for message in group]


def newest_within(groups: Sequence[Group[M]], budget: int, count: Callable[[Group[M]], int]) -> list[Group[M]]:
    """Return the newest groups that fit into the budget, up to the first one that does not."""
    newest: list[Group[M]] = []
    for group in reversed(groups):
        budget -= count(group)
        if budget < 0:
            break
        newest.append(group)
    return newest[::-1]


def truncate_oldest_first(groups: Sequence[Group[M]], budget: int, count: Callable[[Group[M]], int]) -> list[Group[M]]:
    """Return the newest groups that fit, and at least the newest one."""
    return newest_within(groups, budget, count) or list(groups[-1:])


def truncate_middle_out(groups: Sequence[Group[M]], budget: int, count: Callable[[Group[M]], int]) -> list[Group[M]]:
    """Return the first and the last group, and between them the newest that fit.

    If these two alone are too large, it truncates like `truncate_oldest_first`.
    """
    if len(groups) < 2:
        return list(groups)
    first, *middle, last = groups
    rest = budget - count(first) - count(last)
    if rest < 0:
        return truncate_oldest_first(groups, budget, count)
    return [first, *newest_within(middle, rest, count), last]


STRATEGIES: Mapping[str, Callable[[Sequence[Group[Any]], int, Callable[[Group[Any]], int]], list[Group[Any]]]] = {
    "oldest_first": truncate_oldest_first,
    "middle_out": truncate_middle_out,
}
"""The strategies by their documented names."""
