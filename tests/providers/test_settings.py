"""Neutral settings: each provider's names for them, what a model refuses, and which changes break its prompt cache."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.engine import Engine, available_tokens
from nexus.testing import FixedClock
from nexus.types.settings import ModelSettings
from support.validity import CHECKS

TOOLS = [{"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}]
MODELS = (
    "gpt-4o", "gpt-5", "gpt-5.2", "gpt-5-pro", "gpt-5.1-codex", "o3", "chat-latest", "claude-3-5-haiku-20241022",
    "claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-sonnet-5-5", "claude-opus-5-5",
    "claude-fable-5-1", "claude-opus-9", "gemini-2.0-flash", "gemini-2.5-pro", "gemini-2.5-flash",
    "gemini-3-pro-preview", "gemini-3.5-flash", "deepseek-chat", "openrouter/anthropic/claude-sonnet-4-5", "our-model",
)  # fmt: skip
NX = nexus.open(ledger=":memory:", clock_ms=FixedClock())

numbers = st.floats(0, 2).map(lambda value: round(value, 2))
settings_given = st.fixed_dictionaries(
    {},
    optional={
        "temperature": numbers,
        "top_p": st.floats(0.01, 1).map(lambda value: round(value, 2)),
        "max_tokens": st.integers(1, 100_000),
        "thinking": st.sampled_from([True, False, "low", "medium", "high"]) | st.integers(0, 200_000),
        "stop": st.just("END") | st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True),
        "tool_choice": st.sampled_from(["auto", "none", "required", "look", "absent"]),
    },
)


def bodies(ctx: nexus.AssembledContext) -> dict[str, dict[str, Any]]:
    """Return the bodies as sent: Anthropic's package adds `extra_body` to the others."""
    messages = ctx.to_anthropic()
    more = messages.pop("extra_body", {})
    return {
        "openai": ctx.to_openai(),
        "responses": ctx.to_responses(),
        "anthropic": {**messages, **more},
        "gemini": ctx.to_gemini(),
    }


def body_of(model: str, body_format: str, **settings: Any) -> dict[str, Any]:
    """Return the settings in the body of a call with a tool."""
    body = bodies(NX.assemble("Hi", model=model, tools=TOOLS, **settings))[body_format]
    body = {**body.pop("config", {}), **body}
    frame = (
        "system_instruction",
        "model",
        "messages",
        "contents",
        "input",
        "tools",
        "system",
        "store",
        "prompt_cache_key",
        "include",
    )
    return {name: value for name, value in body.items() if name not in frame}


def problems_of(model: str, **settings: Any) -> list[str]:
    ctx = NX.assemble("Hi", model=model, tools=TOOLS, **settings)
    return [warning.message for warning in ctx.warnings if warning.source == "nexus:settings"]


@given(st.sampled_from(MODELS), st.booleans(), settings_given)
def test_bodies_with_any_settings_are_valid(model: str, has_tools: bool, settings: ModelSettings) -> None:
    ctx = NX.assemble("Hi", model=model, tools=TOOLS if has_tools else (), **settings)
    sent = bodies(ctx)
    for name in {"temperature", "top_p"} & sent["anthropic"].keys():
        assert 0 <= sent["anthropic"].pop(name) <= 1  # the API takes them, the package's types do not have them
    for body_format, body in sent.items():
        assert CHECKS[body_format](body) == [], body_format


