"""Messages of Pydantic AI as neutral ones, and back to the framework's own objects after the cut."""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from itertools import count, groupby
from typing import Any, NamedTuple

from pydantic_ai import messages as pa

import nexus
from nexus.adapters.pydantic_ai_items import content_of, items_of, key, kind, neutral_part
from nexus.types import Thinking

EMPTY = nexus.Text("[empty]")
"""Content of a message that has none, such as a run without a prompt."""

ROLES: dict[str, Any] = {
    "response": "assistant",
    "tool-return": "tool",
    "retry-prompt": "tool",
    "user-prompt": "user",
    "retry-feedback": "user",
    "speech": "user",
    "compaction": "user",
}
"""Roles by kind. All other parts of requests are instructions and notes of the framework, which are never cut."""

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_call": "tool_use"}


class MessageUnit(NamedTuple):
    """A response, or a part of a request, which is shown or left out as one."""

    source: Any
    """The framework's message."""
    part: Any
    """The response itself; None for a request without a prompt."""
    message: Any
    """Its neutral message; None if the model is not told of the part. Without an id it is always shown."""

    @property
    def is_summary(self) -> bool:
        """True for a compaction, which replaces the messages before it."""
        return any(kind(item) == "compaction" for item in (self.part, *items_of(self.part)))

    def parts_as(self, visible: nexus.Message) -> list[Any]:
        """Return the framework's parts for the message as it is shown: the same objects if nothing was changed."""
        if self.source is self.part:
            has_thinking = any(isinstance(part, Thinking) for part in visible.parts)
            return [part for part in self.source.parts if has_thinking or kind(part) != "thinking"]
        items = [(key(neutral), item) for item in items_of(self.part) if (neutral := neutral_part(item))]
        parts: Any = getattr(visible.parts[0], "content", visible.parts)
        if not items or [key(part) for part in parts] == [place for place, _ in items]:
            return [] if self.part is None else [self.part]
        content = [dict(items).get(key(part)) or content_of(part) for part in parts]
        if self.message.role == "tool":
            return [replace(self.part, content=content[0] if len(content) == 1 else content)]
        return [pa.UserPromptPart(content)]


def units_of(messages: Iterable[Any], first: int = 0) -> Iterator[MessageUnit]:
    """Yield the units of messages. Their ids are numbers, from the first one on."""
    numbers = map(str, count(first))
    for source in messages:
        roles = set[str]()
        parts_of_own: list[Any] = [source] if kind(source) == "response" else source.parts
        for part in parts_of_own:
            role = ROLES.get(kind(part), "system")
            if role == "tool" and not part.tool_name:
                role = "user"
            parts: list[Any] = [neutral for item in items_of(part) if (neutral := neutral_part(item))]
            if role == "system":
                yield MessageUnit(source, part, nexus.Message("system", tuple(parts)) if parts else None)
                continue
            roles.add(role)
            if all(isinstance(neutral, Thinking) for neutral in parts):
                parts.append(EMPTY)
            if role == "tool":
                is_error = getattr(part, "outcome", "failed") != "success"
                parts = [nexus.ToolResult(part.tool_call_id, tuple(parts), part.tool_name, is_error)]
            yield MessageUnit(source, part, nexus.Message(role, tuple(parts), id=next(numbers)))
        if not roles:
            yield MessageUnit(source, None, nexus.user(EMPTY.text, id=next(numbers)))


def own_messages(units: list[MessageUnit], visible: Iterable[nexus.Message]) -> list[pa.ModelMessage]:
    """Return the framework's messages for those that are shown: its own objects where nothing was changed."""
    contents = {unit.message.id: key(unit.message) for unit in units if unit.message and unit.message.id}
    numbers = {content: number for number, content in contents.items()}
    shown_as, notes, newest = dict[str, nexus.Message](), dict[str, list[Any]](), list[Any]()
    for message in visible:
        number = message.id
        if contents.get(number) != key(message):  # it was changed, or moved since it was stored
            number = numbers.get(key(message), number)
        if contents.get(number, [""])[0] == message.role:
            shown_as[number], notes[number], newest = message, newest, []
        elif message.role != "system":
            results = [pa.ToolReturnPart(r.name, content_of(r.content[0]), r.call_id) for r in message.results()]
            newest.append(pa.ModelRequest(results or [pa.UserPromptPart(message.text())]))
    messages: list[Any] = []
    for _, group in groupby(units, key=lambda unit: id(unit.source)):
        parts: list[Any] = []
        source: Any = None
        for unit in group:
            source = unit.source
            number = unit.message.id if unit.message else ""
            messages += notes.get(number, [])
            if not number:
                parts.append(unit.part)
            elif number in shown_as:
                parts += unit.parts_as(shown_as[number])
        if [*map(id, parts)] == [*map(id, source.parts)]:
            messages.append(source)
        elif parts:
            shorter = copy(source)
            shorter.parts = parts
            messages.append(shorter)
    return [*messages, *newest]


def result_of(response: Any, number: int) -> nexus.AgentResult:
    """Return what is recorded of a response, which follows as many units with an id."""
    usage = response.usage
    details: Any = response.provider_details or {}
    reasoning = getattr(usage, "output_reasoning_tokens", 0) or usage.details.get("reasoning_tokens", 0)
    reason: str = response.finish_reason or ""
    return nexus.AgentResult(
        tuple(unit.message for unit in units_of([response], number)),
        nexus.TokenUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            reasoning,
            getattr(usage, "cache_write_1h_tokens", 0),
        ),
        STOP_REASONS.get(reason, reason),
        model=response.model_name or "",
        provider_stop_reason=str(details.get("finish_reason") or ""),
    )
