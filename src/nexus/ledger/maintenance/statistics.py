"""Statistics of a SQLite ledger: its content, reported token usage, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.errors import LedgerDamaged, LedgerError
from nexus.ledger.codec import decode_body
from nexus.ledger.maintenance.verification import open_readonly
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.sqlite.connection import SQLITE_VERSION
from nexus.ledger.sqlite.schema import VERSION
from nexus.ledger.text_encoding import decode_text, encode_text


class Usage(Struct, frozen=True):
    """Tokens that a provider reported for a model, summed over all calls.

    `input_tokens` includes the cached ones.
    """

    provider: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cache_write_1h_tokens: int = 0
    """Those of `cache_write_tokens` that are kept for an hour."""

    @property
    def cached_share(self) -> float:
        """Share of the input that was read from the provider's cache, 0 to 1."""
        if self.input_tokens:
            return self.cache_read_tokens / self.input_tokens
        return 0.0


class Stats(Struct, frozen=True):
    """Counts of a tenant's rows, and the file's size. `tokens` are base tokens of all messages."""

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
    events: int
    open_events: int
    images: int
    image_bytes: int
    inputs: int
    input_bytes: int
    first_ms: int
    last_ms: int
    usage: tuple[Usage, ...]
    file_bytes: int
    log_bytes: int
    page_bytes: int
    pages: int
    free_pages: int
    server: str = ""
    """PostgreSQL's version, for a ledger that is not in a file."""

    @property
    def cached_share(self) -> float:
        """Share of all reported input that was read from caches, 0 to 1."""
        input_tokens = sum(model.input_tokens for model in self.usage)
        if input_tokens:
            return sum(model.cache_read_tokens for model in self.usage) / input_tokens
        return 0.0


def stats(path: str | Path, tenant: str = "local") -> Stats:
    """Return the statistics of one tenant. Raises UnreadableFile, and LedgerError for an older ledger version."""
    with open_readonly(path) as db, db.snapshot():
        version = int(db.value("PRAGMA user_version"))
        if version != VERSION:
            what = f"{path} has ledger version {version}"
            raise LedgerError(f"{what}, statistics need {VERSION} (run nexus ledger migrate)")
        log = Path(f"{path}-wal")
        return Stats(
            path=str(path),
            tenant=tenant,
            version=version,
            sqlite=SQLITE_VERSION,
            file_bytes=Path(path).stat().st_size,
            log_bytes=log.stat().st_size if log.exists() else 0,
            page_bytes=int(db.value("PRAGMA page_size")),
            pages=int(db.value("PRAGMA page_count")),
            free_pages=int(db.value("PRAGMA freelist_count")),
            **content_counts(db, tenant, str(path)),
        )


def content_counts(db: Connection, tenant: str, place: str) -> dict[str, Any]:
    """Return the fields of `Stats` about a tenant's rows. Raises LedgerDamaged."""
    name = encode_text(tenant)
    counts: dict[str, Any] = {key: db.value(sql, (name,)) for key, sql in _COUNTS.items()}
    for key, value in counts.items():
        if not isinstance(value, (int, float)):  # a damaged row may have text where a number belongs
            raise LedgerDamaged(
                f"{place} is damaged: a row has {value!r} instead of a number (list all damage: nexus ledger verify)"
            )
        counts[key] = int(value)
    counts["sessions"] = {str(status): int(number) for status, number in db.rows(_STATUSES, (name,))}
    counts["usage"] = _usage(db, name)
    return counts


