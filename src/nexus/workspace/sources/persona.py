"""The Persona layer: SOUL.md, IDENTITY.md (in the persona's folder or the root), and what this call may do."""

from __future__ import annotations

from nexus.types.block import Block, Warned
from nexus.workspace.files.one_line import one_line
from nexus.workspace.source_context import Desk, Gathered, file_block


def soul(desk: Desk) -> Gathered:
    """SOUL.md: personality, values, boundaries."""
    return _of_persona(desk, "SOUL.md", "Soul", "soul")


def identity(desk: Desk) -> Gathered:
    """The agent's IDENTITY.md: name, emoji, vibe. A persona without any file of its own is a warning."""
    found, warned = _of_persona(desk, "IDENTITY.md", "Identity", "identity")
    return found, [*warned, *_unknown(desk)]


def permissions(desk: Desk) -> Gathered:
    """The granted permissions, sorted, a line each that no name can break; absent when none are named."""
    allowed = desk.request.permissions
    if not allowed.granted:
        return [], []
    lines = [f"- {one_line(name)}" for name in sorted(allowed.granted)]
    heading = f"# Permissions\n\nToolset: {one_line(allowed.toolset)}" if allowed.toolset else "# Permissions"
    text = "\n".join([heading, "", *lines])
    return [Block("Persona", "permissions", text, "nexus:permissions", trust="system")], []


def _unknown(desk: Desk) -> list[Warned]:
    """A word on a persona that is nowhere: a name is misspelt easily, and another soul would answer in silence."""
    persona = desk.request.identity.persona
    names = (f"personas/{persona}/{file}" for file in ("IDENTITY.md", "SOUL.md"))
    if not persona or desk.files is None or any(any(desk.files.read(name)) for name in names):
        return []
    text = f"there is no SOUL.md or IDENTITY.md in personas/{one_line(persona)}: those of the workspace answer"
    return [Warned("nexus:persona", text)]


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
