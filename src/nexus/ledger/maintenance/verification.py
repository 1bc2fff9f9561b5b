"""Full check of a SQLite ledger: SQLite's own structure, every hash, and all derived rows."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nexus.errors import LedgerDamaged, LedgerUnusable
from nexus.ledger import chain
from nexus.ledger.codec import blobs_of, call_rows, decode_parts
from nexus.ledger.integrity import check
from nexus.ledger.integrity.threads import UNREADABLE, Damage
from nexus.ledger.maintenance.files import COMPANIONS, Progress, existing, writing
from nexus.ledger.maintenance.log import hidden_commits
from nexus.ledger.records import (
    AssemblyRecord,
    CalibrationRecord,
    DecisionRecord,
    EntryRecord,
    Record,
    ThreadRecord,
)
from nexus.ledger.search_text import all_text, comparable
from nexus.ledger.sessions import SessionMetadata, Thread
from nexus.ledger.shared_sql import dump as sql_dump
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.read_sessions import ALIAS
from nexus.ledger.shared_sql.read_threads import THREAD_COLUMNS
from nexus.ledger.shared_sql.write import grown
from nexus.ledger.sqlite.connection import MEMORY, SqliteDatabase, connect, sqlite_errors
from nexus.ledger.sqlite.schema import MIGRATIONS, VERSION, checksum
from nexus.ledger.text_encoding import decode_text, from_json
from nexus.types.decoding import decodable
from nexus.types.message import Message

EVERY = 1_000
"""Records between two reports of progress."""

PAGE = 200
"""Threads whose rows are read together."""

_PLAIN_START = re.compile(r'\[\{"type":"text","text":"[!#-\[\]-~]')
"""Beginning of a message whose first text begins with a sign of ASCII, which is indexed with the rest."""

_metadata = msgspec.json.Decoder(decodable(SessionMetadata))
_NONE: tuple[int, bytes, int, int, bytes] = (0, b"", 0, 0, b"")


@contextmanager
def open_readonly(path: str | Path) -> Generator[SqliteDatabase]:
    """Open a ledger's file as it is: it is not migrated, and its log is not folded in.

    In a folder that cannot be written, a file without a log is read without locks, and one with a log from a copy.
    Raises UnreadableFile when it does not exist, LedgerUnusable (also for an empty file), LedgerUnusable.
    """
    file = existing(path)
    with writing(path):
        files = {end: file.with_name(file.name + end) for end in ("", *COMPANIONS)}
        sizes = {end: path.stat().st_size if path.exists() else 0 for end, path in files.items()}
    if not sizes[""] and not sizes["-wal"] and not sizes["-journal"]:
        raise LedgerUnusable(
            f"{path} is empty and not a ledger (name a ledger's file, or restore a backup)", code="not_a_ledger"
        )
    mode = reading_mode(path)
    if mode == "copy":
        with writing(path), tempfile.TemporaryDirectory(prefix="nexus-") as folder:
            copy = Path(folder) / file.name
            for end in ("", "-wal", "-journal"):
                if sizes[end] or not end:
                    shutil.copyfile(f"{file}{end}", f"{copy}{end}")
            with sqlite_errors(str(path)), closing(connect(str(copy), create=False)) as db:
                yield db
        return
    # Whoever closes a file last folds its log in, unless it was opened for reading; but then the log stays.
    readonly = sizes["-wal"] > 0 or not os.access(file, os.W_OK)
    unchanging = mode == "unlocked"
    with (
        sqlite_errors(str(path)),
        closing(connect(str(file), create=False, readonly=readonly, unchanging=unchanging)) as db,
    ):
        yield db


def reading_mode(path: str | Path) -> Literal["", "unlocked", "copy"]:
    """Return how a ledger is read in a folder where SQLite can make no log; an empty string elsewhere."""
    file = Path(path).expanduser().resolve()
    if os.access(file.parent, os.W_OK):
        return ""
    log, shared, journal = (file.with_name(f"{file.name}{end}") for end in COMPANIONS)
    has_log = any(other.exists() and other.stat().st_size for other in (log, journal))
    if not has_log:
        return "unlocked"
    if shared.exists():
        return ""
    return "copy"


def verify(path: str | Path, progress: Progress | None = None) -> list[Damage]:
    """Return all damage of a ledger, of all its tenants, at one moment; an empty list if it is sound.

    Raises LedgerUnusable, UnreadableFile.
    """
    damages: list[Damage] = []
    with open_readonly(path) as db:
        damages.extend(_guarded("the log", _log(db, existing(path))))
        # A snapshot that ends with the connection: in a broken file a COMMIT of mere reads can fail too.
        db.run("BEGIN")
        damages.extend(_guarded("the file", _structure(db)))
        if db.value("PRAGMA user_version") == VERSION:  # an older version gets its hashes when it is migrated
            tenant_names: list[str] = []
            try:
                with sqlite_errors("the file"):
                    tenant_names = tenants(db)
            except _BROKEN as error:
                what = f"cannot be read ({error.__cause__ or error})"
                damages.append(Damage("file", "the list of tenants", what, "everything"))
            for tenant in tenant_names:
                of = ""
                if len(tenant_names) > 1:
                    of = f" of tenant {decode_text(tenant)!r}"
                rows = _guarded("the rows", content_damages(db, tenant, progress))
                damages.extend(replace(damage, place=f"{damage.place}{of}") for damage in rows)
            damages.extend(_guarded("the search index", _lost_messages(db)))
    return damages


def require_sound(path: str | Path, progress: Progress | None = None) -> None:
    """Raise LedgerDamaged, with the first damage, unless a ledger is sound."""
    damages = verify(path, progress)
    if damages:
        more = ""
        if len(damages) > 1:
            more = f" (and {len(damages) - 1} more)"
        raise LedgerDamaged(f"{path} is damaged: {damages[0]}{more}")


def tenants(db: Connection) -> list[str]:
    """Return the tenants that have rows, in storable form."""
    # Other tables refer to these.
    tables = (
        "thread",
        "session_move",
        "session",
        "alias",
        "blob",
        "calibration",
        "calibration_head",
        "event",
        "document",
    )
    sql = " UNION ".join(f"SELECT tenant FROM {table}" for table in tables)  # noqa: S608 - constants
    return sorted(str(tenant) for (tenant,) in db.rows(sql))


def _guarded(place: str, findings: Iterator[Damage]) -> Iterator[Damage]:
    """Yield a check's findings. If the file cannot be read to the end, that is the last finding."""
    try:
        with sqlite_errors("the file"):
            yield from findings
    except _BROKEN as error:
        what = f"cannot be read to the end ({error.__cause__ or error})"
        yield Damage("file", place, what, "what was not read was not checked")


