from __future__ import annotations

import re

import anthropic
import httpx2
import openai
import pytest

from nexus.providers.errors import OverflowVerdict, classify, learned_window
from nexus.providers.errors.error_rules import error_rules, normalize_code, parse_number
from providers.errors.corpus import CASES, Case

RULES = error_rules()
TEXT_RULES = (*RULES.overflow, *RULES.unrelated)
PROVIDERS = frozenset(
    [
        "openai",
        "azure",
        "anthropic",
        "bedrock",
        "gemini",
        "vertex",
        "mistral",
        "groq",
        "cerebras",
        "openrouter",
        "ollama",
        "vllm",
        "llama.cpp",
        "lmstudio",
        "sglang",
        "together",
        "xai",
        "deepseek",
        "tgi",
        "litellm",
    ]
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.provider or 'any'}: {case.name}".replace(" ", "-"))
def test_error_has_expected_verdict(case: Case) -> None:
    found = classify(case.error(), provider=case.provider, window=8_192)
    got = (found.kind, found.source, found.part, found.limit, found.limit_of, found.requested, found.at_least)
    due = (case.kind, case.source, case.part, case.limit, case.limit_of, case.requested, case.at_least)
    assert got == due, found


def test_corpus_has_overflow_of_every_provider() -> None:
    assert PROVIDERS - {case.provider for case in CASES if case.kind == "overflow"} == set()


def test_corpus_has_no_duplicates() -> None:
    names = [(case.provider, case.name) for case in CASES]
    assert len(names) == len(set(names))


def test_every_text_rule_decides_some_corpus_text() -> None:
    found = [classify(case.error()) for case in CASES]
    sources = {one.source for one in found} | {classify(one.text).source for one in found}
    assert {f"text:{rule.name}" for rule in TEXT_RULES} - sources == set()


@pytest.mark.parametrize("case", [case for case in CASES if case.source != "code:1261"], ids=lambda case: case.name)
def test_missing_provider_name_adds_no_overflow(case: Case) -> None:
    found = classify(case.error())
    assert (
        found.kind == case.kind
        or (found.kind == "other" and "without a body" in case.source)
        or (found.part == "bytes" and case.status == 413)
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "overflow"], ids=lambda case: case.name)
def test_overflow_request_exceeds_its_limit(case: Case) -> None:
    found = classify(case.error(), provider=case.provider, window=8_192)
    assert not found.limit or not found.requested or found.requested >= found.limit
    if found.part == "output" and found.input_tokens:
        assert found.output_tokens > 0 and found.input_tokens < found.limit


def test_input_and_output_tokens_are_distinguished() -> None:
    text = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length"
    found = classify(text)
    assert (found.part, found.input_tokens, found.output_tokens, found.requested) == (
        "output",
        178_959,
        64_000,
        242_959,
    )
    found = classify(text.replace("178959", "278959"))
    assert (found.part, found.input_tokens, found.output_tokens) == ("input", 278_959, 64_000)


def test_itemized_inputs_are_summed() -> None:
    found = classify(
        "This endpoint's maximum context length is 163840 tokens. However, you requested about 172900 tokens "
        "(4429 of text input, 4631 of tool input, 163840 in the output)."
    )
    assert (found.input_tokens, found.output_tokens) == (9_060, 163_840)


def test_window_completes_message_with_difference_only() -> None:
    text = "prompt too long; exceeded max context length by 4,096 tokens"
    assert classify(text, window=8_192).requested == 12_288
    assert classify(text).requested == 0


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", 200_000),
        ("Input tokens exceed the configured limit of 272000 tokens.", 272_000),
        ("Input is too long for requested model.", None),
        ("413 Request Entity Too Large", None),
        ("tokens per minute (TPM): Limit 6000, Requested 14368", None),
        ("max_tokens: 9999999 > 128000, which is the maximum allowed number of output tokens", None),
    ],
)
def test_window_is_learned_only_from_reported_limits(text: str, window: int | None) -> None:
    assert learned_window(classify(text)) == window


def test_verdict_text_is_one_truncated_valid_line() -> None:
    found = classify("prompt is too long\n" + "\ud800x" * 5_000)
    assert len(found.text) == 300 and found.text.startswith("prompt is too long \ufffdx") and found.text.endswith("…")


def test_long_text_is_read_at_both_ends() -> None:
    filling = "x " * 100_000
    assert classify(f"prompt is too long: 9 tokens > 8 maximum {filling}").limit == 8
    assert classify(f"{filling} prompt is too long: 9 tokens > 8 maximum").limit == 8
    assert classify(f"{filling} prompt is too long: 9 tokens > 8 maximum {filling}").kind == "other"


def test_cause_decides_when_error_itself_matches_no_rule() -> None:
    outer, inner = RuntimeError("it failed"), ValueError("prompt is too long: 9 tokens > 8 maximum")
    outer.__cause__ = inner
    assert classify(outer) == classify(inner)
    outer.__cause__, outer.__context__ = None, inner
    assert classify(outer).kind == "other", "what was being handled meanwhile is another error"
    limited = RuntimeError("429 Too Many Requests")
    limited.__cause__ = inner
    assert classify(limited).kind == "rate_limit", "the outer error is the newer one"


def test_circular_causes_terminate() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert classify(one) == OverflowVerdict("other", "none", text="one")


@pytest.mark.parametrize("package", [openai, anthropic])
def test_connection_errors_are_other(package: object) -> None:
    request = httpx2.Request("POST", "https://provider.invalid")
    assert classify(package.APIConnectionError(request=request)).kind == "other"  # type: ignore[attr-defined]
    assert classify(package.APITimeoutError(request=request)).kind == "other"  # type: ignore[attr-defined]


def test_stored_codes_are_normalized() -> None:
    too_long, too_large = RULES.codes.too_long, RULES.codes.too_large
    for codes in (too_long, too_large, RULES.codes.rate_limit, RULES.codes.unrelated):
        assert {normalize_code(code) for code in codes} == codes
    assert (
        normalize_code("ContextWindowExceededError")
        == normalize_code("context_window_exceeded")
        == "contextwindowexceeded"
    )
    assert not too_long & too_large and not (too_long | too_large) & (RULES.codes.rate_limit | RULES.codes.unrelated)


@pytest.mark.parametrize(
    ("digits", "tokens"),
    [("8192", 8_192), ("1,048,576", 1_048_576), ("1.048.576", 1_048_576), ("1 048 576", 1_048_576),
     ("1_048_576", 1_048_576), ("524288.0", 524_288), ("128k", 128_000), ("١٢٨", 128), ("", 0), (None, 0)],
)  # fmt: skip
def test_parse_number_accepts_separators(digits: str | None, tokens: int) -> None:
    assert parse_number(digits) == tokens


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.name)
def test_text_rules_have_only_bounded_repeats(rule: object) -> None:
    pattern: re.Pattern[str] = rule.pattern  # type: ignore[attr-defined]
    repeats = re.sub(r"\\\+|\[[^\]]*\]", "", pattern.pattern)
    assert not re.search(r"[*+]|\{\d+,\}", repeats), "only bounded repeats"
