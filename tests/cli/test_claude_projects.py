"""Sessions of Claude Code: found in its own folder, with project, cost by day and project, and their past windows."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import environment, run
from cli.terminal import Terminal, plain
from nexus.cli._claude_projects import find_projects

DAY = "2026-02-0{day}T10:0{minute}:00Z"


def lines_of(name: str, project: str, day: int, inputs: list[int]) -> list[dict[str, Any]]:
    """Return the lines of a session: a question, then a reply for each count of reported input tokens."""
    common = {"sessionId": name, "cwd": project, "version": "2.1"}
    lines: list[dict[str, Any]] = [{"type": "summary", "summary": "s", "leafUuid": "x"}]
    parent = None
    for number, tokens in enumerate(inputs):
        asked, answered = f"{name}-{number}-u", f"{name}-{number}-a"
        lines.append(
            {**common, "type": "user", "uuid": asked, "parentUuid": parent, "timestamp": DAY.format(day=day, minute=number),
             "toolUseResult": {"a": 1}, "message": {"role": "user", "content": f"Question {number} of {name}"}}
        )  # fmt: skip
        usage = {"input_tokens": tokens, "output_tokens": 10}
        message = {"id": f"m-{answered}", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage,
                   "content": [{"type": "text", "text": f"Answer {number}"}]}  # fmt: skip
        lines.append(
            {**common, "type": "assistant", "uuid": answered, "parentUuid": asked,
             "timestamp": DAY.format(day=day, minute=number), "message": message}
        )  # fmt: skip
        parent = answered
    return lines


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of Claude Code with three sessions of two projects."""
    folder = tmp_path / "claude"
    for name, project, day, inputs in (
        ("one", "/projects/web", 1, [1_000, 9_000, 2_000]),
        ("two", "/projects/web", 2, [4_000]),
        ("three", "/projects/api", 2, [5_000]),
    ):
        file = folder / "projects" / project.replace("/", "-") / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(map(json.dumps, lines_of(name, project, day, inputs))), "utf-8")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


@pytest.mark.parametrize("cwd", ["C:\\Users\\ann\\web", '/projects/m\u00fcller/ "a"', "/\ud800"])
def test_project_is_the_folder_as_the_file_has_it(claude: Path, cwd: str) -> None:
    (file,) = (claude / "projects").glob("*api/*.jsonl")
    file.write_text("\n".join(json.dumps({**line, "cwd": cwd}) for line in lines_of("three", "", 2, [1])), "utf-8")
    project = find_projects(claude / "projects")[0].project
    assert project == (cwd if cwd.isprintable() else "-projects-api")


@pytest.mark.usefixtures("claude")
def test_import_without_files_shows_the_projects_and_says_what_to_pass(empty: Path) -> None:
    ran = run("import", folder=empty)
    assert (ran.code, "3 sessions of 2 projects" in ran.out, "nexus import --yes" in ran.err) == (2, True, True)
    shown = sorted(line.split()[:2] for line in ran.out.splitlines()[2:])
    assert shown == [["/projects/api", "1"], ["/projects/web", "2"]]
    assert "nexus import --yes" in run("import", "--json", folder=empty).json["error"]["message"]
    assert run("sessions", "--json", folder=empty).json == []


@pytest.mark.usefixtures("claude")
def test_import_with_yes_adds_each_session_once(empty: Path) -> None:
    assert len(run("import", "--yes", "--json", folder=empty).json["imported"]) == 3
    again = run("import", "--yes", "--json", folder=empty).json["imported"]
    assert [report["added_entries"] for report in again] == [0, 0, 0]
    assert run("import", "--yes", "-s", "main", folder=empty).code == 2


@pytest.mark.usefixtures("claude")
def test_import_asks_on_a_terminal(empty: Path) -> None:
    for answer, added in (("n", 0), ("y", 3)):
        outer, inner = pty.openpty()
        os.write(outer, f"{answer}\n".encode())
        command = [sys.executable, "-m", "nexus", "import"]
        done = subprocess.run(
            command, cwd=empty, env=environment(), stdin=inner, capture_output=True, check=False, timeout=120
        )
        os.close(inner)
        os.close(outer)
        assert done.returncode == 0, done.stderr
        assert (b"Nothing was imported." in done.stdout) == (not added)
        assert len(run("sessions", "--json", folder=empty).json) == added


def test_import_without_files_and_sessions_names_the_folder(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "none"))
    ran = run("import", "--yes", folder=empty)
    assert (ran.code, "Missing argument 'FILES'" in ran.err, "none/projects" in ran.err) == (2, True, True)


@pytest.mark.usefixtures("claude")
def test_fields_that_no_model_received_are_described_and_not_omitted(empty: Path) -> None:
    out = run("import", "--yes", folder=empty).out
    assert "not needed: toolUseResult (3): a copy of the results for Claude Code's own display" in out
    assert "omitted" not in out


@pytest.mark.usefixtures("claude")
def test_sessions_have_project_dates_and_cost(empty: Path) -> None:
    run("import", "--yes", folder=empty)
    lines = run("sessions", folder=empty).out.splitlines()
    assert lines[0].split() == ["session", "turns", "messages", "tokens", "first", "last", "USD", "project", "title"]
    values = {value["label"]: value for value in run("sessions", "--json", folder=empty).json}
    assert values["three"]["project"] == "/projects/api"
    assert values["three"]["dollars"] == pytest.approx((5_000 * 3 + 10 * 15) / 1e6)
    assert values["one"]["open_turn"] is False


