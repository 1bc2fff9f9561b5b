"""The MCP server itself, on the SDK's low-level server: what it offers, and each call as an answer or an error."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib.resources import files
from io import TextIOWrapper
from typing import Any, BinaryIO, TypeAlias, cast

import msgspec

from nexus.adapters.mcp_server.definitions import DEFINITIONS, INSTRUCTIONS, WINDOW_URI, ToolDefinition
from nexus.errors import NexusError, PackageMissing
from nexus.types.decoding import decodable
from nexus.types.sanitize import sanitize_text

try:
    import anyio
    import mcp.types as protocol
    from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
    from mcp.server.caching import CacheHint
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
except ImportError as error:
    raise PackageMissing(error.name or "mcp", "the MCP server", "mcp") from error

LOG = logging.getLogger("nexus.mcp")

LONGEST_ERROR = 1_500
"""Characters of an error's text."""

TTL_MS = 3_600_000
"""Milliseconds for which clients may keep the lists: they stay the same while the server runs."""

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abcdefABCDEF]")

_Context: TypeAlias = ServerRequestContext[Any, Any]


class McpCaller:
    """A request's caller: the tools that it may use, and the answer of one."""

    def __init__(
        self, denial: Callable[[str], Awaitable[str]], call: Callable[[str, Any], Awaitable[dict[str, Any]]]
    ) -> None:
        self.denial = denial
        self.call = call


FindCaller: TypeAlias = Callable[[_Context], Awaitable[McpCaller]]
"""Returns the caller of a request. Raises NexusError."""


