"""One request on its way: to the upstream server, and its answer back to the client as it arrives.

Nothing here may keep a request from its way: after a fault of ours it is sent as it was received, except in `fit` where it
is over its budget. Of an answer only the end waits until the call is recorded: what a client has whole, the ledger has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import httpx
from msgspec import Struct

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.errors import BadEvent, BudgetTooSmall, NexusError
from nexus.providers.errors.bodies import overflow_message
from nexus.providers.errors.classifier import OverflowVerdict, classify, learned_window
from nexus.proxy.calls import CallPlace, PreparedCall, assemble, marked_body, prepare, surely_fits
from nexus.proxy.recording import AnswerRecord, CallRecorder
from nexus.proxy.reports import CallReport
from nexus.proxy.requests import ModelRequest
from nexus.proxy.settings import ProxySettings
from nexus.proxy.upstream import Headers, build_request, response_headers

LOG = logging.getLogger("nexus.proxy")

MAX_ERROR_BYTES = 2**20
"""Bytes of a refusal that are read to see whether the request was too long."""

MAX_TRIES = 3
"""Requests for one call, when the provider refuses it as too long."""

SHRINK = 0.85
"""Share of what a refused request had, or of the limit that the provider names, that the next one may have."""

_REFUSALS = (400, 413, 422, 429, 500)
"""Statuses of answers that may say that a request was too long."""

Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


class Refusal(Exception):
    """An answer of the proxy itself, in the form of the request's provider."""

    def __init__(self, status: int, text: str, **fields: Any) -> None:
        super().__init__(text)
        self.status = status
        self.fields = fields


class BrokenAnswer(Exception):
    """The upstream's answer broke off; the client's must too, without an end."""


class Incoming(Struct, frozen=True):
    """A request as it was received, for its upstream server."""

    method: str
    target: bytes
    """Path and query."""
    headers: Headers
    """Those to send."""
    data: bytes
    upstream: str


@dataclass
class _Answer:
    """An upstream's answer: its body is still to be read, or was read already."""

    response: httpx.Response
    body: bytes | None = None


