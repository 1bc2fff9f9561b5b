"""The MCP server over HTTP. Order of the checks: Host, Origin, path, token, rate; the SDK checks the rest.

Each request is complete in itself: its caller is the one of its own token, and no session of another token can be continued.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from nexus.errors import PackageMissing
from nexus.server.security import AllowedSites, RateLimit, TokenOwner, Tokens

try:
    from mcp.server.lowlevel import Server
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from nexus.server.http import serve_app
except ImportError as error:
    raise PackageMissing(error.name or "starlette", "the MCP server over HTTP", "mcp,server") from error

PATH = "/mcp"
BODY_BYTES = 1 << 20
PER_SECOND = 100.0
BURST = 400
GRACE_S = 10.0
SEND_S = 60.0
_OWNER = "nexus.token_owner"
"""Key of a request's scope."""

_HEADERS = (
    "Authorization",
    "Content-Type",
    "Mcp-Protocol-Version",
    "Mcp-Session-Id",
    "Mcp-Method",
    "Mcp-Name",
    "Last-Event-ID",
)
"""Headers that pages of allowed origins may send."""


def owner_of(request: Any) -> TokenOwner:
    """Return whose token a request has that passed `McpHttp`."""
    owner: TokenOwner = request.scope[_OWNER]
    return owner


class McpHttp:
    """The application of an MCP server: admits the requests that it may answer.

    Args:
        server: The server.
        tokens: The tokens with their owners.
        sites: Hosts and origins that are answered.
    """

    def __init__(self, server: Server[Any], tokens: Tokens, sites: AllowedSites) -> None:
        starlette = server.streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,
            max_request_body_size=BODY_BYTES,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # checked here
        )
        starlette.router.redirect_slashes = False
        self._admitted: ASGIApp = starlette
        self._tokens = tokens
        self._sites = sites
        self._rate = RateLimit(PER_SECOND, BURST)
        self.app: ASGIApp = self._answer
        if sites.origins:  # without these headers a browser lets none of their pages read an answer
            self.app = CORSMiddleware(
                self._answer,
                allow_origins=sites.origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=_HEADERS,
                expose_headers=("Retry-After", "Mcp-Session-Id"),
            )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._admitted(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._admitted(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that is not admitted; otherwise None, with its owner in its scope."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._sites.has_host(hosts[0]):
            return _refused(421, "host is not this server's (allow it: nexus mcp --http --allow-host NAME)")
        origins = request.headers.getlist("origin")
        if any(not self._sites.has_origin(origin, hosts[0]) for origin in origins):
            return _refused(403, "origin is another site (allow it: nexus mcp --http --allow-origin ORIGIN)")
        if request.url.path != PATH:
            return _refused(404, f"path not found (use {PATH})")
        values = request.headers.getlist("authorization")
        owner = self._tokens.owner_of(values[0]) if len(values) == 1 else None
        if owner is None:
            text = "token missing or wrong (send `Authorization: Bearer TOKEN`; `nexus mcp --http` says where the token is)"
            return _refused(401, text, {"WWW-Authenticate": "Bearer"})
        if wait_s := self._rate.wait_s(f"{owner.tenant}\n{owner.principal}"):
            text = f"too many requests (at most {PER_SECOND:g} per second)"
            return _refused(429, text, {"Retry-After": str(math.ceil(wait_s))})
        request.scope[_OWNER] = owner
        return None


def _refused(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Return a refusal as an error of JSON-RPC without an id."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32_000, "message": text}}
    return Response(
        msgspec.json.encode(body), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json"
    )


async def serve_mcp_http(
    server: Server[Any],
    tokens: Tokens,
    listener: socket.socket,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    started: Callable[[], None] | None = None,
    stop_work: Callable[[], Awaitable[None]],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        server: The server.
        tokens: The tokens with their owners.
        listener: A socket of `nexus.server.http.open_socket`. It is closed at the end.
        hosts: Further names of this server in `Host`.
        origins: Sites whose pages may call it.
        started: Called when it accepts requests.
        stop_work: Awaited before it stops to answer.
    """
    sites = AllowedSites((str(listener.getsockname()[0]), *hosts), tuple(origins))
    await serve_app(
        McpHttp(server, tokens, sites).app,
        listener,
        stopping=asyncio.Event(),
        stop_work=stop_work,
        grace_s=GRACE_S,
        send_s=SEND_S,
        started=started,
    )
