"""Agents: the loop of model calls and tool calls, its tools and workers, and programs that run turns themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.agents.agent import Agent
    from nexus.agents.engine import AgentEngine, AgentTools, Confirm, Limits
    from nexus.agents.loop import ToolLoop
    from nexus.agents.mcp_tools import McpTools, configured_servers, open_mcp_tools
    from nexus.agents.program import AgentProgram
    from nexus.agents.tools import ToolContext, builtin_tools
    from nexus.agents.tools.calls import run_call
    from nexus.agents.workers import WorkerLimits
    from nexus.render.tool_list import capabilities_text

__all__ = [
    "Agent",
    "AgentEngine",
    "AgentProgram",
    "AgentTools",
    "Confirm",
    "Limits",
    "McpTools",
    "ToolContext",
    "ToolLoop",
    "WorkerLimits",
    "builtin_tools",
    "capabilities_text",
    "configured_servers",
    "open_mcp_tools",
    "run_call",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist; asyncio costs time
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.agents.agent": "Agent",
            "nexus.agents.engine": "AgentEngine AgentTools Confirm Limits",
            "nexus.agents.loop": "ToolLoop",
            "nexus.agents.mcp_tools": "McpTools configured_servers open_mcp_tools",
            "nexus.agents.program": "AgentProgram",
            "nexus.agents.tools": "ToolContext builtin_tools",
            "nexus.agents.tools.calls": "run_call",
            "nexus.agents.workers": "WorkerLimits",
            "nexus.render.tool_list": "capabilities_text",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
