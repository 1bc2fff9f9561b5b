"""`nexus status`: what works here, and what does not and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Ran, run
from support.skills import SHELL, write_skill


@pytest.fixture
def here(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXUS_CREDENTIAL_MAIL", "x")
    monkeypatch.delenv("NEWS_API_KEY", raising=False)
    write_skill(empty, "mail", category="Communication", provides=["email-read"], requires={"credentials": ["mail"]})
    write_skill(empty, "news", category="Social", requires={"env": ["NEWS_API_KEY"]})
    return empty


def status(folder: Path, *args: str) -> Ran:
    done = run("status", *args, folder=folder)
    assert (done.code, done.err) == (0, "")
    return done


def test_it_shows_places_capabilities_credentials_and_what_is_missing(here: Path) -> None:
    lines = status(here).out.split("\n")
    assert lines[:3] == [
        f"workspace   {here}",
        f"ledger      {here / '.nexus' / 'ledger.db'}{'' if (here / '.nexus' / 'ledger.db').exists() else ' (not created yet)'}",
        "model       claude-sonnet-5-5",
    ]
    assert lines[4:] == [
        "Capabilities",
        "  Communication: email-read [ready]",
        "  Memory: past-conversations [ready]",
        "  Social: news [needs API key]",
        "",
        "Credentials",
        "  1 configured",
        "",
        "Skills that cannot be used",
        "skill  reason",
        "news   variable NEWS_API_KEY is not set",
        "",
    ]


def test_the_condensed_snapshot_has_what_the_context_is_made_from(here: Path) -> None:
    """Document 002, "3. Nexus Environment": equivalent to `nexus status --json --brief` rendered as context."""
    found = status(here, "--json", "--brief").json
    assert found.pop("snapshotAt") > 1_700_000_000_000
    assert found == {
        "capabilityCount": 3,
        "capabilities": [
            {"category": "Communication", "state": "ready", "needs": "", "names": ["email-read"]},
            {"category": "Memory", "state": "ready", "needs": "", "names": ["past-conversations"]},
            {"category": "Social", "state": "setup", "needs": "needs API key", "names": ["news"]},
        ],
        "credentials": {"configured": 1, "broken": []},
    }
    assert status(here, "--brief").out == (
        "Capabilities\n  Communication: email-read [ready]\n  Memory: past-conversations [ready]\n"
        "  Social: news [needs API key]\n\n"
        "Credentials\n  1 configured\n"
    )


def test_the_whole_as_json_says_why_a_skill_cannot_be_used(here: Path) -> None:
    found = status(here, "--json").json
    assert found["unusable"] == [{"skill": "news", "why": ["variable NEWS_API_KEY is not set"]}]
    assert found["workspace"] == str(here)
    assert found["ledger"] == str(here / ".nexus" / "ledger.db")
    assert [one["skill"] for one in found["capabilities"]] == ["mail", "past-conversations", "news"]
    assert found["warnings"] == []


def test_what_the_context_says_is_what_the_status_says(here: Path) -> None:
    (here / "tools.json").write_text(json.dumps(SHELL))
    text = run("assemble", "hi", "--tools", "tools.json", "--as", "text", folder=here).out
    assert (
        "Communication: email-read ⭐ (ready)\nMemory: past-conversations ⭐ (ready)\nSocial: news 🔧 (needs API key)\n"
        in text
    )
    assert "### Credentials\n1 configured\n" in text


def test_warnings_are_shown(here: Path) -> None:
    (here / ".nexus").mkdir(exist_ok=True)
    (here / ".nexus" / "used.json").write_text("[]")
    assert status(here).out.endswith("Warnings\n  .nexus/used.json: not used: not a JSON object of names and times\n")
    assert status(here, "--json").json["warnings"][0]["origin"] == ".nexus/used.json"


def test_an_empty_folder_has_the_packaged_skills_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    assert "past-conversations [ready]\n\nCredentials\n  0 configured" in status(tmp_path / "ws").out
    assert not (tmp_path / "ws" / ".nexus").exists()
    assert not (tmp_path / "home").exists()


def test_names_have_no_power_over_a_terminal(here: Path) -> None:
    write_skill(here, "evil", provides=["\x1b[31m"], requires={"bins": ["\x1b[31m\u202e"], "env": ["\x9b\n"]})
    for args in ((), ("--json",), ("--brief",)):
        assert not {"\x1b", "\x9b", "\u202e"} & set(status(here, *args).out)
