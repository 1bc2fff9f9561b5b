"""Figures of a SQLite ledger: what it holds, what was reported for its calls, and how its file is doing."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from nexus.errors import LedgerError
from nexus.ledger.care.verify import opened
from nexus.ledger.sqlite.connection import SQLITE_VERSION
from nexus.ledger.sqlite.schema import VERSION
from nexus.ledger.text_rule import original, storable


class Usage(Struct, frozen=True):
    """Tokens as a provider reported them for a model, added up over all calls. `input` includes the cached ones."""

    provider: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int

    @property
    def cached_share(self) -> float:
        """The part of the input that was read from the provider's cache, 0 to 1."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else 0.0


class Stats(Struct, frozen=True):
    """A tenant's rows counted, and the file they are in. Tokens are base tokens of all messages, each counted once."""

    path: str
    tenant: str
    version: int
    sqlite: str
    sessions: dict[str, int]
    aliases: int
    threads: int
    erased_threads: int
    entries: int
    lost_entries: int
    turns: int
    messages: int
    tokens: int
    tool_calls: int
    tool_results: int
    compactions: int
    pins: int
    cuts: int
    manifests: int
    images: int
    image_bytes: int
    first_ms: int
    last_ms: int
    usage: tuple[Usage, ...]
    file_bytes: int
    log_bytes: int
    page_bytes: int
    pages: int
    free_pages: int

    @property
    def cached_share(self) -> float:
        """The part of all reported input that was read from caches, 0 to 1."""
        asked = sum(one.input_tokens for one in self.usage)
        return sum(one.cache_read_tokens for one in self.usage) / asked if asked else 0.0


def stats(path: str | Path, tenant: str = "local") -> Stats:
    """The figures of one tenant. Raises LedgerError when the ledger is of an older version, UnreadableFile."""
    with opened(path) as db, db.snapshot():
        version = int(db.value("PRAGMA user_version"))
        if version != VERSION:
            raise LedgerError(
                f"{path} has ledger version {version}, figures need {VERSION}: `nexus ledger migrate` first"
            )
        name = storable(tenant)
        counts = {key: int(db.value(sql, (name,))) for key, sql in _COUNTS.items()}
        statuses = db.rows(_STATUSES, (name,))
        page_bytes = int(db.value("PRAGMA page_size"))
        free, pages = int(db.value("PRAGMA freelist_count")), int(db.value("PRAGMA page_count"))
        usage = tuple(_usage(*row) for row in db.rows(_CALLS, (name,)))
        log = Path(f"{path}-wal")
        return Stats(
            path=str(path),
            tenant=tenant,
            version=version,
            sqlite=SQLITE_VERSION,
            sessions={str(status): int(number) for status, number in statuses},
            usage=usage,
            file_bytes=Path(path).stat().st_size,
            log_bytes=log.stat().st_size if log.exists() else 0,
            page_bytes=page_bytes,
            pages=pages,
            free_pages=free,
            **counts,
        )


def _usage(provider: str, model: str, *counts: int) -> Usage:
    return Usage(original(provider), original(model), *counts)


_COUNTS = {
    "aliases": "SELECT count(DISTINCT name) FROM alias WHERE tenant=?",
    "threads": "SELECT count(*) FROM thread WHERE tenant=? AND NOT erased",
    "erased_threads": "SELECT count(*) FROM thread WHERE tenant=? AND erased",
    "entries": "SELECT count(*) FROM entry WHERE tenant=?",
    "lost_entries": "SELECT count(*) FROM entry WHERE tenant=? AND kind='lost'",
    "turns": "SELECT count(*) FROM (SELECT DISTINCT thread, turn FROM entry WHERE tenant=? AND turn>0)",
    "messages": "SELECT count(*) FROM message WHERE tenant=?",
    "tokens": "SELECT ifnull(sum(tokens),0) FROM thread WHERE tenant=?",
    "tool_calls": "SELECT count(*) FROM tool_call WHERE tenant=? AND NOT is_result",
    "tool_results": "SELECT count(*) FROM tool_call WHERE tenant=? AND is_result",
    "compactions": "SELECT count(*) FROM entry WHERE tenant=? AND kind='compaction'",
    "pins": "SELECT count(*) FROM entry WHERE tenant=? AND kind='pin'",
    "cuts": "SELECT count(*) FROM decision WHERE tenant=?",
    "manifests": "SELECT count(*) FROM assembly WHERE tenant=?",
    "images": "SELECT count(*) FROM blob WHERE tenant=?",
    "image_bytes": "SELECT ifnull(sum(length(data)),0) FROM blob WHERE tenant=?",
    "first_ms": "SELECT ifnull(min(at_ms),0) FROM entry WHERE tenant=?",
    "last_ms": "SELECT ifnull(max(at_ms),0) FROM entry WHERE tenant=?",
}

_STATUSES = "SELECT status, count(*) FROM session WHERE tenant=? AND thread IS NOT NULL GROUP BY status ORDER BY status"

_CALLS = """
SELECT ifnull(json_extract(body, '$.provider'), ''), ifnull(json_extract(body, '$.model'),
    ifnull((SELECT model FROM message m WHERE m.tenant=e.tenant AND m.thread=e.thread AND m.seq=e.seq AND model<>''
        LIMIT 1), '')),
    count(*), sum(ifnull(json_extract(body, '$.usage.input_tokens'), 0)),
    sum(ifnull(json_extract(body, '$.usage.output_tokens'), 0)),
    sum(ifnull(json_extract(body, '$.usage.cache_read_tokens'), 0)),
    sum(ifnull(json_extract(body, '$.usage.cache_write_tokens'), 0)),
    sum(ifnull(json_extract(body, '$.usage.reasoning_tokens'), 0))
FROM entry e WHERE tenant=? AND json_extract(body, '$.usage') IS NOT NULL GROUP BY 1, 2 ORDER BY 4 DESC, 1, 2
"""
