"""Sentences that a summary must not contain: they would tell the model something that is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexus.interop.detect import read
from nexus.summarization.extractive.extract import extract
from nexus.summarization.extractive.statements import ExtractedLine
from nexus.summarization.extractive.summary import parse_summary, render_summary, summarize
from nexus.tokens.counter import get_counter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, assistant, user
from summarization.conversations import call, result, rows

COUNTER = get_counter()


def texts(*messages: Message) -> list[str]:
    return [finding.text for finding in extract(rows(*messages)).findings if finding.kind != "recent"]


def errors(*messages: Message) -> list[str]:
    return [finding.text for finding in extract(rows(*messages)).findings if finding.kind == "error"]


def kinds(*messages: Message) -> set[str]:
    return {f.kind for f in extract(rows(*messages)).findings if f.kind != "recent" and not f.pending}


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


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("gh pr diff 9", "type QuotaError struct {\n\tName string\n}"),
        ("gh api reviews", '{"id": 4, "body": "Fixed. The reader no longer hits the error: it splits at zero bytes."}'),
        ("go doc store", "// Notify is called when a job succeeded or failed.\nfunc Notify()"),
        ("make docs", "page 1\npage 2\npage 3\npage 4: What is a Traceback (most recent call last)?\ndone"),
        ("npm test | grep -i error", "error: what the log said before the fix"),
    ],
)
def test_content_that_mentions_errors_is_no_error(command: str, printed: str) -> None:
    assert errors(call(1, "bash", command=command), result(1, printed)) == []


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        ("Traceback (most recent call last):\n  File x\nKeyError: 'name'", "KeyError: 'name'"),
        ("Exit code 2\nno rule to make that", "no rule to make that"),
        ("all fine so far\nand here\nand there\nand on\n2 failed, 7 passed in 0.3s", "2 failed, 7 passed in 0.3s"),
        ('{"output": "nothing to do", "exit_code": 3}', '{"output": "nothing to do", "exit_code": 3}'),
        ("bash: frobnicate: command not found", "bash: frobnicate: command not found"),
    ],
)
def test_exit_status_and_first_and_last_lines_report_an_error(printed: str, error: str) -> None:
    assert errors(call(1, "bash", command="make it"), result(1, printed)) == [f"`make it`: {error}"]


def test_denied_call_is_reported_with_the_users_reason_and_changes_no_file() -> None:
    text = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nUse the other branch."
    steps = (call(1, "Write", file_path="a.py", content="x"), result(1, text, failed=True))
    assert texts(user("Go."), *steps) == ["Write(a.py): denied by the user: Use the other branch."]


def test_failed_edit_and_read_are_no_changed_and_read_file() -> None:
    steps = (
        call(1, "edit_file", path="a.py"), result(1, "String to replace not found.", failed=True),
        call(2, "read_file", path="b.py"), result(2, "File does not exist.", failed=True),
    )  # fmt: skip
    assert not [text for text in texts(user("Go."), *steps) if text.startswith(("changed", "read "))]


def test_error_is_solved_by_the_same_command_alone() -> None:
    failed = (call(1, "bash", command="tool test"), result(1, "FAILED all of it\n3 failed"))
    other = (call(2, "bash", command="tool test one"), result(2, "ok"))
    assert errors(*failed, *other) == ["`tool test`: 3 failed"]
    same = (call(2, "bash", command="tool test --verbose | tail -3"), result(2, "ok"))
    assert errors(*failed, *same) == ["`tool test`: 3 failed — solved: a later try passed"]


def test_error_and_outcome_of_the_previous_summary_change_with_a_later_call() -> None:
    before = [
        ExtractedLine("error", "`make a`: 2 failed", MessageRef(0, 1), 70), ExtractedLine("command", "`make b` → ok", MessageRef(0, 2), 40),
        ExtractedLine("file", "read a.py", MessageRef(0, 3), 25),
    ]  # fmt: skip
    steps = (
        user("Go on."), call(1, "edit_file", path="a.py"), result(1, "ok"), call(2, "bash", command="make a"), result(2, "ok"),
        call(3, "bash", command="make b"), result(3, "Exit code 1\nno b"),
    )  # fmt: skip
    lines = [(f.kind, f.text) for f in extract(rows(*steps), before).findings if f.kind in ("file", "command", "error")]
    assert sorted(lines) == [
        ("command", "`make a` → ok"), ("error", "`make a`: 2 failed — solved after changing a.py"),
        ("error", "`make b`: no b"), ("file", "changed a.py"),
    ]  # fmt: skip


def test_unsolved_error_ends_with_an_answer_that_reports_no_failure() -> None:
    failed = (
        user("Merge it."),
        call(1, "bash", command="git merge x"),
        result(1, "error: conflict in a.py", failed=True),
    )
    assert errors(*failed) == ["`git merge x`: error: conflict in a.py"]
    assert errors(*failed, assistant("It is merged."), user("Good, next.")) == []
    reported = (*failed, assistant("I could not merge it."), user("Good, next."))
    assert errors(*reported) == ["`git merge x`: error: conflict in a.py"]
    assert errors(*reported, user("And the next.")) == []


@pytest.mark.parametrize(
    "described",
    [
        "The counter causes the reader to always return zero lines.", "The callback is never called after a restart.",
        "The importer always returns an empty list there.", "No cover image in the exported book", "The list now needs at least two lines.",
    ],
)  # fmt: skip
def test_description_of_a_fault_is_no_constraint(described: str) -> None:
    assert not kinds(user("Hi."), user(described), user("Go on.")) & {"constraint"}
    assert kinds(user("Hi."), user("The importer must never return an empty list."), user("Go on.")) == {"constraint"}


@pytest.mark.parametrize(
    "said",
    [
        "Can you look up whether the press has a public manual for it", "how do the page numbers work if a page is printed twice",
        "The pageCounter struct is missing the total of the last run.", "This makes the result exact instead of a guess for everybody.",
        "add the second printer to the list of the press room", "You can continue here with the other tab of the press.",
    ],
)  # fmt: skip
def test_request_question_and_report_of_a_fault_are_no_facts(said: str) -> None:
    assert not kinds(user("Hi."), user(said), user("Go on.")) & {"fact", "decision", "constraint"}


@pytest.mark.parametrize(
    "said",
    [
        "How does the press affect this, and if we don't join them, who prints the cover", "Add a line to the list so we don't forget it",
        "I'd prefer that", "Rebase to main before we start the press", "Let's start with the second press in room 530.",
        "Oh, press 93 was merged 20 minutes ago, which matters for us.", "The reset failed to clear the tray, so the press shows pending work.",
    ],
)  # fmt: skip
def test_passing_remark_is_no_lasting_statement(said: str) -> None:
    assert kinds(user("Hi."), user(said), assistant("All right."), user("Go on.")) == set()


def test_property_in_a_plan_is_no_rule() -> None:
    plan = "Step one is the press.\n" * 7
    assert "constraint" not in kinds(user("Hi."), user(f"{plan}No risk of paper jams."), user("Go on."))
    assert "constraint" in kinds(user("Hi."), user("No new dependencies."), user("Go on."))


def test_time_in_a_comparison_is_no_file() -> None:
    command = """jq '.[] | select(.at > "2031-02-03T04:05:06Z")' jobs.json > found.json"""
    files = [text for text in texts(user("Go."), call(1, "bash", command=command), result(1, "ok")) if "`" not in text]
    assert files == ["changed found.json"]


def test_output_in_a_message_is_no_fact() -> None:
    pasted = (
        "Pages in all: 94\nmode 100644 main.txt\n[main 05e4219] Print two pages\n== Step 13 ==\nRun 7 is over\nJob: 12"
    )
    said = user(f"{pasted}\nThe press stands in room 530 of the annex.")
    assert texts(user("Hi."), said, assistant("All right.")) == ["The press stands in room 530 of the annex."]


@pytest.mark.parametrize(
    "said",
    [
        "The cause is that it returns nil instead of calling the handler.",
        "The plan is clear.",
        "Comment 2 suggests a constant that was chosen.",
    ],
)
def test_assistants_description_is_no_decision(said: str) -> None:
    assert "decision" not in kinds(user("Hi."), assistant(said), user("Go on."))
    assert "decision" in kinds(user("Hi."), assistant("I decided to keep the old handler."), user("Go on."))


def test_state_of_the_tests_is_no_result() -> None:
    answer = assistant("I've added the index. All unit tests pass.")
    assert texts(user("Hi."), answer, user("Fine.")) == ["I've added the index.", "Newest request: Fine."]


def test_open_task_ends_with_a_report_that_it_is_done() -> None:
    task = user("- [ ] write the migration of the letters table")
    opened = (user("Hi."), task, assistant("Right."), user("Go on."))
    assert "write the migration of the letters table" in texts(*opened)
    done = assistant("I've written the migration of the letters table.")
    assert "write the migration of the letters table" not in texts(*opened, done, user("Next."))


def test_only_the_newest_answer_leaves_tasks_open() -> None:
    first, second = assistant("The next step is the cache."), assistant("The index is still missing a test.")
    later = texts(user("Hi."), first, user("Go on."), second, user("Fine."))
    assert [text for text in later if text.startswith("Left open: ")] == [
        "Left open: The index is still missing a test."
    ]
    assert "Left open: The next step is the cache." in texts(user("Hi."), first, user("Go on."))
    read_back = parse_summary("## Task\n> Hi.\n\n## Open\n- Left open: The next step is the cache.")[1]
    assert (
        summarize(
            rows(user("Go on."), second, user("Fine " + "and so on " * 90)),
            400,
            COUNTER,
            previous=render_summary("Hi.", read_back),
        ).count("cache")
        == 0
    )


def test_report_on_a_removed_file_is_dropped() -> None:
    made = (
        assistant("Created the note docs/old-note.md."),
        call(1, "Write", file_path="/w/docs/old-note.md"),
        result(1, "ok"),
    )
    gone = (call(2, "bash", command="rm docs/old-note.md"), result(2, ""))
    assert "Created the note docs/old-note.md." in texts(user("Hi."), *made)
    lines = texts(user("Hi."), *made, *gone)
    assert "removed /w/docs/old-note.md" in lines and "Created the note docs/old-note.md." not in lines


def test_slash_command_with_arguments_is_the_task_and_one_without_is_no_request() -> None:
    command = user(
        "<command-message>plan</command-message>\n<command-name>/plan</command-name>\n<command-args>Add a dark theme.</command-args>"
    )
    extracted = extract(rows(command, assistant("Done."), user("Use the color teal."), user("/compact")))
    assert extracted.task == "/plan Add a dark theme."
    assert [f.text for f in extracted.findings if f.pending] == ["Newest request: Use the color teal."]
    bare = user("<command-name>/clear</command-name>\n<command-args></command-args>")
    assert extract(rows(bare, user("Fix the login."))).task == "Fix the login."


def test_colon_after_plain_words_is_no_label() -> None:
    assert "open" not in kinds(user("Hi."), user("Machine state: 12 letters in the tray."), user("Go on."))


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
