"""The command line as a guide: groups, suggestions for mistyped words, completion, `python -m nexus`."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nexus
from cli.running import environment, program, run
from nexus import __version__
from nexus.cli import COMMANDS, GROUPS, OTHER_WORDS

FORMER = {
    "redo": "undo --redo", "db": "services db", "validate": "turnlog validate",
    **{name: f"session {name}" for name in ("pin", "unpin", "rewind", "diff")},
    **{
        name: f"config {name}"
        for name in ("profile", "policy", "credential", "tools", "models", "plugins", "completion")
    },
}  # fmt: skip
"""Former names of commands, with the new ones."""


def test_help_shows_commands_under_their_headings() -> None:
    lines = run("--help", folder=Path.cwd()).out.partition("\nStart:")[2].splitlines()
    lines[0] = "Start:"
    assert [line.rstrip(":") for line in lines if line.rstrip(":") in GROUPS] == list(GROUPS)
    for commands in GROUPS.values():
        at = [next(number for number, line in enumerate(lines) if line.startswith(f"  {name} ")) for name in commands]
        assert at == list(range(at[0], at[0] + len(at)))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("sesions", "sessions"), ("histroy main", "history"), ("Sessions", "sessions"), ("verify", "ledger verify"),
        ("ledger verfy", "ledger verify"), ("session shw main", "session show"), ("plugin list", "config plugins"),
        ("session list", "sessions"), ("config shw", "config show"), ("assemble hi --explain", "explain"),
        ("ls", "sessions"), ("version", "--version"), ("help", "--help"), ("memory serch x", "memory search"),
        ("cache-sim main", "cache simulate"), ("cache simulat main", "cache simulate"),
        ("services db shwo", "services db show"), ("config polcy test", "config policy"), ("valdate x", "turnlog validate"),
        *((name, new) for name, new in FORMER.items()),
    ],
)  # fmt: skip
def test_mistyped_and_former_words_name_the_command(empty: Path, words: str, meant: str) -> None:
    ran = run(*words.split(), folder=empty)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.rstrip().endswith(f"Did you mean: nexus {meant}?")
    assert ran.err.count("Did you mean") == 1
    told = run(*words.split(), "--json", folder=empty).json["error"]["message"]
    assert told.endswith(f"Did you mean: nexus {meant}?")


def test_help_of_assemble_shows_the_usual_options_and_help_all_shows_the_rest(empty: Path) -> None:
    shown, everything = (run("assemble", option, folder=empty).out for option in ("--help", "--help-all"))
    lines = [line for line in shown.splitlines() if line.startswith("  -")]
    assert 10 < len(lines) <= 20
    assert ("--toolset" in shown, "--toolset" in everything) == (False, True)
    assert run("assemble", "hi", "--persona", "none", folder=empty).code == 0


def test_word_like_no_command_gets_no_suggestion(empty: Path) -> None:
    assert "Did you mean" not in run("xyzzy", folder=empty).err


@pytest.mark.parametrize(
    ("words", "meant"),
    [("history main --as opnai", "openai"), ("assemble hi --role wroker", "worker"), ("config completion bsh", "bash"),
     ("cache simulate main --provider Antropic", "anthropic"), ("import x --format claude", "claude")],
)  # fmt: skip
def test_mistyped_value_of_an_option_names_the_nearest(empty: Path, words: str, meant: str) -> None:
    ran = run(*words.split(), folder=empty)
    assert ran.code == 2
    assert f"Did you mean '{meant}" in ran.err


def test_other_words_are_no_commands_and_lead_to_commands() -> None:
    assert not {word for word in OTHER_WORDS if " " not in word} & set(COMMANDS)
    assert {word.partition(" ")[0] for word in OTHER_WORDS.values() if not word.startswith("--")} <= set(COMMANDS)


def test_package_runs_as_a_module_and_tells_its_version(empty: Path) -> None:
    for flag in ("-V", "--version"):
        assert program(flag, folder=empty).stdout.decode() == f"nexus, version {__version__}\n"


# completion ----------------------------------------------------------------------------------------------------------


def completed(folder: Path, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    line = {
        "_NEXUS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("nexus", *words)),
        "COMP_CWORD": str(len(words)),
    }
    run_ = subprocess.run(
        [sys.executable, "-c", "from nexus.cli import main; main()"],
        cwd=folder, env=environment(**line), capture_output=True, check=False,
    )  # fmt: skip
    assert run_.stderr == b""
    return [line.partition(",")[2] for line in run_.stdout.decode().splitlines() if line]


@pytest.fixture
def talks(empty: Path) -> Path:
    with nexus.open(empty) as nx:
        for label in ("main", "telegram:42", "two words"):
            nx.record(nx.assemble("hi", session=label), nexus.AgentResult((nexus.assistant("hello"),)))
    return empty


def test_completion_offers_commands_values_and_sessions(talks: Path) -> None:
    assert completed(talks, "his") == ["history"]
    assert set(completed(talks, "")) >= set(COMMANDS)
    assert completed(talks, "history", "tele") == ["telegram:42"]
    assert set(completed(talks, "session", "show", "")) == {"main", "telegram:42", "two words", "last"}
    assert completed(talks, "assemble", "hi", "-s", "ma") == ["main"]
    assert completed(talks, "assemble", "hi", "-s", "la") == ["last"]
    assert completed(talks, "history", "main", "--as", "open") == ["openai"]
    assert "--help" in completed(talks, "--h")


def test_completion_reads_the_ledger_of_the_line(talks: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert completed(elsewhere, "history", "") == []
    assert completed(elsewhere, "history", "-w", str(talks), "ma") == ["main"]
    assert completed(elsewhere, "session", "-w", str(talks), "show", "ma") == ["main"]
    assert completed(elsewhere, "history", "--ledger", str(elsewhere / "none.db"), "") == []
    (elsewhere / "bad.db").write_text("no ledger")
    assert completed(elsewhere, "history", "--ledger", str(elsewhere / "bad.db"), "") == []
    assert list(elsewhere.iterdir()) == [elsewhere / "bad.db"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(empty: Path, shell: str) -> None:
    ran = run("config", "completion", shell, folder=empty)
    assert (ran.code, ran.err) == (0, "")
    assert "_NEXUS_COMPLETE" in ran.out
    assert run("config", "completion", shell, "--json", folder=empty).json == {
        "shell": shell,
        "script": ran.out.rstrip("\n"),
    }
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=ran.out, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_a_session_name_with_a_colon_on_the_tab_key(talks: Path, tmp_path: Path) -> None:
    if not shutil.which("bash"):
        missing = "bash is not installed: the completion on the tab key is not tested"
        pytest.fail(missing, pytrace=False) if os.environ.get("CI") else pytest.skip(missing)
    script = run("config", "completion", "bash", folder=talks).out
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "nexus").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nexus "$@"\n')
    (bin_ / "nexus").chmod(0o755)
    (tmp_path / "rc").write_text(script + "PS1='$ '\n")
    env = environment(PATH=f"{bin_}:{os.environ['PATH']}", TERM="dumb")
    child, terminal = pty.fork()
    if not child:
        os.chdir(talks)
        os.execvpe("bash", ["bash", "--rcfile", str(tmp_path / "rc"), "-i"], env)
    os.write(terminal, b"nexus history telegram:4\t --as markdown\nexit\n")
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 1 << 14)
        except OSError:  # how a terminal ends on Linux
            break
    os.waitpid(child, 0)
    assert b"telegram:42" in shown
    assert b"## Assistant (turn 1)" in shown
