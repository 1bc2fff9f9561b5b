"""What a label, a title, a text or a file's name may hold has no power over the terminal, in no output of any command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

import nexus
from cli.running import environment, run, write_json
from nexus.assembly.record import with_sizes
from nexus.cli import _context_grid, assemble_command
from nexus.ledger.sessions import SessionMetadata
from nexus.tokens.counter import get_counter
from nexus.types.message import Message, ToolCall, assistant, tool, user

EVIL = "\x1b[31m\x07\x9b\u202e\nx"
POWERFUL = "\x1b\x07\x9b\u202e"
COUNTER = get_counter("estimate")

SHOWING = [
    ("sessions",), ("history", EVIL), ("history", EVIL, "--as", "markdown"), ("search", "index"), ("search", EVIL),
    ("session", "show", EVIL), ("session", "turns", EVIL), ("session", "calls", EVIL), ("session", "reflog", EVIL),
    ("session", "ancestry", EVIL), ("session", "aliases"), ("session", "pin", EVIL), ("context", EVIL),
    ("context", "--model", EVIL), ("assemble", EVIL, "-s", EVIL), ("assemble", EVIL, "-m", EVIL), ("config", "models", EVIL),
    ("assemble", EVIL, "-s", EVIL, "--as", "text"), ("ledger", "stats"), ("ledger", "stats", "--tenant", EVIL),
    ("session", "archive", EVIL), ("session", "alias", f"b{EVIL}", EVIL), ("fork", f"c{EVIL}", EVIL),
    ("session", "rewind", EVIL, "--turn", "0"), ("session", "set", EVIL, f"title={EVIL}"), ("init", f"new{EVIL}"),
    ("ledger", "backup", f"{EVIL}.db"), ("ledger", "export", f"{EVIL}.jsonl"),
    ("import", f"talk{EVIL}.json"),
]  # fmt: skip
REFUSED = [
    ("history", f"no{EVIL}"), ("sessions", "-w", EVIL), (EVIL,), ("sessions", f"--{EVIL}"), ("sessions", EVIL),
    ("assemble", "Hi", "--profile", EVIL), ("assemble", "Hi", "--tools", EVIL), ("assemble", "Hi", "--image", EVIL),
    ("assemble", "Hi", "--at", EVIL), ("assemble", "Hi", "--save", f"no/{EVIL}"), ("context", "--svg", f"no/{EVIL}"),
    ("import", EVIL), ("import", "folder"), ("record", EVIL, EVIL), ("session", "pin", EVIL, "x"), ("session", "pin", EVIL, "99"),
    ("session", "unalias", f"no{EVIL}"), ("session", "set", EVIL, f"parent_session=no{EVIL}"),
    ("session", "set", EVIL, EVIL), ("fork", EVIL, EVIL), ("session", "rewind", EVIL, "--turn", "99"), ("undo", EVIL),
    ("ledger", "verify", "--ledger", f"no{EVIL}"), ("ledger", "import", EVIL), ("search", "index", "-s", f"no{EVIL}"),
    ("import", f"talk{EVIL}.json", f"bad{EVIL}.json"), ("context", f"new{EVIL}"), ("sessions", "--ledger", EVIL),
]  # fmt: skip


@pytest.fixture
def hostile(empty: Path) -> Path:
    """A workspace whose session has such text wherever text can stand."""
    with nexus.open(workspace=empty, counter=COUNTER) as nx:
        nx.ledger.sessions.create(EVIL, SessionMetadata(title=EVIL, persona=EVIL, task=EVIL))
        said: list[Message] = [user(f"index {EVIL}"), assistant(EVIL, ToolCall(EVIL, EVIL, EVIL)), tool(EVIL, EVIL)]
        nx.ledger.open_turn(EVIL, with_sizes(said, COUNTER), model=EVIL, provider=EVIL)
        nx.ledger.close_turn(EVIL, error=EVIL, usage={"input_tokens": 1})
        nx.ledger.pin(EVIL, nx.ledger.entries(EVIL)[0].rows[0].ref, EVIL)
        nx.ledger.sessions.alias(f"a{EVIL}", EVIL, EVIL)
    write_json(empty / f"talk{EVIL}.json", {"messages": [{"role": "user", "content": EVIL}]})
    (empty / f"bad{EVIL}.json").write_text("{")
    return empty


def powerful(text: str) -> list[str]:
    return [sign for sign in POWERFUL if sign in text]


@pytest.mark.parametrize("command", SHOWING, ids=ascii)
def test_what_is_shown_has_no_power_over_the_terminal(hostile: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, folder=hostile)
    assert ran.code == 0, ran.err
    assert powerful(ran.out + ran.err) == []


@pytest.mark.parametrize("command", SHOWING, ids=ascii)
def test_json_has_it_as_escapes_and_means_the_same(hostile: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, "--json", folder=hostile)
    assert ran.code == 0, ran.err
    assert powerful(ran.out) == []
    assert isinstance(ran.json, (dict, list))


def test_json_comes_back_as_it_was(hostile: Path) -> None:
    assert [one["label"] for one in run("sessions", "--json", folder=hostile).json] == [EVIL]
    (entry, *_) = run("history", EVIL, "--json", folder=hostile).json
    assert entry["messages"][0]["parts"][0]["text"] == f"index {EVIL}"


@pytest.mark.parametrize("command", REFUSED, ids=ascii)
def test_an_error_has_no_power_over_the_terminal_and_with_json_is_a_value(
    hostile: Path, command: tuple[str, ...]
) -> None:
    plain = run(*command, folder=hostile)
    assert plain.code in (2, 4)
    assert powerful(plain.out + plain.err) == []
    ran = run(*command, "--json", folder=hostile)
    assert (ran.code, powerful(ran.out + ran.err)) == (plain.code, [])
    told = ran.json["error"]["message"] if "error" in ran.json else ran.json["failed"][0]["error"]
    assert told


def test_wrong_usage_with_json_names_its_code_and_what_is_wrong(empty: Path) -> None:
    ran = run("explain", "--json", folder=empty)
    assert ran.code == 2
    assert ran.json == {
        "error": {"code": "usage", "message": "Missing argument 'SESSION' (or --call ID, for a call of the proxy)."}
    }
    assert "Usage: nexus explain" in ran.err


def test_spaces_and_joiners_that_languages_need_are_shown_as_they_are(empty: Path) -> None:
    name = "会議　記録 می‌خواهم a\u00a0b"
    with nexus.open(workspace=empty, counter=COUNTER) as nx:
        nx.ledger.sessions.create(name)
    assert name in run("sessions", folder=empty).out


def test_a_name_that_is_too_long_for_a_file_is_refused_by_name(empty: Path) -> None:
    ran = run("import", "n" * 5000, "--json", folder=empty)
    assert (ran.code, ran.json["error"]["code"]) == (4, "not_accessible")
    assert "too long" in ran.err
    assert "output" not in ran.err


def test_stopping_a_command_is_one_line_and_130(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(assemble_command, "read_input", stopped)
    ran = run("assemble", "-", folder=empty)
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "nexus: stopped")


@pytest.mark.parametrize("command", [("history", "main", "--json"), ("config", "models", "--json")], ids=" ".join)
def test_a_reader_that_leaves_early_leaves_the_exit_code_0(example: Path, command: tuple[str, ...]) -> None:
    line = f"{shlex.join([sys.executable, '-m', 'nexus', *command])} | head -c 10; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", line], cwd=example, env=environment(), capture_output=True, check=False, timeout=600
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_json_on_a_terminal_is_indented_and_the_same_value(example: Path) -> None:
    command = [sys.executable, "-m", "nexus", "session", "turns", "main", "--json"]
    master, slave = os.openpty()
    ran = subprocess.Popen(command, cwd=example, stdout=slave, env=environment())
    os.close(slave)
    shown = b""
    try:
        while read := os.read(master, 1 << 16):
            shown += read
    except OSError:  # Linux ends a terminal that nobody holds any more with EIO
        pass
    os.close(master)
    assert ran.wait(600) == 0
    value = run("session", "turns", "main", "--json", folder=example).json
    assert json.loads(shown) == value
    assert shown.decode().replace("\r\n", "\n") == json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("width", [40, 71, 72, 100])
def test_context_grid_fits_and_names_every_block_at_any_width(example: Path, width: int) -> None:
    from rich.console import Console

    with nexus.open(workspace=example) as nx:
        ctx = nx.assemble("Next?", session="main")
    out = Console(width=width, color_system=None, record=True, file=StringIO())
    out.print(_context_grid.context_grid(ctx, plain=True, width=width))
    lines = out.export_text().splitlines()
    assert max(map(len, lines)) <= width
    cells = "".join(line for line in lines if set(line) <= set("WPSMEr.") and len(line) in (30, 60))
    assert len(cells) == _context_grid.CELLS
    shown = "".join("".join(lines).split())
    assert [item.name for item in ctx.accounting.token_breakdown if item.name.split()[0] not in shown] == []
