"""MCP servers in the layers' `mcp.json`: `{"mcpServers": {NAME: {"command": …} or {"url": …}}}`.

Nexus starts none of them: they are values for the program that runs the agent. A workspace's server is another person's
choice of a program to run, so each entry has the file that it comes from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.types.block import ContextWarning
from nexus.workspace.config.files import SettingsFile, describe_error

FILE_NAME = "mcp.json"


class McpServer(Struct, frozen=True):
    """One server: a program with its arguments, or an address. `env` and `headers` may contain secrets."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    type: str = ""
    origin: str = ""
    """The file."""
    is_users: bool = False
    """From the user's own file, not a workspace's."""
    other: dict[str, Any] = {}
    """Further keys of the entry."""


_KEYS = frozenset(McpServer.__struct_fields__) - {"name", "origin", "is_users", "other"}


def read_servers(files: Iterable[SettingsFile]) -> tuple[tuple[McpServer, ...], tuple[str, ...], list[ContextWarning]]:
    """Return the servers sorted by name, the files that were read, and a warning for each unusable file or entry.

    Of two servers with one name the later layer's counts.
    """
    servers: dict[str, McpServer] = {}
    names: list[str] = []
    warnings: list[ContextWarning] = []
    for file in files:
        entries = _entries(file, warnings)
        if entries is None:
            continue
        names.append(file.origin)
        for name, entry in entries.items():
            server = _server(name, entry, file)
            if isinstance(server, str):
                warnings.append(ContextWarning(file.origin, f"MCP server {name!r} omitted: {server}"))
                continue
            if name in servers:
                text = f"MCP server {name!r} replaces the one in {servers[name].origin}"
                warnings.append(ContextWarning(file.origin, text))
            servers[name] = server
    return tuple(servers[name] for name in sorted(servers)), tuple(names), warnings


def _entries(file: SettingsFile, warnings: list[ContextWarning]) -> dict[str, Any] | None:
    """Return the entries of a file; None if it is missing or, with a warning, unusable."""
    try:
        text = file.text()
        if text is None:
            return None
        data: Any = json.loads(text)
        servers = cast("dict[str, Any]", data).get("mcpServers") if isinstance(data, dict) else None
        if isinstance(servers, dict):
            return cast("dict[str, Any]", servers)
        problem = 'object "mcpServers" missing'
    except (json.JSONDecodeError, RecursionError) as error:
        problem = f"not JSON: {error}"
    except (OSError, ValueError) as error:
        problem = describe_error(error)
    warnings.append(ContextWarning(file.origin, f"omitted: {problem}"))
    return None


def _server(name: str, entry: Any, file: SettingsFile) -> McpServer | str:
    """Return the server, or the problem with its entry."""
    if not isinstance(entry, dict) or not name.strip():
        return "needs a name, and an object as its entry"
    fields = cast("dict[str, Any]", entry)
    values = {key: value for key, value in fields.items() if key in _KEYS}
    other = {key: value for key, value in fields.items() if key not in _KEYS}
    values |= {"name": name, "origin": file.origin, "is_users": file.is_users, "other": other}
    try:
        server = msgspec.convert(values, McpServer)
    except msgspec.ValidationError as error:
        return str(error)
    return 'needs either "command" or "url"' if bool(server.command) == bool(server.url) else server
