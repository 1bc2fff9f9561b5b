"""The journal of changes to memory: what is listed, what undo restores, and what a kill leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.running import environment
from nexus.errors import NotFound
from nexus.workspace.memory import changes, files
from nexus.workspace.memory.changes import PROFILE, StoredFact
from nexus.workspace.memory.notebook import Notebook
from support.errors import has_code
from workspace.memory.rows import book


def facts(notes: Notebook) -> list[tuple[str, str]]:
    return [(fact.section, fact.text) for fact in notes.facts()]


def listed(notes: Notebook) -> list[tuple[str, list[str], list[str], int]]:
    return [
        (one.by, [fact.text for fact in one.added], [fact.text for fact in one.removed], one.undone_by)
        for one in notes.changes()
    ]


def test_changes_list_each_command_with_its_facts(tmp_path: Path) -> None:
    notes = book(tmp_path)
    assert notes.changes() == []
    notes.add("one", section="People")
    notes.add("two")
    notes.forget("one")
    notes.write("- two\n- three\n")
    notes.write("- two\n- three\n")
    assert listed(notes) == [
        ("add", ["one"], [], 0),
        ("add", ["two"], [], 0),
        ("forget", [], ["one"], 0),
        ("write", ["three"], [], 0),
    ]
    first = notes.changes()[0]
    assert (first.number, first.at, first.added[0].section) == (1, "2026-03-06 14:30", "People")


def test_undo_takes_back_the_newest_change_and_keeps_edits_by_hand(tmp_path: Path) -> None:
    notes = book(tmp_path)
    notes.add("one")
    notes.forget("one")
    path = tmp_path / "memory/MEMORY.md"
    path.write_text(f"{path.read_text()}\n## Mine\n\n- by hand\n")
    undone = notes.undo()
    assert (undone.by, undone.of, undone.number) == ("undo", 2, 3)
    assert sorted(facts(notes)) == [("Facts", "one"), ("Mine", "by hand")]
    assert notes.undo().of == 1
    assert facts(notes) == [("Mine", "by hand")]
    with pytest.raises(NotFound, match="no change to undo", check=has_code("no_such_fact")):
        notes.undo()
    assert [entry.text.partition(" ")[0] for entry in notes.entries()] == ["Forgotten", "Undone"]


def test_undone_change_is_restored_by_undoing_the_undo(tmp_path: Path) -> None:
    notes = book(tmp_path)
    notes.add("one")
    notes.undo(1)
    with pytest.raises(NotFound, match="already undone, by change 2", check=has_code("no_such_fact")):
        notes.undo(1)
    notes.undo(2)
    assert facts(notes) == [("Facts", "one")]
    notes.undo(1)
    assert facts(notes) == [] and [one.undone_by for one in notes.changes()] == [4, 3, 0, 0]


def test_undo_of_a_fact_that_was_edited_says_why_and_changes_nothing(tmp_path: Path) -> None:
    notes = book(tmp_path)
    notes.add("one")
    path = tmp_path / "memory/MEMORY.md"
    path.write_text(path.read_text().replace("one", "one and a half"))
    before = path.read_bytes(), len(list(notes.entries()))
    with pytest.raises(NotFound, match="change 1 cannot be undone", check=has_code("no_such_fact")):
        notes.undo(1)
    with pytest.raises(NotFound, match="change 9 not found", check=has_code("no_such_fact")):
        notes.undo(9)
    assert (path.read_bytes(), len(list(notes.entries()))) == before and len(notes.changes()) == 1


def test_undo_keeps_a_fact_that_a_later_change_added_again(tmp_path: Path) -> None:
    notes = book(tmp_path)
    notes.add("one")
    notes.forget("one")
    notes.add("one")
    with pytest.raises(NotFound, match="cannot be undone", check=has_code("no_such_fact")):
        notes.undo(1)
    assert facts(notes) == [("Facts", "one")]


def test_fact_without_date_and_heading_is_restored(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("- bare\n- 2026-01-01: dated\n\nA paragraph\nof two lines.\n")
    notes = book(tmp_path)
    for _ in range(3):
        notes.forget("1")
    for _ in range(3):
        notes.undo()
    found = {(fact.date, fact.text) for fact in notes.facts()}
    assert found == {("", "bare"), ("2026-01-01", "dated"), ("", "A paragraph\nof two lines.")}


@pytest.mark.parametrize("principal", ["", "telegram:42"])
def test_profile_keeps_its_form_and_is_undone(tmp_path: Path, principal: str) -> None:
    fact = StoredFact(PROFILE, "", "", "I live in Lisbon.", principal)
    forms: tuple[dict[str, Any], ...] = (
        {"prompt_overrides": {"friends_profile": {"content": "I like tea.", "editable": True}}, "x": 1},
        {"friends_profile": ["I like tea."]},
        {"learning": "I like tea."},
    )
    notes = book(tmp_path, tmp_path / "home")
    assert notes.profiles is not None
    notes.profiles.put("zoe", {"friends_profile": "I like maps."})
    for form in forms:
        notes.profiles.put(principal, form)
        notes.revise("accept", added=[fact])
        assert notes.profile(principal) == ["I like tea.", "I live in Lisbon."]
        notes.undo()
        assert notes.profiles.read(principal) == (form, ())
    notes.profiles.put(principal, {})
    notes.revise("accept", added=[fact])
    assert notes.profiles.read(principal) == ({"friends_profile": "I live in Lisbon."}, ())
    assert notes.profile("zoe") == ["I like maps."]


KILLS = ("changes.begin", "files.append", "files.change", "changes.finish")
"""Steps of a change, in order: journal, log, memory file, journal."""

KILLER = """
import os, sys
from nexus.workspace.memory import changes, files
from nexus.workspace.memory.notebook import Notebook
module, name = sys.argv[2].split(".")
real = getattr({"changes": changes, "files": files}[module], name)
calls = []
def step(root, file, *rest, **named):
    # The journal is appended to by `files.append` too: only the log counts here.
    counts = name != "append" or "HISTORY" in str(file)
    if counts and sys.argv[3] == "before":
        os._exit(9)
    result = real(root, file, *rest, **named)
    if counts:
        os._exit(9)
    return result
