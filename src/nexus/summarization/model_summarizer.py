"""Summarizer that asks a model through `nexus.models`: any provider, or a server at any address.

It sends the prompt of `compaction.prompt`, in which secrets are redacted, in a call of its own with a client of its own.
Every call is bounded: in tokens before it is sent, in retries and time after that. The reply is returned without its
thinking; `check_summary` judges it.

A server may reject a setting that the model table allows. Servers with chat completions differ in the field
that limits an answer: OpenAI's newer models reject `max_tokens` ("Unsupported parameter: 'max_tokens' is not supported with
this model. Use 'max_completion_tokens' instead."), Mistral rejects the other (422, `extra_forbidden`). A rejected name is
exchanged. Reasoning models reject a `temperature` in the same way.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace as replace_fields
from threading import Event
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from nexus.context import Accounting, AssembledContext, EngineState, Manifest, PrefixReport, Provenance
from nexus.errors import BadSetting, ModelCallFailed, NexusError, SummarizerFailed
from nexus.models import EndpointClient, ModelReply, RetryPolicy, Timeouts, open_client
from nexus.models.open import Credentials
from nexus.providers import anthropic
from nexus.providers.errors import classify
from nexus.render.context_json import RENDERERS
from nexus.summarization.prompt import build_summarize_prompt, strip_thinking
from nexus.summarization.summarizer import SummaryReply, SummaryRequest
from nexus.text.as_received import ReceivedFormat
from nexus.text.late_pattern import late_pattern
from nexus.text.redact import redact
from nexus.tokens.budget import TokenBudget
from nexus.tokens.counter import TokenCounter, get_counter
from nexus.tokens.model import Model, resolve
from nexus.types.history import History
from nexus.types.message import user
from nexus.types.sanitize import sanitize_text
from nexus.types.settings import EXTRA

CALL_TOKENS = 32_000
"""Default limit of one call, even for larger context windows: models read parts of this size with care."""

UNKNOWN_CALL_TOKENS = 8_000
"""Default limit for a model with an unknown context window, as on self-hosted servers."""

THINKING_TOKENS = 2_048
"""Default for models that may think before they answer. More are used only by models that cannot be told not to think."""

_FRAME_TOKENS = 32  # upper bound of the tokens that a format adds to one message
_POLL_S = 0.1  # between two looks whether the summary is still wanted
_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
_RESERVED_FIELDS = frozenset({"model", "messages", "temperature", "stream", "n", "tools", "functions", *_LIMIT_FIELDS})
_REJECTED = late_pattern(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|extra (?:inputs|fields)|not permitted|not allowed|only the default",
    re.IGNORECASE,
)
_RENDERERS = replace_fields(RENDERERS, anthropic=anthropic.uncached_body)


class SummaryClient(Protocol):
    """The part of `nexus.models.ModelClient` that a summarizer uses."""

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply. Raises ModelCallFailed."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class _Accepted(Struct, frozen=True):
    """Settings that a server accepts."""

    limit_field: str = ""
    """By default the model's."""

    temperature: float | None = None


