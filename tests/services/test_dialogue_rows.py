"""Rows of a tagged dialogue's history: read in the order of their times, whatever order they come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.errors import UnreadableFile
from nexus.interop.detect import detect, read
from nexus.interop.importing import import_transcript
from nexus.interop.transcript import Transcript
from nexus.services import dialogue_rows

Row = dict[str, Any]
CALLS = {"tool_calls": [{"name": "web_search", "arguments": {"query": "AI"}}]}


def row(minute: int, role: str, content: str, run: str, **more: Any) -> Row:
    time = f"2025-12-10T15:{minute:02d}:00"
    return {"role": role, "content": content, "run_id": run, "timestamp": time, "owner_key": "o", **more}


ROWS = [
    row(4, "AI", "Based on results", "r1"),
    row(3, "TOOL", "found", "r1", metadata={"tool_name": "web_search"}),
    row(2, "AI", "I search", "r1", metadata=CALLS),
    row(1, "HUMAN", "Search for AI", "r1"),
]


def transcript(folder: Path, value: Any, *, by_line: bool = False) -> Transcript:
    file = folder / "rows.json"
    file.write_text("\n".join(map(json.dumps, value)) if by_line else json.dumps(value), "utf-8")
    (found,) = read(file)
    assert sum(found.report.counted.values()) + found.report.message_lines == found.report.lines
    return found


@pytest.mark.parametrize("by_line", [False, True])
def test_rows_newest_first_are_read_oldest_first(tmp_path: Path, *, by_line: bool) -> None:
    found = transcript(tmp_path, ROWS, by_line=by_line)
    messages = [message for step in found.steps for message in step.messages]
    assert (found.format, found.source_id, found.report.problems) == ("dialogue", "o", ())
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert [message.at_ms for message in messages] == [1765378860000 + 60_000 * number for number in range(4)]
    (call,), (result,) = list(messages[1].calls()), list(messages[2].results())
    assert (call.name, json.loads(call.arguments), result.call_id) == ("web_search", {"query": "AI"}, call.id)
    assert all(json.loads(message.meta)["run_id"] == "r1" for message in messages)


def test_rows_oldest_first_are_read_so_and_reported(tmp_path: Path) -> None:
    found = transcript(tmp_path, ROWS[::-1])
    assert [step.keys for step in found.steps] == [step.keys for step in transcript(tmp_path, ROWS).steps]
    assert [problem.text for problem in found.report.problems] == [
        "rows are oldest first, not newest first: read in this order"
    ]


@settings(max_examples=100, deadline=None)
@given(st.permutations(ROWS))
def test_rows_in_any_order_are_read_by_time(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    found = transcript(tmp_path_factory.getbasetemp(), rows)
    assert [step.at_ms for step in found.steps] == sorted(step.at_ms for step in found.steps)
    assert len(found.report.problems) == (rows != ROWS)


def test_later_rows_are_added_to_the_session(tmp_path: Path) -> None:
    with nexus.open(ledger=":memory:") as nx:
        import_transcript(nx, transcript(tmp_path, ROWS))
        grown = [row(5, "HUMAN", "Thanks", "r2"), *ROWS]
        (report,) = import_transcript(nx, transcript(tmp_path, grown))
        assert (report.session, report.messages, report.note) == ("o", 1, "")


def test_messages_of_other_formats_are_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps([{"role": "user", "content": "Hi"}]))
    assert detect(file) == "openai"
    with pytest.raises(UnreadableFile, match="no rows of a dialogue"):
        next(dialogue_rows.read(file))
