"""pydantic-ai-harness: two of its compaction capabilities, through the hook that runs before each model request."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import RunContext, RunUsage
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.compaction import SlidingWindowCompaction, SummarizingCompaction

from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.side import SUMMARY, Setting, Side, Usage, text_of


class _Compacted(Side):
    """A capability's `before_model_request`; what it writes back to the run's messages is kept."""

    def __init__(self, setting: Setting, capability: Any) -> None:
        self._system = setting.system
        self._capability = capability
        self._loop = asyncio.new_event_loop()
        self._model = FunctionModel(self._summary)
        self._parameters = ModelRequestParameters(function_tools=[_tool(one["function"]) for one in setting.tools])
        self._messages: list[ModelMessage] = []
        self._names: dict[str, str] = {}
        self.summaries = 0

    def _summary(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.summaries += 1
        return ModelResponse(parts=[TextPart(SUMMARY)])

    def hear(self, exchange: Exchange) -> None:
        """Appends the event as one request."""
        parts: list[ModelRequestPart] = []
        for message in exchange.event:
            text = text_of(message["content"])
            if message["role"] == "tool":
                call_id = message["tool_call_id"]
                parts.append(ToolReturnPart(self._names.get(call_id, "unknown"), text, call_id))
            else:
                parts.append(UserPromptPart(text))
        self._messages.append(ModelRequest(parts=parts, instructions=self._system))

    def step(self) -> list[ModelMessage]:
        """The messages of the request after the hook."""
        context = RunContext(deps=None, model=self._model, usage=RunUsage(), messages=self._messages)
        request = ModelRequestContext(
            model=self._model,
            messages=list(self._messages),
            model_settings=None,
            model_request_parameters=self._parameters,
        )
        made = self._loop.run_until_complete(self._capability.before_model_request(context, request))
        return made.messages

    def shown(self, made: list[ModelMessage]) -> Messages:
        """The instructions, then each part as the message that it becomes."""
        out: Messages = [{"role": "system", "content": self._system}]
        for message in made:
            if isinstance(message, ModelRequest):
                out.extend(_asked(part) for part in message.parts)
            else:
                out.append(_answered(message))
        return out

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer as responses, with the usage that a provider would report on the last one."""
        for message in exchange.reply:
            parts: list[ModelResponsePart] = [TextPart(text_of(message["content"]))] if message.get("content") else []
            for call in message.get("tool_calls") or ():
                self._names[call["id"]] = call["function"]["name"]
                parts.append(ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"]))
            told = RequestUsage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
            is_last = message is exchange.reply[-1]
            self._messages.append(ModelResponse(parts=parts, usage=told if is_last else RequestUsage()))


class SlidingWindow(_Compacted):
    """`SlidingWindowCompaction`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, SlidingWindowCompaction(max_tokens=setting.budget))


class Summarizing(_Compacted):
    """`SummarizingCompaction`; the run's model writes the summaries."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, SummarizingCompaction(max_tokens=setting.budget))


class SlidingWindowKeepingTokens(_Compacted):
    """`SlidingWindowCompaction` with half of the budget kept, by tokens."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, SlidingWindowCompaction(max_tokens=setting.budget, keep_tokens=setting.budget // 2))


class SummarizingKeepingTokens(_Compacted):
    """`SummarizingCompaction` with half of the budget kept, by tokens."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, SummarizingCompaction(max_tokens=setting.budget, keep_tokens=setting.budget // 2))


def _tool(function: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition(
        name=function["name"], description=function["description"], parameters_json_schema=function["parameters"]
    )


def _asked(part: ModelRequestPart) -> dict[str, Any]:
    match part:
        case ToolReturnPart():
            return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
        case SystemPromptPart():
            return {"role": "system", "content": part.content}
        case UserPromptPart() | CompactionPart():
            return {"role": "user", "content": part.content}
        case _:
            raise TypeError(f"a part of a kind that no conversation here has: {part!r}")


def _answered(message: ModelResponse) -> dict[str, Any]:
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
        }
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    made: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) or None}
    return {**made, "tool_calls": calls} if calls else made
