"""The judge of Responses bodies takes the good body and refuses each way of breaking it, and says why."""

from __future__ import annotations

import pytest

from support.bodies import Edit, both, drop, edited, insert, put, responses_body
from support.validity import Json, check_responses

USER = {"role": "user", "content": "Hm?"}
SAID = {"role": "assistant", "content": "Hm."}
OUTPUT = {"type": "function_call_output", "call_id": "call_9", "output": "late"}
CALL = {"type": "function_call", "call_id": "call_3", "name": "weather", "arguments": "{}"}
OWN: Json = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Twelve degrees.", "annotations": []}],
}

BROKEN: dict[str, tuple[Edit, str]] = {
    "model is missing": (drop("model"), "model: is missing"),
    "input is a text": (put("hello", "input"), "input: must be a list"),
    "input is empty": (put([], "input"), "input: is empty"),
    "a body key is unknown": (put([], "messages"), "messages: Extra inputs"),
    "a setting has chat's name": (put(5, "max_completion_tokens"), "max_completion_tokens: Extra inputs"),
    "a setting has the wrong type": (put("low", "reasoning"), "reasoning: Input should be a valid dictionary"),
    "the server would store it": (put(True, "store"), "store: must be false"),
    "nothing is said of storing": (drop("store"), "store: must be false"),
    "it goes on from a stored response": (put("resp_1", "previous_response_id"), "names what the server keeps"),
    "it belongs to a stored conversation": (put("conv_1", "conversation"), "names what the server keeps"),
    "the cache key is too long": (put("k" * 65, "prompt_cache_key"), "prompt_cache_key: more than 64"),
    "the instructions are empty": (put("", "instructions"), "instructions: is empty"),
    "an item refers to a stored one": (
        put({"type": "item_reference", "id": "msg_1"}, "input", 7),
        "type 'item_reference' is none of",
    ),
    "an item is of an unknown type": (put({"type": "function", "name": "f"}, "input", 7), "type 'function' is none"),
    "a role is unknown": (put("human", "input", 8, "role"), "role: Input should be 'user'"),
    "a role is chat's": (put("tool", "input", 8, "role"), "role: Input should be 'user'"),
    "a message has tool calls": (put([], "input", 7, "tool_calls"), "tool_calls: Extra inputs"),
    "content is a number": (put(5, "input", 8, "content"), "Input should be a valid string"),
    "a part has chat's type": (put("text", "input", 0, "content", 0, "type"), "Input tag 'text'"),
    "a user's part is an output": (put("output_text", "input", 0, "content", 0, "type"), "Input tag 'output_text'"),
    "an image has no detail": (drop("input", 0, "content", 1, "detail"), "detail: Field required"),
    "an image is an object": (put({"url": "x"}, "input", 0, "content", 1, "image_url"), "should be a valid string"),
    "an image is no base64": (
        put("data:image/png;base64,iVBO*", "input", 0, "content", 1, "image_url"),
        "image data is not base64",
    ),
    "an image is a path": (put("/tmp/a.png", "input", 0, "content", 1, "image_url"), "neither http(s) nor"),
    "an image is a stored file": (put("file_1", "input", 0, "content", 1, "file_id"), "that the server keeps"),
    "an image in an output is empty": (
        put("", "input", 6, "output", 1, "image_url"),
        "input[6]: output[1]: image_url is neither",
    ),
    "an output's part is of an unknown kind": (put("text", "input", 6, "output", 0, "type"), "Input tag 'text'"),
    "an output has no text and no part": (put([], "input", 6, "output"), "output: is empty"),
    "a text part is empty": (put("", "input", 0, "content", 0, "text"), "content[0]: empty text"),
    "a user's content is empty": (put("", "input", 8, "content"), "input[8]: content: is empty"),
    "a user's content has no parts": (put([], "input", 8, "content"), "input[8]: content: is empty"),
    "an assistant says nothing": (put("", "input", 7, "content"), "input[7]: content: is empty"),
    "an own message has no status": (put({k: v for k, v in OWN.items() if k != "status"}, "input", 7), "status: Field"),
    "a phase is unknown": (put("thinking", "input", 2, "phase"), "phase: Input should be 'commentary'"),
    "a call has chat's id": (both(drop("input", 3, "call_id"), put("c", "input", 3, "id")), "call_id: Field required"),
    "arguments are an object": (put({}, "input", 3, "arguments"), "arguments: Input should be a valid str"),
    "arguments are cut JSON": (put('{"city":', "input", 3, "arguments"), "not the JSON text of an object"),
    "arguments are a JSON list": (put("[]", "input", 3, "arguments"), "not the JSON text of an object"),
    "a name has a dot": (put("a.b", "input", 3, "name"), "name 'a.b' does not match"),
    "a call id is empty": (put("", "input", 3, "call_id"), "call_id of 0 characters"),
    "a call id is too long": (put("c" * 65, "input", 3, "call_id"), "call_id of 65 characters"),
    "a call id is used again": (put("call_1", "input", 4, "call_id"), "duplicate call_id 'call_1'"),
    "a call is not answered": (drop("input", 6), "assistant comes before outputs answer calls ['call_1']"),
    "the last call is not answered": (insert(CALL, "input", 9), "the last item must be a user's or an output"),
    "a call is open at the end": (both(insert(CALL, "input", 8), drop("input", 9)), "answer calls ['call_3']"),
    "a user speaks between call and output": (insert(USER, "input", 5), "user comes before outputs answer calls"),
    "a user speaks between outputs": (insert(USER, "input", 6), "user comes before outputs answer calls ['call_1']"),
    "the assistant speaks between outputs": (insert(SAID, "input", 6), "assistant comes before outputs"),
    "an output answers nothing": (insert(OUTPUT, "input", 5), "no open call 'call_9'"),
    "an output names no call": (drop("input", 5, "call_id"), "no open call ''"),
    "a call is answered twice": (put("call_2", "input", 6, "call_id"), "no open call 'call_2'"),
    "an output comes long after its call": (insert(OUTPUT, "input", 8), "input[8]: orphan output"),
    "reasoning has no encrypted content": (drop("input", 1, "encrypted_content"), "without its encrypted_content"),
    "reasoning has empty encrypted content": (put("", "input", 1, "encrypted_content"), "without its encrypted"),
    "reasoning has no id": (put("", "input", 1, "id"), "reasoning without an id"),
    "reasoning has no summary": (drop("input", 1, "summary"), "summary: Field required"),
    "what reasoning led to is missing": (
        insert(USER, "input", 2),
        "input[1]: reasoning without the item that it led to",
    ),
    "the assistant speaks first": (drop("input", 0), "the first item must be a user's, is reasoning"),
    "the assistant speaks last": (drop("input", 8), "the last item must be a user's or an output, is assistant"),
    "a tool has chat's form": (
        put({"type": "function", "function": {"name": "f"}}, "tools", 0),
        "tools.0.function.function: Extra inputs",
    ),
    "a tool says nothing of strict": (drop("tools", 0, "strict"), "strict: Field required"),
    "a declared name has a dot": (put("a.b", "tools", 0, "name"), "tools: name 'a.b' does not match"),
    "a declared schema is no object": (put("array", "tools", 0, "parameters", "type"), "must be of type object"),
    "the list of tools is empty": (put([], "tools"), "tools: is an empty list"),
}


