"""How dense the source is to read. A ceiling is today's figure: it may fall, never rise."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

import pytest

from contracts.modules import modules

CEILINGS = {"conditional expressions": 13.6, "comprehensions": 30.6, "tuple assignments": 0.6}
"""Per 1,000 lines."""

COMPLEX_FUNCTIONS = 2.4
"""Per 1,000 functions, with more than `MOST_BRANCHES`."""

MOST_BRANCHES = 20
MOST_METHODS = 25
MOST_FIELDS = 15

DOCUMENTED = {"ContextManager": 28}
"""Classes whose methods are those that a document prints."""

WIDE = {
    # Stored records: their keys are fixed.
    "Compaction",
    "Cut",
    "Manifest",
    # Reports: each field is a printed line or a key of `--json`.
    "CallReport",
    "ImportReport",
    "Stats",
    # Public values: programs make them, or read them, by these names.
    "AssembledContext",
    "Event",
    "Model",
    "RecordedTurn",
    "Settings",
    "SettingsChanges",
}
"""Classes that may have more fields."""

_DIRECTIVE = re.compile(r"# ?(noqa|type:|pyright:|pragma|fmt:)")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)


def kind_of(node: ast.AST) -> str:
    """Return the ceiling that a node counts for; empty for none."""
    if isinstance(node, ast.IfExp):
        return "conditional expressions"
    if isinstance(node, _COMPREHENSIONS):
        return "comprehensions"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        has_tuple = any(isinstance(target, ast.Tuple) for target in node.targets)
        return "tuple assignments" if has_tuple else ""
    return ""


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield from own_nodes(child)


def complexity(function: ast.AST) -> int:
    """Return the cyclomatic complexity: branches, boolean operators and conditions of comprehensions."""
    total = 1
    for node in own_nodes(function):
        total += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            total += len(node.ifs)
    return total


def commented_fields(text: str, tree: ast.Module) -> list[str]:
    """Return the annotated fields of classes with a comment above or at the end; directives to tools do not count."""
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            comments.add(token.start[0])
    found: list[str] = []
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        last = owner.lineno
        for child in owner.body:
            lines = range(last + 1, (child.end_lineno or child.lineno) + 1)
            if isinstance(child, ast.AnnAssign) and not comments.isdisjoint(lines):
                found.append(f"{owner.name}.{ast.unparse(child.target)}")
            last = child.end_lineno or child.lineno
    return found


def nodes() -> list[ast.AST]:
    return [node for module in modules().values() for node in ast.walk(module.tree)]


def wide_classes(found: Iterable[ast.AST]) -> set[str]:
    """Return the names of the classes with more than `MOST_FIELDS` annotated fields of their own."""
    classes = (node for node in found if isinstance(node, ast.ClassDef))
    return {one.name for one in classes if sum(isinstance(child, ast.AnnAssign) for child in one.body) > MOST_FIELDS}


@pytest.mark.parametrize("kind", CEILINGS)
def test_expressions_that_hold_several_steps_are_rare(kind: str) -> None:
    lines = sum(module.text.count("\n") for module in modules().values())
    found = sum(kind_of(node) == kind for node in nodes())
    assert 1_000 * found / lines <= CEILINGS[kind]


def test_few_functions_have_many_branches() -> None:
    functions = [node for node in nodes() if isinstance(node, _FUNCTIONS)]
    hard = [node.name for node in functions if complexity(node) > MOST_BRANCHES]
    assert 1_000 * len(hard) / len(functions) <= COMPLEX_FUNCTIONS, hard


def test_a_class_has_at_most_25_methods() -> None:
    methods = {
        node.name: sum(isinstance(child, _FUNCTIONS) for child in node.body)
        for node in nodes()
        if isinstance(node, ast.ClassDef)
    }
    assert {name: number for name, number in methods.items() if number > MOST_METHODS} == DOCUMENTED


def test_only_records_and_public_values_have_more_than_15_fields() -> None:
    assert wide_classes(nodes()) == WIDE, "group the fields by what they are about, and pass functions what they read"


def test_fields_are_documented_by_a_string_below_them() -> None:
    found = {module.name: commented_fields(module.text, module.tree) for module in modules().values()}
    assert {name: fields for name, fields in found.items() if fields} == {}


def test_comments_at_and_above_fields_are_found_and_directives_are_not() -> None:
    source = """
class Example:
    # Why there is a class.
    above: int

    # Further up.

    apart: int = 0
    inline: int  # what it is
    inside: dict[str, int] = {
        "a": 1,  # what it is
    }
    checked: Any  # noqa: ANN401
    plain: int = 0
    \"\"\"What it is.  # 1\"\"\"
    KIND = 1  # why
    def method(self):
        local: int = 0  # why
"""
    assert commented_fields(source, ast.parse(source)) == [
        f"Example.{name}" for name in ("above", "apart", "inline", "inside")
    ]


def test_fields_of_a_class_are_counted_with_and_without_a_value() -> None:
    fields = "".join(f"  f{number}: int{' = 0' * (number % 2)}\n" for number in range(MOST_FIELDS + 1))
    methods = "  KIND = 1\n  def f(self):\n    local: int = 0\n"
    tree = ast.parse(f"class Wide:\n{fields}{methods}class Narrow:\n{fields.partition(chr(10))[2]}{methods}")
    assert wide_classes(ast.walk(tree)) == {"Wide"}


def test_steps_in_one_expression_are_counted() -> None:
    source = "a, b = 1, [x if x else y for x in z if x]\nc = (1, 2)\nd, e = f()"
    kinds = [kind_of(node) for node in ast.walk(ast.parse(source))]
    assert sorted(kind for kind in kinds if kind) == sorted(CEILINGS)
    function = ast.parse(
        "def f():\n  if a and b or c:\n    return [x for x in y if x]\n  def g():\n    if h: pass"
    ).body[0]
    assert complexity(function) == 6
