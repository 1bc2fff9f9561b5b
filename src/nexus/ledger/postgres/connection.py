"""Connections to PostgreSQL by psycopg, and its errors as ours. Only this module and the pool know psycopg.

Writes are collected and sent together with the next read or the commit, in one round trip.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.sql import Identifier
from psycopg.types.numeric import Int8Dumper

from nexus.errors import BadReference, LedgerBusy, LedgerDamaged, LedgerError, LedgerFull, LedgerUnavailable
from nexus.ledger.address import Address
from nexus.ledger.postgres.words import search_words
from nexus.ledger.search_text import stems_of
from nexus.ledger.shared_sql.connection import Dialect, Value

BUSY_TIMEOUT_MS = 30_000
"""How long a lock is waited for. Locks are held for the time of one commit."""

CONNECT_TIMEOUT_S = 5
"""How long a connection may take, unless the URL says something else."""

STREAM_ROWS = 200
"""Rows that a stream fetches at once."""

_MARK = re.compile(r"\?(\d*)")


class NotAlone(Exception):
    """The write has to run without other writers of the tenant."""


@lru_cache(4096)
def _numbered(text: str) -> bytes:
    """Return a statement with PostgreSQL's numbered values in place of `?` and `?1`."""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${match[1] or count}"

    return _MARK.sub(number, text).encode()


