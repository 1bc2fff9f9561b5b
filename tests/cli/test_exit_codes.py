"""Errors, their codes and exit codes: the classes, what is raised, the command line's table and docs/errors.md agree."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from contracts.modules import ROOT
from nexus import errors
from nexus.cli._exit_codes import exit_code
from nexus.errors import NexusError

ERRORS = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, NexusError)}
ROW = re.compile(r"^\| `(\w+)`(?: †)? \| `(\w+)` \|.*\| (\d+) \|$", re.MULTILINE)
DOCUMENTED = {
    code: (name, int(exit_code))
    for name, code, exit_code in ROW.findall((ROOT / "docs" / "errors.md").read_text("utf-8"))
}
BASES = {"LedgerUnusable", "NotFound"}
"""Classes whose every error has a code of its own."""


def made(name: str, code: str) -> NexusError:
    """Return an error of a class, whatever its constructor takes."""
    error = ERRORS[name].__new__(ERRORS[name])
    error.code = code
    return error


def raised_codes() -> set[tuple[str, str]]:
    """Return class and code of each error that the source makes with a code."""
    found: set[tuple[str, str]] = set()
    for path in (ROOT / "src" / "nexus").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2]
            for keyword in node.keywords:
                if name in ERRORS and keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                    found.add((name, keyword.value.value))
    return found


def test_every_error_class_and_code_is_in_the_docs() -> None:
    own = {(name, kind.code) for name, kind in ERRORS.items() if name not in BASES}
    assert own | raised_codes() - {("ServerCallFailed", "bad_reply"), ("ServerCallFailed", "connection")} == {
        (name, code) for code, (name, _) in DOCUMENTED.items()
    }


def test_at_most_45_classes_are_there_and_each_says_its_code() -> None:
    assert len(ERRORS) <= 45
    assert [name for name, kind in ERRORS.items() if "code" not in vars(kind)] == []
    assert len({kind.code for kind in ERRORS.values()}) == len(ERRORS)


@pytest.mark.parametrize("code", sorted(DOCUMENTED))
def test_exit_code_of_an_error_is_the_documented_one(code: str) -> None:
    name, documented = DOCUMENTED[code]
    assert exit_code(made(name, code)) == documented


def test_exit_code_of_a_programs_own_error_is_its_base_classes() -> None:
    class UnlistedError(errors.BadReference):
        """A subclass of an application."""

    assert (exit_code(UnlistedError("x")), exit_code(errors.LedgerError("x"))) == (2, 5)
