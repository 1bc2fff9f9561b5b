"""Document 003's interface of the workspace builder."""

from __future__ import annotations

from nexus.compat.nanobot.agent.context import ContextBuilder

__all__ = ["ContextBuilder"]
