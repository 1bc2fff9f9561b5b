"""`nexus.fitted`: a client object of the packages `openai` or `anthropic` whose calls are fitted and recorded.

It is the proxy without a server: the client's own methods make the request, and its HTTP client is exchanged for one that
fits the body and reads the answer. So every method works, streamed or not, and returns what it did before.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from msgspec import Struct

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadReply, BadSetting, BudgetTooSmall, NexusError
from nexus.providers.errors.bodies import error_body, overflow_message
from nexus.proxy.calls import CallPlace, prepare, read_answer
from nexus.proxy.openai_cache import is_openai
from nexus.proxy.recording import LAST_EVENTS, MAX_ANSWER_BYTES, record_answer
from nexus.proxy.reports import CallReport, new_id
from nexus.proxy.requests import ClientRequest, format_of

LOG = logging.getLogger("nexus.fitted")

CONVERSATION_HEADER = "x-nexus-conversation"
"""Header of a single call that names its conversation: `extra_headers={"x-nexus-conversation": "…"}`."""

_LAST_EVENT_BYTES = 200
"""Bytes of an answer that are looked at again with its next piece, for an event that is split between two."""

_NEW_BODY = ("content-length", "content-encoding", "transfer-encoding", "accept-encoding")
"""Headers of a request that another body does not have; the answer is asked for without compression."""

_UNREAD_SERVICES = ("Bedrock", "Vertex", "Foundry")
"""Clients whose requests have other paths and forms."""

ClientT = TypeVar("ClientT")


class Fitting(Struct, frozen=True):
    """How the calls of a client are fitted."""

    engine: Engine
    client: str
    """The client's package."""
    budget: int | None
    conversation: str
    principal: str
    cache_marks: bool


def fitted(
    client: ClientT,
    nx: Engine | AsyncEngine,
    *,
    budget: int | None = None,
    conversation: str = "",
    principal: str = "",
    cache_marks: bool = True,
) -> ClientT:
    """Return the client with the same methods, whose calls are within a budget and recorded.

        client = nexus.fitted(openai.OpenAI(), nexus.open(ledger="ledger.db"), budget=32_000)

    Calls of chat completions, Responses and Anthropic's messages are fitted: created, parsed and streamed ones. A list
    that is valid and fits is sent byte for byte, else the body with the fitted list. A call is recorded when its answer is
    whole, before the client has its end; one that failed or broke off leaves nothing. All other requests are unchanged.

    Args:
        client: An `OpenAI`, `AsyncOpenAI`, `Anthropic` or `AsyncAnthropic` object. It stays as it is, and is closed by you.
        nx: The engine that records. It stays open.
        budget: Tokens of a request, at most; None repairs what a provider would refuse, and omits nothing.
        conversation: Id of the conversation. Without it, a call's header `x-nexus-conversation` or `prompt_cache_key`
            counts, or else the list's beginning. Lists of different conversations are never compared.
        principal: The user. Lists of different users are never compared.
        cache_marks: Add cache breakpoints where the client sets none.

    Raises BadSetting for another object. A call that cannot be fitted into the budget raises the package's own error for a
    prompt that is too long (status 400).
    """
    kind = type(client).__name__
    package = type(client).__module__.partition(".")[0]
    inner = getattr(client, "_client", None)
    with_options = getattr(client, "with_options", None)
    if with_options is None or inner is None or any(name in kind for name in _UNREAD_SERVICES):
        raise BadSetting(
            f"client is {kind}, which nexus.fitted cannot read (give an OpenAI, AsyncOpenAI, Anthropic or AsyncAnthropic "
            "object; for others use nx.mirror)"
        )
    if budget is not None and (type(budget) is not int or budget < 1):
        raise BadSetting("budget of nexus.fitted is no number of tokens (pass an int above 0, or None)")
    engine = nx.engine if isinstance(nx, AsyncEngine) else nx
    fitting = Fitting(engine, package, budget, conversation, principal, cache_marks)
    return with_options(http_client=_http_client(fitting, inner))


