"""What the tests of sources share: a workspace with files, and what one source gives for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nexus
from nexus.types.block import ContextWarning
from nexus.types.profile import Profile


def write(root: Path, **files: str) -> Path:
    """Writes files into a folder; `__` in a name stands for a folder, and `.md` is added. The folder."""
    for name, text in files.items():
        put(root / f"{name.replace('__', '/')}.md", text)
    root.mkdir(parents=True, exist_ok=True)
    return root


def put(path: Path, text: str) -> Path:
    """Writes one file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def opened(root: Path, *sources: str, **options: Any) -> nexus.Engine:
    """An engine whose profile `mine` has these sources in its system slot."""
    mine = Profile("mine", "for a test", sources, ())
    return nexus.open(root, ledger=":memory:", profiles={"mine": mine}, **options)


def context(root: Path, *sources: str, **options: Any) -> nexus.AssembledContext:
    """The context of a first call with these sources in its system slot."""
    with opened(root, *sources, **options) as nx:
        return nx.assemble("hi", profile="mine")


def told(warnings: tuple[ContextWarning, ...]) -> dict[str, str]:
    """The warnings by their origin, joined."""
    found: dict[str, str] = {}
    for one in warnings:
        found[one.source] = f"{found[one.source]}; {one.message}" if one.source in found else one.message
    return found
