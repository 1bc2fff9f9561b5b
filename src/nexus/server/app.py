"""The HTTP side: routes, and everything that is checked before a method runs.

Order of the checks: Host, Origin, path and method, token, media type, size and time of the body, rate. Each refusal has
its status and a JSON body in the form of a JSON-RPC error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nexus.errors import NexusError, NotAccepted, NotFound
from nexus.models.tracing import continued_trace
from nexus.server.access_log import CURRENT, AccessRecord
from nexus.server.agents import StoredAgent, is_valid_id
from nexus.server.forms import Case
from nexus.server.jsonrpc import (
    INVALID_REQUEST,
    LOG,
    PARSE_ERROR,
    REFUSALS,
    SERVER_ERROR,
    RequestId,
    RpcError,
    answer_value,
    check_batch,
    id_of,
    parse,
    refusal,
)
from nexus.server.logs import describe_failure
from nexus.server.metrics import CONTENT_TYPE, Metrics
from nexus.server.security import AllowedSites, RateLimit, Tokens
from nexus.server.service import Service
from nexus.server.streams import KEEP_ALIVE_S, StreamItem, own_item, sse

CASE_HEADER = "nexus-case"
_LARGE_BODY = 100_000
"""Bytes of a body above which it is parsed in a thread."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

_ALLOWED_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID", "Nexus-Case", "traceparent", "tracestate")
"""Headers that pages of allowed origins may send."""

_TEXTS = {404: "path not found (use /rpc, /agent/ID or /agent/ID/events)", 405: "HTTP method not allowed here"}

_ROUTES = ("/", "/rpc", "/health", "/ready", "/metrics")

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class HttpLimits(Struct, frozen=True):
    """Limits of requests."""

    body_bytes: int = 10 * 2**20
    body_s: float = 30.0
    """Seconds for a body to arrive."""
    per_second: float = 100.0
    """Requests of a tenant, on average. Each one of a batch counts."""
    burst: int = 400
    streams: int = 500
    """Open streams of a tenant."""
    send_s: float = 60.0
    """Seconds after which a client is disconnected that does not read its response."""


