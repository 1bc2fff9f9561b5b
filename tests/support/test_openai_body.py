"""The judge of OpenAI bodies takes the good body and refuses each way of breaking it, and says why."""

from __future__ import annotations

import pytest

from support.bodies import Edit, both, drop, edited, insert, openai_body, put
from support.validity import check_openai

USER = {"role": "user", "content": "Hm?"}
TOOL = {"role": "tool", "tool_call_id": "call_9", "content": "late"}
CALL = ("messages", 2, "tool_calls", 0)

BROKEN: dict[str, tuple[Edit, str]] = {
    "model is missing": (drop("model"), "model: Field required"),
    "messages is no list": (put("hello", "messages"), "messages: must be a list"),
    "messages is empty": (put([], "messages"), "messages: is empty"),
    "a body key is unknown": (put(1, "max_token"), "max_token: Extra inputs"),
    "a parameter has the wrong type": (put("0.5", "temperature"), "temperature: Input should be a valid number"),
    "a role is unknown": (put("human", "messages", 5, "role"), "Input tag 'human'"),
    "a message key is unknown": (put([], "messages", 5, "images"), "images: Extra inputs"),
    "content is a number": (put(5, "messages", 5, "content"), "Input should be a valid string"),
    "a text deep in a content list is a number": (
        put(5, "messages", 1, "content", 0, "text"),
        "0.text.text: Input should",
    ),
    "a key deep in a content list is unknown": (
        put(1, "messages", 1, "content", 1, "image_url", "mime"),
        "mime: Extra",
    ),
    "a part is of an unknown kind": (put("image", "messages", 1, "content", 1, "type"), "Input tag 'image'"),
    "a tool message's part is an image": (put("image_url", "messages", 4, "content", 0, "type"), "should be 'text'"),
    "a call's arguments are an object": (
        put({}, *CALL, "function", "arguments"),
        "arguments: Input should be a valid str",
    ),
    "a call has no type": (drop(*CALL, "type"), "Unable to extract tag"),
    "a tool message has no call id": (drop("messages", 3, "tool_call_id"), "tool_call_id: Field required"),
    "a user's content is empty": (put("", "messages", 6, "content"), "messages[6]: content: is empty"),
    "a user's content has no parts": (put([], "messages", 6, "content"), "messages[6]: content: is empty"),
    "a text part is empty": (put("", "messages", 1, "content", 0, "text"), "content[0]: empty text"),
    "the system's content is empty": (put("", "messages", 0, "content"), "messages[0]: content: is empty"),
    "an assistant says and calls nothing": (put(None, "messages", 5, "content"), "neither content nor tool_calls"),
    "tool_calls is an empty list": (put([], "messages", 5, "tool_calls"), "tool_calls: is an empty list"),
    "an image is no base64": (
        put("data:image/png;base64,iVBO*", "messages", 1, "content", 1, "image_url", "url"),
        "image data is not base64",
    ),
    "an image is a path": (put("/tmp/a.png", "messages", 1, "content", 1, "image_url", "url"), "neither http(s) nor"),
    "arguments are cut JSON": (put('{"city":', *CALL, "function", "arguments"), "not the JSON text of an object"),
    "arguments are a JSON list": (put("[]", *CALL, "function", "arguments"), "not the JSON text of an object"),
    "arguments hold NaN": (put('{"a":NaN}', *CALL, "function", "arguments"), "not the JSON text of an object"),
    "arguments are nested too deep": (
        put('{"a":' * 200_000 + "1" + "}" * 200_000, *CALL, "function", "arguments"),
        "not the JSON text of an object",
    ),
    "a called function's name has a space": (
        put("my tool", *CALL, "function", "name"),
        "name 'my tool' does not match",
    ),
    "a called function's name is too long": (put("a" * 65, *CALL, "function", "name"), "does not match"),
    "a call id is empty": (put("", *CALL, "id"), "id of 0 characters"),
    "a call id is too long": (put("c" * 41, *CALL, "id"), "id of 41 characters"),
    "a call is not answered": (drop("messages", 4), "comes before tool messages answer calls ['call_1']"),
    "the last calls are not answered": (drop("messages", slice(4, None)), "the end comes before tool messages"),
    "a user speaks between call and result": (insert(USER, "messages", 4), "user comes before tool messages"),
    "a tool message answers nothing": (insert(TOOL, "messages", 4), "no open call 'call_9'"),
    "a call is answered twice": (put("call_2", "messages", 4, "tool_call_id"), "no open call 'call_2'"),
    "a result comes long after its call": (insert(TOOL, "messages", 6), "messages[6]: orphan tool message"),
    "two calls of a message share an id": (put("call_2", *CALL, "id"), "duplicate call id 'call_2'"),
    "a speaker's name has a space": (put("Ada L", "messages", 6, "name"), "name 'Ada L' does not match"),
    "a refusal is empty": (put([{"type": "refusal", "refusal": ""}], "messages", 5, "content"), "empty refusal"),
    "a system message comes before a result": (
        insert({"role": "system", "content": "Be quick."}, "messages", 3),
        "system comes before tool messages answer calls",
    ),
    "the assistant speaks first": (drop("messages", 1), "must be a user's, is assistant"),
    "nobody but the system speaks": (drop("messages", slice(1, None)), "there is no user message"),
    "the assistant speaks last": (drop("messages", 6), "the last message must be a user's or a tool's"),
    "the deprecated function role is used": (
        put({"role": "function", "name": "f", "content": "x"}, "messages", 6),
        "role function is replaced by tool",
    ),
    "the deprecated function_call is used": (
        put({"name": "f", "arguments": "{}"}, "messages", 5, "function_call"),
        "function_call is replaced by tool_calls",
    ),
    "a declared name has a dot": (put("a.b", "tools", 0, "function", "name"), "tools: name 'a.b' does not match"),
    "a declared schema is no object": (
        put("array", "tools", 0, "function", "parameters", "type"),
        "must be of type object",
    ),
    "the list of tools is empty": (put([], "tools"), "tools: is an empty list"),
}


