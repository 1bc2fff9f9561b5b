"""The orchestrator's side of the bus: contexts from a ContextBuilder and replies from an LLMService in any process."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import uuid4
from weakref import WeakSet

import msgspec

from nexus.bus import Bus, Subscription
from nexus.bus import Message as BusMessage
from nexus.bus.message import now_ms
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.engine.turn import Turn, request_of
from nexus.errors import (
    BusDeadlineExceeded,
    BusNoResponder,
    BusRequestFailed,
    BusUnavailable,
    LedgerUnavailable,
    ModelCallFailed,
)
from nexus.models import ModelReply
from nexus.models.client import StreamItem
from nexus.render.context_json import to_json
from nexus.services.answers import BuiltContext, assemble_answer, assemble_turn, own_tools, recorded_answer
from nexus.services.ledger_check import ledger_id
from nexus.services.llm import LLMRequest, Piece
from nexus.services.messages import (
    MAX_CONTEXT_BYTES,
    BuildRequest,
    Run,
    RunMetadata,
    StoredCall,
    call_arguments,
    checked_reply,
    model_failure,
    publish_if_possible,
    read_content,
    request_again,
)
from nexus.services.persistence import session_owner, utc_time
from nexus.services.topics import Topics
from nexus.types.message import Text
from nexus.types.settings import CallArguments
from nexus.types.stream_events import Retry, Token

_OF_LEDGER_SERVER = ("ledger_unavailable", "outcome_unknown")
"""Codes of a builder's errors about a server of the ledger that is away."""

CONTEXT_TRY_S = 10.0
CONTEXT_TOTAL_S = 60.0
CALL_S = 1_800.0
"""Seconds until the deadline of a call of a model."""

SILENCE_S = 20.0
"""Seconds without a sign of life after which a call is made again: its process may have been killed."""

MAX_TRIES = 4


