"""The judge of Gemini bodies takes the good body and refuses each way of breaking it, and says why."""

from __future__ import annotations

import pytest

from support.bodies import Edit, both, drop, edited, gemini_body, insert, put
from support.validity import check_gemini

USER = {"role": "user", "parts": [{"text": "Hm?"}]}
CALL = ("contents", 1, "parts", 1, "function_call")
CALL_WITH_ID = ("contents", 1, "parts", 2, "function_call")
ANSWER = ("contents", 2, "parts", 0, "function_response")
ANSWER_WITH_ID = ("contents", 2, "parts", 1, "function_response")
DECLARED = ("config", "tools", 0, "function_declarations", 0)
LATE = {"function_response": {"name": "late", "response": {"output": "x"}}}

BROKEN: dict[str, tuple[Edit, str]] = {
    "model is missing": (drop("model"), "model: must be a non-empty string"),
    "contents is a text": (put("hello", "contents"), "contents: must be a list"),
    "contents is empty": (put([], "contents"), "contents: is empty"),
    "a body key is unknown": (put("x", "system_instruction"), "system_instruction: unknown key"),
    "config is a list": (put([], "config"), "config: must be an object"),
    "a config key is unknown": (put(1, "config", "max_tokens"), "config.max_tokens: Extra inputs"),
    "a config key is in camel case": (
        put("x", "config", "systemInstruction"),
        "config.systemInstruction: Extra inputs",
    ),
    "a config value has the wrong type": (
        put("9", "config", "max_output_tokens"),
        "config.max_output_tokens: Input should",
    ),
    "a content key is unknown": (put("x", "contents", 0, "content"), "content: Extra inputs"),
    "a part key is unknown": (put("text", "contents", 0, "parts", 0, "type"), "parts.0.type: Extra inputs"),
    "a part key is in camel case": (
        put({"functionCall": {"name": "weather"}}, "contents", 1, "parts", 1),
        "functionCall: Extra inputs",
    ),
    "a text deep in a content is a number": (
        put(5, "contents", 0, "parts", 0, "text"),
        "parts.0.text: Input should be",
    ),
    "a name deep in a content is a number": (
        put(5, *CALL, "name"),
        "function_call.name: Input should be a valid string",
    ),
    "a call's arguments are a text": (put("{}", *CALL, "args"), "function_call.args: Input should be"),
    "a response is a text": (put("12 °C", *ANSWER, "response"), "function_response.response: Input should be"),
    "a response is missing": (drop(*ANSWER, "response"), "function_response needs response"),
    "image data is no base64": (put("iVBO*", "contents", 0, "parts", 1, "inline_data", "data"), "valid base64"),
    "image data is empty": (put("", "contents", 0, "parts", 1, "inline_data", "data"), "inline_data needs data"),
    "an image has no media type": (
        drop("contents", 0, "parts", 1, "inline_data", "mime_type"),
        "inline_data needs data",
    ),
    "a file has no address": (put({"file_data": {}}, "contents", 0, "parts", 1), "file_data needs file_uri"),
    "a signature is no base64": (put("s*g", "contents", 1, "parts", 1, "thought_signature"), "valid base64"),
    "a text is empty": (put("", "contents", 4, "parts", 0, "text"), "contents[4]: parts[0]: empty text"),
    "a part is empty": (put({}, "contents", 4, "parts", 0), "exactly one of its kinds of data, this one none"),
    "a part is only a signature": (put({"thought_signature": "c2ln"}, "contents", 4, "parts", 0), "this one none"),
    "a part holds text and a call": (put("x", "contents", 1, "parts", 1, "text"), "exactly one of its kinds of data"),
    "a content has no parts": (put([], "contents", 4, "parts"), "contents[4]: parts: is empty"),
    "a content lacks the parts key": (drop("contents", 4, "parts"), "contents[4]: parts: is empty"),
    "the model speaks first": (drop("contents", 0), "the first content must be the user's"),
    "the model speaks last": (drop("contents", 4), "the last content must be the user's"),
    "two user contents follow each other": (insert(USER, "contents", 0), "contents[1]: roles must alternate"),
    "the system speaks in contents": (put("system", "contents", 4, "role"), "the system stands in config"),
    "a role is OpenAI's": (put("assistant", "contents", 3, "role"), "role must be user or model, is assistant"),
    "a role is missing": (drop("contents", 3, "role"), "role must be user or model, is none"),
    "a call is not answered": (drop("contents", 2, "parts", 1), "no function_response for 'weather.of'"),
    "calls are answered one content late": (
        both(insert(USER, "contents", 2), insert({"role": "model", "parts": [{"text": "Hm."}]}, "contents", 3)),
        "contents[2]: 0 function_response parts for 2 function_call",
    ),
    "the last calls are not answered": (drop("contents", slice(2, None)), "no function_response for 'weather'"),
    "there is one response too many": (insert(LATE, "contents", 2, "parts", 2), "orphan function_response 'late'"),
    "a response answers nothing": (insert(LATE, "contents", 4, "parts", 0), "contents[4]: orphan function_response"),
    "responses stand in another order": (
        both(drop("contents", 2, "parts", 0), insert(LATE, "contents", 2, "parts", 1)),
        "stands where",
    ),
    "a response has another name": (put("wether", *ANSWER, "name"), "stands where"),
    "a response has another id": (put("c3", *ANSWER_WITH_ID, "id"), "stands where"),
    "a response lacks its call's id": (drop(*ANSWER_WITH_ID, "id"), "stands where"),
    "a response has an id, its call none": (put("c1", *ANSWER, "id"), "stands where"),
    "two calls share an id": (put("c2", *CALL, "id"), "duplicate function_call id 'c2'"),
    "a called name has a space": (put("my tool", *CALL, "name"), "function_call name 'my tool' does not match"),
    "a called name begins with a digit": (put("1st", *CALL_WITH_ID, "name"), "function_call name '1st' does not match"),
    "a call has no name": (drop(*CALL, "name"), "function_call name None does not match"),
    "a user calls": (
        insert({"function_call": {"name": "f"}}, "contents", 4, "parts", 0),
        "function_call in a content of",
    ),
    "the model answers": (insert(LATE, "contents", 3, "parts", 0), "function_response in a content of role model"),
    "the system instruction is empty": (put("", "config", "system_instruction"), "system_instruction: must be text"),
    "the system instruction has an empty part": (
        put({"parts": [{"text": ""}]}, "config", "system_instruction"),
        "system_instruction: must be text",
    ),
    "a tool key is unknown": (put([], "config", "tools", 0, "functions"), "functions: Extra inputs"),
    "a tool key is in camel case": (
        put([{"functionDeclarations": []}], "config", "tools"),
        "unknown key 'functionDecl",
    ),
    "a declaration's key is in camel case": (
        put([{"function_declarations": [{"name": "f", "parametersJsonSchema": {}}]}], "config", "tools"),
        "unknown key 'parametersJsonSchema'",
    ),
    "a declaration's key is OpenAI's": (put(True, *DECLARED, "strict"), "strict: Extra inputs"),
    "a declared name has a space": (put("my tool", *DECLARED, "name"), "function name 'my tool' does not match"),
    "a declared schema is no object": (
        put("string", *DECLARED, "parameters_json_schema", "type"),
        "must be of type object",
    ),
    "tools are an object": (put({}, "config", "tools"), "config.tools.value: Input should be a valid"),
}


