"""`nexus services db`, and the menu of `scripts/database_manager.py` that calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import environment, run
from contracts.modules import ROOT

PROFILE = "user_defaults.prompts.friends_profile"
MENU = ROOT / "scripts" / "database_manager.py"


def menu(*args: str, folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(MENU), *args],
        cwd=folder, input=stdin, capture_output=True, text=True, check=False, timeout=600, env=environment(),
    )  # fmt: skip


def test_init_stores_the_template_and_a_second_run_changes_nothing(empty: Path) -> None:
    first, second = run("services", "db", "init", folder=empty), run("services", "db", "init", folder=empty)
    assert (first.code, first.out.splitlines()[0]) == (0, "Configuration: stored.")
    assert f"{PROFILE}.content" in first.out
    assert (second.code, second.out) == (0, "Configuration: nothing changed.\n")
    assert run("services", "db", "init", "--json", folder=empty).json["changed"] is False


def test_newer_template_adds_names_and_keeps_edits(empty: Path) -> None:
    run("services", "db", "init", folder=empty)
    assert run("services", "db", "set-default", "mood.enabled", "true", folder=empty).out == "'mood.enabled': true\n"
    (empty / "config.yml").write_text("mood: {enabled: false, model: small}\n", "utf-8")
    done = run("services", "db", "init", "--template", "config.yml", "--json", folder=empty).json
    assert (done["added"], done["edited"]) == (["mood.model"], ["mood.enabled"])
    rows = {
        row["name"]: (row["value"], row["source"]) for row in run("services", "db", "show", "--json", folder=empty).json
    }
    assert rows["mood.enabled"] == (True, "edited")
    assert rows["mood.model"] == ("small", "template")


def test_set_and_show_a_users_override(empty: Path) -> None:
    done = run("services", "db", "set", "ada", "friends_profile", "Short\nanswers.", folder=empty)
    assert (done.code, done.out) == (0, "'friends_profile' of 'ada': set.\n")
    shown = run("services", "db", "show", "--owner", "ada", folder=empty).out
    assert [line.split() for line in shown.splitlines() if "prompt_overrides" in line] == [
        ["prompt_overrides.friends_profile", "Short", "answers.", "user"]
    ]
    assert "prompt_overrides" not in run("services", "db", "show", "--owner", "grace", folder=empty).out
    assert (
        run("services", "db", "set", "ada", "friends_profile", "", folder=empty).out
        == "'friends_profile' of 'ada': removed.\n"
    )


def test_show_creates_no_file(empty: Path) -> None:
    assert run("services", "db", "show", folder=empty).code == 0
    assert list((empty / ".nexus").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("set", "ada", "freinds_profile", "x"), 2, "did you mean 'friends_profile'?"),
        (("set", "", "friends_profile", "x"), 2, "is empty"),
        (("set-default", "mood.enabled", "maybe"), 2, "wrong type"),
        (("set-default", "mood.enable", "true"), 2, "did you mean 'mood.enabled'?"),
        (("init", "--template", "none.yml"), 4, "none.yml"),
        (("init", "--template", "bad.yml"), 2, "not readable as YAML"),
        (("show", "--owner", "a\nb"), 2, "control characters"),
        (("shwo",), 2, "Did you mean: nexus services db show?"),
    ],
)
def test_wrong_input_is_one_line_with_an_exit_code(empty: Path, words: tuple[str, ...], code: int, text: str) -> None:
    (empty / "bad.yml").write_text("[1", "utf-8")
    done = run("services", "db", *words, folder=empty)
    assert (done.code, done.out) == (code, "")
    assert text in done.err


def test_prompt_that_is_not_editable_is_exit_code_2(empty: Path) -> None:
    run("services", "db", "set-default", f"{PROFILE}.editable", "false", folder=empty)
    done = run("services", "db", "set", "ada", "friends_profile", "x", "--json", folder=empty)
    assert (done.code, done.json["error"]["code"]) == (2, "not_editable")


def test_forgetting_a_profile_that_is_not_there_is_exit_code_2(empty: Path) -> None:
    run("services", "db", "set", "ada", "friends_profile", "x", folder=empty)
    first, second = (
        run("services", "db", "forget", "ada", folder=empty),
        run("services", "db", "forget", "ada", folder=empty),
    )
    assert (first.code, first.out) == (0, "Profile of 'ada': erased.\n")
    assert (second.code, second.out, second.err) == (2, "", "nexus: no profile of 'ada' found (nothing was erased)\n")


def test_option_8_of_the_menu_initializes_configurations(empty: Path) -> None:
    """Document 000, "Database Initialization": "Option 8: Initialize configurations"."""
    first = menu("--option", "8", "-w", str(empty), folder=empty)
    assert (first.returncode, first.stdout.splitlines()[0]) == (0, "Configuration: stored.")
    asked = menu("-w", str(empty), folder=empty, stdin="x\n9\n8\n")
    assert "8. Initialize configurations (nexus services db init)\n" in asked.stdout
    assert asked.stdout.count("Choose a number from 0 to 8.") == 2
    assert asked.stdout.endswith("Configuration: nothing changed.\n")


def test_menu_ends_without_an_answer_and_passes_exit_codes_on(empty: Path) -> None:
    for stdin in ("", "0\n", "\n"):
        assert menu(folder=empty, stdin=stdin).returncode == 0
    assert list((empty / ".nexus").iterdir()) == []
    assert menu("--option", "9", folder=empty).returncode == 2
    assert menu("--option", "3", "--ledger", "none.db", folder=empty).returncode not in (0, 1)


def test_every_option_of_the_menu_is_a_command(empty: Path) -> None:
    run("services", "db", "init", folder=empty)
    for option in range(1, 9):
        done = menu("--option", str(option), "--file", "copy.db", folder=empty)
        assert (option, done.returncode, "Traceback" in done.stderr) == (option, 0, False)
    assert (empty / "copy.db").is_file()
