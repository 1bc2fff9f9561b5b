"""The starter texts that `nexus init` writes. One that nobody touched says nothing yet, so it counts as absent."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_UNTOUCHED = "<!-- This is an untouched template"
"""How the first line begins that says that nobody has changed a template yet."""


@cache
def templates() -> dict[str, str]:
    """Each template's text by its path in a workspace."""
    found: dict[str, str] = {}
    _collect(files("nexus.workspace.prompts") / "templates", "", found)
    return dict(sorted(found.items()))


@cache
def template_texts() -> frozenset[str]:
    """The templates' texts without outer white space, to compare a workspace's files with."""
    return frozenset(text.strip() for text in templates().values())


def is_edited(text: str) -> str:
    """The text of a changed template, without the line that says that nobody has; any other text as it is."""
    first, _, rest = text.lstrip().partition("\n")
    return rest if first.startswith(_UNTOUCHED) and first.rstrip().endswith("-->") else text


def _collect(folder: Traversable, prefix: str, found: dict[str, str]) -> None:
    for item in folder.iterdir():
        name = f"{prefix}{item.name}"
        if item.is_dir():
            _collect(item, f"{name}/", found)
        elif item.name.endswith(".md"):
            found[name] = item.read_text("utf-8")
