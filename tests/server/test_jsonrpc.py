"""The examples of the specification of JSON-RPC 2.0 (section 7), and messages that are none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from nexus.errors import BadSetting
from nexus.server.jsonrpc import INVALID_PARAMS, MAX_BATCH, METHOD_NOT_FOUND, Params, RpcError, answer

CALLS: list[str] = []


async def call(method: str, params: Params) -> object:
    CALLS.append(method)
    named = params if isinstance(params, dict) else dict(zip(("minuend", "subtrahend"), params, strict=False))
    match method:
        case "subtract":
            return named["minuend"] - named["subtrahend"]
        case "sum":
            return sum(params)
        case "update" | "notify_hello" | "notify_sum":
            return None
        case "get_data":
            return ["hello", 5]
        case "bad_params":
            raise RpcError(INVALID_PARAMS, "Invalid params")
        case "refuse":
            raise BadSetting("key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 refused (use another)")
        case "crash":
            raise KeyError("api_key=hunter2hunter2")
        case _:
            raise RpcError(METHOD_NOT_FOUND, "Method not found")


def answered(body: str | bytes) -> Any:
    body = body.encode() if isinstance(body, str) else body
    response = asyncio.run(answer(body, call)).body
    return json.loads(response) if response else None


def error(code: int, request_id: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": code, "id": request_id}


def codes(response: Any) -> Any:
    """The response with its errors' codes alone: the specification's messages are not ours."""
    if isinstance(response, list):
        return [codes(item) for item in response]
    return {**response, "error": response["error"]["code"]} if response and "error" in response else response


def result(value: Any, request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "result": value, "id": request_id}


BATCH = """[
    {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
    {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
    {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
    {"foo": "boo"},
    {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
    {"jsonrpc": "2.0", "method": "get_data", "id": "9"}
]"""

SPECIFICATION = {
    "positional": ('{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}', result(19, 1)),
    "positional 2": ('{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}', result(-19, 2)),
    "named": (
        '{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}',
        result(19, 3),
    ),
    "named 2": (
        '{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}',
        result(19, 4),
    ),
    "notification": ('{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}', None),
    "unknown notification": ('{"jsonrpc": "2.0", "method": "foobar"}', None),
    "unknown method": ('{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', error(-32601, "1")),
    "invalid JSON": ('{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', error(-32700)),
    "invalid request": ('{"jsonrpc": "2.0", "method": 1, "params": "bar"}', error(-32600)),
    "batch, invalid JSON": (
        '[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": "2.0", "method"]',
        error(-32700),
    ),
    "empty batch": ("[]", error(-32600)),
    "invalid batch": ("[1]", [error(-32600)]),
    "invalid batch 2": ("[1,2,3]", [error(-32600)] * 3),
    "batch": (BATCH, [result(7, "1"), result(19, "2"), error(-32600), error(-32601, "5"), result(["hello", 5], "9")]),
    "batch of notifications": (
        '[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]}, {"jsonrpc": "2.0", "method": "notify_hello"}]',
        None,
    ),
}


@pytest.mark.parametrize("name", SPECIFICATION)
def test_example_of_the_specification(name: str) -> None:
    body, expected = SPECIFICATION[name]
    assert codes(answered(body)) == expected


REQUEST = {"jsonrpc": "2.0", "method": "get_data"}

INVALID: dict[str, tuple[Any, Any]] = {
    "id null is no notification": ({**REQUEST, "id": None}, result(["hello", 5], None)),
    "id with a fraction": ({**REQUEST, "id": 1.5}, result(["hello", 5], 1.5)),
    "id object": ({**REQUEST, "id": {}}, error(-32600)),
    "id true": ({**REQUEST, "id": True}, error(-32600)),
    "other version": ({**REQUEST, "jsonrpc": "1.0", "id": 1}, error(-32600, 1)),
    "version number": ({**REQUEST, "jsonrpc": 2.0, "id": 1}, error(-32600, 1)),
    "params null": ({**REQUEST, "params": None, "id": 1}, error(-32600, 1)),
    "params text": ({**REQUEST, "params": "x", "id": 1}, error(-32600, 1)),
    "nested batch": ([[{**REQUEST, "id": 1}]], [error(-32600)]),
    "same id twice": ([{**REQUEST, "id": 1}] * 2, [result(["hello", 5], 1)] * 2),
    "batch too large": ([{**REQUEST, "id": 1}] * (MAX_BATCH + 1), error(-32600)),
    "notification that fails": ({**REQUEST, "method": "bad_params"}, None),
    "params that fail": ({**REQUEST, "method": "bad_params", "id": 1}, error(-32602, 1)),
    "dunder method": ({**REQUEST, "method": "__init__", "id": 1}, error(-32601, 1)),
    "scalar": (7, error(-32600)),
    "null": (None, error(-32600)),
}


@pytest.mark.parametrize("name", INVALID)
def test_message_that_the_specification_leaves_to_its_rules(name: str) -> None:
    message, expected = INVALID[name]
    assert codes(answered(json.dumps(message))) == expected


BYTES = {
    "empty": b"",
    "not UTF-8": b'{"jsonrpc": "2.0", "method": "\xff", "id": 1}',
    "not a number": b'{"jsonrpc": "2.0", "method": "sum", "params": [NaN], "id": 1}',
    "lone surrogate": b'{"jsonrpc": "2.0", "method": "\\ud800", "id": 1}',
    "65 levels": b"[" * 65 + b"]" * 65,
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "integer of 500 digits": b'{"jsonrpc": "2.0", "method": "sum", "params": [%s], "id": 1}' % (b"9" * 500),
    "integer of 5,000 digits": b'{"jsonrpc": "2.0", "method": "sum", "params": [%s], "id": 1}' % (b"9" * 5_000),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_message_are_a_parse_error(name: str) -> None:
    CALLS.clear()
    assert codes(answered(BYTES[name])) == error(-32700)
    assert CALLS == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "parse_error"),
        (b"[" * 65 + b"]" * 65, "parse_error"),
        (b"[]", "invalid_request"),
        (b"7", "invalid_request"),
        (b'{"jsonrpc": "2.0", "method": "foobar", "id": 1}', "method_not_found"),
        (b'{"jsonrpc": "2.0", "method": "bad_params", "id": 1}', "invalid_params"),
        (b'{"jsonrpc": "2.0", "method": "refuse", "id": 1}', "bad_setting"),
        (b'{"jsonrpc": "2.0", "method": "crash", "id": 1}', "internal_error"),
    ],
)
def test_every_error_has_a_code_in_its_data(body: bytes, code: str) -> None:
    assert answered(body)["error"]["data"] == {"code": code}


def test_errors_have_no_secrets_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    refused = answered(json.dumps({**REQUEST, "method": "refuse", "id": 1}))["error"]
    assert refused["code"] == -32000 and refused["data"] == {"code": "bad_setting"}
    assert "sk-ant" not in refused["message"] and "[secret" in refused["message"]
    crashed = answered(json.dumps({**REQUEST, "method": "crash", "id": 1}))["error"]
    assert crashed["code"] == -32603 and "hunter2" not in json.dumps(crashed)
    assert "KeyError" in caplog.text and "hunter2" not in caplog.text


def test_depth_of_a_message_is_limited_to_64_levels() -> None:
    value: Any = 1
    for _ in range(62):
        value = [value]
    assert answered(msgspec.json.encode({**REQUEST, "params": value, "id": 1})) == result(["hello", 5], 1)
