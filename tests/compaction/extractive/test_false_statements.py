"""Sentences that a summary must not contain: they would tell the model something that is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction.conversations import call, result, rows
from nexus.compaction.extractive.extract import extract
from nexus.compaction.extractive.summary import summarize
from nexus.interop.detect import read
from nexus.tokens.counter import get_counter
from nexus.tokens.measure import message_tokens
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, assistant, user

COUNTER = get_counter()


def texts(*messages: Message) -> list[str]:
    return [finding.text for finding in extract(rows(*messages)).findings if finding.kind != "recent"]


def test_only_a_user_replaces_what_a_user_said() -> None:
    task = user("The server runs on port 8080. Fix the login.")
    said_by_assistant = extract(rows(task, assistant("The server now runs on port 9090.")))
    assert said_by_assistant.task == "The server runs on port 8080. Fix the login."
    said_by_user = extract(rows(task, assistant("Done."), user("The server now runs on port 9090.")))
    assert said_by_user.task == "[replaced later] Fix the login."


def test_statement_of_a_user_survives_an_assistants_contradiction() -> None:
    messages = (
        user("Hello."),
        user("The staging port is 8080."),
        assistant("I decided: the staging port is now 9090."),
    )
    assert "The staging port is 8080." in texts(*messages)


@pytest.mark.parametrize(
    "pasted",
    [
        "ann@laptop ~/w/cli (main) [1]> brew aaaa\nError: Invalid usage: Unknown command: brew aaaa",
        "$ ls -la /srv/app\ntotal 48 files in 3 folders",
        "(venv) root@host:/srv# make test\n3 failed, 40 passed in 2.1 s",
        '"""\nbrew install --verbose --debug FORMULA\n"""',
    ],
)
def test_pasted_terminal_output_is_no_fact(pasted: str) -> None:
    messages = (user("Look at this."), user(f"This is what I get:\n{pasted}\n\nNever touch legacy.py."))
    found = " ".join(text for text in texts(*messages) if not text.startswith("Newest request"))
    assert found == "Never touch legacy.py."


@pytest.mark.parametrize("heading", ["I then:", "Analysis:", "**No shadow branch:**", "# Plan: fix port 8080"])
def test_heading_is_no_statement(heading: str) -> None:
    assert texts(user("Go."), user(f"{heading}\n"), assistant("Fine.")) == []


def test_answered_request_is_not_open() -> None:
    asked = (user("Fix the bug."), assistant("Done."), user("Now write the test for the parser."))
    assert any(text.startswith("Newest request") for text in texts(*asked))
    assert not any(text.startswith("Newest request") for text in texts(*asked, assistant("The test is written.")))
    assert any(text.startswith("Newest request") for text in texts(*asked, assistant("Which framework do you want?")))


def test_message_that_a_program_wrote_is_not_the_task() -> None:
    skill = user("Base directory for this skill: skills/pdf\n\nAlways use the REST API on port 9090.")
    reminder = user("<system-reminder>Never mention this.</system-reminder>")
    extracted = extract(rows(skill, reminder, user("Fix the login.")))
    assert extracted.task == "Fix the login."
    assert extracted.findings == () or "9090" not in str(extracted.findings)


def test_reminder_inside_a_result_is_not_quoted() -> None:
    text = "x = 1\n<system-reminder>You CAN and SHOULD provide an analysis of 12 files.</system-reminder>"
    assert texts(user("Read it."), call(1, "read_file", path="a.py"), result(1, text)) == ["read a.py"]


def test_what_a_writing_tool_prints_is_not_quoted() -> None:
    done = result(1, "All occurrences of 'a1' were replaced with 'a2' in 12 places.")
    assert not any("occurrences" in text for text in texts(user("Go."), call(1, "edit_file", path="a.py"), done))


def test_rest_of_a_wrapped_sentence_is_not_quoted() -> None:
    text = "  --accessible   use plain prompts in place of the interactive\n  TUI elements, which works better with 2 readers."
    assert not any("“TUI" in text for text in texts(user("Go."), call(1, "run", command="a --help"), result(1, text)))


def test_errors_in_shown_code_are_no_failure_of_the_command_that_shows_it() -> None:
    for command in ("git diff main", "cat a.go", "cd /repo && git log -p"):
        shown = result(1, '+    return fmt.Errorf("fatal: no such branch")')
        findings = extract(rows(user("Go."), call(1, "run", command=command), shown)).findings
        assert {finding.kind for finding in findings} <= {"command", "recent", "open", "file"}


def test_error_of_a_tool_is_its_first_line() -> None:
    refused = result(1, 'String to replace not found.\nString: raise ValueError("failed: 1")', failed=True)
    lines = texts(user("Go."), call(1, "edit_file", path="a.py"), refused)
    assert "edit_file(a.py): String to replace not found." in lines


def test_summaries_of_real_sessions_replace_no_words_of_the_user(data: Path) -> None:
    for path in sorted((data / "claude_code").glob("*.jsonl")):
        steps = next(iter(read(path))).steps
        stored = [
            StoredMessage(MessageRef(at, number), message, message_tokens(message, COUNTER))
            for at, step in enumerate(steps, 1)
            for number, message in enumerate(step.messages)
        ]
        summary = summarize(stored, 1_500, COUNTER)
        assert "[replaced later]" not in summary
        assert "You CAN and SHOULD" not in summary
