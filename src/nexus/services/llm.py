"""Document 000's LLMService: calls of models for programs on the bus.

A request has a context that was saved or is stored in the ledger, or plain messages and tools. The reply has the answer
with its usage and cost. Pieces of the reply are published to the topic that the request names, with their number, as they
come, and a sign of life in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, Self, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import nexus
from nexus.bus import Bus, Subscription
from nexus.bus import Message as BusMessage
from nexus.bus.message import now_ms
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadBusMessage, BusDeadlineExceeded, ModelCallFailed
from nexus.ledger.lease import shielded
from nexus.models import ModelClient, ModelReply
from nexus.render.context_json import from_json
from nexus.services.context.stored_calls import assemble_call
from nexus.services.messages import GROUP, StoredCall, answer, check_tenant, publish_if_possible, read_content
from nexus.services.topics import Topics
from nexus.types.settings import CallArguments
from nexus.types.stream_events import Reasoning, Retry, Token

HEARTBEAT_S = 5.0
"""Seconds between two signs of life of a running call."""

MAX_REMEMBERED = 200
"""Calls whose replies are remembered for a request that comes again."""


class LLMRequest(Struct, frozen=True, omit_defaults=True):
    """Content of `Topics.LLM_REQUEST`: a saved context, a stored call, or messages."""

    context: dict[str, Any] | None = None
    """Saved by `nexus.render.context_json.to_json`."""
    call: StoredCall | None = None
    messages: list[dict[str, Any]] | None = None
    """In any provider's format."""
    tools: list[dict[str, Any]] = []
    model: str = ""
    options: dict[str, Any] = {}
    """Settings of the model, as arguments of `Engine.assemble`."""
    call_id: str = ""
    """The same id again is the same call: it gets the same reply, and a running one is not repeated."""
    pieces_to: str = ""
    """Topic for the pieces of the reply."""


class Piece(Struct, frozen=True, omit_defaults=True):
    """Content of a piece: its number in its call, counted from 0, and the event; without an event, a sign of life."""

    call_id: str
    number: int = -1
    event: Token | Reasoning | Retry | None = None


class LLMService:
    """Answers LLM requests with the clients of models.

    Args:
        bus: Where requests come from.
        models: The clients of the models, of `nexus.models.open_models` or `nexus.models.Models`.
        nx: Engine with the ledger, for requests that name a stored call.
        heartbeat_s: Seconds between two signs of life of a running call.
        clock_ms: Clock for deadlines.
    """

    def __init__(
        self,
        bus: Bus,
        models: ModelClient,
        nx: AsyncEngine | None = None,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.bus = bus
        self.models = models
        self.nx = nx
        self.heartbeat_s = heartbeat_s
        self.clock_ms = clock_ms
        self._subscriptions: list[Subscription] = []
        self._calls: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._topics: dict[str, dict[str, BusMessage]] = {}  # of the pieces, by call, with the request
        self._memory: AsyncEngine | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Subscribe to `Topics.LLM_REQUEST`. Services of several processes share the requests."""
        self._memory = await nexus.open_async(ledger=":memory:", model=self.nx.engine.model if self.nx else "")
        self._subscriptions = [
            await self.bus.subscribe(Topics.LLM_CANCEL, self._cancel),
            await self.bus.subscribe(Topics.LLM_REQUEST, self.handle_request, group=GROUP, concurrency=512),
        ]

    async def stop(self) -> None:
        """Unsubscribe, and finish the calls that had arrived."""
        for subscription in reversed(self._subscriptions):
            await subscription.unsubscribe()
        self._subscriptions.clear()
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        self._calls.clear()
        if self._memory is not None:
            await self._memory.close()
            self._memory = None

    async def handle_request(self, message: BusMessage) -> BusMessage:
        """Return the reply to a request: the model's reply, or an error envelope."""
        return await answer(message, self._reply)

    async def _reply(self, message: BusMessage) -> dict[str, Any]:
        request = read_content(message, LLMRequest)
        if self.nx is not None:
            check_tenant(message, self.nx.engine.ledger.store.tenant)
        call_id = request.call_id or message.id
        if request.pieces_to:
            self._topics.setdefault(call_id, {})[request.pieces_to] = message
        task = self._calls.get(call_id)
        if task is None:
            self._forget_old_calls()
            task = self._calls[call_id] = asyncio.ensure_future(self._call(message, request, call_id))
            task.add_done_callback(lambda ended_task: self._forget(call_id, ended_task))
        try:
            return await shielded(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # this process stops
            raise ModelCallFailed("call was canceled", "aborted") from None

    async def _call(self, message: BusMessage, request: LLMRequest, call_id: str) -> dict[str, Any]:
        seconds = None
        if message.deadline_ms:
            seconds = (message.deadline_ms - self.clock_ms()) / 1000
        try:
            async with asyncio.timeout(seconds):
                ctx = await self._context(request)
                reply = await self._stream(ctx, call_id)
        except TimeoutError as error:
            raise BusDeadlineExceeded("model did not reply before the deadline of the request") from error
        return {"reply": msgspec.to_builtins(reply)}

    async def _context(self, request: LLMRequest) -> AssembledContext:
        forms = [form for form in (request.context, request.call, request.messages) if form is not None]
        if len(forms) != 1:
            raise BadBusMessage("LLM request needs one of `context`, `call` and `messages` (docs/services.md)")
        if request.context is not None:
            return await asyncio.to_thread(from_json, request.context)
        if request.call is not None:
            return await assemble_call(self.nx, request.call)
        assert self._memory is not None
        options = cast("CallArguments", {**request.options, "tools": request.tools})
        if request.model:
            options["model"] = request.model
        return await self._memory.mirror(request.messages or [], **options)

    async def _stream(self, ctx: AssembledContext, call_id: str) -> ModelReply:
        life = asyncio.ensure_future(self._show_life(call_id))
        number = 0
        try:
            async with aclosing(self.models.stream(ctx)) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        return item
                    await self._publish(Piece(call_id, number, item))
                    number += 1
        finally:
            life.cancel()
            with suppress(asyncio.CancelledError):
                await life
        raise ModelCallFailed("the stream of the client ended without a reply", "error")

    async def _show_life(self, call_id: str) -> None:
        while True:
            await self._publish(Piece(call_id))
            await asyncio.sleep(self.heartbeat_s)

    async def _publish(self, piece: Piece) -> None:
        for topic, request in list(self._topics.get(piece.call_id, {}).items()):
            message = request.follow_up(topic, msgspec.to_builtins(piece))
            await publish_if_possible(self.bus, replace(message, session=piece.call_id))

    async def _cancel(self, message: BusMessage) -> None:
        task = self._calls.get(read_content(message, str))
        if task is not None:
            task.cancel()

    def _forget_old_calls(self) -> None:
        """Forget the replies that were remembered first."""
        finished = [call_id for call_id, task in self._calls.items() if task.done()]
        for call_id in finished[: max(len(finished) - MAX_REMEMBERED + 1, 0)]:
            del self._calls[call_id]

    def _forget(self, call_id: str, task: asyncio.Task[dict[str, Any]]) -> None:
        """End the pieces of a call, and let a failed one be made again."""
        self._topics.pop(call_id, None)
        if (task.cancelled() or task.exception() is not None) and self._calls.get(call_id) is task:
            del self._calls[call_id]
