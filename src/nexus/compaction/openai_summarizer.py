"""A summariser that asks a model through the official `openai` package: OpenAI, or any server that speaks its form.

What is sent is `compaction.prompt`'s request, so secrets are taken out before. Every call is bounded: by tokens before it is
made (the caller gives parts, this is the last guard), and by tries, time and bytes while it is made. What comes back is
read by the same reader as any reply of this form; whether it is a summary is judged elsewhere.

Servers differ in the field that bounds an answer. OpenAI's newer models refuse `max_tokens` ("Unsupported parameter:
'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."), Mistral refuses the other (422,
`extra_forbidden`), and a server that knows neither may pass over it and bound nothing. So OpenAI's hosts get the new name,
all others the old one, and what is refused is exchanged. Reasoning models refuse a `temperature` in the same way.
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

from nexus.compaction.prompt import build_summarize_prompt
from nexus.compaction.strip_thinking import strip_thinking
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

CALL_TOKENS = 32_000
"""The most of one call where none is given, though a model's window may be larger: parts of this size are read with care."""

UNKNOWN_CALL_TOKENS = 8_000
"""The same for a model whose window is not known, as with servers of one's own."""

MOST_BYTES = 8_000_000
"""A longer answer is not read to its end."""

_FRAME_TOKENS = 32
"""What the form of a chat adds to one message, at most."""

_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
_OWN_FIELDS = frozenset({"model", "messages", "temperature", "stream", "n", "tools", "functions", *_LIMIT_FIELDS})
_REFUSES = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|extra (?:inputs|fields)|not permitted|not allowed|only the default",
    re.IGNORECASE,
)
_NOT_GIVEN = frozenset({"content_filter", "refusal"})
"""Finish reasons of an answer that was withheld."""


class _Form(Struct, frozen=True):
    """What the request looks like: the field that bounds the answer, and whether it was exchanged for the other one."""

    limit_field: str
    temperature: float | None
    exchanged: bool = False


class OpenAISummarizer:
    """Summaries by a model behind the chat completions of OpenAI or of a server that is compatible with them.

    `client` is an `openai.OpenAI` (or `AzureOpenAI`) of your own; without it one is made of `base_url` and `api_key` when
    it is first needed. A `base_url` that is not OpenAI's gets no key from the environment. `call_tokens` (base tokens)
    bounds request and answer together, 0 for no bound; None takes the smaller of `CALL_TOKENS` and the model's window. The
    attribute of that name is what is left of it beside `thinking_tokens`.
    `timeout_s` holds for each try: until the answer begins, and again until it is complete. `max_retries` is the most
    further tries, which the package makes itself, after 408, 409, 429, 5xx and failed connections. `thinking_tokens` are
    added to the answer's bound for models that reason first. `temperature` None is not sent. `extra_body` holds further
    fields of the request, such as `reasoning_effort`.

    Raises PackageMissing if `openai` is not installed, BadSetting for a value that cannot be.
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
        _check(
            model, client, base_url + api_key, call_tokens, timeout_s, max_retries, thinking_tokens, extra_body or {}
        )
        facts = resolve(model)
        window = math.floor(facts.context_tokens / facts.token_factor)
        usual = min(CALL_TOKENS, window) if facts.known else UNKNOWN_CALL_TOKENS
        self.name: str = model
        bound = usual if call_tokens is None else call_tokens
        if 0 < bound <= thinking_tokens:
            raise BadSetting(f"thinking_tokens ({thinking_tokens:,}) leave nothing of the {bound:,} tokens of one call")
        self.call_tokens: int = bound and bound - thinking_tokens
        self._token_factor = facts.token_factor
        self._client = client
        self._base_url, self._api_key = base_url, api_key
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._temperature = temperature
        self._thinking_tokens = thinking_tokens
        self._extra_body = dict(extra_body or {})
        self._counter = counter or get_counter()
        self._form: _Form | None = None
        self._making = Lock()

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """What the model wrote, without its reasoning, with the tokens that the server counted (0 where it told none).

        A text that was ended for its length comes back as it is. Raises SummaryCallTooLarge when request and answer exceed
        `call_tokens`, before anything is sent, or when the provider says that they did not fit. Raises SummarizerFailed
        when the call failed, was filtered or refused, ran out of tokens before the first word, or cannot be read.
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
            raise SummarizerFailed(
                f"{self.name}: a summary of at most {request.most_tokens:,} tokens cannot be written"
            )
        needed = self._counter.count(prompt) + _FRAME_TOKENS + request.most_tokens
        if 0 < self.call_tokens < needed:
            told = f"request and answer need {needed:,} tokens, one call takes {self.call_tokens:,}. Nothing was sent"
            raise SummaryCallTooLarge(f"{self.name}: {told}", needed, self.call_tokens)
        answer_tokens = math.ceil((request.most_tokens + self._thinking_tokens) * self._token_factor)
        client, form = self._ready()
        body = self._answered(client, form, prompt, answer_tokens)
        return self._read(body, client.base_url.host)

    def _ready(self) -> tuple[OpenAI, _Form]:
        """The client, made at the first call, and the form that worked last. OpenAI's own key goes to no other host."""
        with self._making:
            if self._client is None:
                import openai

                foreign = bool(self._base_url) and not _is_openai(urlsplit(self._base_url).hostname or "")
                key = self._api_key or ("none" if foreign else None)
                try:
                    self._client = openai.OpenAI(base_url=self._base_url or None, api_key=key)
                except openai.OpenAIError as error:
                    raise self._failure(error) from error
            if self._form is None:
                newer = _is_openai(self._client.base_url.host)
                self._form = _Form(_LIMIT_FIELDS[newer], self._temperature)
            return self._client, self._form

    def _answered(self, client: OpenAI, form: _Form, prompt: str, answer_tokens: int) -> dict[str, Any]:
        """The server's answer as JSON; asked again without a field that it refused, which happens twice at most."""
        import openai

        while True:
            try:
                return _object(self._sent(client, form, prompt, answer_tokens))
            except SummarizerFailed:
                raise
            except openai.APIStatusError as error:
                other = _other_form(form, error)
                if other is None:
                    raise self._failure(error) from error
                self._form = form = other
            except Exception as error:
                raise self._failure(error) from error

    def _sent(self, client: OpenAI, form: _Form, prompt: str, answer_tokens: int) -> bytes:
        """One call (with the package's own retries): the body of its answer, bounded in time and bytes."""
        fields = {**self._extra_body, form.limit_field: answer_tokens}
        if form.temperature is not None:
            fields["temperature"] = form.temperature
        bounded = client.with_options(timeout=self._timeout_s, max_retries=self._max_retries)
        held = bytearray()
        with bounded.chat.completions.with_streaming_response.create(
            model=self.name, messages=[{"role": "user", "content": prompt}], extra_body=fields
        ) as response:
            until = time.monotonic() + self._timeout_s
            for piece in response.iter_bytes():
                held += piece
                if len(held) > MOST_BYTES:
                    raise SummarizerFailed(f"{self.name}: the answer has over {MOST_BYTES:,} bytes")
                if time.monotonic() > until:
                    raise SummarizerFailed(
                        f"{self.name}: the answer was not complete after {self._timeout_s:g} seconds"
                    )
        return bytes(held)

    def _failure(self, error: object) -> SummarizerFailed:
        """What an error of the package, or an error in place of an answer, means for the ladder."""
        verdict = classify(error)
        said = f"{self.name}: {redact(verdict.text).text or type(error).__name__}"
        if verdict.kind == "overflow":
            return SummaryCallTooLarge(said, verdict.requested, verdict.limit)
        return SummarizerFailed(said)

    def _read(self, body: dict[str, Any], host: str) -> SummaryReply:
        try:
            result = openai_format.reply(body)
        except BadReply as error:
            raise self._failure(body if body.get("error") else error) from error
        refusal = body["choices"][0]["message"].get("refusal")
        if refusal or result.stop_reason in _NOT_GIVEN:
            why = f"the model refused: {refusal}" if refusal else f"the answer was filtered ({result.stop_reason})"
            raise SummarizerFailed(f"{self.name}: {redact(sanitize_text(str(why))).text[:300]}")
        text = sanitize_text(strip_thinking("\n".join(message.text() for message in result.messages)))
        if not text and result.stop_reason == "length":
            raise SummarizerFailed(
                f"{self.name}: its tokens ran out before the first word: allow more `thinking_tokens`"
            )
        return SummaryReply(
            text=text,
            model=result.model if result.model.startswith(self.name) else self.name,
            provider="openai" if _is_openai(host) else host,
            input_tokens=result.usage.input_tokens,
            output_tokens=result.usage.output_tokens,
        )


