"""`nexus init`: a workspace that works at once, and nothing that exists is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import TRACEBACK, run
from cli.unwritable import program_without_rights, read_only

FILES = (
    "AGENTS.md",
    "IDENTITY.md",
    "SOUL.md",
    "TOOLS.md",
    "USER.md",
    "memory/MEMORY.md",
    "skills/note-taking/SKILL.md",
)


def test_it_writes_starter_files_and_a_ledger_and_names_each_of_them(tmp_path: Path) -> None:
    ran = run("init", folder=tmp_path)
    assert ran.code == 0
    assert [name for name in FILES if not (tmp_path / name).read_text("utf-8").strip()] == []
    assert [name for name in FILES if name not in ran.out] == []
    assert str(tmp_path / ".nexus" / "ledger.db") in ran.out
    assert (tmp_path / ".nexus" / "ledger.db").is_file()


def test_it_makes_the_folder_that_it_is_given_as_argument_or_as_workspace(tmp_path: Path) -> None:
    assert run("init", "a/deep/one", folder=tmp_path).code == 0
    assert run("init", "-w", "another one", folder=tmp_path).code == 0
    assert (tmp_path / "a" / "deep" / "one" / "AGENTS.md").is_file()
    assert (tmp_path / "another one" / "AGENTS.md").is_file()


def test_what_exists_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("# Mine\n")
    ran = run("init", folder=tmp_path)
    assert ran.code == 0
    assert (tmp_path / "AGENTS.md").read_text() == "# Mine\n"
    assert "wrote AGENTS.md" not in ran.out


def test_a_second_time_writes_nothing_and_keeps_the_sessions(example: Path) -> None:
    run("init", folder=example)
    before = {path: path.read_bytes() for path in example.rglob("*.md")}
    again = run("init", "--json", folder=example)
    assert again.json["written"] == []
    assert {path: path.read_bytes() for path in example.rglob("*.md")} == before
    assert [one["label"] for one in run("sessions", "--json", folder=example).json] == ["main"]


def test_json_says_where_everything_is(tmp_path: Path) -> None:
    ran = run("init", "--json", folder=tmp_path)
    assert ran.json == {
        "workspace": str(tmp_path),
        "written": sorted(FILES),
        "ledger": str(tmp_path / ".nexus" / "ledger.db"),
    }


def test_the_ledger_can_be_elsewhere(tmp_path: Path) -> None:
    ran = run("init", "here", "--ledger", "there.db", folder=tmp_path)
    assert ran.code == 0
    assert (tmp_path / "there.db").is_file()
    assert not (tmp_path / "here" / ".nexus" / "ledger.db").exists()


def test_untouched_starter_files_count_as_absent_and_the_context_says_so(tmp_path: Path) -> None:
    run("init", folder=tmp_path)
    (tmp_path / "SOUL.md").write_text("Be kind.\n")
    ran = run("assemble", "Hi", "--json", folder=tmp_path)
    assert "Be kind." in ran.json["systemPrompt"]
    assert "AGENTS.md" in run("assemble", "Hi", folder=tmp_path).out
    assert (tmp_path / "AGENTS.md").read_text("utf-8").strip() not in ran.json["systemPrompt"]


def test_a_folder_that_is_a_file_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ran = run("init", "file", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "file" in ran.err


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ran = run("init", "file/below", folder=tmp_path)
    assert ran.code in (1, 4)
    assert "file/below" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_folder_without_write_permission_is_one_clear_line(tmp_path: Path) -> None:
    with read_only(tmp_path / "locked") as folder:
        ran = program_without_rights("init", folder=folder)
    assert ran.returncode in (1, 4, 5)
    assert TRACEBACK not in ran.stderr.decode()
    assert str(folder) in ran.stderr.decode()


@pytest.mark.parametrize("name", ["memory", "skills", ".nexus"])
def test_a_file_where_a_folder_belongs_is_one_clear_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    ran = run("init", folder=tmp_path)
    assert ran.code in (1, 4, 5)
    assert len(ran.err.splitlines()) == 1
    assert name in ran.err
    assert (tmp_path / name).read_text() == "mine"


def test_a_link_that_leads_out_of_the_workspace_is_not_written_through(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "AGENTS.md").symlink_to(tmp_path / "outside.md")
    run("init", folder=folder)
    assert not (tmp_path / "outside.md").exists()
