"""Clients that call models, through the official packages of OpenAI, Anthropic and Google.

`open_client` returns the client of one endpoint, `Models` is one client for all models. Both stream a context's reply as
`Token`, `Reasoning` and `Retry`, and at last as a `ModelReply`. The packages are extras: `pip install '.[anthropic]'`.
`classify` says what a provider's error means, and `prompt_cache` has the prices and rules of the providers' caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.models.client import EndpointClient, ModelClient, ModelReply, RetryPolicy, StreamItem, Timeouts
    from nexus.models.local import LocalServer, install_weights
    from nexus.models.open import Models, open_client
    from nexus.providers import prompt_cache
    from nexus.providers.errors import OverflowVerdict, classify, detect_silent_overflow, learned_window

__all__ = [
    "EndpointClient",
    "LocalServer",
    "ModelClient",
    "ModelReply",
    "Models",
    "OverflowVerdict",
    "RetryPolicy",
    "StreamItem",
    "Timeouts",
    "classify",
    "detect_silent_overflow",
    "install_weights",
    "learned_window",
    "open_client",
    "prompt_cache",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.models.client": "EndpointClient ModelClient ModelReply RetryPolicy StreamItem Timeouts",
            "nexus.models.local": "LocalServer install_weights",
            "nexus.models.open": "Models open_client",
            "nexus.providers": "prompt_cache",
            "nexus.providers.errors": "OverflowVerdict classify detect_silent_overflow learned_window",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