@given(st.sampled_from(MODELS), settings_given)
def test_refused_combinations_are_never_sent(model: str, settings: ModelSettings) -> None:
    ctx = NX.assemble("Hi", model=model, tools=TOOLS, **settings)
    sent = bodies(ctx)
    chat, claude, gemini = sent["openai"], sent["anthropic"], sent["gemini"].get("config", {})
    thinking = claude.get("thinking", {"type": "disabled"})
    if thinking["type"] == "enabled":
        assert 1_024 <= thinking["budget_tokens"] < claude["max_tokens"]
    if thinking["type"] in ("enabled", "adaptive"):
        assert claude.get("temperature", 1) == 1
        assert claude.get("tool_choice", {"type": "auto"})["type"] in ("auto", "none")
    assert claude.get("temperature", 0) <= 1
    assert "stop" not in sent["responses"]
    assert len(chat.get("stop", [])) <= 4
    assert len(gemini.get("stop_sequences", [])) <= 5
    if model in ("gpt-5", "o3", "gpt-5-pro", "gpt-5.1-codex"):
        assert not {"temperature", "top_p", "stop", "max_tokens"} & chat.keys()
    if model in ("claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-1"):
        assert not {"temperature", "top_p"} & claude.keys()
        assert thinking["type"] != "enabled"
        assert claude.get("tool_choice", {"type": "auto"})["type"] in ("auto", "none")
    if "tool_choice" in chat and isinstance(chat["tool_choice"], dict):
        assert chat["tool_choice"]["function"]["name"] == "look"


SETTINGS = {"temperature": 0.3, "max_tokens": 500, "stop": "END", "tool_choice": "look"}


@pytest.mark.parametrize(
    ("model", "body_format", "expected"),
    [
        (
            "gpt-4o",
            "openai",
            {
                "temperature": 0.3,
                "max_tokens": 500,
                "stop": ["END"],
                "tool_choice": {"type": "function", "function": {"name": "look"}},
            },
        ),
        (
            "gpt-4o",
            "responses",
            {"temperature": 0.3, "max_output_tokens": 500, "tool_choice": {"type": "function", "name": "look"}},
        ),
        (
            "claude-sonnet-4-5",
            "anthropic",
            {
                "temperature": 0.3,
                "max_tokens": 500,
                "stop_sequences": ["END"],
                "tool_choice": {"type": "tool", "name": "look"},
            },
        ),
        (
            "gemini-2.5-flash",
            "gemini",
            {
                "temperature": 0.3,
                "max_output_tokens": 500,
                "stop_sequences": ["END"],
                "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["look"]}},
            },
        ),
    ],
)
def test_settings_have_each_providers_names(model: str, body_format: str, expected: dict[str, Any]) -> None:
    assert body_of(model, body_format, **SETTINGS) == expected


