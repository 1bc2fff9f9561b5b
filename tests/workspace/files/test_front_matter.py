"""Front matter is text that was written, never a value that YAML makes of it; what is not plain is refused with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import BadSkill
from nexus.workspace.files.front_matter import FRONT_MATTER_CHARS, MAX_LEVELS, Content, front_matter


def plain(content: Content) -> Any:
    if isinstance(content, dict):
        return {key: plain(value.content) for key, value in content.items()}
    return content if isinstance(content, str) else [plain(value.content) for value in content]


def fields(text: str) -> Any:
    return plain(front_matter(text).fields)


@pytest.mark.parametrize(
    "word", ["on", "no", "Yes", "2026-11-21", "1_000", "0o17", "1e3", "12:30:45", "null", "~", "true", ".inf", "0x1F"]
)
def test_a_text_stays_the_text_that_stands_there(word: str) -> None:
    assert fields(f"---\nname: {word}\n---\n") == {"name": word}


def test_lists_and_maps_are_read_with_the_line_of_each_value() -> None:
    found = front_matter("---\nname: a\nmetadata:\n  bins: [git, jq]\n  env:\n    - A\n---\nbody\n")
    assert plain(found.fields) == {"name": "a", "metadata": {"bins": ["git", "jq"], "env": ["A"]}}
    metadata = found.fields["metadata"].content
    assert isinstance(metadata, dict)
    assert [metadata[key].line for key in ("bins", "env")] == [4, 6]
    assert found.body_line == 8


def test_what_stands_below_the_second_line_of_dashes_is_the_body_whatever_is_in_it() -> None:
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
def test_what_is_not_plain_front_matter_is_refused_and_the_line_named(text: str, line: int, why: str) -> None:
    with pytest.raises(BadSkill, match=why) as caught:
        front_matter(text)
    assert caught.value.line == line


def test_an_alias_bomb_is_refused_at_its_first_alias() -> None:
    levels = [f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]" for at in range(1, 10)]
    with pytest.raises(BadSkill, match=r"alias \(\*l0\)"):
        front_matter("\n".join(["---", "l0: &l0 [lol]", *levels, "---", ""]))


def test_a_megabyte_of_front_matter_is_not_parsed() -> None:
    with pytest.raises(BadSkill, match=f"over {FRONT_MATTER_CHARS:,}"):
        front_matter("---\n" + "x: y\n" * 200_000 + "---\n")


@pytest.mark.parametrize("deep", ["[" * 3_000 + "]" * 3_000, "{a: " * 400 + "1" + "}" * 400])
def test_front_matter_nests_only_so_deep(deep: str) -> None:
    with pytest.raises(BadSkill, match=f"deeper than {MAX_LEVELS}"):
        front_matter(f"---\nx: {deep}\n---\n")


def test_of_a_field_that_stands_there_twice_the_first_counts_and_the_second_is_told() -> None:
    found = front_matter("---\nname: a\nname: b\n---\n")
    assert plain(found.fields) == {"name": "a"}
    assert found.duplicates == (("name", 3),)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\nbody"):
        try:
            found = front_matter(whole)
        except BadSkill as error:
            assert 1 <= error.line <= whole.count("\n") + whole.count("\r") + 60  # YAML counts other line ends too
        else:
            assert whole[: found.body_at].startswith("---")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(st.characters(max_codepoint=0xD7FF))))
def test_texts_written_as_json_strings_come_back_exactly(values: dict[str, str]) -> None:
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
    assert fields(f"---\n{head}---\n") == values
