"""The record of one call: its answer is kept while it goes through, and stored with its request at the end."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadReference, LedgerError, NexusError, NoSuchSession
from nexus.proxy.cache_misses import read_cache
from nexus.proxy.calls import CallPlace, assemble, note_sizes, note_usage, read_answer, record
from nexus.proxy.omitted_tool import Lookups
from nexus.proxy.reports import CallReport, store_report
from nexus.proxy.requests import ClientRequest
from nexus.types.request import AgentResult

LOG = logging.getLogger("nexus.proxy")

HOLD_S = 2.0
"""Seconds that the end of an answer waits for the call to be recorded, at most."""

SETTLE_S = 2.0
"""Seconds that a request waits in `heal` and `fit` until its conversation's earlier calls are recorded, at most."""

MAX_ANSWER_BYTES = 32 * 2**20
"""Answers above this size go through and are not recorded."""

MAX_RECORDINGS = 64
"""Calls that are being recorded. Further ones are not: their messages are recorded with the conversation's next call."""

LAST_EVENTS = {
    "anthropic": re.compile(rb'^(?:event: ?message_stop|data: ?\{"type": ?"message_stop")', re.MULTILINE),
    "openai": re.compile(rb"^data: ?\[DONE\]", re.MULTILINE),
    "responses": re.compile(
        rb'^(?:event: ?|data: ?\{"type": ?")response\.(?:completed|incomplete|failed)', re.MULTILINE
    ),
    "gemini": re.compile(rb'(?<!\\)"finishReason": ?"[A-Z]'),
}
"""The last event of a stream, and not what a model says of it: there quotes are escaped, and lines do not begin."""


class CallRecorder:
    """Records the calls of one engine."""

    def __init__(self, nx: AsyncEngine) -> None:
        self.nx = nx
        self.recordings: dict[asyncio.Future[None], CallPlace] = {}
        """Calls whose answers have arrived, and that are being recorded."""

    async def save(self, report: CallReport, request: ClientRequest) -> None:
        """Store the report of a call that is not recorded. A ledger that cannot be written is no fault of the call."""
        try:
            await self.nx.run(_store, self.nx.engine, report, request)
        except NexusError as error:
            LOG.warning("report not stored: %s", error.code, extra={"fields": {"call": report.id}})

    def of(self, place: CallPlace | None = None) -> list[asyncio.Future[None]]:
        """Return the calls that are being recorded, all or those of a place."""
        return [recording for recording, own in self.recordings.items() if place in (None, own)]

    async def settle(self, place: CallPlace | None = None, *, at_most_s: float | None = None) -> None:
        """Wait for the calls that are being recorded, all or those of a place."""
        waiting = self.of(place)
        if waiting:
            await asyncio.wait(waiting, timeout=at_most_s)


