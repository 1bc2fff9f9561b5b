"""What the Agent Skills standard (agentskills.io/specification) says of a SKILL.md, and what is read beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from nexus.types.skill import Requires, Skill
from nexus.workspace.skills.skill_file import ValidatedSkill, validate_skill


def judge(*lines: str, folder: str = "a-skill", body: str = "Text.") -> ValidatedSkill:
    return validate_skill("\n".join(["---", *lines, "---", body, ""]), folder, f"skills/{folder}/SKILL.md", "workspace")


def read(*lines: str) -> Skill:
    found = judge("name: a-skill", "description: d", *lines).skill
    assert found is not None
    return found


def errors(found: ValidatedSkill) -> list[tuple[int, str]]:
    return [(one.line, one.text) for one in found.findings if one.error]


def test_every_field_of_the_standard_is_read() -> None:
    found = judge(
        "name: pdf-processing", "description: >\n  Extract text.\n  Use for PDF files.", "license: Apache-2.0",
        "compatibility: Needs git", 'metadata:\n  author: example-org\n  version: "1.0"',
        "allowed-tools: Bash(git:*) Bash(jq:*) Read", folder="pdf-processing",
    )  # fmt: skip
    assert found.findings == ()
    assert found.skill == Skill(
        "pdf-processing",
        "Extract text. Use for PDF files.",
        "skills/pdf-processing/SKILL.md",
        license="Apache-2.0",
        compatibility="Needs git",
        allowed_tools=("Bash(git:*)", "Bash(jq:*)", "Read"),
        metadata={"author": "example-org", "version": "1.0"},
    )


def test_allowed_tools_may_be_a_list() -> None:
    assert read("allowed-tools:\n  - Bash(git:*)\n  - Read").allowed_tools == ("Bash(git:*)", "Read")


@pytest.mark.parametrize("name", ["a", "a1", "x-y-z", "a" * 64, "0-1", "on", "2026-11-21", "true"])
def test_valid_names_are_accepted(name: str) -> None:
    assert errors(judge(f"name: {name}", "description: d", folder=name)) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [("PDF-Processing", "capital"), ("-pdf", "hyphen"), ("pdf-", "hyphen"), ("pdf--x", "hyphen"), ("a_b", "other characters"),
     ("a b", "other characters"), ("ünder", "other characters"), ("1_000", "other characters"), ("a" * 65, "65 characters")],
)  # fmt: skip
def test_invalid_name_is_an_error_at_its_line(name: str, why: str) -> None:
    found = judge("description: d", f"name: {name}", folder=name)
    assert [(line, why in text) for line, text in errors(found)] == [(3, True)]
    assert (found.skill is None) == (len(name) > 64)


def test_name_different_from_folder_is_an_error_and_name_counts() -> None:
    found = judge("name: a", "description: d", folder="b")
    assert found.skill is not None and found.skill.name == "a"
    assert errors(found) == [(2, "name 'a' differs from its folder's, 'b'")]


def test_missing_name_is_an_error_and_folder_name_counts() -> None:
    found = judge("description: d")
    assert found.skill is not None and found.skill.name == "a-skill"
    assert "`name` is missing" in errors(found)[0][1]


@pytest.mark.parametrize("lines", [(), ("description:",), ("description: '  '",), ("description: [a]",)])
def test_skill_without_description_is_not_listed(lines: tuple[str, ...]) -> None:
    found = judge("name: a-skill", *lines)
    assert found.skill is None
    assert any("`description`" in text for _, text in errors(found))


def test_description_over_1024_characters_is_an_error_and_cut() -> None:
    assert errors(judge("name: a-skill", f"description: {'d' * 1_024}")) == []
    found = judge("name: a-skill", f"description: {'d' * 1_025}")
    assert "1,025 characters; the standard allows 1,024" in errors(found)[0][1]
    assert found.skill is not None and len(found.skill.description) == 1_024


def test_compatibility_has_1_to_500_characters() -> None:
    assert errors(judge("name: a-skill", "description: d", f"compatibility: {'c' * 500}")) == []
    for bad in ("c" * 501, "''"):
        assert "allows 1 to 500" in errors(judge("name: a-skill", "description: d", f"compatibility: {bad}"))[0][1]


@pytest.mark.parametrize(
    ("line", "why"),
    [("license: [MIT]", "`license` has to be text"), ("metadata: words", "`metadata` has to be a map"), ("metadata: [a]", "map"),
     ("allowed-tools: {a: b}", "text or a list of texts"), ("allowed-tools: [[a]]", "text or a list of texts"),
     ("always: maybe", "neither true nor false"), ("always: [true]", "has to be text"), ("requires: git", "has to be a map"),
     ("requires: {bins: {a: b}}", "`requires.bins` has to be text"), ("category: [a]", "`category` has to be text"),
     ("name: again", "is duplicated")],
)  # fmt: skip
def test_field_of_wrong_type_is_an_error_and_skill_is_used(line: str, why: str) -> None:
    found = judge("name: a-skill", "description: d", line)
    assert [(at, why in text) for at, text in errors(found)] == [(4, True)]
    assert found.skill == read()  # as if the line were not there


def test_unknown_field_is_a_warning() -> None:
    found = judge("name: a-skill", "description: d", "version: 1", "always: true")
    assert errors(found) == []
    assert [(one.line, one.text.split(":")[0]) for one in found.findings] == [
        (4, "`version` is not a field of the standard"),
        (5, "`always` is not a field of the standard"),
    ]


def test_empty_or_long_body_is_a_warning() -> None:
    assert "no text below" in judge("name: a-skill", "description: d", body="").findings[0].text
    long = judge("name: a-skill", "description: d", body="x\n" * 501)
    assert [(one.line, one.error) for one in long.findings] == [(5, False)]
    assert "501 lines" in long.findings[0].text
    assert judge("name: a-skill", "description: d", body="x\n" * 500).findings == ()


BEYOND: dict[str, Any] = {
    "at the top": ("always: true", "requires: {bins: [git], env: [TOKEN]}", "provides: [x]", "category: Dev"),
    "in metadata": ("metadata: {always: true, requires: {bins: [git], env: [TOKEN]}, provides: x, category: Dev}",),
    "in metadata as the standard's texts": (
        """metadata: {always: "true", requires: '{"bins": ["git"], "env": "TOKEN"}', provides: x, category: Dev}""",
    ),
    "in metadata.nexus": (
        "metadata:\n  nexus:\n    always: on\n    requires:\n      bins: git\n      env: [TOKEN]\n    provides: [x]\n    category: Dev",
    ),
    "as JSON text": (
        """metadata: {nexus: '{"always": true, "requires": {"bins": ["git"], "env": ["TOKEN"]}, "provides": ["x"], "category": "Dev"}'}""",
    ),
}


@pytest.mark.parametrize("lines", BEYOND.values(), ids=BEYOND)
def test_always_requires_provides_and_category_are_read(lines: tuple[str, ...]) -> None:
    found = read(*lines)
    assert (found.always, found.provides, found.category) == (True, ("x",), "Dev")
    assert found.requires == Requires(bins=("git",), env=("TOKEN",))


def test_topmost_level_of_a_field_counts() -> None:
    assert read("category: A", "metadata: {category: B, nexus: {category: C}}").category == "A"
    assert read("metadata: {category: B, nexus: {category: C}}").category == "B"


@pytest.mark.parametrize("agent", ["openclaw", "clawdbot", "nanobot"])
def test_requires_is_read_in_formats_of_other_agents(agent: str) -> None:
    """OpenClaw (docs.openclaw.ai, skills) and nanobot (its SKILL.md files) have it under their own names."""
    wanted = Requires(bins=("gh",), env=("GH_TOKEN",), any_bins=("docker", "podman"))
    inner = '{"requires": {"bins": ["gh"], "env": ["GH_TOKEN"], "anyBins": ["docker", "podman"]}}'
    assert read(f'metadata: {{"{agent}": {inner}}}').requires == wanted
    assert read(f"metadata: '{{\"{agent}\": {inner}}}'").requires == wanted


def test_always_is_read_from_nanobot_but_not_openclaw() -> None:
    assert read("metadata: {nanobot: {always: true}}").always
    assert not read("metadata: {openclaw: {always: true}}").always


@pytest.mark.parametrize(
    "text", ["'{'", '\'{"a": 1e999, "always": [}\'', f"'{'[' * 4_000}'", f"'{{\"a\": {'[' * 4_000}'"]
)
def test_invalid_json_text_stays_text(text: str) -> None:
    assert read(f"metadata: {{nexus: {text}}}").requires == Requires()


def test_required_names_are_limited() -> None:
    found = judge("name: a-skill", "description: d", f"requires: {{bins: [{', '.join(f'b{at}' for at in range(21))}]}}")
    assert found.skill is not None and len(found.skill.requires.bins) == 20
    assert "21 names" in errors(found)[0][1]
