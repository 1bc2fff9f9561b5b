"""Every example in README.md and docs/ runs: Python blocks, and the `$ nexus …` lines of console blocks.

A file is run from top to bottom in a folder of its own that begins as a copy of `examples/`, with `my-agent` as a
ready workspace that has the example's session as `main`. Python blocks of one file share their names; `client` stands
for the client of any provider. A block that cannot run says why just before it: `<!-- not run: reason -->`.
"""

from __future__ import annotations

import asyncio
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
from support.sdk_replies import async_client, client

EXAMPLES = ROOT / "examples"
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.is_file()]
NOT_RUN = re.compile(r"<!-- not run:(.*?)-->", re.DOTALL)
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n`]*\n(.*?)^\1\2`*[ ]*$", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
"""A quoted word that a shell would take as it is."""

SHELL = frozenset("&;<>$`*?()\\")
"""Characters for which a command needs a shell, outside of quotes."""


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


def pages_with(*languages: str) -> Any:
    """Parametrize a test over the pages that have a block in one of these languages that is to be run."""
    chosen = [p for p in PAGES if any(b.language in languages and b.not_run is None for b in blocks(p))]
    return pytest.mark.parametrize("page", chosen, ids=[str(path.relative_to(ROOT)) for path in chosen])


def test_there_is_a_readme_and_a_page_on_the_command_line() -> None:
    assert [path for path in (ROOT / "README.md", ROOT / "docs" / "cli.md") if path not in PAGES] == []


def test_a_block_that_is_not_run_says_why() -> None:
    wrong = list[str]()
    for page in PAGES:
        skipped = [block for block in blocks(page) if block.not_run is not None]
        wrong += [f"{page.name}:{one.line}: no reason" for one in skipped if len((one.not_run or "").split()) < 3]
        if len(NOT_RUN.findall(page.read_text("utf-8"))) != len(skipped):
            wrong.append(f"{page.name}: a `not run` comment is not right before its block")
    assert wrong == []


def test_every_fence_is_closed() -> None:
    open_fences = {
        page.name: lines
        for page in PAGES
        for lines in [[line for line in _outside(page).splitlines() if line.lstrip().startswith("```")]]
        if lines
    }
    assert open_fences == {}


def _outside(page: Path) -> str:
    """Return the page's text without its fenced blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


@pages_with("python", "py")
def test_every_python_block_runs(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "client": client(), "async_client": async_client()}
    with current_event_loop():
        for block in blocks(page):
            if block.language not in ("python", "py") or block.not_run is not None:
                continue
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.chdir(folder), contextlib.redirect_stdout(None):
                exec(code, names)


@contextlib.contextmanager
def current_event_loop() -> Iterator[None]:
    """Give the thread an event loop, and close it: frameworks' synchronous functions leave the one open that they make."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pages_with("console")
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
                code, said = _ran(command, here, tmp_path)
                assert code == 0, f"{page.name}:{line}: `{command}` ends with {code}: {said}"


def _ran(command: str, folder: Path, bin_folder: Path) -> tuple[int, str]:
    """Return a command's exit code and its output: run in this process, or by a shell where it needs one."""
    stages = pipeline(command)
    if stages:
        return _piped(stages, folder)
    script = bin_folder / "nexus"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nexus "$@"\n')
    script.chmod(0o755)
    env = environment(PATH=f"{bin_folder}:{environment()['PATH']}")
    done = subprocess.run(["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr or done.stdout


def pipeline(command: str) -> list[list[str]]:
    """Return the words of each program of a plain pipeline; nothing where the command needs a shell."""
    if SHELL & set(QUOTED.sub("", command)):
        return []
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    stages: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    programs = [stage[0] for stage in stages if stage]
    return stages if len(programs) == len(stages) and not any("=" in one for one in programs) else []


def _piped(stages: list[list[str]], folder: Path) -> tuple[int, str]:
    """Run the programs one after the other, each with the output of the one before; `nexus` runs in this process."""
    text = ""
    for program, *arguments in stages:
        if program == "nexus":
            ran = run(*arguments, folder=folder, stdin=text.encode())
            code, text, error = ran.code, ran.out, ran.err
        else:
            done = subprocess.run(
                [program, *arguments], cwd=folder, input=text, capture_output=True, text=True, check=False
            )
            code, text, error = done.returncode, done.stdout, done.stderr
        if code:
            return code, error or text
    return 0, text


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


def test_a_command_goes_to_a_shell_only_where_it_needs_one() -> None:
    assert pipeline('echo \'{"a": "b?"}\' | nexus record one.json -  # why') == [
        ["echo", '{"a": "b?"}'],
        ["nexus", "record", "one.json", "-"],
    ]
    assert pipeline('nexus assemble "Is it five?"') == [["nexus", "assemble", "Is it five?"]]
    for command in ("nexus show > a.txt", "nexus show $HOME", 'nexus ask "$X"', "A=1 nexus show", "nexus a; nexus b"):
        assert pipeline(command) == []
