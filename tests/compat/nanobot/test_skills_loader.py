"""`nexus.compat.nanobot.agent.skills.SkillsLoader`, which document 003's builder integrates with ("Skills Integration")."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexus.compat.nanobot.agent.skills import SkillsLoader
from nexus.workspace.prompts import templates
from support.skills import SHELL
from workspace.skills.making import READ_FILE, index, opened, skill


@pytest.fixture
def loader(tmp_path: Path) -> SkillsLoader:
    skill(tmp_path, "loud", "always: true", body="LOUD GUIDE")
    skill(tmp_path, "lame", "always: true", "requires: {bins: [no-such-program]}")
    skill(tmp_path, "quiet", "license: MIT", body="QUIET GUIDE")
    return SkillsLoader(tmp_path)


def test_all_skills_are_listed_with_place_and_what_is_missing(loader: SkillsLoader) -> None:
    """Document 003, "Skills Integration": "Provide a summary of all available skills"."""
    assert [(one["name"], one["source"], one["missing"]) for one in loader.list_skills()] == [
        ("lame", "workspace", "no-such-program"), ("loud", "workspace", ""),
        ("past-conversations", "packaged", ""), ("quiet", "workspace", ""),
    ]  # fmt: skip
    assert loader.list_skills()[3]["path"] == "skills/quiet/SKILL.md"


def test_a_skill_is_loaded_whole_by_its_name(loader: SkillsLoader) -> None:
    text = loader.load_skill("quiet")
    assert text is not None and text.startswith("---\nname: quiet\n") and text.endswith("QUIET GUIDE")
    assert loader.load_skill("nope") is None
    assert loader.load_skill("../quiet") is None


def test_load_skills_for_context_is_sorted_unique_and_warns_of_unknown(
    loader: SkillsLoader,
) -> None:
    text = loader.load_skills_for_context(["quiet", "loud", "quiet", "nope"])
    assert text == "# Skill: loud\n\nLOUD GUIDE\n\n# Skill: quiet\n\nQUIET GUIDE"
    assert ["skill 'nope' not found" in note.message for note in loader.warnings] == [True]
    assert loader.load_skills_for_context([]) == ""
    assert loader.warnings == ()


def test_the_skills_that_are_always_active_are_those_that_lack_nothing(loader: SkillsLoader) -> None:
    """Document 003, "Skills Integration": "Load skills marked with always=true into every prompt"."""
    assert loader.get_always_skills() == ["loud"]
    assert ["lame" in note.source for note in loader.warnings] == [True]


def test_the_summary_is_the_list_that_a_context_shows(loader: SkillsLoader, tmp_path: Path) -> None:
    """Document 003, "Skills Integration": "Let the agent progressively load skills using read_file tool"."""
    assert loader.build_skills_summary() == index(opened(tmp_path).assemble("hi", tools=[READ_FILE, *SHELL]))


def test_files_are_read_per_call_and_unchanged_templates_are_omitted(loader: SkillsLoader, tmp_path: Path) -> None:
    skill(tmp_path, "later")
    assert loader.load_skill("later")
    path = skill(tmp_path, "note-taking")
    path.write_text(templates()["skills/note-taking/SKILL.md"])
    assert loader.load_skill("note-taking") is None
    assert "unchanged template" in loader.warnings[0].message


def test_a_workspace_that_is_not_there_has_the_packaged_skills(tmp_path: Path) -> None:
    assert [one["source"] for one in SkillsLoader(tmp_path / "nowhere").list_skills()] == ["packaged"]
