"""Front matter is text that was written, never a value that YAML makes of it; what is not plain is refused with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import UnreadableFile
from nexus.workspace.files.front_matter import FRONT_MATTER_CHARS, MAX_LEVELS, Content, front_matter
from support.errors import has_code


def plain(content: Content) -> Any:
    if isinstance(content, dict):
        return {key: plain(value.content) for key, value in content.items()}
    return content if isinstance(content, str) else [plain(value.content) for value in content]


def fields(text: str) -> Any:
    return plain(front_matter(text).fields)


@pytest.mark.parametrize(
    "word", ["on", "no", "Yes", "2026-11-21", "1_000", "0o17", "1e3", "12:30:45", "null", "~", "true", ".inf", "0x1F"]
)
def test_scalar_keeps_its_text(word: str) -> None:
    assert fields(f"---\nname: {word}\n---\n") == {"name": word}


def test_lists_and_maps_have_line_numbers() -> None:
    found = front_matter("---\nname: a\nmetadata:\n  bins: [git, jq]\n  env:\n    - A\n---\nbody\n")
    assert plain(found.fields) == {"name": "a", "metadata": {"bins": ["git", "jq"], "env": ["A"]}}
    metadata = found.fields["metadata"].content
    assert isinstance(metadata, dict)
    assert [metadata[key].line for key in ("bins", "env")] == [4, 6]
    assert found.body_line == 8


def test_body_starts_after_second_delimiter() -> None:
    text = "---\nname: a\n---   \n# A\n---\nname: b\n---\n"
    assert text[front_matter(text).body_at :] == "\n# A\n---\nname: b\n---\n"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("# Title\n", 1, "first line is not ---"),
        ("before\n---\nname: a\n---\n", 1, "first line is not ---"),
        ("", 1, "first line is not ---"),
        ("---\nname: a\n", 1, "without a closing ---"),
        ("---", 1, "without a closing ---"),
        ("---\nname: a\n----\n", 1, "without a closing ---"),
        ("---\nname: a\nx: [\n---\n", 4, "not YAML"),
        ("---\nname: a\ndescription: Use this: now\n---\n", 3, "needs quotes"),
        ("---\nname: a\nx: \x1b[31m\n---\n", 1, "not YAML"),
        ("---\nname: a\nx: '\ud800'\n---\n", 1, "not YAML"),
        ("---\n- a\n---\n", 2, "not a map"),
        ("---\njust words\n---\n", 2, "not a map"),
        ("---\na: 1\n...\nb: 2\n---\n", 4, "not YAML"),
        ("---\na: 1\n--- b\n---\n", 3, "more than one"),
        ("---\n[a, b]: c\n---\n", 2, "name that is a list"),
        ("---\nname: a\nx: !!python/object/apply:os.system [ls]\n---\n", 3, "tag"),
        ("---\nname: !!str a\n---\n", 2, "tag"),
        ("---\nname: ! a\n---\n", 2, "tag"),
        ("---\na: &x [1]\nb: *x\n---\n", 3, "alias"),
    ],
)
def test_invalid_front_matter_error_names_line(text: str, line: int, why: str) -> None:
    with pytest.raises(UnreadableFile, match=why, check=has_code("bad_skill")) as caught:
        front_matter(text)
    assert caught.value.line == line


def test_first_alias_is_rejected() -> None:
    levels = [f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]" for at in range(1, 10)]
    with pytest.raises(UnreadableFile, match=r"alias \(\*l0\)", check=has_code("bad_skill")):
        front_matter("\n".join(["---", "l0: &l0 [lol]", *levels, "---", ""]))


def test_large_front_matter_is_not_parsed() -> None:
    with pytest.raises(UnreadableFile, match=f"over {FRONT_MATTER_CHARS:,}", check=has_code("bad_skill")):
        front_matter("---\n" + "x: y\n" * 200_000 + "---\n")


@pytest.mark.parametrize("deep", ["[" * 3_000 + "]" * 3_000, "{a: " * 400 + "1" + "}" * 400])
def test_nesting_depth_is_limited(deep: str) -> None:
    with pytest.raises(UnreadableFile, match=f"deeper than {MAX_LEVELS}", check=has_code("bad_skill")):
        front_matter(f"---\nx: {deep}\n---\n")


def test_first_of_duplicate_fields_counts_and_second_is_reported() -> None:
    found = front_matter("---\nname: a\nname: b\n---\n")
    assert plain(found.fields) == {"name": "a"}
    assert found.duplicates == (("name", 3),)


@given(st.text(max_size=200))
def test_any_text_parses_or_raises_bad_skill(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\nbody"):
        try:
            found = front_matter(whole)
        except UnreadableFile as error:
            assert 1 <= error.line <= whole.count("\n") + whole.count("\r") + 60  # YAML counts other line ends too
        else:
            assert whole[: found.body_at].startswith("---")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(st.characters(max_codepoint=0xD7FF))))
def test_json_strings_round_trip(values: dict[str, str]) -> None:
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
    assert fields(f"---\n{head}---\n") == values