@pytest.mark.parametrize(("edit", "problem"), BROKEN.values(), ids=BROKEN.keys())
def test_a_gemini_body_is_refused_when(edit: Edit, problem: str) -> None:
    found = check_gemini(edited(gemini_body(), edit))
    assert any(problem in one for one in found), found


def test_two_gemini_functions_of_one_name_are_refused() -> None:
    body = gemini_body()
    body["config"]["tools"] *= 2
    assert check_gemini(body) == ["config.tools: 'weather' is declared twice"]


@pytest.mark.parametrize(
    "edit",
    [
        drop("config"),
        drop("config", "system_instruction"),
        put({"parts": [{"text": "You are brief."}]}, "config", "system_instruction"),
        put([{"text": "You are brief."}], "config", "system_instruction"),
        drop("contents", slice(3, None)),
        drop(*CALL, "args"),
        put({"file_data": {"file_uri": "gs://b/a.png", "mime_type": "image/png"}}, "contents", 0, "parts", 1),
        put({"function_calling_config": {"mode": "AUTO"}}, "config", "tool_config"),
        both(
            drop(*DECLARED, "parameters_json_schema"),
            put({"type": "OBJECT", "properties": {"n": {"type": "STRING", "maxLength": 9}}}, *DECLARED, "parameters"),
        ),
    ],
    ids=[
        "there is no config",
        "there is no system instruction",
        "the system instruction is a content",
        "the system instruction is a list of parts",
        "responses stand last",
        "a call has no arguments",
        "an image is a file's address",
        "the mode of calling is given by its name",
        "parameters are in Gemini's own schema form",
    ],
)
def test_a_gemini_body_is_taken_when(edit: Edit) -> None:
    assert check_gemini(edited(gemini_body(), edit)) == []
