"""Reading responses of OpenAI's Responses API: every item in its place, reasoning whole, and why a response ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

import nexus
from nexus.errors import BadReply
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.replies import read_reply
from nexus.types.message import Text, Thinking, ToolCall, Unknown
from nexus.types.request import TokenUsage
from support.validity import check_responses

REASONING: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "gAAAAAB",
}
SAID: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [
        {
            "type": "output_text",
            "text": "Let me look.",
            "annotations": [{"file_id": "f", "index": 0, "type": "file_path"}],
        }
    ],
}
CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "look",
    "arguments": '{"a": 1}',
    "status": "completed",
}
SEARCH: dict[str, Any] = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "status": "completed",
        "model": "gpt-5-2025-08-07",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 120,
        },
        **fields,
    }


def test_response_becomes_one_message_with_all_items() -> None:
    result = read_reply(Response.model_validate(response(REASONING, SAID, CALL, SEARCH)))
    (message,) = result.messages
    thinking, text, call, search = message.parts
    assert isinstance(thinking, Thinking) and thinking.text == "First.\n\nThen."
    assert json.loads(thinking.signature) == REASONING
    assert (text, call) == (Text("Let me look."), ToolCall("c1", "look", '{"a": 1}'))
    assert isinstance(search, Unknown) and json.loads(search.raw) == SEARCH
    assert (message.role, message.id, message.model) == ("assistant", "resp_1", "gpt-5-2025-08-07")
    assert (result.stop_reason, result.error, result.usage) == ("tool_use", None, TokenUsage(100, 20, 64, 8, 5))
    meta = json.loads(message.meta)
    assert meta["phases"] == ["commentary"]
    assert meta["items"]["2"] == {"id": "fc_1"}
    assert meta["items"]["1"] == {
        "id": "msg_1",
        "content": [{"annotations": [{"file_id": "f", "index": 0, "type": "file_path"}]}],
    }


def test_response_object_and_dict_read_equally() -> None:
    body = response(REASONING, SAID, CALL)
    assert read_reply(body) == read_reply(Response.model_validate(body))


def test_read_response_is_sent_back_unchanged() -> None:
    with nexus.open(ledger=":memory:", model="gpt-5") as nx:
        nx.record(nx.assemble("Where?"), Response.model_validate(response(REASONING, SAID, CALL)))
        body = nx.assemble([nexus.tool("c1", "here", "look")]).to_responses()
    assert check_responses(body) == []
    own, said, called = body["input"][1:4]
    assert own == REASONING
    assert said == {"role": "assistant", "content": "Let me look.", "phase": "commentary"}
    assert called == {name: CALL[name] for name in ("type", "call_id", "name", "arguments")}


def test_visible_reasoning_becomes_thinking_text() -> None:
    open_item = {**REASONING, "content": [{"type": "reasoning_text", "text": "I think."}], "encrypted_content": None}
    (message,) = openai_responses.reply(response(open_item)).messages
    (thinking,) = message.parts
    assert isinstance(thinking, Thinking) and thinking.text == "I think."
    assert "encrypted_content" not in json.loads(thinking.signature)


def test_refusals_and_custom_calls_are_read() -> None:
    refused = {**SAID, "content": [{"type": "refusal", "refusal": "No."}], "phase": None}
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "SELECT 1"}
    (message,) = openai_responses.reply(response(refused, custom)).messages
    assert message.parts == (Text("No."), ToolCall("c2", "sql", "SELECT 1"))
    meta = json.loads(message.meta)
    assert (meta["refusal"], meta["custom_calls"]) == (True, ["c2"])
    assert "phases" not in meta


def test_stop_reason_is_from_status_or_incomplete_reason() -> None:
    cut = response(SAID, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert read_reply(Response.model_validate(cut)).stop_reason == "max_tokens"
    assert read_reply(Response.model_validate(cut)).provider_stop_reason == "max_output_tokens"
    failed = response(status="failed", error={"code": "server_error", "message": "It broke."})
    result = read_reply(Response.model_validate(failed))
    assert (result.messages, result.stop_reason, result.error) == ((), "error", "It broke.")
    assert openai_responses.reply(response(status="cancelled")).error == "cancelled"


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_unfinished_response_is_rejected(status: str) -> None:
    with pytest.raises(BadReply, match=status):
        read_reply(response(status=status))


def test_response_is_recognized_only_by_its_own_reader() -> None:
    body = response(SAID)
    assert [reader.is_reply(body) for reader in (openai_responses, openai, anthropic, gemini)] == [
        True, False, False, False,
    ]  # fmt: skip
    others: list[Any] = [{}, [], None, {"object": "response"}, {"object": "response.compaction", "output": []}]
    assert not any(openai_responses.is_reply(other) for other in others)
    with pytest.raises(BadReply):
        openai_responses.reply({"output": []})


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4))
NAMES = st.sampled_from(
    ["type", "content", "text", "refusal", "summary", "call_id", "name", "arguments", "input", "phase", "id"]
)
KINDS = st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "output_text", "refusal", "x"])
VALUES = st.recursive(
    SCALARS | KINDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=9
)


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, max_size=4), VALUES)
def test_any_output_items_are_read(output: list[Any], more: Any) -> None:
    result = openai_responses.reply({"object": "response", "output": output, "usage": more, "error": more})
    assert len(result.messages) == bool(output)
