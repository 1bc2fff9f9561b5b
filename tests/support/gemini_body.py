"""Judges a Gemini body: the `google-genai` package's own types, then the rules of order that types cannot hold.

A body is what `client.models.generate_content(**body)` takes, as JSON: `model`, `contents` and `config` with the names
in snake case as the package writes them, bytes as base64. Calls are answered in the next content, in their own order.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple, cast

from google.genai import types
from pydantic import TypeAdapter, ValidationError

from support.strict import Json, Remembered, is_dict, is_list, repeated, split, told, typed_json, wire

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
DATA_FIELDS = (
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)
"""Exactly one of these makes a part; the other fields describe it."""

TOOL_KEYS = types.Tool.model_fields.keys()
DECLARATION_KEYS = types.FunctionDeclaration.model_fields.keys()


class _Named(NamedTuple):
    """A function call or a function response: its function's name, its id if it has one."""

    name: str
    id: str


class _Read(NamedTuple):
    """What the order of contents needs to know of one content, and the problems inside it."""

    role: str
    problems: tuple[str, ...] = ()
    calls: tuple[_Named, ...] = ()
    answers: tuple[_Named, ...] = ()
    is_typed: bool = True


def check_gemini(body: Json) -> list[str]:
    """The problems of a body for `client.models.generate_content(**body)`; none if Gemini would take it."""
    parts = split(body, "contents")
    if parts.problems:
        return parts.problems
    reads = [_read_content(sent) for sent in parts.messages]
    problems = [*_read_envelope(parts.envelope)]
    problems += [f"contents[{i}]: {problem}" for i, read in enumerate(reads) for problem in read.problems]
    if all(read.is_typed for read in reads):
        problems += _places(reads) + _pairs(reads)
    return problems


@cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def _typed(form: Any, sent: bytes, *, snake_case: bool = True) -> list[str]:
    """Problems by an official model, strictly; it refuses unknown keys itself, and aliases if `snake_case`."""
    try:
        _adapter(form).validate_json(sent, strict=True, by_alias=not snake_case, by_name=True)
    except ValidationError as error:
        return told(error)
    return []


@Remembered
def _read_envelope(sent: bytes) -> tuple[str, ...]:
    envelope: Json = json.loads(sent)
    problems = [f"{key}: unknown key" for key in envelope if key not in ("model", "config")]
    if not isinstance(envelope.get("model"), str) or not envelope["model"]:
        problems.append("model: must be a non-empty string")
    config = envelope.get("config")
    if problems or config is None:
        return tuple(problems)
    if not is_dict(config):
        return ("config: must be an object",)
    tools: Any = config.pop("tools", None)
    problems += [f"config.{problem}" for problem in _typed(types.GenerateContentConfig, wire(config))]
    if not problems and config.get("system_instruction") is not None:
        problems += _system(config["system_instruction"])
    return (*problems, *([] if tools is None else _tools(tools)))


def _system(instruction: Any) -> list[str]:
    """Problems of a system instruction: a text, a part, a content, or a list; all of it text, none empty."""
    held = instruction["parts"] if is_dict(instruction) and "parts" in instruction else instruction
    pieces = held if is_list(held) else [held]
    texts: list[Any] = [piece.get("text") if is_dict(piece) else piece for piece in pieces]
    if texts and all(isinstance(text, str) and text for text in texts):
        return []
    return ["config.system_instruction: must be text, and not empty"]


def _tools(tools: list[Json]) -> list[str]:
    """Problems of the tools. Schemas inside keep JSON Schema's spelling; the tools' own keys are snake case."""
    wrong = _typed(list[types.Tool], wire(tools), snake_case=False)
    if wrong:
        return [f"config.tools.{problem}" for problem in wrong]
    problems = [f"config.tools: unknown key {key!r}" for tool in tools for key in tool if key not in TOOL_KEYS]
    declared: list[Json] = [
        one for tool in tools for one in cast("list[Json]", tool.get("function_declarations") or [])
    ]
    problems += [f"config.tools: {problem}" for one in declared for problem in _declared(one)]
    names = [one.get("name") or "" for one in declared]
    return problems + [f"config.tools: {name!r} is declared twice" for name in repeated(names)]