_BROKEN = (LedgerDamaged, TypeError, ValueError)
"""A page in another's place gives values of other types, at which a comparison or a conversion fails."""


def _log(db: SqliteDatabase, file: Path) -> Iterator[Damage]:
    """Check that the write-ahead log has no commits that SQLite does not read."""
    row = db.row("PRAGMA wal_checkpoint(NOOP)")  # changes nothing and returns the number of frames
    log = file.with_name(f"{file.name}-wal")
    hidden = hidden_commits(log, int(db.value("PRAGMA page_size")), int(row[1]) if row else 0)
    if hidden:
        loss = f"at least {hidden} later commits, which only `nexus ledger repair` still reads, until the next write"
        yield Damage("file", f"the log {log.name}", "is damaged in the middle", loss)


def _structure(db: SqliteDatabase) -> Iterator[Damage]:
    """Run SQLite's checks of pages, indexes and references between rows, and compare the schema with ours."""
    for (text,) in db.rows("PRAGMA integrity_check"):
        if text != "ok":
            yield Damage("file", "the file", f"is not as SQLite wants it: {text}", "possibly rows")
    missing = {(table, parent) for table, _, parent, _ in db.rows("PRAGMA foreign_key_check")}
    for table, parent in sorted(missing):
        yield Damage("file", f"a row of {table}", f"belongs to a row of {parent} that is not there", "this row")
    version = int(db.value("PRAGMA user_version"))
    stored = _schema(db)
    ours = _schema_of(version)
    for kind, name in sorted({*stored, *ours}):
        if stored.get((kind, name)) != ours.get((kind, name)):
            what = "is changed"
            if (kind, name) not in stored:
                what = "is missing"
            if (kind, name) not in ours:
                what = "was added by another program"
            yield Damage("file", f"the {kind} {name}", what, "the certainty that rows are read and written as they are")
    applied = [(number, checksum(script)) for number, script in enumerate(MIGRATIONS[:version], 1)]
    if db.rows("SELECT version, checksum FROM migration ORDER BY version") != applied:
        yield Damage(
            "file", "the list of migrations", "is not the one of this version", "nothing: the tables are checked"
        )


