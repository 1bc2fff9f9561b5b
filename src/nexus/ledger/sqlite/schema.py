"""SQLite schema as numbered migrations with checksums. A released migration is never edited."""

from __future__ import annotations

import hashlib
from pathlib import Path

APPLICATION_ID = 0x4E585553
"""`NXUS`, in the file's header."""

VERSION = 9

READABLE = (6, 7, 8, VERSION)
"""Versions with the tables of this one: their files can be read without a migration."""

MIGRATIONS: tuple[str, ...] = tuple(
    Path(__file__).with_name(f"migration_{number}.sql").read_bytes().decode() for number in range(1, VERSION + 1)
)
"""Migration number i+1 brings a ledger from version i to version i+1. Its rows are then filled by `migrate`."""


def checksum(script: str) -> str:
    """Return the SHA-256 of a migration's text, which is stored when it is applied."""
    return hashlib.sha256(script.encode()).hexdigest()