class AnswerRecord:
    """One answer as it arrives.

    Args:
        recorder: Records the call at the end.
        request: The request.
        place: Whose call it is.
        report: What becomes of it.
        ctx: Its context; assembled while the answer arrives, if there is none yet.
        is_stream: True for an answer in pieces: server-sent events, or Gemini's list of replies.
        lookups: The calls of `nexus_omitted` before it.
    """

    def __init__(
        self,
        recorder: CallRecorder,
        request: ClientRequest,
        place: CallPlace,
        report: CallReport,
        ctx: AssembledContext | None,
        *,
        is_stream: bool,
        lookups: Lookups | None = None,
    ) -> None:
        self._recorder = recorder
        self._request = request
        self._place = place
        self._report = report
        self._ctx = ctx
        self._is_stream = is_stream
        self._lookups = lookups
        self.recording: asyncio.Future[None] | None = None
        """Ends when the call is recorded, or cannot be; None until the answer has arrived."""
        self._assembling: asyncio.Future[AssembledContext] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._unsent = b""
        self._has_ended = False
        self._is_given_up = False

    def add(self, piece: bytes) -> bytes:
        """Keep a piece of the answer, and return what the client may have now.

        Its end waits until the call is recorded. So does a line that is not complete: it may be the end's, and no client
        reads half a line of events.
        """
        self._unsent += piece
        if self._is_given_up:
            return self.rest()
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MAX_ANSWER_BYTES:
            self._give_up("the answer has more than 32 MiB")
            return self.rest()
        if not self._is_stream or self._has_ended:
            return b""
        last_event = LAST_EVENTS[self._request.format].search(self._unsent)
        if last_event is None:
            return self._taken(self._unsent.rfind(b"\n") + 1)
        self._has_ended = True
        return self._taken(self._unsent.rfind(b"\n", 0, last_event.start()) + 1)

    def rest(self) -> bytes:
        """Return what the client does not have yet."""
        return self._taken(len(self._unsent))

    def _taken(self, size: int) -> bytes:
        taken = self._unsent[:size]
        self._unsent = self._unsent[size:]
        return taken

    def begin(self) -> None:
        """Read the request, while the answer arrives."""
        if self._ctx is not None or self._assembling is not None or self._is_given_up:
            return
        if self._report.no_text:
            return
        if len(self._recorder.recordings) >= MAX_RECORDINGS:
            self._give_up("too many calls at once")
            return
        earlier = self._recorder.of(self._place)
        self._assembling = asyncio.ensure_future(self._assemble_after(earlier))
        self._assembling.add_done_callback(_retrieve)

    async def _assemble_after(self, earlier: Collection[asyncio.Future[None]]) -> AssembledContext:
        """Return the context of the request, once the calls before it are recorded: it goes on with them.

        Only those that are being recorded already: two that wait for each other would wait forever.
        """
        if earlier:
            await asyncio.wait(earlier)
        nx = self._recorder.nx
        return await nx.run(self._assemble, nx.engine)

    def _assemble(self, nx: Engine) -> AssembledContext:
        """Return the context of the request as it was sent."""
        budget = self._report.budget or None
        if self._report.outcome == "unread":
            budget = None
        return assemble(nx, self._request, self._place, budget)

    async def finish(self) -> None:
        """Record the call. One that takes longer goes on being recorded after the answer has ended."""
        self.begin()
        if self._is_given_up:
            return
        self.recording = asyncio.ensure_future(self._record())
        self._recorder.recordings[self.recording] = self._place
        self.recording.add_done_callback(self._recorder.recordings.pop)
        await asyncio.wait({self.recording}, timeout=HOLD_S)

    async def _record(self) -> None:
        nx = self._recorder.nx
        if self._report.no_text:
            await nx.run(self._read_usage, nx.engine)
            await self._recorder.save(self._report, self._request)
            return
        try:
            ctx = self._ctx
            if self._assembling is not None:
                ctx = await self._assembling
            if ctx is not None:
                await nx.run(self._record_now, nx.engine, ctx)
        except NexusError as error:
            self._report.reasons.append(f"not recorded: {error.code}: {str(error)[:300]}")
            if isinstance(error, LedgerError):  # of all calls, so that somebody must do something about it
                LOG.warning("call not recorded: %s", error.code, extra={"fields": {"call": self._report.id}})
            await self._recorder.save(self._report, self._request)
        except Exception as error:
            self._report.reasons.append(f"not recorded: {type(error).__name__}")
            LOG.warning(
                "call not recorded: %s",
                type(error).__name__,
                extra={"fields": {"call": self._report.id}},
                exc_info=True,
            )
            await self._recorder.save(self._report, self._request)

    def _read_usage(self, nx: Engine) -> None:
        """Say in the report what the answer says of tokens and cost; that stays when its text is gone."""
        try:
            result = read_answer(self._request.format, b"".join(self._pieces), is_stream=self._is_stream)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may be the answer's
            self._report.reasons.append(f"usage not read: {getattr(error, 'code', type(error).__name__)}")
            return
        note_usage(result.usage, nx.resolve(self._request.model or nx.model), self._report)

    def _record_now(self, nx: Engine, ctx: AssembledContext) -> None:
        result = read_answer(self._request.format, b"".join(self._pieces), is_stream=self._is_stream)
        try:
            record_answer(nx, self._request, ctx, result, self._report, self._lookups)
        except (BadReference, NoSuchSession):  # its session was erased since
            if self._report.outcome == "fitted":
                raise
            record_answer(nx, self._request, self._assemble(nx), result, self._report, self._lookups)

    def _give_up(self, why: str) -> None:
        self._is_given_up = True
        self._pieces.clear()
        what = "usage not read" if self._report.no_text else "not recorded"
        self._report.reasons.append(f"{what}: {why}")


def record_answer(
    nx: Engine,
    request: ClientRequest,
    ctx: AssembledContext,
    result: AgentResult,
    report: CallReport,
    lookups: Lookups | None = None,
) -> None:
    """Store a call with its answer and its report; `lookups` are the calls of `nexus_omitted` before the answer. It blocks.

    Raises what `Engine.record` raises: BadReference and NoSuchSession if the session was erased since.
    """
    note_sizes(request, ctx, report)
    if lookups is not None:
        report.tokens += lookups.tokens
    store = nx.ledger.store
    if ctx.mirrored is not None and ctx.mirrored.action in ("new", "fork"):
        # Before its session, so that after a kill no session of a proxy is without a report that names it.
        store_report(store, replace(report, session=ctx.session_label))
    record(nx, ctx, result, report, lookups)
    try:
        report.cache = read_cache(nx, ctx, report)
    except NexusError as error:  # the call is recorded all the same
        LOG.warning("cache not compared: %s", error.code, extra={"fields": {"call": report.id}})
    store_report(store, report)


def _store(nx: Engine, report: CallReport, request: ClientRequest) -> None:
    if report.no_text:
        report.request_sha256 = hashlib.sha256(request.data).hexdigest()
    store_report(nx.ledger.store, report)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