class _Refused(Exception):
    """A request that is not sent. The client gets this as the provider's answer."""

    def __init__(self, format_: Any, error: NexusError, budget: int | None) -> None:
        super().__init__(str(error))
        text = f"nexus: {error}"
        fields: dict[str, Any] = {}
        if isinstance(error, BudgetTooSmall) and budget is not None:
            words, fields = overflow_message(format_, budget, error.needed_tokens)
            text = f"{words} ({text})"
        self.body = json.dumps(error_body(format_, 400, text, **fields)).encode()


class _Call:
    """A request of a model, and its answer as it arrives. Everything here blocks but `add`.

    Args:
        fitting: How it is fitted.
        request: The request.
        url: Its address.
        conversation: The conversation that its header names.
    """

    def __init__(self, fitting: Fitting, request: ClientRequest, url: str, conversation: str) -> None:
        self._fitting = fitting
        self._request = request
        named = fitting.conversation or conversation or request.conversation
        self._place = CallPlace(fitting.client, fitting.principal, named)
        self._ctx: AssembledContext | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_stream = False
        self._is_recorded = False
        self._marks = fitting.cache_marks and (request.format == "anthropic" or is_openai(url))
        self.report = CallReport(id=new_id(), at_ms=fitting.engine.clock_ms(), client=fitting.client, path=request.path)
        self.report.mode = "heal" if fitting.budget is None else "fit"
        self.report.upstream = url
        self.report.format = request.format
        self.report.conversation = named
        self.report.user = fitting.principal
        self.report.budget = fitting.budget or 0
        self.report.received_bytes = len(request.data)

    def body(self) -> bytes:
        """Return the body to send. Raises _Refused."""
        budget = self._fitting.budget
        try:
            self.report.model = self._request.model
            prepared = prepare(self._fitting.engine, self._request, self._place, budget, self.report, marks=self._marks)
        except NexusError as error:
            if budget is not None:
                raise _Refused(self._request.format, error, budget) from error
            LOG.warning("request sent as received, and not recorded: %s: %s", error.code, error)
            return self._request.data
        self._ctx = prepared.ctx
        self.report.sent_bytes = len(prepared.data)
        return prepared.data

    def begin_answer(self, status: int, headers: Any) -> None:
        """Take note of the answer's head."""
        self.report.status = status
        self._is_stream = "event-stream" in headers.get("content-type", "")
        is_success = 200 <= status < 300
        if not is_success or headers.get("content-encoding", "identity") != "identity":
            self._ctx = None

    def add(self, piece: bytes) -> bool:
        """Keep a piece of the answer. Return True if it is whole, so that it is to be recorded before the piece is passed on."""
        if self._ctx is None:
            return False
        tail = self._pieces[-1][-_LAST_EVENT_BYTES:] if self._pieces else b""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MAX_ANSWER_BYTES:
            LOG.warning("call not recorded: its answer has more than 32 MiB")
            self._ctx = None
            return False
        return self._is_stream and LAST_EVENTS[self._request.format].search(tail + piece) is not None

    def record(self) -> None:
        """Store the call, unless it is stored already or its answer is not whole. The call itself never fails for it."""
        if self._ctx is None or self._is_recorded:
            return
        self._is_recorded = True
        try:
            result = read_answer(self._request.format, b"".join(self._pieces), is_stream=self._is_stream)
            record_answer(self._fitting.engine, self._request, self._ctx, result, self.report)
        except BadReply as error:
            LOG.warning("call not recorded: %s", error)
        except NexusError as error:
            LOG.warning("call not recorded: %s: %s", error.code, error)


def _read_call(fitting: Fitting, request: Any, data: bytes) -> _Call | None:
    """Return the call of a request to a model; None for another request."""
    path = request.url.path
    format_ = format_of(request.method, path)
    if format_ is None:
        return None
    client_request = ClientRequest(format_, path, data, request.headers.get("content-encoding", ""))
    return _Call(fitting, client_request, str(request.url), request.headers.get(CONVERSATION_HEADER, ""))


def _with_body(http: Any, request: Any, data: bytes) -> Any:
    """Return a request with another body."""
    dropped = (*_NEW_BODY, CONVERSATION_HEADER)
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in dropped]
    headers.append(("accept-encoding", "identity"))
    if data == request.content and (encoding := request.headers.get("content-encoding")):
        headers.append(("content-encoding", encoding))
    return http.Request(request.method, request.url, headers=headers, content=data, extensions=request.extensions)


