"""Consolidation of sessions: what is proposed again, accepted and rejected, and what compaction does by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import NotFound, UnreadableFile
from nexus.types.config import Config
from nexus.types.message import assistant
from nexus.workspace.memory import consolidation
from nexus.workspace.memory.consolidation import accept, propose, reject
from nexus.workspace.memory.notebook import Notebook
from support.errors import has_code

AT_MS = 1_772_807_400_000
"""2026-03-06 14:30 UTC."""


def opened(root: Path, consolidate: Any = "off") -> Engine:
    return nexus.open(
        root,
        ledger=":memory:",
        model="gpt-4o",
        clock_ms=lambda: AT_MS,
        home=root / "home",
        config=Config(consolidate=consolidate),
        local_user=True,
    )


def say(nx: Engine, *texts: str, session: str = "main", principal: str | None = None) -> None:
    for text in texts:
        ctx = nx.assemble(text, session=session, budget=9_000, principal=principal)
        nx.record(ctx, nexus.AgentResult((assistant("Done."),)))


def texts(found: consolidation.Proposals) -> list[str]:
    return [one.text for one in found.proposals]


def facts(notes: Notebook) -> list[tuple[str, str, str]]:
    return [(fact.section, fact.date, fact.text) for fact in notes.facts()]


def test_accepted_facts_are_one_change_with_their_sections_and_dates(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "My name is Ana. Never push to main.", "We decided to use GIN indexes for search.")
    proposed = propose(notes, nx.ledger, ["main"])
    assert [source.session for one in proposed.proposals for source in one.sources] == ["main"] * 3
    done = accept(notes, None)
    assert done.change is not None and [one.by for one in notes.changes()] == ["accept"]
    assert facts(notes) == [
        ("User", "2026-03-06", "My name is Ana."),
        ("Rules", "2026-03-06", "Never push to main."),
        ("Decisions", "2026-03-06", "We decided to use GIN indexes for search."),
    ]
    assert texts(propose(notes, nx.ledger, ["main"])) == []
    assert [entry.text for entry in notes.entries()] == [
        "Session 'main' (2026-03-06): My name is Ana. Never push to main."
    ]


def test_fact_that_a_person_declined_is_not_proposed_again(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "I prefer tabs.", "I live in Lisbon.", "I work as a nurse.", "I have two kids.", "My name is Ana.")
    found = propose(notes, nx.ledger, ["main"]).proposals
    reject(notes, [found[0].id])
    accept(notes, [found[1].id])
    notes.forget("I live in Lisbon.")
    notes.undo(accept(notes, [found[2].id]).change.number)  # pyright: ignore[reportOptionalMemberAccess]
    notes.add("i have TWO kids")
    assert texts(propose(notes, nx.ledger, ["main"])) == ["My name is Ana."]
    assert [one.id for one in propose(notes, nx.ledger, []).proposals] == [found[4].id]


def test_later_statement_replaces_the_fact_in_memory_and_undo_restores_it(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    notes.add("I live in Lisbon.", section="People")
    say(nx, "Actually, I live in Porto.")
    (found,) = propose(notes, nx.ledger, ["main"]).proposals
    assert found.replaces == "I live in Lisbon."
    accept(notes, [found.id])
    assert [fact.text for fact in notes.facts()] == ["I live in Porto."]
    assert next(entry.text for entry in notes.entries()) == "Replaced (People, 2026-03-06): I live in Lisbon."
    notes.undo()
    assert facts(notes) == [("People", "2026-03-06", "I live in Lisbon.")]


def test_memory_that_is_newer_than_the_message_is_not_replaced(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    (tmp_path / "MEMORY.md").write_text("- 2026-05-01: I live in Porto.\n")
    say(nx, "I live in Lisbon.")
    assert texts(propose(nx.memory.notebook(), nx.ledger, ["main"])) == []


def test_later_session_replaces_the_proposal_of_an_earlier_one(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    say(nx, "I live in Lisbon.", "I prefer tabs.")
    say(nx, "I live in Porto.", "I prefer tabs!", session="other")
    found = propose(nx.memory.notebook(), nx.ledger, ["main", "other"]).proposals
    assert [(one.text, [source.session for source in one.sources]) for one in found] == [
        ("I prefer tabs.", ["main", "other"]),
        ("I live in Porto.", ["other"]),
    ]


@pytest.mark.parametrize("principal", ["", "telegram:42"])
def test_facts_about_the_user_go_to_their_profile_if_there_is_one(tmp_path: Path, principal: str) -> None:
    nx = opened(tmp_path)
    nx.user_profiles.put(principal, {"friends_profile": "I like tea."})
    notes = nx.memory.notebook()
    say(nx, "I live in Lisbon. Never push to main.", principal=principal or None)
    propose(notes, nx.ledger, ["main"])
    accept(notes, None)
    assert nx.user_profiles.read(principal)[0] == {"friends_profile": "I like tea.\nI live in Lisbon."}
    assert [fact.text for fact in notes.facts()] == ["Never push to main."]
    shown = nx.assemble("hi", profile="tagged", principal=principal or None, session="other")
    assert "I live in Lisbon." in json.dumps(shown.to_openai())
    notes.undo()
    assert nx.user_profiles.read(principal)[0] == {"friends_profile": "I like tea."} and notes.facts() == []


def test_each_fact_goes_to_the_profile_of_its_own_principal(tmp_path: Path) -> None:
    """A group, a session of one person, and one of the local user: each profile has its owner's facts alone."""
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "I live in Lisbon.", session="group:team", principal="zoe")
    say(nx, "I live in Porto.", session="group:team", principal="bob")
    say(nx, "I prefer tabs.", session="dm:ada")
    say(nx, "I prefer spaces.", "I live in Rome.")
    found = propose(notes, nx.ledger, ["group:team", "dm:ada", "main"]).proposals
    assert [(one.text, one.principal) for one in found] == [
        ("I live in Lisbon.", "zoe"),
        ("I live in Porto.", "bob"),
        ("I prefer tabs.", "ada"),
        ("I prefer spaces.", ""),
        ("I live in Rome.", ""),
    ]
    done = accept(notes, None, "profile")
    profiles = {name: notes.profile(name) for name in ("zoe", "bob", "ada", "", "eve")}
    assert profiles == {
        "zoe": ["I live in Lisbon."],
        "bob": ["I live in Porto."],
        "ada": ["I prefer tabs."],
        "": ["I prefer spaces.", "I live in Rome."],
        "eve": [],
    }
    assert done.waiting == () and notes.facts() == []
    notes.undo()
    assert not any(notes.profile(name) for name in profiles)


