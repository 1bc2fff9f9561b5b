"""PostgreSQL schema as numbered migrations with checksums. A released migration is never edited."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from nexus.errors import LedgerDamaged, LedgerError, LedgerUnusable
from nexus.ledger.codec import decode_parts
from nexus.ledger.postgres.connection import PostgresDatabase, quoted_name, transaction
from nexus.ledger.postgres.words import search_words
from nexus.ledger.search_text import search_text
from nexus.ledger.shared_sql.hidden_sessions import move_to_documents
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ReadCache
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.sqlite.schema import checksum

VERSION = 6

LEAST_SERVER = 140000
"""The oldest server: PostgreSQL 14."""

MIGRATIONS: tuple[str, ...] = tuple(
    Path(__file__).with_name(f"migration_{number}.sql").read_bytes().decode() for number in range(1, VERSION + 1)
)
"""Migration number i+1 brings a ledger from version i to version i+1."""


def applied_version(db: PostgresDatabase) -> int:
    """Return the version of the ledger in the connection's schema, 0 if there is none.

    Raises LedgerUnusable, and LedgerDamaged when an applied migration is not the one that this version of Nexus knows.
    """
    if db.value("SELECT to_regclass(format('%I.migration', ?::text)) IS NULL", (db.schema,)):
        return 0
    applied = db.rows("SELECT version, checksum FROM migration ORDER BY version")
    newest = applied[-1][0] if applied else 0
    if newest > VERSION:
        raise LedgerUnusable(
            f"{db.place} has ledger version {newest}, this Nexus knows {VERSION} (it was not touched; upgrade Nexus)",
            code="ledger_too_new",
        )
    for number, (version, stored) in enumerate(applied, 1):
        if version != number or stored != checksum(MIGRATIONS[number - 1]):
            raise LedgerDamaged(f"{db.place}: migration {version} has another text (nothing was changed)")
    return newest


def migrate(db: PostgresDatabase, *, create: bool) -> None:
    """Bring the ledger to this version, which is made if it is missing and `create` is true.

    Raises LedgerError, LedgerUnusable, LedgerDamaged.
    """
    server = int(db.value("SELECT current_setting('server_version_num')"))
    if server < LEAST_SERVER:
        raise LedgerError(f"{db.place} is PostgreSQL {server // 10000} (Nexus needs {LEAST_SERVER // 10000} or newer)")
    encoding = db.value("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise LedgerError(f"{db.place} has encoding {encoding} (create the database with ENCODING 'UTF8')")
    version = applied_version(db)
    if version == VERSION:
        return
    if not version and not create:
        raise LedgerUnusable(
            f"{db.place} has no ledger in schema '{db.schema}' (a program that writes creates it)",
            code="ledger_missing",
        )
    with transaction(db):
        db.lock("migration")
        if not db.value("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname=?)", (db.schema,)):
            db.script(f"CREATE SCHEMA {quoted_name(db, db.schema)}")
        for number, script in enumerate(MIGRATIONS[applied_version(db) :], applied_version(db) + 1):
            db.script(script)
            if number == 3:  # which made the messages of all tenants visible
                _fill_words(db)
                db.script("ALTER TABLE message FORCE ROW LEVEL SECURITY")
            if number == 4:  # which made the sessions of all tenants visible, and locked them
                _move_hidden_sessions(db)
            db.run("INSERT INTO migration VALUES (?,?,?)", (number, checksum(script), _now_ms()))


def _move_hidden_sessions(db: PostgresDatabase) -> None:
    """Move what hidden sessions of all tenants hold to documents."""
    tenants = [str(tenant) for (tenant,) in db.rows("SELECT DISTINCT tenant FROM session ORDER BY tenant")]
    db.script("ALTER TABLE session FORCE ROW LEVEL SECURITY")
    for tenant in tenants:
        db.run("SELECT set_config('nexus.tenant', ?, true)", (tenant,))
        move_to_documents(Writing(db, Reader(db, tenant, db.place, ReadCache(), is_writing=True), _now_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fill_words(db: PostgresDatabase) -> None:
    """Compute the searchable words of all messages."""
    last = 0
    while rows := db.rows("SELECT id_row, content FROM message WHERE id_row>? ORDER BY id_row LIMIT 1000", (last,)):
        for id_row, content in rows:
            try:
                text = search_text(decode_parts(content, lambda _: b""))
            except (ValueError, TypeError, msgspec.MsgspecError):
                continue  # damaged: it stays as it is, and reading it raises LedgerDamaged
            db.run("UPDATE message SET words=? WHERE id_row=?", (search_words(text), id_row))
        last = rows[-1][0]