class ModelSummarizer:
    """Summaries by a model of any provider.

    Each summary is one call with a client that is opened and closed for it, so it may run in any thread. The attribute
    `call_tokens` is the limit of one call without `thinking_tokens`. `listen` is called with the reply or the failure of
    each call, in the thread of the summary.

    Args:
        model: Name of the model.
        connect: Opens the client of one call. By default `open_client` with the next four arguments.
        base_url: Address of a server; by default the provider's.
        format: Format of that server; by default chat completions.
        api_key: Key; by default from the provider's variable.
        credentials: Returns a key by the name of its variable, if the environment has none.
        call_tokens: Limit of request and answer together in base tokens, 0 for none. The default is the smaller of
            `CALL_TOKENS` and the model's context window.
        timeout_s: Seconds for each try.
        max_retries: Further tries after rate limits, failures of the server and broken connections.
        temperature: Not sent if None, or if the model is known to reject it.
        thinking_tokens: Added to the answer's limit for models that think first, which then think as they do by default.
            Without it models are told not to think.
        extra: Further fields of the request under the provider's own names.
        models: Context windows and prices by model name, as of `nexus.open`.
        counter: Counts base tokens.

    Raises BadSetting for an invalid argument.
    """

    def __init__(
        self,
        model: str,
        *,
        connect: Callable[[], SummaryClient] | None = None,
        base_url: str = "",
        format: ReceivedFormat | None = None,  # noqa: A002 - the word of `open_client`
        api_key: str = "",
        credentials: Credentials | None = None,
        call_tokens: int | None = None,
        timeout_s: float = 60.0,
        max_retries: int = 1,
        temperature: float | None = 0.0,
        thinking_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        models: Mapping[str, Any] | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        reserved = sorted(_RESERVED_FIELDS & (extra or {}).keys())
        checks = (
            (not model.strip(), "summarizer without the name of a model (name one)"),
            (connect and base_url + api_key, "connect and base_url or api_key given (give one of them)"),
            ((call_tokens or 0) < 0, "call_tokens is negative (use 0 for no limit)"),
            (not 0 < timeout_s < math.inf, "timeout_s is not a positive number of seconds"),
            (not 0 <= max_retries <= 10, "max_retries is not 0 to 10"),
            ((thinking_tokens or 0) < 0, "thinking_tokens is negative (use 0 for none)"),
            (reserved, f"extra contains {', '.join(reserved)}: set by the summarizer"),
        )
        for is_invalid, message in checks:
            if is_invalid:
                raise BadSetting(message)
        facts = self._facts = resolve(model, models)
        window = math.floor(facts.context_tokens / facts.token_factor)
        default = UNKNOWN_CALL_TOKENS
        if facts.known:
            default = min(CALL_TOKENS, window)
        limit = default if call_tokens is None else call_tokens
        may_think = facts.reasoning or not facts.known
        reserve = 0
        if may_think:
            reserve = min(THINKING_TOKENS, limit // 4 or THINKING_TOKENS)
        if thinking_tokens is None:
            thinking = reserve
        else:
            thinking = thinking_tokens
        if 0 < limit <= thinking:
            raise BadSetting(
                f"thinking_tokens ({thinking:,}) leave nothing of the {limit:,} tokens of one call (allow fewer)"
            )
        self.name: str = model
        self.call_tokens: int = limit and limit - thinking
        self._thinking_tokens = thinking
        self._thinks = bool(thinking_tokens)
        self._limits = (Timeouts(total_s=timeout_s), RetryPolicy(max_retries=max_retries))
        self._connect = connect or (lambda: self._open(base_url, format, api_key, credentials))
        self._extra = dict(extra or {})
        self._counter = counter or get_counter()
        self._accepted = _Accepted(temperature=temperature)
        self.listen: Callable[[ModelReply | ModelCallFailed], None] = lambda _outcome: None

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the model's answer without its thinking, with the reported token counts (0 if not reported).

        An answer that was ended for its length is returned as it is.

        Raises:
            SummarizerFailed: Request and answer exceed `call_tokens` (nothing is sent), or the provider reports that
                they did not fit.
            SummarizerFailed: The call failed, was filtered or refused, was abandoned, or ran out of tokens before the
                first word.
        """
        if request.most_tokens <= 0:
            raise SummarizerFailed(f"{self.name}: summary of at most {request.most_tokens:,} tokens impossible")
        prompt = sanitize_text(
            build_summarize_prompt(
                (row.message for row in request.rows),
                focus=request.focus,
                previous=request.previous,
                most_tokens=request.most_tokens,
                stricter=request.stricter,
                refused_because=redact(request.refused_because).text,
            )
        )
        needed = self._counter.count(prompt) + _FRAME_TOKENS + request.most_tokens
        if 0 < self.call_tokens < needed:
            sizes = f"request and answer need {needed:,} tokens, limit of one call {self.call_tokens:,}"
            raise SummarizerFailed(
                f"{self.name}: {sizes}. Nothing was sent", needed, self.call_tokens, code="summary_call_too_large"
            )
        answer_tokens = math.ceil((request.most_tokens + self._thinking_tokens) * self._facts.token_factor)
        return asyncio.run(self._reply(prompt, answer_tokens, request.abandoned))

    def _open(
        self, base_url: str, format_: ReceivedFormat | None, api_key: str, credentials: Credentials | None
    ) -> EndpointClient:
        timeouts, retries = self._limits
        return open_client(
            self.name,
            base_url=base_url,
            format=format_,
            api_key=api_key,
            credentials=credentials,
            timeouts=timeouts,
            retries=retries,
        )

    async def _reply(self, prompt: str, answer_tokens: int, abandoned: Event) -> SummaryReply:
        """Call the model, again without a setting that its server rejects, at most twice."""
        try:
            client = self._connect()
        except NexusError as error:
            raise SummarizerFailed(f"{self.name}: {error}") from error
        try:
            while True:
                ctx = prompt_context(prompt, self._facts, self.name, self._settings(answer_tokens))
                try:
                    reply = await _unless_abandoned(client.complete(ctx), abandoned)
                    self.listen(reply)
                    return self._summary_of(reply, client)
                except ModelCallFailed as error:
                    self.listen(error)
                    accepted = _without_rejected(self._accepted, ctx, error)
                    if accepted is None:
                        raise self._failure(error) from error
                    self._accepted = accepted
        finally:
            await client.aclose()

    def _settings(self, answer_tokens: int) -> dict[str, Any]:
        accepted = self._accepted
        extra = dict(self._extra)
        settings: dict[str, Any] = {} if self._thinks else {"thinking": False}
        if accepted.temperature is not None:
            settings["temperature"] = accepted.temperature
        if accepted.limit_field:
            extra[accepted.limit_field] = answer_tokens
        else:
            settings["max_tokens"] = answer_tokens
        return {**settings, EXTRA: extra}

    def _failure(self, error: ModelCallFailed) -> SummarizerFailed:
        text = f"{self.name}: {redact(str(error)).text}"
        if error.failure_kind == "overflow":
            verdict = classify(error.__cause__ or error)
            return SummarizerFailed(text, verdict.requested, verdict.limit, code="summary_call_too_large")
        return SummarizerFailed(text)

    def _summary_of(self, reply: ModelReply, client: SummaryClient) -> SummaryReply:
        result = reply.result
        text = sanitize_text(strip_thinking("\n".join(message.text() for message in result.messages)))
        if not text and result.stop_reason == "max_tokens":
            raise SummarizerFailed(f"{self.name}: tokens ran out before the first word (allow more `thinking_tokens`)")
        # A dated name of the same model says more; gateways that answer with another name say less.
        if result.model.startswith(self.name):
            model = result.model
        else:
            model = self.name
        provider = self._facts.provider
        if isinstance(client, EndpointClient):
            provider = client.endpoint.name
        return SummaryReply(text, model, provider, result.usage.input_tokens, result.usage.output_tokens)


def prompt_context(prompt: str, model: Model, name: str, settings: dict[str, Any]) -> AssembledContext:
    """Return the context of a call that belongs to no session: one user message, which is not written to a cache.

    Args:
        prompt: The message.
        model: Facts of the model.
        name: Name under which the model is called.
        settings: Settings of the request (`nexus.types.settings`).
    """
    message = user(prompt)
    manifest = Manifest(
        id="", view="", profile="", model=name, system="", blocks={}, tools="", head=0, head_hash="", first=(0, 0),
        mark=0, cut=0, config="", synthetic_results=0, current="", counter="", factor=1.0, available=0, render=0,
    )  # fmt: skip
    return AssembledContext(
        system_prompt="",
        history=History.of([], 0),
        current=(message,),
        event=(message,),
        tools=(),
        model=name,
        provider=model.provider,
        model_config=settings,
        token_budget=TokenBudget(model.context_tokens, 0, 0, model.context_tokens),
        session_label="",
        parent_turn_id=None,
        role="unified",
        toolset_name="",
        permissions_granted=(),
        source_event_id=None,
        workspace_path="",
        accounting=Accounting(model, PrefixReport("first"), ()),
        provenance=Provenance(manifest, starts_turn=True, blocks=()),
        _engine=EngineState(_RENDERERS),
    )


async def _unless_abandoned(call: Any, abandoned: Event) -> ModelReply:
    """Return the reply; cancel the call, which closes its connection, as soon as it is abandoned."""
    task = asyncio.ensure_future(call)
    while not task.done() and not abandoned.is_set():
        await asyncio.wait([task], timeout=_POLL_S)
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        raise SummarizerFailed("abandoned before the answer was complete")
    return task.result()


def _without_rejected(accepted: _Accepted, ctx: AssembledContext, error: ModelCallFailed) -> _Accepted | None:
    """Return the settings without the rejected one; None for another error, or if both names were rejected."""
    text = f"{error} {getattr(error.__cause__, 'body', '')}"[:4_000]  # some servers have the reason in the body alone
    if error.status not in (400, 422) or error.failure_kind != "bad_request" or not _REJECTED.search(text):
        return None
    body = ctx.to_openai()
    sent_field = next((name for name in _LIMIT_FIELDS if name in body), "")
    if not accepted.limit_field and sent_field and re.search(rf"\b{sent_field}\b", text):
        return replace(accepted, limit_field=_LIMIT_FIELDS[sent_field == _LIMIT_FIELDS[0]])
    if accepted.temperature is not None and re.search(r"\btemperature\b", text):
        return replace(accepted, temperature=None)
    return None