def _http_package(inner: Any) -> Any:
    """Return the package of an HTTP client, `httpx` or `httpx2`. Raises BadSetting for another one."""
    packages = (kind.__module__.partition(".")[0] for kind in type(inner).__mro__)
    name = next((package for package in packages if package in ("httpx", "httpx2")), "")
    if not name:
        raise BadSetting(f"HTTP client {type(inner).__name__} unknown to nexus.fitted (give one of httpx or httpx2)")
    return sys.modules[name]


class _Answer:
    """The body of an answer, which is recorded before the client has its end."""

    def __init__(self, call: _Call, response: Any) -> None:
        self._call = call
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._response.stream:
            if self._call.add(piece):
                self._call.record()
            yield piece
        self._call.record()

    def close(self) -> None:
        self._response.close()


class _AsyncAnswer:
    """The same for asynchronous clients."""

    def __init__(self, nx: AsyncEngine, call: _Call, response: Any) -> None:
        self._nx = nx
        self._call = call
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._response.stream:
            if self._call.add(piece):
                await self._nx.run(self._call.record)
            yield piece
        await self._nx.run(self._call.record)

    async def aclose(self) -> None:
        await self._response.aclose()


class _Transport:
    """Fits requests, and sends them by another HTTP client: its connections, hooks and proxies stay in use."""

    def __init__(self, http: Any, fitting: Fitting, inner: Any) -> None:
        self._http = http
        self._fitting = fitting
        self._inner = inner
        self._answer = type("FittedAnswer", (_Answer, http.SyncByteStream), {})

    def handle_request(self, request: Any) -> Any:
        http = self._http
        call = _read_call(self._fitting, request, request.read())
        if call is None:
            response = self._inner.send(request, stream=True)
            return _with_stream(http, response, response.stream)
        try:
            data = call.body()
        except _Refused as refused:
            return _refusal(http, call, refused)
        response = self._inner.send(_with_body(http, request, data), stream=True)
        call.begin_answer(response.status_code, response.headers)
        return _with_stream(http, response, self._answer(call, response), call)


class _AsyncTransport:
    """The same for asynchronous clients."""

    def __init__(self, http: Any, fitting: Fitting, inner: Any) -> None:
        self._http = http
        self._fitting = fitting
        self._inner = inner
        self._nx = AsyncEngine(fitting.engine)
        self._answer = type("FittedAsyncAnswer", (_AsyncAnswer, http.AsyncByteStream), {})

    async def handle_async_request(self, request: Any) -> Any:
        http = self._http
        call = _read_call(self._fitting, request, await request.aread())
        if call is None:
            response = await self._inner.send(request, stream=True)
            return _with_stream(http, response, response.stream)
        try:
            data = await self._nx.run(call.body)
        except _Refused as refused:
            return _refusal(http, call, refused)
        response = await self._inner.send(_with_body(http, request, data), stream=True)
        call.begin_answer(response.status_code, response.headers)
        return _with_stream(http, response, self._answer(self._nx, call, response), call)


def _http_client(fitting: Fitting, inner: Any) -> Any:
    """Return an HTTP client that fits, in front of another one. Raises BadSetting."""
    http = _http_package(inner)
    if isinstance(inner, http.AsyncClient):
        transport = type("FittedAsyncTransport", (_AsyncTransport, http.AsyncBaseTransport), {})
        return http.AsyncClient(transport=transport(http, fitting, inner), timeout=inner.timeout)
    transport = type("FittedTransport", (_Transport, http.BaseTransport), {})
    return http.Client(transport=transport(http, fitting, inner), timeout=inner.timeout)


def _with_stream(http: Any, response: Any, stream: Any, call: _Call | None = None) -> Any:
    """Return a response with another body."""
    headers = response.headers.multi_items()
    if call is not None:
        headers += _own_headers(call)
    return http.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


def _refusal(http: Any, call: _Call, refused: _Refused) -> Any:
    call.report.outcome = "refused"
    headers = [("content-type", "application/json"), ("x-should-retry", "false"), *_own_headers(call)]
    return http.Response(400, headers=headers, content=refused.body)


def _own_headers(call: _Call) -> list[tuple[str, str]]:
    return [("x-nexus-call", call.report.id), ("x-nexus-outcome", call.report.outcome)]
