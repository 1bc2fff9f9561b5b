"""Imports of files that changed since the last import: the session's name follows the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from interop.claude_events import Event, call, lines, result, said, text, user
from nexus.engine import Engine
from nexus.interop.detect import read
from nexus.interop.importing import ImportReport, import_transcript
from nexus.types.message import Text
from support.turn_log import PRINTED


def line(uuid: str, parent: str | None, words: str = "", *, session: str = "s", minute: int = 0) -> Event:
    """A line of session `session`: the user's if the id begins with u."""
    about = {"sessionId": session, "timestamp": f"2026-01-05T10:{minute:02d}:00Z"}
    if uuid.startswith("u"):
        return {**user(uuid, parent, words or uuid), **about}
    return {**said(uuid, parent, f"m{uuid}", text(words or uuid)), **about}


def imported(nx: Engine, folder: Path, *events: Event, name: str = "log.jsonl") -> list[ImportReport]:
    file = folder / name
    file.write_bytes(lines(*events))
    return [report for transcript in read(file) for report in import_transcript(nx, transcript)]


def texts(nx: Engine, session: str = "s") -> list[str]:
    rows = [row for entry in nx.ledger.entries(session) for row in entry.rows]
    return [part.text for row in rows for part in row.message.parts if isinstance(part, Text)]


def statuses(nx: Engine) -> dict[str, str]:
    return {session.label: session.status for session in nx.sessions(include_inactive=True)}


FIRST = [line("u1", None), line("a1", "u1"), line("u2", "a1"), line("a2", "u2")]


@pytest.fixture
def nx() -> Engine:
    return nexus.open(ledger=":memory:")


READABLE = {
    "openai": '{"role": "user", "content": "Which index?"}\n',
    "anthropic": '{"role": "user", "content": [{"type": "text", "text": "Which index?"}]}\n',
    "claude_code": '{"type": "user", "uuid": "u1", "sessionId": "s", "message": {"role": "user", "content": "Hi."}}\n',
    "gemini": '{"role": "user", "parts": [{"text": "Which index?"}]}\n',
    "responses": '{"type": "function_call_output", "call_id": "c1", "output": "GIN."}\n',
    "nanobot": '{"_type": "metadata", "created_at": "2026-03-06"}\n{"role": "user", "content": "Hi."}\n',
    "dialogue": '{"run_id": "r1", "role": "human", "content": "Hi.", "timestamp": "2026-03-06T14:30:00Z"}\n',
    "turnlog": PRINTED,
}


