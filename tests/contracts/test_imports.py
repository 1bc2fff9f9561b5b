"""Who may import whom: values at the bottom, the command line at the top, nothing upwards, no room its neighbour."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contracts.modules import ROOT, Import, Module, imports, modules
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.profiles.builtin import PROFILES
from nexus.interop.readers import READERS
from nexus.types.registry import Registry
from nexus.workspace.sources.registry import SOURCES

RULE = (
    "errors < types < bus, ledger, text, tools < policy, tokens < context < providers < models, render < summarization < workspace"
    " < assembly < engine < interop < agents, turnlog < broker < server, services < adapters, compat, proxy < cli, extend, testing < __main__"
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
    "summarization.check_summary",
    "summarization.extractive",
    "summarization.prompt",
    "engine.analysis.diff",
    "engine.analysis.explain",
    "workspace.prompts",
    "ledger.chain",
    "ledger.codec",
    "ledger.session_directory",
    "ledger.integrity",
    "ledger.history_operations",
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
    "types.decoding": "holds a lock while msgspec gathers a type's fields",
    "types.registry": "imports what rooms registered, when it is looked up",
    "text.redact": "reads the shipped formats of secrets",
    "text.frames.tags": "reads the shipped table of shapes",
    "summarization.extractive.patterns": "reads the shipped table of words and expressions",
    "providers.errors.error_rules": "reads the shipped table of error messages",
    "workspace.prompts": "reads the shipped prompts",
    "tokens.starting_counter": "has the vocabulary written by a process of its own",
    "tokens.vocabulary_file": "reads and writes the stored vocabulary",
    "tokens.model_table": "reads the shipped tables of models and a vocabulary that lies on this machine",
}

CLOCK_CALLS = frozenset({"now", "today", "utcnow"})

ONLY_IN: dict[str, tuple[str, ...]] = {
    "apsw": ("ledger.sqlite.connection",),
    "psycopg": ("ledger.postgres",),
    "toktok": ("tokens.counter",),
    "tzlocal": ("workspace.times",),
    "tiktoken": ("tokens.counter",),
    "PIL": ("workspace.image_files",),
    "yaml": ("workspace.files.front_matter", "services.template"),
    "docstring_parser": ("tools",),
    "filelock": ("workspace.memory.files",),
    "markdown_it": ("workspace.memory.facts",),
    "pluggy": ("workspace.plugins.spec", "workspace.plugins.load"),
    "regex": ("services.tagged", "tokens.starting_counter", "agents.tools.files"),
    "mcp": ("agents.mcp_tools", "adapters.mcp_server"),
    "nats": ("bus.nats", "bus.nats_client", "bus.nats_streams"),
    "click": ("cli",),
    "prompt_toolkit": ("cli.chat_input", "cli.chat_paste", "cli.chat_terminal"),
    "rich": ("cli",),
    "keyring": ("workspace.credentials.system",),
    "openai": ("models.endpoints",),
    "anthropic": ("models.endpoints",),
    "google": ("models.endpoints", "adapters.google_adk", "adapters.google_adk_sessions"),
    "claude_agent_sdk": ("adapters.claude_agent",),
    "starlette": ("server.app", "server.http", "proxy.app", "adapters.mcp_server"),
    "httpx": ("proxy.upstream", "proxy.exchange", "proxy.app", "cli.proxy_command"),
    "uvicorn": ("server.connections", "server.http"),
    "httpx2": ("agents.mcp_http", "models.endpoints"),
    "xllamacpp": ("models.llama_process",),
}
"""What comes from other distributions, and the only places that know it. A provider's package is known where models are
called, and nowhere else."""

IMPORTED_BY_NAME = {
    "cli": "a command is imported when it is called",
    "cli._groups": "a subcommand of another module is imported when it is called",
    "assembly.profiles.user.python": "runs a profile that is a Python file",
    "types.registry": "public names, and rows that rooms above the core add by name, are imported when they are used",
}
"""Modules that may load code by its name: only downwards, or inside their own room. A registry imports upwards, but names
no room: the rooms name themselves (`registration`)."""

LOADERS = frozenset(
    {"import_module", "__import__", "exec_module", "load_module", "exec", "eval", "resolve_name", "__builtins__"}
)
"""Functions that load code by its name. A module that only mentions one may call it under another name."""

LOADING_MODULES = frozenset({"importlib", "runpy", "builtins"})
"""Standard modules that have such functions; `importlib.resources`, `.metadata` and `.util` are others."""

GUESTS = ("turnlog", "broker", "services", "compat")
"""Rooms that the core does not know: it neither imports nor names them. docs/architecture.md has the same list.

