"""The lock file installs the same packages on every day."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from contracts.modules import ROOT

LOCKS = ("requirements.lock", "requirements-demo.lock")


def locked_versions(lock: str) -> dict[str, tuple[str, set[str]]]:
    """Return version and extras of each package in a lock file."""
    text = (ROOT / lock).read_text("utf-8")
    lines = re.findall(r"^([\w.-]+)(?:\[([\w,-]+)\])?==([^ ;]+)", text, re.MULTILINE)
    return {canonicalize_name(name): (version, set(extras.split(",")) - {""}) for name, extras, version in lines}


@pytest.mark.parametrize("lock", LOCKS)
def test_extras_that_packages_require_of_each_other_are_locked(lock: str) -> None:
    """A pin of `name` alone does not bind `name[extra]`: pip takes its newest version, which has no hash here."""
    locked = locked_versions(lock)
    missing: list[str] = []
    for name, (_, extras) in locked.items():
        try:
            requirements = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue  # of another platform
        for requirement in requirements:
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                lacking = requirement.extras - locked.get(canonicalize_name(requirement.name), ("", set()))[1]
                missing.extend(f"{name} requires {requirement.name}[{extra}]" for extra in lacking)
    assert missing == []


def test_demo_has_versions_of_the_tests() -> None:
    """Otherwise `make test` would install packages again that `make demo` has installed."""
    tests, demo = map(locked_versions, LOCKS)
    assert {name: tests[name][0] for name in demo} == {name: version for name, (version, _) in demo.items()}


APART = {"claude-agent", "google-adk"}
"""Extras that `all` is without: one has a program of 180 MB, the other wants older packages than `gemini`."""


def test_extra_all_has_the_other_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.name == project["name"]
    assert everything.extras == set(extras) - {"all"} - APART
    readme = (ROOT / "README.md").read_text("utf-8")
    assert all(f"`{extra}`" in readme for extra in extras)


def test_nothing_names_an_index_that_does_not_have_the_distribution() -> None:
    """Until a release, what an error or a page tells to install must work in a clone."""
    pages = [*(ROOT / "docs").glob("**/*.md"), ROOT / "README.md", *(ROOT / "src").glob("**/*.py")]
    assert [str(page) for page in pages if "nexus-context-engine[" in page.read_text("utf-8")] == []
