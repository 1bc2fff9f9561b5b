"""Calls of tools by a model: the policy is checked when a call runs, then the tool runs.

A context was offered the tools that the policy allowed when it was assembled. The policy may have changed since, and a model
may call a tool that it was not offered.
"""

from __future__ import annotations

from nexus.agents.tools.context import ToolContext
from nexus.assembly.inputs import build_request
from nexus.context import AssembledContext
from nexus.errors import NexusError, ToolNotAllowed, UnknownTool
from nexus.policy.authorization import authorize
from nexus.tools import Tool, ToolRegistry
from nexus.types.message import Text, ToolCall, ToolResult
from nexus.types.options import RequestOptions
from nexus.types.request import Event


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

    Raises UnknownTool, ToolNotAllowed, and as `nexus.policy.decide` and BadPolicy if the policy has become stricter or
    invalid.
    """
    if name not in registry:
        names = sorted(tool.name for tool in (ctx.tools if ctx is not None else registry.tools()))
        raise UnknownTool(f"there is no tool {name!r}; there are: {', '.join(names) or 'none'}")
    tool = registry.get(name)
    if ctx is not None:
        context.engine.check_tool(ctx, name)
    options: RequestOptions = {**context.options, "tools": (tool.offer(),)}
    engine = context.engine
    request, policy = build_request(Event(), context.session, **options), engine.policies.read()
    with engine.store.snapshot():
        authorized = authorize(request, policy, engine.store)
    for denied in authorized.denied_tools:
        permissions, role = authorized.request.permissions, authorized.request.routing.role
        raise ToolNotAllowed(denied.name, permissions.toolset, role, denied.reason)
    return tool
