"""Reading providers' messages and replies: nothing is lost, usage means the same for all, odd shapes are typed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai.types import GenerateContentResponse
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import ChatCompletion

from nexus.errors import BadReply
from nexus.providers import anthropic, gemini, openai
from nexus.types.message import Image, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.request import AgentResult, TokenUsage

READERS = (openai, anthropic, gemini)

COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}
ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"b": 1, "a": "ü"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 28,
        "cache_read_input_tokens": 64,
        "cache_creation_input_tokens": 8,
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 3},
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
    },
}
GEMINI: dict[str, Any] = {
    "responseId": "resp-1",
    "modelVersion": "gemini-x",
    "candidates": [
        {
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "Let me look."},
                    {"functionCall": {"name": "look", "args": {"b": 1, "a": "ü"}}, "thoughtSignature": "-_-_"},
                ],
            },
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 64,
        "candidatesTokenCount": 15,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 120,
    },
}


def only(result: AgentResult) -> tuple[Any, ...]:
    (message,) = result.messages
    assert message.role == "assistant"
    return message.parts


def test_openai_reply_has_reasoning_text_and_calls_in_order() -> None:
    body = ChatCompletion.model_validate(COMPLETION).model_dump()
    result = openai.reply(body)
    assert only(result) == (Thinking("hm"), Text("Let me look."), ToolCall("c1", "look", '{"a": 1}'))
    assert (result.model, result.stop_reason, result.messages[0].id) == ("gpt-x", "tool_use", "chatcmpl-1")
    assert result.provider_stop_reason == "tool_calls"
    assert result.messages[0].model == "gpt-x"
    assert result.messages[0].meta == ""


def test_anthropic_reply_has_every_block_in_order() -> None:
    result = anthropic.reply(AnthropicMessage.model_validate(ANTHROPIC).model_dump())
    assert only(result) == (
        Thinking("hm", "sig"),
        Thinking("", redacted="secret"),
        Text("Let me look."),
        ToolCall("c1", "look", '{"b":1,"a":"ü"}'),
    )
    assert (result.model, result.stop_reason, result.messages[0].id) == ("claude-x", "tool_use", "msg_1")


@pytest.mark.parametrize("mode", ["python", "json"])
@pytest.mark.parametrize("by_alias", [True, False])
def test_gemini_reply_reads_equal_in_every_dump_mode(mode: Any, by_alias: bool) -> None:
    result = gemini.reply(GenerateContentResponse.model_validate(GEMINI).model_dump(mode=mode, by_alias=by_alias))
    *said, signature, call = only(result)
    assert said == [Thinking("hm"), Text("Let me look.")]
    assert signature in (Thinking("", "-_-_"), Thinking("", "+/+/"))
    assert call == ToolCall("call_resp-1_1", "look", '{"b":1,"a":"ü"}')
    assert json.loads(result.messages[0].meta)["made_ids"] == [call.id]
    assert (result.model, result.stop_reason, result.provider_stop_reason) == ("gemini-x", "tool_use", "STOP")


def test_usage_is_normalized_across_providers() -> None:
    openai, anthropic, gemini = (
        reader.reply(body).usage for reader, body in zip(READERS, (COMPLETION, ANTHROPIC, GEMINI), strict=True)
    )
    assert anthropic == replace(openai, cache_write_1h_tokens=3) == TokenUsage(100, 20, 64, 8, 5, 3)
    assert gemini == TokenUsage(100, 20, 64, 0, 5)


def test_reply_is_recognized_only_by_its_own_reader() -> None:
    bodies = (COMPLETION, ANTHROPIC, GEMINI)
    assert [[reader.is_reply(body) for reader in READERS] for body in bodies] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    chunk = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "x"}}]}
    others: list[Any] = [chunk, {"type": "error"}, {}, [], None, {"choices": []}, {"role": "assistant", "content": "x"}]
    for other in others:
        assert not any(reader.is_reply(other) for reader in READERS)
    for reader in READERS:
        with pytest.raises(BadReply):
            reader.reply({})


def test_further_choices_are_kept_in_meta() -> None:
    body = {**COMPLETION, "choices": [*COMPLETION["choices"], {"index": 1, "message": {"content": "or not"}}]}
    (message,) = openai.reply(body).messages
    assert json.loads(message.meta)["other_choices"] == [{"index": 1, "message": {"content": "or not"}}]


def test_blocked_gemini_prompt_is_error_without_message() -> None:
    result = gemini.reply({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}})
    assert (result.messages, result.error, result.usage.input_tokens) == ((), "SAFETY", 7)


def test_openai_parts_become_text_images_and_unknown_parts() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    (message,) = openai.messages(
        [
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
                    audio,
                ],
            }
        ]
    )
    raw = json.dumps(audio, separators=(",", ":"))
    assert message.parts == (
        Text("see"),
        Image("image/png", "AAAA"),
        Image("", url="https://x.example/a.png"),
        Unknown("input_audio", raw),
    )
    assert json.loads(message.meta) == {"name": "ann", "blocks": {"1": {"detail": "low"}}}


def test_openai_roles_refusals_and_older_calls_are_read() -> None:
    developer, refused, older, answer = openai.messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "assistant", "content": "", "function_call": {"name": "look", "arguments": {"a": 1}}},
            {"role": "function", "name": "look", "content": [{"type": "text", "text": "one"}]},
        ]
    )
    assert (developer.role, developer.parts) == ("system", (Text("Be brief."),))
    assert (refused.parts, json.loads(refused.meta)) == ((Text("No."),), {"refusal": True})
    assert older.parts == (ToolCall("call_1", "look", '{"a":1}'),)
    assert json.loads(older.meta) == {"made_ids": ["call_1"]}
    assert (answer.role, answer.parts) == ("tool", (ToolResult("call_1", (Text("one"),), "look"),))


def test_several_openai_results_each_get_the_name_of_their_call() -> None:
    calls = [{"id": i, "type": "function", "function": {"name": f"tool_{i}", "arguments": "{}"}} for i in "ab"]
    messages = openai.messages(
        [
            {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "b", "content": ""},
            {"role": "tool", "tool_call_id": "a", "content": "x"},
        ]
    )
    assert [*messages[1].results()] == [ToolResult("b", (), "tool_b")]
    assert [*messages[2].results()] == [ToolResult("a", (Text("x"),), "tool_a")]


def test_anthropic_results_precede_other_user_content() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    document = {"type": "document", "source": {"type": "text", "data": "d"}, "cache_control": {"type": "ephemeral"}}
    _, results, rest = anthropic.messages(
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": i, "name": "look", "input": {}} for i in "ab"],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}, picture]},
                    {"type": "tool_result", "tool_use_id": "b", "content": "bad", "is_error": True},
                    {"type": "text", "text": "and?"},
                    linked,
                    document,
                ],
            },
        ]
    )
    assert (results.role, rest.role) == ("tool", "user")
    assert results.parts == (
        ToolResult("a", (Text("one"), Image("image/png", "AAAA")), "look"),
        ToolResult("b", (Text("bad"),), "look", is_error=True),
    )
    unknown = Unknown("document", '{"type":"document","source":{"type":"text","data":"d"}}')
    assert rest.parts == (Text("and?"), Image("", url="https://x.example/a.png"), unknown)


def test_unmapped_fields_are_kept_in_meta_without_cache_control() -> None:
    cited = {"type": "text", "text": "so", "citations": [{"n": 1}], "cache_control": {"type": "ephemeral"}}
    (message,) = anthropic.messages([{"role": "assistant", "content": [cited], "cache_control": {}}])
    assert json.loads(message.meta) == {"blocks": {"0": {"citations": [{"n": 1}]}}}


def test_gemini_contents_without_ids_match_by_name() -> None:
    user, model, tool, rest = gemini.messages(
        [
            {
                "role": "user",
                "parts": [{"text": "go"}, {"inline_data": {"mime_type": "image/png", "data": b"\xff\xef"}}],
            },
            {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"n": n}}} for n in (1, 2)]},
            {
                "role": "user",
                "parts": [
                    {"function_response": {"name": "look", "response": {"output": "one"}}},
                    {"function_response": {"name": "look", "response": {"error": "two"}}},
                    {"text": "and?"},
                ],
            },
        ]
    )
    assert user.parts == (Text("go"), Image("image/png", "/+8="))
    assert [call.id for call in model.calls()] == ["call_1", "call_2"]
    assert [*tool.results()] == [
        ToolResult("call_1", (Text("one"),), "look"),
        ToolResult("call_2", (Text("two"),), "look", is_error=True),
    ]
    assert (rest.role, rest.parts) == ("user", (Text("and?"),))


def test_gemini_responses_with_other_fields_keep_their_json() -> None:
    (tool,) = gemini.messages(
        [{"role": "tool", "parts": [{"functionResponse": {"id": "7", "name": "f", "response": {"a": 1, "b": 2}}}]}]
    )
    assert tool.parts == (ToolResult("7", (Text('{"a":1,"b":2}'),), "f"),)
    (model,) = gemini.messages([{"role": "model", "parts": [{"executableCode": {"code": "1+1"}}]}])
    assert model.parts == (Unknown("executable_code", '{"executable_code":{"code":"1+1"}}'),)


@pytest.mark.parametrize(
    "item",
    [7, None, "x", {}, {"role": "wizard", "content": "x", "parts": []}, {"role": 3}, {"role": "user", "parts": 1}],
)
def test_invalid_item_is_rejected_with_its_index(item: Any) -> None:
    goods: list[Any] = [{"role": "user", "content": "x"}, {"role": "user", "content": "x"}, {"parts": []}]
    for reader, good in zip(READERS, goods, strict=True):
        if reader is gemini or item != {"role": "user", "parts": 1}:
            with pytest.raises(BadReply, match="message 1: no"):
                reader.messages([good, item])


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.binary(max_size=3))
NAMES = st.sampled_from(
    [
        "role",
        "content",
        "parts",
        "type",
        "text",
        "id",
        "name",
        "input",
        "tool_calls",
        "function",
        "arguments",
        "source",
        "tool_use_id",
        "function_call",
        "functionResponse",
        "response",
        "thought",
        "inline_data",
        "data",
        "image_url",
    ]
)
WORDS = st.sampled_from(["user", "assistant", "model", "tool", "text", "tool_use", "tool_result", "image", "thinking"])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(VALUES, max_size=4), VALUES)
def test_any_json_gives_messages_or_bad_reply(items: list[Any], body: Any) -> None:
    for reader in READERS:
        try:
            found = reader.messages(items)
        except BadReply as error:
            assert str(error)
        else:
            assert len(found) >= len(items)
        assert isinstance(reader.is_reply(body), bool)
        if reader.is_reply(body):
            try:
                reader.reply(body)
            except BadReply as error:
                assert str(error)
