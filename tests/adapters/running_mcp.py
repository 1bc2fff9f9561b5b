"""The MCP server as tests run it: in this process, over HTTP on a thread, and as the command over standard streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import uvicorn
from mcp.server.lowlevel import Server

import nexus
from nexus.adapters.mcp_server.callers import McpEngines
from nexus.adapters.mcp_server.http import McpHttp, owner_of
from nexus.adapters.mcp_server.server import McpCaller, mcp_server
from nexus.server.http import open_socket, url_of
from nexus.server.security import AllowedSites, Tokens

TOKEN = "a-token-of-the-tests"


def server_of(nx: nexus.Engine, principal: str = "", *, writes: bool = True) -> Server[Any]:
    """Return a server for one caller, on an open engine."""
    engines = McpEngines(lambda _: nexus.AsyncEngine(nx), lambda _: True)
    caller = McpCaller(partial(engines.denial, "local", principal), partial(engines.call, "local", principal))

    async def find_caller(_: object) -> McpCaller:
        return caller

    return mcp_server(find_caller, "test", writes=writes)


@contextmanager
def running_http(
    folder: Path, *, needs_token: bool = True, principals: Mapping[str, str] | None = None, writes: bool = True
) -> Generator[str]:
    """Run the server of a folder's ledger on loopback, and yield its URL. `principals`: further tokens with theirs."""
    tokens = Tokens(dict.fromkeys((TOKEN, *(principals or {})), "local"), principals)
    engines = McpEngines(lambda _: nexus.AsyncEngine(nexus.open(folder)), lambda _: True)

    async def find_caller(ctx: Any) -> McpCaller:
        owner = owner_of(ctx.request)
        who = (owner.tenant, owner.principal)
        return McpCaller(partial(engines.denial, *who), partial(engines.call, *who))

    http = McpHttp(mcp_server(find_caller, "test", writes=writes), tokens, AllowedSites())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not needs_token:
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]}
        await http.app(scope, receive, send)
        if scope["type"] == "lifespan":
            await engines.close()

    listener = open_socket("127.0.0.1", 0)
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"{url_of(listener)}/mcp"
    finally:
        running.should_exit = True
        thread.join()
        listener.close()


class StdioClient:
    """The command `nexus mcp`, spoken to line by line. Used in `with`."""

    def __init__(self, *words: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nexus", "mcp", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
            env={**os.environ, **(env or {})},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> str:
        """Close its input, wait for its end and return what it wrote to standard error."""
        _, errors = self.process.communicate(timeout=30)
        return errors.decode()

    def send(self, line: bytes) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Return the next message; every line is one."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the answer."""
        self.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}).encode())
        return self.receive()

    def initialize(self, version: str) -> dict[str, Any]:
        """Shake hands in a version of the protocol, and return the server's answer."""
        info = {"name": "test", "version": "1"}
        answer = self.request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": info})
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer["result"]

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        return self.request("tools/call", {"name": name, "arguments": arguments})["result"]
