"""The server's entry in the configuration of clients: planned, written, and taken back.

What was written is remembered in a file in the user's Nexus folder, one for each client. Only that is taken back, and only
where the user has not changed it since. All else in a client's file keeps its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from nexus.errors import BadConfig, NotFound
from nexus.providers.received import mapping
from nexus.text.json_members import with_member, without_member
from nexus.types.decoding import decodable
from nexus.types.validation import parse_toml
from nexus.workspace.files.settings_file import decoded_settings, read_settings_file, write_settings_file

Environment: TypeAlias = Mapping[str, str]

NAME = "nexus"
"""The server's name in a client, and so the beginning of its tools' names there."""

INSTALLED = "mcp-installed-{}.json"
"""Name of the file that remembers what was written for a client."""

_NEW_TEXT = frozenset({"file", "text"})
_JSON_KEY = "mcpServers"
_TOML_KEY = "mcp_servers"


class McpInstallation(Struct, frozen=True):
    """The entry that is written for one client, or would be."""

    client: str
    file: str
    entry: str
    """JSON text of the server's value; for Codex the piece of TOML."""
    created: tuple[str, ...] = ()
    """`servers` or `file`, if they were not there before; `text`, if the file was empty."""


class McpChange(Struct, frozen=True):
    """A change of a client's file that is not made yet."""

    installation: McpInstallation
    before: bytes | None
    """The file as it was read; None if there is none."""
    after: bytes | None
    """The file to write; None deletes it."""
    is_left: bool = False
    """Whether the entry stays, because it was changed since."""


def config_file(client: str, environment: Environment, home: Path) -> Path:
    """Return the file in which a client has its MCP servers."""
    if client == "claude":
        return Path(environment.get("CLAUDE_CONFIG_DIR") or home).expanduser() / ".claude.json"
    if client == "codex":
        return Path(environment.get("CODEX_HOME") or home / ".codex").expanduser() / "config.toml"
    return home / ".cursor" / "mcp.json"


def plan_entry(client: str, command: Sequence[str], folder: Path, environment: Environment, home: Path) -> McpChange:
    """Return the change that adds the server with this command line to a client; an empty one if it is there already.

    Raises BadConfig if the file cannot be read or has another server of this name.
    """
    file = config_file(client, environment, home)
    old = entry_of(client, folder)
    if old is not None and old.file != str(file):
        raise BadConfig(old.file, "", f"has the entry of an earlier installation (nexus mcp uninstall {client})")
    before = read_settings_file(file)
    original = text = decoded_settings(file, before)
    created: tuple[str, ...] = () if before is not None else ("file",)
    taken_back = original
    if old is not None:
        text, is_left = _without_entry(original, old)
        taken_back = text
        created = () if is_left else old.created
        if _NEW_TEXT.intersection(created) and not _is_used(text):
            text = ""
    if client == "codex":
        text, new = _with_toml(text, file, command, created)
    else:
        text, new = _with_json(text, McpInstallation(client, str(file), "", created), command)
    if old is not None and new.entry == old.entry and taken_back != original:
        return McpChange(old, before, before)
    return McpChange(new, before, text.encode())


def plan_entry_removal(client: str, folder: Path) -> McpChange:
    """Return the change that takes the entry back. Raises NotFound if there is none, BadConfig."""
    old = entry_of(client, folder)
    if old is None:
        raise NotFound(f"nothing is installed for {client} (nexus mcp install {client})", code="not_installed")
    file = Path(old.file)
    before = read_settings_file(file)
    if before is None:
        return McpChange(old, None, None, is_left=False)
    text, is_left = _without_entry(decoded_settings(file, before), old)
    after = text.encode()
    if _NEW_TEXT.intersection(old.created) and not _is_used(text):
        return McpChange(old, before, None if "file" in old.created else b"")
    return McpChange(old, before, after, is_left)


def add_entry(change: McpChange, folder: Path) -> None:
    """Make a change of `plan_entry`, and remember it first. Raises BadConfig; the client's file is then unchanged."""
    memory = folder / INSTALLED.format(change.installation.client)
    remembered = msgspec.json.format(msgspec.json.encode(change.installation), indent=2) + b"\n"
    write_settings_file(memory, read_settings_file(memory), remembered)
    write_settings_file(Path(change.installation.file), change.before, change.after)


def remove_entry(change: McpChange, folder: Path) -> None:
    """Make a change of `plan_entry_removal`, and forget the entry. Raises BadConfig; the file is then unchanged."""
    write_settings_file(Path(change.installation.file), change.before, change.after)
    with suppress(FileNotFoundError):
        (folder / INSTALLED.format(change.installation.client)).unlink()


def entry_of(client: str, folder: Path) -> McpInstallation | None:
    """Return what was written for a client; None if nothing was."""
    try:
        data = (folder / INSTALLED.format(client)).read_bytes()
        return msgspec.json.decode(data, type=decodable(McpInstallation))
    except (OSError, msgspec.DecodeError):
        return None


