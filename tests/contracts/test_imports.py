"""Who may import whom: values at the bottom, the command line at the top, nothing upwards, no room its neighbour."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from contracts.modules import ROOT, Import, Module, imports, modules
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.profiles.builtin import PROFILES
from nexus.interop.readers import READERS
from nexus.types.registry import Registry
from nexus.workspace.sources.registry import SOURCES

RULE = (
    "errors < types < text, ledger, bus, tools, tracing < tokens, policy < context < providers < render, models < compaction < workspace"
    " < plugins < assembly < engine < interop < turnlog < agents < broker < services < compat < server < cli, testing"
    " < __main__"
)
"""From the bottom up: a module imports from rooms further left and from its own room, never from a neighbor.

A room is a module or package at the top of `nexus`. docs/architecture.md has the same line.
"""

PUBLIC_NAMES_ABOVE = "engine"
"""The package `nexus` itself has a layer of its own above this room: it imports the public names."""

PURE = (
    "errors",
    "types",
    "text",
    "tokens",
    "policy",
    "context",
    "providers",
    "render",
    "assembly",
    "compaction.check_summary",
    "compaction.extractive",
    "compaction.prompt",
    "engine.analysis.diff",
    "engine.analysis.explain",
    "workspace.prompts",
    "ledger.chain",
    "ledger.codec",
    "ledger.integrity",
    "ledger.lineage",
    "ledger.operations",
    "ledger.records",
    "ledger.replay",
    "ledger.search_text",
    "ledger.sessions",
    "ledger.store",
    "ledger.text_encoding",
)
"""Modules and packages without files, clocks, network or database."""

IMPURE = frozenset(
    {
        "os",
        "pathlib",
        "io",
        "shutil",
        "tempfile",
        "glob",
        "time",
        "socket",
        "ssl",
        "http",
        "urllib",
        "sqlite3",
        "apsw",
        "subprocess",
        "threading",
        "asyncio",
        "random",
        "secrets",
        "uuid",
        "platform",
        "locale",
        "importlib",
        "pkgutil",
        "logging",
        "sys",
    }
)
"""Standard modules and packages that reach outside, or make two runs differ."""

MAY_REACH_OUTSIDE = {
    "assembly.profiles.user.python": "runs a profile that is a Python file",
    "assembly.profiles.user.registry": "finds and reads the files of profiles",
    "types.registry": "imports what rooms registered, when it is looked up",
    "text.redact": "reads the shipped formats of secrets",
    "text.frames.tags": "reads the shipped table of shapes",
    "compaction.extractive.patterns": "reads the shipped table of words and expressions",
    "providers.errors.messages": "reads the shipped table of error messages",
    "workspace.prompts": "reads the shipped prompts",
    "tokens.model_table": "reads the shipped tables of models and a vocabulary that lies on this machine",
}

CLOCK_CALLS = frozenset({"now", "today", "utcnow"})

ONLY_IN: dict[str, tuple[str, ...]] = {
    "apsw": ("ledger.sqlite.connection",),
    "psycopg": ("ledger.postgres",),
    "toktok": ("tokens.counter",),
    "tiktoken": ("tokens.counter",),
    "PIL": ("workspace.image_files",),
    "yaml": ("workspace.files.front_matter", "services.template"),
    "docstring_parser": ("tools",),
    "filelock": ("workspace.memory.files",),
    "markdown_it": ("workspace.memory.facts",),
    "pluggy": ("plugins.spec", "plugins.load"),
    "regex": ("services.tagged", "cli._token_counts", "agents.tools.files"),
    "mcp": ("agents.mcp_tools",),
    "nats": ("bus.nats", "bus.nats_client", "bus.nats_streams"),
    "click": ("cli",),
    "prompt_toolkit": ("cli.chat_input",),
    "rich": ("cli",),
    "keyring": ("workspace.credentials.system",),
    "openai": ("models.endpoints",),
    "anthropic": ("models.endpoints",),
    "google": ("models.endpoints",),
    "starlette": ("server.app",),
    "uvicorn": ("server.connections", "server.http"),
    "httpx2": ("agents.mcp_tools", "models.endpoints"),
    "xllamacpp": ("models.llama_process",),
}
"""What comes from other distributions, and the only places that know it. A provider's package is known where models are
called, and nowhere else."""

IMPORTED_BY_NAME = {
    "nexus": "public names are imported when they are first used",
    "bus": "public names are imported when they are first used",
    "cli": "a command is imported when it is called",
    "services": "public names are imported when they are first used",
    "types.registry": "rooms above the core add rows by name; a row is imported when it is looked up",
}
"""Modules that may call `import_module`: only downwards, or inside their own room. A registry imports upwards, but names
no room: the rooms name themselves (`registration`)."""

GUESTS = ("turnlog", "services", "compat", "broker")
"""Rooms that the core does not know: it neither imports nor names them."""

REGISTRATIONS = "nexus"
"""The only module below the guests that names them, in `add_registrations`."""


@cache
def layers() -> dict[str, int]:
    """Return the number of each room's layer, counted from the bottom; `nexus` is the package itself."""
    rows = [row.split(", ") for row in RULE.split(" < ")]
    above = next(number for number, row in enumerate(rows, 1) if PUBLIC_NAMES_ABOVE in row)
    rows.insert(above, ["nexus"])
    return {room: number for number, row in enumerate(rows) for room in row}


def place_of(name: str) -> tuple[int, str]:
    """Return the layer's number and the room of a module."""
    room = name.partition(".")[0]
    assert room in layers(), f"{name} stands in no room: give it one in RULE"
    return layers()[room], room


