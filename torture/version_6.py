"""Documents as version 6 of the schema had them, in hidden sessions, to be moved under faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec

from nexus.ledger.documents import AGENT, CONFIGURATION
from nexus.ledger.integrity import check
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import Message, Text, TokenSize
from torture import traffic
from torture.figures import require

VERSIONS = 20

_INDEXES = ("idempotency_key", "thread_time", "alias_target", "session_move_parent", "session_move_owner")
_DROP_INDEXES = "; ".join(f"DROP INDEX {name}" for name in _INDEXES)
"""Statements that undo later versions."""


def hide(store: LedgerStore, label: str, *bodies: Any) -> None:
    """Append versions of a document to its session; a text is appended as it is."""
    for number, body in enumerate(bodies):
        text = body if isinstance(body, str) else msgspec.json.encode(body, order="sorted").decode()
        at_ms = traffic.FIRST_MS + number
        message = Message("system", (Text(text),), at_ms=at_ms, source="configuration")
        entry = NewEntry(messages=(SizedMessage(message, TokenSize(1, 1, 1)),), at_ms=at_ms)
        store.commit(label, Commit((entry,)), SessionMetadata(title="settings of an agent", status="archived"))


def as_version_6(path: Path) -> Path:
    """Give a closed ledger the schema version of before its documents were moved."""
    db: Any = apsw.Connection(str(path))
    db.execute(f"{_DROP_INDEXES}; DELETE FROM migration WHERE version>=7; PRAGMA user_version=6").fetchall()
    db.close()
    return path


def make(path: Path) -> None:
    """Write a file of version 6 with an agent and a configuration."""
    ledger = SqliteLedger(str(path))
    for label in ("nexus:agent:mine", "configuration:default"):
        hide(ledger, label, *({"number": number} for number in range(VERSIONS)))
    ledger.close()
    as_version_6(path)


def check_moved(path: Path) -> None:
    """Check that a file, opened, has each document once, and the entries that it had."""
    ledger = SqliteLedger(str(path), create=False)
    documents = [(document.kind, document.name, document.number, document.body) for document in ledger.documents()]
    body = {"number": VERSIONS - 1}
    require(documents == [(AGENT, "mine", 1, body), (CONFIGURATION, "default", 1, body)], f"it has {documents}")
    for label, thread in (("nexus:agent:mine", 1), ("configuration:default", 2)):
        require(ledger.resolve(label) is None, f"{label} is a session")
        require([update.number for update in ledger.ref_updates(label)] == [1, 2], f"{label} was moved twice")
        require(len(list(ledger.entries(thread))) == VERSIONS, f"{label} lost entries")
    damages = list(check(ledger.dump()))
    require(not damages, f"it is damaged: {damages}")
    ledger.close()
