"""Configuration: `config.toml` of the user and of each layer's `.nexus`, merged, with the origin of each value.

The user's own file comes first, then the files of ancestors and the workspace, then the variables NEXUS_MODEL,
NEXUS_TIMEZONE and NEXUS_PERSONA. Tables are merged by key, a later value wins, lists are replaced. A workspace's file may be
another person's text, so `ALLOWED` restricts it: it may narrow what is read and shown, never widen it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from nexus.errors import BadConfig
from nexus.types.block import ContextWarning
from nexus.types.config import Config
from nexus.workspace.config.files import OutsideFolder, SettingsFile, describe_error, settings_files
from nexus.workspace.environment import mcp
from nexus.workspace.environment.mcp import McpServer, read_servers
from nexus.workspace.files.reader import home_folder
from nexus.workspace.instruction_layers import folders_of

FILE_NAME = "config.toml"

VARIABLES = {"NEXUS_MODEL": "model", "NEXUS_TIMEZONE": "timezone", "NEXUS_PERSONA": "persona"}
"""Environment variables that override files, and the keys that they set."""

Rule: TypeAlias = Literal["any", "lower", "tighter", "fewer", "stricter"]

ALLOWED: dict[str, Rule] = {
    "instructions.names": "fewer",
    "instructions.caps": "stricter",
    "images.max_bytes": "lower",
    "images.max_pixels": "lower",
    "images.longest_edge": "tighter",
    "images.keep_turns": "tighter",
    "persona": "any",
    "timezone": "any",
    "model": "any",
}
"""Keys that a workspace's file may set, and the direction.

`lower`: a smaller number than before. `tighter`: the same, where 0 means no limit. `fewer`: a subset of the names so far, in
any order, for its own layers. `stricter`: `error` instead of `report`. All other keys are the user's: caps would shorten the
user's own instruction files too, and a workspace must not switch hooks on or off.
"""

_REASONS = {
    "lower": "it may only be lowered",
    "tighter": "it may only be lowered",
    "fewer": "names may only be removed",
    "stricter": 'it may only be "error"',
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


@dataclass(slots=True)
class _Merge:
    """Values merged so far, by dotted key, with their origins."""

    values: dict[str, Any]
    origins: dict[str, str]
    files: list[str] = field(default_factory=list[str])
    warnings: list[ContextWarning] = field(default_factory=list[ContextWarning])

    def add(self, values: Mapping[str, Any], origin: str, *, trusted: bool) -> None:
        for key, value in values.items():
            if trusted or _is_allowed(key, value, self.values[key]):
                self.values[key], self.origins[key] = value, origin
            elif value != self.values[key]:
                why = _REASONS.get(ALLOWED.get(key, ""), "only the user's own file sets it")
                self.warnings.append(ContextWarning(origin, f"{key} ignored in a workspace's file: {why}"))


def read_configuration(
    workspace: Path | None, home: Path | None = None, variables: Mapping[str, str] | None = None
) -> Configuration:
    """Return the configuration for a workspace, or without one, from files and environment variables. Raises BadConfig."""
    folders = folders_of(workspace, home or home_folder())
    defaults = values_of(Config())
    merge = _Merge(defaults, dict.fromkeys(defaults, "default"))
    own_names = Config().instructions.names
    for file in settings_files(folders, FILE_NAME):
        values = _read_file(file, merge.warnings)
        if values is not None:
            merge.files.append(file.origin)
            merge.add(values, file.origin, trusted=file.is_users)
        if file.is_users:
            own_names = tuple(merge.values["instructions.names"])
    environ = os.environ if variables is None else variables
    for name, key in VARIABLES.items():
        if environ.get(name):
            origin = f"variable {name}"
            merge.add(_validated({key: environ[name]}, origin), origin, trusted=True)
    servers, files, more = read_servers(settings_files(folders, mcp.FILE_NAME))
    warnings = (*folders.warnings, *merge.warnings, *more)
    config = msgspec.convert(_nested(merge.values), Config)
    return Configuration(config, merge.origins, (*merge.files, *files), servers, warnings, own_names)


def values_of(config: Config) -> dict[str, Any]:
    """Return every value of a configuration by its dotted key, as builtin types."""
    return dict(_leaves(msgspec.to_builtins(config), Config))


def _read_file(file: SettingsFile, warnings: list[ContextWarning]) -> dict[str, Any] | None:
    """Return the values of a file, by dotted key; None if it is missing. Raises BadConfig.

    A workspace's file that leads out of its folder is omitted with a warning.
    """
    import tomllib

    try:
        text = file.text()
    except (OSError, ValueError) as error:
        if not file.is_users and isinstance(error, OutsideFolder):
            warnings.append(ContextWarning(file.origin, f"omitted: {error}"))
            return None
        raise BadConfig(file.origin, "", describe_error(error)) from error
    if text is None:
        return None
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadConfig(file.origin, "", f"not TOML: {error}") from error
    return _validated(table, file.origin)


def _validated(table: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return the values of a table by dotted key. Raises BadConfig for an unknown key, or a wrong type or range."""
    try:
        config = msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        key = path.strip("`.").removeprefix(".")
        unknown = re.search(r"unknown field `(.*)`", what)
        if unknown:
            key = f"{key}.{unknown[1]}".removeprefix(".")
            what = f"unknown setting ({_suggestion(key)})"
        elif what.startswith("Invalid enum value"):
            what = f"expected one of {', '.join(map(repr, _choices(key)))}"
        raise BadConfig(origin, key, what) from error
    negative = next((key for key, value in _leaves(table, Config) if type(value) is int and value < 0), "")
    if negative:
        raise BadConfig(origin, negative, "expected a number that is not negative")
    for name in config.instructions.names:
        if name != Path(name).name or name in ("", ".", "..") or "\\" in name or "\0" in name:
            raise BadConfig(origin, "instructions.names", f"expected names of files without folders, not {name!r}")
    if config.persona and (Path(config.persona).name != config.persona or config.persona in (".", "..")):
        raise BadConfig(origin, "persona", f"expected the name of a folder in personas/, not {config.persona!r}")
    if config.timezone:
        try:
            ZoneInfo(config.timezone)
        except (KeyError, ValueError, OSError) as error:
            text = f"expected an IANA name such as Europe/Lisbon, not {config.timezone!r}"
            raise BadConfig(origin, "timezone", text) from error
    values = values_of(config)
    return {key: values[key] for key, _ in _leaves(table, Config)}


def _choices(key: str) -> tuple[Any, ...]:
    """Return the values of a key with a literal type."""
    kind: Any = Config
    for name in key.split("."):
        kind = next(info.type for info in msgspec.structs.fields(kind) if info.name == name)
    return get_args(kind)


def _suggestion(key: str) -> str:
    import difflib

    keys = list(values_of(Config()))
    close = difflib.get_close_matches(key, keys, 1, 0.5)
    return f"did you mean {close[0]}?" if close else f"available: {', '.join(keys)}"


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for key, value in values.items():
        *tables, name = key.split(".")
        table = root
        for step in tables:
            table = table.setdefault(step, {})
        table[name] = value
    return root


def _is_allowed(key: str, value: Any, now: Any) -> bool:
    """Return whether a workspace's file may replace the current value of a key."""
    match ALLOWED.get(key):
        case "any":
            return True
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
