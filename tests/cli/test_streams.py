"""The command as a program among others: pipes, colours, full disks, arguments that are no text, folders it may not write."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import EXAMPLES
from cli.running import ESCAPE, TRACEBACK, environment, program, run, write_json
from cli.unwritable import program_without_rights, read_only

SIGNS = ("👤 User", "🤖 Assistant", "🧠 System", "🕐 ", "🔧 ")
SHOWING = [("--help",), ("history", "main"), ("assemble", "Hi"), ("context",), ("config", "models"), ("sessions",)]
LONG = [("history", "main", "--json"), ("history", "main"), ("config", "models"), ("assemble", "Hi", "--as", "text")]


@pytest.mark.parametrize("command", LONG, ids=" ".join)
def test_a_reader_that_leaves_early_is_no_error(example: Path, command: tuple[str, ...]) -> None:
    line = f"{shlex.join([sys.executable, '-m', 'nexus', *command])} | head -1"
    ran = subprocess.run(
        ["sh", "-c", line], cwd=example, env=environment(), capture_output=True, check=False, timeout=600
    )
    assert ran.stderr == b""
    assert ran.stdout.count(b"\n") == 1


@pytest.mark.parametrize("command", [("history", "main", "--json"), ("config", "models")], ids=" ".join)
def test_a_full_disk_behind_the_output_is_one_clear_line(example: Path, command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "nexus", *command], cwd=example, env=environment(), stdout=full,
            stderr=subprocess.PIPE, check=False, timeout=600,
        )  # fmt: skip
    assert ran.returncode not in (0, 120)
    assert TRACEBACK.encode() not in ran.stderr
    assert b"No space left" in ran.stderr


@pytest.mark.parametrize("command", SHOWING, ids=" ".join)
def test_a_pipe_gets_no_colours_and_no_emoji_of_ours(example: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, folder=example)
    assert ESCAPE not in ran.out
    assert [sign for sign in SIGNS if sign in ran.out] == []


def on_a_terminal(folder: Path, *command: str, **env: str) -> bytes:
    """What the command writes to a terminal of 100 columns."""
    master, slave = os.openpty()
    ran = subprocess.Popen(
        [sys.executable, "-m", "nexus", *command], cwd=folder, stdout=slave,
        env=environment(TERM="xterm-256color", COLUMNS="100", **env),
    )  # fmt: skip
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # Linux ends a terminal that nobody holds any more with EIO
        while read := os.read(master, 1 << 16):
            shown += read
    os.close(master)
    assert ran.wait(600) == 0
    return shown


@pytest.mark.parametrize("command", [("context",), ("sessions",), ("history", "main")], ids=" ".join)
def test_no_color_takes_the_colours_of_a_terminal_away(example: Path, command: tuple[str, ...]) -> None:
    plain = on_a_terminal(example, *command, NO_COLOR="1")
    assert ESCAPE.encode() not in plain
    assert [sign for sign in SIGNS if sign.encode() in plain] == []


def test_a_terminal_gets_colours(example: Path) -> None:
    assert f"{ESCAPE}[".encode() in on_a_terminal(example, "context")


@pytest.mark.parametrize("form", [(), ("--as", "text")], ids=str)
def test_a_message_of_bytes_that_are_no_text_is_taken(empty: Path, form: tuple[str, ...]) -> None:
    ran = program("assemble", b"caf\xe9 \xff", *form, folder=empty, env={"PYTHONIOENCODING": "utf-8:strict"})
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"caf" in ran.stdout or not form


@pytest.mark.parametrize(
    "command",
    [
        ("assemble", "Hi", "-s"), ("assemble", "Hi", "-m"), ("assemble", "Hi", "--profile"), ("assemble", "Hi", "--channel"),
        ("assemble", "Hi", "--timezone"), ("assemble", "Hi", "--image"), ("assemble", "Hi", "--tools"), ("assemble", "Hi", "--at"),
        ("assemble", "Hi", "-w"), ("sessions", "--ledger"), ("history",), ("context",), ("context", "--message"), ("config", "models"),
        ("import",), ("record", "x"), ("assemble", "Hi", "--as"), ("nonsense",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_argument_of_bytes_that_are_no_text_is_a_traceback(empty: Path, command: tuple[str, ...]) -> None:
    assert run(*command, os.fsdecode(b"caf\xe9"), folder=empty).code in (0, 2, 4, 5)


def test_a_session_file_whose_name_is_no_text_is_imported(empty: Path, talk: Path) -> None:
    name = os.fsencode(empty) + b"/caf\xe9.json"
    Path(os.fsdecode(name)).write_bytes(talk.read_bytes())
    assert run("import", os.fsdecode(name), folder=empty).code == 0
    (one,) = run("sessions", "--json", folder=empty).json
    assert one["messages"] == 5


def test_closed_standard_input_is_no_traceback(empty: Path) -> None:
    line = f"{shlex.join([sys.executable, '-m', 'nexus', 'assemble', '-'])} <&-"
    ran = subprocess.run(
        ["sh", "-c", line], cwd=empty, env=environment(), capture_output=True, check=False, timeout=600
    )
    assert TRACEBACK.encode() not in ran.stderr
    assert ran.returncode in (2, 4)


def test_reading_commands_work_or_report_one_line_in_read_only_workspace(
    example: Path,
) -> None:
    with read_only(example), read_only(example / ".nexus"):
        ran = program_without_rights("history", "main", folder=example)
    assert TRACEBACK.encode() not in ran.stderr
    if ran.returncode:
        assert (ran.returncode, ran.stderr.count(b"\n")) == (5, 1)
        assert b"writable" in ran.stderr
    else:
        assert b"Assistant" in ran.stdout


READING = [("sessions",), ("history", "main"), ("search", "index"), ("session", "turns", "main"), ("context",),
           ("ledger", "verify"), ("ledger", "stats"), ("ledger", "export", "-")]  # fmt: skip


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_commands_work_with_read_only_ledger_file(example: Path, command: tuple[str, ...]) -> None:
    (example / ".nexus" / "ledger.db").chmod(0o444)
    ran = program_without_rights(*command, folder=example)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_writing_commands_report_read_only_workspace_in_one_line(example: Path, talk: Path) -> None:
    run("assemble", "Hi", "--save", talk.parent / "ctx.json", folder=example)
    from support.sdk_replies import openai_reply

    reply = write_json(talk.parent / "reply.json", openai_reply().model_dump(mode="json"))
    with read_only(example), read_only(example / ".nexus"):
        (example / ".nexus" / "ledger.db").chmod(0o444)
        for command in (("import", talk), ("record", talk.parent / "ctx.json", reply)):
            ran = program_without_rights(*command, folder=example)
            assert ran.returncode == 5, ran.stderr
            assert ran.stderr.count(b"\n") == 1
            assert b"ledger.db" in ran.stderr


def test_read_only_workspace_without_ledger_is_reported_in_one_line(tmp_path: Path, talk: Path) -> None:
    with read_only(tmp_path / "locked") as folder:
        ran = program_without_rights("import", talk, folder=folder)
    assert ran.returncode == 5
    assert TRACEBACK.encode() not in ran.stderr
    assert ran.stderr.count(b"\n") == 1


def test_no_command_at_all_shows_the_help(empty: Path) -> None:
    ran = run(folder=empty)
    assert ran.code == 2
    assert "\nStart:\n" in ran.out + ran.err


def test_an_unknown_command_is_named(empty: Path) -> None:
    ran = run("asemble", folder=empty)
    assert (ran.code, ran.out) == (2, "")
    assert "asemble" in ran.err


def test_version_is_that_of_the_package(empty: Path) -> None:
    import nexus

    assert nexus.__version__ in run("--version", folder=empty).out


def test_a_ledger_below_a_file_is_one_clear_line(empty: Path) -> None:
    (empty / "file").write_text("x")
    ran = run("import", EXAMPLES / "session.json", "--ledger", "file/ledger.db", folder=empty)
    assert (ran.code, ran.out) == (5, "")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command", [("config", "show"), ("assemble", "hi", "--profile", "repl"), ("sessions", "-w", "ws")]
)
def test_a_working_directory_that_was_deleted_is_one_clear_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from nexus.cli import main; main(sys.argv[1:])"
    started = [sys.executable, "-c", script, *command]
    ran = subprocess.run(started, cwd=gone, env=environment(), capture_output=True, check=False, timeout=600)
    assert ran.returncode != 0
    assert ran.stderr == b"nexus: current folder not found: it was deleted (change to an existing folder)\n"
