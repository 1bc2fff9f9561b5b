"""openai-agents: a session with a limit of items, through its Runner; and its filter that trims results of tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    SessionSettings,
    SQLiteSession,
    set_tracing_disabled,
)
from agents.extensions import ToolOutputTrimmer
from agents.models.chatcmpl_converter import Converter
from agents.run_config import CallModelData, ModelInputData
from agents.usage import Usage as Spent
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.registry import ITEMS
from benchmarks.peers.side import Setting, Side, Usage, text_of

set_tracing_disabled(True)


class _Looking(Model):
    """A model that keeps the input of its last call and answers with a short text."""

    def __init__(self) -> None:
        self.input: list[Any] = []

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Keeps the input, which the Runner gives by name."""
        self.input = list(kwargs["input"])
        text = ResponseOutputText(text="ok", type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="looked", role="assistant", type="message", status="completed", content=[text]
        )
        return ModelResponse(output=[message], usage=Spent(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Is not asked for."""
        raise NotImplementedError


class Limited(Side):
    """`SQLiteSession` with a limit: the Runner reads the session at a user's message; in its loop the run grows.

    The Runner adds its model's short text to the session; it is taken away again and the recorded answer put there.
    """

    def __init__(self, setting: Setting) -> None:
        self._system = setting.system
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._model = _Looking()
        self._agent = Agent(name="agent", instructions=setting.system, model=self._model)
        self._session = SQLiteSession("main", session_settings=SessionSettings(limit=ITEMS))
        self._new: list[Any] = []
        self._run: list[Any] = []

    def hear(self, exchange: Exchange) -> None:
        """Takes the event: a user's message begins a run, results go on with it."""
        self._new = [item for message in exchange.event for item in _items(message)]
        if exchange.source.event.results:
            self._run.extend(self._new)
            self._loop.run_until_complete(self._session.add_items(self._new))
            self._new = []

    def load(self, exchanges: Iterable[Exchange]) -> None:
        """Puts all into the session, as earlier runs would have."""
        items = [
            item for exchange in exchanges for message in (*exchange.event, *exchange.reply) for item in _items(message)
        ]
        self._loop.run_until_complete(self._session.add_items(items))

    def step(self) -> list[Any]:
        """The run's input; at a user's message, what the Runner makes of the session and the message."""
        if self._new:
            self._loop.run_until_complete(Runner.run(self._agent, self._new, session=self._session))
            self._run = list(self._model.input)
            self._new = []
        return list(self._run)

    def shown(self, made: list[Any]) -> Messages:
        """By the package's own conversion for chat completions."""
        return _shown(self._system, made)

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Puts the answer into the run and the session."""
        if not exchange.source.event.results:
            self._loop.run_until_complete(self._session.pop_item())
        items = [item for message in exchange.reply for item in _items(message)]
        self._run.extend(items)
        self._loop.run_until_complete(self._session.add_items(items))


class Trimmed(Side):
    """`ToolOutputTrimmer` as the filter of a model's input."""

    def __init__(self, setting: Setting) -> None:
        self._system = setting.system
        self._trimmer = ToolOutputTrimmer()
        self._agent = Agent(name="agent", instructions=setting.system)
        self._items: list[Any] = []

    def hear(self, exchange: Exchange) -> None:
        """Appends the event."""
        self._items.extend(item for message in exchange.event for item in _items(message))

    def step(self) -> list[Any]:
        """The items after the filter."""
        data = ModelInputData(input=list(self._items), instructions=self._system)
        return self._trimmer(CallModelData(model_data=data, agent=self._agent, context=None)).input

    def shown(self, made: list[Any]) -> Messages:
        """By the package's own conversion for chat completions."""
        return _shown(self._system, made)

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer."""
        self._items.extend(item for message in exchange.reply for item in _items(message))


def _shown(system: str, items: list[Any]) -> Messages:
    """The instructions, then the items by the package's own conversion."""
    messages: list[Any] = [{"role": "system", "content": system}, *Converter.items_to_messages(items)]
    return messages


def _items(message: dict[str, Any]) -> list[Any]:
    """A message as the items of the Responses form, which the package works on."""
    text = text_of(message.get("content"))
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": text}]
    items: list[Any] = [{"role": message["role"], "content": text}] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        items.append({"type": "function_call", "call_id": call["id"], **function})
    return items
