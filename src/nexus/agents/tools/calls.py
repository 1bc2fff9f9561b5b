"""Calls of tools by a model: the policy is checked when a call runs, then the tool runs.

A context was offered the tools that the policy allowed when it was assembled. The policy may have changed since, and a model
may call a tool that it was not offered.
"""

from __future__ import annotations

from nexus.agents.tools.context import ToolContext
from nexus.context import AssembledContext
from nexus.errors import NexusError, ToolCallFailed, tool_not_allowed
from nexus.policy.authorization import authorize
from nexus.tools import Tool, ToolRegistry
from nexus.types.message import Text, ToolCall, ToolResult
from nexus.types.request import Event, Request
from nexus.types.tool_definition import tool_definitions


async def run_call(
    registry: ToolRegistry, call: ToolCall, context: ToolContext, ctx: AssembledContext | None = None
) -> ToolResult:
    """Check a model's call and run it; a denied call, and each error, is a result with `is_error`.

    Args:
        registry: The agent's tools.
        call: The call.
        context: The turn for which it runs.
        ctx: The context that the model answered; tools that it did not offer are denied.
    """
    try:
        await context.run(check_call, registry, call.name, context, ctx)
    except NexusError as error:
        return ToolResult(call.id, (Text(str(error)),), call.name, is_error=True)
    return await registry.execute_call(call)


def check_call(registry: ToolRegistry, name: str, context: ToolContext, ctx: AssembledContext | None = None) -> Tool:
    """Return the tool if it may be called now.

    Raises ToolCallFailed, NotAllowed, and as `nexus.policy.decide` and BadConfig if the policy has become stricter or
    invalid.
    """
    if name not in registry:
        names = sorted(tool.name for tool in (ctx.tools if ctx is not None else registry.tools()))
        raise ToolCallFailed(f"there is no tool {name!r}; there are: {', '.join(names) or 'none'}", code="unknown_tool")
    tool = registry.get(name)
    if ctx is not None:
        context.engine.check_tool(ctx, name)
    engine = context.engine
    request = Request(Event(), context.session, context.settings, tool_definitions((tool.offer(),)))
    policies = engine.policies.read()
    with engine.ledger.store.snapshot():
        authorized = authorize(request, policies, engine.ledger.store)
    for denied in authorized.denied_tools:
        settings = authorized.request.settings
        raise tool_not_allowed(denied.name, settings.toolset, settings.role, denied.reason)
    return tool
