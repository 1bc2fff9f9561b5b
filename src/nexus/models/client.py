"""A client of one endpoint: a stream of text, thinking and retries that ends with the reply.

The package of each provider sends the request (`endpoints`). Time limits, one policy of retries, typed errors and the cost are
the same for all of them, and here. A stream that breaks is a failed try like a rejected request: a `Retry`
withdraws its tokens, and the next try begins from the start.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import BadReply, BadSetting, ModelCallFailed
from nexus.models.endpoints import Endpoint
from nexus.models.tracing import model_span
from nexus.providers.costs import cost_of_reply
from nexus.providers.errors.failures import Failure, failure_of
from nexus.providers.streams import StreamReader
from nexus.text.redact import redact
from nexus.types.request import AgentResult
from nexus.types.stream_events import Reasoning, Retry, Token

_NO_REPLY_REASONS = frozenset({"content_filter", "refusal"})
_MOST_CHARS = 1_000


class ModelReply(Struct, frozen=True):
    """The reply to one call."""

    result: AgentResult
    """Messages, usage and stop reason, as `Engine.record` and `Turn.record` take them."""
    cost_usd: float | None = None
    """Cost at list prices, without failed tries; None for a model without prices."""
    tries: int = 1
    seconds: float = 0.0
    """Time of the successful try."""
    first_piece_s: float | None = None
    """Time until the first text or thinking of that try; None without any."""


StreamItem: TypeAlias = Token | Reasoning | Retry | ModelReply


class ModelClient(Protocol):
    """Anything that calls models. The context has the model, its settings and tools; the client has the endpoint."""

    def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem, None]:
        """Yield text, thinking and retries as they come; the last item is the reply.

        Joined, the tokens since the last `Retry` are the reply's text. Closing the generator or cancelling its task closes
        the connection at once. Raises ModelCallFailed.
        """
        ...

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply. Raises ModelCallFailed."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Timeouts(Struct, frozen=True):
    """Limits of one try, in seconds."""

    connect_s: float = 10.0
    """Connection to the server. Gemini's package has no such limit: there it is part of `first_event_s`."""
    first_event_s: float = 300.0
    """From the request to the first event."""
    between_events_s: float = 300.0
    """Between two events: models that think without showing it send none for minutes."""
    total_s: float = 1_800.0


class RetryPolicy(Struct, frozen=True):
    """When a failed call is made again: a delay that doubles, with jitter, or the provider's own."""

    max_retries: int = 4
    total_s: float = 300.0
    """No try begins later than this after the first one."""
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    max_retry_after_s: float = 60.0
    """Longest time that a provider may ask for. If it asks for more, the call fails at once."""

    def delay_s(self, retry: int, retry_after_s: float | None, jitter: float) -> float:
        """Return the delay before a retry, counted from 1; `jitter` from 0 to 1 takes up to half of it."""
        if retry_after_s is not None:
            return retry_after_s
        return min(self.first_delay_s * 2.0 ** min(retry - 1, 60), self.max_delay_s) * (1 - jitter / 2)


class _ReplyFailed(Exception):
    """The provider reported an error within its stream or reply."""


