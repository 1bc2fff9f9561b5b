"""What providers reported for a session's calls stands beside our counts, with the prices of its own models."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import nexus
from cli.running import environment, run
from nexus.types.request import TokenUsage


def log(folder: Path) -> Path:
    """A session file whose two calls went to a model of Anthropic and an unknown one."""
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": 50_000, "cache_creation_input_tokens": 2_000}
    events: list[dict[str, object]] = [{"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Go"}}]
    for number, model in enumerate(("model-x", "claude-opus-4-5")):
        message = {"id": f"m{number}", "role": "assistant", "model": model, "usage": {**usage, "output_tokens": 100}}
        message["content"] = [{"type": "text", "text": "Done"}]
        events.append({"type": "assistant", "uuid": f"a{number}", "message": message, "sessionId": "s"})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_reported_usage_of_a_file_is_shown_with_what_the_file_lacks(empty: Path, tmp_path: Path) -> None:
    run("import", log(tmp_path), folder=empty)
    for command in (("session", "show", "s"), ("context", "s")):
        shown = run(*command, folder=empty).out
        shown = " ".join(shown.split())
        assert "53,000 input tokens in the newest call to claude-opus-4-5, with the system prompt and tools" in shown
    assert run("context", "s", "--json", folder=empty).json["reported"]["last_input_tokens"] == 53_000


def test_cost_has_the_prices_of_the_models_in_the_file(empty: Path, tmp_path: Path) -> None:
    run("import", log(tmp_path), folder=empty)
    shown = run("session", "show", "s", folder=empty).out
    # $5 for input, $0.50 for cache reads, $6.25 for cache writes and $25 for output, per million tokens.
    assert "0.0450 for 1 call to claude-opus-4-5, unknown for 1 call to model-x" in shown
    models = run("session", "show", "s", "--json", folder=empty).json["reported"]["models"]
    assert [(one["model"], one["dollars"]) for one in models] == [("model-x", None), ("claude-opus-4-5", 0.045)]
    assert "claude-opus-4-5" in run("cache", "simulate", "s", folder=empty).out.splitlines()[0]


def test_usage_of_a_recorded_call_lacks_nothing(empty: Path) -> None:
    with nexus.open(workspace=empty) as nx:
        reply = nexus.AgentResult((nexus.assistant("GIN."),), TokenUsage(input_tokens=900, output_tokens=5))
        nx.record(nx.assemble("Which index?", session="main"), reply)
    shown = run("session", "show", "main", folder=empty).out
    assert "900 input tokens in the newest call to claude-sonnet-5-5\n" in shown


def test_import_shows_progress_on_a_terminal_but_not_with_json(empty: Path, tmp_path: Path) -> None:
    path = log(tmp_path)
    for options, is_shown in (((), True), (("--json",), False)):
        outer, inner = pty.openpty()
        command = [sys.executable, "-m", "nexus", "import", str(path), "--dry-run", *options]
        subprocess.run(command, cwd=empty, env=environment(), stdout=subprocess.DEVNULL, stderr=inner, check=True)
        os.write(inner, b".")
        shown = os.read(outer, 100_000).decode()
        os.close(inner)
        os.close(outer)
        assert ("Storing log.jsonl" in shown) is is_shown
        assert ("100%" in shown) is is_shown
