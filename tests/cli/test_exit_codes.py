"""Exit codes of error classes: the table of the command line and the tables in docs/errors.md agree."""

from __future__ import annotations

import inspect
import re

import pytest

from contracts.modules import ROOT
from nexus import errors
from nexus.cli._exit_codes import exit_code
from nexus.errors import NexusError

ERRORS = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, NexusError)}
DOCUMENTED = dict(
    re.findall(
        r"^\| (?:– )*`(\w+)`[^|]*\|[^|]*\| (\d+) \|$", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE
    )
)


def test_every_error_class_is_in_the_docs_with_a_code() -> None:
    assert set(DOCUMENTED) == set(ERRORS)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_exit_code_of_an_error_is_the_documented_one(name: str) -> None:
    assert exit_code(ERRORS[name]) == int(DOCUMENTED[name])


def test_exit_code_of_a_subclass_is_its_nearest_base_class() -> None:
    class UnlistedError(errors.BadReference):
        """A subclass without an own row; BadReference is a LedgerError with another code."""

    assert (exit_code(UnlistedError), exit_code(errors.LedgerError)) == (2, 5)