def of_pure_rooms() -> list[str]:
    return [
        name
        for name in modules()
        if any(name == one or name.startswith(f"{one}.") for one in PURE) and name not in MAY_REACH_OUTSIDE
    ]


def test_every_module_stands_in_a_room_and_every_room_has_modules() -> None:
    assert {place_of(name)[1] for name in modules()} == set(layers())


def test_architecture_page_states_the_rule() -> None:
    assert f"`{RULE}`" in (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_a_module_imports_only_its_own_room_and_lower_layers() -> None:
    wrong = [
        f"{name}:{found.line} ({room}) imports {found.name} ({their_room})"
        for name, module in modules().items()
        for number, room in [place_of(name)]
        for found in imports(module)
        if found.own
        for their_number, their_room in [place_of(found.name)]
        if their_room != room and their_number >= number and not _for_types_only(module, found)
    ]
    assert wrong == []


def _for_types_only(module: Module, found: Import) -> bool:
    """Imports for type checkers alone: the public names, and functions that take an engine without needing its room."""
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and node.lineno <= found.line <= (node.end_lineno or 0)
        for node in module.tree.body
    )


def test_a_pure_room_touches_no_file_clock_network_or_database() -> None:
    wrong = [f"{name}:{line} {what}" for name in of_pure_rooms() for line, what in _reaching_outside(modules()[name])]
    assert wrong == [], "modules of pure rooms that reach outside"


def _reaching_outside(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each import or call that reads the world."""
    for found in imports(module):
        if found.name.split(".")[0] in IMPURE:
            yield found.line, f"import {found.name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
                yield node.lineno, f".{node.func.attr}()"
            elif isinstance(node.func, ast.Name) and node.func.id in ("open", "input", "print"):
                yield node.lineno, f"{node.func.id}()"


def test_exemptions_are_modules_that_exist_and_need_them() -> None:
    for name in MAY_REACH_OUTSIDE:
        assert any(found.name.split(".")[0] in IMPURE for found in imports(modules()[name])), f"{name} needs none"


def test_a_package_from_elsewhere_is_known_in_one_place() -> None:
    users: dict[str, set[str]] = {package: set() for package in ONLY_IN}
    for name, module in modules().items():
        for found in imports(module):
            package = found.name.split(".")[0]
            if not found.own and package in users:
                users[package].add(name)
    wrong = {
        package: sorted(outside)
        for package, allowed in ONLY_IN.items()
        for outside in [{n for n in users[package] if not any(n == one or n.startswith(f"{one}.") for one in allowed)}]
        if outside
    }
    assert wrong == {}, "modules that import a package outside its one place"
    unused = [package for package, allowed in ONLY_IN.items() if allowed and not users[package]]
    assert unused == [], "no module imports these packages: remove them from ONLY_IN"


def test_modules_are_imported_by_name_only_where_it_says_so() -> None:
    calling = {
        name
        for name, module in modules().items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__")
    }
    assert calling == set(IMPORTED_BY_NAME)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    links = {
        name: {found.name for found in imports(module) if found.own and name not in (found.name, "nexus")}
        for name, module in modules().items()
    }
    while leaves := {name for name, needed in links.items() if not needed & links.keys()}:
        links = {name: needed for name, needed in links.items() if name not in leaves}
    assert sorted(links) == [], "these modules need each other"


def test_the_core_names_no_guest() -> None:
    """A string such as `nexus.turnlog.reader` is an import that no rule sees."""
    core = {name for name in modules() if place_of(name)[0] <= layers()["engine"]} - {REGISTRATIONS}
    named = [
        f"{name}:{node.lineno} {node.value[:60]!r}"
        for name in sorted(core)
        for node in ast.walk(modules()[name].tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.match(rf"nexus\.({'|'.join(GUESTS)})\b", node.value)
    ]
    assert named == []


def test_every_registered_row_can_be_imported() -> None:
    tables: tuple[Registry[Any], ...] = (FORMATS, PROFILES, READERS, SOURCES)
    assert [name for table in tables for name, row in table.items() if row is None] == []
    assert [len(table.own_names) for table in tables] == [4, 7, 6, 38]


WORDS_OF_GUESTS = re.compile(
    r"\bturn[ _-]?log|tagged|shared[ _-]memory|friends[ _]block|this[ _]moment|document 00[01]", re.IGNORECASE
)
"""Names of what guests show, in code, strings, docstrings and comments."""

MAY_USE_WORDS_OF_GUESTS = {
    REGISTRATIONS: "lists the modules of registrations",
    "errors": "the tree of all errors",
    "types.history": "a stored source of messages",
    "compaction.extractive.statements": "drops the words of frames from statements",
    "ledger.maintenance.doctor": "the shared memory of a log file",
    "ledger.sqlite.connection": "the shared memory of a log file",
    "text.frames": "text must not forge a tag, also of a guest that is not loaded",
    "text.frames.tags": "text must not forge a tag, also of a guest that is not loaded",
    "text.frames.scanner": "text must not forge a tag, also of a guest that is not loaded",
}


def test_the_core_uses_no_words_of_guests() -> None:
    core = {name for name in modules() if place_of(name)[0] <= layers()["engine"]} - MAY_USE_WORDS_OF_GUESTS.keys()
    used = [
        f"{name}:{number} {match[0]!r}"
        for name in sorted(core)
        for number, line in enumerate(modules()[name].text.split("\n"), 1)
        if (match := WORDS_OF_GUESTS.search(line))
    ]
    assert used == []
