"""Protocol of a database connection: the few typed calls that the shared readers and writers need.

Statements use `?` or `?1` for values. A `Dialect` has the pieces of SQL in which databases differ.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

Value: TypeAlias = int | str | bytes | None
"""What a column can have."""


class Dialect(NamedTuple):
    """Pieces of SQL that the databases write differently."""

    integers: str
    """Subquery of whole numbers from a JSON array in value `{0}`."""
    spans: str
    """Table expression of `thread`, `low` and `high` from a JSON array of arrays in value `{0}`."""
    greatest: str
    """Function that returns its largest argument."""
    contains: str
    """Condition that text `{0}` contains text `{1}`."""
    following: str
    """The 64 characters of text `{0}` after text `{1}` of `{2}` characters, compared by bytes."""
    indexed: str
    """Statement for thread, seq, content and presence in the search index of a tenant's messages."""


class Connection(Protocol):
    """Connection to a database."""

    dialect: Dialect

    def run(self, sql: str, values: tuple[Value, ...] = ()) -> None:
        """Run a statement. Its error may be raised by a later call, at the latest by the commit."""
        ...

    def run_many(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        """Run a statement once for each row of values; errors as for `run`."""
        ...

    def rows(self, sql: str, values: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows."""
        ...

    def each(self, sql: str, values: tuple[Value, ...] = ()) -> Generator[tuple[Any, ...]]:
        """Yield all rows. The caller may stop early."""
        ...

    def stream(self, sql: str, values: tuple[Value, ...] = ()) -> Generator[tuple[Any, ...]]:
        """Yield all rows without loading them at once, for tables that are larger than memory."""
        ...

    def row(self, sql: str, values: tuple[Value, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row, None if there is none."""
        ...

    def value(self, sql: str, values: tuple[Value, ...] = ()) -> Any:
        """Return the first column of the first row, None if there is none."""
        ...

    def last_writes(self) -> dict[Any, Any]:
        """Return the cache of this connection's last writes; empty after another writer's."""
        ...

    def forget_writes(self) -> None:
        """Empty the cache of this connection's last writes."""
        ...

    def lock(self, kind: str, *names: Value) -> None:
        """Let no other transaction pass the same lock until this one ends."""
        ...

    def require_alone(self) -> None:
        """Run the transaction again without other writers of the tenant, unless it already runs so."""
        ...

    def lease_clock_ms(self) -> int:
        """Return milliseconds of a clock that all programs with this ledger share, whatever their time of day."""
        ...

    def insert_messages(self, rows: Sequence[tuple[Value, ...]], texts: Sequence[str]) -> None:
        """Insert messages (columns of `MESSAGE_KEY` and `MESSAGE_COLUMNS`) with their searchable texts."""
        ...

    def delete_messages(self, tenant: str, thread: int) -> None:
        """Delete a thread's messages, also from the search index."""
        ...

    def find_messages(
        self, tenant: str, phrases: list[list[str]], *, by_relevance: bool, any_phrase: bool = False
    ) -> Generator[tuple[int, int, int, str]]:
        """Yield thread, seq, order and role of the messages that contain all phrases, or any, the best first."""
        ...
