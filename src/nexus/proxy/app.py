"""The proxy as an ASGI application: checks, its own pages, and the way of all other requests.

Order of the checks: Host, Origin, token, size of the body.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import unquote

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nexus.engine.async_engine import AsyncEngine
from nexus.errors import NexusError
from nexus.providers.errors.bodies import error_body
from nexus.proxy.clients import client_name, place_of
from nexus.proxy.exchange import BrokenAnswer, Exchange, Incoming, Refusal
from nexus.proxy.metrics import CONTENT_TYPE, ProxyMetrics
from nexus.proxy.pages import explained, status_of, text_of_call
from nexus.proxy.recording import CallRecorder
from nexus.proxy.reports import CallReport, Reports, new_id, stored_report
from nexus.proxy.requests import ClientRequest, format_of
from nexus.proxy.retention import Retention
from nexus.proxy.running import TOKEN_HEADER
from nexus.proxy.settings import ProxySettings
from nexus.proxy.spans import call_span
from nexus.proxy.upstream import open_client, request_headers
from nexus.server.logs import describe_failure
from nexus.server.security import AllowedSites, Tokens
from nexus.types.decoding import decodable

LOG = logging.getLogger("nexus.proxy")

OWNER = "\0owner"
"""In place of a user: whoever started the proxy. No user has this name."""

MAX_BODY_BYTES = 256 * 2**20

OWN_PATHS = "/nexus/"
"""Beginning of the paths that are the proxy's own."""

TOKEN_PATH = "/nexus/as/"  # noqa: S105 - a path
"""Before a token and the client's path, for clients that send no headers of their own."""

Message: TypeAlias = MutableMapping[str, Any]