class BusModels:
    """A `nexus.models.ModelClient` that asks the LLMService. Use it between `start` and `aclose`.

    Args:
        bus: The bus.
        call_s: Seconds until the deadline of a call.
        silence_s: Seconds without a sign of life after which a call is made again.
    """

    def __init__(self, bus: Bus, *, call_s: float = CALL_S, silence_s: float = SILENCE_S, ledger: str = "") -> None:
        self.bus = bus
        self.call_s = call_s
        self.silence_s = silence_s
        self._ledger = ledger
        self._topic = f"{Topics.LLM_PIECES}.{uuid4().hex}"
        self._pieces: dict[str, asyncio.Queue[Piece]] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Subscribe to the pieces of this client's calls."""
        self._subscription = await self.bus.subscribe(self._topic, self._receive, concurrency=512)

    async def aclose(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply. Raises ModelCallFailed."""
        async with aclosing(self.stream(ctx)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    return item
        raise AssertionError("stream without a reply")

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem]:
        """Yield text, thinking and retries as they come; the last item is the reply. See `nexus.models.ModelClient`."""
        request = _request_for(ctx, self._topic, self._ledger)
        message = BusMessage(Topics.LLM_REQUEST, msgspec.to_builtins(request), session=ctx.session_label)
        message = msgspec.structs.replace(message, deadline_ms=now_ms() + round(1000 * self.call_s))
        pieces = self._pieces.setdefault(request.call_id, asyncio.Queue())
        try:
            async for item in self._tries(message, request.call_id, pieces):
                yield item
        finally:
            if self._pieces.get(request.call_id) is pieces:
                del self._pieces[request.call_id]

    async def _tries(
        self, message: BusMessage, call_id: str, pieces: asyncio.Queue[Piece]
    ) -> AsyncGenerator[StreamItem]:
        """Yield the items of the call, which is made again if its process falls silent."""
        for number in range(1, MAX_TRIES + 1):
            received = _ReceivedText()
            request = msgspec.structs.replace(message, id=uuid4().hex)
            answering = asyncio.ensure_future(self.bus.request(request))
            is_over = False
            try:
                while (piece := await self._next_piece(answering, pieces)) is not None:
                    if received.add(piece) and piece.event is not None:
                        yield piece.event
                reply = read_content(checked_reply(request, await answering), _Reply).reply
                is_over = True
                for item in received.rest(reply):
                    yield item
                yield reply
            except BusRequestFailed as failed:
                is_over = True
                raise model_failure(failed) or ModelCallFailed(str(failed), "error") from failed
            except (_SilentError, BusNoResponder, BusUnavailable, BusDeadlineExceeded) as error:
                is_last = number == MAX_TRIES or now_ms() >= message.deadline_ms
                if is_last:
                    kind = "connection"
                    if isinstance(error, TimeoutError):
                        kind = "timeout"
                    raise ModelCallFailed(f"LLM service did not reply: {error}", kind, retryable=True) from error
                yield Retry("connection", f"LLM service did not reply: {error}", float(number))
            else:
                return
            finally:
                if not answering.done():
                    answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
                if not is_over:
                    await publish_if_possible(self.bus, BusMessage(Topics.LLM_CANCEL, call_id))
            await asyncio.sleep(number)

    async def _next_piece(self, answering: asyncio.Future[BusMessage], pieces: asyncio.Queue[Piece]) -> Piece | None:
        """Return the next piece, or None once the reply is there. Raises _SilentError."""
        if answering.done() and pieces.empty():
            return None
        waiting = asyncio.ensure_future(pieces.get())
        try:
            done, _ = await asyncio.wait(
                (waiting, answering), timeout=self.silence_s, return_when=asyncio.FIRST_COMPLETED
            )
            if waiting in done:
                return waiting.result()
        finally:
            waiting.cancel()
        if not done:
            raise _SilentError(f"no sign of life within {self.silence_s:g} s")
        return None

    async def _receive(self, message: BusMessage) -> None:
        piece = read_content(message, Piece)
        if (pieces := self._pieces.get(piece.call_id)) is not None:
            pieces.put_nowait(piece)


class _SilentError(Exception):
    """The process that answers shows no sign of life."""


class _Reply(msgspec.Struct, frozen=True):
    """Content of the response of the LLMService."""

    reply: ModelReply


class _ReceivedText:
    """The beginning of a reply's text that came in pieces without a gap."""

    def __init__(self) -> None:
        self.text = ""
        self._next = 0
        self._has_any = False

    def add(self, piece: Piece) -> bool:
        """Add a piece; return whether it is the next one."""
        if piece.event is None or piece.number != self._next:
            return False
        self._next += 1
        self._has_any = True
        if isinstance(piece.event, Retry):
            self.text = ""
        elif isinstance(piece.event, Token):
            self.text += piece.event.text
        return True

    def rest(self, reply: ModelReply) -> list[StreamItem]:
        """Return the tokens that are missing: joined, all tokens are the reply's text."""
        parts = [part for message in reply.result.messages if message.role == "assistant" for part in message.parts]
        text = "".join(part.text for part in parts if isinstance(part, Text))
        if text.startswith(self.text):
            if len(text) > len(self.text):
                return [Token(text[len(self.text) :])]
            return []
        return [Retry("connection", "pieces of the reply were lost"), Token(text)]


def _request_for(ctx: AssembledContext, topic: str, ledger: str) -> LLMRequest:
    """Return the request for a context: the context itself, or its place in the ledger if it is too large."""
    call_id = hashlib.sha256(f"{ctx.session_label}\0{ctx.provenance.manifest.id}\0{ctx.body_hash}".encode()).hexdigest()
    saved = to_json(ctx)
    stored = ctx.provenance.stored_event
    if stored is None or len(msgspec.json.encode(saved)) <= MAX_CONTEXT_BYTES:
        return LLMRequest(context=saved, call_id=call_id, pieces_to=topic)
    request = request_of(ctx).with_arguments({"budget": ctx.token_budget.available})
    call = StoredCall(ctx.session_label, stored.turn, call_arguments(request), ctx.body_hash, ledger)
    return LLMRequest(call=call, call_id=call_id, pieces_to=topic)


class BusAssembly:
    """Assembles contexts of turns with the answers of a ContextBuilder (`nexus.engine.overflow_recovery.RemoteAssembly`).

    A turn's builder is asked before its first call. Its later calls use the same answer, also in another process.
    """

    def __init__(
        self, bus: Bus, nx: AsyncEngine, *, try_s: float = CONTEXT_TRY_S, total_s: float = CONTEXT_TOTAL_S
    ) -> None:
        self.bus = bus
        self.nx = nx
        self.try_s = try_s
        self.total_s = total_s
        self._answered: WeakSet[Turn] = WeakSet()

    async def __call__(self, turn: AsyncTurn, changes: CallArguments) -> AssembledContext:
        """Return the context of the turn's next call.

        Raises UnreadableFile if the answer cannot be used (`nexus.services.answers`), LedgerUnavailable if the builder's ledger
        cannot be reached, BusRequestFailed, and BusDeadlineExceeded or BusNoResponder if no builder answers.
        """
        stored = turn.turn
        nx = self.nx.engine
        if stored not in self._answered:
            recorded = await self.nx.run(recorded_answer, nx, stored)
            if recorded is None:
                unanswered = await self.nx.run(assemble_turn, nx, stored, changes)
                answer = await self._ask(stored, unanswered)
                ctx = await self.nx.run(assemble_answer, nx, stored, unanswered, answer)
                self._answered.add(stored)
                return ctx
            changes = {**recorded, **changes}
            self._answered.add(stored)
        return await self.nx.run(assemble_turn, nx, stored, changes)

    async def _ask(self, turn: Turn, ctx: AssembledContext) -> BuiltContext:
        message = BusMessage(
            Topics.CONTEXT_BUILD_REQUEST,
            msgspec.to_builtins(_build_request(turn, ctx)),
            session=turn.session,
            tenant=self.nx.engine.ledger.store.tenant,
        )
        try:
            answer = await request_again(self.bus, message, try_s=self.try_s, total_s=self.total_s)
        except BusRequestFailed as failed:
            if failed.error_code in _OF_LEDGER_SERVER:
                # The builder could not read: the turn stays open, as when this process cannot.
                raise LedgerUnavailable(failed.text) from failed
            raise
        return read_content(answer, BuiltContext)


def _build_request(turn: Turn, ctx: AssembledContext) -> BuildRequest:
    """Return document 000's request for the first call of a turn, whose context without a builder's answer is `ctx`."""
    user_message = next(message for message in ctx.event if message.role == "user")
    surroundings = turn.request.event
    request = turn.request.with_arguments({"tools": own_tools(ctx)})
    owner_key = surroundings.chat_id or session_owner(turn.session)
    run = Run(owner_key, user_message.text(), user_message.id, request.settings.user_profile)
    metadata = RunMetadata(utc_time(user_message.at_ms) or "", surroundings.timezone)
    return BuildRequest(
        run,
        metadata,
        tools=own_tools(ctx),
        call=StoredCall(turn.session, turn.number, call_arguments(request), ledger=ledger_id(turn.engine.ledger.store)),
    )
