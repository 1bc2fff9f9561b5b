"""Endpoints: one for each provider's package, which sends a context's request body and yields the events of its stream.

A package takes a second or two to import: it is imported by `prepare`, which clients call in a thread before the first
request. The packages' own retries are off, so that there is one policy (`client.RetryPolicy`), and the time between
events is limited there too.
"""

from __future__ import annotations

import asyncio
import json
import re
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from importlib.util import find_spec
from threading import Lock
from typing import Any, Protocol

from nexus.context import AssembledContext
from nexus.errors import PackageMissing
from nexus.providers.streams import END_OF_STREAM
from nexus.text.as_received import ReceivedFormat
from nexus.text.redact import redact
from nexus.tokens.model_table import provider_table

NO_KEY = "none"
"""Sent to servers without a key: the packages demand one, and would take another provider's from the environment."""

_CONNECTIONS = 1_000
_IDLE_CONNECTIONS = 20
"""The packages look at each idle connection at every request, on the event loop."""


class Endpoint(Protocol):
    """A server that speaks one format."""

    name: str
    """Name for messages: the provider, or the server's address."""

    @property
    def format(self) -> ReceivedFormat:
        """Format of requests and replies."""
        ...

    def prepare(self) -> object:
        """Import the packages of the first call. Blocks for a second or two, the first time alone."""
        ...

    def events(self, ctx: AssembledContext) -> AsyncGenerator[object, None]:
        """Send the context's request body and yield the events of the answer."""
        ...

    def without_key(self, text: str) -> str:
        """Return a text without the endpoint's key."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class _PackageEndpoint:
    """An endpoint of a provider's package, which is imported when the package's client is first needed."""

    def __init__(self, name: str, format_: ReceivedFormat, base_url: str, api_key: str) -> None:
        self.name = name
        self.base_url = redact(base_url).text
        self.format: ReceivedFormat = format_
        self._address = base_url
        self._api_key = api_key
        self._client: Any = None
        self._lock = Lock()

    def prepare(self) -> Any:
        """Import the package and return its client, which is made once."""
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.format!r}, {self.base_url!r})"

    def without_key(self, text: str) -> str:
        """Return a text without the endpoint's key."""
        if self._api_key in ("", NO_KEY):
            return text
        return text.replace(self._api_key, "[secret: API key]")