def test_fact_of_an_unknown_person_waits_and_is_in_no_profile(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "I live in Lisbon.", principal="zoe")
    say(nx, "I prefer tabs.")  # a program, in a session with principals
    propose(notes, nx.ledger, ["main"])
    done = accept(notes, None, "profile", nx.ledger)
    assert [one.text for one in done.waiting] == ["I prefer tabs."]
    assert notes.profile("") == [] and notes.profile("zoe") == ["I live in Lisbon."]
    assert texts(propose(notes, nx.ledger, [])) == ["I prefer tabs."]
    assert accept(notes, None, "memory").waiting == () and [fact.text for fact in notes.facts()] == ["I prefer tabs."]


@pytest.mark.parametrize(
    ("session", "principals", "owner"),
    [("main", [None], ""), ("dm:ada", [None], "ada"), ("main", ["zoe"], "zoe"), ("main", ["zoe", None], None)],
)
def test_stored_proposal_without_its_principal_goes_to_the_only_one_of_its_session(
    tmp_path: Path, session: str, principals: list[str | None], owner: str | None
) -> None:
    """Earlier versions did not store whose a proposal is."""
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    for principal in principals:
        say(nx, "I live in Lisbon.", session=session, principal=principal)
    propose(notes, nx.ledger, [session])
    store = tmp_path / consolidation.STORE
    stored = json.loads(store.read_text())
    for proposal in stored["pending"]:
        del proposal["principal"]
    store.write_text(json.dumps(stored))
    assert accept(notes, None, "profile").proposals == ()  # without the ledger it is unknown
    done = accept(notes, None, "profile", nx.ledger)
    owned = {name: notes.profile(name) for name in ("", "ada", "zoe") if notes.profile(name)}
    assert owned == ({} if owner is None else {owner: ["I live in Lisbon."]})
    assert bool(done.waiting) == (owner is None)


def test_engine_of_a_program_keeps_facts_out_of_the_local_users_profile(tmp_path: Path) -> None:
    with nexus.open(tmp_path, ledger=":memory:", home=tmp_path / "home") as nx:
        say(nx, "I live in Lisbon.")
        notes = nx.memory.notebook()
        propose(notes, nx.ledger, ["main"])
        assert [one.text for one in accept(notes, None, "profile", nx.ledger).waiting] == ["I live in Lisbon."]
        assert not (tmp_path / "home" / "user.json").exists()


def test_target_log_adds_entries_and_no_facts(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "I live in Lisbon.")
    propose(notes, nx.ledger, ["main"])
    assert accept(notes, None, "log").change is None
    assert notes.facts() == [] and "I live in Lisbon." in [entry.text for entry in notes.entries()]
    assert texts(propose(notes, nx.ledger, ["main"])) == []


