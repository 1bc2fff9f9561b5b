"""Files over their cap keep their beginning, their headings and their rules, and say what is missing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.workspace.files.truncate import TruncatedText, fences, share_limits, truncate_text

FILLER = "\n".join(f"Plain words in line {number} of the text." for number in range(400))
OWN = re.compile(r"^\[(?:[\d,]+ more characters of .*|headings and rules of what is left out.*)\]$")


def long_file(*rules: str) -> str:
    return "\n\n".join(["# Rules", FILLER, *(f"{rule}\n\n{FILLER}" for rule in rules)])


def test_text_within_cap_is_unchanged() -> None:
    assert truncate_text("short", 5, "AGENTS.md") == TruncatedText("short", 0)


def test_truncated_text_is_head_then_headings_and_rules_then_notice() -> None:
    text = long_file("## Deploy", "You MUST ask before a deploy.", "## Secrets", "- never print a key")
    short = truncate_text(text, 4_000, "AGENTS.md")
    head, digest = short.text.split("\n\n[headings and rules of what is left out:]\n")
    assert text.startswith(head)
    assert len(head) > 3_500, "nearly all of the cap goes to the beginning where the rules are few"
    lines = digest.split("\n")
    assert lines[:4] == ["## Deploy", "You MUST ask before a deploy.", "## Secrets", "- never print a key"]
    assert lines[4] == ""
    told = f"[{short.omitted_chars:,} more characters of AGENTS.md left out (cap 4,000); read the file for the rest]"
    assert lines[5:] == [told]
    kept = len(head) + sum(len(line) + 1 for line in lines[:4])
    assert short.omitted_chars == len(text) - kept


@pytest.mark.parametrize(
    "rule",
    [
        "Keys MUST NOT be logged.",
        "It SHALL answer within a second.",
        "Tests SHOULD be small.",
        "You MAY push to staging.",
        "RECOMMENDED: squash.",
        "Always run the tests.",
        "do not touch main",
        "Don’t rename files.",
        "Important: two spaces.",
        "- [ ] NEVER force-push",
        "3. It is forbidden to deploy.",
        "> **IMPORTANT** ask first",
        "| key | must be there |",
        "密钥必须保密",
    ],
)
def test_rfc_2119_words_mark_a_rule(rule: str) -> None:
    assert rule in truncate_text(long_file(rule), 3_000, "AGENTS.md").text.split("\n")


def test_rule_keeps_its_whole_item_or_paragraph() -> None:
    item = "- NEVER push to main\n  unless the captain says so\n- plain item"
    paragraph = "Every release\nmust be signed, except\nnightly ones."
    short = truncate_text(long_file(item, paragraph), 3_000, "AGENTS.md").text
    assert "- NEVER push to main\n  unless the captain says so\n" in short
    assert "- plain item" not in short
    assert paragraph in short


def test_long_paragraph_keeps_only_rule_lines() -> None:
    paragraph = "\n".join([*(f"words {n} " * 10 for n in range(20)), "it must end", *("more " * 20 for _ in range(20))])
    short = truncate_text(long_file(paragraph), 3_000, "AGENTS.md").text
    assert "it must end" in short
    assert "words 19" not in short


def test_fenced_code_has_no_headings_or_rules() -> None:
    code = "```sh\n# MUST be root\nnever\n```"
    short = truncate_text(long_file(code, "## After"), 3_000, "AGENTS.md").text
    assert "MUST be root" not in short
    assert "## After" in short


def test_setext_headings_are_recognized() -> None:
    short = truncate_text(long_file("Deploying\n========="), 3_000, "AGENTS.md").text
    assert "Deploying\n=========" in short


def test_head_inside_code_fence_is_closed() -> None:
    text = f"# Rules\n\n````python\n{FILLER}\n```\n{FILLER}\n````\n\nYou MUST read this."
    short = truncate_text(text, 3_000, "AGENTS.md").text
    assert not any(fence.open for fence in fences(short))
    assert "You MUST read this." in short


def test_strong_rules_are_kept_first_and_others_counted() -> None:
    rules = [f"- always do thing number {number} in this way" for number in range(200)]
    text = long_file("\n".join([*rules, "- NEVER delete anything"]))
    short = truncate_text(text, 3_000, "AGENTS.md")
    assert "- NEVER delete anything" in short.text
    assert re.search(r"headings and rules of what is left out; 1\d\d more had no room:", short.text)


def test_more_rules_survive_than_with_head_and_tail() -> None:
    """Document 003's bootstrap files may be long; a cut of 70 % head and 20 % tail loses the rules of the middle."""
    rules = [f"You MUST check point {number} before a release." for number in range(12)]
    text, cap = long_file(*rules), 8_000
    short = truncate_text(text, cap, "AGENTS.md").text
    blind = text[: cap * 7 // 10] + text[-cap * 2 // 10 :]
    assert sum(rule in short for rule in rules) == 12
    assert sum(rule in blind for rule in rules) < 3


def test_long_line_is_cut_at_word_and_long_rule_shares_cap() -> None:
    short = truncate_text("must " * 100_000, 2_000, "AGENTS.md")
    assert short.text.startswith("must must")
    assert "mus " not in short.text
    assert len(short.text) > 1_800


def test_second_truncation_adds_first_omitted_count() -> None:
    text = long_file("- NEVER push")
    once = truncate_text(text, 8_000, "AGENTS.md")
    twice = truncate_text(once.text, 2_000, "AGENTS.md", once.omitted_chars)
    assert twice.text.count("more characters of AGENTS.md") == 1
    told = re.search(r"\[([\d,]+) more characters of AGENTS.md left out \(cap 2,000\)", twice.text)
    assert told is not None
    assert int(told[1].replace(",", "")) == once.omitted_chars + twice.omitted_chars
    assert "- NEVER push" in twice.text


LINES = st.sampled_from(
    [
        "",
        "# Head",
        "## Sub",
        "- must do",
        "  more of it",
        "plain",
        "```",
        "~~~",
        "You NEVER\nstop",
        "x" * 50,
        "| a |",
        "> no",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=120).map("\n".join), st.integers(20, 600))
def test_kept_text_is_within_cap_and_in_order(text: str, cap: int) -> None:
    short = truncate_text(text, cap, "F")
    assert short == truncate_text(text, cap, "F"), "the same bytes for the same text"
    if len(text) <= cap:
        assert short.text == text
        return
    own = [line for line in short.text.split("\n") if not OWN.match(line)]
    assert short.text.rstrip("\n").endswith("read the file for the rest]")
    assert len(text) - short.omitted_chars <= cap + 1
    head, found, digest = short.text.partition("\n\n[headings and rules of what is left out")
    assert not any(fence.open for fence in fences(head if found else "\n".join(own)))
    if found:
        at = 0
        for line in digest.split("\n")[1:-2]:
            at = text.index(line, at)


@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(0, 50_000))
def test_share_limits_fit_total_and_spare_small_texts(sizes: list[int], total: int) -> None:
    given_ = share_limits(sizes, total)
    assert sum(given_) <= max(total, 0) or sum(sizes) <= total
    assert all(0 <= level <= size for level, size in zip(given_, sizes, strict=True))
    cut = [level for level, size in zip(given_, sizes, strict=True) if level < size]
    assert not cut or max(cut) - min(cut) <= 1
    if sum(sizes) <= total:
        assert given_ == sizes