class OpenAIEndpoint(_PackageEndpoint):
    """OpenAI or a compatible server: the Responses API (`responses`) or chat completions (`openai`)."""

    def __init__(
        self, name: str, base_url: str, api_key: str, *, connect_s: float, format_: ReceivedFormat = "openai"
    ) -> None:
        super().__init__(name, format_, base_url, api_key)
        _require("openai", "openai")
        self._connect_s = connect_s

    def _new_client(self) -> Any:
        import openai

        timeout = openai.Timeout(None, connect=self._connect_s)
        http = openai.DefaultAsyncHttpxClient(limits=_limits(type(openai.DEFAULT_CONNECTION_LIMITS)), timeout=timeout)
        return openai.AsyncOpenAI(
            base_url=self._address, api_key=self._api_key or NO_KEY, timeout=timeout, max_retries=0, http_client=http
        )

    async def events(self, ctx: AssembledContext) -> AsyncGenerator[object, None]:
        """Send the context's request body and yield the events of the answer."""
        client = self.prepare()
        import openai

        if self.format == "responses":
            path = "/responses"
            body = _without_route(ctx.to_responses(fast=True), ctx.provider)
        else:
            path = "/chat/completions"
            body = _without_route(ctx.to_openai(fast=True), ctx.provider)
            body["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
        async with await _post(client, path, body, openai.AsyncStream) as stream:
            async for event in _events(stream):
                yield event

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()


class AnthropicEndpoint(_PackageEndpoint):
    """Anthropic, or a server with its Messages API."""

    def __init__(self, name: str, base_url: str, api_key: str, *, connect_s: float) -> None:
        super().__init__(name, "anthropic", base_url, api_key)
        _require("anthropic", "anthropic")
        self._connect_s = connect_s

    def _new_client(self) -> Any:
        import anthropic

        timeout = anthropic.Timeout(None, connect=self._connect_s)
        http = anthropic.DefaultAsyncHttpxClient(
            limits=_limits(type(anthropic.DEFAULT_CONNECTION_LIMITS)), timeout=timeout
        )
        return anthropic.AsyncAnthropic(
            base_url=self._address, api_key=self._api_key or NO_KEY, timeout=timeout, max_retries=0, http_client=http
        )

    async def events(self, ctx: AssembledContext) -> AsyncGenerator[object, None]:
        """Send the context's request body and yield the events of the answer."""
        client = self.prepare()
        import anthropic

        body = _without_route(ctx.to_anthropic(), ctx.provider)
        async with await _post(client, "/v1/messages", body, anthropic.AsyncStream) as stream:
            async for event in _events(stream):
                yield event

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()


class GeminiEndpoint(_PackageEndpoint):
    """Gemini's API, not Vertex AI."""

    def __init__(self, name: str, base_url: str, api_key: str) -> None:
        super().__init__(name, "gemini", base_url, api_key)
        _require("google.genai", "gemini")
        self._http: Any = None

    def _new_client(self) -> Any:
        import httpx2
        from google import genai
        from google.genai import types

        self._http = httpx2.AsyncClient(limits=_limits(httpx2.Limits), timeout=None, follow_redirects=True)
        options = types.HttpOptions(
            base_url=self._address,
            api_version="v1beta",
            retry_options=types.HttpRetryOptions(attempts=1),
            httpx_async_client=self._http,
        )
        return genai.Client(vertexai=False, api_key=self._api_key or NO_KEY, http_options=options)

    async def events(self, ctx: AssembledContext) -> AsyncGenerator[object, None]:
        """Send the context's request body and yield the events of the answer."""
        client = self.prepare()
        body = _without_route(ctx.to_gemini(), ctx.provider)
        config = {**body.get("config", {}), "automatic_function_calling": {"disable": True}}
        arrived: asyncio.Queue[object] = asyncio.Queue()

        async def read() -> None:
            try:
                stream = await client.aio.models.generate_content_stream(**{**body, "config": config})
                async for event in stream:
                    arrived.put_nowait(event)
            finally:
                arrived.put_nowait(None)

        # The package's generators are nested, and closing the outer one leaves the connection open. A task that is cancelled
        # where it reads closes all of them.
        task = asyncio.create_task(read())
        try:
            while (event := await arrived.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._http.aclose()
            await self._client.aio.aclose()


_OPTIONS = {"extra_headers": "headers", "extra_query": "params", "extra_body": "extra_json", "timeout": "timeout"}
"""Arguments of the packages' methods that are no fields of the request, and their names in the packages' `post`."""


async def _post(client: Any, path: str, body: dict[str, Any], kind: Any) -> Any:
    """Send a request and return the stream of its events as plain dicts.

    The packages' own methods make objects of each event, which takes more time than all the rest of a call.
    """
    fields = {name: value for name, value in body.items() if name not in _OPTIONS}
    options = {option: body[name] for name, option in _OPTIONS.items() if name in body}
    request = {**fields, "stream": True}
    return await client.post(path, cast_to=object, body=request, options=options, stream=True, stream_cls=kind[object])


async def _events(stream: Any) -> AsyncGenerator[object, None]:
    """Yield the events of a package's stream, then `[DONE]` if the server sent it; or its plain JSON answer, as one event."""
    body = _AnswerBody(stream.response.aiter_bytes)
    stream.response.aiter_bytes = body.events
    async for event in stream:
        yield event
    if body.plain:
        yield json.loads(body.plain)
    elif body.is_done:
        yield END_OF_STREAM


class _AnswerBody:
    """The body of an answer as valid UTF-8, with U+FFFD for invalid bytes, which the packages reject.

    Some servers answer a streaming request with plain JSON, in which the packages find no event.
    """

    def __init__(self, read: Callable[[], AsyncIterator[bytes]]) -> None:
        self.plain = ""
        """The body, if it is plain JSON."""
        self._read = read
        self._tail = ""

    @property
    def is_done(self) -> bool:
        """True if the stream ended with `[DONE]`."""
        return _DONE_LINE.search(self._tail) is not None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the bytes of a stream of events; plain JSON goes to `plain` instead."""
        decoder = getincrementaldecoder("utf-8-sig")("replace")
        is_plain: bool | None = None
        async for data in self._read():
            text = decoder.decode(data)
            if is_plain is None and text.strip():
                is_plain = text.lstrip().startswith("{")
            if is_plain:
                self.plain += text
            else:
                self._tail = (self._tail + text)[-_TAIL_CHARS:]
                yield text.encode()
        self.plain += decoder.decode(b"", final=True) if is_plain else ""


_TAIL_CHARS = 200
_DONE_LINE = re.compile(r"^data: ?\[DONE\]", re.MULTILINE)


def _limits(kind: Any) -> Any:
    """Return limits of the HTTP package that a provider's package uses."""
    return kind(max_connections=_CONNECTIONS, max_keepalive_connections=_IDLE_CONNECTIONS)


def _require(package: str, extra: str) -> None:
    try:
        is_missing = find_spec(package) is None
    except ModuleNotFoundError:  # no package `google` at all
        is_missing = True
    if is_missing:
        raise PackageMissing(package, f"nexus.models for {extra}", extra)


def _without_route(body: dict[str, Any], provider: str) -> dict[str, Any]:
    """Return a body whose model is named as its provider names it: `groq/llama` becomes `llama` for Groq."""
    route, _, name = str(body["model"]).partition("/")
    rule = provider_table().routes.get(route.lower())
    is_route = name and rule is not None and rule.provider == provider
    if is_route:
        return {**body, "model": name}
    return dict(body)
