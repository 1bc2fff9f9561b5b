"""Skills as a workspace has them, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

SHELL = ({"name": "bash", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}},)
"""Tools of an agent that can run the command `nexus`, which the prompt then names."""


def write_skill(
    workspace: Path,
    name: str,
    *,
    category: str = "",
    provides: Iterable[str] = (),
    requires: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """A skill in the workspace's `skills`. JSON texts are YAML, whatever they hold."""
    folder = workspace / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    fields = {
        "category": category,
        "provides": list(provides),
        "requires": {kind: list(names) for kind, names in (requires or {}).items()},
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in fields.items() if value]
    text = "\n".join(
        ["---", f"name: {name}", f"description: What {name} is for.", *lines, "---", "", "How to do it.", ""]
    )
    (folder / "SKILL.md").write_text(text, "utf-8")
