"""A real nats-server with JetStream on a free port of loopback, as a child process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event

PROGRAM = shutil.which("nats-server", path=str(Path(sys.executable).parent))


class NatsServer:
    """Server whose files are in a folder. It can be stopped, killed and started again on the same port."""

    def __init__(self, folder: Path, *arguments: str, jetstream: bool = True) -> None:
        self.folder, self.arguments, self.port = folder, arguments, -1
        self.jetstream = jetstream
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.glob("*.ports"):
            path.unlink()
        assert PROGRAM is not None
        storage = ["-js", "-sd", str(self.folder / "store")] if self.jetstream else []
        command = [PROGRAM, "-a", "127.0.0.1", "-p", str(self.port), *storage, *self.arguments]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--ports_file_dir", str(self.folder)], stdout=log, stderr=log, cwd=self.folder
            )
        self.port = int(self._address().rpartition(":")[2])

    def _address(self) -> str:
        """Return the address that the server wrote to its file of ports when it was ready."""
        process = self._process
        assert process is not None
        wait = Event()
        for _ in range(3_000):
            assert process.poll() is None, (self.folder / "log").read_text()[-2_000:]
            for path in self.folder.glob("*.ports"):
                try:
                    return json.loads(path.read_text())["nats"][0]
                except (ValueError, KeyError):
                    pass  # not written completely
            wait.wait(0.01)
        raise AssertionError(
            "nats-server wrote no file of ports in 30 s: " + (self.folder / "log").read_text()[-2_000:]
        )

    def stop(self, *, kill: bool = False) -> None:
        """Stop it, and wait for its end."""
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(60)
            self._process = None
