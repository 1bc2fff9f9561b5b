"""haystack: its `SlidingWindowCompactor` in a `CompactionHook`, run on an agent's state before each model call."""

from __future__ import annotations

import warnings
from typing import Any

from haystack.components.agents import State
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.compaction import CompactionHook, SlidingWindowCompactor
from haystack.tools.tool import Tool

from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.side import Setting, Side, Usage, text_of


class SlidingWindow(Side):
    """The hook's `run`. `context_tokens` is what the provider reported last, as haystack's agent keeps it."""

    def __init__(self, setting: Setting) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both classes announce that they are experimental
            self._hook = CompactionHook(compactor=SlidingWindowCompactor(), context_window=setting.budget)
        schema = {
            "messages": {"type": list[ChatMessage]},
            "context_tokens": {"type": int},
            "tools": {"type": list[Tool]},
        }
        tools = [_tool(one["function"]) for one in setting.tools]
        messages = [ChatMessage.from_system(setting.system)]
        self._calls: dict[str, ToolCall] = {}
        self._state = State(schema=schema, data={"messages": messages, "context_tokens": 0, "tools": tools})

    def hear(self, exchange: Exchange) -> None:
        """Appends the event."""
        self._state.set("messages", [self._message(message) for message in exchange.event])

    def step(self) -> list[ChatMessage]:
        """The state's messages after the hook."""
        self._hook.run(self._state)
        return self._state.data["messages"]

    def shown(self, made: list[ChatMessage]) -> Messages:
        """By haystack's own conversion."""
        return [message.to_openai_dict_format() for message in made]

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer."""
        self._state.set("messages", [self._message(message) for message in exchange.reply])
        self._state.set("context_tokens", usage.input_tokens + usage.output_tokens)

    def _message(self, message: dict[str, Any]) -> ChatMessage:
        """A message; results by the call that they answer, since haystack's reader refuses an empty one."""
        text = text_of(message.get("content"))
        if message["role"] == "tool":
            return ChatMessage.from_tool(text, origin=self._calls[message["tool_call_id"]])
        if message["role"] == "user":
            return ChatMessage.from_user(text)
        made = ChatMessage.from_openai_dict_format(
            message if message.get("tool_calls") else {**message, "content": text}
        )
        self._calls.update((call.id or "", call) for call in made.tool_calls)
        return made


def _tool(function: dict[str, Any]) -> Tool:
    return Tool(function["name"], function["description"], function["parameters"], function=_never)


def _never(**_: Any) -> str:
    raise AssertionError("no tool is run: the results are those of the recorded session")