def test_sessions_fit_a_narrow_terminal(claude: Path, empty: Path) -> None:
    name, path = "0a93878f-dc30-4a5d-882f-3cd81cd3d499", "/projects/of/everybody/web"
    (claude / "projects" / "-web" / f"{name}.jsonl").parent.mkdir()
    text = "\n".join(map(json.dumps, lines_of(name, path, 1, [1_000])))
    (claude / "projects" / "-web" / f"{name}.jsonl").write_text(text, "utf-8")
    run("import", "--yes", folder=empty)
    shown = Terminal("sessions", folder=empty)
    assert shown.end() == 0
    text = plain(shown.output)
    assert re.search(r"^0a93878f +1 +2026-02-01 +0.00 +everybody/web +Question 0", text, re.MULTILINE)
    assert name in run("sessions", folder=empty).out
    assert path in run("sessions", folder=empty).out


@pytest.mark.usefixtures("claude")
def test_usage_adds_up_days_and_projects_and_counts_shared_calls_once(empty: Path) -> None:
    run("import", "--yes", folder=empty)
    run("fork", "copy", "one", folder=empty)
    run("session", "delete", "three", folder=empty)
    rows = run("usage", "--json", folder=empty).json
    assert [(row["day"], row["project"], row["calls"], row["input"]) for row in rows] == [
        ("2026-02-02", "/projects/api", 1, 5_000),
        ("2026-02-02", "/projects/web", 1, 4_000),
        ("2026-02-01", "/projects/web", 3, 12_000),
    ]
    by_project = run("usage", "--by", "project", "--json", folder=empty).json
    assert [(row["project"], row["calls"]) for row in by_project] == [("/projects/web", 4), ("/projects/api", 1)]
    assert [
        row["day"] for row in run("usage", "--since", "2026-02-02", "--by", "day", "--json", folder=empty).json
    ] == ["2026-02-02"]
    assert run("usage", folder=empty).out.splitlines()[-1].startswith("total")


def test_cost_is_a_least_one_where_the_file_has_less_output_than_its_replies(claude: Path, empty: Path) -> None:
    """Claude Code writes the usage with which a stream begins."""
    (file,) = (claude / "projects").glob("*api/*.jsonl")
    lines = lines_of("three", "/projects/api", 2, [5_000])
    lines[-1]["message"]["content"] = [{"type": "text", "text": "Every word of it. " * 40}]
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    run("import", "--yes", folder=empty)
    assert "1 call reported fewer output tokens than its reply had" in run("usage", folder=empty).out.splitlines()[-1]
    assert sum(row["short_outputs"] for row in run("usage", "--json", folder=empty).json) == 1
    assert "USD at list prices: at least 0.0152" in run("session", "show", "three", folder=empty).out
    assert "at least" not in run("session", "show", "one", folder=empty).out


def test_usage_without_calls_says_so(empty: Path) -> None:
    assert "since 2030-01-01" in run("usage", "--since", "2030-01-01", folder=empty).out
    assert "No calls with reported usage" in run("usage", folder=empty).out
    assert run("usage", "--json", folder=empty).json == []


@pytest.mark.parametrize(("tokens", "window"), [(167_000, 200_000), (201_000, 1_000_000)])
def test_window_is_the_clients_unless_a_prompt_exceeds_it(claude: Path, empty: Path, tokens: int, window: int) -> None:
    (file,) = (claude / "projects").glob("*api/*.jsonl")
    lines = lines_of("three", "/projects/api", 2, [tokens])
    lines[-1]["message"]["model"] = "claude-opus-4-6"
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    run("import", "--yes", folder=empty)
    assert f"of a window of {window:,}" in run("context", "three", "--peak", folder=empty).out


@pytest.mark.usefixtures("claude")
def test_context_shows_a_past_call_of_an_imported_session(empty: Path) -> None:
    run("import", "--yes", folder=empty)
    value = run("context", "one", "--peak", "--json", folder=empty).json
    assert (value["call"]["turn"], value["call"]["input_tokens"]) == (2, 9_000)
    assert value["tokenBudget"]["available"] == 200_000
    first = run("context", "-s", "one", "--at", "1", folder=empty)
    assert "call 1 of 1 in turn 1 to claude-sonnet-4-5" in first.out
    assert "Reported: 1,000 input tokens" in first.out
    assert value["tokenBudget"]["used"]["history"] > 0
    for wrong in (
        ("--at", "9"),
        ("--at", "1", "--call", "2"),
        ("--at", "1", "--peak"),
        ("--peak", "-m", "x"),
        ("--call", "1"),
    ):
        assert run("context", "one", *wrong, folder=empty).code == 2


def test_context_shows_a_recorded_call_as_it_was_sent(empty: Path) -> None:
    with nexus.open(workspace=empty) as nx:
        for question in ("Which index?", "Why?"):
            nx.record(nx.assemble(question, session="own"), nexus.AgentResult((nexus.assistant("GIN."),)))
        sent = nx.replay("own", 1).token_budget.used.total
    shown = run("context", "own", "--at", "1", "--json", folder=empty).json
    assert shown["tokenBudget"]["used"]["total"] == sent
    assert "no call with reported usage" in run("context", "own", "--peak", folder=empty).err