class EndpointClient:
    """Client of one endpoint; `nexus.models.open_client` makes one.

    Args:
        endpoint: Sends the requests.
        timeouts: Limits of each try.
        retries: Policy of retries.
        sleep: Waits between tries.
        clock_s: Monotonic clock.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeouts: Timeouts | None = None,
        retries: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.timeouts = timeouts or Timeouts()
        self.retries = retries or RetryPolicy()
        limits = (*_numbers(self.timeouts), *_numbers(self.retries))
        if any(limit < 0 for limit in limits) or not all(_numbers(self.timeouts)):
            raise BadSetting("timeout is not above 0 or retry limit negative (use seconds above 0)")
        self._sleep = sleep
        self._clock_s = clock_s
        self._is_prepared = False

    def __repr__(self) -> str:
        return f"EndpointClient({self.endpoint!r})"

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem, None]:
        """Yield text, thinking and retries as they come; the last item is the reply. See `ModelClient`."""
        await self.prepare()
        budget = ctx.token_budget
        call = model_span(
            ctx.session_label, ctx.model, ctx.provider, tokens=budget.used.total, available=budget.available
        )
        with call as traced:
            async with aclosing(self._with_retries(ctx)) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        traced.reply(replace(item.result, cost_usd=item.cost_usd))
                        first = item.first_piece_s
                        traced.set({"gen_ai.response.time_to_first_chunk": first, "nexus.tries": item.tries})
                    yield item

    async def _with_retries(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem, None]:
        started_s = self._clock_s()
        tries = 0
        while True:
            tries += 1
            try:
                async with aclosing(self._try_once(ctx, tries)) as items:
                    async for item in items:
                        yield item
            except ModelCallFailed:
                raise
            except Exception as error:
                failure = self._failure(error)
                delay_s = self._delay_s(failure, tries, self._clock_s() - started_s)
                if delay_s is None:
                    raise self._call_failed(failure, tries) from error
            else:
                return
            yield Retry(failure.kind, failure.text, delay_s)
            await self._sleep(delay_s)

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply. Raises ModelCallFailed."""
        arriving = ""
        try:
            async with aclosing(self.stream(ctx)) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        return item
                    if isinstance(item, Retry):
                        arriving = ""
                    elif isinstance(item, Token):
                        arriving += item.text
        except BaseException as error:
            error.partial = arriving  # pyright: ignore[reportAttributeAccessIssue] # for `nexus.acall`, which stores it
            raise
        raise AssertionError("stream without a reply")

    async def aclose(self) -> None:
        """Close all connections."""
        await self.endpoint.aclose()

    async def prepare(self) -> None:
        """Import the provider's package, which the first call would wait for: a second or two."""
        if not self._is_prepared:
            await asyncio.to_thread(self.endpoint.prepare)
            self._is_prepared = True

    async def _try_once(self, ctx: AssembledContext, tries: int) -> AsyncGenerator[StreamItem, None]:
        """Yield the pieces of one try and its reply; raise the package's error, or `_ReplyFailed` for one in the stream."""
        reader = StreamReader(self.endpoint.format)
        started_s = self._clock_s()
        first_piece_s = None
        limits = self.timeouts
        limit_s = limits.first_event_s
        has_begun = False
        async with aclosing(self.endpoint.events(ctx)) as events:
            while True:
                remaining_s = limits.total_s - (self._clock_s() - started_s)
                try:
                    async with asyncio.timeout(min(limit_s, remaining_s)):
                        event = await anext(events, None)
                    if event is None:
                        break
                    has_begun = True
                    limit_s = limits.between_events_s
                    pieces = reader.add(event)
                except TimeoutError as error:
                    waited = "in all"
                    if limit_s < remaining_s:
                        place = "to the first event"
                        if has_begun:
                            place = "between two events"
                        waited = f"{min(limit_s, max(remaining_s, 0)):g} s {place}"
                    raise TimeoutError(f"no answer in time: {waited} (`Timeouts` has the limits)") from error
                except Exception as error:
                    # An accepted request that fails without a known kind failed at the provider.
                    if (has_begun or _is_unreadable(error)) and failure_of(error).kind in ("error", "bad_reply"):
                        raise _ReplyFailed(str(error)) from error
                    raise
                for piece in pieces:
                    if first_piece_s is None:
                        first_piece_s = self._clock_s() - started_s
                    yield piece
        result = _whole_result(reader)
        seconds = self._clock_s() - started_s
        cost_usd = cost_of_reply(result.usage, ctx.accounting.model_info)
        reply = ModelReply(result, cost_usd, tries, seconds, first_piece_s)
        if result.stop_reason in _NO_REPLY_REASONS:
            reason = result.error or result.provider_stop_reason
            text = f"reply withheld by {self.endpoint.name}: {self._safe_text(reason)} (change the request; what arrived is in `reply`)"
            raise ModelCallFailed(text, "content", reply=reply)
        yield reply

    def _failure(self, error: Exception) -> Failure:
        """Return the failure of a try, with a text that is safe to show."""
        failure = failure_of(error)
        if isinstance(error, _ReplyFailed) and failure.kind in ("error", "bad_reply"):
            failure = replace(failure, kind="overloaded", retryable=True)
        place = _place(str(getattr(self.endpoint, "base_url", "")))
        if failure.kind == "connection" and not failure.status and place:
            text = f"no connection to {place}: {failure.text.rstrip('.')} (is the server running?)"
            failure = replace(failure, text=text)
        return replace(failure, text=self._safe_text(failure.text))

    def _safe_text(self, text: str) -> str:
        """Return a provider's text without keys, shortened."""
        text = " ".join(redact(self.endpoint.without_key(text)).text.split())
        if len(text) <= _MOST_CHARS:
            return text
        return f"{text[: _MOST_CHARS - 1]}…"

    def _delay_s(self, failure: Failure, tries: int, elapsed_s: float) -> float | None:
        """Return the seconds until the next try; None if there is none."""
        policy = self.retries
        asked_s = failure.retry_after_s
        if not failure.retryable or tries > policy.max_retries or (asked_s or 0) > policy.max_retry_after_s:
            return None
        delay_s = policy.delay_s(tries, asked_s, random.random())  # noqa: S311 - spreads retries, protects nothing
        if elapsed_s + delay_s <= policy.total_s:
            return delay_s
        return None

    def _call_failed(self, failure: Failure, tries: int) -> ModelCallFailed:
        asked_s = failure.retry_after_s
        if failure.retryable and asked_s is not None and asked_s > self.retries.max_retry_after_s:
            advice = f" (call again in {asked_s:g} s; the limit of waits is {self.retries.max_retry_after_s:g} s)"
        elif failure.retryable:
            advice = f" (after {tries} {'tries' if tries > 1 else 'try'}; call again later)"
        elif failure.kind == "auth":
            advice = " (check the API key)"
        else:
            advice = ""
        what = "answered" if failure.status else "gave no reply"
        return ModelCallFailed(
            f"{self.endpoint.name} {what}: {failure.text}{advice}",
            failure.kind,
            retryable=failure.retryable,
            status=failure.status,
            retry_after_s=asked_s,
        )


def _place(base_url: str) -> str:
    """Return host and port of an address; empty for an empty one."""
    try:
        parts = urlsplit(base_url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    if parts.hostname:
        return f"{parts.hostname}:{port}"
    return ""


def _numbers(limits: Timeouts | RetryPolicy) -> list[float]:
    return [getattr(limits, name) for name in limits.__struct_fields__]


def _whole_result(reader: StreamReader) -> AgentResult:
    """Return the result of a stream that is over; raise `_ReplyFailed` if it is not complete, or a failed reply."""
    if not reader.is_complete:
        try:
            reported = reader.reply(partial=True).error
        except BadReply as error:  # not even the beginning of a reply
            raise _ReplyFailed(str(error)) from error
        raise _ReplyFailed(reported or "the stream has no end event")
    try:
        result = reader.reply()
    except BadReply as error:
        raise _ReplyFailed(str(error)) from error
    if result.stop_reason == "error":
        raise _ReplyFailed(result.error or f"the reply failed: {result.provider_stop_reason}")
    return result


def _is_unreadable(error: BaseException) -> bool:
    """Return True if a package could not read the answer."""
    return isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) or (
        isinstance(error.__cause__, json.JSONDecodeError)
    )
