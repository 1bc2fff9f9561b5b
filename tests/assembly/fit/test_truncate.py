"""Shortening: within the limit, head and tail, JSON stays JSON, the same bytes again, and a way to the whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.assembly.fit.truncate_results import LEAST_TOKENS, TruncationLimits, truncate_results, truncate_text
from nexus.tokens.counter import get_counter
from nexus.tokens.message_tokens import text_tokens_json
from nexus.types.message import Image, Message, Text, ToolResult, tool

COUNTER = get_counter()
LOG = "\n".join(f"2026-01-01 12:00:{number % 60:02d} worker {number} finished its part" for number in range(2_000))


def tokens(text: str) -> int:
    return text_tokens_json(text, COUNTER)


def test_truncated_log_keeps_whole_head_and_tail_lines_and_notice() -> None:
    short = truncate_text(LOG, 500, COUNTER, "`nexus history --call call_7`")
    lines, whole = short.split("\n"), LOG.split("\n")
    marker = next(index for index, line in enumerate(lines) if line.startswith("[…"))
    assert lines[:marker] == whole[:marker]
    assert lines[marker + 1 :] == whole[-(len(lines) - marker - 1) :]
    assert "characters left out here; the whole: `nexus history --call call_7` …]" in lines[marker]
    assert 400 <= tokens(short) <= 500
    left_out = int(lines[marker].split()[1].replace(",", ""))
    assert left_out == len(LOG) - (len(short) - len(lines[marker]) - 2)


def test_truncated_json_stays_json_with_first_and_last_items() -> None:
    rows = [{"id": number, "name": f"user {number}", "note": "n" * 50} for number in range(500)]
    short = truncate_text(json.dumps({"total": 500, "rows": rows}), 800, COUNTER, "there")
    body, _, marker = short.rpartition("\n")
    value = json.loads(body)
    assert value["total"] == 500
    assert value["rows"][0] == rows[0] and value["rows"][-1] == rows[-1]
    note = next(item for item in value["rows"] if isinstance(item, str))
    assert "of 500 items left out" in note
    assert marker.startswith("[…") and "there" in marker
    assert tokens(short) <= 800


def test_truncated_json_numbers_keep_their_digits() -> None:
    value = {"big": 123456789012345678901234567890, "small": 0.1, "text": "x " * 4_000}
    body = truncate_text(json.dumps(value), 200, COUNTER).rpartition("\n")[0]
    assert json.loads(body)["big"] == value["big"] and json.loads(body)["small"] == 0.1


@pytest.mark.parametrize("limit", [600, 3_000, 20_000])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"exit_code": 0, "stdout": LOG}, id="one long string"),
        pytest.param([{"id": number, "line": line} for number, line in enumerate(LOG.split("\n"))], id="many items"),
        pytest.param(list(range(40_000)), id="numbers"),
        pytest.param({"pages": [{"text": LOG[:9_000]} for _ in range(9)]}, id="long strings in items"),
    ],
)
def test_truncated_json_fills_its_limit(value: object, limit: int) -> None:
    short = truncate_text(json.dumps(value), limit, COUNTER, "there")
    json.loads(short.rpartition("\n")[0])
    assert limit * 3 // 4 <= tokens(short) <= limit


@given(
    st.one_of(
        st.text(max_size=3_000),
        st.text(alphabet='ab \n漢é😀{}[]"\\,:\x00', max_size=3_000),
        st.recursive(st.one_of(st.integers(), st.text(max_size=200)), lambda inner: st.lists(inner, max_size=30)).map(
            json.dumps
        ),
    ),
    st.integers(0, 600),
)
def test_truncation_is_within_limit_and_deterministic(text: str, limit: int) -> None:
    short = truncate_text(text, limit, COUNTER, "`nexus history --call call_1`")
    assert tokens(short) <= max(limit, LEAST_TOKENS)
    assert short == truncate_text(text, limit, COUNTER, "`nexus history --call call_1`")
    if tokens(text) <= limit:
        assert short == text


def test_short_text_of_many_tokens_is_truncated() -> None:
    text = "\U0003f040\x1f:0:0:\x1f\x07\x1f0ƀ𘒀\U0001e95a\x1f0:0𐀀𐀀𐀀𐀀𐀀"
    assert len(text) < LEAST_TOKENS < tokens(text)
    assert tokens(truncate_text(text, 0, COUNTER)) <= LEAST_TOKENS
    assert truncate_text(text, 0, COUNTER, render=6) == text


def test_megabytes_without_space_are_truncated() -> None:
    assert tokens(truncate_text("a" * 3_000_000, 100, COUNTER)) <= 100
    assert tokens(truncate_text("[" * 500_000, 100, COUNTER)) <= 100
    assert tokens(truncate_text('{"a":' * 5_000 + "1" + "}" * 5_000, 100, COUNTER)) <= 100


def test_truncated_result_keeps_id_name_and_error() -> None:
    fits = tool("call_1", "short", "look")
    assert truncate_results(fits, 100, COUNTER, keeps_images=True) is fits
    message = tool("call_1", LOG, "look", is_error=True)
    (short,) = truncate_results(message, 100, COUNTER, keeps_images=True).results()
    assert (short.call_id, short.name, short.is_error) == ("call_1", "look", True)
    (text,) = short.content
    assert isinstance(text, Text) and "--call call_1" in text.text


def test_unsafe_call_id_is_not_put_into_shell_command() -> None:
    (short,) = truncate_results(tool("a; rm -rf /", LOG), 200, COUNTER, keeps_images=True).results()
    assert "rm -rf" not in str(short.content)


def test_images_of_older_results_become_placeholders() -> None:
    image = Image("image/png", "AAAA", width=8, height=4)
    message = Message("tool", (ToolResult("call_1", (Text("seen"), image)),))
    assert truncate_results(message, 100, COUNTER, keeps_images=True) is message
    (short,) = truncate_results(message, 100, COUNTER, keeps_images=False).results()
    assert short.content == (Text("seen"), Text("[image/png 8x4 was shown here before; it is in the ledger]"))


def test_truncation_limits_apply_by_entry() -> None:
    clips = TruncationLimits(1_000, 7, 100)
    assert [clips.limit(seq) for seq in (1, 7, 8)] == [100, 100, 1_000]
    assert clips.aged(7) and not clips.aged(8)


@pytest.mark.parametrize("limit", [LEAST_TOKENS, 300, 2_000])
@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("漢字和文", id="CJK"),
        pytest.param("العربية ", id="Arabic"),
        pytest.param("😀🚀", id="emoji"),
        pytest.param("9f3Kq+Zx/7", id="base64"),
        pytest.param("\x01\x02\x1b", id="control characters"),
        pytest.param("0,1.5;2\n", id="digits"),
        pytest.param("the quick brown fox ", id="prose"),
        pytest.param("ERROR 0x1f at line 7\n", id="lines"),
    ],
)
def test_head_and_tail_stay_from_100_to_200_percent_of_the_limit(piece: str, limit: int) -> None:
    """Dense texts at 118 to 128 % of the limit once had no head."""
    numbered = "".join(f"{number}{piece}" for number in range(limit * 4))
    chars_a_token = len(numbered) / tokens(numbered)
    for percent in range(100, 201, 3):
        text = numbered[: int(limit * percent / 100 * chars_a_token)]
        short = truncate_text(text, limit, COUNTER, "`nexus history --call call_1`")
        if short == text:
            continue
        head, tail = short.split("\n[… ")[0], short.rpartition(" …]\n")[2]
        assert text.startswith(head) and len(head) >= 3, percent
        assert text.endswith(tail) and len(tail) >= 3, percent
        assert limit * 0.6 <= tokens(short) <= limit, percent
