"""Stored messages and notebooks for the tests of consolidation."""

from __future__ import annotations

from pathlib import Path

from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Text, TokenSize, user
from nexus.workspace.memory.notebook import Notebook
from nexus.workspace.user_profiles import UserProfiles

AT_MS = 1_772_807_400_000
"""2026-03-06 14:30 UTC."""
DAY_MS = 86_400_000


def book(root: Path, home: Path | None = None) -> Notebook:
    profiles = UserProfiles(SqliteLedger(":memory:"), home) if home is not None else None
    return Notebook(root, clock_ms=lambda: AT_MS, profiles=profiles)


def rows(*messages: str | Message) -> list[StoredMessage]:
    """Messages as stored, entry 1.0 first, a day apart; a text is a user's."""
    return [
        StoredMessage(
            MessageRef(at, 0), user(one, at_ms=AT_MS + at * DAY_MS) if isinstance(one, str) else one, TokenSize(0, 0, 0)
        )
        for at, one in enumerate(messages, 1)
    ]


def of(role: str, text: str, source: str = "") -> Message:
    return Message(role, (Text(text),), source=source)  # pyright: ignore[reportArgumentType]
