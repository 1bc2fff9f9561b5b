"""A program in a real pseudo-terminal: what it printed, and keys for it. Waits for text, never for a time."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cli.running import environment

WAIT_S = 60.0
"""Generous: a busy machine is slow."""

CONTROLS = re.compile(
    r"\x1b\[[0-9;:?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78MDE]|\r"
)
"""What terminals obey: sequences with a bracket, titles and links, character sets, the cursor's place."""

POSITION_REQUEST = b"\x1b[6n"
COLUMNS, LINES = 100, 30


LAUNCH = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'nexus', *sys.argv[1:]])"
)
"""Makes the terminal the one whose keys are signals. `pty.fork` would fork this process, which has threads."""


class Terminal:
    """One program on a terminal.

    Attributes:
        output: All bytes that it wrote.
        code: Its exit code, once `end` has returned it.
    """

    def __init__(self, *args: str | Path, folder: Path, env: dict[str, str] | None = None) -> None:
        self._handle, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        variables = environment(TERM="xterm-256color", **(env or {}))
        command = [sys.executable, "-c", LAUNCH, *map(str, args)]
        self.process = subprocess.Popen(command, cwd=folder, env=variables, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.output, self._seen = b"", 0
        self.code: int | None = None

    def send(self, keys: str | bytes) -> None:
        """Press keys, or send bytes that no keyboard has."""
        os.write(self._handle, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, lines: int, columns: int) -> None:
        """Change the size of the terminal, which the program is told by a signal."""
        fcntl.ioctl(self._handle, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, *texts: str) -> str:
        """Return what was printed since the last wait, up to texts in this order. Fails with the output if one is missing.

        Texts that may be printed at once are waited for together: all that was read is seen.
        """
        end = time.monotonic() + WAIT_S
        while True:
            shown = plain(self.output[self._seen :])
            if _has_in_order(shown, texts):
                self._seen = len(self.output)
                return shown
            assert time.monotonic() < end, f"{texts!r} not in {shown!r}"
            assert self._read(), f"the program ended without {texts!r}: {shown!r}"

    def say(self, line: str, *texts: str) -> str:
        """Send a line and wait for texts that come after it."""
        self.send(line + "\r")
        return self.wait_for(*texts)

    def end(self) -> int:
        """Return the exit code when the program has ended. Fails with the output if it does not end."""
        deadline = time.monotonic() + WAIT_S
        while self.code is None and self._read():
            assert time.monotonic() < deadline, f"the program goes on: {plain(self.output[-2_000:])!r}"
        if self.code is None:
            self.code = self.process.wait(WAIT_S)
            os.close(self._handle)
        return self.code

    def kill(self) -> None:
        """End the program at once, as a power cut would."""
        self.process.kill()
        self.end()

    def _read(self) -> bool:
        """Read what there is; return False at the end."""
        if not select.select([self._handle], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._handle, 1 << 16)
        except OSError:  # Linux ends a terminal that nobody holds any more with EIO
            return False
        self.output += data
        if POSITION_REQUEST in data:
            self.send("\x1b[1;1R")
        return bool(data)


def plain(output: bytes) -> str:
    """Return the text without what terminals obey."""
    return CONTROLS.sub("", output.decode("utf-8", "replace"))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that a terminal does not print."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _has_in_order(shown: str, texts: Sequence[str]) -> bool:
    place = 0
    for text in texts:
        found = shown.find(text, place)
        if found < 0:
            return False
        place = found + len(text)
    return True
