"""Requests to one agent, by method or as JSON-RPC 2.0 objects, with results that have a JSON form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from nexus.compat.nexus3.context.manager import ContextManager
from nexus.compat.nexus3.rpc.session import Session
from nexus.errors import BadSetting, ModelCallFailed
from nexus.server import forms
from nexus.server.forms import RequestKey, read_params, request_key
from nexus.server.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Params, RpcError, respond

__all__ = ["METHODS", "Dispatcher"]

METHODS = {
    "send": forms.Send,
    "cancel": forms.Cancel,
    "get_tokens": forms.NoParams,
    "get_context": forms.NoParams,
    "compact": forms.Compact,
    "shutdown": forms.NoParams,
}
"""The methods with their params, which are the server's."""


class Dispatcher:
    """Answers the requests of one agent.

    Args:
        session: The agent's session.
        context: Its context; by default the session's.
    """

    def __init__(self, session: Session, context: ContextManager | None = None) -> None:
        if context is not None and context is not session.context:
            raise BadSetting("context is another one than the session's (pass the context of the session)")
        self._session = session
        self._context = session.context
        self._running: dict[RequestKey, asyncio.Event] = {}
        self.should_shutdown = False

    async def send(self, content: str, request_id: RequestKey | None = None) -> dict[str, Any]:
        """Send a user's message: `{"content", "request_id"}`; `{"cancelled", "request_id"}` if `cancel` ended it.

        Raises as `Session.send`, and BadSetting for the id of a request under way.
        """
        request_id = request_key(request_id)
        if request_id in self._running:
            raise BadSetting(f"request {request_id!r} is under way (use another id, or cancel it)")
        cancel = self._running[request_id] = asyncio.Event()
        try:
            text = await self._session.answer(content, cancel=cancel)
        except ModelCallFailed as error:
            if error.failure_kind == "aborted" and cancel.is_set():
                return {"cancelled": True, "request_id": request_id}
            raise
        finally:
            del self._running[request_id]
        return {"content": text, "request_id": request_id}

    async def cancel(self, request_id: RequestKey) -> dict[str, Any]:
        """Cancel a request under way: `{"cancelled", "request_id"}`, with a `reason` if no request has this id."""
        running = self._running.get(request_id)
        if running is None:
            return {"cancelled": False, "request_id": request_id, "reason": "not found or completed"}
        running.set()
        return {"cancelled": True, "request_id": request_id}

    async def get_tokens(self) -> dict[str, int]:
        """Return the tokens of the context: `system`, `tools`, `messages`, `total`, `budget` and `available`."""
        await self._session.nx.run(self._context.reload)
        return self._context.get_token_usage()

    async def get_context(self) -> dict[str, Any]:
        """Return `{"message_count", "system_prompt"}`: the number of messages, and whether there is a system prompt."""
        await self._session.nx.run(self._context.reload)
        return {"message_count": len(self._context.messages), "system_prompt": bool(self._context.system_prompt)}

    async def compact(self, focus: str = "") -> dict[str, Any]:
        """Compact now: `{"compacted", "tokens_before", "tokens_after", "tokens_saved"}`, or `compacted` and a `reason`."""
        before = self._context.get_token_usage()["total"]
        if not await self._session.compact(focus):
            return {"compacted": False, "reason": "too few messages to summarize"}
        after = self._context.get_token_usage()["total"]
        return {"compacted": True, "tokens_before": before, "tokens_after": after, "tokens_saved": before - after}

    async def shutdown(self) -> dict[str, Any]:
        """End running requests as interrupted and accept no more: `{"success"}`."""
        self.should_shutdown = True
        await self._session.close()
        return {"success": True}

    async def dispatch(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a JSON-RPC 2.0 request with a `result` or an `error`; None for a notification, which has no `id`."""
        return msgspec.to_builtins(await respond(request, self._call))

    async def _call(self, method: str, params: Params) -> dict[str, Any]:
        if method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"method {method!r} not found (methods: {', '.join(METHODS)})")
        try:
            values = read_params(params or {}, METHODS[method])
        except BadSetting as error:
            raise RpcError(INVALID_PARAMS, f"params of {method} invalid: {error}") from error
        return await getattr(self, method)(**msgspec.structs.asdict(values))
