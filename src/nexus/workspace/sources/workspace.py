"""The Workspace layer's rules: AGENTS.md, and TOOLS.md as the guide to tools (documents 002 and 003)."""

from __future__ import annotations

from nexus.types.block import Block
from nexus.workspace.source_context import Desk, Gathered, file_block
from nexus.workspace.sources.instructions import with_includes


def rules(desk: Desk) -> Gathered:
    """AGENTS.md, with the files that it includes. Raises OverCap."""
    return with_includes(desk, "AGENTS.md", "Workspace rules", Block("Workspace", "rules", "", ""))


def tools_guide(desk: Desk) -> Gathered:
    """TOOLS.md."""
    return file_block(desk, "TOOLS.md", "Using tools", Block("Workspace", "tools guide", "", ""))
