"""Escaping does not change by itself: not with Python, not with Unicode, not without a new version."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest

from contracts.modules import ROOT
from laws.frame_texts import DISGUISES, MARKS, UNSEEN
from nexus.text.frames import MARKS_VERSION, escape, unescape
from nexus.text.frames.scanner import _glyphs
from nexus.text.frames.tags import CALLS, HEADS, ROLES, TAGS, characters_by_skeleton, skeleton, skeletons

RELEASED = {1: "19ea6bc208ab7914a63a3ff281c221b01ed75168790d2b2edbd58f2aba58f9e0"}
"""Each version's marks and table of shapes. One that was released is never changed: what differs gets a new version."""

PYTHONS = sorted(
    {
        sys.executable,
        *map(str, Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.1[1-9]*/bin/python")),
    }
)
"""This Python, and newer ones where pyenv has some."""

CHILD = """
import hashlib, json, sys
from nexus.text.frames import escape, unescape
from nexus.text.frames.tags import skeleton
texts = json.load(sys.stdin)
escaped = [[escape(text, scope) for text in texts] for scope in ("block", "memory")]
undone = [[unescape(text, scope) for text in texts] for scope, texts in zip(("block", "memory"), escaped)]
folded = hashlib.sha256(repr([skeleton(chr(code)) for code in (*range(0x34000), *range(0xE0000, 0xE1000))]).encode()).hexdigest()
json.dump([escaped, undone == [texts, texts], folded], sys.stdout)
"""


def test_tag_version_covers_tags_and_shape_table() -> None:
    found = hashlib.sha256(json.dumps([HEADS, CALLS, TAGS, ROLES, characters_by_skeleton()]).encode()).hexdigest()
    assert RELEASED.get(MARKS_VERSION) == found, (
        "a change of marks or table is a new MARKS_VERSION, with its own line here"
    )
    assert max(RELEASED) == MARKS_VERSION


def test_shape_table_equals_output_of_its_script() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build_fold_table.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python if python != sys.executable else "this one")
def test_every_python_version_escapes_identically(python: str) -> None:
    hidden = [f"{mark[:3]}{char}{mark[3:]}" for mark, char in product(MARKS, UNSEEN)]
    texts = [*(disguise(mark) for mark, disguise in product(MARKS, DISGUISES)), *hidden, "\n".join(hidden)]
    done = subprocess.run(
        [python, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{CHILD}"],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    escaped, undone, folded = json.loads(done.stdout)
    assert escaped == [[escape(text, scope) for text in texts] for scope in ("block", "memory")]
    assert [unescape(text, "memory") for text in escaped[1]] == texts
    assert undone
    every = repr([skeleton(chr(code)) for code in (*range(0x34000), *range(0xE0000, 0xE1000))])
    assert folded == hashlib.sha256(every.encode()).hexdigest()


def test_escape_covers_every_letter_of_the_scanner() -> None:
    kept = frozenset("abcdefghijklmnopqrstuvwxyz<>[]/:;")
    confused = str.maketrans({"m": "rn", "l": "i", "-": "_"})
    read = {chr(code): _glyphs(chr(code)) for code in (*range(0x34000), *range(0xE0000, 0xE1000))}
    letters = {char: glyph.translate(confused) for char, glyph in read.items() if glyph in kept}
    assert len(letters) > 2_000
    assert {char: glyph for char, glyph in letters.items() if skeleton(char) != glyph} == {}
    blank = {char for char, glyph in read.items() if glyph in ("", " ", "\n", "-")}
    assert {char for char in blank if skeleton(char) not in ("", " ", "\n", "_")} == set()


def test_no_tag_contains_place_of_another() -> None:
    """So backslashes that are put in at one place never change what is found at another in the same search."""
    openers = {skeletons(char) for char in ("<", *(mark[0] for mark in CALLS))}
    for tail in (*(skeletons(mark[1:]) for mark in CALLS), *map(skeletons, TAGS)):
        assert not openers & set(tail)
    for head in (skeletons(mark[1:]) for mark in HEADS):
        ends = [head[at:] for at in range(len(head))]
        assert skeletons("[") not in head
        assert not any(
            end.startswith(role) or role.startswith(end) for end in ends for role in map(skeletons, ROLES)
        ), head


def test_tag_with_unmapped_character_is_rejected() -> None:
    with pytest.raises(ValueError, match="character '!' has no skeleton"):
        skeletons("[MOOD!")


def test_every_character_has_one_shape() -> None:
    spans = sorted(
        (int(first, 16), int(first, 16) + int(more or "0", 16))
        for listed in characters_by_skeleton().values()
        for first, _, more in (one.partition("+") for one in listed.split(" "))
    )
    assert all(end < after for (_, end), (after, _) in pairwise(spans))
    assert spans[-1][1] <= sys.maxunicode
