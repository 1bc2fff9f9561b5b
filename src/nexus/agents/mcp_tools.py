"""Tools of MCP servers: programs on this machine (stdio) and addresses (streamable HTTP), through the package `mcp`.

`open_mcp_tools` connects to the servers of `mcp.json` and offers their tools as `mcp__SERVER__TOOL`. A server that fails is
a warning. A server that stopped is started again when one of its tools is called next.

Text of a server is another program's: descriptions are cleaned and shortened. Values of variables, headers and credentials
reach the server alone; where they appear in its answers or errors, they are masked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import msgspec
from msgspec import Struct

from nexus.agents.mcp_messages import ANSWER_LOST, DESCRIPTION_CHARS, ENCODING, MAX_ANSWER_BYTES, WatchedStream
from nexus.agents.mcp_servers import NAME_CHARS, CannotStart, ResolvedServer, resolve_server, tool_name
from nexus.engine import Engine
from nexus.errors import BadTool, CredentialError, PackageMissing, ToolCallFailed
from nexus.text.redact import redact
from nexus.tools import ToolRegistry
from nexus.types.block import ContextWarning
from nexus.types.message import Image, Text, ToolResult
from nexus.types.sanitize import sanitize_text
from nexus.workspace.attachments import with_dimensions
from nexus.workspace.config import McpServer, read_configuration
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.skills.skill_file import printable_line

if TYPE_CHECKING:  # the package is optional and takes half a second to import
    import mcp_types
    from mcp import Client
    from mcp.client import Transport

CATEGORY = "mcp"
PARAMETER_CHARS = 500
SCHEMA_CHARS = 20_000
RESULT_CHARS = 1_000_000
IMAGE_CHARS = 7_000_000  # base64 of five megabytes
MAX_TOOLS = 300  # tools of one server
ERROR_CHARS = 300
STDERR_BYTES = 4_000
STOP_S = 15.0
"""Seconds that a server has to stop; the package ends its process after two."""

STREAM_S = 300.0
"""Seconds without any data after which a stream of events is opened again."""

IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
IMAGE_NAMES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/apng": "image/png",
}
"""Other names of them."""


class McpTools(Struct, frozen=True):
    """The tools of connected servers, and a warning for each server or tool that is left out."""

    registry: ToolRegistry
    warnings: tuple[ContextWarning, ...] = ()
    servers: tuple[str, ...] = ()
    """Names of the connected servers."""
    read_only: frozenset[str] = frozenset()
    """Names of the tools that their servers declare as read-only."""

    def with_confirmation(self) -> ToolRegistry:
        """Return the tools, of which all that are not declared read-only need confirmation."""
        registry = ToolRegistry()
        for tool in self.registry.tools():
            registry.register(
                tool.definition(),
                tool.function,
                category=tool.category,
                repeatable=tool.repeatable,
                needs_confirmation=tool.name not in self.read_only,
            )
        return registry


def configured_servers(engine: Engine) -> tuple[McpServer, ...]:
    """Return the servers of the user and the workspace, from their `mcp.json`. Raises BadConfig."""
    return read_configuration(engine.workspace, engine.credentials.home).servers


@asynccontextmanager
async def open_mcp_tools(
    servers: Iterable[McpServer],
    credentials: Credentials,
    *,
    workspace_servers: bool = False,
    connect_timeout_s: float = 30.0,
    call_timeout_s: float = 120.0,
) -> AsyncGenerator[McpTools]:
    """Connect to servers at the same time, yield their tools, and stop the servers at the end.

    Args:
        servers: Entries of `mcp.json` (`configured_servers`).
        credentials: Values of `${credential:NAME}` in the entries; `${NAME}` is an environment variable.
        workspace_servers: Also start the programs that the workspace's own file names. Somebody else may have chosen them,
            so they get no references.
        connect_timeout_s: Seconds for a server's start and the list of its tools.
        call_timeout_s: Seconds for a call.

    Raises PackageMissing.
    """
    try:
        import mcp
    except ImportError as error:
        raise PackageMissing("mcp", "tools of MCP servers", "mcp") from error
    # Without a handler, the package's reports of broken connections would be printed with their tracebacks.
    logging.getLogger(mcp.__name__).addHandler(logging.NullHandler())
    connections: list[_ServerConnection] = []
    warnings: list[ContextWarning] = []
    for server in servers:
        if not (server.is_users or workspace_servers):
            text = f"MCP server {server.name!r} not started: it is the workspace's choice (allow it, or add it to your own file)"
            warnings.append(ContextWarning(server.origin, text))
            continue
        try:
            connections.append(
                _ServerConnection(resolve_server(server, credentials), connect_timeout_s, call_timeout_s)
            )
        except (CannotStart, CredentialError) as error:
            warnings.append(ContextWarning(server.origin, f"MCP server {server.name!r} not started: {error}"))
    try:
        registry = ToolRegistry()
        connected = list[str]()
        for connection, error in zip(connections, await asyncio.gather(*map(_started, connections)), strict=True):
            name = connection.server.name
            origin = connection.server.origin
            if error:
                warnings.append(ContextWarning(origin, f"MCP server {name!r} not connected: {error}"))
                continue
            connected.append(name)
            warnings += (ContextWarning(origin, text) for text in connection.register(registry))
        read_only = frozenset(name for connection in connections for name in connection.read_only)
        yield McpTools(registry, tuple(warnings), tuple(connected), read_only)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


# connections --------------------------------------------------------------------------------------------------------


class _ServerConnection:
    """One server. The package's client is entered and left in a task of its own, as its task groups require."""

    def __init__(self, resolved: ResolvedServer, connect_timeout_s: float, call_timeout_s: float) -> None:
        self._resolved = resolved
        self.server = resolved.server
        self._connect_timeout_s = connect_timeout_s
        self._call_timeout_s = call_timeout_s
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._ended = asyncio.Event()
        self._stopped = asyncio.Event()
        self._tools: list[mcp_types.Tool] = []
        self._problems: list[str] = []
        self.read_only: set[str] = set()
        # A program writes its errors to this file; nobody else may read it.
        self._errors: TextIO = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed in `close`

    async def start(self) -> None:
        """Connect and list the tools. Raises CannotStart."""
        self._ended, self._stopped = asyncio.Event(), asyncio.Event()
        self._problems.clear()
        _clear(self._errors)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = self._task = asyncio.create_task(self._serve(ready))
        await asyncio.wait({task, ready}, timeout=self._connect_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and not task.done():
            return
        if task.done():
            why = self._reason(None if task.cancelled() else task.exception())
        else:
            why = f"no answer within {self._connect_timeout_s:g} seconds"
            await self.stop()
        raise CannotStart(f"{why}{self._last_error()}")

    async def stop(self) -> None:
        """End the connection, and the server's process."""
        self._stopped.set()
        if (task := self._task) is None:
            return
        await asyncio.wait({task}, timeout=STOP_S if self._client is not None else 0)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_S)
        if task.done() and not task.cancelled():
            task.exception()  # a connection that broke was reported where it was used

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        self._errors.close()

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        """Be connected until the server ends or `stop` is called."""
        from mcp import Client

        try:
            transport = cast("Transport", self._streams())
            async with Client(transport, read_timeout_seconds=self._connect_timeout_s) as client:
                self._tools, does_repeat = await _all_tools(client)
                if does_repeat:
                    self._problems.append("its list of tools repeats itself; the rest of it is left out")
                self._client = client
                ready.set_result(None)
                waits = [asyncio.create_task(event.wait()) for event in (self._ended, self._stopped)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
        finally:
            self._client = None
            self._ended.set()

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Yield the streams of the server, and close everything behind them."""
        server = self.server
        async with AsyncExitStack() as stack:
            if server.url:
                from mcp.client.streamable_http import streamable_http_client

                from nexus.agents.mcp_http import open_http

                read_timeout_s = max(self._call_timeout_s, STREAM_S)
                client = open_http(
                    server.headers, connect_timeout_s=self._connect_timeout_s, read_timeout_s=read_timeout_s
                )
                http = await stack.enter_async_context(client)
                transport = streamable_http_client(
                    server.url, http_client=http, max_sse_event_size=2 * MAX_ANSWER_BYTES
                )
            else:
                from mcp import StdioServerParameters, stdio_client

                program = StdioServerParameters(
                    command=server.command,
                    args=list(server.args),
                    env=dict(server.env),
                    cwd=server.cwd or None,
                    encoding=ENCODING,
                )
                transport = stdio_client(program, errlog=self._errors)
            read, write = await stack.enter_async_context(transport)
            yield WatchedStream(read, self._ended, self._problems), write

    def register(self, registry: ToolRegistry) -> list[str]:
        """Add the server's tools to a registry; return a warning for each that is left out."""
        warnings = [f"MCP server {self.server.name!r}: {self._line(problem)}" for problem in self._problems]
        if len(self._tools) > MAX_TOOLS:
            warnings.append(f"MCP server {self.server.name!r} has over {MAX_TOOLS} tools; the others are left out")
        for tool in self._tools[:MAX_TOOLS]:
            try:
                repeatable = _may_repeat(tool)
                function = self._function(tool, may_repeat=repeatable)
                added = registry.register(self._definition(tool), function, category=CATEGORY, repeatable=repeatable)
                if tool.annotations is not None and tool.annotations.read_only_hint:
                    self.read_only.add(added.name)
            except BadTool as error:
                name = self._line(tool.name)[:NAME_CHARS]
                text = self._line(str(error))
                warnings.append(f"tool {name!r} of MCP server {self.server.name!r} omitted: {text}")
        return warnings

    def _definition(self, tool: mcp_types.Tool) -> dict[str, Any]:
        """Return the definition that a model is given. Raises BadTool for a schema that providers reject."""
        schema = cast("dict[str, Any]", self._clean(tool.input_schema))
        if len(msgspec.json.encode(schema)) > SCHEMA_CHARS:
            raise BadTool(f"its schema has over {SCHEMA_CHARS:,} characters")
        lines = self._resolved.masked(tool.description or tool.title or "").split("\n")
        text = "\n".join(map(printable_line, lines)).strip()
        if len(text) <= DESCRIPTION_CHARS:
            short = text
        else:
            short = f"{text[:DESCRIPTION_CHARS]}…"
        return {
            "name": tool_name(self.server.name, self._resolved.masked(tool.name)),
            "description": short,
            "parameters": schema,
        }

    def _clean(self, value: Any) -> Any:
        """Return a schema with one-line texts without control characters and secrets."""
        if isinstance(value, dict):
            return {sanitize_text(str(key)): self._clean(item) for key, item in cast("dict[Any, Any]", value).items()}
        if isinstance(value, list):
            return [self._clean(item) for item in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        text = printable_line(self._resolved.masked(value))
        if len(text) <= PARAMETER_CHARS:
            return text
        return f"{text[:PARAMETER_CHARS]}…"

    def _function(self, tool: mcp_types.Tool, *, may_repeat: bool) -> Callable[..., Awaitable[ToolResult]]:
        """Return the function that calls a tool. Its name in the server may differ from the one that is offered."""

        async def call(**arguments: Any) -> ToolResult:
            return await self._call(tool.name, arguments, may_repeat=may_repeat)

        return call

    async def _call(self, tool: str, arguments: Mapping[str, Any], *, may_repeat: bool) -> ToolResult:
        name = self.server.name
        for attempt in (1, 2):
            client = await self._connected()
            ended = self._ended  # of this connection: a call at the same time may start the server again
            _clear(self._errors)
            try:
                async with asyncio.timeout(self._call_timeout_s):
                    return self._result(await client.call_tool(tool, dict(arguments), 2 * self._call_timeout_s))
            except TimeoutError:
                text = f"MCP server {name!r} did not answer within {self._call_timeout_s:g} seconds"
                raise ToolCallFailed(f"{text} (ask for less at once)") from None
            except Exception as error:  # noqa: BLE001 - the package lets errors of its transports through
                await asyncio.sleep(0)  # the end of the connection may be noticed in this moment
                if not ended.is_set() and _code_of(error) == ANSWER_LOST:
                    raise ToolCallFailed(f"MCP server {name!r}: {self._reason(error)}") from None
                if not ended.is_set() and not _is_closed(error):
                    raise ToolCallFailed(f"MCP server {name!r} refused the call: {self._reason(error)}") from None
                ended.set()
                if not may_repeat or attempt == 2:
                    break
        raise ToolCallFailed(
            f"MCP server {name!r} stopped during this call, which may have had an effect (check that before you call again; "
            "the server is started again then)"
        )

    async def _connected(self) -> Client:
        """Return the client, after a new start if the server has ended. Raises ToolCallFailed."""
        async with self._lock:
            if self._errors.closed:
                raise ToolCallFailed(f"MCP server {self.server.name!r} is no longer connected")
            if self._client is None or self._ended.is_set():
                try:
                    await self.stop()
                    await self.start()
                except CannotStart as error:
                    text = f"MCP server {self.server.name!r} stopped and cannot be started again: {error}"
                    raise ToolCallFailed(text) from None
            if self._client is None:
                raise ToolCallFailed(f"MCP server {self.server.name!r} is not connected")
            return self._client

    def _result(self, result: mcp_types.CallToolResult) -> ToolResult:
        """Return a server's result as a tool's, images included."""
        content = [self._item(item) for item in result.content]
        if not content and result.structured_content is not None:
            content = [Text(msgspec.json.encode(result.structured_content, enc_hook=str).decode())]
        remaining = RESULT_CHARS
        limited: list[Text | Image] = []
        for item in content:
            if isinstance(item, Text):
                text = sanitize_text(self._resolved.masked(item.text))
                if len(text) > remaining:
                    text = f"{text[:remaining]}\n[… {len(text) - remaining:,} characters left out …]"
                remaining = max(remaining - len(text), 0)
                limited.append(Text(text))
            else:
                limited.append(item)
        return ToolResult("", tuple(limited), is_error=bool(result.is_error))

    def _item(self, item: Any) -> Text | Image:
        match item.type:
            case "text":
                return Text(item.text)
            case "image" | "audio":
                return _image(item.mime_type, item.data)
            case "resource_link":
                about = " ".join(part for part in (item.title or item.name, item.description) if part)
                return Text(f"[resource {printable_line(item.uri)}: {printable_line(about)}]")
            case _:
                resource = item.resource
                if (text := getattr(resource, "text", None)) is not None:
                    return Text(f"[resource {printable_line(resource.uri)}]\n{text}")
                return _image(resource.mime_type or "", resource.blob)

    def _reason(self, error: BaseException | None) -> str:
        """Return an error on one line, without secrets and without the types of its wrappers."""
        while isinstance(error, BaseExceptionGroup):
            error = next(iter(cast("tuple[BaseException, ...]", error.exceptions)))
        if isinstance(error, FileNotFoundError):
            return f"{error.filename or self.server.command!r} not found"
        if error is None:
            return "the server ended"
        return self._line(str(error)) or type(error).__name__

    def _last_error(self) -> str:
        """Return the last line that a program wrote to its standard error, in parentheses."""
        handle = self._errors.fileno()
        os.lseek(handle, max(os.fstat(handle).st_size - STDERR_BYTES, 0), os.SEEK_SET)
        tail = os.read(handle, STDERR_BYTES).decode("utf-8", "replace")
        line = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
        if line:
            return f" ({self._line(line)})"
        return ""

    def _line(self, text: str) -> str:
        line = printable_line(redact(self._resolved.masked(text)).text)
        if len(line) <= ERROR_CHARS:
            return line
        return f"{line[:ERROR_CHARS]}…"


async def _started(connection: _ServerConnection) -> str:
    """Start a connection; return the reason if it fails."""
    try:
        await connection.start()
    except CannotStart as error:
        return str(error)
    return ""


async def _all_tools(client: Client) -> tuple[list[mcp_types.Tool], bool]:
    """Return a server's tools, page by page, a few more than are used at most, and whether its pages repeat themselves."""
    tools: dict[str, mcp_types.Tool] = {}
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(MAX_TOOLS):
        page = await client.list_tools(cursor=cursor)
        names = {tool.name for tool in page.tools}
        if cursor is not None and names and names <= tools.keys():
            return list(tools.values()), True
        for tool in page.tools:
            tools.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if cursor is None or len(tools) > MAX_TOOLS:
            break
        if cursor in cursors:
            return list(tools.values()), True
        cursors.add(cursor)
    return list(tools.values()), False


def _clear(file: TextIO) -> None:
    """Empty a file that a program writes to. The position is common to both processes."""
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    os.ftruncate(file.fileno(), 0)


def _is_closed(error: Exception) -> bool:
    """Return whether an error of the package says that the connection has ended."""
    from mcp_types import CONNECTION_CLOSED

    return _code_of(error) == CONNECTION_CLOSED


def _code_of(error: Exception) -> int | None:
    """Return the code of an error that answers a request."""
    from mcp import MCPError

    if isinstance(error, MCPError):
        return error.code
    return None


def _image(media_type: str, data: str) -> Text | Image:
    """Return an image, or a note for data that no model is shown."""
    name = media_type.partition(";")[0].strip().lower()
    name = IMAGE_NAMES.get(name, name)
    if name in IMAGE_TYPES and len(data) <= IMAGE_CHARS:
        image = with_dimensions(Image(name, data))
        if image.width:
            return image
    return Text(f"[{printable_line(media_type)[:80] or 'data'}, {len(data) * 3 // 4:,} bytes, cannot be shown]")


def _may_repeat(tool: mcp_types.Tool) -> bool:
    """Return True for a tool that its server declares as read-only or idempotent."""
    hints = tool.annotations
    return bool(hints and (hints.read_only_hint or hints.idempotent_hint))
