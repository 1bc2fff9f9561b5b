"""Judges an Anthropic Messages body: the `anthropic` package's own types, then the rules that types cannot hold.

The rules are those of `/v1/messages`: strict alternation, results first and in the very next message, thinking first
and signed, no blank text, at most four cache marks, long-lived ones before short-lived ones.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import NamedTuple

from anthropic.types import MessageParam
from anthropic.types.beta import BetaSystemMessageParam
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

from support.strict import Json, Remembered, is_base64, is_dict, is_list, repeated, split, typed

ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MARKS_AT_MOST = 4
THINKING = ("thinking", "redacted_thinking")
SYSTEM_MODELS = re.compile(r"claude-(opus-4-[89]|(opus|sonnet|haiku|fable|mythos)-([5-9]|\d\d)(?!\d))")
"""Models with system messages in the conversation (platform.claude.com, "Mid-conversation system messages")."""
NEVER_USER = (*THINKING, "tool_use", "server_tool_use")
NEVER_ASSISTANT = ("tool_result", "image", "document")


class _Read(NamedTuple):
    """What the order of messages needs to know of one message, and the problems inside it. `marks` are lifetimes."""

    role: str
    problems: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    is_typed: bool = True
    last: str = ""
    is_paused: bool = False


class _Envelope(NamedTuple):
    """The problems outside the messages, the marks on tools and system, and the `automatic` mark of the body itself."""

    problems: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    automatic: tuple[str, ...] = ()


def check_anthropic(body: Json) -> list[str]:
    """The problems of a body for `client.messages.create(**body)`; none if Anthropic would take it."""
    parts = split(body, "messages")
    if parts.problems:
        return parts.problems
    envelope = _read_envelope(parts.envelope)
    reads = [_read_message(sent) for sent in parts.messages]
    problems = list(envelope.problems)
    problems += [f"messages[{i}]: {problem}" for i, read in enumerate(reads) for problem in read.problems]
    if all(read.is_typed for read in reads):
        problems += _places(reads, str(body.get("model"))) + _pairs(reads)
        in_messages = [mark for read in reads for mark in read.marks]
        problems += _marks([*envelope.marks, *in_messages, *envelope.automatic])
    return problems


@Remembered
def _read_envelope(sent: bytes) -> _Envelope:
    envelope: Json = json.loads(sent)
    wrong = typed(MessageCreateParamsNonStreaming, {**envelope, "messages": []})
    if wrong:
        return _Envelope(tuple(wrong))
    problems = [] if envelope["max_tokens"] > 0 else ["max_tokens: must be at least 1"]
    tools: list[Json] = envelope.get("tools", [])
    for tool in tools:
        if not TOOL_NAME.fullmatch(tool["name"]):
            problems.append(f"tools: name {tool['name']!r} does not match {TOOL_NAME.pattern}")
        if "input_schema" in tool and tool["input_schema"].get("type") != "object":
            problems.append(f"tools: input_schema of {tool['name']!r} must be of type object")
    problems += [f"tools: {name!r} is declared twice" for name in repeated([tool["name"] for tool in tools])]
    system = envelope.get("system")
    if system is not None:
        problems += _texts(system, "system")
    marks = _lifetimes(tools) + (_lifetimes(system) if is_list(system) else [])
    return _Envelope(tuple(problems), tuple(marks), tuple(_lifetimes([envelope])))


@Remembered
def _read_message(sent: bytes) -> _Read:
    message: Json = json.loads(sent)
    wrong = typed(
        BetaSystemMessageParam if is_dict(message) and message.get("role") == "system" else MessageParam, message
    )
    if wrong:
        return _Read("", tuple(wrong), is_typed=False)
    role: str = message["role"]
    content: str | list[Json] = message["content"]
    problems = _texts(content, "content")
    if isinstance(content, str):
        return _Read(role, tuple(problems))
    if role != "system":
        problems += _user(content) if role == "user" else _assistant(content)
    for index, block in enumerate(content):
        problems += [f"content[{index}]: {problem}" for problem in _block(block)]
    calls = tuple(block["id"] for block in content if block["type"] == "tool_use")
    answers = tuple(block["tool_use_id"] for block in content if block["type"] == "tool_result")
    last = content[-1]["type"] if content else ""
    is_paused = not calls and any(block["type"] in ("server_tool_use", "mcp_tool_use") for block in content)
    return _Read(role, tuple(problems), calls, answers, tuple(_lifetimes(content)), last=last, is_paused=is_paused)


def _texts(content: str | list[Json], where: str) -> list[str]:
    """The blank texts of a content: the string itself, or blocks of text in it."""
    if not content:
        return [f"{where}: is empty"]
    if isinstance(content, str):
        return [] if content.strip() else [f"{where}: blank text"]
    texts = ((index, block["text"]) for index, block in enumerate(content) if block["type"] == "text")
    return [f"{where}[{index}]: {'blank' if text else 'empty'} text block" for index, text in texts if not text.strip()]


def _user(content: list[Json]) -> list[str]:
    kinds = [block["type"] for block in content]
    problems = [f"{kind} block in a user message" for kind in kinds if kind in NEVER_USER]
    if any(later == "tool_result" and earlier != "tool_result" for earlier, later in pairwise(kinds)):
        problems.append("tool_result blocks must come first in the message")
    return problems


def _assistant(content: list[Json]) -> list[str]:
    kinds = [block["type"] for block in content]
    problems = [f"{kind} block in an assistant message" for kind in kinds if kind in NEVER_ASSISTANT]
    if any(earlier not in THINKING and later in THINKING for earlier, later in pairwise(kinds)):
        problems.append("thinking blocks must come first in the message")
    if kinds and kinds[-1] in THINKING:
        problems.append("an assistant message must not end with thinking")
    return problems


def _block(block: Json) -> list[str]:
    match block["type"]:
        case "thinking":
            return [] if block["signature"] else ["thinking without a signature"]
        case "redacted_thinking":
            return [] if block["data"] else ["redacted_thinking without data"]
        case "image":
            return _image(block)
        case "tool_use":
            wrong = [] if ID.fullmatch(block["id"]) else [f"id {block['id']!r} does not match {ID.pattern}"]
            is_named = TOOL_NAME.fullmatch(block["name"])
            return wrong if is_named else [*wrong, f"name {block['name']!r} does not match {TOOL_NAME.pattern}"]
        case "tool_result":
            return _result(block)
        case _:
            return []


def _image(block: Json) -> list[str]:
    source: Json = block["source"]
    if source["type"] == "base64" and not is_base64(source["data"]):
        return ["image data is not base64"]
    if source["type"] == "url" and not source["url"].startswith(("https://", "http://")):
        return ["image url is not http(s)"]
    return []


def _result(block: Json) -> list[str]:
    """An empty result is taken, unless it reports an error: then it needs content, and nothing but text."""
    content: str | list[Json] = block.get("content", "")
    problems: list[str] = []
    if not ID.fullmatch(block["tool_use_id"]):
        problems.append(f"tool_use_id {block['tool_use_id']!r} does not match {ID.pattern}")
    if isinstance(content, list):
        problems += _texts(content, "content") if content else []
        problems += [problem for part in content if part["type"] == "image" for problem in _image(part)]
    if block.get("is_error"):
        if not content:
            problems.append("tool_result with is_error needs content")
        if isinstance(content, list) and any(part["type"] != "text" for part in content):
            problems.append("tool_result with is_error takes text only")
    return problems


def _lifetimes(blocks: list[Json]) -> list[str]:
    """The lifetimes of the cache marks on these blocks, and on the blocks inside tool results, in reading order."""
    found: list[str] = []
    for block in blocks:
        inner = block.get("content") if block.get("type") == "tool_result" else None
        found += _lifetimes(inner) if is_list(inner) else []
        mark = block.get("cache_control")
        found += [mark.get("ttl", "5m")] if mark else []
    return found


def _marks(marks: list[str]) -> list[str]:
    problems: list[str] = []
    if len(marks) > MARKS_AT_MOST:
        problems.append(f"{len(marks)} cache_control marks; at most {MARKS_AT_MOST} are taken")
    if ("5m", "1h") in pairwise(marks):
        problems.append("cache_control: a 1h mark comes after a 5m mark")
    return problems


def _places(reads: list[_Read], model: str) -> list[str]:
    problems: list[str] = []
    if reads[0].role != "user":
        problems.append(f"messages[0]: the first message must be a user's, is {reads[0].role}")
    if reads[-1].role == "assistant" and not reads[-1].is_paused:
        problems.append("messages: the last message must be a user's, is assistant")
    for index, (earlier, later) in enumerate(pairwise(reads), 1):
        if earlier.role == later.role != "user":  # the API joins a user's messages itself
            problems.append(f"messages[{index}]: roles must alternate, {later.role} follows {earlier.role}")
    for index, read in enumerate(reads):
        if read.role != "system":
            continue
        if not SYSTEM_MODELS.match(model):
            problems.append(f"messages[{index}]: a system message inside messages is not taken by every model")
        before, after = reads[index - 1], reads[index + 1] if index + 1 < len(reads) else None
        if before.role != "user" and before.last != "server_tool_use":
            problems.append(f"messages[{index}]: a system message must follow a user's")
        if after is not None and after.role != "assistant":
            problems.append(f"messages[{index}]: a system message must be last, or before an assistant's")
    return problems


def _pairs(reads: list[_Read]) -> list[str]:
    problems: list[str] = []
    made: set[str] = set()
    waiting: tuple[str, ...] = ()
    for index, read in enumerate([*reads, _Read("the end")]):
        for call in waiting:
            if call not in read.answers:
                problems.append(f"messages[{index}]: no tool_result for tool_use {call!r} of the message before")
        for answer in read.answers:
            if answer not in waiting:
                problems.append(f"messages[{index}]: orphan tool_result {answer!r}: no such call before it")
        problems += [f"messages[{index}]: two results for tool_use {answer!r}" for answer in repeated([*read.answers])]
        duplicates = [call for call in read.calls if call in made] + repeated([*read.calls])
        problems += [f"messages[{index}]: duplicate tool_use id {call!r}" for call in duplicates]
        made.update(read.calls)
        waiting = read.calls
    return problems
