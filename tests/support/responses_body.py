"""Judges a body for OpenAI's Responses API: the `openai` package's own types, then the rules that types cannot hold.

The rules are the API's (`/v1/responses`) for a request that depends on nothing the server stored: calls answered once
and at once, reasoning with its encrypted content and before what it led to, ids unique, the user first.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from openai.types.responses import (
    EasyInputMessageParam,
    ResponseFunctionToolCallParam,
    ResponseOutputMessageParam,
    ResponseReasoningItemParam,
)
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.response_custom_tool_call_output_param import ResponseCustomToolCallOutputParam
from openai.types.responses.response_custom_tool_call_param import ResponseCustomToolCallParam
from openai.types.responses.response_function_web_search_param import ResponseFunctionWebSearchParam
from openai.types.responses.response_input_item_param import AdditionalTools, FunctionCallOutput

from support.openai_body import IMAGE_URL, NAME, is_object
from support.strict import Json, Remembered, is_base64, is_dict, repeated, split, typed

ID_CHARS = 64
"""Longest call id and cache key that the Responses API takes (`string_above_max_length` for a longer one)."""

KEPT_BY_SERVER = ("previous_response_id", "conversation", "prompt")
"""Settings that name something which the server keeps."""

_FORMS: dict[str, Any] = {
    "message": EasyInputMessageParam,
    "output message": ResponseOutputMessageParam,
    "reasoning": ResponseReasoningItemParam,
    "function_call": ResponseFunctionToolCallParam,
    "function_call_output": FunctionCallOutput,
    "custom_tool_call": ResponseCustomToolCallParam,
    "custom_tool_call_output": ResponseCustomToolCallOutputParam,
    "web_search_call": ResponseFunctionWebSearchParam,
    "additional_tools": AdditionalTools,
}
SYSTEM = ("system", "developer")


class _Read(NamedTuple):
    """What the order of items needs to know of one item, and the problems inside it."""

    kind: str
    problems: tuple[str, ...] = ()
    role: str = ""
    call: str = ""

    @property
    def is_assistants(self) -> bool:
        kinds = ("reasoning", "function_call", "custom_tool_call", "web_search_call")
        return self.role == "assistant" or self.kind in kinds

    @property
    def is_systems(self) -> bool:
        return self.role in SYSTEM or self.kind == "additional_tools"


def check_responses(body: Json) -> list[str]:
    """The problems of a body for `client.responses.create(**body)`; none if OpenAI would take it."""
    parts = split(body, "input")
    if parts.problems:
        return parts.problems
    reads = [_read_item(sent) for sent in parts.messages]
    problems = [*_read_envelope(parts.envelope)]
    problems += [f"input[{i}]: {problem}" for i, read in enumerate(reads) for problem in read.problems]
    if all(read.kind for read in reads):
        problems += _places(reads) + _pairs(reads)
    return problems


@Remembered
def _read_envelope(sent: bytes) -> tuple[str, ...]:
    envelope: Json = json.loads(sent)
    problems = typed(ResponseCreateParamsNonStreaming, {**envelope, "input": []})
    if problems:
        return tuple(problems)
    if "model" not in envelope:
        problems.append("model: is missing")
    if envelope.get("store") is not False:
        problems.append("store: must be false, so that nothing depends on what the server keeps")
    problems += [f"{name}: names what the server keeps" for name in KEPT_BY_SERVER if envelope.get(name) is not None]
    if len(envelope.get("prompt_cache_key") or "") > ID_CHARS:
        problems.append(f"prompt_cache_key: more than {ID_CHARS} characters")
    if envelope.get("instructions") == "":
        problems.append("instructions: is empty; leave the key out")
    return (*problems, *_tools(envelope.get("tools")))


def _tools(tools: list[Json] | None) -> list[str]:
    functions = [tool for tool in tools or [] if tool["type"] == "function"]
    names = [function["name"] for function in functions]
    problems = [f"tools: name {name!r} does not match {NAME.pattern}" for name in names if not NAME.fullmatch(name)]
    problems += [f"tools: {name!r} is declared twice" for name in repeated(names)]
    for function in functions:
        parameters: Json = function["parameters"] or {}
        if parameters.get("type", "object") != "object":
            problems.append(f"tools: parameters of {function['name']!r} must be of type object")
    return [*problems, *(["tools: is an empty list; leave the key out"] if tools == [] else [])]


@Remembered
def _read_item(sent: bytes) -> _Read:
    item: Any = json.loads(sent)
    if not is_dict(item):
        return _Read("", ("is no object",))
    kind = item.get("type") or "message"
    form = "output message" if kind == "message" and "id" in item else kind
    if form not in _FORMS:
        return _Read("", (f"type {kind!r} is none of a conversation with functions",))
    wrong = typed(_FORMS[form], item)
    if wrong:
        return _Read("", tuple(wrong))
    match kind:
        case "function_call":
            return _Read(kind, tuple(_call(item)), call=item["call_id"])
        case "custom_tool_call":
            return _Read(kind, call=item["call_id"])
        case "custom_tool_call_output":
            return _Read("function_call_output", call=item["call_id"])
        case "web_search_call" | "additional_tools":
            return _Read(kind)
        case "function_call_output":
            problems = [] if item["output"] == "" else _content(item["output"], "output")  # a tool may return nothing
            return _Read(kind, tuple(problems), call=item.get("call_id") or "")
        case "reasoning":
            # Servers of open models take the text of what they wrote.
            has_thought = item.get("encrypted_content") or item.get("content")
            sealed = [] if has_thought else ["reasoning without its encrypted_content"]
            return _Read(kind, tuple(sealed if item["id"] else [*sealed, "reasoning without an id"]))
        case _:
            return _Read(kind, tuple(_content(item["content"], "content")), role=item["role"])


def _content(content: str | list[Json], name: str) -> list[str]:
    if not content:
        return [f"{name}: is empty"]
    if isinstance(content, str):
        return []
    return [problem for index, part in enumerate(content) for problem in _part(part, f"{name}[{index}]")]


def _part(part: Json, where: str) -> list[str]:
    match part["type"]:
        case "input_text" | "output_text" if not part["text"]:
            return [f"{where}: empty text"]
        case "refusal" if not part["refusal"]:
            return [f"{where}: empty refusal"]
        case "input_image":
            if part.get("file_id"):
                return [f"{where}: an image that the server keeps"]
            url = IMAGE_URL.fullmatch(part.get("image_url") or "")
            if not url:
                return [f"{where}: image_url is neither http(s) nor a data URL of a png, jpeg, gif or webp image"]
            data = url["data"]
            return [] if data is None or is_base64(data) else [f"{where}: image data is not base64"]
        case _:
            return []


def _call(item: Json) -> list[str]:
    problems: list[str] = []
    if not 0 < len(item["call_id"]) <= ID_CHARS:
        problems.append(f"call_id of {len(item['call_id'])} characters; 1 to {ID_CHARS} are taken")
    if not NAME.fullmatch(item["name"]):
        problems.append(f"name {item['name']!r} does not match {NAME.pattern}")
    if not is_object(item["arguments"]):
        problems.append("arguments are not the JSON text of an object")
    return problems


def _places(reads: list[_Read]) -> list[str]:
    problems: list[str] = []
    first = next((index for index, read in enumerate(reads) if not read.is_systems), 0)
    if reads[first].role != "user":
        problems.append(f"input[{first}]: the first item must be a user's, is {reads[first].role or reads[first].kind}")
    last = reads[-1]
    if last.role != "user" and last.kind != "function_call_output" and not last.is_systems:
        problems.append(f"input: the last item must be a user's or an output, is {last.role or last.kind}")
    for index, read in enumerate(reads):
        follows = reads[index + 1] if index + 1 < len(reads) else None
        if read.kind == "reasoning" and not (follows and follows.is_assistants):
            problems.append(f"input[{index}]: reasoning without the item that it led to")
    return problems


def _pairs(reads: list[_Read]) -> list[str]:
    """A run of the assistant's items makes calls; the run of outputs directly after it answers each of them once."""
    problems: list[str] = []
    waiting: list[str] = []
    made: set[str] = set()
    answering = False
    for index, read in enumerate([*reads, _Read("the end", role="user")]):
        if read.kind == "function_call_output":
            answering = True
            if read.call in waiting:
                waiting.remove(read.call)
            else:
                problems.append(f"input[{index}]: orphan output: no open call {read.call!r} before it")
            continue
        if waiting and (answering or not read.is_assistants):
            problems.append(f"input[{index}]: {read.role or read.kind} comes before outputs answer calls {waiting}")
            waiting = []
        answering = False
        if read.kind in ("function_call", "custom_tool_call"):
            if read.call in made:
                problems.append(f"input[{index}]: duplicate call_id {read.call!r}")
            made.add(read.call)
            waiting.append(read.call)
    return problems
