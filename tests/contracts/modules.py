"""The package's modules as the contracts see them: their files, and what each imports, functions included."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "nexus"


@dataclass(frozen=True)
class Module:
    """A module: its dotted name without `nexus.` (the package itself is `nexus`), its file and its syntax tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module


@dataclass(frozen=True)
class Import:
    """One imported name: from our own package (`own`, then `name` is a module as above) or from elsewhere (dotted)."""

    name: str
    own: bool
    line: int


@cache
def modules() -> dict[str, Module]:
    """All modules of the package by name."""
    found: dict[str, Module] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "nexus"
        text = path.read_text("utf-8")
        found[name] = Module(name, path, text, ast.parse(text))
    return found


def imports(module: Module) -> list[Import]:
    """Everything that the module imports, wherever the statement stands."""
    return [found for node in ast.walk(module.tree) for found in _imports_of(node, module)]


def _imports_of(node: ast.AST, module: Module) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _import(alias.name, node.lineno)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module.path}:{node.lineno}: write imports from nexus in full, not with dots"
        source = node.module or ""
        for alias in node.names:
            whole = f"{source}.{alias.name}"
            yield _import(whole if _own(whole) in modules() else source, node.lineno)


def _import(dotted: str, line: int) -> Import:
    own = dotted == "nexus" or dotted.startswith("nexus.")
    return Import(_own(dotted) if own else dotted, own, line)


def _own(dotted: str) -> str:
    return dotted.removeprefix("nexus.")


def resolves(name: str) -> bool:
    """Return True if a dotted name is a module, or a name in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
