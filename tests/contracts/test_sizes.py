"""How large modules and functions may be. What is over a limit says why, where it is."""

from __future__ import annotations

import ast
import re
from statistics import median

import pytest

from contracts.modules import modules

MODULE_LINES = 400
DOOR_LINES = 220
DOORS = ("broker", "compat", "services")
"""The documented interfaces: thin, so that the work stays in the rooms."""

DOCUMENTED = {
    "compat.nexus3.context.manager": ("ContextManager",),
    "compat.nanobot.session.manager": ("SessionManager",),
    "services.context.prompts": ("PromptManager",),
}
"""Names of classes that a document prints."""

FUNCTION_LINES = 60
MEDIAN_LINES = 150
EMPTY_WORDS = frozenset({"Manager", "Helper", "Helpers", "Utils", "Util", "Handler", "Common", "Base", "Misc"})


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_has_at_most_400_lines_or_gives_its_reason_on_line_1(name: str) -> None:
    lines = modules()[name].text.splitlines()
    reason = lines[0].removeprefix("#").strip() if lines and lines[0].startswith("#") else ""
    assert len(lines) <= MODULE_LINES or len(reason) > 20, f"{len(lines)} lines, and no comment on line 1 says why"


@pytest.mark.parametrize("name", sorted(name for name in modules() if name.split(".")[0] in DOORS))
def test_a_module_of_a_door_has_at_most_220_lines(name: str) -> None:
    assert len(modules()[name].text.splitlines()) <= DOOR_LINES


def test_names_that_are_let_pass_because_a_document_prints_them_are_there() -> None:
    defined = {
        (name, node.name) for name in DOCUMENTED for node in modules()[name].tree.body if isinstance(node, ast.ClassDef)
    }
    assert {(name, one) for name, ones in DOCUMENTED.items() for one in ones} <= defined


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_function_has_at_most_60_lines(name: str) -> None:
    too_long = [
        f"{node.name}: {lines} lines"
        for node in ast.walk(modules()[name].tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for lines in [(node.end_lineno or node.lineno) - node.lineno + 1]
        if lines > FUNCTION_LINES
    ]
    assert too_long == []


def test_half_of_all_modules_have_at_most_150_lines() -> None:
    sizes = [len(module.text.splitlines()) for module in modules().values()]
    assert median(sizes) <= MEDIAN_LINES


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_opens_with_a_docstring_that_says_its_design(name: str) -> None:
    assert (ast.get_docstring(modules()[name].tree) or "").strip()


@pytest.mark.parametrize("name", sorted(modules()))
def test_nothing_is_named_for_holding_everything(name: str) -> None:
    module = modules()[name]
    printed = DOCUMENTED.get(name, ())
    classes = [
        node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef) and node.name not in printed
    ]
    assert [one for one in classes if EMPTY_WORDS & set(re.findall("[A-Z][a-z]*", one))] == []
    assert printed or module.path.stem.capitalize() not in EMPTY_WORDS
