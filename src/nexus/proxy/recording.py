"""The record of one call: its answer is kept while it goes through, and stored with its request at the end."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import NexusError
from nexus.proxy.calls import CallPlace, assemble, read_answer, record
from nexus.proxy.reports import CallReport, store_report
from nexus.proxy.requests import ModelRequest

LOG = logging.getLogger("nexus.proxy")

HOLD_S = 2.0
"""Seconds that the end of an answer waits for the call to be recorded, at most."""

MAX_ANSWER_BYTES = 32 * 2**20
"""Answers above this size go through and are not recorded."""

MAX_WAITING = 64
"""Calls that wait to be recorded. Further ones are not: their messages are recorded with the conversation's next call."""

_LAST_EVENTS = {
    "anthropic": rb'^(?:event: ?message_stop|data: ?\{"type": ?"message_stop")',
    "openai": rb"^data: ?\[DONE\]",
    "responses": rb'^(?:event: ?|data: ?\{"type": ?")response\.(?:completed|incomplete|failed)',
    "gemini": rb'(?<!\\)"finishReason": ?"[A-Z]',
}
_ENDS = {name: re.compile(pattern, re.MULTILINE) for name, pattern in _LAST_EVENTS.items()}
"""The last event of a stream, and not what a model says of it: there quotes are escaped, and lines do not begin."""


class CallRecorder:
    """Records the calls of one engine."""

    def __init__(self, nx: AsyncEngine) -> None:
        self.nx = nx
        self.waiting = 0
        """Calls that wait to be recorded."""

    async def save(self, report: CallReport) -> None:
        """Store the report of a call that is not recorded. A ledger that cannot be written is no fault of the call."""
        try:
            await self.nx.run(store_report, self.nx.engine.ledger.store, report)
        except NexusError as error:
            LOG.warning("report not stored: %s", error.code, extra={"fields": {"call": report.id}})


class AnswerRecord:
    """One answer as it arrives.

    Args:
        recorder: Records the call at the end.
        request: The request.
        place: Whose call it is.
        report: What becomes of it.
        ctx: Its context; assembled while the answer arrives, if there is none yet.
        is_stream: True for server-sent events.
    """

    def __init__(
        self,
        recorder: CallRecorder,
        request: ModelRequest,
        place: CallPlace,
        report: CallReport,
        ctx: AssembledContext | None,
        *,
        is_stream: bool,
    ) -> None:
        self._recorder = recorder
        self._request = request
        self._place = place
        self._report = report
        self._ctx = ctx
        self._is_stream = is_stream
        self._assembling: asyncio.Future[AssembledContext] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_given_up = False

    def add(self, piece: bytes) -> int:
        """Keep a piece of the answer; return how many of its bytes are before the end, which waits for the record."""
        if self._is_given_up:
            return len(piece)
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MAX_ANSWER_BYTES:
            self._give_up("the answer has more than 32 MiB")
            return len(piece)
        if not self._is_stream:
            return 0
        end = _ENDS[self._request.format].search(piece)
        if end is None:
            return len(piece)
        return piece.rfind(b"\n", 0, end.start()) + 1

    def begin(self) -> None:
        """Read the request, while the answer arrives."""
        if self._ctx is not None or self._assembling is not None or self._is_given_up:
            return
        if self._recorder.waiting >= MAX_WAITING:
            self._give_up("too many calls at once")
            return
        nx = self._recorder.nx
        budget = self._report.budget or None
        self._assembling = asyncio.ensure_future(nx.run(assemble, nx.engine, self._request, self._place, budget))
        self._assembling.add_done_callback(_retrieve)

    async def finish(self) -> None:
        """Record the call. One that takes longer goes on being recorded after the answer has ended."""
        self.begin()
        if self._is_given_up:
            return
        recording = asyncio.ensure_future(self._record())
        self._recorder.waiting += 1
        recording.add_done_callback(self._ended)
        await asyncio.wait({recording}, timeout=HOLD_S)

    async def _record(self) -> None:
        nx = self._recorder.nx
        try:
            ctx = self._ctx
            if self._assembling is not None:
                ctx = await self._assembling
            if ctx is not None:
                await nx.run(self._record_now, nx.engine, ctx)
        except NexusError as error:
            self._report.reasons.append(f"not recorded: {error.code}: {str(error)[:300]}")
            await self._recorder.save(self._report)
        except Exception as error:
            self._report.reasons.append(f"not recorded: {type(error).__name__}")
            LOG.warning(
                "call not recorded: %s",
                type(error).__name__,
                extra={"fields": {"call": self._report.id}},
                exc_info=True,
            )
            await self._recorder.save(self._report)

    def _record_now(self, nx: Engine, ctx: AssembledContext) -> None:
        result = read_answer(self._request.format, b"".join(self._pieces), is_stream=self._is_stream)
        self._report.tokens = ctx.token_budget.used.total
        record(nx, ctx, result, self._report)
        store_report(nx.ledger.store, self._report)

    def _ended(self, recording: asyncio.Future[None]) -> None:
        self._recorder.waiting -= 1
        _retrieve(recording)

    def _give_up(self, why: str) -> None:
        self._is_given_up = True
        self._pieces.clear()
        self._report.reasons.append(f"not recorded: {why}")


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
