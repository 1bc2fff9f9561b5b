"""The judge of Anthropic bodies takes the good body and refuses each way of breaking it, and says why."""

from __future__ import annotations

import pytest

from support.bodies import Edit, anthropic_body, both, drop, edited, insert, put
from support.validity import check_anthropic

USER = {"role": "user", "content": "Hm?"}
TEXT = {"type": "text", "text": "First."}
MARK = {"type": "ephemeral"}
LONG_MARK = {"type": "ephemeral", "ttl": "1h"}
THOUGHT = ("messages", 1, "content", 0)
REDACTED = ("messages", 1, "content", 1)
CALL = ("messages", 1, "content", 3)
RESULT = ("messages", 2, "content", 0)
FAILED = ("messages", 2, "content", 1)
ORPHAN = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "late"}

BROKEN: dict[str, tuple[Edit, str]] = {
    "max_tokens is missing": (drop("max_tokens"), "max_tokens: Field required"),
    "max_tokens is zero": (put(0, "max_tokens"), "max_tokens: must be at least 1"),
    "max_tokens is true": (put(True, "max_tokens"), "max_tokens: Input should be a valid integer"),
    "model is missing": (drop("model"), "model: Field required"),
    "messages is empty": (put([], "messages"), "messages: is empty"),
    "a body key is unknown": (put(1, "max_completion_tokens"), "max_completion_tokens: Extra inputs"),
    "a message key is unknown": (put("bob", "messages", 3, "name"), "name: Extra inputs"),
    "a block is of an unknown kind": (put("txt", "messages", 1, "content", 2, "type"), "Input tag 'txt'"),
    "a text deep in a tool result is a number": (
        put(5, *RESULT, "content", 0, "text"),
        "list.0.text.text: Input should",
    ),
    "a key deep in a tool result is unknown": (put(1, *RESULT, "content", 0, "lang"), "lang: Extra inputs"),
    "a media type is unknown": (
        put("image/bmp", "messages", 0, "content", 1, "source", "media_type"),
        "media_type: Input",
    ),
    "a call's input is a text": (put("{}", *CALL, "input"), "input: Input should be a valid dict"),
    "a call's input is a list": (put([], *CALL, "input"), "input: Input should be a valid dict"),
    "a tool key is unknown": (put({}, "tools", 0, "parameters"), "tools.0.ToolParam.parameters: Extra inputs"),
    "the assistant speaks first": (drop("messages", 0), "the first message must be a user's"),
    "the assistant speaks last": (drop("messages", 4), "the last message must be a user's"),
    "two assistant messages follow each other": (
        insert({"role": "assistant", "content": "Hm."}, "messages", 1),
        "messages[2]: roles must alternate",
    ),
    "a system message stands in messages": (put("system", "messages", 4, "role"), "a system message inside messages"),
    "a user's text is empty": (put("", "messages", 4, "content"), "messages[4]: content: is empty"),
    "a user's text is blank": (put(" \n", "messages", 4, "content"), "messages[4]: content: blank text"),
    "a user's content has no blocks": (put([], "messages", 4, "content"), "messages[4]: content: is empty"),
    "a text block is empty": (put("", "messages", 1, "content", 2, "text"), "content[2]: empty text block"),
    "a text block is blank": (put("\n\n", "messages", 1, "content", 2, "text"), "content[2]: blank text block"),
    "a tool result's text block is empty": (put("", *RESULT, "content", 0, "text"), "content[0]: empty text block"),
    "a system text is blank": (put(" ", "system", 0, "text"), "system[0]: blank text block"),
    "the system is an empty text": (put("", "system"), "system: is empty"),
    "a cache mark is on an empty text": (put("", "messages", 2, "content", 2, "text"), "content[2]: empty text block"),
    "a cache mark is on thinking": (put(MARK, *THOUGHT, "cache_control"), "cache_control: Extra inputs"),
    "a tool_use is not answered": (drop(*RESULT), "messages[2]: no tool_result for tool_use 'toolu_1'"),
    "an answer comes one message late": (
        both(insert(USER, "messages", 2), insert({"role": "assistant", "content": "Hm."}, "messages", 3)),
        "messages[2]: no tool_result for tool_use 'toolu_1'",
    ),
    "text comes before the results": (insert(TEXT, "messages", 2, "content", 0), "tool_result blocks must come first"),
    "a tool_result answers nothing": (insert(ORPHAN, *RESULT), "orphan tool_result 'toolu_9'"),
    "a tool_use is answered twice": (put("toolu_2", *RESULT, "tool_use_id"), "two results for tool_use 'toolu_2'"),
    "two calls share an id": (put("toolu_2", *CALL, "id"), "duplicate tool_use id 'toolu_2'"),
    "an id has a dot": (put("toolu.1", *CALL, "id"), "id 'toolu.1' does not match"),
    "a result's id has a colon": (put("toolu:1", *RESULT, "tool_use_id"), "tool_use_id 'toolu:1' does not match"),
    "a called tool's name has a space": (put("my tool", *CALL, "name"), "name 'my tool' does not match"),
    "thinking comes after text": (insert(TEXT, *THOUGHT), "thinking blocks must come first"),
    "thinking has no signature": (put("", *THOUGHT, "signature"), "thinking without a signature"),
    "thinking lacks the signature key": (drop(*THOUGHT, "signature"), "signature: Field required"),
    "redacted thinking has no data": (put("", *REDACTED, "data"), "redacted_thinking without data"),
    "an assistant message ends with thinking": (
        drop("messages", 1, "content", slice(2, None)),
        "must not end with thinking",
    ),
    "a user thinks": (
        insert({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, *RESULT),
        "thinking block in a user message",
    ),
    "a user calls a tool": (
        insert({"type": "tool_use", "id": "toolu_7", "name": "weather", "input": {}}, "messages", 2, "content", 2),
        "tool_use block in a user message",
    ),
    "an assistant answers a tool": (insert(ORPHAN, *THOUGHT), "tool_result block in an assistant message"),
    "an assistant shows an image": (
        insert({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}, *CALL),
        "image block in an assistant message",
    ),
    "an image is no base64": (put("iVBO*", "messages", 0, "content", 1, "source", "data"), "image data is not base64"),
    "an image has no data": (put("", "messages", 0, "content", 1, "source", "data"), "image data is not base64"),
    "an image in a tool result is no base64": (
        put("!", *RESULT, "content", 1, "source", "data"),
        "image data is not base64",
    ),
    "an image's address is a path": (
        put({"type": "url", "url": "/tmp/a.png"}, "messages", 0, "content", 1, "source"),
        "image url is not http(s)",
    ),
    "a failed result is empty": (put("", *FAILED, "content"), "tool_result with is_error needs content"),
    "a failed result has no content": (drop(*FAILED, "content"), "tool_result with is_error needs content"),
    "a failed result has an image": (put(True, *RESULT, "is_error"), "tool_result with is_error takes text only"),
    "there are five cache marks": (
        both(put(MARK, *FAILED, "cache_control"), put(MARK, "cache_control")),
        "5 cache_control marks; at most 4",
    ),
    "the fifth cache mark is inside a tool result": (
        both(put(MARK, *FAILED, "cache_control"), put(MARK, *RESULT, "content", 0, "cache_control")),
        "5 cache_control marks; at most 4",
    ),
    "a long mark comes after a short one": (put(MARK, "tools", 0, "cache_control"), "a 1h mark comes after a 5m mark"),
    "a mark's lifetime is unknown": (
        put({"type": "ephemeral", "ttl": "2h"}, "system", 0, "cache_control"),
        "ttl: Input",
    ),
    "a declared name has a dot": (put("a.b", "tools", 0, "name"), "tools: name 'a.b' does not match"),
    "a declared schema is no object": (put("string", "tools", 0, "input_schema", "type"), "must be of type object"),
    "a declared schema has no type": (drop("tools", 0, "input_schema", "type"), "must be of type object"),
}


@pytest.mark.parametrize(("edit", "problem"), BROKEN.values(), ids=BROKEN.keys())
def test_an_anthropic_body_is_refused_when(edit: Edit, problem: str) -> None:
    found = check_anthropic(edited(anthropic_body(), edit))
    assert any(problem in one for one in found), found


def test_anthropic_check_rejects_reused_tool_use_id() -> None:
    body = anthropic_body()
    body["messages"] += [body["messages"][1], body["messages"][2]]
    del body["messages"][6]["content"][2]["cache_control"]
    assert check_anthropic(body) == [
        "messages[5]: duplicate tool_use id 'toolu_1'",
        "messages[5]: duplicate tool_use id 'toolu_2'",
    ]


def test_two_anthropic_tools_of_one_name_are_refused() -> None:
    body = anthropic_body()
    body["tools"].append({"name": "weather", "input_schema": {"type": "object"}})
    assert check_anthropic(body) == ["tools: 'weather' is declared twice"]


@pytest.mark.parametrize(
    "edit",
    [
        put("You are brief.", "system"),
        both(drop("system"), drop("tools")),
        put("", *RESULT, "content"),
        put([], *RESULT, "content"),
        drop(*RESULT, "content"),
        drop("messages", slice(3, None)),
        insert(USER, "messages", 0),
        put("", *THOUGHT, "thinking"),
        put(None, "messages", 2, "content", 2, "cache_control"),
        put(LONG_MARK, *FAILED, "cache_control"),
        put({"type": "enabled", "budget_tokens": 1024}, "thinking"),
        put({"type": "object", "additionalProperties": False, "$defs": {}}, "tools", 0, "input_schema"),
    ],
    ids=[
        "the system is a text",
        "there is no system and no tool",
        "a tool returned an empty text",
        "a tool returned an empty list",
        "a tool returned nothing",
        "results stand last",
        "two user messages follow each other",
        "signed thinking shows no text",
        "a cache mark is null",
        "there are four marks, long ones first",
        "thinking is switched on",
        "a schema has keys of its own",
    ],
)
def test_an_anthropic_body_is_taken_when(edit: Edit) -> None:
    assert check_anthropic(edited(anthropic_body(), edit)) == []
