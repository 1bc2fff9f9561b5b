"""A setting is declared once, in `Settings`; every way in takes all of them from there.

So a new setting touches the module that declares it, the one that reads it and the page that explains it. A parameter or
field list that spells settings out again is what makes it touch more, and is found here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from nexus.agents.agent import Agent
from nexus.broker.broker import Broker
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.server.client import Client
from nexus.server.forms import AgentSettings
from nexus.server.openrpc import schemas
from nexus.types.config import OF_A_CALL, Config
from nexus.types.settings import CallArguments, Settings, SettingsChanges

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "nexus"
NAMES = frozenset(Settings.__struct_fields__)
SUBSET = 5
"""Settings in one list of parameters or fields from which on it is a copy."""

COPIES = {
    "context.py: Manifest": "what a recorded call says of itself, under stored keys",
    "engine/analysis/replay.py: ReplayOverrides": "the few settings with which a recorded call can be repeated",
}
"""Lists that are allowed, and why."""


def copies_in(name: str, text: str) -> Iterator[str]:
    """Yield the classes and functions of a module that declare several settings as fields or parameters."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef():
                fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
                declared = {target.id for target in fields if isinstance(target, ast.Name)}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                declared = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            case _:
                continue
        if len(declared & NAMES) >= SUBSET:
            yield f"{name}: {node.name}"


def test_no_list_of_parameters_or_fields_repeats_the_settings() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    del modules["types/settings.py"]
    found = {copy for name, text in modules.items() for copy in copies_in(name, text)}
    assert found == COPIES.keys()


def test_a_list_that_repeats_the_settings_is_found() -> None:
    client = "def create(self, agent_id, *, model='', profile='', toolset='', persona='', budget=None): ..."
    stored = "class Stored:\n    model: str\n    persona: str\n    toolset: str\n    strategy: str\n    clock: str"
    assert [*copies_in("m.py", client), *copies_in("n.py", stored)] == ["m.py: create", "n.py: Stored"]


WAYS_IN: list[Callable[..., object]] = [
    Engine.__init__, Engine.assemble, Engine.begin, Engine.mirror, AsyncEngine.assemble, Agent.__init__,
    Agent.run, Agent.stream, Broker.submit, Client.create_agent,
]  # fmt: skip


@pytest.mark.parametrize("function", WAYS_IN, ids=lambda function: function.__qualname__)
def test_every_way_in_takes_all_settings(function: Callable[..., object]) -> None:
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    assert len(NAMES.intersection(arguments)) < SUBSET
    kinds = [kind for kind in function.__annotations__.values() if "Unpack[" in kind]
    assert len(kinds) == 1 and re.fullmatch(r"Unpack\[(SettingsChanges|CallArguments|EngineOptions)\]", kinds[0])


def test_settings_files_and_methods_have_all_settings() -> None:
    assert set(get_type_hints(SettingsChanges)) == NAMES
    assert set(get_type_hints(CallArguments)) == NAMES | {"tools", "settings"}
    assert set(Config.__struct_fields__) > NAMES > OF_A_CALL
    assert set(AgentSettings.__struct_fields__) == NAMES | {"agent_id", "parent_agent_id"}
    assert set(schemas()["CreateAgent"]["properties"]) >= NAMES - {"system"} | {"system_prompt"}


def test_every_setting_is_explained() -> None:
    page = (ROOT / "docs" / "library.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*) \|$", page[page.index("\n## Settings") :].partition("\n## ")[2], re.MULTILINE)
    named = re.findall(r"`(\w+)`", "\n".join(rows))
    assert set(named) >= NAMES
