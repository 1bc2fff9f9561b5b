"""What a survey finds: the state of each capability, by what its skill requires, what was used and what was checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nexus.types.environment import Capability, Environment
from nexus.workspace.credentials import index
from nexus.workspace.credentials.index import CredentialEntry
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.environment.machine import EnvironmentSnapshot, Probe
from nexus.workspace.environment.survey import MAX_SNAPSHOTS, Surveys, survey
from nexus.workspace.files.reader import Files
from nexus.workspace.skills.discovery import SkillIndex
from nexus.workspace.source_context import EngineWorkspace
from nexus.workspace.sources.session_blocks import environment_text
from support.skills import write_skill

OWN = "NEXUS_CREDENTIAL_TWITTER"


class Place:
    """A workspace and a user's folder, with variables."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.home = root / "ws", root / "home"
        self.workspace.mkdir()
        self.variables: dict[str, str] = {}

    def look(self) -> Environment:
        own = SkillIndex(Files(self.workspace / "no packaged skills"))
        around = EngineWorkspace(Files(self.workspace), Files(self.home), skill_index=own)
        credentials = Credentials(self.home, self.variables)
        return survey(around, credentials, 42, Probe(credentials.has_variable))

    def one(self) -> Capability:
        found = self.look()
        assert len(found.capabilities) == 1
        return found.capabilities[0]

    def use(self, text: str) -> None:
        (self.workspace / ".nexus").mkdir(exist_ok=True)
        (self.workspace / ".nexus" / "used.json").write_text(text, "utf-8")

    def note(self, entry: CredentialEntry) -> None:
        index.change(self.home, lambda known: {**known, entry.name: entry}.values())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_survey_is_empty_without_skills_and_credentials(place: Place) -> None:
    assert place.look() == Environment(at_ms=42)
    assert environment_text(place.look()) == ""


def test_skill_without_requirements_is_ready_in_general(place: Place) -> None:
    write_skill(place.workspace, "notes")
    assert place.one() == Capability("notes", "General", "ready", skill="notes")


def test_skill_is_listed_by_provided_capabilities(place: Place) -> None:
    write_skill(place.workspace, "mail", category="Communication", provides=["email-send", "email-read"])
    found = place.look().capabilities
    assert [(one.category, one.name, one.skill) for one in found] == [
        ("Communication", "email-read", "mail"), ("Communication", "email-send", "mail")
    ]  # fmt: skip


def test_better_state_counts_for_same_capability(place: Place) -> None:
    write_skill(place.workspace, "a", provides=["read"], requires={"env": ["NOT_SET"]})
    write_skill(place.workspace, "b", provides=["read"])
    assert (place.one().skill, place.one().state) == ("b", "ready")


MISSING: list[tuple[dict[str, list[str]], str, tuple[str, ...]]] = [
    ({"env": ["NEWS_API_KEY"]}, "needs API key", ("variable NEWS_API_KEY is not set",)),
    ({"env": ["NEWS_TOKEN"]}, "needs token", ("variable NEWS_TOKEN is not set",)),
    ({"env": ["NEWS_HOST"]}, "needs NEWS_HOST", ("variable NEWS_HOST is not set",)),
    ({"bins": ["no-such-program"]}, "needs no-such-program", ("program no-such-program is not on the path",)),
    ({"bins": ["../../bin/sh"]}, "needs a program", ("'../../bin/sh' is not a valid program name",)),
    ({"bins": ["/bin/sh"]}, "needs a program", ("'/bin/sh' is not a valid program name",)),
    ({"env": ["A=B"]}, "needs a variable", ("'A=B' is not a valid variable name",)),
    ({"credentials": ["twitter"]}, "needs twitter credential", ("credential twitter is not configured",)),
    ({"credentials": ["../x\n"]}, "needs a credential", ("'../x' is not a valid credential name",)),
    ({"credentials": ["twitter"], "env": ["TWITTER_TOKEN"]}, "needs token", ("variable TWITTER_TOKEN is not set",)),
    ({"any_bins": ["no-a", "no-b"]}, "needs no-a or no-b", ("none of the programs no-a, no-b is on the path",)),
]


