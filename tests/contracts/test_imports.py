"""Who may import whom: values at the bottom, the command line at the top, nothing upwards, no room its neighbour."""

from __future__ import annotations

import ast

import pytest

from contracts.modules import Import, Module, imports, modules

LAYERS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "values": (
            "message",
            "block",
            "layer",
            "request",
            "profile",
            "config",
            "skill",
            "environment",
            "friend",
            "injected",
            "definition",
            "opens",
            "capabilities",
            "session_key",
            "offered",
            "history",
            "errors",
            "legible",
            "size",
            "reasoning",
            "repairs",
        )
    },
    {"frames": ("render.frames",)},
    {
        "budget": ("budget",),
        "prompts": ("prompts",),
        "profiles": ("profiles",),
        "policy": ("policy",),
        "ledger values": (
            "ledger",
            "ledger.entries",
            "ledger.text_rule",
            "ledger.codec",
            "ledger.chain",
            "ledger.store",
            "ledger.sessions",
            "ledger.records",
            "ledger.replay",
            "ledger.words",
            "ledger.family",
            "ledger.operations",
            "ledger.audit",
        ),
    },
    {"plan": ("plan", "earlier")},
    {
        "assembled": ("assembled",),
        "overflow": ("overflow",),
        "cost": ("cost",),
        "credentials": ("credentials",),
        "tagged text": ("render.tagged",),
    },
    {
        "sources": ("sources",),
        "ledger stores": (
            "ledger.sqlite",
            "ledger.memory",
            "ledger.conformance",
            "ledger.async_face",
            "ledger.jsonl",
            "ledger.care",
        ),
        "fit": ("fit",),
        "compact": ("compact",),
        "render": ("render",),
    },
    {"form": ("form",)},
    {
        "assemble": ("assemble", "gather", "account", "ahead", "manifested", "materials"),
        "requesting": ("requesting",),
        "sent": ("sent",),
    },
    {"memory": ("memory",), "tools": ("tools",)},
    {"record": ("record", "learn"), "explain": ("explain",), "difference": ("difference",), "recorded": ("recorded",)},
    {
        "compaction": ("compaction",),
        "admitting": ("admitting",),
        "going on": ("going_on",),
        "hooks": ("hooks",),
    },
    {"past": ("past",), "windows": ("windows",)},
    {"replaying": ("replaying",)},
    {"profile files": ("profile_files",)},
    {"engine": ("engine",)},
    {"recovery": ("recovery",), "promotion": ("policy.promote",), "profile check": ("profile_check",)},
    {"public face": ("nexus",)},
    {
        "interop": ("interop",),
        "doors": ("context", "broker", "agent", "session", "services"),
        "cachesim": ("cachesim",),
    },
    {"command line": ("cli",)},
)
"""From the bottom up: a module may import what stands in lower layers, and its own room; never a neighbour.

A room is given by its modules; one that ends a package's name covers the whole package, unless a longer one fits.
"""

EXACT = frozenset({"ledger", "nexus"})
"""Names that stand for one module only: new modules of the ledger have to choose between its two rooms."""

PURE = frozenset(
    {
        "values",
        "budget",
        "prompts",
        "profiles",
        "policy",
        "ledger values",
        "assembled",
        "overflow",
        "cost",
        "plan",
        "frames",
        "tagged text",
        "fit",
        "compact",
        "render",
        "form",
        "assemble",
        "sent",
        "record",
        "explain",
        "difference",
    }
)
"""Rooms without files, clocks, network or database."""

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
        "logging",
        "sys",
    }
)
"""Standard modules and packages that reach outside, or make two runs differ."""

MAY_REACH_OUTSIDE = {
    "budget.load": "reads the shipped tables of models and a vocabulary that lies on this machine",
}

CLOCK_CALLS = frozenset({"now", "today", "utcnow"})

