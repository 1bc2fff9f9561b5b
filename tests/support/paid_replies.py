"""A reply that was paid for, and a ledger that fails when it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nexus.engine import Engine
from nexus.errors import LedgerBusy, LedgerError, LedgerFull, LedgerUnavailable
from nexus.types.ledger_entries import Commit

PAID = ("A paid reply. " + "word " * 400).strip()
CAUSES = (LedgerFull, LedgerBusy, LedgerUnavailable, LedgerError)
"""A full disk, a locked ledger, one that is not reached, and any other error of the disk."""


class Refused:
    """Number of commits that were refused, and their session."""

    def __init__(self) -> None:
        self.session, self.count = "", 0

    async def wait_for(self, count: int) -> None:
        while self.count < count:  # noqa: ASYNC110 - the engine's thread counts
            await asyncio.sleep(0.01)


@contextmanager
def refusing(nx: Engine, error: type[LedgerError], monkeypatch: pytest.MonkeyPatch) -> Iterator[Refused]:
    """Refuse commits with the paid reply while the block runs."""
    commit, refused = nx.ledger.store.commit, Refused()

    def refuse(session: str, new: Commit, *more: Any) -> Any:
        if any(sized.message.text() == PAID for entry in new.entries for sized in entry.messages):
            refused.session, refused.count = session, refused.count + 1
            raise error("refused")
        return commit(session, new, *more)

    with monkeypatch.context() as patch:
        patch.setattr(nx.ledger.store, "commit", refuse)
        yield refused
