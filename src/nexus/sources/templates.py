"""The starter texts that `nexus init` writes. One that nobody touched says nothing yet, so it counts as absent."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable


@cache
def templates() -> dict[str, str]:
    """Each template's text by its path in a workspace."""
    found: dict[str, str] = {}
    _collect(files("nexus.prompts") / "templates", "", found)
    return dict(sorted(found.items()))


@cache
def template_texts() -> frozenset[str]:
    """The templates' texts without outer white space, to compare a workspace's files with."""
    return frozenset(text.strip() for text in templates().values())


def _collect(folder: Traversable, prefix: str, found: dict[str, str]) -> None:
    for item in folder.iterdir():
        name = f"{prefix}{item.name}"
        if item.is_dir():
            _collect(item, f"{name}/", found)
        elif item.name.endswith(".md"):
            found[name] = item.read_text("utf-8")
