"""The documented interface of the workspace builder (document 003), as a thin door on the rooms of Nexus."""

from __future__ import annotations

from nexus.compat.nanobot.agent.context import ContextBuilder

__all__ = ["ContextBuilder"]
