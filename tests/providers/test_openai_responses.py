"""The Responses form: items as the API documents them, nothing left to the server, reasoning only where it may go back."""

from __future__ import annotations

import json
from typing import Any

import nexus
from nexus.engine import Engine
from nexus.providers.openai_responses import cache_key
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from support.hostile import PIXEL
from support.recount import recount
from support.replay import append
from support.validity import check_responses

PICTURE = Image("image/png", PIXEL, width=1, height=1)
SEALED = (
    '{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"c2VhbGVk"}'
)
TOOLS = [{"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}]


def opened() -> Engine:
    return nexus.open(ledger=":memory:", clock_ms=lambda: 1_760_000_000_000)


def body(*history: Message, model: str = "gpt-5", **asked: Any) -> dict[str, Any]:
    with opened() as nx:
        append(nx, "s", *history)
        made = nx.assemble("x", session="s", model=model, profile="bare", **asked).to_responses()
    assert check_responses(made) == []
    return made


def items(*history: Message, model: str = "gpt-5") -> list[dict[str, Any]]:
    return body(*history, model=model)["input"][:-1]


def test_conversation_becomes_items_in_order() -> None:
    result = ToolResult("b", (Text("one"), Text("two"), PICTURE, Text("three")), "look")
    with opened() as nx:
        append(nx, "s", Message("system", (Text("Be brief."),)))
        append(nx, "s", Message("user", (Text("see"), PICTURE)))
        call, other = ToolCall("a", "look", '{"n": 1}'), ToolCall("b", "look", "{}")
        append(nx, "s", Message("assistant", (Thinking("hm", SEALED), Text("I look."), call, other), model="gpt-5"))
        append(nx, "s", Message("tool", (ToolResult("a", (Text("fine"),), "look"), result)), assistant("Done."))
        made = nx.assemble("And?", session="s", model="gpt-5", tools=TOOLS, profile="bare").to_responses()
    assert check_responses(made) == []
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    assert list(made) == [
        "model", "store", "prompt_cache_key", "include", "instructions", "tools", "input",
    ]  # fmt: skip
    assert made["instructions"].endswith("Be brief.")
    schema = {"properties": {}, "type": "object"}
    assert made["tools"] == [
        {"type": "function", "name": "look", "description": "Looks.", "parameters": schema, "strict": False}
    ]
    assert made["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "see"}, picture]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "c2VhbGVk",
        },
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"n": 1}'},
        {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "fine"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [
                {"type": "input_text", "text": "one\ntwo"},
                picture,
                {"type": "input_text", "text": "three"},
            ],
        },
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And?"},
    ]


def test_reasoning_is_returned_only_encrypted_to_its_own_model() -> None:
    def sent(part: Thinking, *more: Thinking, model: str = "gpt-5-2025-08-07") -> list[str]:
        said = Message("assistant", (part, Text("so"), *more), model=model)
        return [item.get("type", "message") for item in items(user("hi"), said)][1:]

    bare = '{"type":"reasoning","id":"rs_1","summary":[]}'
    without_id = '{"type":"reasoning","summary":[],"encrypted_content":"c2VhbGVk"}'
    assert sent(Thinking("hm", SEALED)) == ["reasoning", "message"]
    assert sent(Thinking("hm", SEALED), model="gpt-4.1") == ["message"]
    assert sent(Thinking("hm", SEALED), model="") == ["message"]
    assert sent(Thinking("hm", bare)) == sent(Thinking("hm", without_id)) == ["message"]
    assert sent(Thinking("hm", "c2lnbmVk")) == sent(Thinking("", redacted="b3BhcXVl")) == ["message"]
    assert sent(Thinking("hm", SEALED[:-3])) == ["message"]
    assert sent(Thinking("hm"), Thinking("hm", SEALED)) == ["message"]


def test_reasoning_is_not_sent_to_another_model_in_same_window() -> None:
    with opened() as nx:
        append(nx, "s", user("hi"), Message("assistant", (Thinking("hm", SEALED), Text("so")), model="gpt-5"))
        for model, sent in (("gpt-5", 1), ("gpt-5.1", 0), ("gpt-5", 1)):
            made = nx.assemble("x", session="s", model=model, budget=8_000).to_responses()
            assert json.dumps(made).count("c2VhbGVk") == sent


def test_phases_are_returned_only_for_unchanged_texts() -> None:
    meta = '{"phases":["commentary","final_answer"]}'
    two = Message("assistant", (Text("I look."), Text("Found.")), meta=meta)
    one = Message("assistant", (Text("I look."),), meta=meta)
    assert [item.get("phase") for item in items(user("hi"), two)[1:]] == ["commentary", "final_answer"]
    assert [item.get("phase") for item in items(user("hi"), one)[1:]] == [None]


def test_chat_completion_settings_are_translated() -> None:
    asked = {
        "max_completion_tokens": 500,
        "reasoning": {"summary": "auto"},
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "temperature": 1,
        "include": [],
        "prompt_cache_key": "mine",
    }
    made = body(model_config=asked, tools=TOOLS)
    assert made["max_output_tokens"] == 500
    assert made["reasoning"] == {"summary": "auto", "effort": "low"}
    shape = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    assert made["text"] == {"verbosity": "low", "format": shape}
    assert made["tool_choice"] == {"type": "function", "name": "look"}
    assert (made["temperature"], made["include"], made["prompt_cache_key"]) == (1, [], "mine")


def test_allowed_tools_are_flattened() -> None:
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]}
    made = body(model_config={"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}, tools=TOOLS)
    assert made["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "look"}],
    }


def test_encrypted_reasoning_is_requested_only_from_reasoning_models() -> None:
    assert body(model="gpt-5")["include"] == ["reasoning.encrypted_content"]
    assert "include" not in body(model="gpt-4o")


def test_cache_key_is_opaque_per_session() -> None:
    assert cache_key("main") == cache_key("main") != cache_key("other")
    assert len(cache_key("Ünsägliches \ud800")) == 16
    assert body()["prompt_cache_key"] == cache_key("s")


def test_next_body_extends_previous_one() -> None:
    before = ""
    with opened() as nx:
        event: Any = "go"
        for number in range(6):
            ctx = nx.assemble(event, session="s", model="gpt-5", tools=TOOLS)
            sent = json.dumps(ctx.to_responses(), ensure_ascii=False)
            assert sent.startswith(before)
            assert recount(ctx.to_responses()) <= ctx.token_budget.used.total
            before = sent.removesuffix("]}")
            parts = (Thinking("hm", SEALED), Text("I look."), ToolCall(f"c{number}", "look", "{}"))
            nx.record(ctx, nexus.AgentResult((Message("assistant", parts),), model="gpt-5"))
            event = [nexus.tool(f"c{number}", "seen", "look")] if number % 2 else f"question {number}"


def test_result_image_without_data_becomes_note() -> None:
    result = Message("tool", (ToolResult("a", (Text("shot"), Image("image/png"))),))
    sent = items(user("hi"), assistant("", ToolCall("a", "look", "{}")), result)
    assert sent[-1]["output"].startswith("shot\n[image left out here")
