"""One request on its way: to the upstream server, and its answer back to the client as it arrives.

Nothing here may keep a request from its way: after a fault of ours it is sent as it was received, except in `fit` where it
is over its budget. Of an answer only the end waits until the call is recorded: what a client has whole, the ledger has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import httpx
from msgspec import Struct

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.errors import BadEvent, BadReply, BudgetTooSmall, NexusError
from nexus.providers.errors.bodies import overflow_message
from nexus.providers.errors.classifier import OverflowVerdict, classify, learned_window
from nexus.proxy import omitted_tool
from nexus.proxy.answer_start import AnswerStream
from nexus.proxy.calls import CallPlace, PreparedCall, assemble, marked_body, prepare, read_answer, surely_fits
from nexus.proxy.omitted_tool import Lookups
from nexus.proxy.recording import MAX_ANSWER_BYTES, SETTLE_S, AnswerRecord, CallRecorder
from nexus.proxy.reports import CallReport
from nexus.proxy.requests import LIST_KEYS, ClientRequest, encoded
from nexus.proxy.settings import ProxySettings
from nexus.proxy.upstream import Headers, build_request, response_headers
from nexus.types.request import AgentResult

LOG = logging.getLogger("nexus.proxy")

MAX_ERROR_BYTES = 2**20
"""Bytes of a refusal that are read to see whether the request was too long."""

MAX_TRIES = 3
"""Requests for one call, when the provider refuses it as too long."""

SHRINK = 0.85
"""Share of what a refused request had, or of the limit that the provider names, that the next one may have."""

_TOOL_REFUSALS = (400, 404, 422)
"""Statuses of answers that may say that the model takes no tools."""

_REFUSED_IN_STREAM = 400
"""Status that a refusal in a stream would have without one."""

_REFUSALS = (400, 413, 422, 429, 500)
"""Statuses of answers that may say that a request was too long."""

Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


class Refusal(Exception):
    """An answer of the proxy itself, in the form of the request's provider."""

    def __init__(self, status: int, text: str, **fields: Any) -> None:
        super().__init__(text)
        self.status = status
        self.fields = fields
        self.headers: dict[str, str] = {}


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
class _UpstreamAnswer:
    """An upstream's answer: its body is still to be read, or was read already."""

    response: httpx.Response
    body: bytes | None = None
    stream: AnswerStream | None = None
    """The body, if its beginning was looked at."""

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the body, as it arrives if it was not read yet."""
        if self.body is not None:
            yield self.body
            return
        stream = self.stream or AnswerStream(self.response.aiter_raw())
        async for piece in stream.pieces():
            yield piece


@dataclass
class Exchange:
    """A request, and its answer."""

    client: httpx.AsyncClient
    settings: ProxySettings
    incoming: Incoming
    place: CallPlace
    report: CallReport
    """What becomes of it."""
    request: ClientRequest | None = None
    """The request as a model's; None for every other."""
    recorder: CallRecorder | None = None
    """None if it is neither changed nor recorded."""
    started_s: float = field(default_factory=time.perf_counter)
    record: AnswerRecord | None = None
    """The record of the answer, once it arrives; None if it is not recorded."""
    _ctx: AssembledContext | None = None
    _digest: Any = field(default_factory=hashlib.sha256)
    """Of the answer as it arrives."""
    _limit: int | None = None
    """Budget of the body that was fitted last."""
    _fitted: bytes = b""
    """That body, without results of the tool, if it offers `nexus_omitted`; else empty."""
    _may_offer: bool = True
    """False once the request went out without `nexus_omitted`, because it could not be answered or was refused."""
    _lookups: Lookups = field(default_factory=Lookups)

    async def run(self, send: Send) -> None:
        """Send the request upstream and its answer to the client.

        Raises Refusal before an answer has begun, and BrokenAnswer after.
        """
        data = await self._body()
        self.report.added_ms = self.elapsed_ms()
        answer = await self._answer(data)
        try:
            if self._fitted and self.recorder is not None and self.request is not None:
                answer = await self._after_lookups(self.recorder, self.request, answer)
            await self._relay(answer, send)
        finally:
            if answer.stream is not None:
                answer.stream.close()
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

    def _marked_body(self, request: ClientRequest) -> bytes:
        if self._adds_cache_fields(request):
            return marked_body(request, self.report)
        return request.data

    def _adds_cache_fields(self, request: ClientRequest) -> bool:
        return self.settings.adds_cache_fields(request.format, self.report.upstream)

    async def _prepare(self, recorder: CallRecorder, request: ClientRequest, budget: int | None) -> PreparedCall:
        nx = recorder.nx
        options = {
            "marks": self._adds_cache_fields(request),
            "omitted_tool": self._may_offer and self.settings.omitted_tool,
        }
        await recorder.settle(self.place, at_most_s=SETTLE_S)
        prepared = await nx.run(partial(prepare, nx.engine, request, self.place, budget, self.report, **options))
        self._ctx = prepared.ctx
        self._limit = budget
        self._fitted = prepared.data if prepared.offers_tool else b""
        self._lookups.drop_items()
        if self.report.no_text and self.report.outcome == "healed":
            self.report.reasons = ["repaired: what was, is not kept without text"]
        return prepared

    async def _unread(
        self, recorder: CallRecorder, request: ClientRequest, budget: int | None, error: Exception
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

    def _budget(self, request: ClientRequest) -> int | None:
        """Return the request's budget in tokens; None if it has none."""
        if self.settings.mode != "fit":
            return None
        budget = self.settings.budget_for(self.place.client, request.model)
        self.report.budget = budget or 0
        return budget

    # upstream ----------------------------------------------------------------------------------------------------

    async def _answer(self, data: bytes) -> _UpstreamAnswer:
        """Return the upstream's answer; in `fit` that of a smaller request, if the first was refused as too long."""
        answer = _UpstreamAnswer(await self._send(data))
        try:
            while self.report.tries < MAX_TRIES:
                verdict = await self._verdict(answer)
                if verdict is None or verdict.kind != "overflow" or verdict.part == "output":
                    break
                smaller = await self._smaller(verdict)
                if smaller is None:
                    break
                self.report.tries += 1
                await answer.response.aclose()
                answer = _UpstreamAnswer(await self._send(smaller))
        except BaseException:
            with suppress(httpx.HTTPError, OSError):
                await answer.response.aclose()
            raise
        return answer

    async def _verdict(self, answer: _UpstreamAnswer) -> OverflowVerdict | None:
        """Return why a request was refused, where a smaller one may be sent; None if it was not."""
        if self.settings.mode != "fit" or self.recorder is None or self.request is None:
            return None
        response = answer.response
        if response.status_code in _REFUSALS:
            answer.body = await _read_refusal(response)
            return classify((response.status_code, _as_json(answer.body)))
        is_stream = response.is_success and "event-stream" in response.headers.get("content-type", "")
        if not is_stream or _is_compressed(response):
            return None
        answer.stream = AnswerStream(response.aiter_raw())
        refusal = await answer.stream.refusal()
        return None if refusal is None else classify((_REFUSED_IN_STREAM, refusal))

    async def _send(self, data: bytes) -> httpx.Response:
        incoming = self.incoming
        self.report.sent_bytes = len(data)
        headers = incoming.headers
        if data is not incoming.data:  # another body is not compressed
            headers = [(name, value) for name, value in headers if name != b"content-encoding"]
        try:
            request = build_request(self.client, incoming.method, incoming.upstream, incoming.target, headers, data)
            return await self.client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = str(error) or type(error).__name__
            self.report.error = f"upstream not reached: {type(error).__name__}"
            raise Refusal(502, f"nexus proxy: upstream {incoming.upstream} not reached: {why[:200]}") from error

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

    # calls of nexus_omitted --------------------------------------------------------------------------------------

    async def _after_lookups(
        self, recorder: CallRecorder, request: ClientRequest, answer: _UpstreamAnswer
    ) -> _UpstreamAnswer:
        """Return the answer for the client; the calls of `nexus_omitted` before it are answered here.

        An answer is read whole before the client gets any of it: the call may come at its end, and reasoning that the
        provider has signed may not be joined with that of another answer. Raises Refusal, BrokenAnswer.
        """
        while self._fitted:
            response = answer.response
            if response.status_code in _TOOL_REFUSALS or _is_compressed(response):
                await response.aclose()
                self.report.reasons.append(
                    f"sent again without {omitted_tool.NAME}: the answer was {response.status_code}"
                )
                return await self._answer(await self._without_tool(recorder, request))
            if not response.is_success:
                return answer
            answer.body = await self._read_whole(answer)
            try:
                result = read_answer(request.format, answer.body, is_stream=_is_stream(request, response))
            except BadReply as error:
                if omitted_tool.NAME.encode() not in answer.body:
                    return answer
                raise Refusal(502, f"nexus proxy: answer of the upstream not readable: {error}") from error
            if not omitted_tool.own_calls(result):
                return answer
            self._lookups.usages.append(result.usage)
            answer = await self._answer(await self._next_body(recorder, request, result))
        return answer

    async def _read_whole(self, answer: _UpstreamAnswer) -> bytes:
        """Return the body of an answer. Raises BrokenAnswer, and Refusal for a very large one."""
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in answer.pieces():
                pieces.append(piece)
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise Refusal(502, "nexus proxy: answer of the upstream has more than 32 MiB")
        except httpx.HTTPError as error:
            self.report.error = f"answer broke off: {type(error).__name__}"
            raise BrokenAnswer from error
        finally:
            await answer.response.aclose()
        return b"".join(pieces)

    async def _next_body(self, recorder: CallRecorder, request: ClientRequest, result: AgentResult) -> bytes:
        """Return the body with the results of the calls in an answer; without the tool if they have no room. Raises Refusal."""
        if self._lookups.rounds >= omitted_tool.MAX_ROUNDS:
            raise Refusal(502, f"nexus proxy: the model called {omitted_tool.NAME}, which was not offered any more")
        nx = recorder.nx
        try:
            return await nx.run(self._with_results, nx.engine, request, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request goes on its way
            self.report.reasons.append(f"sent again without {omitted_tool.NAME}: {_described(error)}")
            return await self._without_tool(recorder, request)

    async def _without_tool(self, recorder: CallRecorder, request: ClientRequest) -> bytes:
        """Return the body without the tool and its results."""
        self._may_offer = False
        prepared = await self._prepare(recorder, request, self._limit)
        return prepared.data

    def _with_results(self, nx: Engine, request: ClientRequest, result: AgentResult) -> bytes:
        """Return the body with the results of an answer's calls, within the budget: the list is cut further for them.

        Raises BudgetTooSmall. It blocks.
        """
        limit = self._limit or 0
        count = omitted_tool.token_count(nx.counter.count, nx.resolve(request.model or nx.model).token_factor)
        lookups = self._lookups
        assert self._ctx is not None
        needed = lookups.tokens + count(omitted_tool.items_text(omitted_tool.round_items(request, result, {})))
        if self._ctx.token_budget.used.total + needed + omitted_tool.LEAST_RESULT_TOKENS > limit:
            budget = max(limit - needed - omitted_tool.MAX_RESULT_TOKENS, 1)
            marks = self._adds_cache_fields(request)
            prepared = prepare(nx, request, self.place, budget, self.report, marks=marks, omitted_tool=True)
            self._ctx = prepared.ctx
            self._fitted = prepared.data
        room = limit - self._ctx.token_budget.used.total - needed
        numbers = lookups.answer(request, result, self._ctx, room, count)
        self.report.lookups = len(lookups.texts)
        self.report.reasons.append(
            f"{omitted_tool.NAME} answered with messages {', '.join(map(str, numbers)) or 'none'}"
        )
        body = json.loads(self._fitted)
        key = LIST_KEYS[request.format]
        body[key] = [*body[key], *lookups.items]
        if lookups.rounds >= omitted_tool.MAX_ROUNDS:
            body = omitted_tool.without_tool(request.format, body)
        return encoded(body)

    # the answer --------------------------------------------------------------------------------------------------

    async def _relay(self, answer: _UpstreamAnswer, send: Send) -> None:
        """Send an answer to the client as it arrives, and its end once the call is recorded."""
        response = answer.response
        self.report.status = response.status_code
        headers = response_headers(response, keeps_length=answer.body is None)
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": [*headers, *self.own_headers()],
            }
        )
        if answer.body is not None and not response.is_success:
            self.report.error = f"status {response.status_code}"
            await send({"type": "http.response.body", "body": answer.body})
            return
        self.record = self._record_of(response)
        if self.record is None:
            await self._relay_pieces(answer, send)
            await send({"type": "http.response.body", "body": b""})
            return
        await self._relay_pieces(answer, send, self.record)
        await self.record.finish()
        await send({"type": "http.response.body", "body": self.record.rest()})

    async def _relay_pieces(self, answer: _UpstreamAnswer, send: Send, record: AnswerRecord | None = None) -> None:
        """Send the pieces of an answer to the client, but for what waits until it is recorded. Raises BrokenAnswer."""
        try:
            async for received in answer.pieces():
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
        if _is_compressed(response):
            what = "usage not read" if self.report.no_text else "not recorded"
            self.report.reasons.append(f"{what}: the answer is compressed")
            return None
        is_stream = _is_stream(request, response)
        lookups = self._lookups
        return AnswerRecord(
            self.recorder, request, self.place, self.report, self._ctx, is_stream=is_stream, lookups=lookups
        )

    def own_headers(self) -> Headers:
        """Return the headers of an answer that say what became of the call."""
        if self.request is None:
            return []
        headers = [(b"x-nexus-call", self.report.id.encode()), (b"x-nexus-outcome", self.report.outcome.encode())]
        if self.report.omitted:
            headers.append((b"x-nexus-omitted", str(self.report.omitted).encode()))
        return headers

    def elapsed_ms(self) -> float:
        """Return the time since the request was received."""
        return round(1_000 * (time.perf_counter() - self.started_s), 2)


def _is_stream(request: ClientRequest, response: httpx.Response) -> bool:
    is_list = request.path.endswith(":streamGenerateContent")
    return is_list or "event-stream" in response.headers.get("content-type", "")


def _is_compressed(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "identity") not in ("", "identity")


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


def _count_tokens(nx: Engine, request: ClientRequest) -> int:
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
