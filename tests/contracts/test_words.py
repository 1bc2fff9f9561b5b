"""The repository speaks of the project alone: no folder of one machine, no word of how or where it was written."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from contracts.modules import ROOT

MACHINE_PATH = re.compile(r"(?<![\w.~}>-])/(?:work|root|tmp|home|Users)/[\w./-]*", re.ASCII)
"""A path in a folder that only one machine has, or that every machine has otherwise."""

ALLOWED_PATHS = {
    "/home/you": "the reader's own folder",
    "/tmp/wheels": "where a reader may put the packages that a script is given",
    "/tmp/a.png": "an invented path, in a request that has to be refused",
}

AUTHORSHIP = re.compile(
    r"\b(?:as an ai|language model, i|co-authored-by|generated (?:with|by) \w+ ?(?:code|gpt|ai))\b", re.IGNORECASE
)
ELSEWHERE = re.compile(r"\b(?:DESIGN|STYLE|DECISIONS|BRIEF)(?:\.md\b|: | section \d)")
"""Documents that are not in the repository: a reader could not open them."""

ISSUE = re.compile(r"(?:\b(?:issue|PR|pull request|ticket)\s+#\d+|\(#\d+\))", re.IGNORECASE)
LEFT_OVER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|^(?:<{7}|>{7}|={7})(?: |$)", re.MULTILINE)

EXEMPT = {
    "requirements.lock": "names and hashes of packages, written by a program",
    "requirements-models.lock": "the same",
    "LICENSE": "the licence's own words",
    "tests/contracts/test_words.py": "holds the words that it looks for",
    "tests/test_example.py": "looks for such words in the example",
}


@cache
def tracked() -> tuple[str, ...]:
    """The files of the repository, new ones that are not ignored included."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = tuple(sorted(name for name in names if name and (ROOT / name).is_file()))
    assert len(found) > 50, "the list of files is not complete"
    return found


@cache
def text_of(name: str) -> str:
    """The file's text; empty for pictures and other files that are none."""
    data = (ROOT / name).read_bytes()
    return "" if b"\0" in data else data.decode("utf-8")


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        pytest.param("a folder of one machine", MACHINE_PATH, id="machine"),
        pytest.param("who or what wrote it", AUTHORSHIP, id="authorship"),
        pytest.param("documents that are not here", ELSEWHERE, id="elsewhere"),
        pytest.param("an issue's number", ISSUE, id="issue"),
        pytest.param("unfinished work", LEFT_OVER, id="left-over"),
    ],
)
def test_no_file_speaks_of_anything_but_the_project(what: str, pattern: re.Pattern[str]) -> None:
    found = [
        f"{name}:{number}: {hit[0]}"
        for name in tracked()
        if name not in EXEMPT
        for number, line in enumerate(text_of(name).splitlines(), 1)
        for hit in pattern.finditer(line)
        if not hit[0].startswith(tuple(ALLOWED_PATHS))
    ]
    assert found == [], f"these lines speak of {what}"


def test_file_names_are_plain_ascii_and_short() -> None:
    assert [name for name in tracked() if not name.isascii() or len(name) > 100 or " " in name] == []


def test_texts_are_utf_8_with_unix_line_ends_and_end_with_one_newline() -> None:
    wrong = [
        name for name in tracked() if "\r" in text_of(name) or (text_of(name) and not text_of(name).endswith("\n"))
    ]
    assert [name for name in wrong if Path(name).suffix not in (".png", ".svg", ".jsonl", ".json")] == []


def test_exemptions_are_files_that_exist() -> None:
    assert [name for name in EXEMPT if not (ROOT / name).is_file()] == []