def lock_number(*names: Value) -> int:
    """Return the number of an advisory lock, which is the same in every process."""
    text = "\0".join(str(name) for name in ("nexus", *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


class PostgresDatabase:
    """Connection with the few typed calls that the ledger needs. Used by one thread at a time."""

    dialect = Dialect(
        integers="SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST({0} AS json)) item(value)",
        spans=(
            "(SELECT CAST(value->>0 AS bigint) AS thread, CAST(value->>1 AS bigint) AS low,"
            " CAST(value->>2 AS bigint) AS high FROM json_array_elements(CAST({0} AS json)) item(value))"
        ),
        greatest="greatest",
        contains="strpos({0}, {1})>0",
        following="substr({0}, strpos({0}, '{1}')+{2}, 64) COLLATE \"C\"",
        indexed="SELECT thread, seq, content, words IS NOT NULL FROM message WHERE tenant=?",
    )

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], address: Address, tenant: str) -> None:
        self.connection = connection
        """The connection itself, for the pool."""
        self.schema = address.schema
        self.place = address.place
        self._tenant = tenant
        self._pending: list[tuple[str, tuple[Value, ...]]] = []
        self._is_alone = False
        self._cursor = connection.cursor(binary=True)

    @property
    def is_lost(self) -> bool:
        """True when the server closed the connection, or it cannot be reached any more."""
        return self.connection.closed or self.connection.broken

    # statements --------------------------------------------------------------------------------------------------

    def run(self, sql: str, values: tuple[Value, ...] = ()) -> None:
        """Collect a statement; see `Connection.run`."""
        self._pending.append((sql, values))

    def run_many(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        """Collect a statement for each row of values."""
        self._pending += [(sql, values) for values in rows]

    def rows(self, sql: str, values: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows."""
        if self._pending:
            return self._send(sql, values)
        return self._cursor.execute(_numbered(sql), values).fetchall()

    def each(self, sql: str, values: tuple[Value, ...] = ()) -> Generator[tuple[Any, ...]]:
        """Yield all rows."""
        yield from self.rows(sql, values)

    def stream(self, sql: str, values: tuple[Value, ...] = ()) -> Generator[tuple[Any, ...]]:
        """Yield all rows by a cursor on the server."""
        self.flush()
        name = f"nexus_{next(_cursor_numbers)}"
        with psycopg.RawServerCursor(self.connection, name) as cursor:
            cursor.itersize = STREAM_ROWS
            cursor.execute(_numbered(sql), values, binary=True)
            yield from cursor

    def row(self, sql: str, values: tuple[Value, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row, None if there is none."""
        rows = self.rows(sql, values)
        if rows:
            return rows[0]
        return None

    def value(self, sql: str, values: tuple[Value, ...] = ()) -> Any:
        """Return the first column of the first row, None if there is none."""
        rows = self.rows(sql, values)
        if rows:
            return rows[0][0]
        return None

    def script(self, sql: str) -> None:
        """Run several statements without values."""
        self.flush()
        self.connection.execute(sql.encode(), prepare=False)

    def flush(self) -> None:
        """Run the collected statements."""
        if self._pending:
            self._send()

    def _send(self, sql: str = "", values: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        """Run the collected statements and one more in one round trip. Returns the rows of the last one."""
        pending = self._pending
        self._pending = []
        rows: list[tuple[Any, ...]] = []
        failure: psycopg.Error | None = None
        try:
            with self.connection.pipeline():
                try:
                    for statement, row in pending:
                        self.connection.cursor(binary=True).execute(_numbered(statement), row)
                    if sql:
                        rows = self._cursor.execute(_numbered(sql), values).fetchall()
                except psycopg.Error as error:  # the end of a pipeline would log it, and raise another one
                    failure = error
        except psycopg.Error as error:
            failure = failure or error
        if failure is not None:
            raise failure
        return rows

    # transactions ------------------------------------------------------------------------------------------------

    def begin(self, *, durable: bool = True, alone: bool = False) -> None:
        """Begin a write transaction, next to other writers of the tenant or `alone`."""
        self._pending = []
        self._is_alone = alone
        lock = "pg_advisory_xact_lock_shared"
        if alone:
            lock = "pg_advisory_xact_lock"
        self.script(
            f"BEGIN; SET LOCAL nexus.tenant = {_quoted(self._tenant)};"
            f"{'' if durable else ' SET LOCAL synchronous_commit = off;'}"
            f" SELECT {lock}({lock_number(self.schema, self._tenant)})"
        )

    def begin_reading(self) -> None:
        """Begin a read transaction in which all reads see one state."""
        self._pending = []
        self.script(
            f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL nexus.tenant = {_quoted(self._tenant)}"
        )

    def commit(self) -> None:
        """Run the collected statements and commit, in one round trip."""
        self.run("COMMIT")
        self.flush()

    def roll_back(self) -> None:
        """Roll back the open transaction, if the connection still has one."""
        self._pending = []
        with suppress(psycopg.Error):
            self.script("ROLLBACK")

    def lock(self, kind: str, *names: Value) -> None:
        """Let no other transaction pass the same lock until this one ends."""
        if not self._is_alone:
            number = lock_number(self.schema, self._tenant, kind, *names)
            self.run("SELECT pg_advisory_xact_lock(?)", (number,))

    def require_alone(self) -> None:
        """Raise NotAlone unless the transaction runs without other writers of the tenant."""
        if not self._is_alone:
            raise NotAlone

    def last_writes(self) -> dict[Any, Any]:
        """Return an empty cache: others may have written since the last transaction."""
        return {}

    def forget_writes(self) -> None:
        """Do nothing: no writes are cached."""

    def lease_clock_ms(self) -> int:
        """Return the server's time in milliseconds."""
        return int(self.value("SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"))

    # messages ----------------------------------------------------------------------------------------------------

    def insert_messages(self, rows: Sequence[tuple[Value, ...]], texts: Sequence[str]) -> None:
        """Insert messages with their words."""
        self.run_many(_INSERT_MESSAGE, [(*row, search_words(text)) for row, text in zip(rows, texts, strict=True)])

    def delete_messages(self, tenant: str, thread: int) -> None:
        """Delete a thread's messages."""
        self.run("DELETE FROM message WHERE tenant=? AND thread=?", (tenant, thread))

    def find_messages(
        self, tenant: str, phrases: list[list[str]], *, by_relevance: bool, any_phrase: bool = False
    ) -> Generator[tuple[int, int, int, str]]:
        """Yield the messages that contain all phrases; by the phrases' share of the words, else the newest first.

        With `any_phrase`, those that contain any phrase, or a word that begins with the stem of a phrase of one word.
        """
        wanted = [search_words(" ".join(phrase)) or "" for phrase in phrases]
        if any_phrase:
            return _messages_with_any(
                self, tenant, wanted, [f" {stem}" for stem in stems_of(phrases)], by_relevance=by_relevance
            )
        words = list(dict.fromkeys(word for phrase in wanted for word in phrase.split()))
        number = len(words) + 1
        array = ",".join(f"?{place}" for place in range(2, number + 1))
        conditions = "".join(f" AND strpos(words, ?{number + place})>0" for place in range(1, len(wanted) + 1))
        share = "+".join(
            f"(length(words)-length(replace(words, ?{number + place}, '')))" for place in range(1, len(wanted) + 1)
        )
        order = ""
        if by_relevance:
            order = f"CAST({share} AS double precision)/(length(words)+{AVERAGE_CHARS}) DESC,"
        text = (
            "SELECT thread, seq, ord, role FROM message WHERE tenant=?1"  # noqa: S608 - constants and numbers
            f" AND string_to_array(btrim(words), ' ') @> CAST(ARRAY[{array}] AS text[]){conditions}"
            f" ORDER BY {order} id_row DESC"
        )
        return self.each(text, (tenant, *words, *wanted))  # pyright: ignore[reportReturnType]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def _messages_with_any(
    db: PostgresDatabase, tenant: str, wanted: list[str], stems: list[str], *, by_relevance: bool
) -> Generator[tuple[int, int, int, str]]:
    """Yield the messages with any of these texts; by the weights of those that they have, else the newest first.

    A text weighs more the fewer messages have it. No index finds parts of words: all messages of the tenant are read.
    """
    texts = list(dict.fromkeys([*filter(None, wanted), *stems]))
    places = range(2, len(texts) + 2)
    counts = ",".join(f"count(*) FILTER (WHERE strpos(words, ?{place})>0)" for place in places)
    row = db.row(f"SELECT count(*),{counts} FROM message WHERE tenant=?1", (tenant, *texts))  # noqa: S608 - numbers
    total, *counts_by_text = map(int, row or (0, *(0 for _ in texts)))
    weights = [math.log1p(total / max(count, 1)) for count in counts_by_text]
    parts = (f"{weight:.6f}*CAST(strpos(words, ?{at})>0 AS int)" for at, weight in zip(places, weights, strict=True))
    order = f"{'+'.join(parts)} DESC," if by_relevance else ""
    condition = " OR ".join(f"strpos(words, ?{place})>0" for place in places)
    text = (
        f"SELECT thread, seq, ord, role FROM message WHERE tenant=?1 AND ({condition})"  # noqa: S608 - numbers
        f" ORDER BY {order} id_row DESC"
    )
    return db.each(text, (tenant, *texts))  # pyright: ignore[reportReturnType]


@contextmanager
def transaction(db: PostgresDatabase) -> Generator[None]:
    """Run a transaction that is committed whole or rolled back."""
    db.begin()
    try:
        yield
        db.commit()
    except BaseException:
        db.roll_back()
        raise


def quoted_name(db: PostgresDatabase, name: str) -> str:
    """Return a name for use in a statement."""
    return Identifier(name).as_string(db.connection)


AVERAGE_CHARS = 500
"""Added to a message's length, so that the shortest messages are not always the most relevant ones."""

_INSERT_MESSAGE = (
    "INSERT INTO message(tenant,thread,seq,ord,role,id,run_id,source,model,at_ms,content,meta,"
    "openai,anthropic,gemini,aside,words) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


_cursor_numbers = itertools.count()


def _quoted(text: str) -> str:
    """Return a string literal that does not depend on the server's settings."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


class _WholeNumber(Int8Dumper):
    """All whole numbers as one type: PostgreSQL then has one plan for a statement, not one for each size of numbers."""


def configure(connection: psycopg.Connection[Any], schema: str) -> None:
    """Apply the settings of the ledger to a new connection."""
    connection.autocommit = True
    connection.cursor_factory = psycopg.RawCursor
    connection.adapters.register_dumper(int, _WholeNumber)
    connection.execute(
        f"SET search_path = {Identifier(schema).as_string(connection)};"
        f" SET lock_timeout = {BUSY_TIMEOUT_MS}; SET client_min_messages = warning".encode(),
        prepare=False,
    )


def connect(address: Address, tenant: str) -> PostgresDatabase:
    """Open a connection. Raises LedgerUnavailable, LedgerError."""
    with postgres_errors(address.place):
        timeout_s = CONNECT_TIMEOUT_S
        if "connect_timeout" in address.url:
            timeout_s = None
        connection = psycopg.connect(address.url, connect_timeout=timeout_s)
        try:
            configure(connection, address.schema)
        except BaseException:
            connection.close()
            raise
    return PostgresDatabase(connection, address, tenant)


def is_lost(error: BaseException) -> bool:
    """Return True for an error that ended the connection, or kept it from beginning."""
    if isinstance(
        error, (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleSessionTimeout)
    ):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and error.sqlstate is None


def may_run_again(error: BaseException) -> bool:
    """Return True for an error after which the same transaction can succeed."""
    return isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected))


class postgres_errors:  # noqa: N801 - used like a function
    """Context manager that converts psycopg's errors to ours, each with advice."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ours = None
        if error is not None:
            ours = our_error(self._place, error)
        if ours is not None:
            raise ours from error


_ERRORS: tuple[tuple[tuple[type[BaseException], ...], type[LedgerError], str, str], ...] = (
    (
        (errors.LockNotAvailable,),
        LedgerBusy,
        LedgerBusy.code,
        f"{{place}} was locked for over {BUSY_TIMEOUT_MS} ms (nothing was written; try again)",
    ),
    (
        (errors.SerializationFailure, errors.DeadlockDetected, errors.QueryCanceled, errors.TooManyConnections),
        LedgerBusy,
        LedgerBusy.code,
        "{place} is busy: {error} (nothing was written; try again)",
    ),
    (
        (errors.DiskFull, errors.OutOfMemory),
        LedgerFull,
        LedgerFull.code,
        "no space left for {place}: {error} (the append was not stored; earlier ones are safe)",
    ),
    (
        (errors.ProgramLimitExceeded,),
        BadReference,
        "bad_entry",
        "{place}: a name or key is too long (nothing was stored; PostgreSQL's indexes take about 2,600 bytes)",
    ),
    (
        (errors.NumericValueOutOfRange,),
        BadReference,
        "bad_entry",
        "{place}: a number is too large: {error} (nothing was stored)",
    ),
    (
        (errors.InsufficientPrivilege,),
        LedgerError,
        LedgerError.code,
        "{place}: the role lacks a right: {error} (grant it: docs/ledger.md, section PostgreSQL)",
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        LedgerError,
        LedgerError.code,
        "{place} is read-only: {error} (name the primary server)",
    ),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        LedgerDamaged,
        LedgerDamaged.code,
        "{place} is damaged: {error} (restore a backup of the server)",
    ),
    (
        (psycopg.IntegrityError,),
        BadReference,
        BadReference.code,
        "{place}: rows do not fit together: {error} (nothing was stored)",
    ),
    (
        (psycopg.DataError,),
        BadReference,
        BadReference.code,
        "{place}: a value cannot be stored: {error} (nothing was stored)",
    ),
)
"""Kinds of the database's errors, with our class, its code and text."""


def our_error(place: str, error: BaseException) -> LedgerError | None:
    """Return the error to raise for an error of psycopg; None for other errors."""
    if not isinstance(error, psycopg.Error):
        return None
    text = str(error).strip().partition("\n")[0]
    for kinds, ours, code, advice in _ERRORS:
        if isinstance(error, kinds):
            return ours(advice.format(place=place, error=text), code=code)
    if is_lost(error) or isinstance(error, psycopg.OperationalError):
        return LedgerUnavailable(
            f"{place} cannot be reached: {text} (nothing was stored by this call; check that the server runs, and the "
            "URL's host, database, user and password)"
        )
    return LedgerError(f"{place}: database error: {text}")
