"""A proxy for OpenAI chat completions and Anthropic messages: any client in front of it, its provider behind it.

    app = proxy(await nexus.open_async("agent"), httpx.AsyncClient(base_url="https://api.openai.com"), budget=32_000)

Each request is fitted into the token budget. For several users, pass the one that you have checked as `principal`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import nexus

CONVERSATION = ("x-nexus-conversation", "x-claude-code-session-id", "thread-id")
FORMATS = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}
NOT_FORWARDED = ("host", "content-length", "accept-encoding", "connection")


def proxy(nx: nexus.AsyncEngine, provider: httpx.AsyncClient, **options: Any) -> Starlette:
    async def forward(request: Request) -> Response:
        path, body = request.url.path, await request.json()
        conversation = next(filter(None, map(request.headers.get, CONVERSATION)), "")
        system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
        tools = [{name: tool[name] for name in tool if name != "cache_control"} for tool in body.get("tools") or ()]
        listed, asked = [*system, *body["messages"]], {"tools": tools, "model": body["model"], **options}
        try:
            ctx = await nx.mirror(listed, conversation=conversation, provider=FORMATS[path], **asked)
        except nexus.NexusError as error:
            return JSONResponse({"error": {"type": "invalid_request_error", "message": str(error)}}, 400)
        fitted = {k: value for k, value in ctx.to_provider(FORMATS[path]).items() if k in ("messages", "system")}
        headers = {name: value for name, value in request.headers.items() if name not in NOT_FORWARDED}
        sent = {**body, **fitted, **({"tools": tools} if tools else {})}
        reply = await provider.send(provider.build_request("POST", path, json=sent, headers=headers), stream=True)
        if body.get("stream") and reply.is_success:
            return StreamingResponse(relay(nx, ctx, FORMATS[path], reply), media_type="text/event-stream")
        if await reply.aread() and reply.is_success:
            await nx.record(ctx, reply.json())
        return Response(reply.content, reply.status_code, media_type=reply.headers.get("content-type"))

    return Starlette(routes=[Route(path, forward, methods=["POST"]) for path in FORMATS])


async def relay(nx: nexus.AsyncEngine, ctx: nexus.AssembledContext, name: Any, reply: Any) -> AsyncIterator[str]:
    reader = nexus.StreamReader(name)
    try:
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                reader.add(json.loads(line[6:]))
            yield f"{line}\n"
    finally:
        await reply.aclose()
        if reader.is_complete:  # if the client left before, it sends what it keeps of the reply
            await asyncio.shield(nx.record(ctx, reader.reply()))
