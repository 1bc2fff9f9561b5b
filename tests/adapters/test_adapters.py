"""The adapters, and the examples next to these tests: short, and on the public interface alone."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import nexus

EXAMPLES = sorted(Path(__file__).parent.glob("*_adapter.py"))
ADAPTERS = sorted((Path(nexus.__file__).parent / "adapters").glob("*.py"))
OWN_LIMITS = ("item_log.py",)
"""Modules of adapters that are no adapter of a framework."""

BELOW = {"claude_agent.py": ("nexus.interop",)}
"""Rooms whose names an adapter needs too: the session store imports as `nexus import` does."""

FRAMEWORKS = [path for path in ADAPTERS if path.name not in OWN_LIMITS]
PUBLIC = ("nexus", "nexus.errors", "nexus.types")
MOST_LINES = 150
MOST_LINES_OF_EXAMPLE = 60


@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_adapter_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES_OF_EXAMPLE


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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_uses_public_names_alone(path: Path) -> None:
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