def _check(
    model: str,
    client: object,
    made_of: str,
    call_tokens: int | None,
    timeout_s: float,
    max_retries: int,
    thinking_tokens: int,
    extra_body: Mapping[str, Any],
) -> None:
    """Raises BadSetting for the first setting that cannot be."""
    taken = sorted(_OWN_FIELDS & extra_body.keys())
    wrong = (
        (not model.strip(), "a summariser needs the name of a model"),
        (client is not None and bool(made_of), "give a client, or what one is made of (base_url, api_key), not both"),
        (_is_async(client), "client must be an openai.OpenAI, not one for asyncio"),
        ((call_tokens or 0) < 0, "call_tokens is negative"),
        (not 0 < timeout_s < math.inf, "timeout_s must be a positive number of seconds"),
        (not 0 <= max_retries <= 10, "max_retries must be 0 to 10"),
        (thinking_tokens < 0, "thinking_tokens is negative"),
        (bool(taken), f"extra_body cannot hold {', '.join(taken)}: the summariser sets it"),
    )
    for is_wrong, why in wrong:
        if is_wrong:
            raise BadSetting(why)


def _object(data: bytes) -> dict[str, Any]:
    """The answer's JSON object. Raises BadReply for anything else."""
    try:
        body = json.loads(data)  # unlike msgspec it takes half of a surrogate pair, where a token's end cut an emoji
    except (ValueError, RecursionError) as error:
        raise BadReply(f"the answer is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadReply("the answer is no JSON object")
    return cast("dict[str, Any]", body)


def _other_form(form: _Form, error: APIStatusError) -> _Form | None:
    """The form without what the server refused; None if it refused something else, or both names of one field."""
    if error.status_code not in (400, 422) or classify(error).kind != "other":
        return None
    said = f"{error} {error.body}"[:4_000]
    refused = error.param or (said if _REFUSES.search(said) else "")
    if not form.exchanged and re.search(rf"\b{form.limit_field}\b", refused):
        return replace(form, limit_field=_LIMIT_FIELDS[form.limit_field == _LIMIT_FIELDS[0]], exchanged=True)
    if form.temperature is not None and re.search(r"\btemperature\b", refused):
        return replace(form, temperature=None)
    return None


def _is_async(client: object) -> bool:
    if client is None:
        return False
    import openai

    return isinstance(client, openai.AsyncOpenAI)


def _is_openai(host: str) -> bool:
    """Whether it is a host of OpenAI, or of its models in Azure."""
    return host.lower() == "openai.com" or host.lower().endswith((".openai.com", ".openai.azure.com"))