class Refused(Exception):
    """A request that is refused before its method runs. Without a code it has the one of its status."""

    def __init__(self, status: int, text: str, code: str = "", **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.headers = headers
        self.request_id: RequestId = None
        """Id of the refused message, once it is read."""


class HttpServer:
    """The routes of a server, as the ASGI application `app`.

    Args:
        service: Runs the methods.
        tokens: The tokens with their tenants.
        sites: Hosts and origins that are answered.
        limits: Limits of requests.
    """

    def __init__(
        self, service: Service, tokens: Tokens, sites: AllowedSites | None = None, limits: HttpLimits | None = None
    ) -> None:
        self._service = service
        self._tokens = tokens
        self._sites = sites or AllowedSites()
        self._metrics = Metrics()
        service.on_request = self._metrics.request
        self.limits = limits or HttpLimits()
        self._rate = RateLimit(self.limits.per_second, self.limits.burst)
        self._streams: dict[str, int] = {}
        self._is_ready = False
        routes = [
            *(Route(path, self._guarded(self._post), methods=["POST"]) for path in ("/", "/rpc", "/agent/{agent_id}")),
            Route("/agent/{agent_id}/events", self._guarded(self._events), methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/metrics", self._guarded(self._metrics_page), methods=["GET"]),
        ]
        starlette = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _http_error, Exception: _failed},
        )
        starlette.router.redirect_slashes = False
        app: ASGIApp = starlette
        if self._sites.origins:  # without these headers a browser lets none of their pages read an answer
            app = CORSMiddleware(
                app,
                allow_origins=self._sites.origins,
                allow_methods=("GET", "POST"),
                allow_headers=_ALLOWED_HEADERS,
                expose_headers=("Retry-After",),
            )
        self.app: ASGIApp = _CheckedSites(app, self._sites, self._metrics)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """Let the events of an earlier process go on; at the end, stop all turns."""
        tenants = self._service.tenants
        starting = asyncio.ensure_future(self._start())
        starting.add_done_callback(self._started)
        try:
            yield
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await tenants.close()

    async def _start(self) -> None:
        """Open all tenants with warm engines, and import the packages of the first call."""
        await self._service.tenants.start(self._tokens.tenants)
        await self._service.tenants.prepare_model()

    def _started(self, starting: asyncio.Future[None]) -> None:
        self._is_ready = not starting.cancelled() and starting.exception() is None

    # requests ----------------------------------------------------------------------------------------------------

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """Return an endpoint whose refusals are responses."""

        async def guarded(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Refused as error:
                self._metrics.refusal(error.status)
                return _refusal(error.status, str(error), error.headers, error.request_id, error.code)
            except Exception as error:  # noqa: BLE001 - uvicorn would log it with its secrets
                LOG.error("internal error: %s", describe_failure(error))
                self._metrics.refusal(500)
                return _refusal(500, "internal error (the server's log has it)")

        return guarded

    def _tenant(self, request: Request) -> str:
        values = request.headers.getlist("authorization")
        tenant = None
        if len(values) == 1:
            tenant = self._tokens.tenant_of(values[0])
        if tenant is None:
            text = "token missing or wrong (send `Authorization: Bearer TOKEN`; `nexus serve` says where the token is)"
            raise Refused(401, text, **{"WWW-Authenticate": "Bearer"})
        if (record := CURRENT.get()) is not None:
            agent_id = request.path_params.get("agent_id", "")
            record.tenant, record.agent = tenant, agent_id if is_valid_id(agent_id) else ""
        return tenant

    async def _post(self, request: Request) -> Response:
        tenant = self._tenant(request)
        agent_id = request.path_params.get("agent_id")
        self._check_accepting()
        _check_media_type(request)
        body = await self._body(request)
        try:
            if len(body) > _LARGE_BODY:
                value = await asyncio.to_thread(parse, body)
            else:
                value = parse(body)
            requests = check_batch(value)
        except RpcError as error:
            return _json(refusal(error).body, 400)
        try:
            self._check_rate(tenant, requests)
            agent = None
            if agent_id is not None:
                agent = await self._agent(tenant, agent_id)
        except Refused as error:
            error.request_id = id_of(value)
            raise
        case = _case(request)
        with continued_trace(request.headers.get("traceparent", "")):
            answer = await answer_value(
                value,
                lambda method, params: self._service.call(
                    tenant, method, params, agent_id=agent_id, agent=agent, case=case
                ),
            )
        if not answer.body:
            return Response(status_code=204, headers=_HEADERS)
        return _json(answer.body, 400 if answer.code in (PARSE_ERROR, INVALID_REQUEST) else 200)

    async def _body(self, request: Request) -> bytes:
        limit = self.limits.body_bytes
        chunks = list[bytes]()
        size = 0
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and len(length) < 20 and int(length) > limit:
            raise Refused(413, f"body has more than {limit:,} bytes", Connection="close")
        try:
            async with asyncio.timeout(self.limits.body_s):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limit:
                        raise Refused(413, f"body has more than {limit:,} bytes", Connection="close")
                    chunks.append(chunk)
        except TimeoutError as error:
            text = f"body did not arrive within {self.limits.body_s:g} seconds"
            raise Refused(408, text, Connection="close") from error
        except ClientDisconnect as error:
            raise Refused(400, "body is incomplete") from error
        if (record := CURRENT.get()) is not None:
            record.received_bytes = size
        return b"".join(chunks)

    def _check_accepting(self) -> None:
        try:
            self._service.tenants.check_accepting()
        except NotAccepted as error:
            raise Refused(503, str(error), error.code, **{"Retry-After": "1"}) from error

    def _check_rate(self, tenant: str, requests: int) -> None:
        if wait_s := self._rate.wait_s(tenant, requests):
            text = f"too many requests (at most {self.limits.per_second:g} per second)"
            raise Refused(429, text, **{"Retry-After": str(math.ceil(wait_s))})

    async def _agent(self, tenant: str, agent_id: str) -> StoredAgent | None:
        try:
            return await self._service.find_agent(tenant, agent_id)
        except NotFound as error:  # another one is that the tenant's engine cannot be opened
            status = 404 if error.code == "no_such_agent" else 500
            raise Refused(status, str(error), error.code) from error
        except NotAccepted as error:
            raise Refused(503, str(error), error.code, **{"Retry-After": "1"}) from error
        except NexusError as error:
            raise Refused(500, str(error), error.code) from error

    # streams -----------------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        tenant = self._tenant(request)
        agent_id = request.path_params["agent_id"]
        if request.method == "HEAD":  # of Starlette's GET routes; it would hold a stream and send nothing
            raise Refused(405, _TEXTS[405], Allow="GET")
        self._check_rate(tenant, 1)
        await self._agent(tenant, agent_id)
        if self._streams.get(tenant, 0) >= self.limits.streams:
            raise Refused(429, f"{self.limits.streams} streams are open (close one)", **{"Retry-After": "5"})
        last = request.headers.get("last-event-id")
        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        stream = self._stream(tenant, agent_id, last, _case(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _stream(self, tenant_name: str, agent_id: str, last: str | None, case: Case) -> AsyncGenerator[bytes]:
        self._streams[tenant_name] = self._streams.get(tenant_name, 0) + 1
        self._metrics.open_streams.inc()
        try:
            async with self._service.tenants.use(tenant_name) as tenant:
                if last is None:
                    start = tenant.events.end()
                else:
                    start = tenant.events.position(last)
                if start is not None:
                    yield sse(own_item("open", start, agent_id), case)
                async with aclosing(tenant.events.read(agent_id, start, KEEP_ALIVE_S)) as reading:
                    async for items in reading:
                        self._metrics.sent_events(item.type for item in items if item.type != "idle")
                        yield b"".join(_frame(item, case) for item in items)
        except NotAccepted:
            return
        finally:
            self._metrics.open_streams.dec()
            self._streams[tenant_name] -= 1

    # operation ---------------------------------------------------------------------------------------------------

    async def _health(self, _request: Request) -> Response:
        return _json(b'{"status":"ok"}', 200)

    async def _ready(self, _request: Request) -> Response:
        if self._is_ready and not self._service.tenants.stopping.is_set():
            return _json(b'{"status":"ready"}', 200)
        return _json(b'{"status":"not ready"}', 503)

    async def _metrics_page(self, request: Request) -> Response:
        tenant = self._tenant(request)
        return Response(self._metrics.text(self._service.tenants, tenant), media_type=CONTENT_TYPE, headers=_HEADERS)


def _case(request: Request) -> Case:
    """Return the case of names that a request asks for."""
    if request.headers.get(CASE_HEADER) == "camel":
        return "camel"
    return "snake"


def _frame(item: StreamItem, case: Case) -> bytes:
    """Return a server-sent event, or a comment when none came for a while."""
    if item.type != "idle":
        return sse(item, case)
    return b": keep-alive\n\n"


class _CheckedSites:
    """Answers only requests whose Host and Origin are allowed."""

    def __init__(self, app: ASGIApp, sites: AllowedSites, metrics: Metrics) -> None:
        self._app = app
        self._sites = sites
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        response: Response | None = None
        if len(hosts) != 1 or not self._sites.has_host(hosts[0]):
            response = _refusal(421, "host is not this server's (allow it: nexus serve --allow-host NAME)")
        elif any(not self._sites.has_origin(origin, hosts[0]) for origin in origins):
            response = _refusal(403, "origin is another site (allow it: nexus serve --allow-origin ORIGIN)")
        if response is not None:
            self._metrics.refusal(response.status_code)
        peer: tuple[str, int] | None = scope.get("client")
        record = AccessRecord("http", peer[0] if peer else "", scope["method"], _route(scope["path"]))

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            else:
                record.sent_bytes += len(message.get("body", b""))
            await send(message)

        token = CURRENT.set(record)
        try:
            await (response or self._app)(scope, receive, send_and_note)
        finally:
            CURRENT.reset(token)
            record.write()


def _route(path: str) -> str:
    """Return the route of a path; the text of any other path is not logged."""
    if path in _ROUTES:
        return path
    if path.startswith("/agent/"):
        if path.endswith("/events"):
            return "/agent/ID/events"
        return "/agent/ID"
    return "unknown"


def _check_media_type(request: Request) -> None:
    values = request.headers.getlist("content-type")
    kind, _, rest = (values[0] if len(values) == 1 else "").partition(";")
    charset = rest.strip().lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise Refused(415, "content type is not JSON (send `Content-Type: application/json`)")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "content encoding not supported (send the body without compression)")


def _json(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, {**_HEADERS, **(headers or {})}, media_type="application/json")


def _refusal(
    status: int, text: str, headers: dict[str, str] | None = None, request_id: RequestId = None, code: str = ""
) -> Response:
    data = {"code": code or REFUSALS.get(status, REFUSALS[400]), "status": status}
    return _json(refusal(RpcError(SERVER_ERROR, text, data), request_id).body, status, headers)


async def _http_error(_request: Request, error: Exception) -> Response:
    """Return the response to an unknown path or a wrong HTTP method."""
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, _TEXTS.get(error.status_code, error.detail), dict(error.headers or {}))


async def _failed(_request: Request, _error: Exception) -> Response:
    return _refusal(500, "internal error (the server's log has it)")
