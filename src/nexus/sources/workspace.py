"""The Workspace layer's rules: AGENTS.md, and TOOLS.md as the guide to tools (documents 002 and 003)."""

from __future__ import annotations

from nexus.block import Block
from nexus.sources.desk import Desk, Gathered, file_block


def rules(desk: Desk) -> Gathered:
    """AGENTS.md."""
    return file_block(desk, "AGENTS.md", "Workspace rules", Block("Workspace", "rules", "", ""))


def tools_guide(desk: Desk) -> Gathered:
    """TOOLS.md."""
    return file_block(desk, "TOOLS.md", "Using tools", Block("Workspace", "tools guide", "", ""))