ONLY_IN: dict[str, tuple[str, ...]] = {
    "apsw": ("ledger.sqlite.connection",),
    "toktok": ("budget.counter",),
    "tiktoken": ("budget.counter",),
    "PIL": ("sources.pixels",),
    "yaml": ("sources.front_matter",),
    "docstring_parser": ("tools.describe",),
    "filelock": ("memory.files",),
    "markdown_it": ("memory.facts",),
    "pluggy": ("hooks.spec", "hooks.register"),
    "regex": ("render.tagged.shorten",),
    "click": ("cli",),
    "rich": ("cli",),
    "keyring": ("credentials.system",),
    "openai": ("compaction.openai_model",),
    "anthropic": (),
    "google": (),
}
"""What comes from other distributions, and the only places that know it. A provider's package is known where a
model is asked for a summary, and nowhere else."""

IMPORTED_BY_NAME = {
    "nexus": "public names are imported when they are first used",
    "cli": "a command is imported when it is called",
}
"""Modules that may call `import_module`: only downwards, or inside their own room."""


def place_of(name: str) -> tuple[int, str]:
    """The layer's number and the room of a module."""
    places = places_of(name)
    assert places, f"{name} stands in no room: give it one in LAYERS"
    _, number, room = max(places)
    return number, room


def places_of(name: str) -> list[tuple[int, int, str]]:
    """Every entry of LAYERS that covers the module: how much of its name it says, the layer's number, the room."""
    return [
        (len(known), number, room)
        for number, rooms in enumerate(LAYERS)
        for room, known_modules in rooms.items()
        for known in known_modules
        if name == known or (known not in EXACT and name.startswith(f"{known}."))
    ]


def of_pure_rooms() -> list[str]:
    return [
        name for name in modules() if places_of(name) and place_of(name)[1] in PURE and name not in MAY_REACH_OUTSIDE
    ]


def test_every_module_stands_in_a_room_and_every_room_has_modules() -> None:
    taken = {place_of(name) for name in modules()}
    assert taken == {(number, room) for number, rooms in enumerate(LAYERS) for room in rooms}


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_imports_only_its_own_room_and_lower_layers(name: str) -> None:
    number, room = place_of(name)
    wrong = [
        f"line {found.line}: {name} ({room}) imports {found.name} ({their_room})"
        for found in imports(modules()[name])
        if found.own
        for their_number, their_room in [place_of(found.name)]
        if their_room != room and their_number >= number and not _for_types_only(modules()[name], found)
    ]
    assert wrong == []


def _for_types_only(module: Module, found: Import) -> bool:
    """Only the public face has imports for type checkers alone: at run time it imports by name, on first use."""
    return module.name == "nexus" and any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and node.lineno <= found.line <= (node.end_lineno or 0)
        for node in module.tree.body
    )


@pytest.mark.parametrize("name", of_pure_rooms())
def test_a_pure_room_touches_no_file_clock_network_or_database(name: str) -> None:
    module = modules()[name]
    wrong = [f"line {found.line}: {found.name}" for found in imports(module) if found.name.split(".")[0] in IMPURE]
    wrong += [
        f"line {node.lineno}: .{node.func.attr}()"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS
    ]
    wrong += [
        f"line {node.lineno}: {node.func.id}()"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "input", "print")
    ]
    assert wrong == [], f"{module.path} reaches outside"


def test_exemptions_are_modules_that_exist_and_need_them() -> None:
    for name in MAY_REACH_OUTSIDE:
        assert any(found.name.split(".")[0] in IMPURE for found in imports(modules()[name])), f"{name} needs none"


@pytest.mark.parametrize("package", sorted(ONLY_IN))
def test_a_package_from_elsewhere_is_known_in_one_place(package: str) -> None:
    knowing = {
        name
        for name, module in modules().items()
        for found in imports(module)
        if not found.own and found.name.split(".")[0] == package
    }
    allowed = ONLY_IN[package]
    assert all(any(name == one or name.startswith(f"{one}.") for one in allowed) for name in knowing), knowing
    assert bool(knowing) == bool(allowed), f"nothing imports {package} any more: take it out of the table"


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
