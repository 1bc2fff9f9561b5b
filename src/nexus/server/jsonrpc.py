"""JSON-RPC 2.0: requests, batches, notifications and errors, as in https://www.jsonrpc.org/specification.

It knows neither methods nor transports: `answer` takes the bytes of a message and a function that runs one method.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from nexus.errors import NexusError
from nexus.server.logs import describe_failure
from nexus.text.redact import redact
from nexus.types.validation import check_json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
"""An error of Nexus; `data.code` is its code."""
ERROR_CODES = {
    PARSE_ERROR: "parse_error",
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "method_not_found",
    INVALID_PARAMS: "invalid_params",
    INTERNAL_ERROR: "internal_error",
    SERVER_ERROR: "server_error",
}
"""Codes of JSON-RPC's errors in `data.code`, unless an error has a code of its own."""

MAX_DEPTH = 64
"""Nested arrays and objects of a message."""
MAX_BATCH = 100
"""Requests of a batch."""

LOG = logging.getLogger("nexus.server")

RequestId: TypeAlias = str | int | float | None
Params: TypeAlias = dict[str, Any] | list[Any]
Call: TypeAlias = Callable[[str, Params], Awaitable[object]]
"""Runs a method with its params and returns a JSON value. Raises RpcError, NexusError."""


class RpcError(Exception):
    """An error response: its code, message and data, which has a `code` that programs compare."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = {"code": ERROR_CODES[code], **(data or {})}


class RpcRequest(Struct, frozen=True):
    """A valid request. A notification has no id."""

    method: str
    params: Params
    id: RequestId | UnsetType = UNSET


class ErrorObject(Struct, frozen=True):
    """The `error` of a response."""

    code: int
    message: str
    data: dict[str, Any]


class RpcResponse(Struct, frozen=True):
    """The response to a message; empty for notifications alone."""

    body: bytes
    code: int = 0
    """Code of the error of a message that could not be read at all; 0 for any other."""


def parse(body: bytes) -> Any:
    """Return the value of a message. Raises RpcError for invalid JSON and for too many levels."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RpcError(PARSE_ERROR, f"body is not JSON: {_lower(error)}") from error
    except RecursionError as error:
        raise RpcError(PARSE_ERROR, f"body nested more than {MAX_DEPTH} levels deep") from error
    try:
        check_json(value, MAX_DEPTH - 1)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"body invalid: {error}") from error
    return value


def check_batch(value: Any) -> int:
    """Return the number of requests of a message. Raises RpcError for an empty or too large batch."""
    if not isinstance(value, list):
        return 1
    length = len(cast("list[Any]", value))
    if not length:
        raise RpcError(INVALID_REQUEST, "batch is empty (send a request, or an array of requests)")
    if length > MAX_BATCH:
        raise RpcError(INVALID_REQUEST, f"batch has {length:,} requests, more than {MAX_BATCH} (send several batches)")
    return length


async def answer(body: bytes, call: Call) -> RpcResponse:
    """Answer the bytes of a message; see `answer_value`."""
    try:
        value = parse(body)
    except RpcError as error:
        return refusal(error)
    return await answer_value(value, call)


async def answer_value(value: Any, call: Call) -> RpcResponse:
    """Answer a message: a request, or a batch whose requests run at the same time."""
    try:
        check_batch(value)
    except RpcError as error:
        return refusal(error)
    if not isinstance(value, list):
        response = await respond(value, call)
        return RpcResponse(msgspec.json.encode(response) if response is not None else b"")
    responses = await asyncio.gather(*(respond(item, call) for item in cast("list[Any]", value)))
    present = [response for response in responses if response is not None]
    return RpcResponse(msgspec.json.encode(present) if present else b"")


REFUSALS = {
    400: "bad_request", 401: "wrong_token", 403: "wrong_origin", 404: "not_found", 405: "wrong_method", 408: "body_too_slow",
    413: "body_too_large", 415: "not_json", 421: "wrong_host", 429: "too_many_requests", 500: "internal_error",
    503: "not_accepted",
}  # fmt: skip
"""Codes of requests that are refused before a method runs, by HTTP status: `data.code` unless it is an error's."""


def refusal(error: RpcError, request_id: RequestId = None) -> RpcResponse:
    """Return the answer to a message that is not run at all."""
    return RpcResponse(msgspec.json.encode(_response(request_id, error=_error_object(error))), error.code)


async def respond(value: Any, call: Call) -> dict[str, Any] | None:
    """Return the response to one request; None for a notification."""
    try:
        request = parse_request(value)
    except RpcError as error:
        return _response(id_of(value), error=_error_object(error))
    try:
        result = await call(request.method, request.params)
    except Exception as error:  # noqa: BLE001 - a method's error is its response
        error_object = _error_object(error)
    else:
        if request.id is UNSET:
            return None
        return _response(request.id, result=result)
    if request.id is UNSET:
        return None
    return _response(request.id, error=error_object)


def parse_request(value: Any) -> RpcRequest:
    """Return a request. Raises RpcError if it is none."""
    request = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    method = request.get("method")
    params = request.get("params", {})
    is_valid = (
        request.get("jsonrpc") == "2.0"
        and isinstance(method, str)
        and isinstance(params, (dict, list))
        and ("id" not in request or _is_id(request["id"]))
    )
    if not is_valid:
        raise RpcError(
            INVALID_REQUEST, 'request invalid (send {"jsonrpc": "2.0", "id": …, "method": …, "params": {…}})'
        )
    return RpcRequest(cast("str", method), cast("Params", params), request.get("id", UNSET))


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))


def id_of(value: Any) -> RequestId:
    """Return the id of a message that may be no valid request; None if it has no valid id."""
    request_id = None
    if isinstance(value, dict):
        request_id = cast("dict[str, Any]", value).get("id")
    if _is_id(request_id):
        return request_id
    return None


def _response(request_id: Any, **outcome: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **outcome, "id": request_id}


def _error_object(error: Exception) -> ErrorObject:
    """Return an error for a response, without secrets and without a traceback."""
    if isinstance(error, RpcError):
        return ErrorObject(error.code, redact(error.message).text, error.data)
    if isinstance(error, NexusError):
        return ErrorObject(SERVER_ERROR, redact(str(error)).text, {"code": error.code})
    LOG.error("internal error: %s", describe_failure(error))
    data = {"code": ERROR_CODES[INTERNAL_ERROR]}
    return ErrorObject(INTERNAL_ERROR, "internal error (the server's log has it)", data)


def _lower(error: Exception) -> str:
    text = str(error)
    if text[:2].isupper():
        return text
    return text[:1].lower() + text[1:]
