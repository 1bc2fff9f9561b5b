"""The append-only store of sessions: entries, hash chain, SQLite."""