@pytest.mark.parametrize(("edit", "problem"), BROKEN.values(), ids=BROKEN.keys())
def test_a_responses_body_is_refused_when(edit: Edit, problem: str) -> None:
    found = check_responses(edited(responses_body(), edit))
    assert any(problem in one for one in found), found


def test_two_responses_tools_of_one_name_are_refused() -> None:
    body = responses_body()
    body["tools"] *= 2
    assert check_responses(body) == ["tools: 'weather' is declared twice"]


@pytest.mark.parametrize(
    "edit",
    [
        put(OWN, "input", 7),
        put("https://example.org/a.png", "input", 0, "content", 1, "image_url"),
        drop("input", slice(7, None)),
        insert(SAID, "input", 4),
        insert(USER, "input", 8),
        drop("input", 1),
        put([], "input", 1, "summary"),
        both(drop("tools"), drop("instructions")),
        both(drop("prompt_cache_key"), put({"effort": "low"}, "reasoning")),
        put("message", "input", 0, "type"),
    ],
    ids=[
        "an assistant's message is the API's own",
        "an image is a web address",
        "outputs stand last",
        "the assistant speaks between its calls",
        "two user messages follow each other",
        "there is no reasoning",
        "reasoning has no summary text",
        "there are no tools and no instructions",
        "there is no cache key",
        "a message says that it is one",
    ],
)
def test_a_responses_body_is_taken_when(edit: Edit) -> None:
    assert check_responses(edited(responses_body(), edit)) == []
