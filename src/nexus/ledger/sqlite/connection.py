"""Connections to SQLite: settings, application ID, and the engine's errors as ours.

APSW brings its own SQLite, without the WAL-reset bug of 3.7.0 to 3.51.2. WAL with `synchronous=FULL`: an acknowledged
append survives power loss. No memory mapping. Only this module knows APSW.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import apsw

from nexus.errors import BadReference, LedgerBusy, LedgerDamaged, LedgerError, LedgerFull, LedgerUnusable
from nexus.ledger.search_text import stems_of
from nexus.ledger.shared_sql.connection import Dialect, Value
from nexus.ledger.sqlite.schema import APPLICATION_ID, VERSION

BUSY_TIMEOUT_MS = 5_000

LEAST_TRIES = 200
"""How often a lock is tried, at least, before a wait is given up."""

SYNCHRONOUS = "FULL"
"""What SQLite waits for at a commit: FULL syncs the log, so that an acknowledged append survives power loss."""

BEGIN = "BEGIN IMMEDIATE"
"""How a write begins: it takes the write lock at once, so two writers queue instead of failing half-way."""

SQLITE_VERSION: str = apsw.sqlite_lib_version()
"""The engine that APSW brings."""

MEMORY = ":memory:"

COPY_PAGES = 256
"""Pages that a backup copies in one step; others may write between steps."""

MOST_RANKED = 40_000
"""Messages that a search by relevance ranks, at most: ranking takes 0.8 µs for each that has the words."""

MOST_REMEMBERED = 4_000
"""Values in the cache of a connection's last writes, at most."""


