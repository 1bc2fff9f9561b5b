"""What one would write in place of a context server: LangChain's `trim_messages` in a Starlette handler.

`python -m benchmarks.trimming_server` listens on a free port of loopback and prints it. `POST /trim` takes the whole list
of messages, `POST /session/ID` one message for a list that this process has, and `PUT /session/ID` such a list. The
answer of both POSTs is the list that fits, as OpenAI's messages.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import uvicorn
from langchain_core.messages import BaseMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.messages.utils import count_tokens_approximately
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.policies import DOCUMENTED, trim

BUDGET = 8_000
"""Tokens of a context; `count_tokens_approximately` counts them."""

SESSIONS: dict[str, list[BaseMessage]] = {}


async def trim_list(request: Request) -> JSONResponse:
    """Return the messages of a list that fit."""
    return fitting(convert_to_messages((await request.json())["messages"]))


async def trim_session(request: Request) -> JSONResponse:
    """Return the messages of a session that fit, and a new one."""
    message: dict[str, Any] = await request.json()
    return fitting([*SESSIONS[request.path_params["id"]], *convert_to_messages([message])])


async def put_session(request: Request) -> JSONResponse:
    """Store the messages of a session in memory."""
    SESSIONS[request.path_params["id"]] = convert_to_messages((await request.json())["messages"])
    return JSONResponse({})


def fitting(messages: list[BaseMessage]) -> JSONResponse:
    """Return the newest messages within the budget, and the system message."""
    trimmed = trim(messages, BUDGET, count_tokens_approximately, DOCUMENTED)
    return JSONResponse({"messages": convert_to_openai_messages(trimmed)})


def main() -> None:
    """Print the address and serve."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # for asyncio, which then sends answers without a delay
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    routes = [
        Route("/trim", trim_list, methods=["POST"]),
        Route("/session/{id}", trim_session, methods=["POST"]),
        Route("/session/{id}", put_session, methods=["PUT"]),
    ]
    config = uvicorn.Config(Starlette(routes=routes), http="h11", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
