"""Folders that cannot be written to, also when the tests run as the superuser."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

from cli.running import program

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


@contextlib.contextmanager
def read_only(folder: Path) -> Generator[Path]:
    """The folder, made if need be, without write permission for anyone."""
    folder.mkdir(exist_ok=True)
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        yield folder
    finally:
        folder.chmod(mode)


def program_without_rights(*args: str | Path, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Runs the command as a program to which permissions apply."""
    return program(*args, folder=folder, preexec_fn=_give_up_override)


def _give_up_override() -> None:
    """Without this capability the superuser obeys permissions like everybody else (Linux, capabilities(7))."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0
