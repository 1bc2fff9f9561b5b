"""`nexus compact`: what it prints, that it is undone, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from cli.running import run


def talked(folder: Path, turns: int = 30) -> Path:
    """A workspace whose session main has been imported."""
    said = [{"role": "user", "content": "Plan the trip. Never book a night train. The budget is 900 EUR."}]
    for turn in range(turns):
        said += [{"role": "assistant", "content": f"Idea {turn}: " + "we could go there by bus. " * 20}]
        said += [{"role": "user", "content": f"What about number {turn + 1}?"}]
    said += [{"role": "assistant", "content": "Here it is."}]
    (folder / "talk.json").write_text(json.dumps({"messages": said}))
    return folder


def test_it_tells_the_figures_and_the_summary_and_undo_takes_it_back(tmp_path: Path) -> None:
    folder = talked(tmp_path)
    assert run("init", "w", folder=folder).code == 0
    assert run("import", "talk.json", "-w", "w", "--session", "main", folder=folder).code == 0
    foretold = run("compact", "main", "-w", "w", "--budget", "8000", "--dry-run", folder=folder)
    assert "would become a summary of at most" in foretold.out
    done = run("compact", "main", "focus on decisions", "-w", "w", "--budget", "8000", folder=folder)
    assert done.code == 0 and "messages are now a summary of" in done.out
    assert "Never book a night train." in done.out and "Revert it: nexus undo main --workspace w" in done.out
    shown = run("assemble", "and now?", "-s", "main", "-w", "w", "--budget", "8000", "--as", "openai", folder=folder)
    assert "[Previous conversation summary]" in shown.out
    assert "undone" in run("undo", "main", "-w", "w", folder=folder).out
    told = json.loads(run("compact", "main", "-w", "w", "--budget", "8000", "--json", folder=folder).out)
    assert told["method"] == "extractive" and told["tokens_after"] < told["tokens_before"]


def test_what_cannot_be_compacted_is_said_in_one_line(tmp_path: Path) -> None:
    folder = talked(tmp_path, turns=0)
    assert run("init", "w", folder=folder).code == 0
    missing = run("compact", "main", "-w", "w", folder=folder)
    assert missing.code == 2 and "session 'main' not found" in missing.err
    assert run("import", "talk.json", "-w", "w", "--session", "main", folder=folder).code == 0
    done = run("compact", "main", "-w", "w", folder=folder)
    assert done.code == 0 and "not compacted: nothing to summarize" in done.out
    assert json.loads(run("compact", "main", "-w", "w", "--dry-run", "--json", folder=folder).out)["plan"] is None
    assert run("compact", "main", "-w", "w", "--to", "99", folder=folder).code == 2
    assert run("compact", "main", "-w", "w", "--budget", "0", folder=folder).code == 2


def test_unreachable_summarizer_is_reported_and_summary_is_extractive(tmp_path: Path) -> None:
    folder = talked(tmp_path)
    assert run("init", "w", folder=folder).code == 0
    assert run("import", "talk.json", "-w", "w", "--session", "main", folder=folder).code == 0
    asked = ("--summarizer", "none", "--base-url", "http://127.0.0.1:9/v1")
    done = run("compact", "main", "-w", "w", "--budget", "8000", *asked, folder=folder)
    assert (
        done.code == 0 and "Summary by none rejected: SummarizerFailed" in done.out and "(extractive, entry" in done.out
    )
