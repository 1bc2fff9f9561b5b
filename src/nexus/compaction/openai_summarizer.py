"""Summarizer that asks a model through the official `openai` package: OpenAI or any server with its API.

It sends the prompt of `compaction.prompt`, in which secrets are redacted. Every call is bounded: in tokens before it is
sent, in retries, time and bytes after that. The reply is parsed like any reply of this format; `check_summary` judges it.

Servers differ in the field that limits an answer. OpenAI's newer models reject `max_tokens` ("Unsupported parameter:
'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."), Mistral rejects the other (422,
`extra_forbidden`), and a server that knows neither may ignore it and limit nothing. OpenAI's hosts therefore get the new
name, all others the old one, and a rejected name is exchanged. Reasoning models reject a `temperature` in the same way.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nexus.compaction.prompt import build_summarize_prompt, strip_thinking
from nexus.compaction.summarizer import SummaryReply, SummaryRequest
from nexus.errors import BadReply, BadSetting, PackageMissing, SummarizerFailed, SummaryCallTooLarge
from nexus.providers import openai as openai_format
from nexus.providers.errors import classify
from nexus.text.redact import redact
from nexus.tokens.counter import TokenCounter, get_counter
from nexus.tokens.model import resolve
from nexus.types.sanitize import sanitize_text

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

# Default limit of one call, even for larger context windows: models read parts of this size with care.
CALL_TOKENS = 32_000
# Default limit for a model with an unknown context window, as on self-hosted servers.
UNKNOWN_CALL_TOKENS = 8_000
# Size after which an answer is no longer read.
MOST_BYTES = 8_000_000
_FRAME_TOKENS = 32  # upper bound of the tokens that the chat format adds to one message
_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
_RESERVED_FIELDS = frozenset({"model", "messages", "temperature", "stream", "n", "tools", "functions", *_LIMIT_FIELDS})
_REFUSES = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|extra (?:inputs|fields)|not permitted|not allowed|only the default",
    re.IGNORECASE,
)
_FILTERED = frozenset({"content_filter", "refusal"})  # finish reasons of a withheld answer


class _RequestFormat(Struct, frozen=True):
    """Fields that a server accepts."""

    limit_field: str
    temperature: float | None
    exchanged: bool = False  # true if `limit_field` is the second choice


class OpenAISummarizer:
    """Summaries by a model behind the chat completions API of OpenAI or a compatible server.

    The attribute `call_tokens` is what the limit of one call leaves next to `thinking_tokens`.

    Args:
        model: Name of the model.
        client: An `openai.OpenAI` or `AzureOpenAI`. By default one is created from `base_url` and `api_key` when it is
            first needed.
        base_url: Server. One that is not OpenAI's gets no key from the environment.
        api_key: Key for the server.
        call_tokens: Limit of request and answer together in base tokens, 0 for none. The default is the smaller of
            `CALL_TOKENS` and the model's context window.
        timeout_s: Seconds for each try: until the answer begins, and again until it is complete.
        max_retries: Further tries by the `openai` package after 408, 409, 429, 5xx and failed connections.
        temperature: Not sent if None.
        thinking_tokens: Added to the answer's limit for models that reason first.
        extra_body: Further fields of the request, such as `reasoning_effort`.
        counter: Counts base tokens.

    Raises:
        PackageMissing: `openai` is not installed.
        BadSetting: An argument is invalid.
    """

    def __init__(
        self,
        model: str,
        *,
        client: OpenAI | None = None,
        base_url: str = "",
        api_key: str = "",
        call_tokens: int | None = None,
        timeout_s: float = 60.0,
        max_retries: int = 1,
        temperature: float | None = 0.0,
        thinking_tokens: int = 0,
        extra_body: Mapping[str, Any] | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if find_spec("openai") is None:
            raise PackageMissing("openai", "OpenAISummarizer", "openai")
        is_async = False
        if client is not None:
            import openai

            is_async = isinstance(client, openai.AsyncOpenAI)
        reserved = sorted(_RESERVED_FIELDS & (extra_body or {}).keys())
        checks = (
            (not model.strip(), "summarizer without the name of a model"),
            (client and base_url + api_key, "client and base_url or api_key given (give one of them)"),
            (is_async, "client is asynchronous (give an openai.OpenAI)"),
            ((call_tokens or 0) < 0, "call_tokens is negative"),
            (not 0 < timeout_s < math.inf, "timeout_s is not a positive number of seconds"),
            (not 0 <= max_retries <= 10, "max_retries is not 0 to 10"),
            (thinking_tokens < 0, "thinking_tokens is negative"),
            (reserved, f"extra_body contains {', '.join(reserved)}: set by the summarizer"),
        )
        for is_invalid, message in checks:
            if is_invalid:
                raise BadSetting(message)
        facts = resolve(model)
        window = math.floor(facts.context_tokens / facts.token_factor)
        default = min(CALL_TOKENS, window) if facts.known else UNKNOWN_CALL_TOKENS
        limit = default if call_tokens is None else call_tokens
        if 0 < limit <= thinking_tokens:
            raise BadSetting(f"thinking_tokens ({thinking_tokens:,}) leave nothing of the {limit:,} tokens of one call")
        self.name: str = model
        self.call_tokens: int = limit and limit - thinking_tokens
        self._token_factor = facts.token_factor
        self._client, self._base_url, self._api_key = client, base_url, api_key
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._temperature, self._thinking_tokens = temperature, thinking_tokens
        self._extra_body = dict(extra_body or {})
        self._counter = counter or get_counter()
        self._format: _RequestFormat | None = None
        self._client_lock = Lock()

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the model's answer without its reasoning, with the server's token counts (0 if not reported).

        An answer that was ended for its length is returned as it is.

        Raises:
            SummaryCallTooLarge: Request and answer exceed `call_tokens` (nothing is sent), or the provider reports that
                they did not fit.
            SummarizerFailed: The call failed, was filtered or refused, ran out of tokens before the first word, or its
                answer is invalid.
        """
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
        if request.most_tokens <= 0:
            raise SummarizerFailed(f"{self.name}: summary of at most {request.most_tokens:,} tokens impossible")
        needed = self._counter.count(prompt) + _FRAME_TOKENS + request.most_tokens
        if 0 < self.call_tokens < needed:
            sizes = f"request and answer need {needed:,} tokens, limit of one call {self.call_tokens:,}"
            raise SummaryCallTooLarge(f"{self.name}: {sizes}. Nothing was sent", needed, self.call_tokens)
        answer_tokens = math.ceil((request.most_tokens + self._thinking_tokens) * self._token_factor)
        client = self._openai_client()
        return self._parse(self._ask(client, prompt, answer_tokens), client.base_url.host)

    def _openai_client(self) -> OpenAI:
        """Return the client, created at the first call."""
        with self._client_lock:
            if self._client is None:
                import openai

                # OpenAI's own key goes to no other host.
                foreign = bool(self._base_url) and not _is_openai(urlsplit(self._base_url).hostname or "")
                key = self._api_key or ("none" if foreign else None)
                try:
                    self._client = openai.OpenAI(base_url=self._base_url or None, api_key=key)
                except openai.OpenAIError as error:
                    raise self._failure(error) from error
            return self._client

    def _ask(self, client: OpenAI, prompt: str, answer_tokens: int) -> dict[str, Any]:
        """Return the server's JSON answer; ask again without a field that it rejects, at most twice."""
        import openai

        limit_field = _LIMIT_FIELDS[_is_openai(client.base_url.host)]
        request_format = self._format or _RequestFormat(limit_field, self._temperature)
        while True:
            try:
                return self._send(client, request_format, prompt, answer_tokens)
            except SummarizerFailed:
                raise
            except openai.APIStatusError as error:
                accepted = _accepted_format(request_format, error)
                if accepted is None:
                    raise self._failure(error) from error
                self._format = request_format = accepted
            except Exception as error:
                raise self._failure(error) from error

    def _send(self, client: OpenAI, request_format: _RequestFormat, prompt: str, answer_tokens: int) -> dict[str, Any]:
        """Send one request, with the package's own retries, and return the answer, bounded in time and bytes."""
        fields = {**self._extra_body, request_format.limit_field: answer_tokens}
        if request_format.temperature is not None:
            fields["temperature"] = request_format.temperature
        bounded = client.with_options(timeout=self._timeout_s, max_retries=self._max_retries)
        data = bytearray()
        with bounded.chat.completions.with_streaming_response.create(
            model=self.name, messages=[{"role": "user", "content": prompt}], extra_body=fields
        ) as response:
            # The package's timeout is per read: a server that sends a byte now and then would never end.
            until = time.monotonic() + self._timeout_s
            for piece in response.iter_bytes():
                data += piece
                if len(data) > MOST_BYTES:
                    raise SummarizerFailed(f"{self.name}: answer larger than {MOST_BYTES:,} bytes")
                if time.monotonic() > until:
                    raise SummarizerFailed(f"{self.name}: answer not complete after {self._timeout_s:g} seconds")
        try:
            # Unlike msgspec, json accepts half of a surrogate pair, which the end of a token can make of an emoji.
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadReply(f"answer is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadReply("answer is not a JSON object")
        return cast("dict[str, Any]", body)

    def _failure(self, error: object) -> SummarizerFailed:
        """Return the error of this package for one of the provider's package, or for an error in the answer."""
        verdict = classify(error)
        text = f"{self.name}: {redact(verdict.text).text or type(error).__name__}"
        if verdict.kind == "overflow":
            return SummaryCallTooLarge(text, verdict.requested, verdict.limit)
        return SummarizerFailed(text)

    def _parse(self, body: dict[str, Any], host: str) -> SummaryReply:
        try:
            result = openai_format.reply(body)
        except BadReply as error:
            raise self._failure(body if body.get("error") else error) from error
        refusal = body["choices"][0]["message"].get("refusal")
        if refusal or result.stop_reason in _FILTERED:
            reason = f"refused by the model: {refusal}" if refusal else f"answer filtered ({result.stop_reason})"
            raise SummarizerFailed(f"{self.name}: {redact(sanitize_text(str(reason))).text[:300]}")
        text = sanitize_text(strip_thinking("\n".join(message.text() for message in result.messages)))
        if not text and result.stop_reason == "max_tokens":
            raise SummarizerFailed(f"{self.name}: tokens ran out before the first word (allow more `thinking_tokens`)")
        # A dated name of the same model says more; gateways that answer with another name say less.
        model = result.model if result.model.startswith(self.name) else self.name
        provider = "openai" if _is_openai(host) else host
        return SummaryReply(text, model, provider, result.usage.input_tokens, result.usage.output_tokens)


def _accepted_format(request_format: _RequestFormat, error: APIStatusError) -> _RequestFormat | None:
    """Return the format without the rejected field; None for another error, or if both names were rejected."""
    if error.status_code not in (400, 422) or classify(error).kind != "other":
        return None
    text = f"{error} {error.body}"[:4_000]
    rejected = error.param or (text if _REFUSES.search(text) else "")
    limit_field = request_format.limit_field
    if not request_format.exchanged and re.search(rf"\b{limit_field}\b", rejected):
        return replace(request_format, limit_field=_LIMIT_FIELDS[limit_field == _LIMIT_FIELDS[0]], exchanged=True)
    if request_format.temperature is not None and re.search(r"\btemperature\b", rejected):
        return replace(request_format, temperature=None)
    return None


def _is_openai(host: str) -> bool:
    """Return true for a host of OpenAI or of its models in Azure."""
    return host.lower() == "openai.com" or host.lower().endswith((".openai.com", ".openai.azure.com"))
