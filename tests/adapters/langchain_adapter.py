"""LangChain: a middleware that fits the messages of each model call into a token budget and stores all of them.

    agent = create_agent(model, tools, middleware=[NexusMiddleware(nexus.open("agent"), budget=32_000)])

The agent's state is unchanged. Each thread is a scope: its messages are never compared with another thread's.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import SystemMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

import nexus


class NexusMiddleware(AgentMiddleware):
    """Shows the model what fits of the agent's messages; `options` are arguments of `nexus.Engine.mirror`."""

    def __init__(self, nx: nexus.Engine, **options: Any) -> None:
        super().__init__()
        self.nx, self.options = nexus.AsyncEngine(nx), options

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse:
        ctx, fitted = self.fit(request)
        response = handler(fitted)
        self.nx.engine.record(ctx, result_of(response))
        return response

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        ctx, fitted = await self.nx.run(self.fit, request)
        response = await handler(fitted)
        await self.nx.record(ctx, result_of(response))
        return response

    def fit(self, request: ModelRequest) -> tuple[nexus.AssembledContext, ModelRequest]:
        items = convert_to_openai_messages(request.messages)
        tools = [convert_to_openai_tool(tool) for tool in request.tools]
        info, model = request.runtime.execution_info, getattr(request.model, "model_name", "")
        thread, system = (info and info.thread_id) or "", request.system_prompt or ""
        ctx = self.nx.engine.mirror(items, conversation=thread, system=system, tools=tools, model=model, **self.options)
        unchanged = {json.dumps(item, sort_keys=True): own for item, own in zip(items, request.messages, strict=True)}
        shown = [item for item in ctx.to_openai()["messages"] if item["role"] != "system"]
        messages = [unchanged.get(json.dumps(i, sort_keys=True)) or convert_to_messages([i])[0] for i in shown]
        prompt = SystemMessage(ctx.system_prompt) if ctx.system_prompt else None
        return ctx, request.override(messages=messages, system_message=prompt)


def result_of(response: ModelResponse) -> nexus.AgentResult:
    messages = nexus.read_messages(convert_to_openai_messages(response.result), "openai")
    used = getattr(response.result[0], "usage_metadata", None) or {"input_tokens": 0, "output_tokens": 0}
    return nexus.AgentResult(tuple(messages), nexus.TokenUsage(used["input_tokens"], used["output_tokens"]))