@pytest.mark.parametrize(("edit", "problem"), BROKEN.values(), ids=BROKEN.keys())
def test_an_openai_body_is_refused_when(edit: Edit, problem: str) -> None:
    found = check_openai(edited(openai_body(), edit))
    assert any(problem in one for one in found), found


def test_openai_check_rejects_reused_call_id() -> None:
    body = openai_body()
    body["messages"] += [body["messages"][2], body["messages"][3], body["messages"][4]]
    assert check_openai(body) == [
        "messages[7]: duplicate call id 'call_1'",
        "messages[7]: duplicate call id 'call_2'",
    ]


def test_two_openai_tools_of_one_name_are_refused() -> None:
    body = openai_body()
    body["tools"] *= 2
    assert check_openai(body) == ["tools: 'weather' is declared twice"]


@pytest.mark.parametrize(
    "edit",
    [
        put("developer", "messages", 0, "role"),
        put("Ada", "messages", 6, "name"),
        insert({"role": "system", "content": "Another."}, "messages", 1),
        put("system", "messages", 6, "role"),
        put("developer", "messages", 6, "role"),
        drop("messages", 0),
        drop("messages", slice(5, None)),
        put(None, "messages", 2, "content"),
        put("", "messages", 2, "content"),
        drop("messages", 2, "content"),
        put("https://example.org/a.png", "messages", 1, "content", 1, "image_url", "url"),
        insert(USER, "messages", 6),
        both(drop("tools"), put(0, "temperature")),
    ],
    ids=[
        "a developer message is the system's",
        "a user's message names its speaker",
        "there are two system messages",
        "a system message comes last",
        "a developer message comes last",
        "there is no system message",
        "tool messages stand last",
        "an assistant that calls has null content",
        "an assistant that calls has empty content",
        "an assistant that calls has no content",
        "an image is a web address",
        "two user messages follow each other",
        "a whole number stands for a float and no tools are declared",
    ],
)
def test_an_openai_body_is_taken_when(edit: Edit) -> None:
    assert check_openai(edited(openai_body(), edit)) == []