def _usage(db: Connection, tenant: str) -> tuple[Usage, ...]:
    """Return reported usage by provider and model, the largest input first; other values than whole numbers are 0."""
    totals: dict[tuple[str, str], list[int]] = {}
    sql = _CALLS.format(has_usage=db.dialect.contains.format("body", "'\"usage\"'"))
    for thread, seq, stored, answered_by in db.stream(sql, (tenant,)):
        try:
            body = decode_body(stored)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise LedgerDamaged(
                f"entry {seq} of thread {thread} is not JSON: {error} (list all damage: nexus ledger verify)"
            ) from error
        reported = body.get("usage")
        if reported is None:
            continue
        counts = cast("dict[str, Any]", reported) if isinstance(reported, dict) else {}
        name = str(body.get("provider") or ""), str(body.get("model") or decode_text(answered_by or ""))
        sums = totals.setdefault(name, [0] * (1 + len(_REPORTED)))
        sums[0] += 1
        for at, key in enumerate(_REPORTED, 1):
            sums[at] += counts[key] if isinstance(counts.get(key), int) else 0
    usage = (Usage(*name, *sums) for name, sums in totals.items())
    return tuple(sorted(usage, key=lambda model: (-model.input_tokens, model.provider, model.model)))


_REPORTED = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "cache_write_1h_tokens",
)  # fmt: skip

_IN_USE = "EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant=b.tenant AND u.sha256=b.sha256)"
"""True for images, which messages show; other blobs are inputs of manifests."""

_COUNTS = {
    "aliases": "SELECT count(DISTINCT name) FROM alias WHERE tenant=?",
    "threads": "SELECT count(*) FROM thread WHERE tenant=? AND erased=0",
    "erased_threads": "SELECT count(*) FROM thread WHERE tenant=? AND erased<>0",
    "entries": "SELECT count(*) FROM entry WHERE tenant=?",
    "lost_entries": "SELECT count(*) FROM entry WHERE tenant=? AND kind='lost'",
    "turns": "SELECT count(*) FROM (SELECT DISTINCT thread, turn FROM entry WHERE tenant=? AND turn>0) turns",
    "messages": "SELECT count(*) FROM message WHERE tenant=?",
    "tokens": "SELECT CAST(coalesce(sum(tokens),0) AS bigint) FROM thread WHERE tenant=?",
    "tool_calls": "SELECT count(*) FROM tool_call WHERE tenant=? AND is_result=0",
    "tool_results": "SELECT count(*) FROM tool_call WHERE tenant=? AND is_result<>0",
    "compactions": "SELECT count(*) FROM entry WHERE tenant=? AND kind='compaction'",
    "pins": "SELECT count(*) FROM entry WHERE tenant=? AND kind='pin'",
    "cuts": "SELECT count(*) FROM decision WHERE tenant=?",
    "manifests": "SELECT count(*) FROM assembly WHERE tenant=?",
    "events": "SELECT count(*) FROM event WHERE tenant=?",
    "open_events": "SELECT count(*) FROM event WHERE tenant=? AND state IN ('queued', 'running')",
    "images": f"SELECT count(*) FROM blob b WHERE tenant=? AND {_IN_USE}",  # noqa: S608 - constants
    "image_bytes": f"SELECT CAST(coalesce(sum(length(data)),0) AS bigint) FROM blob b WHERE tenant=? AND {_IN_USE}",  # noqa: S608 - constants
    "inputs": f"SELECT count(*) FROM blob b WHERE tenant=? AND NOT {_IN_USE}",  # noqa: S608 - constants
    "input_bytes": f"SELECT CAST(coalesce(sum(length(data)),0) AS bigint) FROM blob b WHERE tenant=? AND NOT {_IN_USE}",  # noqa: S608 - constants
    "first_ms": "SELECT coalesce(min(at_ms),0) FROM entry WHERE tenant=?",
    "last_ms": "SELECT coalesce(max(at_ms),0) FROM entry WHERE tenant=?",
}

_STATUSES = "SELECT status, count(*) FROM session WHERE tenant=? AND thread IS NOT NULL GROUP BY status ORDER BY status"

_CALLS = """
SELECT thread, seq, body,
    (SELECT model FROM message m WHERE m.tenant=e.tenant AND m.thread=e.thread AND m.seq=e.seq AND model<>'' LIMIT 1)
FROM entry e WHERE tenant=? AND {has_usage}
"""
