"""Agents: the loop of model calls and tool calls, its tools and workers, and programs that run turns themselves."""

from nexus.agents.agent import Agent
from nexus.agents.engine import AgentEngine, AgentTools, Confirm, Limits
from nexus.agents.loop import ToolLoop
from nexus.agents.program import AgentProgram
from nexus.agents.workers import WorkerLimits

__all__ = ["Agent", "AgentEngine", "AgentProgram", "AgentTools", "Confirm", "Limits", "ToolLoop", "WorkerLimits"]