def _declared(declared: Json) -> list[str]:
    problems = [f"unknown key {key!r} in a function declaration" for key in declared if key not in DECLARATION_KEYS]
    name = declared.get("name") or ""
    if not NAME.fullmatch(name):
        problems.append(f"function name {name!r} does not match {NAME.pattern}")
    for key in ("parameters", "parameters_json_schema"):
        schema = declared.get(key)
        if schema is not None and not (is_dict(schema) and str(schema.get("type")).lower() == "object"):
            problems.append(f"{key} of {name!r} must be of type object")
    return problems


@Remembered
def _read_content(sent: bytes) -> _Read:
    wrong = typed_json(types.ContentDict, sent) or _typed(types.Content, sent)  # the dict knows no aliases
    if wrong:
        return _Read("", tuple(wrong), is_typed=False)
    content: Json = json.loads(sent)
    role = content.get("role") or "none"
    parts: list[Json] = content.get("parts") or []
    problems = [f"parts[{index}]: {problem}" for index, part in enumerate(parts) for problem in _part(part, role)]
    if not parts:
        problems.append("parts: is empty")
    if role not in ("user", "model"):
        problems.append(f"role must be user or model, is {role} (the system stands in config.system_instruction)")
    return _Read(role, tuple(problems), _named(parts, "function_call"), _named(parts, "function_response"))


def _named(parts: list[Json], key: str) -> tuple[_Named, ...]:
    found = (part[key] for part in parts if part.get(key) is not None)
    return tuple(_Named(one.get("name") or "", one.get("id") or "") for one in found)


def _part(part: Json, role: str) -> list[str]:
    held = [key for key in DATA_FIELDS if part.get(key) is not None]
    if len(held) != 1:
        return [f"a part holds exactly one of its kinds of data, this one {held or 'none'}"]
    kind, data = held[0], part[held[0]]
    match kind:
        case "text":
            return [] if data else ["empty text"]
        case "inline_data":
            return [] if data.get("data") and data.get("mime_type") else ["inline_data needs data and mime_type"]
        case "file_data":
            return [] if data.get("file_uri") else ["file_data needs file_uri"]
        case "function_call" | "function_response":
            return _function(kind, data, role)
        case _:
            return []


def _function(kind: str, data: Json, role: str) -> list[str]:
    problems: list[str] = []
    if not NAME.fullmatch(data.get("name") or ""):
        problems.append(f"{kind} name {data.get('name')!r} does not match {NAME.pattern}")
    if role != ("model" if kind == "function_call" else "user"):
        problems.append(f"{kind} in a content of role {role}")
    if kind == "function_response" and data.get("response") is None:
        problems.append("function_response needs response, an object")
    return problems


def _places(reads: list[_Read]) -> list[str]:
    problems: list[str] = []
    if reads[0].role != "user":
        problems.append(f"contents[0]: the first content must be the user's, is {reads[0].role}")
    if reads[-1].role != "user":
        problems.append(f"contents: the last content must be the user's, is {reads[-1].role}")
    for index, (earlier, later) in enumerate(pairwise(reads), 1):
        if earlier.role == later.role:
            problems.append(f"contents[{index}]: roles must alternate, {later.role} follows {earlier.role}")
    return problems


def _pairs(reads: list[_Read]) -> list[str]:
    problems: list[str] = []
    waiting: tuple[_Named, ...] = ()
    for index, read in enumerate([*reads, _Read("the end")]):
        where = f"contents[{index}]"
        if len(read.answers) != len(waiting):
            problems.append(f"{where}: {len(read.answers)} function_response parts for {len(waiting)} function_call")
        for call, answer in zip_longest(waiting, read.answers):
            if call is None:
                problems.append(f"{where}: orphan function_response {answer.name!r}")
            elif answer is None:
                problems.append(f"{where}: no function_response for {call.name!r}")
            elif call != answer:
                problems.append(f"{where}: function_response {answer} stands where {call} must be answered")
        ids = [call.id for call in read.calls if call.id]
        problems += [f"{where}: duplicate function_call id {repeated_id!r}" for repeated_id in repeated(ids)]
        waiting = read.calls
    return problems
