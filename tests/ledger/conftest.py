"""A ledger with something of everything, made once, and a copy of it for each test that asks for `path`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledger.everything import fill
from nexus.ledger.sqlite import SqliteLedger, connection, files


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger with something of everything."""
    path = tmp_path_factory.mktemp("whole") / "l.db"
    ledger = SqliteLedger(str(path))
    fill(ledger, 12)
    ledger.close()
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "l.db"))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a lock waited for as long as it takes: only a refusal at once is an error, however busy the machine is."""
    for module in (connection, files):
        monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 3_600_000)
