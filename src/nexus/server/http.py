"""Runs the HTTP server with uvicorn until it is stopped, and ends it without losing accepted requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import cast

from nexus.errors import BadSetting, PackageMissing
from nexus.server.security import AllowedSites, Tokens, is_loopback
from nexus.server.service import Service
from nexus.server.signals import stop_signals
from nexus.server.tenants import Tenants

try:
    import uvicorn
    from starlette.types import ASGIApp

    from nexus.server.app import HttpLimits, HttpServer
    from nexus.server.connections import ClientConnection, max_connections
except ImportError as error:
    raise PackageMissing(error.name or "uvicorn", "the HTTP server", "server") from error

SEND_BUFFER = 128 * 1024
"""Bytes that the system keeps for a client which does not read; Linux keeps megabytes by itself, outside of the process."""
_MARGIN_S = 5
"""Seconds after the grace of running turns in which their answers are sent."""


def open_socket(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Return a listening socket; port 0 is a free one. Raises BadSetting, also for another address than loopback."""
    if not is_loopback(host) and not allow_remote:
        raise BadSetting(
            f"address {host} is reachable from other machines (use 127.0.0.1 behind a reverse proxy with TLS, or add "
            "--allow-remote)"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # a name that cannot be one
        raise BadSetting(f"address {host} unknown: {error} (use 127.0.0.1)") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise BadSetting(f"address {host}:{port} not usable: {error.strerror or error} (use another port)") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    if ":" in host:
        return f"http://[{host}]:{port}"
    return f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its own signal handling, which would end the process before turns have ended."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._call_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and report it."""
        await super().startup(sockets)
        if self._call_started is not None:
            self._call_started()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(
    tenants: Tenants,
    tokens: Tokens,
    listener: socket.socket,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: HttpLimits | None = None,
    started: Callable[[], None] | None = None,
    stopping: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT, `shutdown_server` or `stopping`. Running turns may end; interrupted ones go on at the next start.

    Args:
        tenants: The tenants' engines. They are closed at the end.
        tokens: The tokens with their tenants.
        listener: A socket of `open_socket`. It is closed at the end.
        hosts: Further names of this server in `Host`.
        origins: Other sites whose pages may call it.
        limits: Limits of requests. The process's limit of open files is raised to have enough connections.
        started: Called when it accepts requests.
        stopping: Stops it once it is set.
    """
    stopping = stopping or asyncio.Event()
    limits = limits or HttpLimits()

    # One tenant owns the whole server; of several, none may stop the others'.
    service = Service(tenants, stopping.set if len(tokens.tenants) == 1 else None)
    sites = AllowedSites((str(listener.getsockname()[0]), *hosts), tuple(origins))
    await serve_app(
        HttpServer(service, tokens, sites, limits).app,
        listener,
        stopping=stopping,
        stop_work=tenants.stop_turns,
        grace_s=tenants.options.grace_s,
        send_s=limits.send_s,
        started=started,
    )


async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stopping: asyncio.Event,
    stop_work: Callable[[], Awaitable[None]],
    grace_s: float,
    send_s: float,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve an application until SIGTERM, SIGINT or `stopping`.

    Args:
        app: The application.
        listener: A socket of `open_socket`. It is closed at the end.
        stopping: Stops it once it is set.
        stop_work: Awaited before the server stops to answer.
        grace_s: Seconds for responses that have begun.
        send_s: Seconds after which a client is disconnected that does not read its response.
        started: Called when it accepts requests.
    """
    stop = stopping.set
    config = uvicorn.Config(
        app,
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=cast("type[asyncio.Protocol]", partial(ClientConnection, send_s=send_s)),
        lifespan="on",
        limit_concurrency=max_connections(),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(grace_s) + _MARGIN_S,
    )
    server = _Uvicorn(config, started)

    async def end() -> None:
        await stopping.wait()
        await stop_work()  # uvicorn answers until then
        server.should_exit = True
        asyncio.get_running_loop().call_later(_MARGIN_S, end_paused)

    def end_paused() -> None:
        """Do not wait longer for clients that do not read."""
        for connection in list(server.server_state.connections):
            if isinstance(connection, ClientConnection) and connection.is_paused:
                connection.abort()

    with stop_signals(stop):
        ending = asyncio.ensure_future(end())
        try:
            await server.serve(sockets=[listener])
        finally:
            stop()
            await asyncio.gather(ending, return_exceptions=True)
            listener.close()
