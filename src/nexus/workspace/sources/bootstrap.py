"""Bootstrap files (document 003, "Bootstrap Files"): five files of the workspace root, in the printed order."""

from __future__ import annotations

from nexus.types.block import Block, Warned
from nexus.workspace.source_context import Desk, Gathered, file_block
from nexus.workspace.sources.instructions import within_total

FILES = (
    Block("Workspace", "AGENTS.md", "", ""),
    Block("Persona", "SOUL.md", "", ""),
    Block("Persona", "USER.md", "", "", trust="user"),
    Block("Workspace", "TOOLS.md", "", ""),
    Block("Persona", "IDENTITY.md", "", ""),
)


def bootstrap(desk: Desk) -> Gathered:
    """One block for each file that is there, under a heading with its name; an untouched template is not. Raises OverCap."""
    blocks: list[Block] = []
    warned: list[Warned] = []
    for block in FILES:
        found, notes = file_block(desk, block.name, block.name, block)
        blocks += found
        warned += notes
    shown, more = within_total(blocks, desk.around.config.instructions, "bootstrap files")
    return shown, [*warned, *more]