def mcp_server(find_caller: FindCaller, version: str, *, writes: bool = False) -> Server[Any]:
    """Return a server that offers the tools to callers.

    Args:
        find_caller: Returns who calls.
        version: The version that clients are told.
        writes: Whether `remember` is offered.
    """
    definitions = {definition.name: definition for definition in DEFINITIONS if writes or not definition.writes}

    async def list_tools(ctx: _Context, _: Any) -> protocol.ListToolsResult:
        caller = await find_caller(ctx)
        return protocol.ListToolsResult(
            tools=[_tool(definition) for name, definition in definitions.items() if not await caller.denial(name)]
        )

    async def call_tool(ctx: _Context, params: protocol.CallToolRequestParams) -> protocol.CallToolResult:
        definition = definitions.get(params.name)
        if definition is None:
            names = ", ".join(definitions)
            hint = "; start it with --write to remember facts" if params.name == "remember" else ""
            name = sanitize_text(params.name[:100])
            raise MCPError(protocol.INVALID_PARAMS, f"tool {name!r} not found (this server has: {names}{hint})")
        try:
            arguments = msgspec.convert(params.arguments or {}, decodable(definition.arguments))
            caller = await find_caller(ctx)
            return _answer(await caller.call(definition.name, arguments))
        except msgspec.ValidationError as error:
            takes = ", ".join(definition.input_schema["properties"])
            return _error(f"arguments of {definition.name} not valid: {error} (it takes: {takes})")
        except NexusError as error:
            return _error(str(error))
        except Exception as error:
            LOG.exception("tool %s failed", definition.name)
            return _error(f"{definition.name} failed: {type(error).__name__} (the server's standard error has more)")

    async def list_resources(_ctx: _Context, _: Any) -> protocol.ListResourcesResult:
        return protocol.ListResourcesResult(
            resources=[
                protocol.Resource(uri=WINDOW_URI, name="window", title="Context window", mime_type=APP_MIME_TYPE)
            ]
        )

    async def list_templates(_ctx: _Context, _: Any) -> protocol.ListResourceTemplatesResult:
        return protocol.ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(_ctx: _Context, params: protocol.ReadResourceRequestParams) -> protocol.ReadResourceResult:
        if str(params.uri) != WINDOW_URI:
            raise MCPError(
                protocol.INVALID_PARAMS,
                f"resource not found (this server has only {WINDOW_URI}; messages: the tool read)",
                {"uri": sanitize_text(str(params.uri)[:500])},
            )
        page = protocol.TextResourceContents(uri=WINDOW_URI, mime_type=APP_MIME_TYPE, text=window_page())
        return protocol.ReadResourceResult(contents=[page])

    hint = CacheHint(TTL_MS, "private")
    server = Server[Any](
        "nexus",
        version=version,
        title="Nexus",
        instructions=INSTRUCTIONS,
        cache_hints={
            "tools/list": hint,
            "resources/list": hint,
            "resources/templates/list": hint,
            "resources/read": hint,
            "server/discover": hint,
        },
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    server.extensions[EXTENSION_ID] = {}
    return server


def window_page() -> str:
    """Return the app that draws a context window."""
    return files("nexus.adapters.mcp_server").joinpath("window.html").read_text("utf-8")


def _tool(definition: ToolDefinition) -> protocol.Tool:
    meta = {"ui": {"resourceUri": WINDOW_URI}} if definition.name == "context" else None
    hints = protocol.ToolAnnotations(read_only_hint=True)
    if definition.writes:
        hints = protocol.ToolAnnotations(destructive_hint=False)
    return protocol.Tool(
        name=definition.name,
        description=definition.description,
        input_schema=definition.input_schema,
        output_schema=definition.output_schema,
        annotations=hints,
        _meta=meta,
    )


def _answer(answer: dict[str, Any]) -> protocol.CallToolResult:
    text = msgspec.json.encode(answer).decode()
    return protocol.CallToolResult(content=[protocol.TextContent(text=text)], structured_content=answer)


def _error(text: str) -> protocol.CallToolResult:
    message = sanitize_text(text[:LONGEST_ERROR])
    return protocol.CallToolResult(content=[protocol.TextContent(text=message)], is_error=True)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output until it closes them."""
    lines = _Lines(sys.stdin.buffer)
    stdin = cast("anyio.AsyncFile[str]", lines)  # the SDK only iterates over it
    async with stdio_server(stdin=stdin) as (read, write):
        lines.refuse = partial(_refuse, write)
        await server.run(read, write, server.create_initialization_options())


async def _refuse(write: Any, code: int, text: str, request_id: Any) -> None:
    """Answer a line that is no message."""
    error = protocol.JSONRPCError(jsonrpc="2.0", id=request_id, error=protocol.ErrorData(code=code, message=text))
    await write.send(SessionMessage(error))


class _Lines:
    """The lines of a stream that are messages. The SDK drops other lines, and their sender would wait for ever.

    Lone surrogates, which JavaScript writes as escapes and UTF-8 has none of, become U+FFFD.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = anyio.wrap_file(TextIOWrapper(stream, encoding="utf-8", errors="replace"))
        self.refuse: Callable[[int, str, Any], Awaitable[None]] | None = None

    async def __aiter__(self) -> AsyncGenerator[str]:
        async for line in self._lines:
            text = _without_surrogates(line) if _SURROGATE_ESCAPE.search(line) else line
            problem = _problem(text)
            if problem is None:
                yield text
            elif self.refuse is not None and text.strip():
                await self.refuse(*problem)


def _without_surrogates(line: str) -> str:
    """Return a JSON text without lone surrogates; one that is no JSON unchanged."""
    with suppress(ValueError, RecursionError):
        return sanitize_text(json.dumps(json.loads(line), ensure_ascii=False))
    return line


def _problem(line: str) -> tuple[int, str, Any] | None:
    """Return code, text and id of the error that a line gets which is no message; None for a message."""
    with suppress(ValueError):
        message = protocol.jsonrpc_message_adapter.validate_json(line, by_name=False)
        is_notification = isinstance(message, protocol.JSONRPCNotification)
        if not is_notification or "id" not in json.loads(line):  # with an `id` of null somebody waits
            return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return (
            protocol.PARSE_ERROR,
            "line is no JSON that can be read (send one JSON-RPC message a line, in UTF-8)",
            None,
        )
    request_id = cast("dict[str, Any]", value).get("id") if isinstance(value, dict) else None
    if isinstance(request_id, bool) or not isinstance(request_id, (str, int)):
        request_id = None
    return protocol.INVALID_REQUEST, "line is no JSON-RPC message (it needs jsonrpc, method, and an id)", request_id
