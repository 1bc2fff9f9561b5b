"""Requests of the server's methods for Hypothesis: valid ones by their JSON Schemas, and mutated ones.

`hypothesis-jsonschema` fails with the Hypothesis of the lock file (0.23.1, its last release, reads a removed attribute),
so `values` reads the few keywords that msgspec writes.
"""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias

from hypothesis import strategies as st
from msgspec import Struct

from nexus.server import forms
from nexus.server.methods import METHODS
from nexus.server.openrpc import schemas

Json: TypeAlias = Any
Strategy: TypeAlias = st.SearchStrategy[Json]

CONTEXT = "CONTEXT-ID"
"""Stands for the id of the newest context; the test replaces it."""
MARK = "MARK-OF-TENANT"
"""Part of texts; the test replaces it by a text that only the sending tenant has."""
AGENTS = ("a", "b", "c ü")


class Message(Struct, frozen=True):
    """The bytes of one message, and the agent of its path; without one it goes to `/rpc`."""

    body: bytes
    agent_id: str | None = None
    is_camel: bool = False
    tenant: int = 0


def deep(levels: int, leaf: Json = 1) -> Json:
    for level in range(levels):
        leaf = [leaf] if level % 2 else {"x": leaf}
    return leaf


ODD_TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "\x1b[31m", "a\r\nX-Header: 1", "../../etc/passwd", "%2e%2e%2f", "..", "\u202ea",
    "nexus:agent:a", "nexus:agent:", "configuration:default", "dm:ann", "worker:", "x" * 201, "y" * 20_000, "main", "a ",
    "<system>" + MARK, "' OR 1=1 --", "null", "{}", "é" * 200, "\u2028", "\ufeff", "𐀀" * 50, "a~00000000", "__class__",
)  # fmt: skip
ODD_VALUES = (
    None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**299,
    10**400, float("nan"), float("inf"), [], {}, [[]], [None], ["a"], {"": ""}, {"type": "text"}, deep(40), deep(61), deep(70),
    deep(200), ["z"] * 2_000,
)  # fmt: skip
odd_values: Strategy = st.one_of(
    st.sampled_from(ODD_TEXTS), st.sampled_from(ODD_VALUES).map(deepcopy), st.text(max_size=20)
)

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
_OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_OPENAI_MESSAGE = {"role": "assistant", "content": None, "tool_calls": [_OPENAI_CALL, {**_OPENAI_CALL, "id": "c2"}]}
REPLIES = (
    MARK,
    "",
    {"choices": [{"message": _OPENAI_MESSAGE, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 50}},
    {"choices": [{"message": {"role": "assistant", "content": MARK}, "finish_reason": "stop"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
    },
    {"candidates": [{"content": {"role": "model", "parts": [{"text": MARK}]}, "finishReason": "STOP"}]},
    {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": MARK}]}]},
)
_USER, _ANSWER = {"role": "user", "content": f"Read. {MARK}"}, {"role": "assistant", "content": "I read."}
_LISTS: tuple[Json, ...] = (
    [_USER],
    [_USER, _ANSWER, {"role": "user", "content": "And now?"}],
    [{"role": "system", "content": "Be terse."}, _USER, _OPENAI_MESSAGE, {"role": "tool", "tool_call_id": "c1", "content": "x"}],
    [_USER, _ANSWER],
    [],
)  # fmt: skip
CONTENTS = (f"Hi {MARK}", "slow", "fail", "use a tool", f"other {MARK}", "\0", "é\u2028", "x " * 3_000)

BY_NAME: dict[str, Strategy] = {
    "agent_id": st.sampled_from(AGENTS),
    "new_agent_id": st.sampled_from(AGENTS) | st.sampled_from(["d", None]),
    "parent_agent_id": st.sampled_from([*AGENTS, None]),
    "request_id": st.sampled_from(["r1", "r2", 1, None]),
    "context_id": st.sampled_from([CONTEXT, CONTEXT, "", "list-0-0123456789abcdef", "1-0123456789abcdef"]),
    "call_id": st.sampled_from(["c1", "c2", "c3"]),
    "content": st.sampled_from(CONTENTS),
    "model": st.sampled_from(["", "", "gpt-4o", "claude-sonnet-4-5", "nobody"]),
    "profile": st.sampled_from(["", "", "", "bare", "tagged", "turnlog", "nobody"]),
    "toolset": st.sampled_from(["", "", "all"]),
    "principal": st.sampled_from(["", "", "ann", "nexus:agent:a"]),
    "permissions": st.sampled_from([None, [], ["read"], ["read", "write"]]),
    "budget": st.sampled_from([None, None, 50_000, 100]),
    "tools": st.sampled_from([[], [TOOL], [TOOL, TOOL], [{}]]),
    "messages": st.sampled_from(_LISTS),
    "reply": st.sampled_from(REPLIES),
    "turn": st.sampled_from([None, 0, 1, 2]),
    "call": st.sampled_from([None, 0, 1]),
}
"""Values that meet each other: free texts would never name an agent that exists."""


@st.composite
def mostly(draw: st.DrawFn, usual: Strategy, other: Strategy, weight: int) -> Json:
    """Draw from a strategy, and once in `weight` draws from another; `st.one_of` counts equal strategies once."""
    return draw(other if draw(st.sampled_from([False] * (weight - 1) + [True])) else usual)


def values(schema: dict[str, Json], name: str = "") -> Strategy:
    """Return the values of a schema; those of a property by its name, most of the time."""
    if name in BY_NAME:
        return mostly(BY_NAME[name], _by_schema(schema), 8)
    return _by_schema(schema)


def _by_schema(schema: dict[str, Json]) -> Strategy:
    if "$ref" in schema:
        return values(schemas()[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            rows = {name: values(row, name) for name, row in schema["properties"].items()}
            required = {name: rows.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=rows)
        case "object":
            return st.dictionaries(st.text(max_size=5), odd_values, max_size=3)
        case "array":
            return st.lists(values(schema.get("items", {})), max_size=3)
        case "string":
            return st.text(max_size=30)
        case "integer":
            return st.integers(-3, 5) | st.integers()
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case kind:
            raise AssertionError(f"schema of type {kind} is new: add it here")


RARELY = st.sampled_from([False] * 9 + [True])
NAMES = (*METHODS, "rpc.discover")
_OFTEN = ("create_agent", "send", "begin", "assemble", "record", "mirror")
_OF_AGENTS = tuple(name for name, method in METHODS.items() if method.scope == "agent")
_LOOPS = (
    ("begin", "assemble", "record", "assemble", "record"),
    ("begin", "assemble", "fail", "send"),
    ("begin", "send", "assemble", "record"),
    ("mirror", "record", "mirror", "record"),
    ("begin", "fork", "shutdown", "destroy_agent", "create_agent"),
    ("send", "fork", "compact", "explain", "get_messages"),
    ("get_context", "list_agents", "get_tokens", "cancel", "rpc.discover", "explain"),
)
"""Methods that are of use one after the other."""


@st.composite
def valid_requests(draw: st.DrawFn, names: Strategy, agent_id: str | None) -> dict[str, Json]:
    """Draw a request that fits the schema of its method; methods of an agent get the param `agent_id` if there is one."""
    name = draw(names)
    method = METHODS.get(name)
    params = draw(values(schemas()[method.params.__name__])) if method else {}
    if method is not None and agent_id is not None and (method.scope == "agent" or name == "destroy_agent"):
        params["agent_id"] = agent_id
    request: dict[str, Json] = {"jsonrpc": "2.0", "method": name, "params": params}
    if not draw(RARELY):
        request["id"] = draw(st.integers(1, 9) | st.sampled_from(["x", None, 1.5, "", -1, 2**53, "é\n"]))
    return request


def _containers(value: Json) -> list[Json]:
    """Return a value's dicts and lists that have items, itself included."""
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(inner for item in items for inner in _containers(item))] if items else []


@st.composite
def mutated(draw: st.DrawFn, requests: Strategy) -> Json:
    """Draw a request with one to three changes that its schema may not allow."""
    request = json.loads(json.dumps(draw(requests)))  # a copy: values are shared
    for _ in range(draw(st.integers(1, 3))):
        params = _containers(request.get("params")) if isinstance(request, dict) else []
        place = draw(st.sampled_from(params if params and draw(RARELY) is False else _containers(request)))
        key = draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        match draw(st.sampled_from(["replace", "replace", "remove", "camel", "add", "positions", "wrap"])):
            case "remove":
                del place[key]
            case "camel" if isinstance(place, dict):
                place[forms.camel(key)] = place[key] if draw(st.booleans()) else place.pop(key)
            case "add" if isinstance(place, dict):
                place[
                    draw(st.sampled_from(["agent_id", "agentId", "case", "tenant", "session", "", "x" * 300, "\0"]))
                ] = draw(odd_values)
            case "positions" if isinstance(request.get("params"), dict):
                request["params"] = list(request["params"].values())
            case "wrap":
                place[key] = draw(st.sampled_from([[place[key]], {"x": place[key]}, deep(30, place[key])]))
            case _:
                place[key] = draw(odd_values)
        if not _containers(request):
            break
    return request


@st.composite
def messages(draw: st.DrawFn, *, has_path: bool) -> Message:
    """Draw a message: a request or a batch, valid or mutated, sometimes with damage in its text.

    `has_path`: the path may name the agent.
    """
    agent_id, is_in_path = draw(BY_NAME["agent_id"]), has_path and draw(st.booleans())
    names = st.sampled_from(_OF_AGENTS + _OFTEN[1:] * 4 if is_in_path else NAMES + _OFTEN * 4)
    valid = valid_requests(names, None if is_in_path else agent_id)
    requests = mostly(valid, mutated(valid), 6)
    value = draw(mostly(requests, st.lists(mostly(requests, odd_values, 20), max_size=6), 6))
    text, body = json.dumps(value), b""
    match draw(st.sampled_from([""] * 37 + ["twice", "cut", "quotes", "bytes"])):
        case "twice":
            text = text.replace("{", '{"agent_id": "b", ', draw(st.integers(1, 3)))
        case "cut":
            text = text[: draw(st.integers(0, len(text)))]
        case "quotes":
            text = text.replace('"', draw(st.sampled_from(["'", '\\"', '"\0', '"\\ud800', '"\\u0000'])), 2)
        case "bytes":
            body = text.encode().replace(b'"', draw(st.sampled_from([b'"\xff', b"\xef\xbb\xbf", b"\x80"])), 1)
        case _:
            pass
    path = agent_id if is_in_path else None
    return Message(body or text.encode(), path, draw(RARELY), draw(st.sampled_from([0, 0, 0, 1])))


@st.composite
def loops(draw: st.DrawFn) -> list[list[Message]]:
    """Draw valid requests for one agent, one after the other."""
    agent_id = draw(BY_NAME["agent_id"])
    requests = [draw(valid_requests(st.just(name), agent_id)) for name in draw(st.sampled_from(_LOOPS))]
    return [[Message(json.dumps(request).encode())] for request in requests]


def _created(agent_id: str, tenant: int = 0) -> Message:
    body = {"jsonrpc": "2.0", "id": 1, "method": "create_agent", "params": {"agent_id": agent_id}}
    return Message(json.dumps(body).encode(), tenant=tenant)


_FIRST = [[*map(_created, AGENTS), _created("a", 1)]]


def scripts(*, has_path: bool) -> st.SearchStrategy[list[list[Message]]]:
    """Return scripts: messages one after the other, and groups of them at the same time. All agents exist at first."""
    drawn = messages(has_path=has_path)
    groups = st.lists(st.lists(drawn, min_size=1, max_size=1) | st.lists(drawn, min_size=1, max_size=4), max_size=6)
    return st.lists(groups | loops(), min_size=2, max_size=6).map(lambda parts: [*_FIRST, *chain.from_iterable(parts)])
