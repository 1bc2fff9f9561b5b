"""`nexus skill` as its users call it: people, and agents through a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.running import TRACEBACK, Ran, run
from nexus.cli.skill_command import skill_text
from nexus.workspace.skills.discovery import MAX_USED, record_use, used_skills
from nexus.workspace.skills.skill_file import UNWRITTEN, printable_line, validate_skill
from workspace.skills.making import skill, written


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / ".nexus").mkdir(parents=True)
    return folder


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def nexus(ws: Path, *args: str | Path) -> Ran:
    ran = run("skill", *args, folder=ws)
    assert TRACEBACK not in ran.err
    return ran


def test_list_shows_place_availability_and_whether_it_is_always_active(ws: Path) -> None:
    skill(ws, "loud", "always: true")
    skill(ws, "gh", "requires: {bins: [no-such-program]}")
    rows = [line.split(maxsplit=4) for line in nexus(ws, "list").out.splitlines()]
    assert rows[0] == ["skill", "place", "available", "always", "description"]
    assert rows[1][:2] == ["gh", "workspace"] and "needs no-such-program" in " ".join(rows[1])
    assert rows[2][:4] == ["loud", "workspace", "yes", "yes"]
    assert rows[3][:3] == ["past-conversations", "packaged", "yes"]
    found = nexus(ws, "list", "--json").json
    assert [(one["name"], one["always"], one["missing"]) for one in found["skills"][:2]] == [
        ("gh", False, ["no-such-program"]), ("loud", True, []),
    ]  # fmt: skip


def test_list_tells_on_standard_error_what_is_not_listed_and_why(ws: Path) -> None:
    written(ws, "bad", "no front matter \x1b[31m")
    ran = nexus(ws, "list")
    assert "Warning: skills/bad/SKILL.md: not listed" in ran.err
    assert nexus(ws, "list", "--json").json["warnings"][0]["origin"] == "skills/bad/SKILL.md"


def test_options_may_stand_before_the_name_of_the_command(ws: Path, tmp_path: Path) -> None:
    skill(ws, "mine")
    ran = run("skill", "-w", ws, "--json", "list", folder=tmp_path)
    assert ran.json["skills"][0]["name"] == "mine"


def test_use_prints_the_whole_guide_and_notes_that_it_was_used(ws: Path) -> None:
    """Document 002, "Using Skills": "Run `nexus skill use <name>` to get the full guide for any capability."."""
    guide = "# Make\n\nall:\n\tcc -o x x.c\n" + "A line of the guide.\n" * 2_000 + "The end."
    skill(ws, "make", body=guide)
    ran = nexus(ws, "use", "make")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{guide}\n"
    assert list(json.loads((ws / ".nexus" / "used.json").read_text())) == ["make"]
    assert nexus(ws, "use", "make", "--json").json["guide"] == guide
    assert nexus(ws, "show", "make", "--json").json["used_ms"] > 0


def test_use_of_a_skill_without_a_guide_says_so_on_standard_error(ws: Path) -> None:
    written(ws, "empty", "---\nname: empty\ndescription: d\n---\n")
    ran = nexus(ws, "use", "empty")
    assert (ran.code, ran.out) == (0, "\n")
    assert ran.err == "Warning: skills/empty/SKILL.md has no text below its front matter\n"


def test_use_names_the_files_beside_the_guide_and_what_is_missing(ws: Path) -> None:
    path = skill(ws, "make", "requires: {env: [NO_SUCH_VARIABLE]}")
    (path.parent / "scripts").mkdir()
    (path.parent / "scripts" / "run.sh").write_text("")
    (path.parent / ".hidden").write_text("")
    out = nexus(ws, "use", "make").out
    assert out.endswith(f"Files of this skill, in {path.parent}: scripts/run.sh\nMissing here: NO_SUCH_VARIABLE\n")


def test_what_a_guide_holds_has_no_power_over_a_terminal(ws: Path) -> None:
    skill(ws, "sly", body="a\x1b]0;title\x07b")
    assert "\x1b" not in nexus(ws, "use", "sly").out
    skill(ws, "sly2", description='"\\x1b[31m"', folder="sly2")
    assert "\x1b" not in nexus(ws, "list").out + nexus(ws, "show", "sly2").out


@pytest.mark.parametrize("command", ["use", "show"])
def test_an_unknown_name_is_an_error_that_names_what_is_near(ws: Path, command: str) -> None:
    ran = nexus(ws, command, "past-conversation")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean past-conversations?" in ran.err
    written(ws, "broken", "x")
    assert "the first line is not ---" in nexus(ws, command, "broken").err


def test_skill_use_warns_when_use_cannot_be_recorded(ws: Path, tmp_path: Path) -> None:
    ran = run("skill", "use", "past-conversations", folder=tmp_path)
    assert (ran.code, "no workspace" in ran.err) == (0, True)
    assert not (tmp_path / ".nexus").exists()
    (ws / ".nexus" / "used.json").mkdir()
    ran = nexus(ws, "use", "past-conversations")
    assert (ran.code, "Warning: use not recorded" in ran.err) == (0, True)
    assert files(ws / ".nexus") == ["used.json"]


def test_a_use_is_not_noted_through_a_link_out_of_the_workspace(ws: Path, tmp_path: Path) -> None:
    (ws / ".nexus").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (ws / ".nexus").symlink_to(tmp_path / "elsewhere")
    ran = nexus(ws, "use", "past-conversations")
    assert (ran.code, "leads out of the workspace" in ran.err) == (0, True)
    assert files(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": "b"}', '{"a": 1.5}', "\x00"])
def test_a_damaged_note_of_uses_counts_as_empty_and_is_replaced(ws: Path, text: str) -> None:
    (ws / ".nexus" / "used.json").write_text(text)
    assert used_skills(ws)[0] == {}
    record_use(ws, "a", 5)
    assert used_skills(ws)[0] == {"a": 5}


def test_of_uses_the_newest_thousand_names_are_kept(ws: Path) -> None:
    (ws / ".nexus" / "used.json").write_text(json.dumps({f"n{at}": at for at in range(MAX_USED)}))
    record_use(ws, "new", MAX_USED)
    found = used_skills(ws)[0]
    assert (len(found), "n0" in found, found["new"]) == (MAX_USED, False, MAX_USED)


def test_new_makes_a_skill_that_keeps_the_standard_and_can_be_used_at_once(ws: Path) -> None:
    ran = nexus(ws, "new", "release-notes", "--description", 'Write: "notes"\nUse when – 🎉 #1.')
    assert ran.code == 0
    assert nexus(ws, "lint", "skills/release-notes").out == "Skills: 1. Errors: 0, warnings: 0\n"
    assert nexus(ws, "show", "release-notes", "--json").json["description"] == 'Write: "notes" Use when – 🎉 #1.'
    assert "# Release notes" in nexus(ws, "use", "release-notes").out


def test_a_new_skill_whose_description_nobody_wrote_is_a_warning_of_lint(ws: Path) -> None:
    assert nexus(ws, "new", "notes").code == 0
    ran = nexus(ws, "lint", "skills/notes")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Skills: 1. Errors: 0, warnings: 1")
    assert "skills/notes/SKILL.md:3: warning: `description` is the placeholder of `nexus skill new`" in ran.out
    assert nexus(ws, "show", "notes", "--json").json["description"] == UNWRITTEN


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_description_comes_back_from_a_new_skills_front_matter(description: str) -> None:
    line = printable_line(description) or "Write notes."
    found = validate_skill(skill_text("a-b", line), "a-b", "", "workspace")
    assert found.findings == ()
    assert found.skill is not None and found.skill.description == line


@pytest.mark.parametrize("name", ["Bad", "-a", "a--b", "../up", "a/b", "", "a" * 65, "a b", "ä", "\x1b"])
def test_new_refuses_a_bad_name(ws: Path, name: str) -> None:
    ran = nexus(ws, "new", "--", name)
    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert not (ws / "skills").exists()


def test_new_refuses_what_is_there_and_a_description_that_is_too_long(ws: Path) -> None:
    path = skill(ws, "mine")
    before = path.read_text()
    ran = nexus(ws, "new", "mine")
    assert (ran.code, "exists" in ran.err, path.read_text()) == (4, True, before)
    assert nexus(ws, "new", "other", "--description", "d" * 1_025).code == 4
    assert not (ws / "skills" / "other").exists()


def test_new_does_not_write_through_a_link_out_of_the_workspace(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (ws / "skills").symlink_to(tmp_path / "elsewhere")
    assert nexus(ws, "new", "mine").code == 4
    assert files(tmp_path / "elsewhere") == []


def test_new_can_be_the_users_own_and_says_which_skill_it_stands_before(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    ran = nexus(ws, "new", "past-conversations", "--user")
    assert ran.code == 0
    assert (tmp_path / "home" / "skills" / "past-conversations" / "SKILL.md").is_file()
    assert "nexus:skills/past-conversations/SKILL.md is not used" in ran.err


def test_skill_lint_prints_file_line_severity_and_exits_1_for_errors(ws: Path) -> None:
    written(ws, "bad", "---\nlicense: MIT\nname: Bad\ndescription: " + "d" * 1_025 + "\nversion: 2\n---\nText.\n")
    skill(ws, "good")
    ran = nexus(ws, "lint")
    assert ran.code == 1
    assert [line.split(": ")[:2] for line in ran.out.splitlines()[:4]] == [
        ["skills/bad/SKILL.md:3", "error"], ["skills/bad/SKILL.md:3", "error"],
        ["skills/bad/SKILL.md:4", "error"], ["skills/bad/SKILL.md:5", "warning"],
    ]  # fmt: skip
    assert ran.out.splitlines()[-1] == "Skills: 3. Errors: 3, warnings: 1"
    found = nexus(ws, "lint", "--json").json
    assert found[0]["file"] == "skills/bad/SKILL.md"
    assert [(one["line"], one["severity"]) for one in found] == [
        (3, "error"),
        (3, "error"),
        (4, "error"),
        (5, "warning"),
    ]


def test_lint_checks_a_folder_a_file_or_a_folder_of_skills(ws: Path) -> None:
    path = skill(ws, "good")
    skill(ws, "other")
    for given_path, count in ((path, 1), (path.parent, 1), (ws / "skills", 2), (ws, 2)):
        assert nexus(ws, "lint", given_path).out.splitlines()[-1] == f"Skills: {count}. Errors: 0, warnings: 0"


def test_lint_says_so_where_there_is_no_skill(ws: Path) -> None:
    (ws / "skills" / "empty").mkdir(parents=True)
    (ws / "README.md").write_text("x")
    for path in ("nowhere", "README.md", ".nexus"):
        assert nexus(ws, "lint", path).code == 4
    ran = nexus(ws, "lint")
    assert (ran.code, "skills/empty/SKILL.md:1: error: SKILL.md missing" in ran.out) == (1, True)


@pytest.mark.parametrize(
    ("data", "code", "why"),
    [
        (
            b"\xff\xfe" + "---\nname: a\ndescription: d\n---\nText.\n".encode("utf-16-le"),
            1,
            "1: error: file is UTF-16",
        ),
        (
            b"\xef\xbb\xbf---\nname: a\ndescription: d\n---\nText.\n",
            0,
            "1: warning: byte order mark",
        ),
        (b"\n\n---\nname: B\ndescription: d\n---\nText.\n", 1, "1: error: empty lines before"),
        (b"\n\n---\nname: B\ndescription: d\n---\nText.\n", 1, "4: error: name 'B' has capital"),
        (b"---\nname: a\ndescription: d \xff\n---\nText.\n", 1, "1: error: not valid UTF-8"),
        (b"---\nname: a\ndescription: d\n---\n" + b"x " * 15_000, 0, "1: warning: 30,03"),
        (b"", 1, "1: error: SKILL.md missing or empty"),
    ],
)
def test_lint_sees_what_is_lost_when_a_file_is_read_as_text(ws: Path, data: bytes, code: int, why: str) -> None:
    written(ws, "a", data)
    ran = nexus(ws, "lint", "--")
    assert ran.code == code
    assert f"skills/a/SKILL.md:{why}" in ran.out


def test_lint_follows_no_link_out_of_the_workspace(ws: Path) -> None:
    (ws / "skills" / "a").mkdir(parents=True)
    (ws / "skills" / "a" / "SKILL.md").symlink_to("/etc/passwd")
    ran = nexus(ws, "lint")
    assert ran.code == 1
    assert "outside" in ran.out and "root:" not in ran.out


def test_assemble_shows_a_named_skill_in_full(ws: Path) -> None:
    skill(ws, "make")
    ran = run("assemble", "hi", "--skill", "make", "--as", "text", folder=ws)
    assert "# Skill: make\n\nHow make is done." in ran.out


def test_no_ledger_is_needed_or_made(ws: Path) -> None:
    (ws / ".nexus" / "ledger.db").write_text("no ledger")
    assert nexus(ws, "list").code == 0
    (ws / ".nexus" / "ledger.db").unlink()
    nexus(ws, "use", "past-conversations")
    assert files(ws / ".nexus") == ["used.json"]
