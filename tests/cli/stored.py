"""What a ledger file holds, read with SQLite alone, so that a test sees what a command wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

TABLES = ("thread", "session_move", "entry", "message", "idempotency", "decision", "assembly", "blob")


def rows_of(workspace: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of the workspace's ledger; no tables if there is no ledger."""
    path = workspace / ".nexus" / "ledger.db"
    if not path.exists():
        return {}
    db: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in TABLES}
    finally:
        db.close()