@pytest.mark.parametrize(
    ("model", "body_format", "thinking", "expected"),
    [
        ("claude-sonnet-4-5", "anthropic", 3_000, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        (
            "claude-sonnet-5-5",
            "anthropic",
            "high",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        ("claude-sonnet-5-5", "anthropic", False, {"thinking": {"type": "between_tools"}}),
        ("claude-opus-4-8", "anthropic", True, {"thinking": {"type": "adaptive"}}),
        ("gpt-5.2", "openai", False, {"reasoning_effort": "none"}),
        ("gpt-5", "openai", "low", {"reasoning_effort": "low"}),
        ("gpt-5", "responses", 3_000, {"reasoning": {"effort": "medium"}}),
        ("gemini-2.5-flash", "gemini", False, {"thinking_config": {"thinking_budget": 0}}),
        ("gemini-2.5-flash", "gemini", True, {"thinking_config": {"thinking_budget": -1}}),
        ("gemini-3.5-flash", "gemini", "low", {"thinking_config": {"thinking_level": "LOW"}}),
        ("gpt-4o", "openai", "high", {}),
    ],
)
def test_thinking_has_each_models_form(model: str, body_format: str, thinking: Any, expected: dict[str, Any]) -> None:
    sent = body_of(model, body_format, thinking=thinking)
    sent.pop("max_tokens", None)
    assert sent == expected


@pytest.mark.parametrize(
    ("model", "settings", "problem"),
    [
        ("gpt-5", {"temperature": 0.2}, "temperature 0.2 omitted: gpt-5 does not take it"),
        (
            "claude-sonnet-4-5",
            {"thinking": "low", "temperature": 0.2},
            "temperature 0.2 omitted: Anthropic's models take it only without thinking",
        ),
        ("claude-sonnet-4-5", {"temperature": 1.5}, "temperature 1.5 sent as 1: the highest of Anthropic's models"),
        (
            "claude-sonnet-5-5",
            {"tool_choice": "required"},
            "tool_choice 'required' omitted: claude-sonnet-5-5 cannot be forced to call a tool",
        ),
        ("gpt-4o", {"max_tokens": 99_999}, "max_tokens 99999 sent as 16384: the longest reply of gpt-4o"),
        ("o3", {"thinking": False}, "thinking False sent as 'low': o3 cannot be told not to think"),
        ("gpt-4o", {"tool_choice": "absent"}, "tool_choice 'absent' omitted: no tool of that name is offered"),
        ("gpt-4o", {"stop": "END"}, "stop is not sent by to_responses(): the Responses API has none"),
    ],
)
def test_refused_setting_is_a_warning(model: str, settings: dict[str, Any], problem: str) -> None:
    assert problems_of(model, **settings) == [problem]


def test_sampling_is_an_argument_of_anthropics_client() -> None:
    sent = NX.assemble("Hi", model="claude-sonnet-4-5", temperature=0.3, stop="END").to_anthropic()
    client = anthropic.Anthropic(api_key="none")
    inspect.signature(client.messages.create).bind(**sent)
    assert sent["extra_body"] == {"temperature": 0.3}


def test_extra_is_sent_as_it_is_and_has_precedence() -> None:
    extra = {"seed": 7, "temperature": 0.9}
    assert body_of("gpt-5", "openai", temperature=0.1, extra=extra) == {"seed": 7, "temperature": 0.9}
    effort = body_of("claude-opus-4-8", "anthropic", thinking="low", extra={"output_config": {"format": {"type": "x"}}})
    assert effort["output_config"] == {"effort": "low", "format": {"type": "x"}}


def test_model_config_is_sent_as_it_is() -> None:
    config = {"temperature": 0.9, "stop": ["a"], "max_tokens": 9}
    assert body_of("gpt-5", "openai", model_config=config) == config
    assert problems_of("gpt-5", model_config=config) == []
    assert body_of("gpt-4o", "openai", model_config={"seed": 7}, temperature=0.1) == {"seed": 7, "temperature": 0.1}


def test_settings_of_a_context_can_be_passed_on() -> None:
    ctx = NX.assemble("Hi", model="gpt-4o", temperature=0.3, extra={"seed": 7})
    assert ctx.model_config == {"temperature": 0.3, "extra": {"seed": 7}}
    assert NX.assemble("Hi", model="gpt-4o", model_config=ctx.model_config).body_hash == ctx.body_hash


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"temperature": 3}, "setting 'temperature' is 3: expected a number from 0 to 2"),
        ({"temperature": True}, "expected a number"),
        ({"max_tokens": 0}, "expected a number of tokens"),
        ({"thinking": "much"}, "expected True, False, 'low'"),
        ({"stop": [" "]}, "not blank"),
        ({"tool_choice": {"type": "any"}}, "expected 'auto'"),
        ({"extra": [1]}, "not a mapping"),
        ({"model_config": {"extra": {}, "stop": ""}}, "not blank"),
        ({"temprature": 0.1}, r"assemble\(\) has no argument 'temprature' \(did you mean 'temperature'"),
        ({"model_config": {"extra": {}, "temprature": 1}}, "did you mean 'temperature'"),
    ],
)
def test_wrong_setting_is_rejected(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(nexus.errors.BadSetting, match=problem):
        NX.assemble("Hi", **settings)


def test_max_tokens_is_the_reserve_of_the_reply() -> None:
    assert NX.assemble("Hi", model="gpt-4o", max_tokens=2_000).token_budget.reserve_response == 2_000
    assert NX.assemble("Hi", model="gpt-4o", max_tokens=99_999).token_budget.reserve_response == 16_384
    assert available_tokens(NX, model="gpt-4o", max_tokens=2_000) == available_tokens(
        NX, model="gpt-4o", extra={"max_tokens": 2_000}
    )


@pytest.fixture
def nx(tmp_path: Path) -> Engine:
    return nexus.open(ledger=tmp_path / "ledger.db")


def talk(nx: Engine, model: str, **settings: Any) -> nexus.AssembledContext:
    """Return the context of a call and record its reply."""
    ctx = nx.assemble("Hello there.", model=model, tools=TOOLS, system="You are brief. " * 30, **settings)
    nx.record(ctx, nexus.AgentResult((nexus.assistant("Hello."),), nexus.TokenUsage(600, 5)))
    return ctx


@pytest.mark.parametrize("settings", [{"temperature": 0.3, "thinking": "low"}, {"model_config": {"max_tokens": 400}}])
@pytest.mark.parametrize("model", ["gpt-5", "claude-sonnet-4-5", "gemini-2.5-flash"])
def test_recorded_settings_are_replayed(nx: Engine, model: str, settings: dict[str, Any]) -> None:
    sent = talk(nx, model, **settings)
    replayed = nx.replay("main", 1)
    assert replayed.body_hash == sent.body_hash
    assert replayed.model_config == sent.model_config


@pytest.mark.parametrize(
    ("model", "change", "breaks"),
    [
        ("claude-sonnet-4-5", {"temperature": 0.9}, False),
        ("claude-sonnet-4-5", {"max_tokens": 300}, False),
        ("claude-sonnet-4-5", {"thinking": "low"}, True),
        ("claude-sonnet-4-5", {"tool_choice": "none"}, True),
        ("openrouter/anthropic/claude-sonnet-4-5", {"tool_choice": "none"}, True),
        ("gpt-5", {"thinking": "low", "tool_choice": "none", "max_tokens": 300}, False),
        ("gpt-5", {"extra": {"response_format": {"type": "json_object"}}}, True),
        ("gemini-2.5-flash", {"thinking": "low", "tool_choice": "none", "stop": "END"}, False),
    ],
)
def test_prefix_break_is_reported_where_the_cache_breaks(
    nx: Engine,
    model: str,
    change: dict[str, Any],
    breaks: bool,
) -> None:
    talk(nx, model)
    report = talk(nx, model, **change).accounting.prefix
    assert report.state == ("broken" if breaks else "extends"), report.causes
    if breaks:
        assert report.causes == ("the model's settings changed",)


def test_anthropic_keeps_tools_and_system_when_thinking_changes(nx: Engine) -> None:
    talk(nx, "claude-sonnet-4-5")
    report = talk(nx, "claude-sonnet-4-5", thinking="low").accounting.prefix
    assert report.at == "the settings"
    assert report.stable_tokens > 400 > report.lost_tokens > 0


def test_schema_of_output_breaks_the_cache_from_the_beginning(nx: Engine) -> None:
    talk(nx, "claude-opus-4-8")
    schema = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    assert talk(nx, "claude-opus-4-8", extra=schema).accounting.prefix.stable_tokens == 0


@pytest.mark.parametrize(
    ("model", "provider_format", "sent"),
    [
        ("gpt-4o", "openai", {"temperature": 0.5, "max_tokens": 4000}),
        ("claude-sonnet-4-5", "anthropic", {"temperature": 0.5, "max_tokens": 4000}),
    ],
)
def test_printed_model_config_of_the_layered_form_is_read(
    model: str, provider_format: str, sent: dict[str, Any]
) -> None:
    """Document 002, "AssembledContext Output": `modelConfig`, "temperature, maxTokens, thinking, etc."."""
    config = {"temperature": 0.5, "maxTokens": 4000, "thinking": False, "seed": 7}
    body = body_of(model, provider_format, model_config=config)
    assert body.get("seed", 7) == 7 and "maxTokens" not in body and body.get("thinking") in (None, {"type": "disabled"})
    assert {name: body.get(name) for name in sent} == sent
    assert NX.assemble("Hi", model=model, model_config=config).token_budget.reserve_response == 4000
    assert body_of(model, provider_format, model_config=config, max_tokens=100)[list(sent)[1]] == 100


def test_a_providers_own_thinking_setting_stays_its_own() -> None:
    config = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "temperature": 1}
    assert body_of("claude-sonnet-4-5", "anthropic", model_config=config)["thinking"] == config["thinking"]
