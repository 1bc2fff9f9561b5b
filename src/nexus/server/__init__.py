"""The server: agents for programs in any language, as JSON-RPC 2.0 over HTTP or standard input and output.

`nexus serve` runs it, `Client` calls it. One table, `methods.METHODS`, has every method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.server.client import AgentClient, Client, ServerEvent
    from nexus.server.http import open_socket, serve_http, url_of
    from nexus.server.security import Tokens, read_tokens
    from nexus.server.tenants import ServeOptions, Tenants

__all__ = [
    "AgentClient",
    "Client",
    "ServeOptions",
    "ServerEvent",
    "Tenants",
    "Tokens",
    "open_socket",
    "read_tokens",
    "serve_http",
    "url_of",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist; a client needs no package
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.server.client": "AgentClient Client ServerEvent",
            "nexus.server.http": "open_socket serve_http url_of",
            "nexus.server.security": "Tokens read_tokens",
            "nexus.server.tenants": "ServeOptions Tenants",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