setattr({"changes": changes, "files": files}[module], name, step)
Notebook(sys.argv[1]).forget("old") if sys.argv[4] == "forget" else Notebook(sys.argv[1]).add("new")
"""


@pytest.mark.parametrize("command", ["add", "forget"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", KILLS)
def test_kill_leaves_an_undoable_or_no_change_and_no_fact_is_lost(
    tmp_path: Path, step: str, when: str, command: str
) -> None:
    notes = Notebook(tmp_path)
    notes.write("- kept\n- old\n")
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, tmp_path, step, when, command], env=environment(), check=False
    )
    if (step, command) == ("files.append", "add"):  # an addition has no log entry
        assert killed.returncode == 0
    else:
        assert killed.returncode == 9
    after = {fact.text for fact in notes.facts()}
    is_changed = after != {"kept", "old"}
    assert after in ({"kept", "old"}, {"kept", "old", "new"} if command == "add" else {"kept"})
    assert [one.by for one in notes.changes()] == ["write", command][: 1 + is_changed]
    notes.add("later")
    assert [one.by for one in notes.changes()] == [*["write", command][: 1 + is_changed], "add"]
    if is_changed:
        notes.undo(notes.changes()[1].number)
    assert {fact.text for fact in notes.facts()} == {"kept", "old", "later"}


def test_torn_line_of_the_journal_is_skipped(tmp_path: Path) -> None:
    notes = book(tmp_path)
    notes.add("one")
    with (tmp_path / changes.JOURNAL).open("a") as journal:
        journal.write('{"change": {"num')
    notes.add("two")
    assert [one.number for one in notes.changes()] == [1, 2]
    assert notes.undo().of == 2


@given(st.lists(st.tuples(st.sampled_from(["add", "forget", "undo"]), st.integers(0, 5)), max_size=8))
def test_law_undo_of_everything_restores_the_first_facts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    notes = book(tmp_path_factory.mktemp("book"))
    notes.write("- first\n- second\n")
    for step, at in steps:
        known = [fact.text for fact in notes.facts()]
        if step == "add" and f"fact {at}" not in known:
            notes.add(f"fact {at}")
        elif step == "forget" and known:
            notes.forget(str(at % len(known) + 1))
        elif step == "undo" and len(notes.changes()) > 1:
            made = [one for one in notes.changes()[1:] if not one.undone_by and one.by != "undo"]
            if made:
                notes.undo(made[-1].number)
    while made := [one for one in notes.changes()[1:] if not one.undone_by and one.by != "undo"]:
        notes.undo(made[-1].number)
    assert {fact.text for fact in notes.facts()} == {"first", "second"}
    assert files.read(notes.root, notes.file).text.count("- ") == 2
