"""Entries of `mcp.json` with their references replaced, the secrets in them, and the names of their tools.

`${NAME}`, `${env:NAME}` and `${NAME:-default}` are environment variables, `${credential:NAME}` a credential of the user.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import NexusError
from nexus.workspace.config import McpServer
from nexus.workspace.credentials.store import Credentials

NAME_CHARS = 64
"""Characters of a tool's name that all providers accept."""

DIGEST_CHARS = 8
HTTP_TYPES = frozenset(("", "http", "streamable-http", "streamable_http", "streamableHttp"))

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_REFERENCE = re.compile(r"\$\{(?:(env|credential):)?([A-Za-z0-9_.-]+)(?::-([^}]*))?\}")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE", re.IGNORECASE)
_MASK = "[secret]"
_LEAST_SECRET = 6  # characters; shorter values are words of ordinary texts


class CannotStart(NexusError):
    """A server is not started; the text has no secret."""


def tool_name(server: str, tool: str) -> str:
    """Return the name under which a server's tool is offered; different tools have different names.

    A name with other characters than a provider accepts, or too many, ends with a digest of the original.
    """
    name = f"mcp__{_UNSAFE.sub('_', server)}__{_UNSAFE.sub('_', tool)}"
    # With `__` in both, the end of the server's name would be ambiguous.
    if name == f"mcp__{server}__{tool}" and len(name) <= NAME_CHARS and "__" not in server and server[-1:] != "_":
        return name
    digest = sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
    return f"{name[: NAME_CHARS - DIGEST_CHARS - 1]}_{digest}"


class ResolvedServer(Struct, frozen=True):
    """A server's entry with its references replaced. Never printed."""

    server: McpServer
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<MCP server {self.server.name!r}>"

    def masked(self, text: str) -> str:
        """Return a text of the server without its secrets."""
        for secret in self.secrets:
            text = text.replace(secret, _MASK)
        return text


def resolve_server(server: McpServer, credentials: Credentials) -> ResolvedServer:
    """Return the entry with the values of its references. Raises CannotStart and CredentialError."""
    if server.url and (server.type not in HTTP_TYPES or not server.url.startswith(("http://", "https://", "${"))):
        raise CannotStart("only programs and streamable HTTP are supported (type http, url https://…)")
    secrets: set[str] = set()

    def value_of(match: re.Match[str]) -> str:
        kind, name, default = match.groups()
        if not server.is_users:
            raise CannotStart(f"references such as {match[0][:80]} need your own file")
        if kind == "credential":
            value = credentials.get(name).reveal()
        else:
            value = os.environ.get(name) or default
            if value is None:
                raise CannotStart(f"variable {name} is not set")
        if kind == "credential" or _SECRET_NAME.search(name):
            secrets.add(value)
        return value

    def expanded(text: str) -> str:
        return _REFERENCE.sub(value_of, text)

    headers = {name: expanded(value) for name, value in server.headers.items()}
    env = {name: expanded(value) for name, value in server.env.items()}
    secrets.update(piece for value in headers.values() for piece in (value, *value.split()))
    secrets.update(value for name, value in env.items() if _SECRET_NAME.search(name))
    resolved = replace(
        server,
        command=expanded(server.command),
        args=tuple(map(expanded, server.args)),
        cwd=expanded(server.cwd),
        url=expanded(server.url),
        env=env,
        headers=headers,
    )
    # Longer ones first: a shorter one may be a part of it.
    return ResolvedServer(
        resolved, tuple(sorted((secret for secret in secrets if len(secret) >= _LEAST_SECRET), key=len, reverse=True))
    )
