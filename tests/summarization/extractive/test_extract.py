"""What extraction finds, by kind, in five languages and from tool calls."""

from __future__ import annotations

import pytest

from nexus.summarization.extractive.extract import exact_identifiers, extract
from nexus.summarization.extractive.patterns import find_identifiers
from nexus.summarization.extractive.statements import ExtractedLine
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message, assistant, user
from summarization.conversations import PORTS, call, result, rows


def found(*messages: Message, kind: str) -> list[str]:
    return [finding.text for finding in extract(rows(*messages)).findings if finding.kind == kind]


@pytest.mark.parametrize(
    "sentence",
    [
        "Never push to main.", "You must not touch the billing module.", "Do not delete any file.", "Use only the standard library.",
        "Keep every answer under ten lines.", "Remember that the demo is on Friday.", "At most three retries are allowed.",
        "If a test fails, stop and ask.", "Niemals auf main pushen.", "Bitte keine neuen Abhängigkeiten einbauen.",
        "Il ne faut jamais effacer les fichiers.", "Il faut toujours lancer les tests.", "Nunca borres los archivos.",
        "Siempre usa el entorno virtual.", "绝对不要删除数据库。", "必须使用中文回答。",
    ],
)  # fmt: skip
def test_user_rule_becomes_constraint_with_its_reference(sentence: str) -> None:
    findings = extract(rows(user(f"Hello there.\n{sentence}"))).findings
    rule = next(finding for finding in findings if finding.kind == "constraint")
    assert rule.text == sentence and rule.place == MessageRef(1, 0) and rule.weight >= 85


@pytest.mark.parametrize(
    "sentence", ["I always loved Paris!", "Thanks for always being there.", "Must you ask?", "Do you know?"]
)
def test_soft_talk_and_questions_have_low_weight(sentence: str) -> None:
    assert all(
        finding.weight < 60 for finding in extract(rows(user(sentence))).findings if finding.kind == "constraint"
    )


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("I prefer short answers.", "preference"), ("Ich bevorzuge kurze Antworten.", "preference"), ("我喜欢简短的回答。", "preference"),
        ("We decided to use SQLite.", "decision"), ("Wir nehmen stattdessen Redis.", "decision"), ("我们决定采用方案二。", "decision"),
        ("Let's use uvicorn instead of gunicorn.", "decision"), ("FACT: The codename is HERON-17.", "fact"),
        ("The staging server is https://stage.example.com/v2.", "fact"), ("- [ ] write the migration", "open"),
        ("The next step is the index.", "open"), ("La prochaine étape est la migration.", "open"), ("下一步是部署。", "open"),
    ],
)  # fmt: skip
def test_user_statement_is_classified(sentence: str, kind: str) -> None:
    assert next(finding.kind for finding in extract(rows(user(sentence))).findings if finding.kind != "recent") == kind


def test_assistant_results_and_open_tasks_are_kept_without_chatter() -> None:
    said = assistant(
        "Let me check the file.\nI've added the index.\nStill to do: nothing.\nThe next step is the cache."
    )
    assert found(said, kind="done") == ["I've added the index."]
    assert "Left open: The next step is the cache." in found(said, kind="open")
    assert not any("Let me" in text for text in found(said, kind="decision"))


def test_newest_request_and_unanswered_question_are_open() -> None:
    told = extract(
        rows(user("Hello."), user("Make a report."), user("ok"), assistant("Done. Which format do you want?"))
    ).findings
    assert [finding.text for finding in told if finding.pending] == [
        "Newest request: Make a report.",
        "Asked the user: Which format do you want?",
    ]


def test_later_value_replaces_earlier_one_in_task_and_recent_lines() -> None:
    told = extract(PORTS)
    texts = [finding.text for finding in told.findings]
    assert not any("8080" in text for text in texts) and "8080" not in told.task
    assert "The port is 9090 now, see ticket OPS-4711." in texts
    assert told.task.startswith("Build a small status server in Python. Never log passwords. [replaced later]")


