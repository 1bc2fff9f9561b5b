"""`nexus.open` and what it warns about."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import nexus
from nexus.engine.engine import _warn_nothing_kept  # pyright: ignore[reportPrivateUsage]


def test_open_without_workspace_and_ledger_warns_once(tmp_path: Path) -> None:
    _warn_nothing_kept.cache_clear()
    with pytest.warns(UserWarning, match="nothing is kept") as caught:
        nexus.open().close()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nexus.open().close()
    _warn_nothing_kept.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nexus.open(ledger=":memory:").close()
        nexus.open(tmp_path).close()
        nexus.open(ledger=tmp_path / "own.db").close()
