"""The tools of the request as text, for forms that tell a model of its tools in a message (document 000's [CAPABILITIES])."""

from __future__ import annotations

from nexus.render.tool_list import capabilities_text
from nexus.types.block import Block
from nexus.workspace.source_context import Desk, Gathered


def capabilities(desk: Desk) -> Gathered:
    """Names, descriptions and parameters of the tools, sorted by name; nothing without tools. Raises BadTool."""
    tools = desk.request.tools
    if not tools:
        return [], []
    return [Block("Workspace", "capabilities", capabilities_text(tools), "nexus:capabilities", trust="tool")], []