class SqliteDatabase:
    """SQLite connection with the few typed calls that the ledger needs.

    `memo` caches this connection's last write for its next one; every rollback empties it.
    """

    dialect = Dialect(
        integers="SELECT value FROM json_each({0})",
        spans="(SELECT value->>0 AS thread, value->>1 AS low, value->>2 AS high FROM json_each({0}))",
        greatest="max",
        contains="instr({0}, {1})",
        following="substr({0}, instr({0}, '{1}')+{2}, 64)",
        indexed=(
            "SELECT m.thread, m.seq, m.content, s.id IS NOT NULL FROM message m"
            " LEFT JOIN search_docsize s ON s.id=m.id_row WHERE m.tenant=?"
        ),
    )

    def __init__(self, path: str, flags: int, vfs: str = "") -> None:
        self._db: Any = apsw.Connection(path, flags=flags, vfs=vfs or None)
        self.memo: dict[Any, Any] = {}
        self._is_durable = True

    def run(self, sql: str, values: tuple[Value, ...] = ()) -> None:
        """Run a statement (or a script) and reads it to its end."""
        for _ in self._db.execute(sql, values or None):
            pass

    def run_many(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        """Run a statement once for each row of values."""
        self._db.executemany(sql, rows)

    def rows(self, sql: str, values: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._db.execute(sql, values or None).fetchall()

    def each(self, sql: str, values: tuple[Value, ...] = ()) -> Generator[tuple[Any, ...]]:
        """Yield all rows, one after the other as they are read."""
        rows = self._db.execute(sql, values or None)
        try:
            yield from rows
        finally:
            rows.close()  # a statement that is not at its end keeps the snapshot

    stream = each

    def row(self, sql: str, values: tuple[Value, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row, None if there is none."""
        return self._db.execute(sql, values or None).fetchone()

    def value(self, sql: str, values: tuple[Value, ...] = ()) -> Any:
        """Return the first column of the first row, None if there is none."""
        row = self.row(sql, values)
        if row:
            return row[0]
        return None

    def last_writes(self) -> dict[Any, Any]:
        """Return the threads of this connection's last writes by session; empty after another writer."""
        memo = self.memo
        version = self.value("PRAGMA data_version")
        if memo.get("version") != version or len(memo) > MOST_REMEMBERED:
            memo.clear()
            memo["version"] = version
        return memo

    def forget_writes(self) -> None:
        """Empty the cache of this connection's last writes."""
        self.memo.clear()

    def lock(self, kind: str, *names: Value) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def require_alone(self) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def lease_clock_ms(self) -> int:
        """Return the milliseconds since the machine started, suspensions included: a SQLite file is for one machine."""
        if _UPTIME is not None:
            return time.clock_gettime_ns(_UPTIME) // 1_000_000
        return time.monotonic_ns() // 1_000_000

    def insert_messages(self, rows: Sequence[tuple[Value, ...]], texts: Sequence[str]) -> None:
        """Insert messages and their searchable texts."""
        self._db.executemany(_INSERT_MESSAGE, rows)
        # The rows of one statement have numbers in a row: each is one more than the largest there is.
        first = int(self._db.last_insert_rowid()) - len(rows) + 1
        searchable = [(first + place, text) for place, text in enumerate(texts) if text.strip()]
        self._db.executemany("INSERT INTO search(rowid, text) VALUES (?,?)", searchable)

    def delete_messages(self, tenant: str, thread: int) -> None:
        """Delete a thread's messages, also from the search index."""
        rows = "SELECT id_row FROM message WHERE tenant=? AND thread=?"
        self.run(f"DELETE FROM search WHERE rowid IN ({rows})", (tenant, thread))  # noqa: S608 - constants
        self.run("DELETE FROM message WHERE tenant=? AND thread=?", (tenant, thread))

    def find_messages(
        self, tenant: str, phrases: list[list[str]], *, by_relevance: bool, any_phrase: bool = False
    ) -> Generator[tuple[int, int, int, str]]:
        """Yield the messages that contain all phrases: the newest `MOST_RANKED` by FTS5's rank, then the newest first.

        With `any_phrase`, those that contain any phrase, or a word that begins with the stem of a phrase of one word.
        """
        quoted = [f'"{" ".join(phrase)}"' for phrase in phrases]
        match = " ".join(quoted)
        if any_phrase:
            stems = [f'"{stem}"*' for stem in stems_of(phrases)]
            match = " OR ".join(dict.fromkeys([*quoted, *stems]))
        found = "FROM search JOIN message m ON m.id_row = search.rowid WHERE search MATCH ? AND m.tenant=?"
        places = f"SELECT m.thread, m.seq, m.ord, m.role {found}"
        newest_first = "ORDER BY search.rowid DESC"
        if not by_relevance:
            yield from self.each(f"{places} {newest_first}", (match, tenant))  # pyright: ignore[reportReturnType]
            return
        sql = f"SELECT search.rowid {found} {newest_first} LIMIT 1 OFFSET ?"
        last = self.value(sql, (match, tenant, MOST_RANKED)) or 0
        best_first = "ORDER BY search.rank, search.rowid DESC"
        yield from self.each(f"{places} AND search.rowid>? {best_first}", (match, tenant, last))  # pyright: ignore[reportReturnType]
        if last:
            yield from self.each(f"{places} AND search.rowid<=? {newest_first}", (match, tenant, last))  # pyright: ignore[reportReturnType]

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open."""
        return bool(self._db.in_transaction)

    def begin(self, *, durable: bool = True) -> None:
        """Begin a write transaction. One that is not durable is on the disk with the next one that is, in order."""
        if durable != self._is_durable:
            self.run(f"PRAGMA synchronous={SYNCHRONOUS if durable else 'NORMAL'}")
            self._is_durable = durable
        self.run(BEGIN)

    def roll_back(self) -> None:
        """Roll back the open transaction and forget its cached writes."""
        self.memo.clear()
        self.run("ROLLBACK")

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Generator[None]:
        """Run a write transaction that is committed whole or rolled back; see `begin`. A nested one is a savepoint."""
        if self.in_transaction:
            with self.savepoint():
                yield
            return
        self.begin(durable=durable)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self.memo.clear()
            if self.in_transaction:
                self.roll_back()
            raise

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Run a part of a transaction that can be rolled back by itself."""
        self.run("SAVEPOINT part")
        try:
            yield
            self.run("RELEASE part")
        except BaseException:
            self.memo.clear()
            if self.in_transaction:
                self.run("ROLLBACK TO part")
                self.run("RELEASE part")
            raise

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Run a read transaction in which all reads see one state. A nested one adds nothing."""
        if self.in_transaction:
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            if self.in_transaction:
                self.run("COMMIT")

    def busy_timeout(self, timeout_ms: int) -> None:
        """Set the wait for another writer's transaction."""
        begin_s = 0.0

        def try_again(count: int) -> bool:
            nonlocal begin_s
            now = time.monotonic()
            begin_s = now if count == 0 else begin_s
            _pause()  # short steps keep waiting writers in turn
            # Time alone does not end the wait: a machine that was suspended made no tries meanwhile.
            return (now - begin_s) * 1000 < timeout_ms or count < LEAST_TRIES

        self._db.set_busy_handler(try_again)

    def empty_log(self) -> bool:
        """Bring the whole log into the file and empties it; False while another connection reads from it."""
        # A connection that was idle reads the schema anew first, and its own reading would stand in the way.
        self.value("SELECT count(*) FROM sqlite_schema")
        busy = self.value("PRAGMA wal_checkpoint(TRUNCATE)")
        return not busy

    def copy_to(self, target: SqliteDatabase, progress: Callable[[int, int], None] | None = None) -> None:
        """Copy everything into `target` by the online backup. Others may write meanwhile.

        `progress` gets the number of copied pages and of all pages.
        """
        with target._db.backup("main", self._db, "main") as copy:
            while not copy.done:
                copy.step(COPY_PAGES)
                if progress is not None:
                    progress(copy.page_count - copy.remaining, copy.page_count)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


_INSERT_MESSAGE = (
    "INSERT INTO message(tenant,thread,seq,ord,role,id,run_id,source,model,at_ms,content,meta,"
    "openai,anthropic,gemini,aside) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


_UPTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def _pause() -> None:
    time.sleep(random.uniform(0.001, 0.006))  # noqa: S311 - only to be out of step with others


def connect(
    path: str, *, create: bool = True, readonly: bool = False, unchanging: bool = False, vfs: str = ""
) -> SqliteDatabase:
    """Open a ledger at `path` (or `:memory:`) as it is, without migrating it.

    `unchanging` reads a file that cannot be written, in a folder where no log can be made. Raises LedgerUnusable and
    LedgerUnusable, which leave the file untouched, LedgerBusy, LedgerFull, LedgerError.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    if readonly or unchanging:
        flags = apsw.SQLITE_OPEN_READONLY
    flags |= apsw.SQLITE_OPEN_CREATE if create and not readonly else 0
    place = path
    if unchanging:
        place = f"{Path(path).absolute().as_uri()}?immutable=1"
    flags |= apsw.SQLITE_OPEN_URI if unchanging else 0
    with sqlite_errors(path):
        wrong = None
        if path != MEMORY and not vfs:
            wrong = _wrong_header(path, create=create)
        if wrong is not None and not _is_torn(path):
            raise wrong
        db = SqliteDatabase(place, flags, vfs)
        try:
            db.busy_timeout(BUSY_TIMEOUT_MS)
            check_version(int(db.value("PRAGMA user_version")), path)
            # SQLite may have recovered a ledger, or a new file that was still empty; else the header's fault stands.
            recovered = wrong is None or db.value("PRAGMA application_id") == APPLICATION_ID
            recovered = recovered or not db.value("PRAGMA page_count")
        except BaseException:
            db.close()
            raise
        if wrong is not None and not recovered:
            db.close()
            raise wrong
    return db


def settle(db: SqliteDatabase) -> None:
    """Apply the settings of a connection to a ledger of this version."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            db.run("PRAGMA journal_mode=WAL")
            break
        except apsw.BusyError:  # at once and without a wait, when two processes create the file together
            if time.monotonic() > until:
                raise
            _pause()
    for setting in (
        f"PRAGMA synchronous={SYNCHRONOUS}",
        "PRAGMA foreign_keys=ON",
        "PRAGMA trusted_schema=OFF",
        "PRAGMA cell_size_check=ON",
        "PRAGMA mmap_size=0",
        "PRAGMA wal_autocheckpoint=1000",
        "PRAGMA journal_size_limit=67108864",
        "PRAGMA secure_delete=ON",
    ):
        db.run(setting)


def _wrong_header(path: str, *, create: bool) -> LedgerError | None:
    """Return the fault of a file's header (sqlite.org/fileformat.html), or None."""
    place = Path(path)  # read before SQLite opens the file, because opening can change it
    if not place.exists():
        return None
    if not place.is_file():
        raise LedgerError(f"{path} is not a regular file (choose another --ledger)")
    header = next(blocks(path, 100), b"")
    if not header and create:
        return None
    if not header:
        what = "an empty file and not a ledger"
    elif len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        what = "not a SQLite file"
    elif int.from_bytes(header[68:72]) != APPLICATION_ID:
        what = "a SQLite file of another program"
    else:
        check_version(int.from_bytes(header[60:64]), path)
        return None
    return LedgerUnusable(f"{path} is {what} (it was not touched; choose another --ledger)", code="not_a_ledger")


_JOURNAL = bytes.fromhex("d9d505f920a163d7")
_LOG = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))


def _is_torn(path: str) -> bool:
    """Return True if a ledger's header was torn by a power cut, or the file was new: SQLite repairs it on opening.

    The first page is then in the file's journal or log. Formats: sqlite.org/fileformat.html.
    """
    for end in ("-journal", "-wal"):
        try:
            with Path(path + end).open("rb") as stream:
                header = stream.read(32)
                pages, sector, size = (int.from_bytes(header[at : at + 4]) for at in (16, 20, 24))
                if end == "-wal" and len(header) == 32 and header.startswith(_LOG):
                    first_pages = _first_pages(stream, 32, int.from_bytes(header[8:12]), head=24, tail=0)
                elif end == "-journal" and len(header) >= 28 and header.startswith(_JOURNAL):
                    if not pages:
                        return True  # the file had no page before this journal
                    first_pages = _first_pages(stream, sector, size, head=4, tail=4)
                else:
                    continue
                if any(page[68:72] == APPLICATION_ID.to_bytes(4) or not page for page in first_pages):
                    return True
        except OSError:
            continue
    return False


def _first_pages(stream: BinaryIO, at: int, size: int, *, head: int, tail: int) -> Iterator[bytes]:
    """Yield the start of each record of page 1. A record's head begins with the page's number."""
    while size >= 512:
        stream.seek(at)
        number = stream.read(head)
        if len(number) < head:
            return
        if int.from_bytes(number[:4]) == 1:
            yield stream.read(128)
        at += head + size + tail


def blocks(path: str, size: int = 1 << 22) -> Iterator[bytes]:
    """Yield the bytes of a database file, in blocks."""
    # Through SQLite's own layer: a process that closes a file which it opened by itself loses the locks that all its
    # connections hold on it (POSIX), and another program could then take the log away.
    file: Any = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        file_bytes = int(file.xFileSize())
        for at in range(0, file_bytes, size):
            yield file.xRead(min(size, file_bytes - at), at)
    finally:
        file.xClose()


def check_version(version: int, path: str) -> None:
    """Raise LedgerUnusable for a version that this Nexus does not know."""
    if version > VERSION:
        raise LedgerUnusable(
            f"{path} has ledger version {version}, this Nexus knows {VERSION} (it was not touched; upgrade Nexus)",
            code="ledger_too_new",
        )


def spoils(error: BaseException) -> bool:
    """Return True if an error may leave its connection unusable."""
    # A connection that could not reach its files rejects every later write.
    if isinstance(error, apsw.Error):
        cause = error
    else:
        cause = error.__cause__
    return isinstance(cause, (apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError))


class sqlite_errors:  # noqa: N801 - used like a function
    """Context manager that converts the engine's errors to ours, each with advice."""

    # Every call uses it: a class with slots enters faster than a generator.
    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ours = _ours(self._place, error) if error is not None else None
        if ours is not None:
            raise ours from error


_UNUSABLE = (
    "(nothing was returned from it; list all damage: nexus ledger verify, restore a backup: nexus ledger restore, "
    "save the rest: nexus ledger repair)"
)

_ERRORS: tuple[tuple[tuple[type[BaseException], ...], type[LedgerError], str, str], ...] = (
    (
        (apsw.BusyError, apsw.LockedError),
        LedgerBusy,
        LedgerBusy.code,
        "{place} was locked for over {busy_ms} ms (nothing was written; try again)",
    ),
    (
        (apsw.FullError,),
        LedgerFull,
        LedgerFull.code,
        "no space left for {place} (the append was not stored; earlier ones are safe)",
    ),
    (
        (apsw.NotADBError,),
        LedgerUnusable,
        "not_a_ledger",
        "{place} is not a SQLite file (it was not touched; choose another --ledger)",
    ),
    (
        (apsw.IOError,),
        LedgerError,
        LedgerError.code,
        "{place} cannot be read or written: the disk reports a fault: {error} (acknowledged appends are safe)",
    ),
    (
        (apsw.CorruptError, apsw.SQLError, UnicodeDecodeError),
        LedgerDamaged,
        LedgerDamaged.code,
        f"{{place}} is damaged: {{error}} {_UNUSABLE}",
    ),
    (
        (apsw.ConstraintError,),
        BadReference,
        BadReference.code,
        "{place}: rows do not fit together: {error} (nothing was stored)",
    ),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError),
        LedgerError,
        LedgerError.code,
        "{place} cannot be opened or written: {error} (check that its folder exists and is writable)",
    ),
)
"""Kinds of the database's errors, with our class, its code and text."""


def _ours(place: str, error: BaseException) -> LedgerError | None:
    """Return the error to raise for an error of the engine; None for other errors."""
    if isinstance(error, OverflowError):
        return BadReference(f"{place}: a number is too large: {error} (nothing was stored)", code="bad_entry")
    if not isinstance(error, (apsw.Error, UnicodeDecodeError)):
        return None
    # The log's shared memory did not fit on the disk: an I/O error whose cause is the lack of space.
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return LedgerFull(f"no space left next to {place} (the append was not stored; earlier ones are safe)")
    # The search index could not be opened, which damages no row.
    if "vtable constructor failed" in str(error):
        return LedgerError(f"{place}: search index could not be opened: {error} (open the ledger again)")
    for kinds, ours, code, text in _ERRORS:
        if isinstance(error, kinds):
            return ours(text.format(place=place, error=error, busy_ms=BUSY_TIMEOUT_MS), code=code)
    return LedgerError(f"{place}: database error: {error}")
