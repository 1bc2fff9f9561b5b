"""The Persona layer: SOUL.md, IDENTITY.md (in the persona's folder or the root), and what this call may do."""

from __future__ import annotations

from nexus.block import Block
from nexus.sources.desk import Desk, Gathered, file_block


def soul(desk: Desk) -> Gathered:
    """SOUL.md: personality, values, boundaries."""
    return _of_persona(desk, "SOUL.md", "Soul", "soul")


def identity(desk: Desk) -> Gathered:
    """The agent's IDENTITY.md: name, emoji, vibe."""
    return _of_persona(desk, "IDENTITY.md", "Identity", "identity")


def permissions(desk: Desk) -> Gathered:
    """The granted permissions, sorted; absent when none are named."""
    allowed = desk.request.permissions
    if not allowed.granted:
        return [], []
    lines = [f"- {name}" for name in sorted(allowed.granted)]
    heading = f"# Permissions\n\nToolset: {allowed.toolset}" if allowed.toolset else "# Permissions"
    text = "\n".join([heading, "", *lines])
    return [Block("Persona", "permissions", text, "nexus:permissions", trust="system")], []


def _of_persona(desk: Desk, file: str, title: str, name: str) -> Gathered:
    persona = desk.request.identity.persona
    block = Block("Persona", name, "", "")
    if persona:
        found, warned = file_block(desk, f"personas/{persona}/{file}", title, block)
        if found:
            return found, warned
        shared, more = file_block(desk, file, title, block)
        return shared, [*warned, *more]
    return file_block(desk, file, title, block)
