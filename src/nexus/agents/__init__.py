"""Agents: what runs a model in a loop, the tools that it has, and other programs in its place."""

from nexus.agents.agent import Agent
from nexus.agents.engine import AgentEngine, AgentTools, Confirm, Limits
from nexus.agents.loop import ToolLoop
from nexus.agents.program import AgentProgram
from nexus.agents.workers import WorkerLimits

__all__ = ["Agent", "AgentEngine", "AgentProgram", "AgentTools", "Confirm", "Limits", "ToolLoop", "WorkerLimits"]
