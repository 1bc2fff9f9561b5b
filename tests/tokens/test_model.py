"""Names of models resolve to the right facts, guesses are said to be guesses, and the user's own entry wins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.tokens.model import (
    Model,
    Prices,
    all_models,
    cache_rules,
    families,
    resolve,
    snapshot_date,
)
from nexus.tokens.model_table import provider_table

# name as people write it: the snapshot's name, provider, wire, window
EXACT = """
gpt-4o                                                     gpt-4o                      openai      openai     128000
gpt-4o-2024-08-06                                          gpt-4o-2024-08-06           openai      openai     128000
gpt-4o-2031-01-01                                          gpt-4o                      openai      openai     128000
GPT-4.1                                                    gpt-4.1                     openai      openai     1047576
gpt-4.1-mini-2025-04-14                                    gpt-4.1-mini-2025-04-14     openai      openai     1047576
gpt-4-0613                                                 gpt-4-0613                  openai      openai     8192
gpt-5                                                      gpt-5                       openai      openai     400000
gpt-5-mini                                                 gpt-5-mini                  openai      openai     400000
openai/gpt-5.1-codex                                       gpt-5.1-codex               openai      openai     400000
gpt-5.4                                                    gpt-5.4                     openai      openai     1050000
gpt-5.6-sol                                                gpt-5.6-sol                 openai      openai     1050000
o1                                                         o1                          openai      openai     200000
o3-2025-04-16                                              o3-2025-04-16               openai      openai     200000
o4-mini                                                    o4-mini                     openai      openai     200000
ft:gpt-4o-2024-08-06:acme::abc123                          ft:gpt-4o-2024-08-06        openai      openai     128000
ft:gpt-4.1-nano-2025-04-14:acme:support:xyz                ft:gpt-4.1-nano-2025-04-14  openai      openai     1047576
ft:gpt-5-mini:acme::q                                      gpt-5-mini                  openai      openai     400000
azure/gpt-4o                                               gpt-4o                      azure       openai     128000
azure/eu/gpt-4.1-mini                                      gpt-4.1-mini                azure       openai     1047576
azure/gpt-35-turbo                                         gpt-3.5-turbo               azure       openai     16385
azure_ai/claude-opus-4-6                                   claude-opus-4-6             azure       anthropic  1000000
github_copilot/gpt-5-mini                                  gpt-5-mini                  github_copilot openai  400000
claude-sonnet-4                                            claude-sonnet-4-0           anthropic   anthropic  200000
claude-sonnet-4-20250514                                   claude-sonnet-4-20250514    anthropic   anthropic  200000
claude-sonnet-4-5                                          claude-sonnet-4-5           anthropic   anthropic  200000
claude-sonnet-4-5-20250929                                 claude-sonnet-4-5-20250929  anthropic   anthropic  200000
claude-sonnet-4-6                                          claude-sonnet-4-6           anthropic   anthropic  1000000
claude-opus-4                                              claude-opus-4-0             anthropic   anthropic  200000
claude-opus-4-1-20250805                                   claude-opus-4-1-20250805    anthropic   anthropic  200000
claude-opus-4-5                                            claude-opus-4-5             anthropic   anthropic  200000
claude-opus-4-7                                            claude-opus-4-7             anthropic   anthropic  1000000
claude-opus-5                                              claude-opus-5               anthropic   anthropic  1000000
claude-opus-5-20270101                                     claude-opus-5               anthropic   anthropic  1000000
claude-haiku-4-5                                           claude-haiku-4-5            anthropic   anthropic  200000
claude-3-5-sonnet-latest                                   claude-3-5-sonnet-20241022  anthropic   anthropic  200000
claude-3-haiku                                             claude-3-haiku-20240307     anthropic   anthropic  200000
claude-sonnet-4-5[1m]                                      claude-sonnet-4-5           anthropic   anthropic  1000000
claude-4-sonnet                                            claude-sonnet-4-0           anthropic   anthropic  200000
claude-4.5-sonnet                                          claude-sonnet-4-5           anthropic   anthropic  200000
anthropic/claude-3.7-sonnet                                claude-3-7-sonnet-20250219  anthropic   anthropic  200000
openrouter/anthropic/claude-sonnet-4                       claude-sonnet-4-0           openrouter  openai     200000
openrouter/anthropic/claude-opus-4.5:thinking              claude-opus-4-5             openrouter  openai     200000
vercel_ai_gateway/anthropic/claude-sonnet-4.6              claude-sonnet-4-6           vercel      openai     1000000
vertex_ai/claude-sonnet-4@20250514                         claude-sonnet-4-20250514    vertex      anthropic  200000
claude-opus-4-6@default                                    claude-opus-4-6             vertex      anthropic  1000000
projects/p/locations/l/publishers/anthropic/models/claude-opus-4@20250514 claude-opus-4-20250514 vertex anthropic 2e5
anthropic.claude-3-5-sonnet-20241022-v2:0                  claude-3-5-sonnet-20241022  bedrock     anthropic  200000
us.anthropic.claude-sonnet-4-20250514-v1:0                 claude-sonnet-4-20250514    bedrock     anthropic  200000
apac.anthropic.claude-haiku-4-5-20251001-v1:0              claude-haiku-4-5-20251001   bedrock     anthropic  200000
eu.anthropic.claude-opus-4-6-v1                            claude-opus-4-6             bedrock     anthropic  1000000
global.anthropic.claude-opus-5                             claude-opus-5               bedrock     anthropic  1000000
bedrock/us-east-1/anthropic.claude-3-haiku-20240307-v1:0   claude-3-haiku-20240307     bedrock     anthropic  200000
anthropic.claude-3-sonnet-20240229-v1:0:200k               claude-3-sonnet-20240229    bedrock     anthropic  200000
arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-4-5-v1:0 claude-opus-4-5 bedrock anthropic 2e5
bedrock/amazon.nova-pro-v1:0                               nova-pro                    bedrock     openai     300000
meta.llama3-3-70b-instruct-v1:0                            llama-3.3-70b-instruct      bedrock     openai     128000
deepseek.r1-v1:0                                           deepseek-r1                 bedrock     openai     65536
openai.gpt-oss-120b-1:0                                    gpt-oss-120b                bedrock     openai     131072
us.openai.gpt-6-sol                                        gpt-6-sol                   bedrock     openai     1050000
gemini-2.5-pro                                             gemini-2.5-pro              gemini      gemini     1048576
gemini/gemini-2.5-flash                                    gemini-2.5-flash            gemini      gemini     1048576
models/gemini-2.0-flash-001                                gemini-2.0-flash            gemini      gemini     1048576
vertex_ai/gemini-3-pro                                     gemini-3-pro-preview        vertex      gemini     1048576
gemini-3-pro-preview                                       gemini-3-pro-preview        gemini      gemini     1048576
gemini-2.5-pro-preview-05-06                               gemini-2.5-pro              gemini      gemini     1048576
gemini-2.5-flash-preview-09-2025                           gemini-2.5-flash            gemini      gemini     1048576
google/gemini-3.1-pro-preview                              gemini-3.1-pro-preview      gemini      gemini     1048576
openrouter/google/gemini-2.5-pro                           gemini-2.5-pro              openrouter  openai     1048576
mistral/mistral-large-latest                               mistral-large-latest        mistral     openai     262144
mistral-large                                              mistral-large-latest        mistral     openai     262144
mistral-large-2407                                         mistral-large-2411          mistral     openai     131072
deepseek/deepseek-chat                                     deepseek-chat               deepseek    openai     131072
openrouter/deepseek/deepseek-chat:free                     deepseek-chat               openrouter  openai     131072
xai/grok-4.3                                               grok-4.3                    xai         openai     1000000
x-ai/grok-code-fast-1                                      grok-code-fast-1            xai         openai     256000
groq/openai/gpt-oss-20b                                    groq/openai/gpt-oss-20b     groq        openai     131072
openrouter/openai/gpt-oss-20b                              gpt-oss-20b                 openrouter  openai     131072
cerebras/gpt-oss-120b                                      cerebras/gpt-oss-120b       cerebras    openai     131072
meta-llama/llama-3.3-70b-instruct                          llama-3.3-70b-instruct      open        openai     128000
together_ai/meta-llama/Meta-Llama-3.1-8B-Instruct          llama-3.1-8b-instruct       together    openai     128000
command-a                                                  command-a-03-2025           cohere      openai     256000
dashscope/qwen-max                                         qwen-max                    dashscope   openai     32768
qwen/qwen3-max                                             qwen3-max                   dashscope   openai     262144
moonshotai/kimi-k2.5                                       kimi-k2.5                   moonshot    openai     262144
fireworks_ai/accounts/fireworks/models/kimi-k2-thinking    kimi-k2-thinking            fireworks   openai     262144
z-ai/glm-4.6                                               glm-4.6                     zai         openai     204800
minimax/minimax-m2                                         MiniMax-M2                  minimax     openai     196608
"""
ROWS = [tuple(line.split()) for line in EXACT.strip().splitlines()]


@pytest.mark.parametrize(("name", "matched", "provider", "wire", "window"), ROWS, ids=[row[0] for row in ROWS])
def test_name_resolves_to_expected_facts(name: str, matched: str, provider: str, wire: str, window: str) -> None:
    model = resolve(name)
    found = (model.matched, model.provider, model.provider_format, model.context_tokens)
    assert found == (matched, provider, wire, float(window))
    assert model.known
    assert model.warning == ""
    assert model.name == name


def test_name_cases_cover_all_kinds() -> None:
    assert len(ROWS) >= 80
    assert {row[3] for row in ROWS} == {"openai", "anthropic", "gemini"}


@pytest.mark.parametrize(
    ("name", "matched", "window"),
    [
        ("claude-sonnet-4-5-thinking", "claude-sonnet-4-5", 200_000),
        ("claude-opus-4-9", "claude-opus-4-0", 200_000),
        ("gpt-5.7-sol", "gpt-5", 400_000),
        ("o3-mini-high", "o3-mini", 200_000),
        ("mistral-large-2402", "mistral-large-latest", 262_144),
        ("openrouter/openai/gpt-4o-mini-acme", "gpt-4o-mini", 128_000),
    ],
)
def test_variant_of_known_name_resolves_with_warning_and_no_price(name: str, matched: str, window: int) -> None:
    model = resolve(name)
    assert (model.matched, model.context_tokens, model.known) == (matched, window, True)
    assert f"taken for {matched}" in model.warning
    assert snapshot_date() in model.warning
    assert model.prices is None


@pytest.mark.parametrize(
    "name", ["my-own-model", "azure/team-deployment", "llama9:latest", "gpt", "claude", "x", "/", ":"]
)
def test_unknown_name_has_128_000_tokens_and_warning(name: str) -> None:
    model = resolve(name)
    assert (model.context_tokens, model.max_input_tokens, model.known, model.matched) == (128_000, 128_000, False, "")
    assert repr(name) in model.warning
    assert "128,000" in model.warning
    assert model.prices is None


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_empty_name_is_unknown_model(name: str) -> None:
    model = resolve(name)
    assert (model.context_tokens, model.known, model.provider_format) == (128_000, False, "openai")
    assert model.warning.startswith("no model was named")


def test_unknown_model_of_known_family_keeps_format_and_factor() -> None:
    claude, gemini = resolve("claude-zeta-9"), resolve("vertex_ai/gemini-9-ultra")
    assert (claude.provider_format, claude.vendor, claude.token_factor, claude.known) == (
        "anthropic",
        "anthropic",
        1.35,
        False,
    )
    assert (gemini.provider_format, gemini.provider, gemini.token_factor, gemini.known) == (
        "gemini",
        "vertex",
        1.0,
        False,
    )


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_name_resolves(name: str) -> None:
    model = resolve(name)
    assert model.context_tokens > 0
    assert model.known or model.warning


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("claude-3-5-sonnet-20241022", 1.1),
        ("claude-sonnet-4-20250514", 1.1),
        ("claude-sonnet-4-6", 1.1),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", 1.1),
        ("claude-opus-4-7", 1.35),
        ("openrouter/anthropic/claude-opus-4.8", 1.35),
        ("claude-opus-5", 1.35),
        ("claude-fable-5", 1.35),
        ("claude-mythos-preview", 1.35),
        ("gpt-4o", 1.0),
        ("o3", 1.0),
        ("gemini-2.5-pro", 1.0),
        ("qwen3-max", 1.1),
        ("mistral-large-latest", 1.1),
        ("glm-4.6", 1.1),
        ("deepseek-chat", 1.0),
        ("llama-3.3-70b-instruct", 1.0),
        ("kimi-k2.5", 1.0),
        ("grok-4.3", 1.1),
        ("my-own-model", 1.1),
        ("", 1.1),
    ],
)
def test_token_factor_follows_family(name: str, factor: float) -> None:
    assert resolve(name).token_factor == factor


def test_prices_are_per_million_tokens_with_long_prompt_prices() -> None:
    assert resolve("claude-sonnet-4-5").prices == Prices(3, 15, 0.3, 3.75, 6)
    assert resolve("gpt-4o").prices == Prices(2.5, 10, 1.25, 2.5, 2.5)
    gemini = resolve("gemini-2.5-pro")
    assert gemini.prices == Prices(1.25, 10, 0.125, 1.25, 1.25)
    assert gemini.long_prompt_tokens == 200_000
    assert gemini.long_prompt_prices == Prices(2.5, 15, 0.25, 2.5, 2.5)


def test_gpt_5_input_limit_is_below_window() -> None:
    assert (resolve("gpt-5-mini").context_tokens, resolve("gpt-5-mini").max_input_tokens) == (400_000, 272_000)
    assert (resolve("gpt-5.4").max_input_tokens, resolve("gpt-5.4").max_output_tokens) == (922_000, 128_000)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("claude-opus-5", 512),
        ("claude-fable-5-1", 512),
        ("claude-opus-4-8", 1024),
        ("claude-sonnet-4-5", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-3-5-haiku-20241022", 2048),
        ("claude-opus-4-5", 4096),
        ("claude-opus-4-6", 4096),
        ("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", 4096),
        ("gpt-4o", 1024),
        ("gemini-2.5-pro", 2048),
        ("gemini-3.1-pro-preview", 4096),
        ("gemini-3.5-flash", 4096),
    ],
)
def test_minimum_cached_prefix_is_documented_one(name: str, tokens: int) -> None:
    assert resolve(name).cache_min_tokens == tokens


def test_cache_rules_follow_who_serves_or_made_the_model() -> None:
    claude = cache_rules(resolve("us.anthropic.claude-sonnet-4-5-20250929-v1:0"))
    assert (claude.max_breakpoints, claude.lookback_blocks, claude.ttl_s, claude.ttl_long_s) == (4, 20, 300, 3600)
    assert (claude.read_factor, claude.write_factor, claude.write_long_factor) == (0.1, 1.25, 2.0)
    assert cache_rules(resolve("gpt-5.6-sol")).ttl_s == 1800
    assert cache_rules(resolve("gpt-5.6-sol")).write_factor == 1.25
    assert cache_rules(resolve("gpt-5.5")).write_factor == 1.0
    assert cache_rules(resolve("gpt-4o")).max_breakpoints == 0
    assert cache_rules(resolve("my-own-model")) == cache_rules(resolve("groq/openai/gpt-oss-20b"))


def test_user_entry_overrides_snapshot_for_every_spelling() -> None:
    entries: dict[str, Any] = {"Claude-Sonnet-4": {"context_tokens": 1_000_000, "max_output_tokens": 9_000}}
    for name in ("claude-sonnet-4", "claude-sonnet-4-20250514", "openrouter/anthropic/claude-sonnet-4"):
        model = resolve(name, entries)
        assert (model.name, model.context_tokens, model.max_input_tokens) == (name, 1_000_000, 1_000_000)
        assert model.max_output_tokens == 9_000
        assert model.token_factor == 1.1
        assert model.warning == ""
    assert resolve("claude-sonnet-4-5", entries).context_tokens == 200_000


def test_entry_for_exact_name_wins_over_plainer_spelling() -> None:
    entries = {"gpt-4o": {"context_tokens": 10_000}, "openrouter/openai/gpt-4o": {"context_tokens": 20_000}}
    assert resolve("openrouter/openai/gpt-4o", entries).context_tokens == 20_000
    assert resolve("azure/gpt-4o", entries).context_tokens == 10_000


def test_entry_same_as_uses_facts_of_other_model() -> None:
    model = resolve("azure/team-deployment", {"team-deployment": {"same_as": "gpt-4.1", "context_tokens": 300_000}})
    assert (model.name, model.matched, model.context_tokens, model.known) == (
        "azure/team-deployment",
        "gpt-4.1",
        300_000,
        True,
    )
    assert model.prices == resolve("gpt-4.1").prices


def test_entry_makes_unknown_model_known_only_with_window() -> None:
    sized = resolve("in-house", {"in-house": {"context_tokens": 32_000, "prices": {"input": 1, "output": 2}}})
    assert (sized.known, sized.warning, sized.max_input_tokens) == (True, "", 32_000)
    assert sized.prices == Prices(1, 2, 1, 1, 1)
    unsized = resolve("in-house", {"in-house": {"token_factor": 1.5}})
    assert (unsized.known, unsized.token_factor, unsized.context_tokens) == (False, 1.5, 128_000)
    assert unsized.warning


def test_model_as_entry_is_returned_unchanged() -> None:
    own = Model("m", "p", "v", "f", "gemini", 5, 4, 1, None, 0, 2.0, True, "m")
    assert resolve("m", {"m": own}) is own


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"context": 5}, "unknown field"),
        ({"context_tokens": "many"}, "Expected"),
        ({"context_tokens": 0}, "not above zero"),
        ({"context_tokens": -1}, "not above zero"),
        ({"token_factor": 0.0}, "not above zero"),
        ({"max_output_tokens": -1}, "not above zero"),
        ({"context_tokens": 100, "max_input_tokens": 200}, "200 tokens of input in a window of 100"),
        ({"wire": "soap"}, "soap"),
    ],
)
def test_invalid_entry_is_rejected_by_name(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        resolve("gpt-4o", {"gpt-4o": entry})
    assert "'gpt-4o'" in str(caught.value)


def test_all_models_are_sorted_and_resolve_to_themselves() -> None:
    models = all_models()
    names = [model.name for model in models]
    assert len(names) > 400
    assert names == sorted(names, key=str.lower)
    assert all(model.known and model.matched == model.name and not model.warning for model in models)


def test_families_are_sorted_and_cover_every_known_model() -> None:
    assert list(families()) == sorted({family.family for family in provider_table().families})
    assert {"claude", "gpt", "gemini", "qwen", "other"} <= set(families())
    assert {model.family for model in all_models() if model.provider in ("anthropic", "openai", "gemini")} == {
        "claude",
        "gpt",
        "gemini",
        "gemma",
    }
