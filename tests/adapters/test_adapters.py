"""The adapters: short, and on the public interface alone."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import nexus

ADAPTERS = sorted((Path(nexus.__file__).parent / "adapters").glob("*.py"))
OWN_LIMITS = ("item_log.py",)
"""Modules of adapters that are no adapter of a framework."""

BELOW = {"claude_agent.py": ("nexus.interop",)}
"""Rooms whose names an adapter needs too: the session store imports as `nexus import` does."""

FRAMEWORKS = [path for path in ADAPTERS if path.name not in OWN_LIMITS]
PUBLIC = ("nexus", "nexus.errors", "nexus.types")
MOST_LINES = 150


@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_adapter_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_adapter_uses_public_names_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                assert [alias.name for alias in names if alias.name.startswith("nexus.")] == []
            case ast.ImportFrom(module, names) if module is not None and module.partition(".")[0] == "nexus":
                if not module.startswith(("nexus.adapters.", *BELOW.get(path.name, ()))):
                    assert module in PUBLIC
                    assert {alias.name for alias in names} <= set(import_module(module).__all__)
            case ast.Attribute(ast.Name("nexus"), name):
                assert name in nexus.__all__
            case ast.Attribute(value, name) if name.startswith("_") and not name.endswith("__"):
                assert isinstance(value, ast.Name) and value.id == "self"
            case _:
                pass
