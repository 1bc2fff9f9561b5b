"""docs/architecture.md, the map in CONTRIBUTING.md and the docstrings of packages: what they name exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from contracts.modules import PACKAGE, ROOT, Module, modules, resolves
from nexus.ledger.sqlite.schema import VERSION

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
MAP = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Map of rooms")[2].partition("\n## ")[0]

PLAIN_WORDS = {
    "broker": {"layered"},
    "compat.nanobot": {"nanobot"},
    "ledger.integrity": {"dump"},
    "testing.ledger_conformance": {"open"},
    "types.tool_schemas": {"const", "default", "description", "enum", "items", "not"},
}
"""Words in docstrings of packages that name neither a module nor a function."""


def paths_of(answer: str) -> Iterator[Path]:
    """Yield the paths of a row's answer; all but the first are in the first one's folder."""
    first, *others = re.findall(r"`([\w./]+)`", answer)
    yield ROOT / first
    for name in others:
        yield (ROOT / first).parent / name


def rooms() -> list[str]:
    names = [path.name + ("/" if path.is_dir() else "") for path in PACKAGE.iterdir()]
    return [name for name in names if name[0] not in "_." and name != "py.typed"]


def missing_paths(room_map: str) -> list[str]:
    """Return the files and folders of a map that exist neither in `src/nexus` nor in the room of their row."""
    missing: list[str] = []
    for row in re.findall(r"^\| `.+$", room_map, re.MULTILINE):
        paths = re.findall(r"`([\w./]+(?:/|\.py))`", row)
        room = PACKAGE / paths[0]
        missing += [path for path in paths if not (PACKAGE / path).exists() and not (room / path).exists()]
    return missing


def unknown_names(package: Module, docstring: str) -> list[str]:
    """Return the names in a package's docstring that are neither rooms nor modules or public names of the package."""
    folder = package.path.parent
    known = {"nexus", *(path.stem for path in (*PACKAGE.iterdir(), *folder.iterdir()))}
    for module in modules().values():
        if module.path.is_relative_to(folder):
            known.update(_names_of(module))
    plain = [word for word in re.findall(r"`([a-z_]+)`", docstring) if word not in known]
    dotted = [name for name in re.findall(r"`(nexus(?:\.\w+)+)", docstring) if not resolves(name)]
    return plain + dotted


def _names_of(module: Module) -> Iterator[str]:
    """Yield the functions that a module defines, and its `__all__`."""
    for node in module.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)


def test_every_path_exists() -> None:
    rows = re.findall(r"^\| .+\? \| (`src/nexus/.+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 20
    assert [path for row in rows for path in paths_of(row) if not path.exists()] == []
    assert [path for path in re.findall(r"# (src/nexus/\S+)", PAGE) if not (ROOT / path).exists()] == []


def test_every_room_is_shown() -> None:
    _, picture, *others = PAGE.split("```text")
    assert others == [], "one picture: the rooms"
    assert [room for room in rooms() if room not in picture] == []


def test_the_newest_migration_is_named() -> None:
    assert f"`migration_{VERSION}.sql`" in PAGE


def test_every_room_has_a_row_in_the_map_and_every_path_of_the_map_exists() -> None:
    assert missing_paths(MAP) == []
    firsts = "".join(re.findall(r"^\| ([^|]+) \|", MAP, re.MULTILINE))
    assert [room for room in rooms() if f"`{room}`" not in firsts] == []


def test_docstrings_of_packages_name_what_exists() -> None:
    unknown: dict[str, set[str]] = {}
    for name, module in modules().items():
        if module.path.name == "__init__.py":
            found = unknown_names(module, ast.get_docstring(module.tree) or "")
            if found:
                unknown[name] = set(found)
    assert unknown == PLAIN_WORDS


def test_a_path_and_a_name_that_do_not_exist_are_found() -> None:
    assert missing_paths("| `engine/` | `turn.py`, `recovery.py`; `mirror/` | `policy/link.py`, `plugins/` |") == [
        "recovery.py",
        "plugins/",
    ]
    text = "`turn`, `recovery`, `available_tokens`, `ledger`, `nexus.open`, `nexus.engine.recovery`"
    assert unknown_names(modules()["engine"], text) == ["recovery", "nexus.engine.recovery"]
