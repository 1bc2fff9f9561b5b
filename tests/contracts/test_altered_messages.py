"""A message with other parts is not sent as received: only `nexus.types.message` replaces parts, and says which it is."""

from __future__ import annotations

import ast

from contracts.modules import modules

ONLY_HERE = "types.message"


def test_parts_of_messages_are_replaced_in_one_module() -> None:
    elsewhere = [
        f"{name}:{node.lineno}"
        for name, module in modules().items()
        if name != ONLY_HERE
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and _is_replace(node.func)
        if any(keyword.arg == "parts" for keyword in node.keywords)
    ]
    assert elsewhere == [], "use with_parts or with_neutral_parts of nexus.types.message"


def _is_replace(function: ast.expr) -> bool:
    return (isinstance(function, ast.Name) and function.id == "replace") or (
        isinstance(function, ast.Attribute) and function.attr == "replace"
    )
