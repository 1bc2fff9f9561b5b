"""Google ADK: a plugin that fits the contents of each model call into a token budget, and records every call.

    runner = InMemoryRunner(agent, plugins=[NexusPlugin(nexus.open(ledger="ledger.db"), budget=32_000)])

The session's events are unchanged. Each agent of a session is a conversation, and a session's user is its principal:
conversations are never compared with each other, and users neither.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

import nexus
from nexus.adapters.calls import Calls


class NexusPlugin(BasePlugin):
    """Shows the model what fits of a session's contents.

    Args:
        nx: An engine.
        name: The plugin's name.
        **options: Arguments of `nexus.Engine.mirror`, such as `budget`. A session's user is the `principal` by default.
    """

    def __init__(self, nx: nexus.Engine | nexus.AsyncEngine, *, name: str = "nexus", **options: Any) -> None:
        super().__init__(name)
        self.calls = Calls(nx, logging.getLogger(__name__), options)
        self._sent: dict[tuple[str, ...], nexus.AssembledContext] = {}

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Fit the request's contents. Raises the errors of `nexus.Engine.mirror`, before anything is sent."""
        ctx = await self.calls.nx.run(self._fit, callback_context, llm_request)
        if ctx is not None:
            llm_request.contents = _with_received(ctx.to_gemini_rest()["contents"], llm_request.contents)
            self._sent[_call_of(callback_context)] = ctx

    def _fit(self, context: CallbackContext, request: LlmRequest) -> nexus.AssembledContext | None:
        session = context.session
        return self.calls.fit(
            [_as_json(content) for content in request.contents],
            scope=session.app_name,
            principal=session.user_id,
            conversation=f"{session.id}/{context.agent_name}",
            provider="gemini",
            system=_system_text(request.config.system_instruction),
            tools=[_as_json(tool) for tool in request.config.tools or () if isinstance(tool, types.Tool)],
            model=request.model or "",
        )

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Record the answer when it is whole. A fault of the ledger is logged: the agent has its answer."""
        if llm_response.partial:
            return
        ctx = self._sent.pop(_call_of(callback_context), None)
        if llm_response.content is not None:
            await self.calls.nx.run(self.calls.record, ctx, "", (), partial(_reply, llm_response))

    async def on_model_error_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,  # noqa: ARG002 - ADK passes it by name
        error: Exception,  # noqa: ARG002
    ) -> None:
        """Forget the call: its messages are recorded with the next one."""
        self._sent.pop(_call_of(callback_context), None)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget the calls of a run whose streams were left before their end."""
        run = invocation_context.invocation_id
        self._sent = {call: ctx for call, ctx in self._sent.items() if run not in call}


def _call_of(context: CallbackContext) -> tuple[str, ...]:
    return context.session.app_name, context.session.user_id, context.invocation_id, context.agent_name


def _as_json(value: types.Content | types.Tool) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _with_received(items: list[dict[str, Any]], received: list[types.Content]) -> list[types.Content]:
    """Return the contents to send: received objects where nothing was changed. A cut is at the beginning, so from the end."""
    received_by_key = dict[str, list[types.Content]]()
    for content in received:
        received_by_key.setdefault(_key(content), []).append(content)
    contents = list[types.Content]()
    for item in reversed(items):
        content = types.Content.model_validate(item)
        same = received_by_key.get(_key(content))
        contents.append(same.pop() if same else content)
    return contents[::-1]


def _key(content: types.Content) -> str:
    return content.model_dump_json(exclude_none=True)


def _system_text(instruction: Any) -> str:
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    parts = instruction.parts if isinstance(instruction, types.Content) else [instruction]
    return "\n\n".join(part if isinstance(part, str) else part.text or "" for part in parts or ())


def _reply(response: LlmResponse) -> nexus.AgentResult:
    """Return a response as it is recorded, read in the form of Gemini's API."""
    candidate = {"content": response.content, "finishReason": response.finish_reason}
    reply = types.GenerateContentResponse.model_validate(
        {
            "candidates": [candidate],
            "usageMetadata": response.usage_metadata,
            "modelVersion": response.model_version,
        }
    )
    return nexus.read_reply(reply.model_dump(mode="json", by_alias=True, exclude_none=True))