The core is every room below the first of them.
"""

REGISTRATIONS = "nexus"
"""The only module of the core that names guests, in `add_registrations`."""


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
    assert [line for module in modules().values() for line in upward_imports(module)] == []


def upward_imports(module: Module) -> list[str]:
    """Return the module's imports from rooms that are not below its own."""
    number, room = place_of(module.name)
    return [
        f"{module.name}:{found.line} ({room}) imports {found.name} ({their_room})"
        for found in imports(module)
        if found.own
        for their_number, their_room in [place_of(found.name)]
        if their_room != room and their_number >= number and not _for_types_only(module, found)
    ]


def _for_types_only(module: Module, found: Import) -> bool:
    """Imports for type checkers alone: the public names, and functions that take an engine without needing its room."""
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and node.body[0].lineno <= found.line <= (node.body[-1].end_lineno or 0)
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
    assert {name for name, module in modules().items() if loaders_in(module)} == set(IMPORTED_BY_NAME)


def loaders_in(module: Module) -> list[str]:
    """Return what loads code by its name, whether the module calls it or only mentions it."""
    imported = {found.name for found in imports(module) if found.name in LOADING_MODULES}
    return sorted(imported | {name for node in ast.walk(module.tree) for name in _names_in(node) if name in LOADERS})


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    links = {
        name: {found.name for found in imports(module) if found.own and name not in (found.name, "nexus")}
        for name, module in modules().items()
    }
    while leaves := {name for name, needed in links.items() if not needed & links.keys()}:
        links = {name: needed for name, needed in links.items() if name not in leaves}
    assert sorted(links) == [], "these modules need each other"


def is_of_core(module: Module) -> bool:
    """Return True for the modules that know no guest."""
    return place_of(module.name)[0] < min(layers()[guest] for guest in GUESTS)


