"""Document 003's `provider.chat(messages=…)`: chat messages to a model of any provider, through `nexus.models`.

The messages are fitted into the model's context window and repaired, as by `nexus.engine.mirror`. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from nexus.engine import open_engine
from nexus.engine.async_engine import AsyncEngine
from nexus.models import ModelClient, Models
from nexus.tokens.model_table import DEFAULT_MODEL
from nexus.types.message import Message, Thinking
from nexus.types.sanitize import arguments_as_object
from nexus.types.settings import CallArguments
from nexus.types.tool_definition import ToolSource

__all__ = ["LLMProvider", "LLMResponse", "ToolCallRequest"]


class ToolCallRequest(Struct, frozen=True):
    """A tool call of a reply."""

    id: str
    name: str
    arguments: dict[str, Any]

    def to_openai_tool_call(self) -> dict[str, Any]:
        """Return the call as `add_assistant_message` takes it."""
        arguments = msgspec.json.encode(self.arguments).decode()
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


class LLMResponse(Struct, frozen=True):
    """A model's reply."""

    content: str | None
    tool_calls: list[ToolCallRequest] = []
    finish_reason: str = "stop"
    usage: dict[str, int] = {}
    reasoning_content: str | None = None
    thinking_blocks: list[dict[str, Any]] | None = None

    @property
    def has_tool_calls(self) -> bool:
        """True if the model calls tools."""
        return bool(self.tool_calls)


class LLMProvider:
    """Calls models. Close it at the end.

    Args:
        models: Clients of the models; by default of all providers, with the keys of the environment.
        model: Name of the default model.
    """

    def __init__(self, models: ModelClient | None = None, model: str = "") -> None:
        self.models = models or Models()
        self._model = model or DEFAULT_MODEL
        self._nx = AsyncEngine(open_engine(ledger=":memory:", model=self._model))

    def get_default_model(self) -> str:
        """Return the name of the default model."""
        return self._model

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | ToolSource = (),
        model: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> LLMResponse:
        """Send chat messages and return the reply. Raises BadEvent for invalid messages, ModelCallFailed."""
        options: CallArguments = {"tools": tools, "model": model or self._model}
        if max_tokens is not None:
            options["max_tokens"] = max_tokens
        if temperature is not None:
            options["temperature"] = temperature
        ctx = await self._nx.mirror([*messages], provider="openai", **options)
        reply = (await self.models.complete(ctx)).result
        usage = {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.input_tokens + reply.usage.output_tokens,
        }
        return LLMResponse(
            "\n".join(filter(None, (message.text() for message in reply.messages))) or None,
            [
                ToolCallRequest(call.id, call.name, msgspec.json.decode(arguments_as_object(call.arguments)))
                for call in reply.tool_calls
            ],
            reply.provider_stop_reason or reply.stop_reason,
            usage,
            *thinking_fields(reply.messages),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self.models.aclose()
        await self._nx.close()


def thinking_fields(messages: Sequence[Message]) -> tuple[str | None, list[dict[str, Any]] | None]:
    """Return `reasoning_content` and `thinking_blocks`: readable thinking, and the parts that their provider signed."""
    parts = [part for message in messages for part in message.parts if isinstance(part, Thinking)]
    blocks = [
        {"type": "redacted_thinking", "data": part.redacted}
        if part.redacted
        else {"type": "thinking", "thinking": part.text, "signature": part.signature}
        for part in parts
        if part.redacted or part.signature
    ]
    return "\n".join(part.text for part in parts if part.text) or None, blocks or None