def test_files_commands_and_solved_errors_come_from_tool_calls() -> None:
    findings = extract(PORTS).findings
    by_kind = {
        kind: [finding.text for finding in findings if finding.kind == kind] for kind in ("file", "command", "error")
    }
    assert by_kind == {
        "file": ["changed src/server.py"],
        "command": ["`pytest -q` → 3 passed in 0.12s"],
        "error": ["`pytest -q`: 1 failed — solved after changing src/server.py"],
    }


def test_read_and_changed_files_come_from_tools_and_redirections() -> None:
    steps = [
        call(1, "Read", file_path="a.py"), call(2, "MultiEdit", file_path="b.py"), call(3, "mcp__fs__read_file", path="c.md"),
        call(4, "bash", command="cat d.txt | sort > e.txt 2>&1"), call(5, "bash", command="sed -i s/x/y/ f.cfg"),
        call(6, "apply_patch", input="*** Begin Patch\n*** Update File: g.py\n@@\n"), call(7, "shell", command=["bash", "-lc", "tee h.log"]),
        call(8, "bash", command="cat > i.py <<'EOF'\nif a > b: pass\nEOF"), call(9, "Write", file_path="a.py"), call(10, "bash", command="ls > /dev/null"),
    ]  # fmt: skip
    assert sorted(found(*steps, kind="file")) == sorted(
        [
            "changed a.py",
            "changed b.py",
            "read c.md",
            "read d.txt",
            "changed e.txt",
            "changed f.cfg",
            "changed g.py",
            "changed h.log",
            "changed i.py",
        ]
    )


def test_repeated_command_keeps_last_outcome() -> None:
    steps = [
        call(1, "bash", command="make"),
        result(1, "built 3"),
        call(2, "bash", command="make"),
        result(2, "built 4"),
    ]
    assert found(*steps, kind="command") == ["`make` → built 4"]


def test_identifiers_are_found_with_kind() -> None:
    text = (
        "See https://example.com/a?b=1, mail ann@example.com, run 123e4567-e89b-12d3-a456-426614174000 of src/app/main.py at 9f2c0de4b1, "
        "ticket OPS-4711, host db.internal:5432, v2.3.1, $1,200, `build_index`, MAX_RETRIES, E0502 and KeyError and/or 12 MB"
    )
    assert {(name, kind) for name, kind, _ in find_identifiers(text)} >= {
        ("https://example.com/a?b=1", "url"), ("ann@example.com", "email"), ("123e4567-e89b-12d3-a456-426614174000", "uuid"),
        ("src/app/main.py", "path"), ("9f2c0de4b1", "hash"), ("OPS-4711", "ticket"), ("db.internal:5432", "host"), ("v2.3.1", "version"),
        ("$1,200", "amount"), ("build_index", "name"), ("MAX_RETRIES", "env"), ("KeyError", "error"), ("12 MB", "amount"),
    }  # fmt: skip
    assert "and/or" not in {name for name, _, _ in find_identifiers(text)}


def test_exact_identifiers_are_ordered_by_weight() -> None:
    assert exact_identifiers(extract(PORTS)) == ("OPS-4711", "src/server.py")


def test_findings_contain_no_secrets() -> None:
    key = "ghp_" + "aB3dE5gH7j" * 4
    told = extract(
        rows(user(f"Remember: the token is {key}."), call(1, "bash", command=f"curl -H 'x: {key}'"), result(1, key))
    )
    assert key not in repr(told) and "[secret: github token]" in repr(told)


def test_later_value_replaces_line_of_previous_summary() -> None:
    earlier = [ExtractedLine("fact", "The port is 8080.", MessageRef(0, 3), 75)]
    told = extract(rows(user("The port is 9090.")), earlier)
    assert [finding.text for finding in told.findings if finding.kind == "fact"] == ["The port is 9090."]
