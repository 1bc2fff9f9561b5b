"""A proxy in a thread, between a client and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx

import nexus
from nexus.proxy.running import TOKEN_HEADER
from nexus.proxy.serve import serve_proxy
from nexus.proxy.settings import read_settings
from nexus.server.http import open_socket, url_of
from nexus.server.security import Tokens
from nexus.testing.model_server import ModelServer

OWNER_TOKEN = "token-of-the-owner-123"


@dataclass
class RunningProxy:
    """A proxy that runs, and how to ask it."""

    url: str

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Return the answer of one of its own pages, to its owner."""
        return httpx.get(f"{self.url}{path}", headers={TOKEN_HEADER: OWNER_TOKEN, **headers}, trust_env=False)

    def set_mode(self, mode: str, **headers: str) -> httpx.Response:
        """Set its mode as its owner."""
        asked = {TOKEN_HEADER: OWNER_TOKEN, **headers}
        return httpx.post(f"{self.url}/nexus/mode", json={"mode": mode}, headers=asked, trust_env=False)

    def call(self, call_id: str) -> dict[str, Any]:
        """Return what it says of a call."""
        answer = self.get(f"/nexus/calls/{call_id}", accept="application/json")
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def running_proxy(
    provider: ModelServer | str,
    ledger: Path | str = ":memory:",
    *,
    tokens: Tokens | None = None,
    nx: nexus.Engine | None = None,
    **settings: Any,
) -> Iterator[RunningProxy]:
    """Run a proxy before a model's server until the block ends."""
    upstream = provider if isinstance(provider, str) else provider.anthropic_url
    chosen = read_settings(None, {"upstreams": [{"url": upstream}], **settings})
    listener = open_socket("127.0.0.1", 0)
    running = RunningProxy(url_of(listener))
    ready = Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stopping = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stopping))
        engine = nexus.AsyncEngine(nx or nexus.open(ledger=ledger))
        try:
            await serve_proxy(
                engine,
                chosen,
                listener,
                owner_token=OWNER_TOKEN,
                tokens=tokens,
                started=ready.set,
                stopping=stopping,
                grace_s=1,
            )
        finally:
            ready.set()
            if nx is None:
                await engine.close()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(30)
    try:
        yield running
    finally:
        loop, stopping = loops[0]
        loop.call_soon_threadsafe(stopping.set)
        thread.join(60)
