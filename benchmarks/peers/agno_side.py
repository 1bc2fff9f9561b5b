"""agno: `Compaction`, asked, run and applied in the order in which its agent does it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from agno.compaction import Compaction, CompactionRecord
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse

from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.side import SUMMARY, Setting, Side, Usage, text_of

logging.getLogger("agno").setLevel(logging.ERROR)


@dataclass
class Fixed(Model):
    """A model that answers every request with the same summary, and counts how often it was asked."""

    id: str = "fixed"
    asked: int = 0

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """The summary."""
        self.asked += 1
        return ModelResponse(role="assistant", content=SUMMARY)

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """The same."""
        return self.invoke()

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        """The same, at once."""
        yield self.invoke()

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        """The same, at once."""
        yield self.invoke()

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


class Folding(Side):
    """The view that agno sends: the record that holds, a new one where the threshold is reached and a cut exists."""

    def __init__(self, setting: Setting, **options: Any) -> None:
        self._model = Fixed()
        self._compaction = Compaction(model=self._model, compact_at_tokens=setting.budget, **options)
        self._prefix = [Message(role="system", content=setting.system)]
        self._tools = setting.tools
        self._messages: list[Message] = []
        self._record: CompactionRecord | None = None

    @property
    def summaries(self) -> int:
        """How often the model was asked."""
        return self._model.asked

    def hear(self, exchange: Exchange) -> None:
        """Appends the event."""
        self._messages.extend(_message(message) for message in exchange.event)

    def step(self) -> list[Message]:
        """The messages of the request."""
        view = self._view()
        if self._compaction.should_compact([*self._prefix, *view], tools=self._tools):
            record = self._compaction.compact(
                self._messages,
                session_id="main",
                previous=self._record,
                context_prefix=self._prefix,
                sent_messages=view,
            )
            if record is not None:
                self._record = record
                view = self._view()
        return [*self._prefix, *view]

    def _view(self) -> list[Message]:
        return self._compaction.apply_record(self._messages, self._record) if self._record else self._messages

    def shown(self, made: list[Message]) -> Messages:
        """The fields that agno's OpenAI model sends."""
        return [_sent(message) for message in made]

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer."""
        self._messages.extend(_message(message) for message in exchange.reply)


class FoldingKeepingTokens(Folding):
    """The same with a quarter of the budget kept, by tokens."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, uncompacted_tokens=setting.budget // 4)


def _message(message: dict[str, Any]) -> Message:
    return Message(
        role=message["role"],
        content=text_of(message["content"]) if message.get("content") is not None else None,
        tool_calls=message.get("tool_calls"),
        tool_call_id=message.get("tool_call_id"),
    )


def _sent(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        made["tool_calls"] = message.tool_calls
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    return made
