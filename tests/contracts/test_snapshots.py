"""A snapshot belongs to the thread that enters it, and ends where it began.

A generator that yields within one leaves it open for as long as nobody asks for more. All reads of its thread are then of the
past, and another thread that ends it ends the wrong one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from contracts.modules import modules

SNAPSHOTS = {"snapshot", "reading"}


def generators_in(tree: ast.AST) -> Iterator[str]:
    """Yield the generators that yield within a store's snapshot. One of a connection of its own is no store's."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or any(
            "contextmanager" in ast.unparse(d) for d in function.decorator_list
        ):
            continue
        for block in ast.walk(function):
            if isinstance(block, ast.With) and any(map(_is_snapshot, block.items)):
                inside = (node for line in block.body for node in ast.walk(line))
                if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in inside):
                    yield function.name


def _is_snapshot(item: ast.withitem) -> bool:
    match item.context_expr:
        case ast.Call(ast.Attribute(owner, name)):
            return name in SNAPSHOTS and ast.unparse(owner) != "db"
        case _:
            return False


def test_no_generator_yields_within_a_snapshot_of_its_thread() -> None:
    assert {
        module.name: [*generators_in(module.tree)] for module in modules().values() if any(generators_in(module.tree))
    } == {}


def test_a_generator_within_a_snapshot_is_found() -> None:
    source = """
class Directory:
    def each(self):
        with self._store.snapshot():
            for page in self.pages():
                yield from page

    def whole(self):
        with self._store.snapshot():
            rows = [*self.pages()]
        yield from rows
"""
    assert [*generators_in(ast.parse(source))] == ["each"]
