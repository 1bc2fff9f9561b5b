"""The lock file installs the same packages on every day."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from contracts.modules import ROOT


def locked_extras() -> dict[str, set[str]]:
    """Return the extras of each package in the lock file."""
    lines = re.findall(r"^([\w.-]+)(?:\[([\w,-]+)\])?==", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): set(extras.split(",")) - {""} for name, extras in lines}


def test_extras_that_packages_require_of_each_other_are_locked() -> None:
    """A pin of `name` alone does not bind `name[extra]`: pip takes its newest version, which has no hash here."""
    locked = locked_extras()
    missing: list[str] = []
    for name, extras in locked.items():
        try:
            requirements = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue  # of another platform
        for requirement in requirements:
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                lacking = requirement.extras - locked.get(canonicalize_name(requirement.name), set())
                missing.extend(f"{name} requires {requirement.name}[{extra}]" for extra in lacking)
    assert missing == []