@pytest.mark.parametrize(("requires", "needs", "why"), MISSING, ids=[needs for _, needs, _ in MISSING])
def test_missing_requirements_have_short_labels_and_sentences(
    place: Place, requires: dict[str, list[str]], needs: str, why: tuple[str, ...]
) -> None:
    write_skill(place.workspace, "news", requires=requires)
    found = place.one()
    assert (found.state, found.needs, found.why) == ("setup", needs, why)


def test_needs_over_three_are_counted(place: Place) -> None:
    write_skill(place.workspace, "news", requires={"env": ["E_A", "E_B", "E_C", "E_D", "E_E"]})
    assert place.one().needs == "needs E_A, E_B, E_C and 2 more"
    assert len(place.one().why) == 5


def test_skill_is_ready_when_all_requirements_exist(place: Place) -> None:
    requires = {"bins": ["sh"], "any_bins": ["no-such-program", "sh"], "env": ["HOST"], "credentials": ["twitter"]}
    write_skill(place.workspace, "news", requires=requires)
    place.variables.update({"HOST": "x", OWN: "canary"})
    assert (place.one().state, place.one().credentials) == ("ready", ("twitter",))
    place.variables["HOST"] = ""
    assert place.one().state == "setup"


def test_declared_variable_can_provide_credential(place: Place) -> None:
    write_skill(place.workspace, "social", requires={"credentials": ["twitter"], "env": ["TWITTER_TOKEN"]})
    place.variables["TWITTER_TOKEN"] = "canary"
    assert (place.one().state, place.look().credentials) == ("ready", 1)


def test_used_or_checked_skill_is_active(place: Place) -> None:
    write_skill(place.workspace, "notes")
    place.use('{"notes": 1700000000000}')
    assert place.one().state == "active"
    place.use("{}")
    write_skill(place.workspace, "notes", requires={"credentials": ["twitter"]})
    place.note(CredentialEntry("twitter", "keyring", "nexus"))
    assert place.one().state == "ready"
    place.note(CredentialEntry("twitter", "keyring", "nexus", state="ok"))
    assert place.one().state == "active"


def test_broken_credential_makes_used_skill_broken(place: Place) -> None:
    write_skill(place.workspace, "social", requires={"credentials": ["twitter"]})
    place.use('{"social": 5}')
    place.note(CredentialEntry("twitter", "keyring", "nexus", state="broken"))
    assert (place.one().state, place.one().why) == ("broken", ("credential twitter is marked as broken",))
    assert (place.look().credentials, place.look().broken) == (1, ("twitter",))


def test_missing_credential_is_not_configured(place: Place) -> None:
    write_skill(place.workspace, "social", requires={"credentials": ["twitter"]})
    place.note(CredentialEntry("twitter", "keyring", "nexus", state="missing"))
    assert (place.one().state, place.look().credentials) == ("setup", 0)


@pytest.mark.parametrize("text", ["[]", "5", "null", "not json", '"x"', "[" * 100_000, '{"a": 1,', "\ufeff[]"])
def test_invalid_usage_file_is_a_warning(place: Place, text: str) -> None:
    write_skill(place.workspace, "notes")
    place.use(text)
    found = place.look()
    assert found.capabilities[0].state == "ready"
    assert [one.source for one in found.warnings] == [".nexus/used.json"]


@pytest.mark.parametrize("value", ["x", None, True, -1, 1.5, [], {}])
def test_invalid_usage_time_is_ignored(place: Place, value: Any) -> None:
    write_skill(place.workspace, "notes")
    write_skill(place.workspace, "other")
    place.use(json.dumps({"notes": value, "other": 5}))
    found = place.look()
    assert [one.state for one in found.capabilities] == ["ready", "active"]
    assert [one.message for one in found.warnings] == ["1 of 2 times are invalid and ignored"]


