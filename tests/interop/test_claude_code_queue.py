"""Messages that were typed while the agent was working: each that it got is read once, at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop.claude_events import Event, call, read, result, said, shown, text, user


def queue(operation: str, content: Any = None, **more: Any) -> Event:
    words = {} if content is None else {"content": content}
    return {"type": "queue-operation", "operation": operation, "timestamp": "2026-02-08T05:34:27Z", **words, **more}


BEFORE = (user("u1", None, "go"), said("a1", "u1", "m1", call("c1")))
AFTER = (user("r1", "a1", [result("c1", "one")]), said("a2", "r1", "m2", text("done")))


@pytest.mark.parametrize("content", ["draft it", [{"type": "text", "text": "draft it"}], ["draft it"]])
def test_message_taken_into_the_turn_is_read_before_the_answer(tmp_path: Path, content: Any) -> None:
    found = read(tmp_path, *BEFORE, queue("enqueue", content), AFTER[0], queue("remove"), AFTER[1])
    assert shown(found.steps) == ["go", "?c1", "!c1", "draft it", "done"]
    assert found.forks == ()
    (message,) = found.steps[3].messages
    assert (message.role, message.source, message.at_ms) == ("user", "human", 1770528867000)
    assert found.report.counted == {"queue-operation": 1}


def test_queued_message_with_its_own_line_is_read_once(tmp_path: Path) -> None:
    events = [*BEFORE, queue("enqueue", "next"), *AFTER, queue("dequeue"), user("u2", "a2", "next")]
    found = read(tmp_path, *events, said("a3", "u2", "m3", text("fine")))
    assert shown(found.steps) == ["go", "?c1", "!c1", "done", "next", "fine"]
    assert found.report.counted == {"queue-operation": 2}


def test_removed_message_with_its_own_line_is_read_once(tmp_path: Path) -> None:
    events = [*BEFORE, queue("enqueue", "next"), AFTER[0], queue("remove"), user("u2", "r1", "next\nand this")]
    found = read(tmp_path, *events, said("a3", "u2", "m3", text("fine")))
    assert shown(found.steps) == ["go", "?c1", "!c1", "next\nand this", "fine"]


@pytest.mark.parametrize(
    "operations",
    [
        [queue("enqueue", "no")],
        [queue("enqueue", "no"), queue("popAll", "no")],
        [queue("enqueue", "no"), queue("remove", "no", reason="cancelled")],
        [queue("remove"), queue("dequeue"), queue("enqueue", "")],
    ],
)
def test_message_that_the_agent_never_got_is_not_read(tmp_path: Path, operations: list[Event]) -> None:
    found = read(tmp_path, *BEFORE, *operations, *AFTER)
    assert shown(found.steps) == ["go", "?c1", "!c1", "done"]


def test_removal_names_the_message_by_its_text(tmp_path: Path) -> None:
    operations = [queue("enqueue", "first"), queue("enqueue", "second"), queue("remove", "second")]
    found = read(tmp_path, *BEFORE, *operations, *AFTER)
    assert shown(found.steps) == ["go", "?c1", "!c1", "second", "done"]


@pytest.mark.parametrize(
    ("queued", "line"),
    [
        ("/review now", "<command-name>/review</command-name>\n<command-args>now</command-args>"),
        ("ls", "<bash-input>ls</bash-input>"),
    ],
)
def test_queued_command_is_read_from_its_own_line(tmp_path: Path, queued: str, line: str) -> None:
    events = [*BEFORE, queue("enqueue", queued), *AFTER, queue("dequeue"), user("u2", "a2", line)]
    found = read(tmp_path, *events, said("a3", "u2", "m3", text("fine")))
    assert shown(found.steps)[4:] == [line, "fine"]


def test_attachment_with_queued_message_is_read_once(tmp_path: Path) -> None:
    attachment = {"type": "queued_command", "prompt": [text("draft it")]}
    line = {"type": "attachment", "uuid": "q1", "parentUuid": "r1", "attachment": attachment}
    events = [*BEFORE, queue("enqueue", "draft it"), AFTER[0], line, queue("remove", reason="absorbed_mid_turn")]
    found = read(tmp_path, *events, said("a2", "q1", "m2", text("done")))
    assert shown(found.steps) == ["go", "?c1", "!c1", "draft it", "done"]
    assert (found.steps[3].keys, found.report.counted) == (("q1",), {"queue-operation": 2})


def test_notice_of_a_task_is_no_message_of_the_user(tmp_path: Path) -> None:
    notice = "<task-notification>\n<task-id>t1</task-id>\n</task-notification>"
    found = read(tmp_path, *BEFORE, queue("enqueue", notice), queue("remove"), *AFTER)
    assert found.steps[3].messages[0].source == "hook"
    assert [step.starts_turn for step in found.steps] == [True, False, False, False, False]


def test_growing_file_adds_queued_message_in_its_place(tmp_path: Path) -> None:
    events = [*BEFORE, queue("enqueue", "draft it"), AFTER[0], queue("remove"), AFTER[1]]
    whole = read(tmp_path, *events)
    for count in range(1, len(events)):
        keys = read(tmp_path, *events[:count]).all_keys()
        assert keys == whole.all_keys()[: len(keys)]
