"""The description of the server's methods: an OpenRPC document, with a JSON Schema of all params and results."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus import __version__
from nexus.server.jsonrpc import METHOD_NOT_FOUND, SERVER_ERROR
from nexus.server.methods import METHODS, Method
from nexus.types.stream_events import StreamEvent

OPENRPC_VERSION = "1.3.2"
_TEMPLATE = "#/components/schemas/{name}"
_ERRORS = [
    {"code": METHOD_NOT_FOUND, "message": "method not found"},
    {"code": SERVER_ERROR, "message": "an error of Nexus; `data.code` is its code"},
]


@cache
def schemas() -> dict[str, Any]:
    """Return the JSON Schemas of all params, results and events, by name."""
    kinds: list[Any] = [kind for method in METHODS.values() for kind in (method.params, method.result)]
    _, components = msgspec.json.schema_components([*kinds, StreamEvent], ref_template=_TEMPLATE)
    return dict(sorted(components.items()))


@cache
def openrpc() -> dict[str, Any]:
    """Return the OpenRPC document, the result of `rpc.discover`."""
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {"title": "Nexus", "version": __version__, "description": "Agents with a durable context."},
        "methods": [_described(name, method) for name, method in METHODS.items()],
        "components": {"schemas": schemas()},
    }


def _described(name: str, method: Method) -> dict[str, Any]:
    rows = cast("dict[str, Any]", _schema(method.params).get("properties", {}))
    required = cast("list[str]", _schema(method.params).get("required", []))
    params = [{"name": key, "required": key in required, "schema": schema} for key, schema in rows.items()]
    if method.scope == "agent":  # first by name only: at `/agent/ID` the path has it
        params.append({"name": "agent_id", "required": False, "schema": {"type": "string"}})
    return {
        "name": name,
        "summary": method.summary,
        "tags": [{"name": method.scope}],
        "paramStructure": "either" if method.scope == "server" else "by-name",
        "params": params,
        "result": {"name": "result", "schema": {"$ref": _TEMPLATE.format(name=method.result.__name__)}},
        "errors": _ERRORS,
    }


def _schema(kind: type[Struct]) -> dict[str, Any]:
    return schemas()[kind.__name__]
