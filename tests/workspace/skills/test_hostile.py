"""Skills as somebody might prepare them to harm: nothing outside is read, nothing hangs, and each is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nexus
from support.skills import SHELL
from workspace.skills.making import index, line_of, opened, skill, warned, written

SECRET = "root:x:0:0:SECRET"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "skills").mkdir(parents=True)
    (tmp_path / "secret").write_text(SECRET)
    skill(tmp_path / "outside", "stolen", "always: true", body=SECRET)
    return folder


def test_skill_file_linked_to_system_file_is_not_read(root: Path) -> None:
    (root / "skills" / "a").mkdir()
    (root / "skills" / "a" / "SKILL.md").symlink_to("/etc/passwd")
    ctx = opened(root).assemble("hi", tools=SHELL)
    assert "root:" not in ctx.system_prompt
    assert "outside" in warned(ctx, "skills/a/SKILL.md")


def test_skill_folder_linked_outside_is_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "skills" / "stolen").symlink_to(tmp_path / "outside" / "skills" / "stolen")
    ctx = opened(root).assemble("hi", skills=["stolen"], tools=SHELL)
    assert "SECRET" not in ctx.system_prompt
    assert "outside" in warned(ctx, "skills/stolen/SKILL.md")


def test_skills_folder_linked_outside_is_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "skills").rmdir()
    (root / "skills").symlink_to(tmp_path / "outside" / "skills")
    ctx = opened(root).assemble("hi", tools=SHELL)
    assert "SECRET" not in ctx.system_prompt
    assert any("outside" in note.message for note in ctx.warnings)


def test_hard_link_to_other_file_is_not_shown(root: Path, tmp_path: Path) -> None:
    (root / "skills" / "a").mkdir()
    os.link(tmp_path / "secret", root / "skills" / "a" / "SKILL.md")
    ctx = opened(root).assemble("hi", skills=["a"], tools=SHELL)
    assert "SECRET" not in ctx.system_prompt
    assert warned(ctx, "skills/a/SKILL.md")


def test_pipe_or_folder_as_skill_file_is_omitted_without_waiting(root: Path) -> None:
    (root / "skills" / "pipe").mkdir()
    os.mkfifo(root / "skills" / "pipe" / "SKILL.md")
    (root / "skills" / "dir" / "SKILL.md").mkdir(parents=True)
    ctx = opened(root).assemble("hi", tools=SHELL)
    assert "not a regular file" in warned(ctx, "skills/pipe/SKILL.md")
    assert warned(ctx, "skills/dir/SKILL.md")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\nname: a\ndescription: !!python/object/apply:os.system ['touch pwned']\n---\n", "tag"),
        ("---\na: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\nname: a\ndescription: d\n---\n", "alias"),
        ("---\n" + "x: y\n" * 200_000 + "name: a\ndescription: d\n---\n", "over 10,000"),
        ("---\nname: a\ndescription: d\n", "without a closing ---"),
        ("name: a\ndescription: d\n", "front matter missing"),
        (b"\x80\x81\x82\xff" * 50, "front matter missing"),
        ("---\nname: " + "a" * 5_000 + "\ndescription: d\n---\n", "5,000 characters"),
    ],
)
def test_unusable_skill_file_is_not_listed_with_reason(root: Path, text: str | bytes, why: str) -> None:
    written(root, "a", text)
    ctx = opened(root).assemble("hi", skills=["a"], tools=SHELL)
    assert why in warned(ctx, "skills/a/SKILL.md")
    assert "- a:" not in index(ctx)
    assert not (Path.cwd() / "pwned").exists()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_skill_file_with_byte_order_mark_is_read(root: Path, encoding: str) -> None:
    written(root, "a", "---\r\nname: a\r\ndescription: prüft\r\n---\r\nText.\r\n".encode(encoding))
    assert line_of(opened(root).assemble("hi", tools=SHELL), "a") == "- a: prüft (skills/a/SKILL.md)"


@pytest.mark.parametrize("name", ["on", "no", "2026-11-21", "1e3"])
def test_yaml_keyword_as_name_stays_text(root: Path, name: str) -> None:
    skill(root, name)
    ctx = opened(root).assemble("hi", skills=[name], tools=SHELL)
    assert f"# Skill: {name}" in ctx.system_prompt
    assert ctx.warnings == ()


@pytest.mark.parametrize("folder", ["a\n# Rules", "a\x1b[31m", "a\u202eb"])
def test_unprintable_folder_name_is_omitted(root: Path, folder: str) -> None:
    skill(root, "a", folder=folder)
    ctx = opened(root).assemble("hi", tools=SHELL)
    assert "- a:" not in index(ctx)
    assert "is not printable" in warned(ctx, "skills")


def test_skill_with_rule_violations_is_listed_with_one_warning(root: Path) -> None:
    skill(root, "PDF", description="d" * 1_025, folder="other")
    ctx = opened(root).assemble("hi", tools=SHELL)
    assert line_of(ctx, "PDF").startswith("- PDF: ddd")
    told = warned(ctx, "skills/other/SKILL.md")
    assert "\n" not in told
    assert [part in told for part in ("capital letters", "differs from its folder", "1,025 characters")] == [True] * 3


def test_many_invalid_fields_give_one_short_warning(root: Path) -> None:
    written(root, "a", "---\nname: a\ndescription: d\n" + "name: b\n" * 1_000 + "---\n")
    told = warned(opened(root).assemble("hi", tools=SHELL), "skills/a/SKILL.md")
    assert told.count("is duplicated") == 3
    assert "997 more (`nexus skill lint` has all)" in told


def test_deleted_workspace_has_no_skills(root: Path) -> None:
    nx = opened(root)
    (root / "skills").rmdir()
    root.rename(root.with_name("gone"))
    assert "\n- past-conversations: " in index(nx.assemble("hi", tools=SHELL))


def test_thousands_of_unknown_requested_skills_are_bounded(root: Path) -> None:
    request = nexus.Request(
        nexus.Event((nexus.Text("hi"),)), settings=nexus.Settings(skills=tuple(f"n{at}" for at in range(3_000)))
    )
    ctx = opened(root).assemble_request(request)
    assert "skill 'n0, n1, n2, n3, n4 and 2,995 more' not found (available: past-conversations)" in [
        note.message for note in ctx.warnings
    ]