def _is_used(text: str) -> bool:
    """Return whether a file that was made for the entry has anything else."""
    return "".join(text.split()) not in ("", "{}")


def _without_entry(text: str, old: McpInstallation) -> tuple[str, bool]:
    """Return a file's text without an entry, and whether the entry is left, because it was changed since."""
    if old.client == "codex":
        return _without_toml(text, old)
    servers = mapping(_json_of(old.file, text).get(_JSON_KEY))
    if NAME not in servers:
        return text, False
    if servers[NAME] != json.loads(old.entry):
        return text, True
    text = without_member(text, (_JSON_KEY,), NAME)
    if {"servers", *_NEW_TEXT}.intersection(old.created) and json.loads(text).get(_JSON_KEY) == {}:
        text = without_member(text, (), _JSON_KEY)
    return text, False


# Claude Code and Cursor -----------------------------------------------------------------------------------------------


def _json_of(file: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text if text.strip() else "{}")
    except (ValueError, RecursionError) as error:
        raise BadConfig(file, "", f"is no JSON: {str(error)[:100]} (nothing was written)") from error
    settings = mapping(value)
    if not isinstance(value, dict) or not isinstance(settings.get(_JSON_KEY, {}), dict):
        raise BadConfig(file, _JSON_KEY, "is no JSON object, or the file is none (nothing was written)")
    return settings


def _with_json(text: str, new: McpInstallation, command: Sequence[str]) -> tuple[str, McpInstallation]:
    settings = _json_of(new.file, text)
    servers = mapping(settings.get(_JSON_KEY))
    _check_free(new.file, servers, _JSON_KEY)
    value: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    if new.client == "claude":
        value = {"type": "stdio", **value, "env": {}}
    created = new.created
    if not text.strip():
        if "file" not in created:
            created = ("text",)
        changed = json.dumps({_JSON_KEY: {NAME: value}}, indent=2) + "\n"
    elif _JSON_KEY in settings:
        changed = with_member(text, (_JSON_KEY,), NAME, value)
    else:
        changed = with_member(text, (), _JSON_KEY, {NAME: value})
        created = (*created, "servers")
    expected = {**settings, _JSON_KEY: {**servers, NAME: value}}
    _check_result(new.file, is_as_expected=json.loads(changed) == expected)
    return changed, McpInstallation(new.client, new.file, json.dumps(value), created)


# Codex ----------------------------------------------------------------------------------------------------------------


def _toml_of(file: str, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise BadConfig(file, "", f"is no TOML: {str(error)[:100]} (nothing was written)") from error


def _with_toml(text: str, file: Path, command: Sequence[str], created: tuple[str, ...]) -> tuple[str, McpInstallation]:
    settings = _toml_of(str(file), text)
    _check_free(str(file), mapping(settings.get(_TOML_KEY)), _TOML_KEY)
    end = "\r\n" if "\r\n" in text else "\n"
    value: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    lines = [f"[{_TOML_KEY}.{NAME}]", *(f"{key} = {_toml_text(part)}" for key, part in value.items())]
    gap = "" if not text or text.endswith("\n") else end
    blank = end if text else ""
    piece = gap + blank + end.join((*lines, ""))
    expected = deepcopy(settings)
    expected.setdefault(_TOML_KEY, {})[NAME] = value
    try:
        is_as_expected = parse_toml(text + piece) == expected
    except ValueError:  # such as `mcp_servers = {…}` in one line
        is_as_expected = False
    _check_result(str(file), is_as_expected=is_as_expected)
    return text + piece, McpInstallation("codex", str(file), piece, created)


def _without_toml(text: str, old: McpInstallation) -> tuple[str, bool]:
    """Return what `_without_entry` does. Keys and tables that the user added to the entry would be left without it."""
    settings = _toml_of(old.file, text)
    servers = mapping(settings.get(_TOML_KEY))
    if NAME not in servers:
        return text, False
    shorter = text.replace(old.entry, "")
    others = {name: server for name, server in servers.items() if name != NAME}
    rest = {**settings, _TOML_KEY: others}
    if text.count(old.entry) != 1 or {_TOML_KEY: {}, **_toml_of(old.file, shorter)} != rest:
        return text, True
    return shorter, False


def _toml_text(value: str | list[str]) -> str:
    """Return a text or a list of texts in TOML, whose basic strings are those of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _check_free(file: str, servers: dict[str, Any], key: str) -> None:
    if NAME in servers:
        raise BadConfig(file, f"{key}.{NAME}", "exists already (remove it, then install)")


def _check_result(file: str, *, is_as_expected: bool) -> None:
    if not is_as_expected:
        raise BadConfig(
            file, "", "cannot be added to without rewriting it (nothing was written; add the entry by hand)"
        )
