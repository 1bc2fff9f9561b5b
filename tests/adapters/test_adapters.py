"""The adapters as examples: short, and on the public interface alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nexus

ADAPTERS = sorted(Path(__file__).parent.glob("*_adapter.py"))
MOST_LINES = 60


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_adapter_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_adapter_uses_public_names_alone(path: Path) -> None:
    used: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                modules = [alias.name for alias in names]
                assert [m for m in modules if m.startswith("nexus.")] == []
            case ast.ImportFrom(module) if module is not None:
                assert module.partition(".")[0] != "nexus"
            case ast.Attribute(ast.Name("nexus"), name):
                used.add(name)
            case ast.Attribute(_, name):
                assert not name.startswith("_") or name.endswith("__")
            case _:
                pass
    assert used and used <= set(nexus.__all__)
