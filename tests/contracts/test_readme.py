"""README.md: its length, the tool loop against a client that calls a tool, and the sources of its figures."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nexus
from contracts.modules import ROOT
from contracts.test_docs_examples import blocks

README = ROOT / "README.md"
TEXT = README.read_text("utf-8")
FIGURE = re.compile(r"\d[\d,]*\.?\d*(?: %)?")


def replies(*contents: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield Anthropic's responses with one block of content each."""
    for number, content in enumerate(contents):
        stop = "tool_use" if content["type"] == "tool_use" else "end_turn"
        yield {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5-5",
            "content": [content],
            "stop_reason": stop,
            "usage": {"input_tokens": 9_000, "output_tokens": 9},
        }


def test_readme_has_at_most_900_words() -> None:
    assert len(TEXT.split()) <= 900


def test_tool_loop_runs_the_tool_and_keeps_the_turn(tmp_path: Path) -> None:
    (block,) = [block for block in blocks(README) if block.language == "python"]
    shutil.copytree(ROOT / "examples" / "agent", tmp_path / "agent")
    (tmp_path / "notes.md").write_text("We chose GIN.")
    answers = replies(
        {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "notes.md"}},
        {"type": "text", "text": "A GIN index."},
    )
    sent: list[dict[str, Any]] = []

    def create(**body: Any) -> dict[str, Any]:
        sent.append(body)
        return next(answers)

    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(None):
        exec(block.text, {"client": SimpleNamespace(messages=SimpleNamespace(create=create))})
    assert [tool["name"] for tool in sent[0]["tools"]] == ["read_file"]
    assert "We chose GIN." in str(sent[1]["messages"][-1])
    with nexus.open(tmp_path / "agent") as nx:
        assert [message.role for message in nx.history("main")] == ["user", "assistant", "tool", "assistant"]


def test_tool_loop_passes_a_strict_type_checker(tmp_path: Path) -> None:
    (block,) = [block for block in blocks(README) if block.language == "python"]
    program = tmp_path / "loop.py"
    head = "# pyright: strict, reportAny=false\nimport anthropic\n\nclient = anthropic.Anthropic()\n"
    program.write_text(f"{head}{block.text}")
    command = [sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable, str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_tool_loop_has_at_most_twelve_lines_besides_the_tool() -> None:
    (block,) = [block for block in blocks(README) if block.language == "python"]
    lines = [line for line in block.text.splitlines() if line.strip()]
    tool = lines.index("def read_file(path: str) -> str:")
    others = [*lines[:tool], *lines[tool + 3 :]]
    assert "from pathlib import Path" in others
    assert len(others) - 1 <= 12, "all but the tool itself and what it imports"


def test_figures_of_the_reasons_are_in_the_sections_that_they_name() -> None:
    reasons = re.findall(r"^- \*\*.*?\(\[figures\]\(docs/benchmarks\.md#([\w-]+)\)\)\.$", TEXT, re.MULTILINE)
    lines = [line for line in TEXT.splitlines() if "[figures](docs/benchmarks.md#" in line]
    assert len(lines) == len(reasons) == 3
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    for line, anchor in zip(lines, reasons, strict=True):
        sections = [part for part in re.split(r"^(?=##+ )", page, flags=re.MULTILINE) if _anchor(part) == anchor]
        assert sections, anchor
        level = sections[0].split(" ")[0]
        section = re.split(rf"^{level} ", page[page.index(sections[0]) + len(level) :], flags=re.MULTILINE)[0]
        figures = [figure.rstrip(".,").removesuffix(" %") for figure in FIGURE.findall(line.split("([figures]")[0])]
        cells = set(re.findall(r"[\d,]+(?:\.\d+)?", section))
        assert [f for f in figures if not {f, f"{f}.0"} & cells] == [], anchor


def _anchor(section: str) -> str:
    heading = section.splitlines()[0] if section else ""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def test_figures_beside_the_picture_are_in_the_picture() -> None:
    found = re.search(r"^!\[(.*)\]\((docs/pictures/call\.svg)\)$", TEXT, re.MULTILINE)
    assert found is not None
    picture = (ROOT / found[2]).read_text("utf-8")
    figures = [figure.rstrip(".,") for figure in FIGURE.findall(found[1])]
    assert len(figures) >= 5
    assert [figure for figure in figures if figure not in picture] == []
