"""Entries of the memory made of rows: merging by run, the newest, shortened, with times in a zone."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.services.tagged import (
    UNKNOWN_TIME,
    Ai,
    DialogueCall,
    DialogueRow,
    Human,
    ToolUse,
    memory_block,
    memory_entries,
    memory_time,
    merge_rows,
    moment_time,
    parse_memory,
    truncate_at_grapheme,
    truncate_parts,
)
from services.tagged.making import HOSTILE, USES

AT = 1_765_351_800_000
"""2025-12-10 07:30 in UTC, 15:30 at +08:00."""
EAST = timezone(timedelta(hours=8))


def human(text: str, run: str = "", at_ms: int | None = AT) -> DialogueRow:
    return DialogueRow("human", text, run, at_ms)


def ai(text: str, run: str = "", *calls: DialogueCall, at_ms: int | None = AT) -> DialogueRow:
    return DialogueRow("ai", text, run, at_ms, calls)


def entries(*rows: DialogueRow, limit: int = 20, current: str = "") -> tuple[Human | Ai, ...]:
    return memory_entries(rows, EAST, limit=limit, current_run_id=current).entries


TIME = "2025-12-10 15:30"


def test_ai_rows_of_one_run_are_merged_at_first_position() -> None:
    """Document 000, "Key Behaviors" 1: "All AI messages within the same `run_id` are merged into a single logical
    response, preserving chronological order".
    """
    rows = (human("a", "r1"), ai("b", "r1"), human("c", "r2"), ai("d", "r1"), ai("e", "r2"))
    assert entries(*rows) == (Human(TIME, "a"), Ai(None, ("b\nd",)), Human(TIME, "c"), Ai(None, ("e",)))


def test_rows_without_run_id_are_not_merged() -> None:
    """Decided on 000: "without run id no merging"."""
    assert entries(human("a"), ai("b"), ai("c")) == (Human(TIME, "a"), Ai(None, ("b",)), Ai(TIME, ("c",)))


def test_annotation_follows_the_row_that_declared_the_tools() -> None:
    """Document 000, "Annotation Format": "Inserted after the AI message where tool was declared, before subsequent AI
    responses". Decided: each row's annotation follows that row; an empty row that declares tools still gives its own.
    """
    search, add = DialogueCall("web_search", {"query": "x"}), DialogueCall("calculator", '{"expression": "1+1"}')
    rows = (human("q", "r"), ai("one", "r", search), ai("", "r", add), ai(" \n", "r", add), ai("two", "r"))
    uses = (ToolUse("web_search", "query", "x"),), (ToolUse("calculator", "expression", "1+1"),)
    assert entries(*rows)[1] == Ai(None, ("one", uses[0], uses[1], uses[1], "two"))


def test_several_tools_of_one_row_are_one_annotation() -> None:
    """Document 000, "Annotation Format": "Multiple tools: `[tool_use:…; tool_use:…]`"."""
    assert entries(ai("", "r", DialogueCall("a"), DialogueCall("b"))) == (Ai(TIME, ((ToolUse("a"), ToolUse("b")),)),)


def test_other_roles_and_empty_answers_are_omitted_and_counted() -> None:
    """Document 000, "Key Behaviors" 4: "Excludes tool messages". Decided: so are `system` and `command` rows; counted."""
    rows = [
        human("a"),
        DialogueRow("tool", "t"),
        DialogueRow("System", "s"),
        DialogueRow("command", "/x"),
        DialogueRow("COMMAND", "/y"),
        DialogueRow("", "?"),
    ]
    found = memory_entries([*rows, ai(""), ai("b")])
    assert [type(entry) for entry in found.entries] == [Human, Ai]
    assert found.omitted == {"command": 2, "empty": 1, "system": 1, "tool": 1, "without a role": 1}


def test_omitted_row_does_not_separate_question_and_answer() -> None:
    """Document 000, "Time Display Optimization": indented "when they follow a human message"."""
    assert entries(human("a"), DialogueRow("system", "s"), ai("b"))[1] == Ai(None, ("b",))


@pytest.mark.parametrize("role", ["human", "HUMAN", " Human", "user"])
def test_roles_are_read_in_any_letter_case(role: str) -> None:
    assert entries(DialogueRow(role, "a", at_ms=AT), DialogueRow("AI", "b")) == (Human(TIME, "a"), Ai(None, ("b",)))


def test_rows_of_the_current_run_are_omitted() -> None:
    """Decided on 000: rows of the current run are left out."""
    found = memory_entries([human("a", "r1"), ai("b", "r1"), human("now", "r2"), ai("?", "r2")], current_run_id="r2")
    assert len(found.entries) == 2
    assert found.omitted == {"of the current run": 2}
    assert len(entries(human("a"), ai("b"), current="r2")) == 2


def test_newest_merged_entries_are_kept_and_the_first_has_a_time() -> None:
    """Document 000, "Content Processing": "applies limits after merging"; "Count Semantics": merged messages."""
    rows = [row for run in "abcd" for row in (human("q" + run, run), ai("1", run), ai("2", run))]
    assert entries(*rows, limit=3) == (Ai(TIME, ("1\n2",)), Human(TIME, "qd"), Ai(None, ("1\n2",)))
    assert memory_entries(rows, limit=3).omitted == {"older": 7}
    assert entries(*rows, limit=0) == entries(*rows, limit=-1) == ()


def test_memory_has_20_entries_by_default() -> None:
    """Document 000, "Formatters": `limit: int = 20`."""
    assert [
        entry.text for entry in memory_entries([human(str(n)) for n in range(30)]).entries if isinstance(entry, Human)
    ] == [str(n) for n in range(10, 30)]


# time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_ms", [None, 10**18, -(10**18)])
def test_unknown_or_invalid_time_is_shown_as_unknown(at_ms: int | None) -> None:
    """Decided on 000: bad or missing time: `[unknown time]`."""
    assert entries(human("a", at_ms=at_ms)) == (Human(UNKNOWN_TIME, "a"),)
    assert memory_block(entries(human("a", at_ms=at_ms))).endswith("\n\n[unknown time] Human: a")
    assert moment_time(at_ms, UTC) == UNKNOWN_TIME


def test_times_use_zone_with_summer_time_and_old_offsets() -> None:
    """Document 000, [THIS_MOMENT], "Format": `YYYY-MM-DD HH:MM:SS±HH:MM`; [SHARED_MEMORY]: `[YYYY-MM-DD HH:MM]`."""
    assert moment_time(AT, EAST) == "2025-12-10 15:30:00+08:00"
    assert moment_time(AT, ZoneInfo("America/St_Johns")) == "2025-12-10 04:00:00-03:30"
    assert memory_time(1_753_000_000_000, ZoneInfo("Europe/Berlin")) == "2025-07-20 10:26"
    assert moment_time(-2_500_000_000_000, ZoneInfo("Europe/Amsterdam"))[-6:] in ("+00:18", "+00:19", "+00:17")
    assert memory_time(-62_135_596_800_000, UTC) == "0001-01-01 00:00"
    assert memory_time(-62_135_596_800_000, ZoneInfo("America/New_York")) == UNKNOWN_TIME


# shortening --------------------------------------------------------------------------------------------------------


def test_text_over_500_characters_is_truncated_with_dots() -> None:
    """Document 000, "Truncation": "Long messages (>500 chars) are truncated with "..."". Decided: 500 in all."""
    assert truncate_at_grapheme("x" * 500) == "x" * 500
    assert truncate_at_grapheme("x" * 501) == "x" * 497 + "..."


@pytest.mark.parametrize(
    ("character", "length"),
    [("e\u0301", 2), ("👩‍👩‍👧", 5), ("🇩🇪", 2), ("\r\n", 2), ("\u1112\u1161\u11ab", 3), ("क्षि", 4), ("👍🏽", 2)],
)
def test_truncation_does_not_split_graphemes(character: str, length: int) -> None:
    """Decided on 000: cut at a grapheme boundary."""
    assert len(character) == length
    for before in range(length):
        text = "x" * before + character * 300
        short = truncate_at_grapheme(text)
        assert short.endswith("...")
        assert 500 - length < len(short) <= 500
        assert short[:-3] == "x" * before + character * ((len(short) - 3 - before) // length)


def test_grapheme_longer_than_limit_is_truncated() -> None:
    assert truncate_at_grapheme("e" + "\u0301" * 10_000) == "e" + "\u0301" * 496 + "..."


def test_texts_of_an_answer_are_truncated_together() -> None:
    """Decided on 000: measured on the text without annotations."""
    used = (ToolUse("t", "query", "q" * 100),)
    assert truncate_parts(("a" * 250, used, "b" * 249)) == ("a" * 250, used, "b" * 249)
    assert truncate_parts(("a" * 250, used, "b" * 250)) == ("a" * 250, used, "b" * 246 + "...")
    assert truncate_parts(("a" * 501, used, "b", used, "c")) == ("a" * 497 + "...", used, used)
    assert truncate_parts(("a" * 497, used, "b" * 9)) == ("a" * 497 + "...", used)
    assert truncate_parts(("a" * 496, used, "b" * 9)) == ("a" * 496, used, "...")


ROWS = st.lists(
    st.builds(
        DialogueRow,
        st.sampled_from(["human", "ai", "tool", "system"]),
        HOSTILE | st.text(min_size=480, max_size=520),
        st.sampled_from(["", "r1", "r2"]),
        st.none() | st.integers(-(10**14), 10**14),
        st.lists(
            st.builds(DialogueCall, HOSTILE, HOSTILE | st.dictionaries(HOSTILE, HOSTILE, max_size=2)), max_size=2
        ).map(tuple),
    ),
    max_size=6,
)


@settings(max_examples=50)
@given(ROWS, st.integers(0, 4))
def test_entries_of_any_rows_are_truncated_and_round_trip(rows: list[DialogueRow], limit: int) -> None:
    found = memory_entries(rows, EAST, limit=limit)
    assert parse_memory(memory_block(found.entries)) == found.entries
    assert len(found.entries) <= limit
    for before, entry in zip((None, *found.entries), found.entries, strict=False):
        if isinstance(entry, Human):
            assert len(entry.text) <= 500
        else:
            assert (entry.time is None) == isinstance(before, Human)
            texts = [part for part in entry.parts if isinstance(part, str)]
            assert sum(map(len, texts)) + len(texts) - 1 <= 500
            assert entry.parts
            assert "" not in texts
    groups, left_out = merge_rows(rows)
    assert sum(len(group.rows) for group in groups) + sum(left_out.values()) == len(rows)


@given(st.lists(HOSTILE | USES, max_size=5).map(tuple))
def test_truncation_is_idempotent(parts: tuple[str | tuple[ToolUse, ...], ...]) -> None:
    once = truncate_parts(parts, 20)
    assert truncate_parts(once, 20) == once
    assert [part for part in once if not isinstance(part, str)] == [part for part in parts if not isinstance(part, str)]


def test_ten_thousand_rows_are_merged_and_truncated() -> None:
    rows = [ai(f"text {n}", "r", DialogueCall("t", {"query": str(n)})) for n in range(10_000)]
    (entry,) = entries(*rows)
    assert isinstance(entry, Ai)
    assert len(entry.parts) > 10_000
    assert parse_memory(memory_block([entry])) == (entry,)
    (entry,) = entries(*(ai("x" * 1_000, "r") for _ in range(10_000)))
    assert entry == Ai(TIME, ("x" * 497 + "...",))
    assert len(entries(*(ai(f"text {n}") for n in range(10_000)))) == 20
