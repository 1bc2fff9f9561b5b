"""Arguments that name no ordinary file: devices without an end, pipes without a writer, files that are too large."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import TRACEBACK, environment, run

READING = [
    ("record", "{}", "{}"),
    ("assemble", "hi", "--tools", "{}"),
    ("assemble", "hi", "--attach", "{}"),
    ("assemble", "hi", "--image", "{}"),
    ("import", "{}"),
    ("turnlog", "validate", "{}"),
    ("ledger", "import", "{}"),
    ("ledger", "restore", "{}"),
    ("config", "policy", "check", "{}"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dir").mkdir()
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10 * 2**30)
    return tmp_path


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "dir"])
def test_device_pipe_or_folder_as_file_is_refused_at_once(folder: Path, command: tuple[str, ...], name: str) -> None:
    args = [word.format(name) for word in command]
    ran = subprocess.run(
        [sys.executable, "-m", "nexus", *args, "-w", "ws"], cwd=folder, env=environment(), capture_output=True,
        check=False, timeout=20,
    )  # fmt: skip
    assert ran.returncode in (2, 4)
    assert TRACEBACK.encode() not in ran.stderr and ran.stderr


@pytest.mark.parametrize(
    "command", [("record", "sparse", "sparse"), ("assemble", "hi", "--tools", "sparse")], ids=" ".join
)
def test_file_of_ten_gigabytes_is_refused_before_reading(folder: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, "-w", "ws", folder=folder)
    assert ran.code == 4
    assert "10,737,418,240 bytes, over 268,435,456" in ran.err


def test_process_substitution_is_read_as_file(folder: Path) -> None:
    """The shell passes `<(…)` as an open pipe under /dev/fd."""
    line = f'{sys.executable} -m nexus assemble hi -w ws --tools <(echo \'[{{"name": "look"}}]\') --as anthropic'
    ran = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(), capture_output=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert b'"look"' in ran.stdout


@pytest.mark.parametrize(
    "command", ["sessions", "config models --json", "status", "assemble hi", "history nope --json"]
)
def test_closed_standard_output_is_no_traceback(folder: Path, command: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m nexus {command} -w ws >&-"], cwd=folder, env=environment(),
        stderr=subprocess.PIPE, check=False, timeout=60,
    )  # fmt: skip
    assert TRACEBACK.encode() not in ran.stderr
    assert ran.returncode == (2 if "nope" in command else 0)


def test_texts_with_line_ends_of_windows_have_newlines(folder: Path) -> None:
    (folder / "AGENTS.md").write_bytes(b"Be kind.\r\nBe brief.\r\n")
    (folder / "user.txt").write_bytes(b"Ann\r\nRome\r\n")
    (folder / "notes.txt").write_bytes(b"one\r\ntwo\r\n")
    options = ("--user-profile", "user.txt", "--principal", "cli:1", "--attach", "notes.txt")
    for profile in ("layered", "tagged"):
        done = run(
            "assemble", "-", *options, "--profile", profile, "--as", "openai", folder=folder, stdin=b"hi\r\nyou\r\n"
        )
        assert done.code == 0, done.err
        assert "hi\\nyou" in done.out
        assert "\\r" not in done.out
