"""Maintenance of a ledger in PostgreSQL: verification, statistics, examination. Backups are the server's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from msgspec.structs import replace

from nexus.errors import LedgerError
from nexus.ledger.integrity.threads import Damage
from nexus.ledger.location import open_server_ledger
from nexus.ledger.maintenance.doctor import CLOCK_TOLERANCE_MS, DoctorFinding
from nexus.ledger.maintenance.files import Progress
from nexus.ledger.maintenance.statistics import Stats, content_counts
from nexus.ledger.maintenance.verification import content_damages, tenants
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.erase import TABLES
from nexus.ledger.text_encoding import decode_text

_OF_SCHEMA = "FROM pg_class c JOIN pg_namespace n ON n.oid=c.relnamespace WHERE n.nspname=current_schema()"

FREE_CONNECTIONS = 10
"""Connections that a server should have left for others."""


def verify(url: str, progress: Progress | None = None) -> list[Damage]:
    """Return all damage of the ledger's rows at one moment, of all tenants that the role sees.

    Raises LedgerUnavailable, LedgerError.
    """
    damages: list[Damage] = []
    with closing(open_server_ledger(url, create=False)) as store, store.connection() as db:
        names = tenants(db)
        for tenant in names:
            of = ""
            if len(names) > 1:
                of = f" of tenant {decode_text(tenant)!r}"
            rows = content_damages(db, tenant, progress)
            damages.extend(replace(damage, place=f"{damage.place}{of}") for damage in rows)
        damages.extend(_structure(db))
    return damages


def _structure(db: Connection) -> Iterator[Damage]:
    """Check that the tables have their indexes and policies."""
    sql = f"SELECT c.relname {_OF_SCHEMA} AND c.relkind='r' AND c.relrowsecurity AND c.relforcerowsecurity"
    protected = {str(name) for (name,) in db.rows(sql)}
    for table in sorted({*TABLES} - protected):
        yield Damage("file", f"the table {table}", "has no row-level security", "the separation of tenants")
    sql = (
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid=i.indexrelid"
        " JOIN pg_namespace n ON n.oid=c.relnamespace WHERE n.nspname=current_schema() AND NOT i.indisvalid"
    )
    for (name,) in db.rows(sql):
        yield Damage("file", f"the index {name}", "is not valid", "nothing: REINDEX makes it anew")


def stats(url: str, tenant: str = "local") -> Stats:
    """Return the statistics of one tenant; sizes are of the ledger's tables and indexes."""
    with closing(open_server_ledger(url, tenant=tenant, create=False)) as store, store.connection() as db:
        size = db.value(
            f"SELECT CAST(coalesce(sum(pg_total_relation_size(c.oid)),0) AS bigint) {_OF_SCHEMA} AND c.relkind='r'"
        )
        page_bytes = int(db.value("SELECT current_setting('block_size')"))
        return Stats(
            path=store.location,
            tenant=tenant,
            version=int(db.value("SELECT max(version) FROM migration")),
            sqlite="",
            server=str(db.value("SELECT current_setting('server_version')")),
            file_bytes=int(size),
            log_bytes=0,
            page_bytes=page_bytes,
            pages=int(size) // page_bytes,
            free_pages=0,
            **content_counts(db, tenant, store.location),
        )


def examine(url: str, *, now_ms: int | None = None) -> list[DoctorFinding]:
    """Return all findings about the server, the role and the ledger at a URL."""
    try:
        store = open_server_ledger(url, create=False)
    except LedgerError as error:
        text, _, advice = str(error).partition(" (")
        return [DoctorFinding("bad", "server", text, advice.rstrip(")"))]
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with closing(store), store.connection() as db:
        return [
            DoctorFinding("ok", "server", f"PostgreSQL {_setting(db, 'server_version')}, {store.location}"),
            _durability(db),
            _role(db),
            _rights(db),
            _connections(db),
            _version(db),
            _clock(db, now),
        ]


def _version(db: Connection) -> DoctorFinding:
    version = int(db.value("SELECT max(version) FROM migration"))
    return DoctorFinding("ok", "version", f"ledger version {version}")


def _setting(db: Connection, name: str) -> Any:
    return db.value("SELECT current_setting(?)", (name,))


def _durability(db: Connection) -> DoctorFinding:
    off = [name for name in ("fsync", "full_page_writes") if _setting(db, name) != "on"]
    if off:
        what = f"{' and '.join(off)} off: a loss of power can destroy the database"
        return DoctorFinding("bad", "durability", what, "turn them on in postgresql.conf")
    if _setting(db, "synchronous_commit") == "off":
        what = "synchronous_commit is off: a crash of the server loses the last appends"
        return DoctorFinding("warn", "durability", what, "set synchronous_commit to on for this role or database")
    return DoctorFinding("ok", "durability", "appends are on the server's disk when they are acknowledged")


def _role(db: Connection) -> DoctorFinding:
    row = db.row("SELECT current_user::text, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname=current_user")
    name, bypasses = row or ("?", True)
    if not bypasses:
        return DoctorFinding("ok", "role", f"{name} sees the rows of its tenant only")
    what = f"{name} bypasses row-level security: only Nexus separates the tenants"
    advice = "with several tenants, connect as a role without SUPERUSER and BYPASSRLS"
    return DoctorFinding("warn", "role", what, advice)


def _rights(db: Connection) -> DoctorFinding:
    lacking = [
        f"{right} on {table}"
        for table in TABLES
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
        if not db.value("SELECT has_table_privilege(?::text, ?::text)", (table, right))
    ]
    if lacking:
        return DoctorFinding("bad", "rights", f"the role lacks {', '.join(lacking[:4])}", "GRANT them: docs/ledger.md")
    if db.value("SELECT pg_is_in_recovery()"):
        return DoctorFinding(
            "bad", "rights", "the server is a standby and cannot be written", "name the primary server"
        )
    return DoctorFinding("ok", "rights", "the role may read and write all tables")


def _connections(db: Connection) -> DoctorFinding:
    limit = int(_setting(db, "max_connections"))
    used = int(db.value("SELECT count(*) FROM pg_stat_activity WHERE backend_type='client backend'"))
    text = f"{used:,} of {limit:,} connections in use"
    if limit - used < FREE_CONNECTIONS:
        return DoctorFinding("warn", "connections", text, "raise max_connections, or close programs")
    return DoctorFinding("ok", "connections", text)


def _clock(db: Connection, now_ms: int) -> DoctorFinding:
    server_ms = int(db.value("SELECT CAST(extract(epoch FROM clock_timestamp())*1000 AS bigint)"))
    apart_s = abs(server_ms - now_ms) // 1000
    if apart_s * 1000 > CLOCK_TOLERANCE_MS:
        return DoctorFinding("warn", "clock", f"this machine and the server are {apart_s:,} s apart", "set the clocks")
    return DoctorFinding("ok", "clock", "agrees with the server's")
