"""Other ways to make a history fit, each as a fair reader of its description would write or configure it.

A policy is given the whole history as OpenAI messages (the system message first, the current event last), the tokens of
each and the budget, and returns the indices of the messages that it sends. State lives as long as a session does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    trim_messages,  # pyright: ignore[reportUnknownVariableType]
)


class Policy(Protocol):
    """Chooses what is sent."""

    def choose(self, messages: Sequence[dict[str, Any]], tokens: Sequence[int], budget: int) -> list[int]:
        """The indices of the messages to send, rising. Messages of an earlier call keep their index."""
        ...


def group_starts(messages: Sequence[dict[str, Any]]) -> list[int]:
    """Where groups begin: an assistant message with all results of its calls is one, every other message is its own."""
    return [index for index, message in enumerate(messages) if message["role"] not in ("tool", "system")]


class SlidingWindow:
    """The newest whole groups that fit, anew for each call: calls and their results stay together."""

    def choose(self, messages: Sequence[dict[str, Any]], tokens: Sequence[int], budget: int) -> list[int]:
        """System, and from the oldest group on from which everything fits."""
        room = budget - tokens[0]
        first, used, end = len(messages), 0, len(messages)
        for start in reversed(group_starts(messages)):
            used += sum(tokens[start:end])
            if used > room:
                break
            first = end = start
        return [0, *range(first, len(messages))]


class HeadAndTail:
    """The first message of the conversation, and behind it the newest whole groups that fit, anew for each call."""

    def choose(self, messages: Sequence[dict[str, Any]], tokens: Sequence[int], budget: int) -> list[int]:
        """System, the first group, and from the oldest other group on from which everything fits.

        Without the first group where beside it not even the newest one fits.
        """
        end = next((start for start in group_starts(messages) if start > 1), len(messages))
        head = [sum(tokens[:end]), *(0 for _ in range(1, end))]
        kept = SlidingWindow().choose(messages, [*head, *tokens[end:]], budget)
        behind = [index for index in kept if index >= end]
        if head[0] > budget or (not behind and end < len(messages)):
            return SlidingWindow().choose(messages, tokens, budget)
        return [*range(end), *behind]


@dataclass(slots=True)
class HalfWindow:
    """Block-wise eviction: nothing moves until the budget is full, then the oldest groups go, down to half of it."""

    first: int = 1

    def choose(self, messages: Sequence[dict[str, Any]], tokens: Sequence[int], budget: int) -> list[int]:
        """System, and from the kept first group on; the newest group is kept whatever its size."""
        used = tokens[0] + sum(tokens[self.first :])
        if used > budget:
            for start in group_starts(messages):
                if start >= self.first:
                    self.first = start
                    if tokens[0] + sum(tokens[start:]) <= budget // 2:
                        break
        return [0, *range(self.first, len(messages))]


@dataclass(slots=True)
class TrimMessages:
    """LangChain's `trim_messages`; `options` are its own. It counts with the same tokens as every other policy."""

    options: dict[str, Any]
    _messages: list[BaseMessage] = field(default_factory=list[BaseMessage])

    def choose(self, messages: Sequence[dict[str, Any]], tokens: Sequence[int], budget: int) -> list[int]:
        """What it returns, by the messages' ids."""
        for index in range(len(self._messages), len(messages)):
            self._messages.append(as_langchain(messages[index], index))

        def count(some: list[BaseMessage]) -> int:
            return sum(tokens[int(message.id or 0)] for message in some)

        kept = trim(self._messages, budget, count, self.options)
        return [int(message.id or 0) for message in kept]


DOCUMENTED: dict[str, Any] = {"start_on": "human", "end_on": ("human", "tool")}
"""How LangChain's documentation configures `trim_messages` for chat models, besides strategy and include_system."""


def trim(
    messages: Sequence[BaseMessage], budget: int, count: Callable[[list[BaseMessage]], int], options: dict[str, Any]
) -> list[BaseMessage]:
    """The messages that `trim_messages` keeps: the last ones, and the system message."""
    return trim_messages(
        messages, max_tokens=budget, token_counter=count, strategy="last", include_system=True, **options
    )


def as_langchain(message: dict[str, Any], index: int) -> BaseMessage:
    """An OpenAI message as LangChain's, with its index as id."""
    converted = convert_to_messages([message])[0]
    converted.id = str(index)
    return converted


OTHERS: tuple[tuple[str, Callable[[], Policy]], ...] = (
    ("sliding window, whole groups", SlidingWindow),
    ("evict oldest groups to 50 %", HalfWindow),
    ("LangChain trim_messages, documented", lambda: TrimMessages(DOCUMENTED)),
    ("LangChain trim_messages, defaults", lambda: TrimMessages({})),
)