def test_architecture_page_and_contributing_list_the_guests() -> None:
    names = ", ".join(f"`{guest}/`" for guest in GUESTS)
    assert f"**Guests.** {names} are guests of the core" in (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert f"names no guest ({names})" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_the_core_names_no_guest() -> None:
    assert [line for module in modules().values() for line in guests_in(module)] == []


PATH_OF_GUEST = re.compile(rf"nexus[./]({'|'.join(GUESTS)})\b")


def guests_in(module: Module) -> list[str]:
    """Return where a module of the core imports a guest, also for type checkers alone, or has its path in a text.

    A string such as `nexus.turnlog.reader` is an import that no rule sees.
    """
    if not is_of_core(module):
        return []
    imported = [
        f"{module.name}:{found.line} imports {found.name}"
        for found in imports(module)
        if found.own and place_of(found.name)[1] in GUESTS
    ]
    named = _lines_with(PATH_OF_GUEST, module) if module.name != REGISTRATIONS else []
    return imported + named


def _lines_with(expression: re.Pattern[str], module: Module) -> list[str]:
    return [
        f"{module.name}:{number} {match[0]!r}"
        for number, line in enumerate(module.text.split("\n"), 1)
        if (match := expression.search(line))
    ]


def test_every_registered_row_can_be_imported() -> None:
    tables: tuple[Registry[Any], ...] = (FORMATS, PROFILES, READERS, SOURCES)
    assert [name for table in tables for name, row in table.items() if row is None] == []
    assert [len(table.own_names) for table in tables] == [5, 7, 8, 38]


WORDS_OF_GUESTS = re.compile(
    r"(?<!re)turn[ _-]?log|tagged|shared[ _-]memory|friends[ _]block|this[ _]moment|document 00[01]", re.IGNORECASE
)
"""Names of what guests show, in code, strings, docstrings and comments."""

MAY_USE_WORDS_OF_GUESTS = {
    REGISTRATIONS: "lists the modules of registrations",
    "types.history": "a stored source of messages",
    "summarization.extractive.statements": "drops the words of frames from statements",
    "ledger.maintenance.doctor": "the shared memory of a log file",
    "ledger.sqlite.connection": "the shared memory of a log file",
    "text.frames.tags": "text must not forge a tag, also of a guest that is not loaded",
    "text.frames.scanner": "text must not forge a tag, also of a guest that is not loaded",
}


def test_the_core_uses_no_words_of_guests() -> None:
    assert [line for module in modules().values() for line in words_of_guests_in(module)] == []


def words_of_guests_in(module: Module) -> list[str]:
    """Return where a module of the core has a word of a guest."""
    if not is_of_core(module) or module.name in MAY_USE_WORDS_OF_GUESTS:
        return []
    return _lines_with(WORDS_OF_GUESTS, module)


def test_modules_that_may_use_words_of_guests_do() -> None:
    without = [name for name in MAY_USE_WORDS_OF_GUESTS if not _lines_with(WORDS_OF_GUESTS, modules()[name])]
    assert without == [], "remove them from MAY_USE_WORDS_OF_GUESTS"


TYPES_ONLY = "if TYPE_CHECKING:\n    from nexus.types import message\n"


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (upward_imports, "types.example", "def run():\n    from nexus.engine import Engine\n"),
        (upward_imports, "types.example", TYPES_ONLY + "else:\n    from nexus.engine import Engine\n"),
        (guests_in, "engine.example", "if TYPE_CHECKING:\n    from nexus.turnlog.reader import read\n"),
        (guests_in, "engine.example", "from nexus import services\n"),
        (guests_in, "nexus", "if TYPE_CHECKING:\n    from nexus.turnlog.reader import read\n"),
        (guests_in, "engine.example", "PLACE = 'see nexus.broker.queue'\n"),
        (guests_in, "engine.example", "FILE = 'src/nexus/compat/nanobot'\n"),
        (guests_in, "interop.example", "ROW = 'nexus.turnlog.reader:READER'\n"),
        (words_of_guests_in, "interop.example", "# as the turn log has it\n"),
        (words_of_guests_in, "engine.example", "def _is_turnlog(): ...\n"),
        (words_of_guests_in, "engine.example", "class MyTurnLog: ...\n"),
        (loaders_in, "engine.example", "from importlib import import_module as load\nload('json')\n"),
        (loaders_in, "engine.example", "import importlib as modules\ngetattr(modules, 'import' + '_module')\n"),
        (loaders_in, "engine.example", "import importlib.util\nload = importlib.import_module\n"),
        (loaders_in, "engine.example", "run = exec\nrun('import json')\n"),
        (loaders_in, "engine.example", "import builtins as b\nb.__dict__['ex' + 'ec']('import json')\n"),
        (loaders_in, "engine.example", "__builtins__['exec']('import json')\n"),
    ],
)
def test_rules_find_broken_modules(rule: Callable[[Module], list[str]], name: str, text: str) -> None:
    assert rule(Module(name, Path("example.py"), text, ast.parse(text))) != []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (upward_imports, "types.example", "if TYPE_CHECKING:\n    from nexus.engine import Engine\n"),
        (guests_in, "cli.example", "from nexus.turnlog.reader import read\n"),
        (words_of_guests_in, "engine.example", "# return logs, _return_log\n"),
        (loaders_in, "engine.example", "from importlib.resources import files\n"),
    ],
)
def test_rules_admit_valid_modules(rule: Callable[[Module], list[str]], name: str, text: str) -> None:
    assert rule(Module(name, Path("example.py"), text, ast.parse(text))) == []
