"""A keyring of the tests' own in the place of the system's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest

from support.keyrings import Working


@pytest.fixture
def ring() -> Iterator[Working]:
    """A working keyring, found as the system's."""
    before = keyring.get_keyring()
    working = Working()
    keyring.set_keyring(working)
    yield working
    keyring.set_keyring(before)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"
