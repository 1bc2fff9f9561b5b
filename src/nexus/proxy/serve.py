"""Runs a proxy until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable

from nexus.engine.async_engine import AsyncEngine
from nexus.errors import PackageMissing
from nexus.proxy.settings import ProxySettings
from nexus.server.security import AllowedSites, Tokens

try:
    from nexus.proxy.app import Proxy
    from nexus.server.http import serve_app
except ImportError as error:
    raise PackageMissing(error.name or "starlette", "the proxy", "proxy") from error

GRACE_S = 30.0
"""Seconds for answers that have begun, after the proxy was told to stop."""

SEND_S = 600.0
"""Seconds after which a client is disconnected that does not read its answer."""


async def serve_proxy(
    nx: AsyncEngine,
    settings: ProxySettings,
    listener: socket.socket,
    *,
    owner_token: str,
    tokens: Tokens | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    grace_s: float = GRACE_S,
    started: Callable[[], None] | None = None,
    stopping: asyncio.Event | None = None,
) -> Proxy:
    """Serve until SIGTERM, SIGINT or `stopping`, and return the proxy with its counts.

    Args:
        nx: The engine that it records with. It stays open.
        settings: What it does with requests.
        listener: A socket of `nexus.server.http.open_socket`. It is closed at the end.
        owner_token: Token with which its status is read and its mode set.
        tokens: Tokens of its users; None if everybody who reaches it may use it.
        hosts: Further names of this server in `Host`.
        origins: Sites whose pages may call it.
        grace_s: Seconds for answers that have begun.
        started: Called when it accepts requests.
        stopping: Stops it once it is set.
    """
    sites = AllowedSites((str(listener.getsockname()[0]), *hosts), tuple(origins))
    proxy = Proxy(settings, nx, sites, tokens, owner_token, nx.engine.clock_ms)
    await serve_app(
        proxy.app,
        listener,
        stopping=stopping or asyncio.Event(),
        stop_work=_nothing,
        grace_s=grace_s,
        send_s=SEND_S,
        started=started,
    )
    return proxy


async def _nothing() -> None:
    """Answers that have begun end by themselves."""
