"""MCP servers as the layers' `mcp.json` name them: `{"mcpServers": {NAME: {"command": …} or {"url": …}}}`.

Nexus starts none of them: they are values for the program that runs the agent. A server of a workspace is somebody else's
choice of a program to run, so each carries the file that it comes from.
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
    """One server: a program with its arguments, or an address. `env` and `headers` may hold secrets.

    `origin` is the file; `own` says that it is the user's, not a workspace's; `other` has the entry's further keys.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    type: str = ""
    origin: str = ""
    own: bool = False
    other: dict[str, Any] = {}


_SET_HERE = frozenset({"name", "origin", "own", "other"})
_KEYS = frozenset(McpServer.__struct_fields__) - _SET_HERE


def read_servers(files: Iterable[SettingsFile]) -> tuple[tuple[McpServer, ...], tuple[str, ...], list[ContextWarning]]:
    """The servers sorted by name, the files that were read, and a warning for each file or entry that cannot be used.

    Of two servers with one name the later layer's counts.
    """
    servers: dict[str, McpServer] = {}
    read: list[str] = []
    warned: list[ContextWarning] = []
    for file in files:
        entries = _entries(file, warned)
        if entries is None:
            continue
        read.append(file.origin)
        for name, entry in entries.items():
            server = _server(name, entry, file, warned)
            if server is None:
                continue
            if name in servers:
                note = f"the MCP server {name!r} takes the place of the one in {servers[name].origin}"
                warned.append(ContextWarning(file.origin, note))
            servers[name] = server
    return tuple(servers[name] for name in sorted(servers)), tuple(read), warned


def _entries(file: SettingsFile, warned: list[ContextWarning]) -> dict[str, Any] | None:
    """The entries of a file; None if there is no such file, or it holds none, which is warned of."""
    try:
        text = file.text()
        found: Any = json.loads(text) if text is not None else None
    except (OSError, ValueError, RecursionError) as error:
        told = (
            f"it is not JSON: {error}"
            if isinstance(error, (json.JSONDecodeError, RecursionError))
            else describe_error(error)
        )
        warned.append(ContextWarning(file.origin, f"left out: {told}"))
        return None
    if text is None:
        return None
    servers = cast("dict[str, Any]", found).get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        warned.append(ContextWarning(file.origin, 'left out: it has no object "mcpServers"'))
        return None
    return cast("dict[str, Any]", servers)


def _server(name: str, entry: Any, file: SettingsFile, warned: list[ContextWarning]) -> McpServer | None:
    if not isinstance(entry, dict) or not name.strip():
        warned.append(
            ContextWarning(
                file.origin, f"the MCP server {name!r} is left out: it needs a name, and an object as its entry"
            )
        )
        return None
    fields = cast("dict[str, Any]", entry)
    known = {key: value for key, value in fields.items() if key in _KEYS}
    other = {key: value for key, value in fields.items() if key not in _KEYS}
    made = {**known, "name": name, "origin": file.origin, "own": file.is_users, "other": other}
    try:
        server = msgspec.convert(made, McpServer)
    except msgspec.ValidationError as error:
        warned.append(ContextWarning(file.origin, f"the MCP server {name!r} is left out: {error}"))
        return None
    if bool(server.command) == bool(server.url):
        warned.append(
            ContextWarning(file.origin, f'the MCP server {name!r} is left out: it needs either "command" or "url"')
        )
        return None
    return server
