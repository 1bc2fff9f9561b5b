"""Pydantic AI: a capability that fits the messages of each model request into a token budget and stores all of them.

    agent = Agent(model, capabilities=[NexusContext(await nexus.open_async("agent"), budget=32_000)])

The run's own history is unchanged. The agent has `instructions`, and prompts are texts; for images, extend `neutral`.
"""

from dataclasses import replace
from typing import Any

from pydantic_ai import messages as pa
from pydantic_ai.capabilities import AbstractCapability

import nexus


class NexusContext(AbstractCapability[Any]):
    """Shows the model what fits of the run's messages; `options` are arguments of `nexus.Engine.mirror`."""

    def __init__(self, nx: nexus.AsyncEngine, **options: Any) -> None:
        self.nx, self.options = nx, options

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> pa.ModelResponse:
        own = [single for message in request_context.messages for single in singles(message)]
        messages, setup = [*map(neutral, own)], request_context.model_request_parameters
        fitted = await self.nx.mirror(
            messages,
            conversation=ctx.conversation_id or "",
            system="\n\n".join(part.content for part in setup.instruction_parts or ()),
            tools=[vars(tool) for tool in (*setup.function_tools, *setup.output_tools)],
            model=request_context.model.model_name,
            **self.options,
        )
        unchanged = {(message.role, message.parts): single for message, single in zip(messages, own, strict=True)}
        shown = [unchanged.get((message.role, message.parts)) or own_form(message) for message in fitted.messages]
        response = await handler(replace(request_context, messages=shown))
        usage = nexus.TokenUsage(response.usage.input_tokens, response.usage.output_tokens)
        await self.nx.record(fitted, nexus.AgentResult((neutral(response),), usage))
        return response


def singles(message: pa.ModelMessage) -> list[pa.ModelMessage]:
    return [message] if isinstance(message, pa.ModelResponse) else [pa.ModelRequest([part]) for part in message.parts]


def neutral(message: pa.ModelMessage) -> nexus.Message:
    if isinstance(message, pa.ModelResponse):
        calls = [nexus.ToolCall(c.tool_call_id, c.tool_name, c.args_as_json_str()) for c in message.tool_calls]
        return nexus.assistant(message.text or "", *calls)
    if isinstance(part := message.parts[0], pa.ToolReturnPart):
        return nexus.tool(part.tool_call_id, part.model_response_str(), part.tool_name)
    return nexus.user(part.content if isinstance(part, pa.UserPromptPart) else part.model_response())


def own_form(message: nexus.Message) -> pa.ModelMessage:
    if message.role == "assistant":
        calls = [pa.ToolCallPart(call.name, call.arguments, call.id) for call in message.calls()]
        return pa.ModelResponse([pa.TextPart(message.text()), *calls])
    results = [pa.ToolReturnPart(r.name, r.content[0].text, r.call_id) for r in message.results()]
    return pa.ModelRequest(results or [pa.UserPromptPart(message.text())])
