"""Judges an OpenAI chat body: the `openai` package's own types, then the rules of order that types cannot hold.

The rules are the chat API's (`/v1/chat/completions`): calls answered at once and once, ids unique; system messages may be anywhere else.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import NamedTuple, NoReturn

from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from support.strict import Json, Remembered, is_base64, is_list, repeated, split, typed

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
IMAGE_URL = re.compile(r"https?://\S+|data:image/(?:png|jpeg|gif|webp);base64,(?P<data>\S*)")
SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")
CALL_ID_CHARS = 40
"""Longest call id that the chat API takes: it answers a longer one with `string_above_max_length`."""


class _Read(NamedTuple):
    """What the order of messages needs to know of one message, and the problems inside it."""

    role: str
    problems: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    answers: str = ""
    is_typed: bool = True


def check_openai(body: Json) -> list[str]:
    """The problems of a body for `client.chat.completions.create(**body)`; none if OpenAI would take it."""
    parts = split(body, "messages")
    if parts.problems:
        return parts.problems
    reads = [_read_message(sent) for sent in parts.messages]
    problems = [*_read_envelope(parts.envelope)]
    problems += [f"messages[{i}]: {problem}" for i, read in enumerate(reads) for problem in read.problems]
    if all(read.is_typed for read in reads):
        problems += _places(reads) + _pairs(reads)
    return problems


@Remembered
def _read_envelope(sent: bytes) -> tuple[str, ...]:
    envelope: Json = json.loads(sent)
    problems = typed(CompletionCreateParamsNonStreaming, {**envelope, "messages": []})
    if problems:
        return tuple(problems)
    functions: list[Json] = [tool["function"] for tool in envelope.get("tools", []) if tool["type"] == "function"]
    names = [function["name"] for function in functions]
    problems = [f"tools: name {name!r} does not match {NAME.pattern}" for name in names if not NAME.fullmatch(name)]
    problems += [f"tools: {name!r} is declared twice" for name in repeated(names)]
    for function in functions:
        if function.get("parameters", {}).get("type", "object") != "object":
            problems.append(f"tools: parameters of {function['name']!r} must be of type object")
    if envelope.get("tools") == []:
        problems.append("tools: is an empty list; leave the key out")
    return tuple(problems)


@Remembered
def _read_message(sent: bytes) -> _Read:
    message: Json = json.loads(sent)
    wrong = typed(ChatCompletionMessageParam, message)
    if wrong:
        return _Read("", tuple(wrong), is_typed=False)
    role: str = message["role"]
    speaker: str = message.get("name", role)
    problems = [] if SPEAKER.fullmatch(speaker) else [f"name {speaker!r} does not match {SPEAKER.pattern}"]
    calls: list[Json] = message.get("tool_calls") or []
    match role:
        case "assistant":
            problems += _assistant(message, calls)
        case "tool":  # a tool may return nothing
            problems += [] if message["content"] == "" else _content(message["content"])
        case "function":
            problems.append("role function is replaced by tool")
        case _:
            problems += _content(message["content"])
    return _Read(role, tuple(problems), tuple(call["id"] for call in calls), message.get("tool_call_id", ""))


def _content(content: str | list[Json]) -> list[str]:
    if not content:
        return ["content: is empty"]
    if isinstance(content, str):
        return []
    return [problem for index, part in enumerate(content) for problem in _part(part, f"content[{index}]")]


def _part(part: Json, where: str) -> list[str]:
    match part["type"]:
        case "text" if not part["text"]:
            return [f"{where}: empty text"]
        case "refusal" if not part["refusal"]:
            return [f"{where}: empty refusal"]
        case "image_url":
            url = IMAGE_URL.fullmatch(part["image_url"]["url"])
            if not url:
                return [f"{where}: image_url is neither http(s) nor a data URL of a png, jpeg, gif or webp image"]
            data = url["data"]
            return [] if data is None or is_base64(data) else [f"{where}: image data is not base64"]
        case _:
            return []


def _assistant(message: Json, calls: list[Json]) -> list[str]:
    content = message.get("content")
    problems = _content(content) if is_list(content) else []
    if not (content or calls or message.get("refusal") or message.get("audio")):
        problems.append("assistant message has neither content nor tool_calls")
    if "function_call" in message:
        problems.append("function_call is replaced by tool_calls")
    if message.get("tool_calls") == []:
        problems.append("tool_calls: is an empty list; leave the key out")
    for index, call in enumerate(calls):
        problems += [f"tool_calls[{index}]: {problem}" for problem in _call(call)]
    return problems


def _call(call: Json) -> list[str]:
    problems: list[str] = []
    if not 0 < len(call["id"]) <= CALL_ID_CHARS:
        problems.append(f"id of {len(call['id'])} characters; 1 to {CALL_ID_CHARS} are taken")
    called: Json = call[call["type"]]
    if not NAME.fullmatch(called["name"]):
        problems.append(f"name {called['name']!r} does not match {NAME.pattern}")
    if call["type"] == "function" and not is_object(called["arguments"]):
        problems.append("arguments are not the JSON text of an object")
    return problems


def is_object(text: str) -> bool:
    """Whether this is the JSON text of an object, without NaN and infinity."""
    try:
        return isinstance(_strict_json().decode(text), dict)
    except (ValueError, RecursionError):
        return False


@cache
def _strict_json() -> json.JSONDecoder:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    return json.JSONDecoder(parse_constant=refuse)


def _places(reads: list[_Read]) -> list[str]:
    roles = [read.role for read in reads]
    begins = next((i for i, role in enumerate(roles) if role not in ("system", "developer")), len(roles))
    if begins == len(roles):
        return ["messages: there is no user message"]
    problems: list[str] = []
    if roles[begins] != "user":
        problems.append(f"messages[{begins}]: the first after the system must be a user's, is {roles[begins]}")
    if roles[-1] not in ("user", "tool", "system", "developer"):
        problems.append(f"messages: the last message must be a user's or a tool's, is {roles[-1]}")
    return problems


def _pairs(reads: list[_Read]) -> list[str]:
    problems: list[str] = []
    waiting: list[str] = []
    made: set[str] = set()
    for index, read in enumerate([*reads, _Read("the end")]):
        if read.role == "tool":
            if read.answers in waiting:
                waiting.remove(read.answers)
            else:
                problems.append(f"messages[{index}]: orphan tool message: no open call {read.answers!r} before it")
            continue
        if waiting:
            problems.append(f"messages[{index}]: {read.role} comes before tool messages answer calls {waiting}")
        problems += [f"messages[{index}]: duplicate call id {call!r}" for call in read.calls if call in made]
        problems += [f"messages[{index}]: duplicate call id {call!r}" for call in repeated(list(read.calls))]
        made.update(read.calls)
        waiting = list(read.calls)
    return problems
