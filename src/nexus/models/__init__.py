"""Clients that call models, through the official packages of OpenAI, Anthropic and Google.

`open_client` returns the client of one endpoint, `Models` is one client for all models. Both stream a context's reply as
`Token`, `Reasoning` and `Retry`, and at last as a `ModelReply`. The packages are extras: `pip install '.[anthropic]'`.
"""

from nexus.models.client import EndpointClient, ModelClient, ModelReply, RetryPolicy, StreamItem, Timeouts
from nexus.models.open import Models, open_client

__all__ = [
    "EndpointClient",
    "ModelClient",
    "ModelReply",
    "Models",
    "RetryPolicy",
    "StreamItem",
    "Timeouts",
    "open_client",
]
