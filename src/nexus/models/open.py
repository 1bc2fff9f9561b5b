"""Clients by model, provider or address, and a router that opens them as contexts need them.

A key comes from the argument, else from the provider's environment variable, else from the caller's credentials. It goes to
the provider's own address only: a server at any other one gets the key that is passed, or none.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Self, TypeAlias, TypedDict, Unpack, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from nexus.context import AssembledContext
from nexus.errors import BadSetting, NoCredential
from nexus.models.client import EndpointClient, ModelClient, ModelReply, RetryPolicy, StreamItem, Timeouts
from nexus.models.endpoints import AnthropicEndpoint, Endpoint, GeminiEndpoint, OpenAIEndpoint
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.model import resolve
from nexus.types.validation import check_options

Credentials: TypeAlias = Callable[[str], str | None]
"""Returns the value of a credential by the name of its environment variable, or None."""


class _Provider(Struct, frozen=True):
    """A provider's address and format, and the variables that have its key."""

    format: ReceivedFormat
    base_url: str
    variables: tuple[str, ...]


_PROVIDERS = {
    "openai": _Provider("responses", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "anthropic": _Provider("anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",)),
    "gemini": _Provider("gemini", "https://generativelanguage.googleapis.com", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "cerebras": _Provider("openai", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",)),
    "deepseek": _Provider("openai", "https://api.deepseek.com", ("DEEPSEEK_API_KEY",)),
    "groq": _Provider("openai", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    "mistral": _Provider("openai", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
    "moonshot": _Provider("openai", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY",)),
    "openrouter": _Provider("openai", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    "xai": _Provider("openai", "https://api.x.ai/v1", ("XAI_API_KEY",)),
}


class ClientOptions(TypedDict, total=False):
    """Options of every client."""

    timeouts: Timeouts
    retries: RetryPolicy


def open_client(
    model: str = "",
    *,
    provider: str = "",
    format: ReceivedFormat | None = None,  # noqa: A002 - the word of the docs
    base_url: str = "",
    api_key: str = "",
    credentials: Credentials | None = None,
    **options: Unpack[ClientOptions],
) -> EndpointClient:
    """Return a client of the provider that serves a model, of a named provider, or of a server at an address.

    Args:
        model: Name of a model; its provider is from the model table.
        provider: Name of a provider, in place of a model.
        format: `responses`, `openai` (chat completions), `anthropic` or `gemini`; by default the provider's, and chat
            completions for a server at another address.
        base_url: Address of a server, with the version for the formats of OpenAI: `http://127.0.0.1:8080/v1`.
        api_key: Key; by default from the provider's variable.
        credentials: Returns a key by the name of its variable, if the environment has none.
        **options: `timeouts` and `retries`.

    Raises:
        NoCredential: The provider needs a key, and none is set.
        PackageMissing: The provider's package is not installed.
        BadSetting: An argument is invalid, or the provider's address is unknown.
    """
    check_options("open_client", options, ClientOptions, "model provider format base_url api_key credentials")
    if format is not None and format not in get_args(ReceivedFormat):
        raise BadSetting(f"format {format!r} unknown: use {', '.join(get_args(ReceivedFormat))}")
    name = provider or (resolve(model).provider if model else "")
    if base_url:
        own_provider = _provider_at(base_url)
    else:
        own_provider = _PROVIDERS.get(name)
    if own_provider is None and not base_url:
        what = "no model, provider or base_url"
        if name:
            what = f"address of provider {name!r} unknown"
        raise BadSetting(f"{what} (pass base_url=…, or a provider: {', '.join(sorted(_PROVIDERS))})")
    if own_provider is not None:
        api_key = api_key or _key(own_provider, credentials)
    names = (label for label, row in _PROVIDERS.items() if row is own_provider)
    shown_name = next(names, urlsplit(base_url).hostname or base_url)
    chosen = format or (own_provider.format if own_provider else "openai")
    connect_s = (options.get("timeouts") or Timeouts()).connect_s
    address = base_url or (own_provider.base_url if own_provider else "")
    return EndpointClient(_endpoint(shown_name, chosen, address, api_key, connect_s), **options)


def _endpoint(name: str, format_: ReceivedFormat, base_url: str, api_key: str, connect_s: float) -> Endpoint:
    if format_ == "anthropic":
        return AnthropicEndpoint(name, base_url, api_key, connect_s=connect_s)
    if format_ == "gemini":
        return GeminiEndpoint(name, base_url, api_key)
    return OpenAIEndpoint(name, base_url, api_key, connect_s=connect_s, format_=format_)


def _provider_at(base_url: str) -> _Provider | None:
    """Return the provider whose own address this is; None for any other server, and for one without encryption."""
    url = urlsplit("")
    try:
        url = urlsplit(base_url)
        is_address = url.hostname and url.scheme in ("http", "https") and (url.port is None or url.port > 0)
    except ValueError:  # a bracket or port that no address has
        is_address = False
    if not is_address:
        raise BadSetting(f"base_url {base_url!r} is no address of a server (use http://… or https://…)")
    rows = _PROVIDERS.values()
    return next((row for row in rows if (url.scheme, url.hostname) == ("https", urlsplit(row.base_url).hostname)), None)


def _key(provider: _Provider, credentials: Credentials | None) -> str:
    """Return the provider's key from the environment, else from the credentials. Raises NoCredential."""
    for source in (os.environ.get, credentials):
        if source is None:
            continue
        for variable in provider.variables:
            if key := (source(variable) or "").strip():
                return key
    host = urlsplit(provider.base_url).hostname
    variable = provider.variables[0]
    raise NoCredential(f"no key for {host} (set {variable}, or pass api_key=…)", variable=variable)


class Models:
    """A client for all models: each context goes to the client of its model, or of its provider.

    A fallback to another provider's model needs no other object. Clients are opened when they are first needed.
    Use it in `async with`, or call `aclose`.

    Args:
        clients: Clients by name of a model or a provider, for example of a local server. They are closed with this one.
        credentials: Returns a key by the name of its variable, if the environment has none.
        **options: `timeouts` and `retries` of the clients that are opened.
    """

    def __init__(
        self,
        clients: Mapping[str, ModelClient] | None = None,
        *,
        credentials: Credentials | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options("Models", options, ClientOptions, "clients credentials")
        self._clients = dict(clients or {})
        self._credentials = credentials
        self._options = options

    def __repr__(self) -> str:
        return f"Models({', '.join(sorted(self._clients))})"

    def client_for(self, ctx: AssembledContext) -> ModelClient:
        """Return the client of a context's model. Raises as `open_client`."""
        return self.client_of(ctx.model, ctx.provider)

    def client_of(self, model: str, provider: str) -> ModelClient:
        """Return the client of a model by its name and its provider's. Raises as `open_client`."""
        for name in (model, provider):
            if name in self._clients:
                return self._clients[name]
        if provider not in _PROVIDERS:
            raise BadSetting(
                f"model {model!r} has no client: the address of provider {provider!r} is unknown "
                f"(pass Models({{{model!r}: open_client(base_url=…)}}))"
            )
        client = open_client(provider=provider, credentials=self._credentials, **self._options)
        self._clients[provider] = client
        return client

    def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem, None]:
        """Yield text, thinking and retries as they come; the last item is the reply. See `ModelClient`."""
        return self.client_for(ctx).stream(ctx)

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply. Raises ModelCallFailed."""
        return await self.client_for(ctx).complete(ctx)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            await client.aclose()
