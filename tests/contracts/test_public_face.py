"""What a program may import: `nexus` and a few modules, each a sorted list of names, explained, at no cost until used."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import nexus
from contracts.modules import ROOT, modules, resolves

PUBLIC = (
    "nexus",
    "nexus.agents",
    "nexus.errors",
    "nexus.extend",
    "nexus.models",
    "nexus.server",
    "nexus.testing",
    "nexus.tools",
    "nexus.types",
)
DOCUMENTS = ("nexus.broker", "nexus.bus", "nexus.compat", "nexus.services", "nexus.services.context", "nexus.turnlog")
"""Names of the five documents, and of the bus that they speak on."""

WITH_A_NAMESAKE = ("nexus.services.serve", "nexus.testing.model_server")
"""Modules with a function of their own name, which their packages can therefore not have."""

BELOW_PACKAGES = ("nexus.providers.prompt_cache", "nexus.turnlog.live")
"""Modules that public packages offer, as `nexus.models.prompt_cache`, or take their names from."""

PRINTED_ORDER = frozenset({"nexus.compat.nexus3.context"})
"""Modules whose list a document prints in an order of its own."""

MOST_NAMES = 60

HEAVY = (
    "apsw",
    "toktok",
    "tiktoken",
    "click",
    "rich",
    "yaml",
    "PIL",
    "pluggy",
    "openai",
    "anthropic",
    "google.genai",
    "asyncio",
)


def modules_of_the_face() -> list[ModuleType]:
    names = {*PUBLIC, *DOCUMENTS, *WITH_A_NAMESAKE, *BELOW_PACKAGES}
    names.update(f"nexus.{name}" for name in modules() if name.startswith("compat."))
    return [import_module(name) for name in sorted(names) if has_names(modules()[name.removeprefix("nexus.")].tree)]


def has_names(tree: ast.Module) -> bool:
    """Return whether a module has more than a docstring."""
    return len(tree.body) > 1


@pytest.mark.parametrize("module", modules_of_the_face(), ids=lambda module: module.__name__)
def test_public_names_are_sorted_importable_and_explained(module: ModuleType) -> None:
    if module.__name__ not in PRINTED_ORDER:  # as ruff sorts: constants, classes, functions
        assert list(module.__all__) == sorted(
            set(module.__all__), key=lambda name: (not name.isupper(), name[0].islower(), name)
        )
    silent: list[str] = []
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue  # a type alias or a constant
        text = (inspect.getdoc(value) or "").strip()
        if not text or text.startswith(f"{name}("):  # a struct without a docstring gets its signature as one
            silent.append(name)
    assert silent == []


def test_the_root_has_a_small_list_of_names() -> None:
    assert len(nexus.__all__) <= MOST_NAMES
    assert set(dir(nexus)) == {*nexus.__all__, "__version__"}


def test_every_public_method_of_a_public_class_has_a_docstring() -> None:
    silent = [
        f"{name}.{one}"
        for name in nexus.__all__
        if inspect.isclass(getattr(nexus, name))
        for one, member in vars(getattr(nexus, name)).items()
        if not one.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (property, classmethod)))
        and not inspect.getdoc(member)
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["nexus", "nexus.types", "nexus.extend"])
def test_a_name_that_is_not_public_is_an_attribute_error_that_names_it(name: str) -> None:
    module = import_module(name)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'no_such_name'"):
        module.no_such_name  # noqa: B018 - reading it is the test


def test_every_error_is_a_nexus_error_and_in_the_drawn_tree() -> None:
    from nexus import errors

    raised = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    kinds = [kind for kind in raised if issubclass(kind, nexus.NexusError)]
    assert kinds == raised
    assert {kind.__name__ for kind in kinds} == set(errors.__all__)
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in kinds if kind.__name__ not in drawn] == [], "not in the drawn tree"


IMPORT = re.compile(r"^\s*(?:from (nexus[\w.]*) import |import (nexus\.[\w.]+))", re.MULTILINE)


def pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from (ROOT / "docs").rglob("*.md")
    yield from (ROOT / "examples").rglob("*.py")


def imports_of(text: str) -> Iterator[str]:
    for found in IMPORT.finditer(text):
        yield found[1] or found[2]


ADAPTERS = tuple(
    f"nexus.adapters.{name}"
    for name in (
        "agent_framework",
        "claude_agent",
        "google_adk",
        "google_adk_sessions",
        "langchain",
        "openai_agents",
        "pydantic_ai",
        "pydantic_ai_store",
    )
)


def is_public(module: str) -> bool:
    return module in (*PUBLIC, *DOCUMENTS, *WITH_A_NAMESAKE, *ADAPTERS) or module.startswith("nexus.compat.")


def test_pages_and_examples_import_public_modules_only() -> None:
    wrong: list[str] = []
    for page in pages():
        for module in imports_of(page.read_text("utf-8")):
            if not is_public(module):
                wrong.append(f"{page.name}: {module}")
    assert wrong == []


def test_an_import_of_an_inner_module_in_a_page_is_found() -> None:
    text = "```python\nfrom nexus.types import Text\n    from nexus.types.message import Text\nimport nexus.engine.turn\n```"
    assert [module for module in imports_of(text) if not is_public(module)] == [
        "nexus.types.message",
        "nexus.engine.turn",
    ]


NAMED = re.compile(r"`(nexus\.\w+(?:\.\w+)*)")

ATTRIBUTES = {"nexus.bus.error", "nexus.context.available", "nexus.context.tokens"}
"""A topic and attributes of spans that begin like names of modules."""


def names_of_modules(text: str) -> list[str]:
    """Return the names in backticks that begin with a module of the package."""
    rooms = {name.partition(".")[0] for name in modules()}
    named = sorted(set(NAMED.findall(text)) - ATTRIBUTES)
    return [name for name in named if name.split(".")[1] in rooms]


def is_public_name(name: str) -> bool:
    """Return whether a name is a public module's, or of what a public module lists (or an attribute of that)."""
    if name.startswith("nexus.compat."):
        return name.endswith(".X") or resolves(name)
    module = name
    while not is_public(module):
        module = module.rpartition(".")[0]
    _, _, attribute = name.removeprefix(module).partition(".")
    return not attribute or (attribute.partition(".")[0] in import_module(module).__all__ and resolves(name))


def test_pages_name_public_functions_and_modules_only() -> None:
    wrong: list[str] = []
    for page in pages():
        if page.suffix == ".md":
            named = names_of_modules(page.read_text("utf-8"))
            wrong += [f"{page.name}: {name}" for name in named if not is_public_name(name)]
    assert wrong == []


def test_an_inner_module_and_an_unknown_function_in_a_page_are_found() -> None:
    text = (
        "`nexus.policy.link.link_principal(a)`, `nexus.extend.recover`, `nexus.models.local`, `nexus.tools.no_such()`"
    )
    assert [name for name in names_of_modules(text) if not is_public_name(name)] == [
        "nexus.models.local",
        "nexus.policy.link.link_principal",
        "nexus.tools.no_such",
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_importing_a_public_module_loads_nothing_heavy(name: str) -> None:
    heavy = [package for package in HEAVY if package != "asyncio" or name == "nexus"]
    code = f"import sys, {name}; print(*[name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_package_says_that_it_is_typed() -> None:
    assert files("nexus").joinpath("py.typed").is_file()