@dataclass
class Exchange:
    """A request, and its answer."""

    client: httpx.AsyncClient
    settings: ProxySettings
    incoming: Incoming
    place: CallPlace
    report: CallReport
    """What becomes of it."""
    request: ModelRequest | None = None
    """The request as a model's; None for every other."""
    recorder: CallRecorder | None = None
    """None if it is neither changed nor recorded."""
    started_s: float = field(default_factory=time.perf_counter)
    record: AnswerRecord | None = None
    """The record of the answer, once it arrives; None if it is not recorded."""
    _ctx: AssembledContext | None = None
    _digest: Any = field(default_factory=hashlib.sha256)
    """Of the answer as it arrives."""

    async def run(self, send: Send) -> None:
        """Send the request upstream and its answer to the client.

        Raises Refusal before an answer has begun, and BrokenAnswer after.
        """
        data = await self._body()
        self.report.added_ms = self.elapsed_ms()
        answer = await self._answer(data)
        try:
            await self._relay(answer, send)
        finally:
            with suppress(httpx.HTTPError, OSError):
                await answer.response.aclose()

    # before it is sent -------------------------------------------------------------------------------------------

    async def _body(self) -> bytes:
        """Return the body to send. Raises Refusal if it is over its budget."""
        request = self.request
        data = self.incoming.data
        if request is None or self.recorder is None:
            return data
        budget = self._budget(request)
        if self.settings.mode == "record":
            return data
        try:
            if self.settings.mode == "fit" and (budget is None or surely_fits(request, budget)):
                return self._marked_body(request)
            prepared = await self._prepare(self.recorder, request, budget)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request goes on its way
            return await self._unread(self.recorder, request, budget, error)
        return prepared.data

    def _marked_body(self, request: ModelRequest) -> bytes:
        if self._adds_cache_fields(request):
            return marked_body(request, self.report)
        return request.data

    def _adds_cache_fields(self, request: ModelRequest) -> bool:
        return self.settings.adds_cache_fields(request.format, self.report.upstream)

    async def _prepare(self, recorder: CallRecorder, request: ModelRequest, budget: int | None) -> PreparedCall:
        nx = recorder.nx
        marks = self._adds_cache_fields(request)
        prepared = await nx.run(partial(prepare, nx.engine, request, self.place, budget, self.report, marks=marks))
        self._ctx = prepared.ctx
        if self.report.no_text and self.report.outcome == "healed":
            self.report.reasons = ["repaired: what was, is not kept without text"]
        return prepared

    async def _unread(
        self, recorder: CallRecorder, request: ModelRequest, budget: int | None, error: Exception
    ) -> bytes:
        """Return the body as received, although it could not be read or fitted. Raises Refusal if it is over the budget."""
        self.report.outcome = "unread"
        if self.report.no_text:
            self.report.reasons = [getattr(error, "code", type(error).__name__)]
        else:
            self.report.reasons.append(_described(error))
        if not isinstance(error, NexusError):
            LOG.warning(
                "request sent as received: %s",
                type(error).__name__,
                extra={"fields": {"call": self.report.id}},
                exc_info=error,
            )
        if budget is None or self.settings.fail_open:
            return self.incoming.data
        try:
            if isinstance(error, BudgetTooSmall):
                tokens = error.needed_tokens
            else:
                tokens = await recorder.nx.run(_count_tokens, recorder.nx.engine, request)
        except BadEvent as unreadable:
            self.report.outcome = "refused"
            raise Refusal(400, f"nexus proxy: {unreadable}, so its budget cannot be kept") from error
        if tokens <= budget:
            return self.incoming.data
        self.report.outcome = "refused"
        # In the provider's words for a prompt that is too long: clients know what to do about it.
        words, fields = overflow_message(request.format, budget, tokens)
        raise Refusal(400, f"{words} (budget of nexus proxy: {_described(error)})", **fields) from error

    def _budget(self, request: ModelRequest) -> int | None:
        """Return the request's budget in tokens; None if it has none."""
        if self.settings.mode != "fit":
            return None
        budget = self.settings.budget_for(self.place.client, request.model)
        self.report.budget = budget or 0
        return budget

    # upstream ----------------------------------------------------------------------------------------------------

    async def _answer(self, data: bytes) -> _Answer:
        """Return the upstream's answer; in `fit` that of a smaller request, if the first was refused as too long."""
        answer = _Answer(await self._send(data))
        while self._may_say_too_long(answer) and self.report.tries < MAX_TRIES:
            answer.body = await _read_refusal(answer.response)
            verdict = classify((answer.response.status_code, _as_json(answer.body)))
            if verdict.kind != "overflow" or verdict.part == "output":
                break
            smaller = await self._smaller(verdict)
            if smaller is None:
                break
            self.report.tries += 1
            answer = _Answer(await self._send(smaller))
        return answer

    async def _send(self, data: bytes) -> httpx.Response:
        incoming = self.incoming
        self.report.sent_bytes = len(data)
        try:
            request = build_request(
                self.client, incoming.method, incoming.upstream, incoming.target, incoming.headers, data
            )
            return await self.client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = str(error) or type(error).__name__
            self.report.error = f"upstream not reached: {type(error).__name__}"
            raise Refusal(502, f"nexus proxy: upstream {incoming.upstream} not reached: {why[:200]}") from error

    def _may_say_too_long(self, answer: _Answer) -> bool:
        is_fitted = self.settings.mode == "fit" and self.recorder is not None and self.request is not None
        return is_fitted and answer.response.status_code in _REFUSALS

    async def _smaller(self, verdict: OverflowVerdict) -> bytes | None:
        """Return a smaller request after a refusal; None if there is none, so that the refusal goes through."""
        recorder = self.recorder
        request = self.request
        if recorder is None or request is None:
            return None
        nx = recorder.nx
        try:
            if self._ctx is None:
                self._ctx = await nx.run(assemble, nx.engine, request, self.place, None)
            tokens = self._ctx.token_budget.used.total
            # The provider may count more than is counted here.
            ours = tokens / max(verdict.requested, tokens)
            limit = int((learned_window(verdict) or tokens) * ours)
            self.report.reasons.append(f"refused as too long with {tokens:,} tokens: sent again")
            prepared = await self._prepare(recorder, request, max(int(SHRINK * min(limit, tokens)), 1))
        except Exception as error:  # noqa: BLE001 - the provider's refusal goes through
            self.report.reasons.append(f"no smaller request: {_described(error)}")
            return None
        return prepared.data

    # the answer --------------------------------------------------------------------------------------------------

    async def _relay(self, answer: _Answer, send: Send) -> None:
        """Send an answer to the client as it arrives, and its end once the call is recorded."""
        response = answer.response
        self.report.status = response.status_code
        headers = response_headers(response, keeps_length=answer.body is None)
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": [*headers, *self._own_headers()],
            }
        )
        if answer.body is not None:
            self.report.error = f"status {response.status_code}"
            await send({"type": "http.response.body", "body": answer.body})
            return
        self.record = self._record_of(response)
        if self.record is None:
            await self._relay_pieces(response, send)
            await send({"type": "http.response.body", "body": b""})
            return
        await self._relay_pieces(response, send, self.record)
        await self.record.finish()
        await send({"type": "http.response.body", "body": self.record.rest()})

    async def _relay_pieces(self, response: httpx.Response, send: Send, record: AnswerRecord | None = None) -> None:
        """Send the pieces of an answer to the client, but for what waits until it is recorded. Raises BrokenAnswer."""
        try:
            async for received in response.aiter_raw():
                self._add_to_hash(received)
                self.report.first_byte_ms = self.report.first_byte_ms or self.elapsed_ms()
                piece = received
                if record is not None:
                    piece = record.add(received)
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if record is not None:
                    record.begin()
        except httpx.HTTPError as error:
            self.report.error = f"answer broke off: {type(error).__name__}"
            if record is not None:
                await send({"type": "http.response.body", "body": record.rest(), "more_body": True})
            raise BrokenAnswer from error

    def _add_to_hash(self, piece: bytes) -> None:
        """Count a piece of the answer, and hash it if nothing else of it is kept."""
        self.report.answer_bytes += len(piece)
        if self.report.no_text:
            self._digest.update(piece)
            self.report.answer_sha256 = self._digest.hexdigest()

    def _record_of(self, response: httpx.Response) -> AnswerRecord | None:
        """Return the record of an answer; None if it is not recorded, with the reason in the report."""
        request = self.request
        if request is None or self.recorder is None:
            return None
        if not response.is_success:
            self.report.error = f"status {response.status_code}"
            return None
        if response.headers.get("content-encoding", "identity") not in ("", "identity"):
            what = "usage not read" if self.report.no_text else "not recorded"
            self.report.reasons.append(f"{what}: the answer is compressed")
            return None
        is_list = request.path.endswith(":streamGenerateContent")
        is_stream = is_list or "event-stream" in response.headers.get("content-type", "")
        return AnswerRecord(self.recorder, request, self.place, self.report, self._ctx, is_stream=is_stream)

    def _own_headers(self) -> Headers:
        if self.request is None:
            return []
        headers = [(b"x-nexus-call", self.report.id.encode()), (b"x-nexus-outcome", self.report.outcome.encode())]
        if self.report.omitted:
            headers.append((b"x-nexus-omitted", str(self.report.omitted).encode()))
        return headers

    def elapsed_ms(self) -> float:
        """Return the time since the request was received."""
        return round(1_000 * (time.perf_counter() - self.started_s), 2)


async def _read_refusal(response: httpx.Response) -> bytes:
    """Return the body of a refusal, or its beginning."""
    pieces: list[bytes] = []
    size = 0
    with suppress(httpx.HTTPError):
        async for piece in response.aiter_raw():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ERROR_BYTES:
                break
    return b"".join(pieces)


def _count_tokens(nx: Engine, request: ModelRequest) -> int:
    """Return the tokens of a body that could not be fitted, counted as one text."""
    model = nx.resolve(request.model or nx.model)
    return int(nx.counter.count(request.text.decode("utf-8", "replace")) * model.token_factor)


def _as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


def _described(error: BaseException) -> str:
    """Return a fault in one line. Other errors than ours may have texts of the request in theirs."""
    if isinstance(error, NexusError):
        return f"{error.code}: {str(error)[:300]}"
    return type(error).__name__