class Proxy:
    """A proxy, as the ASGI application `app`.

    Args:
        settings: What it does with requests.
        nx: The engine that it records with.
        sites: Hosts and origins that are answered.
        tokens: Tokens of its users; None if everybody who reaches it may use it.
        owner_token: Token of whoever started it: sees its status and the calls of all users, and sets its mode.
        clock_ms: Returns the current time.
    """

    def __init__(
        self,
        settings: ProxySettings,
        nx: AsyncEngine,
        sites: AllowedSites,
        tokens: Tokens | None,
        owner_token: str,
        clock_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.reports = Reports()
        self.counts: Counter[str] = Counter()
        """Calls of models by outcome, and those that are not recorded."""
        self._mode_when_on = settings.mode
        self._metrics = ProxyMetrics()
        self._nx = nx
        self._recorder = CallRecorder(nx)
        self._sites = sites
        self._tokens = tokens
        self._owner_token = owner_token
        self._name = f"nexus-proxy-{secrets.token_hex(8)}"
        self._clock_ms = clock_ms
        self._client: httpx.AsyncClient | None = None
        self._own = Starlette(
            routes=[
                Route("/nexus/health", self._health, methods=["GET"]),
                Route("/nexus/metrics", self._metrics_page, methods=["GET"]),
                Route("/nexus/status", self._status, methods=["GET"]),
                Route("/nexus/calls/{call_id}", self._call, methods=["GET"]),
                Route("/nexus/mode", self._set_mode, methods=["POST"]),
            ],
            exception_handlers={404: _no_page, 405: _no_page},
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._respond(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._open():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with open_client() as client:
            self._client = client
            stopping = asyncio.Event()
            tasks: set[asyncio.Future[None]] = {asyncio.ensure_future(self._nx.warm())}
            if self.settings.retain:
                nx = self._nx.engine
                retention = Retention(nx.ledger, self.settings.retain_ms, nx.clock_ms, self.reports.forget)
                tasks.add(asyncio.ensure_future(retention.run(stopping)))
            yield
            await self._recorder.settle()
            stopping.set()
            await asyncio.wait(tasks)

    # requests ----------------------------------------------------------------------------------------------------

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope, token = _without_token(scope)
        request = Request(scope, receive)
        format_ = format_of(request.method, scope["path"])
        try:
            _check_target(request)
            user = self._checked(request, token)
            if scope["path"].startswith(OWN_PATHS):
                scope["user"] = user
                await self._own(scope, receive, send)
                return
            data = await _body(request)
            exchange = self._exchange(request, data, user)
            with call_span(exchange.report, request.headers.get("traceparent", "")):
                await self._until_gone(exchange, receive, send)
        except Refusal as refusal:
            body = error_body(format_ or "openai", refusal.status, str(refusal), **refusal.fields)
            await JSONResponse(body, refusal.status, refusal.headers)(scope, receive, send)
        except (BrokenAnswer, ClientDisconnect):
            return  # without an end, so that the connection is closed
        except Exception as error:  # noqa: BLE001 - uvicorn would log it with its texts
            LOG.error("internal error: %s", describe_failure(error))  # noqa: TRY400 - a traceback may have texts
            body = error_body(format_ or "openai", 500, "nexus proxy: internal error (its log has it)")
            await JSONResponse(body, 500)(scope, receive, send)

    def _checked(self, request: Request, token: str) -> str:
        """Return the user of a request. Raises Refusal."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if not self._sites.has_host(host):
            raise Refusal(421, "nexus proxy: not the name of this server in Host (use 127.0.0.1, or --allow-host)")
        if origin is not None and not self._sites.has_origin(origin, host):
            raise Refusal(403, "nexus proxy: pages of other sites may not use it (--allow-origin)")
        token = token or request.headers.get(TOKEN_HEADER, "")
        if request.url.path.startswith(OWN_PATHS) and secrets.compare_digest(
            token.encode(), self._owner_token.encode()
        ):
            return OWNER
        if self._tokens is None:
            return ""
        tenant = self._tokens.tenant_of(f"Bearer {token}")
        if tenant is None:
            raise Refusal(
                401,
                f"nexus proxy: token missing or wrong (header {TOKEN_HEADER}, or {TOKEN_PATH}TOKEN before the path)",
            )
        return tenant

    def _exchange(self, request: Request, data: bytes, user: str) -> Exchange:
        """Return a request with all that its way needs. Raises Refusal."""
        assert self._client is not None
        settings = self.settings
        headers = request.headers
        if any(self._name in value for value in headers.getlist("via")):
            raise Refusal(508, "nexus proxy: the upstream is this proxy itself (set another one with --upstream)")
        path = request.url.path
        format_ = format_of(request.method, path)
        model_request = None
        model = ""
        if format_ is not None:
            model_request = ClientRequest(format_, path, data, headers.get("content-encoding", ""))
            model = model_request.model
        client = client_name(headers)
        upstream = settings.upstream_for(format_ or _family(request), client, model, path)
        if not upstream:
            raise Refusal(404, f"nexus proxy: no upstream for {path[:100]} (add --upstream URL)")
        target = request.scope["raw_path"] or path.encode()
        if request.scope["query_string"]:
            target += b"?" + request.scope["query_string"]
        incoming = Incoming(request.method, target, request_headers(headers.raw, self._name), data, upstream)
        report = CallReport(id=new_id(), at_ms=self._clock_ms(), client=client, path=path, upstream=upstream)
        report.mode = settings.mode
        report.received_bytes = len(data)
        report.no_text = settings.no_text
        if model_request is None:
            return Exchange(self._client, settings, incoming, place_of(headers, None, settings, user), report)
        place = place_of(headers, model_request, settings, user)
        report.format = model_request.format
        report.model = model
        report.conversation = place.conversation
        report.user = place.user
        recorder = self._recorder if settings.mode != "off" else None
        self.reports.add(report)
        return Exchange(self._client, settings, incoming, place, report, model_request, recorder)

    async def _until_gone(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        """Run an exchange until it ends or its client is gone; then the upstream's connection is closed too."""
        running = asyncio.ensure_future(exchange.run(send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                exchange.report.error = "client gone"
                running.cancel()
            await asyncio.wait({running})
        finally:
            leaving.cancel()
            running.cancel()
            await self._end(exchange)
        if running.cancelled():
            raise BrokenAnswer
        error = running.exception()
        if error is None:
            return
        if isinstance(error, Refusal):
            error.headers = {name.decode(): value.decode() for name, value in exchange.own_headers()}
        if isinstance(error, (Refusal, BrokenAnswer)):
            raise error
        if isinstance(error, OSError):  # the client does not read any more
            raise BrokenAnswer from error
        exchange.report.error = f"internal error: {type(error).__name__}"
        if exchange.report.status:  # the answer has begun
            LOG.error("internal error: %s", describe_failure(error))
            raise BrokenAnswer from error
        raise error

    async def _end(self, exchange: Exchange) -> None:
        """Count a call, once it is recorded, and store the report of one that is not."""
        exchange.report.duration_ms = exchange.elapsed_ms()
        if exchange.request is None:
            return
        recording = exchange.record.recording if exchange.record is not None else None
        if recording is not None:
            recording.add_done_callback(lambda _: self._count(exchange))
            return
        self._count(exchange)
        if exchange.recorder is not None:
            with suppress(asyncio.CancelledError):
                await exchange.recorder.save(exchange.report, exchange.request)

    def _count(self, exchange: Exchange) -> None:
        report = exchange.report
        self._metrics.add(report)
        self.counts["calls"] += 1
        self.counts[report.outcome] += 1
        self.counts["errors"] += bool(report.error)
        if exchange.recorder is None:
            self.counts["off"] += 1
        elif report.no_text:
            self.counts["without text"] += 1
        elif not report.session:
            self.counts["not recorded"] += 1

    # its own pages -----------------------------------------------------------------------------------------------

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok", "mode": self.settings.mode})

    async def _metrics_page(self, request: Request) -> Response:
        if request.scope["user"] != OWNER:
            return _not_yours()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def _status(self, request: Request) -> Response:
        if request.scope["user"] != OWNER:
            return _not_yours()
        return JSONResponse(status_of(self.settings, self.counts, self.reports.newest()))

    async def _call(self, request: Request) -> Response:
        call_id = request.path_params["call_id"]
        store = self._nx.engine.ledger.store
        try:
            report = self.reports.get(call_id) or await self._nx.run(stored_report, store, call_id)
            if report is None or not self._may_see(request.scope["user"], report):
                return JSONResponse({"error": f"call {call_id[:40]!r} not found"}, 404)
            values = await self._nx.run(explained, self._nx.engine, report)
        except NexusError as error:
            return JSONResponse({"error": str(error), "code": error.code}, 409)
        if _wants_text(request.headers):
            return PlainTextResponse(text_of_call(values))
        return JSONResponse(values)

    def _may_see(self, user: str, report: CallReport) -> bool:
        """Return True if a call is the user's; without tokens everybody who has its id may see it."""
        return self._tokens is None or user in (OWNER, report.user)

    async def _set_mode(self, request: Request) -> Response:
        if request.scope["user"] != OWNER:
            return _not_yours()
        try:
            mode = json.loads(await _body(request))["mode"]
            if mode == "on":
                mode = self._mode_when_on
            values = {**msgspec.structs.asdict(self.settings), "mode": mode}
            self.settings = msgspec.convert(values, decodable(ProxySettings))
            if self.settings.mode != "off":
                self._mode_when_on = self.settings.mode
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            return JSONResponse({"error": str(error)[:300]}, 400)
        return JSONResponse({"mode": self.settings.mode})


async def _no_page(request: Request, _error: Exception) -> Response:
    text = f"no page {request.method} {request.url.path[:100]} (docs/proxy.md lists them)"
    return JSONResponse({"error": text}, 404)


def _not_yours() -> Response:
    text = f"only for the owner of the proxy (nexus proxy status; or its token from ~/.nexus/proxies in {TOKEN_HEADER})"
    return JSONResponse({"error": text}, 403)


def _without_token(scope: Scope) -> tuple[Scope, str]:
    """Return a request without the token in its path, and the token; empty if the path has none.

    Both paths are read from the one that goes on, as it was received: otherwise an escaped character would be a way to
    send a token upstream.
    """
    raw_path: bytes = scope["raw_path"]
    if not raw_path.startswith(TOKEN_PATH.encode()):
        return scope, ""
    token, _, rest = raw_path.removeprefix(TOKEN_PATH.encode()).partition(b"/")
    return {**scope, "path": unquote(f"/{rest.decode()}"), "raw_path": b"/" + rest}, unquote(token.decode())


def _check_target(request: Request) -> None:
    """Raise Refusal for a request that is for another server, or that would show its keys in the answer."""
    path: bytes = request.scope["raw_path"]
    if not path.startswith(b"/"):
        raise Refusal(
            400, "nexus proxy: address with a host, or without a path (send the path alone: POST /v1/messages)"
        )
    if request.scope["path"].startswith(TOKEN_PATH):
        raise Refusal(400, f"nexus proxy: {TOKEN_PATH} is written with escapes, or twice (write it once, as it is)")
    if request.method in ("TRACE", "CONNECT"):
        raise Refusal(405, f"nexus proxy: no requests with {request.method}")


def _family(request: Request) -> Any:
    """Return the format of the provider that a request without a model is for, by its path and headers."""
    path = request.url.path
    headers = request.headers
    if path.startswith(("/v1beta", "/v1alpha", "/upload/")) or "x-goog-api-key" in headers:
        return "gemini"
    if "anthropic-version" in headers or "/messages" in path:
        return "anthropic"
    if path.startswith("/v1/"):
        return "openai"
    return None


def _wants_text(headers: Mapping[str, str]) -> bool:
    accept = headers.get("accept", "")
    return "text/" in accept and "json" not in accept


async def _body(request: Request) -> bytes:
    """Return a request's body. Raises Refusal."""
    chunks: list[bytes] = []
    size = 0
    too_large = Refusal(413, f"nexus proxy: body has more than {MAX_BODY_BYTES:,} bytes")
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise too_large
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)


async def _disconnected(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
