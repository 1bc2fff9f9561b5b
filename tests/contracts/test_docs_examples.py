"""Every example in README.md and docs/ runs: Python blocks, and the `$ nexus …` lines of console blocks.

A file is run from top to bottom in a folder of its own that begins as a copy of `examples/`, with `my-agent` as a
ready workspace that has the example's session as `main`. Python blocks of one file share their names; `client` stands
for the client of any provider. A block that cannot run says why just before it: `<!-- not run: reason -->`.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.running import environment, run
from contracts.modules import ROOT
from support.sdk_replies import client

EXAMPLES = ROOT / "examples"
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.is_file()]
NOT_RUN = re.compile(r"<!-- not run:(.*?)-->", re.DOTALL)
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n`]*\n(.*?)^\1\2`*[ ]*$", re.DOTALL | re.MULTILINE)
SHELL = frozenset("|&;<>$`*?()")
"""Characters for which a command needs a shell."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, the line of its first line, and why it is not run (None: it is)."""

    language: str
    text: str
    line: int
    not_run: str | None


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        before = text[: found.start()].rstrip()
        comment = NOT_RUN.search(before, before.rfind("<!--")) if before.endswith("-->") else None
        indent = found[1]
        body = "".join(line.removeprefix(indent) for line in found[4].splitlines(keepends=True))
        reason = comment[1].strip() if comment else None
        yield Block(found[3].lower(), body, text.count("\n", 0, found.start()) + 2, reason)


def commands(block: Block) -> Iterator[tuple[int, str]]:
    """The `$ …` lines of a console block with their line numbers; lines that end with a backslash are joined."""
    lines = iter(enumerate(block.text.splitlines(), block.line))
    for number, line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines)[1].removeprefix("> ")
            yield number, command


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which each page begins."""
    folder = tmp_path_factory.mktemp("page") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns(".nexus"))
    shutil.copytree(folder / "agent", folder / "my-agent")
    done = run("import", "session.json", "--session", "main", "-w", "my-agent", folder=folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "here"))


def pages() -> Any:
    return pytest.mark.parametrize("page", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])


def test_there_is_a_readme_and_a_page_on_the_command_line() -> None:
    assert [path for path in (ROOT / "README.md", ROOT / "docs" / "cli.md") if path not in PAGES] == []


@pages()
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    silent = [block.line for block in blocks(page) if block.not_run is not None and len(block.not_run.split()) < 3]
    assert silent == [], f"{page.name}: the reason is missing at these lines"
    text = page.read_text("utf-8")
    skipped = sum(block.not_run is not None for block in blocks(page))
    assert len(NOT_RUN.findall(text)) == skipped, f"{page.name}: a `not run` comment must stand right before its block"


@pages()
def test_every_fence_is_closed(page: Path) -> None:
    outside = FENCE.sub("", page.read_text("utf-8"))
    assert [line for line in outside.splitlines() if line.lstrip().startswith("```")] == []


@pages()
def test_every_python_block_runs(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "client": client()}
    for block in blocks(page):
        if block.language not in ("python", "py") or block.not_run is not None:
            continue
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        with contextlib.chdir(folder), contextlib.redirect_stdout(None):
            exec(code, names)


@pages()
def test_every_nexus_line_of_a_console_block_runs(page: Path, folder: Path, tmp_path: Path) -> None:
    here = folder
    for block in blocks(page):
        if block.language != "console" or block.not_run is not None:
            continue
        for line, command in commands(block):
            words = shlex.split(command, comments=True)
            if words[:1] == ["cd"]:
                here = (here / words[1]).resolve()
                assert here.is_relative_to(folder), f"{page.name}:{line}: leaves its folder"
            elif "nexus" in words:
                code, said = _ran(command, words, here, tmp_path)
                assert code == 0, f"{page.name}:{line}: `{command}` ends with {code}: {said}"


def _ran(command: str, words: list[str], folder: Path, bin_folder: Path) -> tuple[int, str]:
    """The command's exit code and what it said: in this process, or by a shell where one is needed."""
    if words[0] == "nexus" and not SHELL & set("".join(words)):
        ran = run(*words[1:], folder=folder)
        return ran.code, ran.err or ran.out
    script = bin_folder / "nexus"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nexus.cli "$@"\n')
    script.chmod(0o755)
    env = environment(PATH=f"{bin_folder}:{environment()['PATH']}")
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr or done.stdout


def test_the_reader_of_pages_sees_languages_reasons_indents_and_joined_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n```python\nx = 1\n```\n\n<!-- not run: it needs a key of yours -->\n\n```python\ny\n```\n\n"
        "- item:\n\n  ```console\n  $ nexus init \\\n  > here\n  Workspace\n  $ nexus sessions  # a remark\n  ```\n\n"
        "````markdown\n```python\nnot a block\n```\n````\n"
    )
    plain, skipped, console, outer = blocks(page)
    assert (plain.language, plain.text, plain.line, plain.not_run) == ("python", "x = 1\n", 4, None)
    assert (skipped.text, skipped.not_run) == ("y\n", "it needs a key of yours")
    assert list(commands(console)) == [(16, "nexus init here"), (19, "nexus sessions  # a remark")]
    assert (outer.language, console.not_run) == ("markdown", None)
