"""A server between a client and its model: each request goes through `mirror`, and is remembered with what became of it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import nexus
from nexus.testing.model_server import ModelServer
from nexus.testing.scripted_replies import Format
from support.client_requests import ClientRequest, Outcome, assemble, recorded_session
from support.mirrored_body import fitted_body, format_of

CONVERSATION = ("x-claude-code-session-id", "thread-id", "x-session-affinity")
"""Headers with which clients name the conversation."""


class MirrorProxy:
    """The proxy of one client: its requests in order."""

    def __init__(
        self, nx: nexus.Engine, provider: ModelServer, budget: int, is_side_request: Callable[[str], bool]
    ) -> None:
        self._nx = nexus.AsyncEngine(nx)
        self._budget, self._is_side_request = budget, is_side_request
        self._client = httpx.AsyncClient(base_url=provider.anthropic_url, timeout=60)
        self.outcomes: list[Outcome] = []

    @property
    def app(self) -> Starlette:
        """The proxy as a web application. Paths that are no model's are not found."""
        methods = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "CONNECT"]
        return Starlette(routes=[Route("/{path:path}", self._forward, methods=methods)])

    async def _forward(self, request: Request) -> Response:
        path = request.url.path
        format_ = format_of(path) if request.method == "POST" else None
        if format_ is None:
            return JSONResponse({"error": {"message": "no such path"}}, 404)
        body = await request.json()
        model = body.get("model") or path.rpartition("/models/")[2].partition(":")[0]
        conversation = next(filter(None, map(request.headers.get, CONVERSATION)), "")
        asked = ClientRequest(format_, model, body, None, conversation, self._is_side_request(model))
        outcome = Outcome(asked)
        self.outcomes.append(outcome)
        ctx = None
        try:
            ctx = await self._nx.run(assemble, self._nx.engine, asked, self._budget)
            outcome.action = ctx.mirrored.action if ctx.mirrored else ""
            outcome.sent = fitted_body(ctx, format_, body)
        except Exception as error:  # noqa: BLE001 - every refusal is a finding
            outcome.error = error
        reply = await self._client.post(path, json=outcome.sent or body)  # the client goes on, also after a refusal
        asked.reply = read_answer(format_, reply)
        if ctx is not None:
            outcome.session = await self._nx.run(recorded_session, self._nx.engine, ctx, asked.reply)
        return Response(reply.content, reply.status_code, media_type=reply.headers.get("content-type"))

    async def serve(self, listening: socket.socket, server: uvicorn.Server) -> None:
        """Serve until the server is told to exit."""
        async with self._client:
            await server.serve([listening])


def read_answer(format_: Format, reply: httpx.Response) -> nexus.AgentResult:
    """Return a reply, streamed or whole."""
    if "event-stream" not in reply.headers.get("content-type", ""):
        return nexus.read_reply(reply.json())
    reader = nexus.StreamReader(format_)
    for line in reply.text.splitlines():
        if line.startswith("data: {"):
            reader.add(json.loads(line.removeprefix("data: ")))
    return reader.reply()


@contextmanager
def mirror_proxy(
    nx: nexus.Engine, provider: ModelServer, budget: int, is_side_request: Callable[[str], bool]
) -> Iterator[tuple[MirrorProxy, str]]:
    """Run a proxy in a thread and yield it with its URL."""
    proxy = MirrorProxy(nx, provider, budget, is_side_request)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(proxy.app, log_level="error", lifespan="off"))
        thread = Thread(target=lambda: asyncio.run(proxy.serve(listening, server)))
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield proxy, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
