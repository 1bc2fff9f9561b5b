"""Typed tools: Python functions that a model may call, as values with a schema, and the registry that knows and calls them."""

from __future__ import annotations

from nexus.tools.registry import ToolRegistry
from nexus.tools.tool import Tool

__all__ = ["Tool", "ToolRegistry"]
