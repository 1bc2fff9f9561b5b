"""Configuration and MCP servers: `config.toml` and `mcp.json` of the user and of each layer's `.nexus`, merged.

The user's own file comes first, then the files of ancestors and the workspace, then the variables NEXUS_MODEL,
NEXUS_TIMEZONE and NEXUS_PERSONA. Tables are merged by key, a later value wins, lists are replaced. A workspace's file may be
another person's text, so `ALLOWED` restricts it: it may narrow what is read and shown, never widen it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from nexus.errors import BadConfig, BadSetting
from nexus.tokens.model import resolve
from nexus.tokens.model_table import DEFAULT_MODEL
from nexus.types.block import ContextWarning
from nexus.types.config import OF_A_CALL, Config
from nexus.types.decoding import decodable
from nexus.types.settings import check_settings
from nexus.types.validation import parse_json, parse_toml
from nexus.workspace.files.containment import open_resolved, read_bytes
from nexus.workspace.files.reader import home_folder
from nexus.workspace.instruction_layers import Folders, folders_of

FILE_NAME = "config.toml"
SERVERS_FILE = "mcp.json"
LAYER_FOLDER = ".nexus"
MAX_BYTES = 100_000


class OutsideFolder(OSError):
    """A file leads out of the folder that it may be in."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Location of a layer's settings file, and its displayed name."""

    path: Path
    origin: str
    inside: Path | None = None
    """Folder that a workspace's file may not lead out of; None for the user's own file."""

    @property
    def is_users(self) -> bool:
        """Return True if the file is the user's. A workspace's file may be another person's text."""
        return self.inside is None

    def text(self) -> str | None:
        """Return the whole text, or None without a file. Raises OSError, or ValueError for a text that is not UTF-8."""
        path = self.path
        base = None
        if self.inside is not None:
            base = self.inside.resolve()
            try:
                path = path.resolve()
            except RuntimeError as error:  # before Python 3.13
                raise OSError("circle of links") from error
            if not path.is_relative_to(base):
                raise OutsideFolder(f"leads out of its folder, to {path}")
            if not os.path.lexists(path):
                return None
        try:
            with open_resolved(base, path) if base is not None else _users_file(path) as handle:
                data = read_bytes(handle, MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(data) > MAX_BYTES:
            raise OSError(f"larger than {MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")


@contextmanager
def _users_file(path: Path) -> Generator[int]:
    """Yield an open handle of a regular file, which may be a link anywhere. Raises OSError."""
    # O_NONBLOCK: to open a pipe without a writer would wait forever.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("not a regular file")
        yield handle
    finally:
        os.close(handle)


def settings_files(folders: Folders, name: str) -> list[SettingsFile]:
    """Return each layer's file of that name, in order: the user's, the ancestors', the workspace's."""
    users = SettingsFile(folders.home / name, f"{folders.display_path(folders.home)}{name}")
    files = [users]
    for folder in (*folders.ancestors, *([folders.workspace] if folders.workspace else [])):
        path = folder / LAYER_FOLDER / name
        if path != users.path:  # a workspace that contains the user's folder: its file is the user's
            files.append(SettingsFile(path, f"{folders.display_path(folder)}{LAYER_FOLDER}/{name}", folder))
    return files


def describe_error(error: OSError | ValueError) -> str:
    """Return the text of an error of `SettingsFile.text`, without the file's name."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.start:,})"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


class McpServer(Struct, frozen=True):
    """One entry of `mcp.json`: a program with its arguments, or an address. Its values may be secrets and are not printed.

    `nexus.agents.mcp_tools` starts the user's own servers for an agent; nothing else does.
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
    """The file."""
    is_users: bool = False
    """From the user's own file. A workspace's server is another person's choice of a program to run."""
    other: dict[str, Any] = {}
    """Further keys of the entry."""

    def __repr__(self) -> str:
        return f"<McpServer {self.name!r} of {self.origin}>"


_SERVER_KEYS = frozenset(McpServer.__struct_fields__) - {"name", "origin", "is_users", "other"}


def read_servers(files: Iterable[SettingsFile]) -> tuple[tuple[McpServer, ...], tuple[str, ...], list[ContextWarning]]:
    """Return the servers sorted by name, the files that were read, and a warning for each unusable file or entry.

    Of two servers with one name the later layer's counts.
    """
    servers: dict[str, McpServer] = {}
    names: list[str] = []
    warnings: list[ContextWarning] = []
    for file in files:
        try:
            text = file.text()
            data: Any = parse_json(text) if text is not None else None
            entries = None
            if isinstance(data, dict):
                entries = cast("dict[str, Any]", data).get("mcpServers")
            problem = 'object "mcpServers" missing'
            if text is None or isinstance(entries, dict):
                problem = ""
        except (OSError, UnicodeDecodeError) as error:
            entries = None
            problem = describe_error(error)
        except ValueError as error:
            entries = None
            problem = f"not JSON: {error}"
        if problem:
            warnings.append(ContextWarning(file.origin, f"omitted: {problem}"))
        if not isinstance(entries, dict):
            continue
        names.append(file.origin)
        for name, entry in cast("dict[str, Any]", entries).items():
            server = _server(name, entry, file)
            if isinstance(server, str):
                warnings.append(ContextWarning(file.origin, f"MCP server {name!r} omitted: {server}"))
                continue
            if name in servers:
                text = f"MCP server {name!r} replaces the one in {servers[name].origin}"
                warnings.append(ContextWarning(file.origin, text))
            servers[name] = server
    return tuple(servers[name] for name in sorted(servers)), tuple(names), warnings


def _server(name: str, entry: Any, file: SettingsFile) -> McpServer | str:
    """Return the server, or the problem with its entry."""
    if not isinstance(entry, dict) or not name.strip():
        return "needs a name, and an object as its entry"
    fields = cast("dict[str, Any]", entry)
    values = {key: value for key, value in fields.items() if key in _SERVER_KEYS}
    other = {key: value for key, value in fields.items() if key not in _SERVER_KEYS}
    values |= {"name": name, "origin": file.origin, "is_users": file.is_users, "other": other}
    try:
        server = msgspec.convert(values, decodable(McpServer))
    except ValueError as error:
        return str(error)
    if bool(server.command) == bool(server.url):
        return 'needs either "command" or "url"'
    return server


VARIABLES = {"NEXUS_MODEL": "model", "NEXUS_TIMEZONE": "timezone", "NEXUS_PERSONA": "persona"}
"""Environment variables that override files, and the keys that they set."""

Rule: TypeAlias = Literal["any", "lower", "tighter", "fewer", "stricter", "trusted"]

ALLOWED: dict[str, Rule] = {
    "instructions.names": "fewer",
    "instructions.caps": "stricter",
    "images.max_bytes": "lower",
    "images.max_pixels": "lower",
    "images.longest_edge": "tighter",
    "images.keep_turns": "tighter",
    "persona": "any",
    "timezone": "any",
    "model": "trusted",
    "consolidate": "any",
    **dict.fromkeys(("strategy", "pin_first_message", "clock"), "any"),
    **dict.fromkeys(("budget", "max_tool_result_tokens", "max_tokens", "thinking", "extra", "toolset"), "trusted"),
    **dict.fromkeys(("temperature", "top_p", "stop", "tool_choice", "calibrate", "capabilities"), "trusted"),
    **dict.fromkeys(("profile", "system", "skills"), "trusted"),
}
"""Keys that a workspace's file may set, and the direction.

`lower`: a smaller number than before. `tighter`: the same, where 0 means no limit. `fewer`: a subset of the names so far, in
any order, for its own layers. `stricter`: `error` instead of `report`. `trusted`: only if the user's `trusted` names the
folder, because the setting decides who gets the user's data, and at which price. All other keys are the user's: caps would shorten the
user's own instruction files too, and a workspace must not switch hooks on or off.
"""

_REASONS = {
    "lower": "it may only be lowered",
    "tighter": "it may only be lowered",
    "fewer": "names may only be removed",
    "stricter": 'it may only be "error"',
    "trusted": "only in a folder that the user's own file trusts",
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """The merged configuration."""

    config: Config = field(default_factory=Config)
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """Origin of each value, by dotted key, as `instructions.file_chars`."""
    files: tuple[str, ...] = ()
    """Files that were read."""
    servers: tuple[McpServer, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()
    own_names: tuple[str, ...] = ()
    """Names of instruction files in the user's own folder, which a workspace's file cannot change."""


def read_configuration(
    workspace: Path | None, home: Path | None = None, variables: Mapping[str, str] | None = None
) -> Configuration:
    """Return the configuration for a workspace, or without one, from files and environment variables. Raises BadConfig."""
    folders = folders_of(workspace, home or home_folder())
    merged = values_of(Config())
    origins = dict.fromkeys(merged, "default")
    own_names = Config().instructions.names
    environ = os.environ if variables is None else variables
    own_model = environ.get("NEXUS_MODEL", "")
    files: list[str] = []
    warnings = list(folders.warnings)
    for file in settings_files(folders, FILE_NAME):
        values = _read_file(file, warnings)
        files += [file.origin] if values is not None else []
        for key, value in (values or {}).items():
            is_trusted = file.is_users or _is_trusted(file, merged["trusted"])
            if file.is_users or _is_allowed(key, value, merged[key], is_trusted=is_trusted):
                merged[key], origins[key] = value, file.origin
            elif value != merged[key]:
                why = _REASONS.get(ALLOWED.get(key, ""), "only the user's own file sets it")
                if key == "model":
                    why = _untrusted_model(file, folders, value, own_model)
                warnings.append(ContextWarning(file.origin, f"{key} ignored in a workspace's file: {why}"))
        if file.is_users:
            own_names = tuple(merged["instructions.names"])
            own_model = own_model or merged["model"]
    for name, key in VARIABLES.items():
        if environ.get(name):
            origins[key] = f"variable {name}"
            merged |= _validated({key: environ[name]}, origins[key])
    servers, server_files, more = read_servers(settings_files(folders, SERVERS_FILE))
    nested: dict[str, Any] = {}
    for key, value in merged.items():
        *tables, name = key.split(".")
        table = nested
        for step in tables:
            table = table.setdefault(step, {})
        table[name] = value
    config = msgspec.convert(nested, decodable(Config))
    return Configuration(config, origins, (*files, *server_files), servers, (*warnings, *more), own_names)


def values_of(config: Config) -> dict[str, Any]:
    """Return every value of a configuration by its dotted key, as builtin types."""
    leaves = dict(_leaves(msgspec.to_builtins(config), Config))
    return {key: value for key, value in leaves.items() if key not in OF_A_CALL}


def _read_file(file: SettingsFile, warnings: list[ContextWarning]) -> dict[str, Any] | None:
    """Return the values of a file, by dotted key; None if it is missing. Raises BadConfig.

    A workspace's file that leads out of its folder is omitted with a warning.
    """
    try:
        text = file.text()
    except (OSError, ValueError) as error:
        # An error would stop every command in a workspace of another person; the user's own file may be a link.
        if not file.is_users and isinstance(error, OutsideFolder):
            warnings.append(ContextWarning(file.origin, f"omitted: {error}"))
            return None
        raise BadConfig(file.origin, "", describe_error(error)) from error
    if text is None:
        return None
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise BadConfig(file.origin, "", f"not TOML: {error}") from error
    settings, unknown = _existing_settings(table, Config)
    for key, hint in unknown:
        warnings.append(ContextWarning(file.origin, f"{key} ignored: unknown setting ({hint})"))
    return _validated(settings, file.origin)


def _existing_settings(
    table: Mapping[str, Any], kind: type[Struct], prefix: str = ""
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return a table without the settings that do not exist, and these with a hint, by dotted key."""
    types = {info.name: info.type for info in msgspec.structs.fields(kind)}
    settings: dict[str, Any] = {}
    unknown: list[tuple[str, str]] = []
    for name, value in table.items():
        inner = types.get(name)
        if name in OF_A_CALL:
            unknown.append((f"{prefix}{name}", "a program passes it with a call"))
        elif inner is None:
            import difflib

            keys = list(values_of(Config()))
            close = difflib.get_close_matches(f"{prefix}{name}", keys, 1, 0.5)
            if close:
                hint = f"did you mean {close[0]}?"
            else:
                hint = f"available: {', '.join(keys)}"
            unknown.append((f"{prefix}{name}", hint))
        elif isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, Struct):
            settings[name], more = _existing_settings(cast("dict[str, Any]", value), inner, f"{prefix}{name}.")
            unknown += more
        else:
            settings[name] = value
    return settings, unknown


def _is_file_name(name: str) -> bool:
    """Return whether a name has no folder."""
    return name == Path(name).name and name not in ("", ".", "..") and "\\" not in name and "\0" not in name


def _validated(table: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return the values of a table by dotted key. Raises BadConfig for a wrong type or range."""
    try:
        config = msgspec.convert(table, decodable(Config))
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        key = path.strip("`.").removeprefix(".")
        if what.startswith("Invalid enum value"):
            kind: Any = Config
            for name in key.split("."):
                kind = next(info.type for info in msgspec.structs.fields(kind) if info.name == name)
            if all(isinstance(choice, str) for choice in get_args(kind)):
                what = f"expected one of {', '.join(map(repr, get_args(kind)))}"
        raise BadConfig(origin, key, what) from error
    negative = next((key for key, value in _leaves(table, Config) if type(value) is int and value < 0), "")
    if negative:
        raise BadConfig(origin, negative, "expected a number that is not negative")
    for name in config.instructions.names:
        if not _is_file_name(name):
            raise BadConfig(origin, "instructions.names", f"expected names of files without folders, not {name!r}")
    if config.persona and (Path(config.persona).name != config.persona or config.persona in (".", "..")):
        raise BadConfig(origin, "persona", f"expected the name of a folder in personas/, not {config.persona!r}")
    for name in config.trusted:
        if not name.startswith(("/", "~/")) and not Path(name).is_absolute():
            raise BadConfig(origin, "trusted", f"expected absolute paths of folders, not {name!r}")
    _check_call_settings(config, origin)
    values = values_of(config)
    return {key: values[key] for key, _ in _leaves(table, Config)}


def _check_call_settings(config: Config, origin: str) -> None:
    """Raise BadConfig for an unknown time zone, and for a value that no model takes."""
    if config.timezone:
        try:
            ZoneInfo(config.timezone)
        except (KeyError, ValueError, OSError) as error:
            text = f"expected an IANA name such as Europe/Lisbon, not {config.timezone!r}"
            raise BadConfig(origin, "timezone", text) from error
    try:
        check_settings(config.model_settings())
    except BadSetting as error:
        raise BadConfig(origin, "", str(error)) from error


def _is_trusted(file: SettingsFile, trusted: Iterable[str]) -> bool:
    """Return whether a workspace's file is in a folder that the user trusts, or below one."""
    folder = os.path.realpath(file.inside or file.path.parent)
    roots = (os.path.realpath(os.path.expanduser(name)) for name in trusted if name)  # noqa: PTH111 - as realpath
    return any(Path(folder).is_relative_to(root) for root in roots)


def _untrusted_model(file: SettingsFile, folders: Folders, model: str, user_model: str) -> str:
    """Return why a model of a workspace's file is not used, and how to accept it."""
    chosen = resolve(model).provider
    current = resolve(user_model or DEFAULT_MODEL).provider
    data = f"{model!r} would send your data to {chosen}" + (f" instead of {current}" if chosen != current else "")
    own_file = f"{folders.display_path(folders.home)}{FILE_NAME}"
    return f"{data} (accept: trusted = [{json.dumps(str(file.inside), ensure_ascii=False)}] in {own_file}, or pass the model)"


def _is_allowed(key: str, value: Any, now: Any, *, is_trusted: bool) -> bool:
    """Return whether a workspace's file may replace the current value of a key."""
    match ALLOWED.get(key):
        case "any":
            return True
        case "trusted":
            return is_trusted
        case "lower":
            return value <= now
        case "tighter":
            return value == now or (value > 0 and (now == 0 or value < now))
        case "fewer":
            return set(value) <= set(now)
        case "stricter":
            return value in (now, "error")
        case None:
            return False


def _leaves(values: Mapping[str, Any], kind: type[Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a nested mapping with the fields of `kind`, by its dotted key."""
    types = {info.name: info.type for info in msgspec.structs.fields(kind)}
    for name, value in values.items():
        inner = types[name]
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from _leaves(cast("Mapping[str, Any]", value), inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