def test_huge_usage_time_is_accepted(place: Place) -> None:
    write_skill(place.workspace, "notes")
    place.use('{"notes": 1' + "0" * 5_000 + "}")
    assert place.one().state in ("ready", "active")


def test_long_usage_file_is_read_completely(place: Place) -> None:
    write_skill(place.workspace, "notes")
    place.use(json.dumps({**{f"skill-{number}": number for number in range(9_000)}, "notes": 1}))
    assert place.one().state == "active"


def test_usage_file_outside_workspace_is_not_read(place: Place, tmp_path: Path) -> None:
    write_skill(place.workspace, "notes")
    (tmp_path / "used.json").write_text('{"notes": 1}')
    (place.workspace / ".nexus").mkdir()
    (place.workspace / ".nexus" / "used.json").symlink_to(tmp_path / "used.json")
    assert place.one().state == "ready"
    assert "outside" in place.look().warnings[0].message
    (place.workspace / ".nexus" / "used.json").unlink()
    os.mkfifo(place.workspace / ".nexus" / "used.json")
    assert place.one().state == "ready"


FORGED = ["a ✅ | b", "x, y", "x (ready)", "Social: y", "a\u202eb", "`x`", "", "x" * 65, "a|b"]


@pytest.mark.parametrize("name", FORGED)
def test_name_cannot_imitate_list_syntax(place: Place, name: str) -> None:
    write_skill(place.workspace, "evil", provides=[name, "fine"], category=name)
    found = place.look()
    assert [(one.category, one.name) for one in found.capabilities] == [("General", "fine")]
    assert environment_text(found).count("\n") == environment_text(Environment(found.capabilities)).count("\n")
    assert [one.source for one in found.warnings] == ["skills/evil/SKILL.md"] * (2 if name else 0)


def test_names_may_be_in_any_script(place: Place) -> None:
    write_skill(place.workspace, "mail", provides=["邮件-read", "C++", "Ünï 2.0"], category="Büro & Haus/Hof")
    assert [one.name for one in place.look().capabilities] == ["C++", "Ünï 2.0", "邮件-read"]


def test_damaged_credential_index_is_a_warning_without_fallback(place: Place) -> None:
    write_skill(place.workspace, "social", requires={"credentials": ["twitter"]})
    place.home.mkdir()
    (place.home / index.FILE).write_text("{")
    found = place.look()
    assert (found.credentials, found.capabilities[0].state) == (0, "setup")
    assert "credentials.json is not JSON (left unchanged" in found.warnings[0].message


def test_survey_contains_no_secret_values(place: Place) -> None:
    write_skill(place.workspace, "social", requires={"credentials": ["twitter"], "env": ["TWITTER_TOKEN"]})
    place.variables.update({OWN: "canary-1", "TWITTER_TOKEN": "canary-2"})
    assert "canary" not in repr(place.look())


def test_survey_is_cached_by_session_and_checkpoint() -> None:
    """Document 002, "Open Questions" 1: "How often do we regenerate it?" """
    surveys = Surveys(lambda _at_ms: EnvironmentSnapshot())
    first = surveys.of("main", None, 0)
    assert surveys.of("main", 7, 0) is first, "the session got its thread when its first turn was stored"
    assert surveys.of("main", 7, 3) is not first, "a compaction came"
    assert surveys.of("main", 7, 0) is first, "it was undone"
    assert surveys.of("main", 8, 0) is not first, "a new session of that name"
    surveys.forget()
    assert surveys.of("main", 7, 0) is not first
    for number in range(MAX_SNAPSHOTS):
        surveys.of(f"s{number}", None, 0)
    assert len(surveys._snapshots) == MAX_SNAPSHOTS
