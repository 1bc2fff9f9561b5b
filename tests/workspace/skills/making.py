"""Small skills and workspaces for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nexus
from nexus.engine import Engine

READ_FILE = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}


def skill(root: Path, name: str, *fields: str, description: str = "", body: str = "", folder: str = "") -> Path:
    """Writes `skills/FOLDER/SKILL.md` under a root, with further lines of front matter; its path."""
    lines = [
        "---",
        f"name: {name}",
        f"description: {description or f'does {name}'}",
        *fields,
        "---",
        body or f"How {name} is done.",
    ]
    return written(root, folder or name, "\n".join(lines) + "\n")


def written(root: Path, folder: str, text: str | bytes) -> Path:
    """Writes a SKILL.md with exactly this text; its path."""
    path = root / "skills" / folder / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def opened(root: Path, **options: Any) -> Engine:
    """An engine for a workspace; nothing of it is kept."""
    return nexus.open(root, ledger=":memory:", **options)


def index(ctx: nexus.AssembledContext) -> str:
    """The text of the list of skills."""
    return next(block.text for block in ctx.provenance.blocks if block.name == "skills")


def line_of(ctx: nexus.AssembledContext, name: str) -> str:
    """The line of one skill in the list."""
    (line,) = (line for line in index(ctx).splitlines() if line.startswith(f"- {name}: "))
    return line


def warned(ctx: nexus.AssembledContext, origin: str) -> str:
    """All that the report says of one origin."""
    return "\n".join(note.message for note in ctx.warnings if note.source == origin)