@cache
def _schema_of(version: int) -> dict[tuple[str, str], str]:
    """Return the schema of a version."""
    with closing(connect(MEMORY)) as db:
        for script in MIGRATIONS[:version]:
            db.run(script)
        return _schema(db)


def _schema(db: SqliteDatabase) -> dict[tuple[str, str], str]:
    """Return the statements that made a file's tables, indexes, views and triggers, by kind and name."""
    # SQLite's own tables (statistics, automatic indexes) and those of the search index, whose form SQLite chooses.
    sql = "SELECT type, name, ifnull(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    rows = db.rows(sql)
    return {(kind, name): "" if name.startswith("search_") else text for kind, name, text in rows}


def _lost_messages(db: SqliteDatabase) -> Iterator[Damage]:
    """Check that the search index has no messages that are not there."""
    if db.row("SELECT 1 FROM search_docsize WHERE id NOT IN (SELECT id_row FROM message)"):
        yield _derived("the search index of a message that is not there")


def content_damages(db: Connection, tenant: str, progress: Progress | None) -> Iterator[Damage]:
    """Yield the damage of one tenant's records and of the rows derived from them."""
    total = int(db.value("SELECT count(*) FROM entry WHERE tenant=?", (tenant,)))
    derived = Derived(db, tenant)
    sql = "SELECT DISTINCT parent FROM thread WHERE tenant=? AND parent IS NOT NULL"
    parents = {parent for (parent,) in db.rows(sql, (tenant,))}

    def counted() -> Iterator[Record]:
        for number, record in enumerate(derived.watch(sql_dump.dump(db, tenant))):
            yield record
            if progress is not None and not number % EVERY:
                progress(min(number, total), total)

    yield from check(counted(), parents)
    yield from derived.differences()


