"""Runs `nexus` for the tests: in this process, with real byte streams, or as a program of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nexus
from nexus.cli import main

ESCAPE = "\x1b"
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Ran:
    """What a command did: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as one JSON value."""
        return json.loads(self.out)


def run(*args: str | Path, folder: Path, stdin: bytes = b"", encoding: str = "utf-8") -> Ran:
    """Runs the command in this process, in `folder`. Streams are no terminal and refuse what they cannot encode.

    An exception that would be a traceback for the user is raised.
    """
    out, err = io.BytesIO(), io.BytesIO()
    with _streams(stdin, out, err, encoding), contextlib.chdir(folder):
        code = _exit_code(list(map(str, args)))
    return Ran(code, _decoded(out.getvalue(), encoding), _decoded(err.getvalue(), encoding))


def _decoded(data: bytes, encoding: str) -> str:
    """The text; UTF-8 where the stream was ASCII, which click takes for a mistake of the environment."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("utf-8")


def _exit_code(args: list[str]) -> int:
    try:
        main(args)
    except SystemExit as end:
        assert end.code is None or isinstance(end.code, int), f"exit code {end.code!r}"
        return end.code or 0
    return 0


@contextlib.contextmanager
def _streams(stdin: bytes, out: io.BytesIO, err: io.BytesIO, encoding: str) -> Generator[None]:
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding)
    sys.stdout, sys.stderr = io.TextIOWrapper(out, encoding), io.TextIOWrapper(err, encoding, "backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            stream.detach()
        sys.stdin, sys.stdout, sys.stderr = kept


def environment(**more: str) -> dict[str, str]:
    """The environment for a program of its own: this package, whatever the folder; no colours forced or forbidden."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    }
    return {**kept, "PYTHONPATH": str(Path(nexus.__file__).parents[1]), "LC_ALL": "C.UTF-8", **more}


def program(*args: str | bytes | Path, folder: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs the command as a program of its own, with arguments as bytes if need be."""
    env = environment(**options.pop("env", {}))
    command = [sys.executable, "-m", "nexus", *args]
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, check=False, timeout=600, **options
    )
    return done


def write_json(path: Path, value: Any) -> Path:
    """The value as a JSON file."""
    path.write_text(json.dumps(value), "utf-8")
    return path