def test_model_proposals_wait_until_they_are_accepted(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "The deploy goes to Hetzner.")
    answer = json.dumps([{"text": "Deploys go to Hetzner.", "kind": "fact", "about": "work", "messages": [1]}, 7])
    found = propose(notes, nx.ledger, ["main"], ask=lambda _: answer, model="m")
    assert [one.by for one in found.proposals] == ["m"] and found.dropped == {"not in the form that was asked for": 1}
    assert texts(propose(notes, nx.ledger, ["main"])) == ["Deploys go to Hetzner."]
    accept(notes, [found.proposals[0].id])
    assert facts(notes) == [("Facts", "2026-03-06", "Deploys go to Hetzner.")]


def test_text_that_markdown_or_a_terminal_would_obey_is_stored_as_text_or_dropped(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "# Rules of 2026: always test. <!-- I use vim")
    texts_of_model = (
        "# Rules",
        "- always test",
        "2026: test",
        "```",
        "<!-- test",
        "always \x1b[2J test",
        "1. test",
        "| a | b |",
    )
    items = [{"text": text, "kind": "rule", "about": "work", "messages": [1]} for text in texts_of_model]
    proposed = propose(notes, nx.ledger, ["main"], ask=lambda _: json.dumps(items), model="m").proposals
    assert all(one.text.isprintable() for one in proposed)
    change = accept(notes, None).change
    assert change is not None and [fact.text for fact in notes.facts()] == [fact.text for fact in change.added]
    assert {fact.text for fact in change.added} == {one.text for one in proposed}
    notes.undo()
    assert notes.facts() == []


def test_unknown_id_and_damaged_store_are_errors_and_change_nothing(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    notes = nx.memory.notebook()
    say(nx, "I live in Lisbon.")
    (found,) = propose(notes, nx.ledger, ["main"]).proposals
    for decide in (accept, reject):
        with pytest.raises(NotFound, match="'nope'", check=has_code("no_such_fact")):
            decide(notes, [found.id, "nope"])
    assert notes.facts() == [] and texts(propose(notes, nx.ledger, [])) == [found.text]
    (tmp_path / consolidation.STORE).write_text("{")
    with pytest.raises(UnreadableFile, match="damaged"):
        accept(notes, None)


def test_proposing_nothing_creates_no_file(tmp_path: Path) -> None:
    nx = opened(tmp_path)
    say(nx, "Please fix the bug.")
    assert texts(propose(nx.memory.notebook(), nx.ledger, ["main"])) == []
    assert not (tmp_path / ".nexus").exists()


LONG = "Please look at this line of the output. " * 60


@pytest.mark.parametrize(
    ("mode", "line", "remembered"),
    [
        ("off", "", []),
        ("propose", "1 fact proposed: nexus memory propose", []),
        ("add", "1 fact added to memory (revert: nexus memory undo 1)", ["I prefer tabs."]),
    ],
)
def test_compaction_consolidates_as_configured(tmp_path: Path, mode: str, line: str, remembered: list[str]) -> None:
    nx = opened(tmp_path, mode)
    say(nx, "I prefer tabs.", *(f"{at} {LONG}" for at in range(12)))
    done = nx.compact(budget=9_000)
    assert done and done.memory == line
    notes = nx.memory.notebook()
    assert [fact.text for fact in notes.facts()] == remembered
    logged = [entry.text.partition(":")[0] for entry in notes.entries()]
    assert logged == ([] if mode == "off" else ["Session 'main' (2026-03-06)"])
    # The end of a chat says what still waits, and adds nothing twice.
    assert nx.memory.consolidate("main") == (line if mode == "propose" else "")
    assert [entry.text.partition(":")[0] for entry in notes.entries()] == logged


def test_failed_consolidation_is_a_line_and_no_failed_compaction(tmp_path: Path) -> None:
    nx = opened(tmp_path, "add")
    say(nx, "I prefer tabs.", *(f"{at} {LONG}" for at in range(12)))
    (tmp_path / "MEMORY.md").mkdir()
    done = nx.compact(budget=9_000)
    assert done and done.memory.startswith("memory not consolidated: ") and "MEMORY.md" in done.memory


def test_sessions_of_workers_and_unknown_ones_are_not_consolidated(tmp_path: Path) -> None:
    nx = opened(tmp_path, "propose")
    say(nx, "Spawn a worker.")
    say(nx, "Never push to main.", session="main+1")
    assert nx.memory.consolidate("main+1") == "1 fact proposed: nexus memory propose"
    nx.ledger.sessions.update("main+1", "spawned", parent_session="main")
    assert nx.memory.consolidate("main+1") == nx.memory.consolidate("none") == ""
