"""MEMORY.md as text: what is a fact, and that a change touches nothing but its own lines."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nexus.errors import BadFact, NotFound
from nexus.workspace.memory.facts import (
    Fact,
    comparison_key,
    facts_for_task,
    facts_of,
    log_entries,
    log_line,
    normalize_fact,
    with_fact,
    without_fact,
)
from nexus.workspace.prompts import templates
from workspace.memory.comparing import shared

DAY = "2026-03-06"

BY_HAND = """\
Intro paragraph
on two lines.

# Memory

* 2025-01-02: starred
  with more
    - nested
1. first
2) second

## Facts
<!-- - 2026-01-31: an example,
no fact -->

| a | b |
|---|---|
| 1 | 2 |

```
code
```
> quoted

Setext
======
- last
"""

PIECES = st.sampled_from(
    [
        "# Head", "## Facts", "## facts ##", "Title\n===", "- item", "* star", "1. one", "  more", "    code", "\ttab", "",
        "```", "~~~", "<!-- open", "-->", "<!-- done -->", "<div>", "</div>", "> quote", "---", "text", "- 2026-01-01: old",
        "[a]: b", "|a|b|", "===", "-", "- ", "\u3000", "\x0c", "[2026-01-01 10:00] log", "\\# x", "- - deep", "0) zero",
    ]
)  # fmt: skip
FILES = st.builds(
    lambda lines, ends, last: "".join(f"{line}{end}" for line, end in zip(lines, ends, strict=False)) + last,
    st.lists(PIECES | st.text(max_size=12), max_size=14),
    st.lists(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n"]), min_size=14, max_size=14),
    st.sampled_from(["", "end"]),
)
TEXTS = st.one_of(st.text(min_size=1, max_size=60), st.lists(PIECES, min_size=1, max_size=6).map("\n".join))


def fact_of(text: str) -> str:
    try:
        return normalize_fact(text, 4_000)
    except BadFact:
        assume(condition=False)
        raise


def told(facts: list[Fact]) -> list[tuple[str, str, str]]:
    return [(one.section, one.date, one.text) for one in facts]


def in_one_place(shorter: str, longer: str) -> bool:
    """Whether the longer text is the shorter one with something put in at one place."""
    return shared(shorter, longer) + shared(shorter[::-1], longer[::-1]) >= len(shorter)


def test_facts_are_items_paragraphs_tables_and_code() -> None:
    assert told(facts_of(BY_HAND)) == [
        ("", "", "Intro paragraph\non two lines."),
        ("Memory", "2025-01-02", "starred\nwith more\n  - nested"),
        ("Memory", "", "first"),
        ("Memory", "", "second"),
        ("Facts", "", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("Facts", "", "```\ncode\n```"),
        ("Facts", "", "> quoted"),
        ("Setext", "", "last"),
    ]
    assert [one.number for one in facts_of(BY_HAND)] == list(range(1, 9))


def test_fact_is_appended_to_its_section_with_date() -> None:
    text = "# M\n\n## Facts\n- 2026-01-01: one\n\n\n## People\n\n- Ana\n"
    assert with_fact(text, "two", DAY) == (
        "# M\n\n## Facts\n- 2026-01-01: one\n- 2026-03-06: two\n\n\n## People\n\n- Ana\n"
    )
    assert with_fact(text, "Bo", DAY, "people").endswith("- Ana\n- 2026-03-06: Bo\n")


def test_missing_section_and_title_are_created() -> None:
    assert with_fact("- one", "two", DAY, "New  one") == "- one\n\n## New one\n\n- 2026-03-06: two\n"
    assert with_fact("", "one", DAY) == "# Long-term memory\n\n## Facts\n\n- 2026-03-06: one\n"


def test_line_ends_of_file_are_kept() -> None:
    assert with_fact("## Facts\r\n\r\n- a\r\n", "b\nc", DAY) == "## Facts\r\n\r\n- a\r\n- 2026-03-06: b\r\n  c\r\n"


def test_fact_precedes_open_comment_or_fence_or_is_rejected() -> None:
    for text in ("# Memory\n\n<!-- never closed\n", "## Facts\n```\ncode\n"):
        assert with_fact(text, "one", DAY) == f"## Facts\n\n- 2026-03-06: one\n\n{text}"
    with pytest.raises(BadFact, match="close an open comment or code block"):
        with_fact("a note of no section\n\n<!-- never closed\n", "one", DAY)


def test_known_fact_is_rejected_ignoring_case_space_and_date() -> None:
    with pytest.raises(BadFact, match=r"already known as fact 1, of 2026-01-01"):
        with_fact("- 2026-01-01: The index  is GIN.", "the INDEX is\ngin.", DAY)


@settings(max_examples=100, deadline=None)
@given(FILES, TEXTS, st.sampled_from(["Facts", "Head", "Title", "New"]))
def test_adding_changes_one_position_only(text: str, fact: str, section: str) -> None:
    fact = fact_of(fact)
    before = facts_of(text)
    try:
        changed = with_fact(text, fact, DAY, section)
    except BadFact as error:
        assert "already known" in str(error) or "no position" in str(error)
        return
    after = facts_of(changed)
    new = [one for one in after if (one.date, one.text) == (DAY, fact) and one.section.casefold() == section.casefold()]
    assert len(new) == 1
    assert told([one for one in after if one is not new[0]]) == told(before)
    assert in_one_place(text, changed)
    back = without_fact(changed, new[0])
    assert told(facts_of(back)) == told(before)
    assert in_one_place(back, changed)


@pytest.mark.parametrize("text", [templates()["memory/MEMORY.md"], "# M\n\n## Facts\n\n## People\n- a\n", "- a\n- b\n"])
def test_repeated_add_and_forget_leaves_no_empty_lines(text: str) -> None:
    kept = with_fact(text, "what stays", "2026-01-01")
    changed = kept
    for number in range(3):
        changed = with_fact(changed, f"fact {number}", "2026-01-01")
        changed = without_fact(changed, next(one for one in facts_of(changed) if one.text == f"fact {number}"))
    assert changed == kept
    alone = without_fact(changed, next(one for one in facts_of(changed) if one.text == "what stays"))
    again = with_fact(alone, "what stays", "2026-01-01")
    assert again == kept


@settings(max_examples=80, deadline=None)
@given(FILES, st.integers(0, 20))
def test_forgetting_removes_one_fact_or_nothing(text: str, at: int) -> None:
    facts = facts_of(text)
    assume(facts)
    gone = facts[at % len(facts)]
    try:
        changed = without_fact(text, gone)
    except NotFound as error:
        assert "by hand" in str(error)
        return
    assert told(facts_of(changed)) == told([one for one in facts if one is not gone])
    kept = changed[shared(text, changed) :]
    assert text.endswith((kept, kept.lstrip("\r\n")))


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_fact_round_trips_as_one_fact(text: str) -> None:
    fact = fact_of(text)
    assert [(one.text, one.section) for one in facts_of(with_fact("", fact, DAY))] == [(fact, "Facts")]
    assert all(letter.isprintable() or letter in "\n\u200c\u200d\u3000\u00a0\u202f" for letter in fact)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_log_entry_round_trips_as_one_entry(texts: list[str]) -> None:
    entries = [fact_of(text) for text in texts]
    log = "".join(log_line("2026-03-06 14:30", entry) for entry in entries)
    assert [(one.at, one.text) for one in log_entries(log.splitlines(keepends=True))] == [
        ("2026-03-06 14:30", entry) for entry in entries
    ]


def test_log_text_before_first_stamp_is_an_entry() -> None:
    text = "by hand\n\n[2026-03-06] one\n  more\n\n[2026-03-06T10:00:05] two\n"
    assert [(one.number, one.at, one.text) for one in log_entries(text.splitlines(keepends=True))] == [
        (1, "", "by hand"),
        (2, "2026-03-06", "one\nmore"),
        (3, "2026-03-06T10:00:05", "two"),
    ]


def test_invisible_characters_are_escaped_and_line_breaks_kept() -> None:
    assert normalize_fact("a\x1b[31m\u202eb\U000e0041\udcff\r\nc\u2028d\te\n\n", 100) == (
        "a\\x1b[31m\\u202eb\\U000e0041\\udcff\nc\nd    e"
    )
    assert comparison_key(" A  b\nC ") == "a b c"


@pytest.mark.parametrize("text", ["", " \n\t\u3000", "x" * 101])
def test_empty_and_too_long_facts_are_rejected(text: str) -> None:
    with pytest.raises(BadFact, match=r"empty|101 characters, over the limit of 100"):
        normalize_fact(text, 100)


def test_task_chooses_the_facts_that_share_its_words_in_order() -> None:
    text = "# Memory\n\n## Deploy\n- The staging server is hera.\n- Ann likes tea.\n\n## Billing\n- Invoices are sent on Mondays.\n"
    chosen = facts_for_task(text, "Restart the staging server, then check deploy logs")
    assert [fact.text for fact in chosen] == ["The staging server is hera.", "Ann likes tea."], (
        "a section names its facts"
    )
    assert [fact.text for fact in facts_for_task(text, "Send the invoices")] == ["Invoices are sent on Mondays."]
    assert facts_for_task(text, "Write a poem") == []
    assert [fact.number for fact in facts_for_task("- 東京で会議\n- パリ\n", "東京の予定")] == [1]


def test_task_of_a_large_memory_chooses_the_facts_with_most_of_its_words() -> None:
    lines = [f"- Customer number {number} pays by card." for number in range(100)]
    lines[70] = "- Customer Meier pays by invoice, reminder in October."
    lines[30] = "- Customer Schulz got a reminder."
    chosen = facts_for_task("\n".join(lines), "Send customer Meier the October reminder", limit=2)
    assert [fact.number for fact in chosen] == [31, 71]
    assert len(facts_for_task("\n".join(lines), "number card pays")) == 0, "words of over half of the facts say nothing"
