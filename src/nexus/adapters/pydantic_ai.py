"""Pydantic AI: a capability that fits each model request into a token budget and records it.

    agent = Agent(model, capabilities=[NexusContext(nexus.open(ledger="ledger.db"), budget=32_000)])

The run's own messages stay as they are. A request has those that fit, the same objects where nothing was changed.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai import messages as pa
from pydantic_ai.capabilities import AbstractCapability

import nexus
from nexus.adapters.calls import async_engine, setting_for
from nexus.adapters.pydantic_ai_items import FILE
from nexus.adapters.pydantic_ai_messages import MessageUnit, own_messages, result_of, units_of

LOG = logging.getLogger("nexus.adapters.pydantic_ai")

FILE_TOKENS = 1_500
"""Tokens that a file counts which is no image and no text."""


class NexusContext(AbstractCapability[Any]):
    """Shows the model what fits of a run's messages, and records each request with its answer.

    `principal` is the user, or a function that returns the user of a `RunContext`: lists of two users never meet. `options`
    are arguments of `nexus.Engine.mirror`, such as `budget`.
    """

    def __init__(
        self,
        nx: nexus.Engine | nexus.AsyncEngine,
        *,
        principal: str | Callable[[Any], str] | None = None,
        **options: Any,
    ) -> None:
        self.nx = async_engine(nx)
        self.principal, self.options = principal, {"scope": "pydantic-ai", **options}

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> pa.ModelResponse:
        """Fit a request, let the model answer it, and record both."""
        if not request_context.messages or isinstance(request_context.messages[-1], pa.ModelResponse):
            return await handler(request_context)  # a paused response, which the provider continues
        units = [*units_of(request_context.messages)]
        fitted = await self._fit(ctx, request_context, [unit for unit in units if unit.message])
        response = await handler(replace(request_context, messages=own_messages(units, fitted.messages)))
        if response.state != "complete":
            return response  # a stream that was left: if the run keeps it, the next request has it
        number = sum(bool(unit.message and unit.message.id) for unit in units)
        try:
            await self.nx.record(fitted, result_of(response, number))
        except Exception as error:  # noqa: BLE001 - the run continues with its answer
            LOG.warning("call not recorded: %s", error)
        return response

    async def _fit(self, ctx: Any, request: Any, units: list[MessageUnit]) -> nexus.AssembledContext:
        setup = request.model_request_parameters
        tools = [
            (t.name, t.description, t.parameters_json_schema) for t in (*setup.function_tools, *setup.output_tools)
        ]
        tools += [(tool.kind, repr(tool), {}) for tool in setup.native_tools]
        tools += [("output_format", "", setup.output_object.json_schema)] if setup.output_object else []
        options = {
            "conversation": ctx.conversation_id or ctx.run_id,
            "system": "\n\n".join(part.content for part in setup.instruction_parts or ()),
            "tools": [{"name": n, "description": text or "", "parameters": schema} for n, text, schema in tools],
            "model": request.model.model_name,
            "pins": [number for number, unit in enumerate(units) if unit.is_summary],
        }
        if self.principal is not None:
            options["principal"] = setting_for(ctx, self.principal)
        fit = partial(self.nx.mirror, [unit.message for unit in units], **options | self.options)
        fitted = await fit()
        if files := sum(str(message.parts).count(FILE) for message in fitted.messages):
            fitted = await fit(reserve=min(files * FILE_TOKENS, fitted.token_budget.available // 2))
        return fitted