class Derived:
    """Comparison of derived rows with the records of a tenant's dump."""

    def __init__(self, db: Connection, tenant: str) -> None:
        self._db = db
        self._tenant = tenant
        self._thread: Thread | None = None
        self._calls: set[tuple[Any, ...]] = set()
        self._rows: dict[int, tuple[Any, ...]] = {}
        """Stored rows of threads that are read together, by number."""
        self._with_calls: set[int] = set()
        """Threads among those that have calls."""
        self._read_to = 0
        """The last of them."""
        self._uses = set(db.rows("SELECT sha256, thread, seq FROM blob_use WHERE tenant=?", (tenant,)))
        self._views: dict[tuple[int, str], tuple[int, bytes, int, int, bytes]] = defaultdict(lambda: _NONE)
        self._calibrations: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._faults: list[Damage] = []

    def watch(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records unchanged and collect their derived values."""
        for record in records:
            with suppress(*UNREADABLE):  # which the check of the records reports
                self._take(record)
            yield record
        self._finish_thread()

    def _take(self, record: Record) -> None:
        if isinstance(record, EntryRecord):
            self._entry(record)
        elif isinstance(record, ThreadRecord):
            self._finish_thread()
            self._begin_thread(record)
        elif isinstance(record, DecisionRecord):
            old = self._views[record.thread, record.view]
            self._views[record.thread, record.view] = (old[0] + 1, record.hash, *old[2:])
        elif isinstance(record, AssemblyRecord):
            old = self._views[record.thread, record.view]
            self._views[record.thread, record.view] = (*old[:2], old[2] + 1, record.seq, record.hash)
        elif isinstance(record, CalibrationRecord):
            self._calibrations[record.provider, record.model] = (record.number, record.hash)

    def differences(self) -> Iterator[Damage]:
        """Yield derived rows that differ from their sources. Call it after all records were watched."""
        yield from self._faults
        for sha256, thread, seq in sorted(self._uses):
            yield _derived(f"the use of image {sha256[:12]} in entry {seq} of thread {thread}", thread, seq)
        yield from self._pointers()
        yield from self._heads()
        yield from self._search()

    def _begin_thread(self, record: ThreadRecord) -> None:
        begin = (record.id, record.parent, record.fork_seq, record.root_hash, record.at_ms)
        turn, open_turn, last_ms = self._end_at(record.parent, record.fork_seq)
        self._thread = Thread(
            *begin, record.fork_seq, record.root_hash, turn, open_turn, last_ms=last_ms, erased=record.erased
        )
        if record.id > self._read_to:
            self._read_rows(record.id)
        self._calls = set()
        if record.id in self._with_calls:
            sql = "SELECT seq, ord, part, call_id, name, is_result, is_error FROM tool_call WHERE tenant=? AND thread=?"
            self._calls = set(self._db.rows(sql, (self._tenant, record.id)))

    def _read_rows(self, first: int) -> None:
        """Read the rows of the next threads, and which of them have calls."""
        sql = f"SELECT {THREAD_COLUMNS}, hash FROM thread WHERE tenant=? AND id>=? ORDER BY id LIMIT {PAGE}"  # noqa: S608
        self._rows = {row[0]: row for row in self._db.rows(sql, (self._tenant, first)) if type(row[0]) is int}
        self._read_to = max(self._rows, default=first)
        sql = "SELECT id FROM thread t WHERE tenant=?1 AND id BETWEEN ?2 AND ?3 AND EXISTS ("
        sql += "SELECT 1 FROM tool_call c WHERE c.tenant=?1 AND c.thread=t.id)"
        self._with_calls = {number for (number,) in self._db.rows(sql, (self._tenant, first, self._read_to))}

    def _end_at(self, thread: int | None, high: int) -> tuple[int, bool, int]:
        """Return the newest turn of a path up to an entry, whether it is open there, and the entry's time."""
        turn: int | None = None
        time_ms = 0
        while thread is not None:
            sql = "SELECT turn, kind, at_ms FROM entry WHERE tenant=? AND thread=? AND seq<=? ORDER BY seq DESC"
            for at, kind, at_ms in self._db.each(sql, (self._tenant, thread, high)):
                if turn is None:
                    turn, time_ms = int(at), at_ms
                if kind in ("messages", "lost", "completed", "failed", "clear"):
                    return turn, kind in ("messages", "lost") and turn > 0, time_ms
            sql = "SELECT parent, fork_seq FROM thread WHERE tenant=? AND id=?"
            parent, low = self._db.row(sql, (self._tenant, thread)) or (None, 0)
            thread = parent if parent is not None and parent < thread else None  # a damaged row may name itself
            high = min(low, high)
        return turn or 0, False, time_ms

    def _entry(self, record: EntryRecord) -> None:
        if self._thread is None or self._thread.id != record.thread:
            return
        self._thread = grown(self._thread, record)
        # Most messages have no calls and no images, which shows before they are decoded.
        if not any('"tool_' in row[7] or '"sha256"' in row[7] for row in record.messages):
            return
        try:
            parts = [decode_parts(row[7], lambda _: b"") for row in record.messages]
            uses = {(sha256, record.thread, record.seq) for row in record.messages for sha256 in blobs_of(row[7])}
        except UNREADABLE:
            return
        calls = call_rows(tuple(Message("user", part) for part in parts))
        wanted = {(record.seq, c.ord, c.part, c.call_id, c.name, int(c.is_result), int(c.is_error)) for c in calls}
        if not wanted <= self._calls or not uses <= self._uses:
            what = f"the calls and images of entry {record.seq} of thread {record.thread}"
            self._faults.append(_derived(what, record.thread, record.seq))
        self._calls -= wanted
        self._uses -= uses

    def _finish_thread(self) -> None:
        """Compare the row of the thread that went by with its entries, and its own hash with the row."""
        thread = self._thread
        self._thread = None
        if thread is None:
            return
        stored = self._rows.get(thread.id, (b"",))
        names = THREAD_COLUMNS.split(",")
        wrong = [name for name, value in zip(names, stored, strict=False) if getattr(thread, name) != value]
        if wrong == ["last_ms"] and thread.head_seq == thread.fork_seq and stored[names.index("last_ms")] == 0:
            wrong = []  # a fork that an earlier version made
        if thread.erased:
            wrong = []
        if chain.columns_hash("thread", (self._tenant, *stored[:-1])) != stored[-1]:
            wrong.append("hash")
        if wrong:
            self._faults.append(_derived(f"the row of thread {thread.id} ({', '.join(wrong)})", thread.id))
        for seq, *_ in sorted(self._calls)[:1]:
            self._faults.append(_derived(f"a call in entry {seq} of thread {thread.id}", thread.id, int(seq)))

    def _pointers(self) -> Iterator[Damage]:
        for label, *columns in self._db.stream(_POINTERS, (self._tenant,)):
            pointer = tuple(columns[:4])
            if pointer not in _possible_pointers(tuple(columns[4:8]), tuple(columns[8:])):
                yield _derived(f"the pointer of session {decode_text(label)!r}")

    def _heads(self) -> Iterator[Damage]:
        columns = "thread, view, decisions, decision_hash, assemblies, assembly_seq, assembly_hash, hash"
        sql = f"SELECT {columns} FROM view_head WHERE tenant=?"  # noqa: S608 - constants
        views = {(row[0], row[1]): tuple(row[2:]) for row in self._db.rows(sql, (self._tenant,))}
        heads = {
            key: (*head, chain.columns_hash("view_head", (self._tenant, *key, *head)))
            for key, head in self._views.items()
        }
        for thread, view in sorted({*views, *heads}):
            if views.get((thread, view)) != heads.get((thread, view)):
                yield _derived(f"what is newest of view {decode_text(view)} on thread {thread}", thread)
        sql = "SELECT provider, model, number, hash FROM calibration_head WHERE tenant=?"
        models = {(provider, model): tuple(row) for provider, model, *row in self._db.rows(sql, (self._tenant,))}
        for key in sorted({*models, *self._calibrations}):
            if models.get(key) != self._calibrations.get(key):
                yield _derived(f"the newest calibration of {decode_text(key[0])}/{decode_text(key[1])}")

    def _search(self) -> Iterator[Damage]:
        """Check that the index has exactly the messages with words."""
        for thread, seq, content, there in self._db.stream(self._db.dialect.indexed, (self._tenant,)):
            try:
                has_words = _has_words(content)
            except UNREADABLE:
                continue
            if has_words != bool(there):
                yield _derived(f"the search index at entry {seq} of thread {thread}", thread, seq)


_POINTERS = """
SELECT n.label, s.number, s.thread, s.status, s.hash, m.number, m.thread, m.facts, m.hash, a.number, a.target, a.hash
FROM (
    SELECT label FROM session WHERE tenant=?1 UNION SELECT label FROM session_move WHERE tenant=?1
    UNION SELECT name FROM alias WHERE tenant=?1
) n
LEFT JOIN session s ON s.tenant=?1 AND s.label=n.label
LEFT JOIN session_move m ON m.tenant=?1 AND m.label=n.label
    AND m.number=(SELECT max(number) FROM session_move WHERE tenant=?1 AND label=n.label)
LEFT JOIN alias a ON a.tenant=?1 AND a.name=n.label
    AND a.number=(SELECT max(number) FROM alias WHERE tenant=?1 AND name=n.label)
ORDER BY n.label
"""
"""Each name with its pointer, its newest update and its newest alias."""


def _possible_pointers(move: tuple[Any, ...], alias: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the pointer rows that a name may have: its newest update or, without a thread, its newest alias.

    `move` is number, thread, metadata and hash, and `alias` number, target and hash; all are None without one.
    """
    number, thread, metadata, digest = move
    has_move = number is not None
    alias_number, target, alias_digest = alias
    has_alias = alias_number is not None
    pointers: list[tuple[Any, ...]] = []
    if has_alias and (not has_move or thread is None):
        pointers.append((alias_number, None, ALIAS, alias_digest))
    if has_move and (not pointers or target is None):
        try:
            status = from_json(metadata, _metadata).status
        except UNREADABLE:
            status = ""
        pointers.append((number, thread, status, digest))
    return pointers


def _has_words(content: str) -> bool:
    """Return True if a message has a text to be found. Raises one of UNREADABLE for a damaged one."""
    if _PLAIN_START.match(content):
        return True
    return bool(comparable(all_text(decode_parts(content, lambda _: b""))).strip())


def _derived(place: str, thread: int | None = None, seq: int = 0) -> Damage:
    what = "does not agree with the rows that it follows from"
    return Damage("derived", place, what, "nothing: it can be made anew", thread, seq)