@pytest.mark.parametrize("file_format", READABLE)
def test_bytes_read_are_reported_up_to_the_size_of_the_file(tmp_path: Path, file_format: str) -> None:
    path, seen = tmp_path / "log.jsonl", list[int]()
    path.write_text(READABLE[file_format] * (1 if file_format == "turnlog" else 3), "utf-8")
    list(read(path, file_format, seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size
    assert file_format == "turnlog" or len(set(seen)) > 2


def test_session_follows_the_file_after_the_user_went_back(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    grown = [*FIRST, line("u3", "a1"), line("a3", "u3")]
    report, *forks = imported(nx, tmp_path, *grown)
    assert texts(nx) == ["u1", "a1", "u3", "a3"]
    assert texts(nx, "s~1") == ["u1", "a1", "u2", "a2"]
    assert (report.session, report.added_entries, forks) == ("s", 2, [])
    assert "'s~1'" in report.note
    assert statuses(nx) == {"s": "active", "s~1": "active"}
    assert [one.added_entries for one in imported(nx, tmp_path, *grown)] == [0]
    assert texts(nx)[-1] == nx.assemble("next", session="s").to_openai()["messages"][-2]["content"]


def test_session_stays_when_it_was_continued_here(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    nx.record(nx.assemble("here", session="s"), nexus.AgentResult((nexus.assistant("yes"),)))
    report, *_ = imported(nx, tmp_path, *FIRST, line("u3", "a1"), line("a3", "u3"))
    assert (report.session, texts(nx)[-1]) == ("s~continued", "yes")
    assert texts(nx, "s~continued") == ["u1", "a1", "u3", "a3"]


def test_session_that_grows_during_the_move_stays(nx: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(nx, tmp_path, *FIRST)
    commit = nx.ledger.store.commit

    def commit_late(session: str, *args: Any) -> Any:
        monkeypatch.setattr(nx.ledger.store, "commit", commit)
        nx.record(nx.assemble("here", session="s"), nexus.AgentResult((nexus.assistant("yes"),)))
        return commit(session, *args)

    monkeypatch.setattr(nx.ledger.store, "commit", commit_late)
    report, *_ = imported(nx, tmp_path, *FIRST, line("u3", "a1"))
    assert (report.session, texts(nx)[-1]) == ("s~continued", "yes")
    assert {label for label, status in statuses(nx).items() if status == "active"} == {"s", "s~continued"}


def test_dry_run_moves_no_session(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    (tmp_path / "log.jsonl").write_bytes(lines(*FIRST, line("u3", "a1")))
    (transcript,) = read(tmp_path / "log.jsonl")
    report = import_transcript(nx, transcript, dry_run=True)[0]
    assert (report.added_entries, texts(nx), statuses(nx)) == (1, ["u1", "a1", "u2", "a2"], {"s": "active"})


def test_changed_line_replaces_the_old_one(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    report, *_ = imported(nx, tmp_path, FIRST[0], line("a1", "u1", "corrected"), *FIRST[2:], line("u3", "a2"))
    assert texts(nx) == ["u1", "corrected", "u2", "a2", "u3"]
    assert texts(nx, "s~1") == ["u1", "a1", "u2", "a2"]
    assert report.note.startswith("1 message changed in the file")
    assert statuses(nx) == {"s": "active", "s~1": "archived"}


def test_changed_line_is_reported_when_session_was_continued_here(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    nx.record(nx.assemble("here", session="s"), nexus.AgentResult((nexus.assistant("yes"),)))
    report, *_ = imported(nx, tmp_path, FIRST[0], line("a1", "u1", "corrected"), *FIRST[2:])
    assert texts(nx) == ["u1", "a1", "u2", "a2", "here", "yes"]
    assert "1 message changed in the file: the session was continued here" in report.note


def test_message_between_others_is_added_in_its_place(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    between = [line("u9", "a1"), line("a9", "u9")]
    imported(nx, tmp_path, *FIRST[:2], *between, {**FIRST[2], "parentUuid": "a9"}, FIRST[3])
    assert texts(nx) == ["u1", "a1", "u9", "a9", "u2", "a2"]


def test_edited_message_of_a_chat_file_replaces_the_old_one(nx: Engine, tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    file = tmp_path / "talk.json"
    for answer in ("two", "deux"):
        file.write_text(json.dumps([talk[0], {**talk[1], "content": answer}, {"role": "user", "content": "three"}]))
        for transcript in read(file):
            import_transcript(nx, transcript)
    assert texts(nx, "talk") == ["one", "deux", "three"]


def test_result_of_unchanged_call_is_no_change(nx: Engine, tmp_path: Path) -> None:
    """Pieces of one message that were imported apart, with results between them, are compared one by one."""
    events = [
        line("u1", None),
        {**said("a1", "u1", "m1", call("c1")), "sessionId": "s"},
        {**user("r1", "a1", [result("c1", "one")]), "sessionId": "s"},
        {**said("a2", "a1", "m1", call("c2")), "sessionId": "s"},
        {**user("r2", "a2", [result("c2", "two")]), "sessionId": "s"},
    ]
    for end in range(1, len(events) + 1):
        assert [report.note for report in imported(nx, tmp_path, *events[:end])] == [""]
    assert statuses(nx) == {"s": "active"}


COMMAND = "<command-name>/go</command-name>"


@pytest.mark.parametrize(
    ("request_text", "title"),
    [
        ("Fix the\nindex", "Fix the index"),
        (f"<command-message>go</command-message>\n{COMMAND}\n<command-args>Add a\nflag.</command-args>", "Add a flag."),
        ("/plan Add a flag.", "Add a flag."),
        ("/usr/bin/env is missing", "/usr/bin/env is missing"),
        ("hi there, fix the index", "hi there, fix the index"),
        ("<system-reminder>Be brief.</system-reminder>\nFix it", "Fix it"),
        ("w" * 90, "w" * 71 + "…"),
    ],
)
def test_title_is_the_first_request(nx: Engine, tmp_path: Path, request_text: str, title: str) -> None:
    meta = {**line("u0", None, "caveat"), "isMeta": True}
    (report,) = imported(nx, tmp_path, meta, line("u1", "u0", request_text))
    assert (report.title, nx.ledger.sessions.metadata("s").title) == (title, title)


@pytest.mark.parametrize(
    "text",
    [
        "hi", "Hello!", "hey there 👋", "Good morning, Claude.", "你好", "thanks!", "/clear",
        COMMAND, f"<command-message>go</command-message>\n{COMMAND}\n<command-args></command-args>",
        "<local-command-stdout>Connected.</local-command-stdout>", "<bash-input>ls</bash-input>",
        "Caveat: The messages below were generated by the user while running local commands.",
    ],
)  # fmt: skip
def test_what_asks_for_nothing_is_no_title(nx: Engine, tmp_path: Path, text: str) -> None:
    (report,) = imported(nx, tmp_path, line("u1", None, text))
    assert report.title == ""
    (report,) = imported(nx, tmp_path, line("u1", None, text), line("u2", "u1", "Fix the index"))
    assert report.title == "Fix the index"


def test_title_of_the_file_replaces_the_request_and_no_other_title(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    imported(nx, tmp_path, {"type": "summary", "summary": "Index work", "leafUuid": "a2"}, *FIRST)
    assert nx.ledger.sessions.metadata("s").title == "Index work"
    nx.ledger.sessions.update("s", title="Mine")
    imported(nx, tmp_path, {"type": "summary", "summary": "Later", "leafUuid": "a2"}, *FIRST)
    assert nx.ledger.sessions.metadata("s").title == "Mine"


# slices --------------------------------------------------------------------------------------------------------------

SECOND = [line("u3", "a2", minute=5), line("a3", "u3", minute=5)]


def test_second_file_of_a_session_continues_it(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    (report,) = imported(nx, tmp_path, *SECOND, line("u9", "gone", minute=6), name="more.jsonl")
    assert (report.session, report.added_entries) == ("s", 3)
    assert [problem.line for problem in report.problems] == [3], "the first line continues the other file"
    assert texts(nx) == ["u1", "a1", "u2", "a2", "u3", "a3", "u9"]
    assert imported(nx, tmp_path, *SECOND, name="more.jsonl")[0].added_entries == 0
    assert imported(nx, tmp_path, *FIRST)[0].added_entries == 0
    assert statuses(nx) == {"s": "active"}


def test_later_file_without_link_continues_its_session(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    imported(nx, tmp_path, line("u3", None, minute=5), line("a3", "u3", minute=5), name="more.jsonl")
    assert texts(nx) == ["u1", "a1", "u2", "a2", "u3", "a3"]


def test_earlier_file_of_a_session_is_not_put_after_it(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *SECOND)
    imported(nx, tmp_path, *FIRST, name="earlier.jsonl")
    assert (texts(nx), texts(nx, "s-2")) == (["u3", "a3"], ["u1", "a1", "u2", "a2"])


def test_session_that_continues_another_one_shows_all_of_it(nx: Engine, tmp_path: Path) -> None:
    imported(nx, tmp_path, *FIRST)
    imported(nx, tmp_path, *(line(e["uuid"], e["parentUuid"], session="t", minute=5) for e in SECOND), name="t.jsonl")
    assert texts(nx, "t") == ["u1", "a1", "u2", "a2", "u3", "a3"]


@pytest.mark.parametrize("agent_first", [True, False])
def test_file_of_an_agent_is_linked_to_the_call_that_started_it(
    nx: Engine, tmp_path: Path, *, agent_first: bool
) -> None:
    asked = {**said("a1", "u1", "m1", call("c0"), call("c1", prompt="search")), "sessionId": "s"}
    files = [
        ("s.jsonl", [line("u1", None), asked]),
        ("agent-scout.jsonl", [{**line("u7", None, "search"), "isSidechain": True, "agentId": "scout"}]),
    ]
    for name, events in reversed(files) if agent_first else files:
        imported(nx, tmp_path, *events, name=name)
    metadata = nx.ledger.sessions.metadata("s+scout")
    assert (metadata.parent_session, metadata.parent_call_id) == ("s", "c1")


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str | None]]:
    """Lines with a parent each: the user goes back now and then."""
    names = [f"{'ua'[number % 2]}{number}" for number in range(draw(st.integers(2, 12)))]
    parents = [None, *(draw(st.sampled_from([names[at], *names[: at + 1]])) for at in range(len(names) - 1))]
    return list(zip(names, parents, strict=True))


@settings(max_examples=150, deadline=None)
@given(trees(), st.lists(st.integers(1, 12), max_size=4))
def test_imports_of_any_growing_tree_end_on_its_newest_path(
    tmp_path_factory: pytest.TempPathFactory, tree: Sequence[tuple[str, str | None]], cuts: list[int]
) -> None:
    folder, events = tmp_path_factory.getbasetemp(), [line(uuid, parent) for uuid, parent in tree]
    with nexus.open(ledger=":memory:") as once, nexus.open(ledger=":memory:") as often:
        imported(once, folder, *events)
        for cut in (*sorted(cuts), len(events)):
            imported(often, folder, *events[:cut])
        assert texts(often) == texts(once)
        every = {word for session in often.sessions() for word in texts(often, session.label)}
        assert every == {uuid for uuid, _ in tree}
