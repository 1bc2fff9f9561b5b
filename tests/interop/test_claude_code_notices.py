"""Notices that Claude Code writes in the model's place: an API error is the failure of its turn, never a reply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nexus
from interop.claude_events import Event, call, read, result, said, text, user
from nexus.interop.importing import import_transcript
from nexus.ledger.integrity import check

ERROR = 'API Error: 500 {"type":"error","error":{"type":"api_error","message":"Internal server error"}}'
LIMIT = 'API Error (429 {"type":"error","error":{"type":"rate_limit_error","message":"Too many tokens"}})'


def notice(uuid: str, parent: str | None, words: str, *, is_error: bool = True, **more: object) -> Event:
    """A line that the tool wrote in the place of a reply."""
    usage = {"input_tokens": 0, "output_tokens": 0}
    line = said(uuid, parent, f"m-{uuid}", text(words), model="<synthetic>", usage=usage, stop_reason="stop_sequence")
    return {**line, **({"isApiErrorMessage": True, "error": "unknown"} if is_error else {}), **more}


def test_api_error_is_the_failure_of_its_turn(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "one"),
        said("a1", "u1", "m1", call("c1")),
        user("r1", "a1", [result("c1", "seen")]),
        notice("e1", "r1", LIMIT, timestamp="2026-02-08T05:43:20.294Z"),
        user("u2", "e1", "two"),
        said("a2", "u2", "m2", text("done"), stop_reason="end_turn"),
        notice("e2", "a2", ERROR),
    )
    assert (found.report.counted, found.report.message_lines) == ({"assistant/api_error": 2}, 5)
    with nexus.open(ledger=":memory:") as nx:
        (report,) = import_transcript(nx, found)
        first, second = nx.ledger.turns(report.session)
        assert (first.status, first.failure_kind, first.error) == ("failed", "rate_limit", LIMIT)
        assert (second.number, second.status, second.error) == (2, "failed", ERROR)
        failed = next(entry for entry in nx.ledger.entries(report.session) if entry.kind == "failed")
        assert failed.at_ms == 1770529400294
        replies = [row.message.text() for entry in nx.ledger.entries(report.session) for row in entry.rows]
        assert replies == ["one", "", "", "two", "done"]
        assert "API Error" not in json.dumps(nx.assemble("And now?", session=report.session).to_anthropic())
        assert import_transcript(nx, found)[0].added_entries == 0
        assert list(check(nx.ledger.store.dump())) == []


def test_reply_after_an_api_error_completes_the_turn(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "one"),
        notice("e1", "u1", ERROR),
        said("a1", "e1", "m1", text("done"), stop_reason="end_turn"),
    )
    with nexus.open(ledger=":memory:") as nx:
        (report,) = import_transcript(nx, found)
        (turn,) = nx.ledger.turns(report.session)
        assert (turn.status, turn.error) == ("completed", "")


@pytest.mark.parametrize("is_error", [True, False])
def test_notice_at_the_beginning_or_alone_is_counted_only(tmp_path: Path, *, is_error: bool) -> None:
    found = read(tmp_path, notice("e1", None, "No response requested.", is_error=is_error), user("u1", "e1", "go"))
    assert found.report.counted == {"assistant/api_error" if is_error else "assistant/synthetic": 1}
    assert [step.kind for step in found.steps] == ["messages"]


def test_notice_that_is_no_error_is_counted_only_and_remains_a_link(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("u1", None, "one"),
        notice("n1", "u1", "No response requested.", is_error=False),
        user("u2", "n1", "two"),
    )
    assert (found.report.counted, found.report.problems) == ({"assistant/synthetic": 1}, ())
    assert [message.text() for step in found.steps for message in step.messages] == ["one", "two"]


def test_error_of_a_sub_agent_fails_its_conversation(tmp_path: Path) -> None:
    side = {"isSidechain": True, "agentId": "a7"}
    found = read(tmp_path, user("u1", None, "look", **side), notice("e1", "u1", ERROR, **side))
    with nexus.open(ledger=":memory:") as nx:
        (report,) = import_transcript(nx, found)
        (turn,) = nx.ledger.turns(report.session)
        assert (turn.status, turn.error) == ("failed", ERROR)


def test_repeated_line_of_an_error_fails_its_turn_once(tmp_path: Path) -> None:
    line = notice("e1", "u1", ERROR)
    found = read(tmp_path, user("u1", None, "one"), line, line)
    assert [step.kind for step in found.steps] == ["messages", "failed"]
