"""The commands on sessions: look, fork, rewind, undo, pin, search, names, archive, erase. Real ledgers, real arguments."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import nexus
import nexus.cli
from cli.running import ESCAPE, Ran, environment, run
from cli.stored import rows_of
from nexus.assembly.record import with_sizes
from nexus.cli import COMMANDS
from nexus.engine import Engine
from nexus.ledger.sessions import SessionMetadata
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import Compaction, SizedMessage
from nexus.types.message import Message, Thinking, ToolCall, assistant, tool, user

COUNTER = get_counter("estimate")
SUMMARY = "They chose a GIN index."


def of(*messages: Message) -> tuple[SizedMessage, ...]:
    return with_sizes(messages, COUNTER)


def opened(folder: Path) -> Engine:
    return nexus.open(workspace=folder, counter=COUNTER)


def said(nx: Engine, session: str, *pairs: tuple[str, str]) -> None:
    """Closed turns of a question and an answer: two entries each."""
    for asked, answered in pairs:
        nx.ledger.open_turn(session, of(user(asked), assistant(answered)))
        nx.ledger.close_turn(session, model="m-1", usage={"input_tokens": 1200, "cache_read_tokens": 1000})


PAIRS = (("Which index?", "GIN."), ("Why?", "Bigrams."), ("And the nightly rebuild?", "At three."))


@pytest.fixture
def folder(empty: Path) -> Path:
    """A workspace with the session `main`: three turns, entries 1 to 6."""
    with opened(empty) as nx:
        said(nx, "main", *PAIRS)
    return empty


def compacted(folder: Path, session: str = "main") -> None:
    """Compacts the first two turns: entry 7, which keeps what follows from entry 5."""
    with opened(folder) as nx:
        nx.ledger.compact(session, Compaction(1, 4, 5, SUMMARY), after_checkpoint=0)


def texts(folder: Path, session: str, *options: str) -> list[str]:
    """What was said in a session, from its history as JSON."""
    entries = run("history", session, "--json", *options, folder=folder).json
    return [part["text"] for entry in entries for message in entry["messages"] for part in message["parts"]]


def labels(folder: Path, *options: str) -> list[str]:
    return sorted(one["label"] for one in run("sessions", "--json", *options, folder=folder).json)


def done(*args: str, folder: Path) -> str:
    """The output of a command that has to succeed."""
    ran = run(*args, folder=folder)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def refused(ran: Ran, *words: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    assert [word for word in words if word not in ran.err] == []


def on_a_terminal(folder: Path, *command: str, typed: bytes = b"") -> tuple[int, str]:
    """Runs the command on a terminal of its own, with this typed: its exit code and what was shown."""
    master, slave = os.openpty()
    env = environment(TERM="xterm-256color", COLUMNS="100")
    ran = subprocess.Popen(
        [sys.executable, "-m", "nexus", *command], cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=env
    )
    os.close(slave)
    os.write(master, typed)
    shown = b"".join(_read(master))
    os.close(master)
    return ran.wait(600), shown.decode()


def _read(master: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(master, 1 << 16)
        except OSError:  # Linux ends a terminal that nobody holds any more with EIO
            return


# looking -------------------------------------------------------------------------------------------------------------


def test_show_tells_what_is_known_of_a_session(folder: Path) -> None:
    compacted(folder)
    with opened(folder) as nx:
        nx.ledger.sessions.create(
            "scout", SessionMetadata(parent_session="main", parent_turn=2, task="find it", persona="Scout")
        )
        nx.ledger.open_turn("main", of(user("Next?")))
    done("session", "alias", "m", "main", folder=folder)
    done("session", "pin", "main", "1.0", folder=folder)
    lines = dict(line.split(maxsplit=1) for line in done("session", "show", "m", folder=folder).splitlines())
    assert lines["session"] == "main"
    assert (lines["turns"], lines["messages"], lines["spawned"], lines["aliases"]) == ("4", "7", "1 session", "m")
    assert lines["scout:"] == "no turn yet, turn 2"
    assert lines["pins"] == "1.0"
    assert lines["open"] == "turn      4"
    assert "entries 1 to 4" in lines["shown"]
    assert "entry 7" in lines["shown"]
    child = done("session", "show", "scout", folder=folder)
    assert [word for word in ("main, turn 2", "find it", "Scout") if word not in child] == []
    found = run("session", "show", "main", "--json", folder=folder).json
    assert (found["open_turn"], found["pins"], found["shown_from"]["first_kept"]) == (4, [{"seq": 1, "ord": 0}], 5)


def test_show_names_where_a_fork_comes_from_also_when_its_source_went_back(folder: Path) -> None:
    done("fork", "b", "main", "--turn", "2", folder=folder)
    assert "(main), at entry 4" in done("session", "show", "b", folder=folder)
    done("session", "rewind", "main", "--turn", "1", folder=folder)
    assert "(formerly of main), at entry 4" in done("session", "show", "b", folder=folder)


def test_turns_have_status_counts_and_reported_tokens(folder: Path) -> None:
    with opened(folder) as nx:
        nx.ledger.open_turn("main", of(user("Try")))
        nx.ledger.close_turn("main", error="no network")
        nx.ledger.open_turn("main", of(user("Again"), assistant("", ToolCall("c", "ping", "{}"))))
    found = run("session", "turns", "main", "--json", folder=folder).json
    assert [turn["status"] for turn in found] == ["completed", "completed", "completed", "failed", "interrupted"]
    shown = done("session", "turns", "main", folder=folder).splitlines()
    assert shown[1].split()[-5:] == ["2", "0", "1,200", "1,000", "0"]
    assert shown[4].endswith("no network")
    last = done("session", "turns", "main", "--last", "1", folder=folder).splitlines()
    assert [line.split()[0] for line in last] == ["turn", "5"]


def test_calls_have_their_status_and_how_long_they_took(folder: Path) -> None:
    with opened(folder) as nx:
        asked = assistant(
            "", ToolCall("a", "read", "{}"), ToolCall("b", "find", "{}"), ToolCall("c", "wait", "{}"), at_ms=1_000
        )
        answers = (tool("a", "x", at_ms=3_500), tool("b", "y", is_error=True, at_ms=1_200))
        nx.ledger.open_turn("main", of(user("Look"), asked, *answers))
    rows = [line.split() for line in done("session", "calls", "main", folder=folder).splitlines()[1:]]
    assert [(row[1], row[2], row[3]) for row in rows] == [
        ("7.1", "read", "completed"), ("7.1", "find", "failed"), ("7.1", "wait", "interrupted"),
    ]  # fmt: skip
    assert rows[0][-3:] == ["2.5", "s", "a"]
    assert rows[2][-1] == "c"


def test_ancestry_goes_from_the_root_to_the_turn_that_was_asked_for(folder: Path) -> None:
    done("fork", "b", "main", "--turn", "2", folder=folder)
    with opened(folder) as nx:
        said(nx, "b", ("Without GIN?", "A B-tree."))
    found = run("session", "ancestry", "b", "--json", folder=folder).json
    assert [(part["first_turn"], part["last_turn"], part["sessions"]) for part in found] == [
        (1, 2, ["main"]), (3, 3, ["b"]),
    ]  # fmt: skip
    assert [
        part["last_turn"] for part in run("session", "ancestry", "b", "--turn", "1", "--json", folder=folder).json
    ] == [1]
    assert "1 to 2" in done("session", "ancestry", "b", folder=folder)
    refused(run("session", "ancestry", "b", "--turn", "9", folder=folder), "3 turns")


def test_sessions_lists_inactive_ones_with_status_only_with_all(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "old", ("a", "b"))
        said(nx, "gone", ("a", "b"))
    done("session", "archive", "old", folder=folder)
    done("session", "delete", "gone", folder=folder)
    assert labels(folder) == ["main"]
    assert "status" not in done("sessions", folder=folder)
    shown = {line.split()[0]: line for line in done("sessions", "--all", folder=folder).splitlines()}
    assert [
        "status" in shown["session"],
        "active" in shown["main"],
        "archived" in shown["old"],
        "deleted" in shown["gone"],
    ] == [True] * 4


def test_the_list_shows_the_parent_of_a_session_that_another_one_spawned(folder: Path) -> None:
    assert "parent" not in done("sessions", folder=folder)
    with opened(folder) as nx:
        nx.ledger.sessions.create("scout", SessionMetadata(parent_session="main"))
    shown = done("sessions", folder=folder).splitlines()
    (line,) = [line for line in shown if line.startswith("scout")]
    assert "parent" in shown[0]
    assert line.split()[-1] == "main"


# names and metadata --------------------------------------------------------------------------------------------------


def test_archive_and_restore_are_idempotent(folder: Path) -> None:
    for command, listed in (
        ("archive", []),
        ("archive", []),
        ("restore", ["main"]),
        ("delete", []),
        ("restore", ["main"]),
    ):
        done("session", command, "main", folder=folder)
        assert labels(folder) == listed
    reasons = [move["reason"] for move in run("session", "reflog", "main", "--json", folder=folder).json]
    assert reasons == ["created", "archived", "active", "deleted", "active"]
    assert texts(folder, "main") == [text for pair in PAIRS for text in pair]


def test_rename_leaves_the_old_name_as_an_alias(folder: Path) -> None:
    assert "'maria'" in done("session", "rename", "main", "maria", folder=folder)
    assert labels(folder) == ["maria"]
    assert texts(folder, "main") == texts(folder, "maria")
    assert done("session", "aliases", folder=folder).splitlines()[1].split()[:2] == ["main", "maria"]
    refused(run("session", "rename", "maria", "", folder=folder), "empty")


def test_merge_leads_the_name_elsewhere_and_keeps_what_was_said_under_it(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "guest", ("Hello", "Hi."))
    assert "'guest~merged'" in done("session", "merge", "guest", "main", folder=folder)
    assert texts(folder, "guest") == texts(folder, "main")
    assert texts(folder, "guest~merged") == ["Hello", "Hi."]
    assert labels(folder) == ["main"]


def test_an_alias_works_wherever_a_name_does_until_it_is_taken_back(folder: Path) -> None:
    done("session", "alias", "w", "main", folder=folder)
    commands = [("session", "show"), ("session", "turns"), ("session", "calls"), ("session", "reflog"), ("session", "ancestry"),
                ("history",), ("session", "pin"), ("search", "index", "-s")]  # fmt: skip
    for command in commands:
        assert run(*command, "w", "--json", folder=folder).json == run(*command, "main", "--json", folder=folder).json
    done("session", "unalias", "w", folder=folder)
    refused(run("session", "show", "w", folder=folder), "'w'")
    refused(run("session", "unalias", "w", folder=folder), "alias 'w' not found")
    assert "No aliases" in done("session", "aliases", folder=folder)
    assert "(removed)" in done("session", "aliases", "--all", folder=folder)


def test_facts_are_set_and_taken_away(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "scout", ("a", "b"))
    done(
        "session", "set", "scout", "persona=Scout", "task=a = b", "parent_session=main", "parent_turn=2", folder=folder
    )
    metadata = run("session", "show", "scout", "--json", folder=folder).json
    assert (metadata["persona"], metadata["task"], metadata["parent_turn"]) == ("Scout", "a = b", 2)
    done("session", "set", "scout", "persona=", "parent_turn=", "parent_session=", folder=folder)
    assert "Scout" not in done("session", "show", "scout", folder=folder)


@pytest.mark.parametrize(
    ("fact", "word"),
    [("persona", "NAME=VALUE"), ("mood=1", "mood"), ("status=deleted", "archive"), ("parent_turn=x", "parent_turn"),
     ("parent_session=nope", "nope"), ("parent_session=main", "its own parent")],
)  # fmt: skip
def test_a_fact_that_cannot_be_is_refused_and_nothing_is_stored(folder: Path, fact: str, word: str) -> None:
    before = rows_of(folder)
    refused(run("session", "set", "main", "task=x", fact, folder=folder), word)
    assert rows_of(folder) == before


# erasing -------------------------------------------------------------------------------------------------------------


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / ".nexus").iterdir()))


def test_delete_for_good_erases_text_from_file_and_reports_search(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "secret", ("The word is xylophone.", "Noted: xylophone."))
    assert b"xylophone" in stored_bytes(folder)
    shown = done("session", "delete", "secret", "--for-good", "--yes", folder=folder)
    assert "2 entries, 2 messages" in shown
    assert "0 were found" in shown
    assert b"xylophone" not in stored_bytes(folder)
    done("fork", "empty", "main", folder=folder)
    assert "no text that only they had" in done("session", "delete", "empty", "--for-good", "--yes", folder=folder)
    assert labels(folder, "--all") == ["main"]


def test_delete_for_good_is_refused_where_nobody_can_be_asked(folder: Path) -> None:
    before = rows_of(folder)
    refused(run("session", "delete", "main", "--for-good", folder=folder), "--yes")
    refused(run("session", "delete", "main", "--yes", folder=folder), "--for-good")
    assert rows_of(folder) == before


def test_delete_for_good_spares_what_others_need_until_they_are_named_too(folder: Path) -> None:
    done("fork", "b", "main", "--turn", "1", folder=folder)
    done("fork", "c", "b", folder=folder)
    refused(run("session", "delete", "main", "--for-good", "--yes", folder=folder), "b", "--with-forks")
    assert labels(folder) == ["b", "c", "main"]
    found = run("session", "delete", "main", "--for-good", "--yes", "--with-forks", "--json", folder=folder).json
    assert (found["sessions"], found["found"]) == (["main", "b", "c"], 0)
    assert labels(folder, "--all") == []


@pytest.mark.parametrize(("typed", "left"), [(b"y\n", []), (b"n\n", ["b", "main"])], ids=["yes", "no"])
def test_a_terminal_is_asked_before_anything_is_erased(folder: Path, typed: bytes, left: list[str]) -> None:
    done("fork", "b", "main", folder=folder)
    command = ("session", "delete", "main", "--for-good", "--with-forks")
    code, shown = on_a_terminal(folder, *command, typed=typed)
    assert "'main': 3 turns, 6 messages" in shown
    assert "'b': 3 turns, 6 messages" in shown
    assert code == (130 if left else 0)
    assert labels(folder) == left


# fork and rewind -----------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_history_up_to_a_turn_or_an_entry(folder: Path) -> None:
    assert "up to entry 2 (the end of turn 1)" in done("fork", "b", "main", "--turn", "1", folder=folder)
    assert texts(folder, "b") == ["Which index?", "GIN."]
    assert "inside turn 2, which is open" in done("fork", "c", "main", "--entry", "3", folder=folder)
    assert len(texts(folder, "c")) == 4
    done("fork", "d", "c", folder=folder)
    assert texts(folder, "d") == texts(folder, "c")
    refused(run("fork", "b", "main", folder=folder), "'b'")
    refused(run("fork", "e", "main", "--turn", "1", "--entry", "1", folder=folder), "--turn and --entry")
    refused(run("fork", "e", "main", "--entry", "99", folder=folder), "99")
    refused(run("fork", "", "main", folder=folder), "empty")


def test_rewind_prints_command_that_restores_abandoned_entries(folder: Path) -> None:
    shown = done("session", "rewind", "main", "--turn", "1", folder=folder)
    assert "at entry 2 now (the end of turn 1)" in shown
    assert "entries 3 to 6, up to turn 3" in shown
    with opened(folder) as nx:
        said(nx, "main", ("Another way?", "Yes."))
    assert texts(folder, "main") == ["Which index?", "GIN.", "Another way?", "Yes."]
    program, *back = shlex.split(shown.rpartition(": ")[2])
    assert program == "nexus"
    again = done(*back, folder=folder)
    assert texts(folder, "main") == [text for pair in PAIRS for text in pair]
    assert "entries 3 to 4, up to turn 2" in again
    done(*shlex.split(again.rpartition(": ")[2])[1:], folder=folder)
    assert texts(folder, "main")[-1] == "Yes."


def test_rewind_to_where_the_session_is_leaves_nothing_behind(folder: Path) -> None:
    assert "No entries are left behind" in done("session", "rewind", "main", "--entry", "6", folder=folder)
    assert "before the first turn" in done("session", "rewind", "main", "--turn", "0", folder=folder)
    assert texts(folder, "main") == []


def test_a_rewind_that_says_no_place_or_one_that_is_not_there_is_refused(folder: Path) -> None:
    before = rows_of(folder)
    refused(run("session", "rewind", "main", folder=folder), "--turn")
    refused(run("session", "rewind", "main", "--turn", "1", "--move", "1", folder=folder), "--turn and --move")
    for place in ("--turn", "--entry", "--move"):
        for number in ("77", "9" * 30):
            refused(run("session", "rewind", "main", place, number, folder=folder), number)
    assert rows_of(folder) == before


# undo and redo -------------------------------------------------------------------------------------------------------


def test_undo_shows_covered_messages_again_and_redo_hides_them(folder: Path) -> None:
    compacted(folder)
    undone = done("undo", "main", folder=folder)
    assert "the compaction at entry 7 (a summary of entries 1 to 4) is undone." in undone
    assert "all 6 messages" in undone
    assert len(texts(folder, "main", "--from-summary")) == 6
    redone = done("undo", "--redo", "main", folder=folder)
    assert "the compaction at entry 7 (a summary of entries 1 to 4) is redone" in redone
    assert "2 messages from entry 5 on" in redone
    assert texts(folder, "main", "--from-summary") == list(PAIRS[2])


def test_there_is_nothing_to_undo_or_redo_where_nothing_holds_or_is_undone(folder: Path) -> None:
    refused(run("undo", "main", folder=folder), "no compaction")
    refused(run("undo", "--redo", "main", folder=folder), "no undo")
    compacted(folder)
    done("undo", "main", folder=folder)
    refused(run("undo", "main", folder=folder), "no compaction")
    done("undo", "--redo", "main", folder=folder)
    refused(run("undo", "--redo", "main", folder=folder), "no undo")


def test_undo_of_newer_compaction_names_older_current_one(folder: Path) -> None:
    compacted(folder)
    with opened(folder) as nx:
        nx.ledger.compact("main", Compaction(1, 6, 8, "All of it."), after_checkpoint=7)
    found = run("undo", "main", "--json", folder=folder).json
    assert found["undone"] == {"entry": 8, "covers_from": 1, "covers_to": 6}
    assert found["shown"]["compaction"] == {"entry": 7, "covers_from": 1, "covers_to": 4, "summary": SUMMARY}


# pins ----------------------------------------------------------------------------------------------------------------


def test_pins_are_listed_with_their_text_and_reason_and_forks_inherit_them(folder: Path) -> None:
    done("session", "pin", "main", "3.1", "--reason", "the reason why", folder=folder)
    done("fork", "b", "main", folder=folder)
    for session in ("main", "b"):
        (line,) = done("session", "pin", session, folder=folder).splitlines()[1:]
        assert line.split() == ["3.1", "2", "assistant", "Bigrams.", "the", "reason", "why"]
    done("session", "unpin", "main", "3.1", folder=folder)
    assert "no pins" in done("session", "pin", "main", folder=folder)
    assert len(run("session", "pin", "b", "--json", folder=folder).json) == 1


def test_an_entry_without_a_message_number_stands_for_all_its_messages(folder: Path) -> None:
    assert "pinned 1.0, 1.1" in done("session", "pin", "main", "1", folder=folder)
    before = rows_of(folder)
    assert "already" in done("session", "pin", "main", "1", folder=folder)
    assert rows_of(folder) == before
    assert "unpinned 1.0, 1.1" in done("session", "unpin", "main", "1", folder=folder)
    refused(run("session", "unpin", "main", "1", folder=folder), "no pins")


@pytest.mark.parametrize("place", ["0", "2", "99", "1.2", "1.x", "x", "1.0.0", "9" * 30, "", "١"])
def test_a_place_without_a_message_is_refused_and_nothing_is_stored(folder: Path, place: str) -> None:
    before = rows_of(folder)
    refused(run("session", "pin", "main", place, folder=folder))
    refused(run("session", "unpin", "main", place, folder=folder))
    assert rows_of(folder) == before


# search --------------------------------------------------------------------------------------------------------------


def places(folder: Path, *args: str) -> list[tuple[str, int, int]]:
    hits = run("search", *args, "--json", folder=folder).json
    return [(hit["sessions"][0], hit["place"]["seq"], hit["place"]["ord"]) for hit in hits]


def test_search_prints_session_entry_role_and_excerpt(folder: Path) -> None:
    first, excerpt = done("search", "REBUILD", folder=folder).splitlines()
    assert first.split()[:6] == ["main", "entry", "5.0", "turn", "3", "user"]
    assert excerpt.strip() == "And the nightly rebuild?"
    assert places(folder, "rebuild", "nightly") == [("main", 5, 0)]
    assert places(folder, '"rebuild nightly"') == []
    assert "No matches for: nothing" in done("search", "nothing", folder=folder)
    refused(run("search", "?!", folder=folder), "no word")


def test_search_takes_a_session_roles_an_order_and_a_limit(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "other", ("the index again", "index index"))
    assert set(places(folder, "index")) == {("main", 1, 0), ("other", 1, 0), ("other", 1, 1)}
    assert places(folder, "index", "-s", "main") == [("main", 1, 0)]
    assert places(folder, "index", "--role", "assistant") == [("other", 1, 1)]
    assert places(folder, "index", "--newest", "--limit", "1") == [("other", 1, 1)]
    assert "--limit shows more" in done("search", "index", "--limit", "2", folder=folder)
    assert "--limit shows more" not in done("search", "index", "--limit", "3", folder=folder)


def test_search_needs_no_spaces_between_words_of_chinese(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "zh", ("我们昨天讨论的索引重建计划是什么？", "한국어 검색"))
    assert places(folder, "索引重建") == [("zh", 1, 0)]
    assert places(folder, "引索") == []
    assert places(folder, "검색") == [("zh", 1, 1)]
    _, shown = on_a_terminal(folder, "search", "索引重建")
    assert f"讨论的{ESCAPE}[33m{ESCAPE}[1m索引重建{ESCAPE}[0m计划" in shown


def test_words_are_highlighted_on_a_terminal_as_they_were_written(folder: Path) -> None:
    with opened(folder) as nx:
        said(nx, "cafe", ("Au Cafe\u0301 Résumé, now", "ok"))
    _, shown = on_a_terminal(folder, "search", "CAFE", "resume")
    assert [f"{ESCAPE}[33m{ESCAPE}[1m{word}{ESCAPE}[0m" in shown for word in ("Café", "Résumé")] == [True, True]
    assert ESCAPE not in done("search", "cafe", folder=folder)


def test_the_excerpt_has_the_words_wherever_they_stand_in_a_message(folder: Path) -> None:
    long = f"{'before ' * 400}needle {'after ' * 400}"
    calling = Message("assistant", (Thinking("pondering quietly"), ToolCall("c", "grep_files", '{"pattern": "xyzzy"}')))
    with opened(folder) as nx:
        nx.ledger.open_turn("long", of(user(long), calling, tool("c", f"{long} haystack")))
    for word in ("needle", "xyzzy", "pondering", "grep_files", "haystack"):
        for hit in run("search", word, "--json", folder=folder).json:
            assert word in hit["excerpt"]
            assert len(hit["excerpt"]) < 300


def test_search_finds_messages_shared_from_other_thread(folder: Path) -> None:
    done("fork", "b", "main", "--turn", "2", folder=folder)
    assert places(folder, "bigrams", "-s", "b") == [("b", 3, 1)]
    done("session", "rewind", "main", "--turn", "1", folder=folder)
    assert "b (also in main)" in done("search", "GIN", folder=folder)
    assert places(folder, "bigrams") == [("b", 3, 1)]
    (hit,) = run("search", "nightly", "--json", folder=folder).json
    assert hit["sessions"] == []
    assert "without a session" in done("search", "nightly", folder=folder)


def test_search_marks_archived_hits_and_finds_deleted_only_with_all(folder: Path) -> None:
    done("session", "archive", "main", folder=folder)
    assert "main (archived)" in done("search", "bigrams", folder=folder)
    done("session", "delete", "main", folder=folder)
    assert "No matches for" in done("search", "bigrams", folder=folder)
    assert "main (deleted)" in done("search", "bigrams", "--all", folder=folder)


# history -------------------------------------------------------------------------------------------------------------


def test_history_from_summary_has_summary_and_kept_messages_only(folder: Path) -> None:
    compacted(folder)
    lines = done("history", "main", "--from-summary", folder=folder).splitlines()
    assert lines[:2] == ["── compacted: a summary replaces entries 1 to 4 ──", f"  {SUMMARY}"]
    asked, answered = PAIRS[2]
    assert [line for line in lines[2:] if line.startswith(" ")] == [f"  {asked}", f"  {answered}"]
    assert len(texts(folder, "main")) == 6
    sent = run("history", "main", "--from-summary", "--as", "openai", folder=folder).json["messages"]
    assert [message["role"] for message in sent] == ["user", "user", "assistant"]
    assert SUMMARY in sent[0]["content"]
    assert SUMMARY in done("history", "main", "--from-summary", "--as", "anthropic", folder=folder)
    assert done("history", "main", "--from-summary", "--as", "markdown", folder=folder).startswith("## Summary")


def test_without_a_compaction_the_compacted_history_is_the_whole_one(folder: Path) -> None:
    assert done("history", "main", "--from-summary", folder=folder) == done("history", "main", folder=folder)


def test_entry_numbers_are_those_that_pin_and_rewind_take(folder: Path) -> None:
    lines = done("history", "main", "--refs", folder=folder).splitlines()
    heads = [line.split(", ") for line in lines if line.startswith(("User", "Assistant"))]
    assert [(head[0], head[-1]) for head in heads if head[-1].startswith("entry 5.")] == [
        ("User  turn 3", "entry 5.0"),
        (next(head[0] for head in heads if head[-1] == "entry 5.1"), "entry 5.1"),
    ]
    shown = done("history", "main", "--refs", "--as", "console", folder=folder)
    assert "User <@user> [Turn 2, entry 5.0]" in shown
    assert "Assistant [Turn 3, entry 5.1]" in shown
    done("session", "pin", "main", "5.1", "--reason", "kept\nfor later", folder=folder)
    done("session", "unpin", "main", "5.1", folder=folder)
    shown = done("history", "main", "--refs", folder=folder)
    assert "── entry 7: message 5.1 was pinned: kept\\nfor later ──" in shown
    assert "── entry 8: message 5.1 was unpinned ──" in shown


# all commands --------------------------------------------------------------------------------------------------------

NAMED = [
    ("session", "show", "NAME"), ("session", "turns", "NAME"), ("session", "calls", "NAME"), ("session", "reflog", "NAME"),
    ("session", "ancestry", "NAME"), ("session", "archive", "NAME"), ("session", "restore", "NAME"),
    ("session", "delete", "NAME"), ("session", "delete", "NAME", "--for-good", "--yes"), ("session", "rename", "NAME", "other"),
    ("session", "merge", "NAME", "main"), ("session", "merge", "main", "NAME"), ("session", "alias", "other", "NAME"),
    ("session", "set", "NAME", "task=x"), ("fork", "other", "NAME"), ("session", "rewind", "NAME", "--turn", "0"),
    ("session", "rewind", "NAME", "--move", "1"), ("undo", "NAME"), ("undo", "--redo", "NAME"), ("session", "pin", "NAME"), ("session", "pin", "NAME", "1"),
    ("session", "unpin", "NAME", "1"), ("search", "GIN", "--session", "NAME"), ("history", "NAME", "--from-summary"),
]  # fmt: skip
"""Every command that takes the name of a session."""


def named(command: tuple[str, ...], name: str) -> list[str]:
    return [name if word == "NAME" else word for word in command]


def test_an_unknown_name_is_refused_by_every_command_and_nothing_is_stored(folder: Path) -> None:
    before = rows_of(folder)
    for command in NAMED:
        refused(run(*named(command, "no\x1bpe"), folder=folder), "'no\\x1bpe'", "nexus sessions")
        error = run(*named(command, "nope"), "--json", folder=folder).json["error"]
        assert error["code"] == "no_such_session", command
    assert rows_of(folder) == before


def test_no_command_makes_a_file_where_there_is_no_ledger(tmp_path: Path) -> None:
    for command in NAMED:
        refused(run(*named(command, "main"), folder=tmp_path), "'main'", "no ledger")
    assert "No ledger" in done("search", "GIN", folder=tmp_path)
    assert "No aliases" in done("session", "aliases", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_session_commands_escape_control_characters_in_names(folder: Path) -> None:
    name = "ev\x1b[31mil\nna\x07me"
    with opened(folder) as nx:
        nx.ledger.sessions.create("spawned", SessionMetadata(task=name))
        nx.ledger.compact("main", Compaction(1, 4, 5, name), after_checkpoint=0)
    done("session", "rename", "main", name, folder=folder)
    done("session", "set", "spawned", f"parent_session={name}", f"persona={name}", folder=folder)
    done("session", "alias", f"{name} too", name, folder=folder)
    looking = [command for command in NAMED if command[1] in ("show", "turns", "calls", "reflog", "ancestry")]
    changing = [("session", "pin", "NAME", "5"), ("session", "pin", "NAME"), ("undo", "NAME"), ("undo", "--redo", "NAME"), ("fork", "b", "NAME"),
                ("search", "GIN", "-s", "NAME"), ("session", "show", "spawned"), ("session", "show", "b"), ("sessions",),
                ("session", "aliases"), ("session", "rewind", "NAME", "--turn", "1"), ("session", "archive", "NAME"),
                ("session", "delete", "NAME", "--for-good", "--with-forks", "--yes")]  # fmt: skip
    for command in (*looking, *changing):
        shown = done(*named(command, name if "--for-good" in command else f"{name} too"), folder=folder)
        assert [sign for sign in ("\x1b", "\x07") if sign in shown] == [], command
        assert "il\nna" not in shown, command


def leaves(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    """The commands without commands of their own, by their full names."""
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from leaves(inner, *names, name)
    else:
        yield " ".join(names), command


def of_sessions() -> dict[str, click.Command]:
    tops = ("sessions", "session", "history", "search", "fork", "undo", "config", "turnlog")
    found: dict[str, click.Command] = {}
    for top in tops:
        assert top in COMMANDS
        command = nexus.cli.cli.get_command(click.Context(nexus.cli.cli), top)
        assert command is not None
        found.update(leaves(command, top))
    return found


@pytest.mark.parametrize(("name", "command"), of_sessions().items(), ids=of_sessions())
def test_every_command_has_help_line_example_and_shared_options(name: str, command: click.Command) -> None:
    line = command.get_short_help_str(limit=60)
    assert line.endswith(".")
    assert not line.endswith("...")
    assert f"Example: nexus {name}" in f"{command.help} {command.epilog}"
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert {"--workspace", "--ledger", "--json"} <= {name for option in options for name in option.opts}
    assert [option.opts for option in options if not (option.help or "").endswith(".")] == []


def test_shared_options_work_before_and_after_subcommand_name(folder: Path, tmp_path: Path) -> None:
    after = run("session", "turns", "main", "--json", "-w", folder, folder=tmp_path)
    before = run("session", "--json", "-w", folder, "turns", "main", folder=tmp_path)
    assert before.json == after.json
    assert len(before.json) == 3


def test_what_is_deleted_for_good_is_named_by_its_own_label(folder: Path) -> None:
    done("fork", "maria", "main", folder=folder)
    done("fork", "guest", "main", folder=folder)
    done("session", "merge", "guest", "maria", folder=folder)
    refused(run("session", "delete", "guest", "--for-good", "--yes", folder=folder), "alias of 'maria'")
    done("session", "delete", "maria", "--for-good", "--yes", folder=folder)
    assert len(texts(folder, "guest~merged")) > 0
