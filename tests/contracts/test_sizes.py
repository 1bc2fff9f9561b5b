"""Limits on the size of modules and functions, and the names that say nothing about what they name."""

from __future__ import annotations

import ast
import re

from contracts.modules import Module, modules

MODULE_LINES = 600
FUNCTION_LINES = 80

DOCUMENTED = {
    "compat.nexus3.context.manager": ("ContextManager",),
    "compat.nanobot.session.manager": ("SessionManager",),
    "compat.nanobot.providers.base": ("LLMProvider",),
    "services.context.prompts": ("PromptManager",),
}
"""Class names that a documented interface prescribes."""

EMPTY_WORDS = frozenset({"Manager", "Helper", "Helpers", "Utils", "Util", "Handler", "Common", "Base", "Misc"})


def test_a_module_has_at_most_600_lines_or_gives_its_reason_on_line_1() -> None:
    too_long = {
        name: lines
        for name, module in modules().items()
        for lines in [module.text.count("\n")]
        if lines > MODULE_LINES and len(_first_comment(module)) <= 20
    }
    assert too_long == {}, f"over {MODULE_LINES} lines, and no comment on line 1 gives a reason"


def _first_comment(module: Module) -> str:
    """Return the comment on line 1 of a module, or an empty string."""
    first = module.text.partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def test_a_function_has_at_most_80_lines() -> None:
    too_long = {
        f"{name}:{node.lineno} {node.name}": lines
        for name, module in modules().items()
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for lines in [(node.end_lineno or node.lineno) - node.lineno + 1]
        if lines > FUNCTION_LINES
    }
    assert too_long == {}, f"functions over {FUNCTION_LINES} lines"


def test_a_module_opens_with_a_docstring_that_says_its_design() -> None:
    silent = [name for name, module in modules().items() if not (ast.get_docstring(module.tree) or "").strip()]
    assert silent == [], "modules without a docstring"


def test_nothing_is_named_for_holding_everything() -> None:
    empty = [
        f"{name}:{node.lineno} {node.name}"
        for name, module in modules().items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name not in DOCUMENTED.get(name, ())
        if EMPTY_WORDS & set(re.findall("[A-Z][a-z]*", node.name))
    ]
    empty += [
        f"{name}: the module itself"
        for name, module in modules().items()
        if name not in DOCUMENTED and module.path.stem.capitalize() in EMPTY_WORDS
    ]
    assert empty == [], f"names with one of {', '.join(sorted(EMPTY_WORDS))}"


def test_documented_class_names_that_are_exempt_exist() -> None:
    defined = {
        (name, node.name) for name in DOCUMENTED for node in modules()[name].tree.body if isinstance(node, ast.ClassDef)
    }
    assert {(name, one) for name, ones in DOCUMENTED.items() for one in ones} - defined == set()
