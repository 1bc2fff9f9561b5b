"""The configuration: `config.toml` of the user and of each layer's `.nexus`, merged, with where each value comes from.

The user's own file comes first, then those of ancestors and the workspace, then the variables NEXUS_MODEL, NEXUS_TIMEZONE
and NEXUS_PERSONA. Tables are merged by key, a later value wins, lists are replaced. A file in a workspace is somebody
else's text, so it may only set what `ALLOWED` says: it may narrow what is read and shown, never widen it.
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
"""Environment variables that win over files, and the keys that they set."""

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
"""What a file in a workspace may set. `lower`: a smaller number than before; `tighter`: the same where 0 means no limit;
`fewer`: some of the names that count already, in any order, for its own layers; `stricter`: `error` where it was `report`.
Nothing else: what shortens instruction files would shorten the user's own, a hook that the user switched off stays off,
and one that guards the user stays on."""

_REASONS = {
    "lower": "it may lower this number, not raise it",
    "tighter": "it may lower this limit, not raise it",
    "fewer": "it may leave names out, not add any",
    "stricter": 'it may say "error", not "report"',
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """The merged configuration. `origins` says for each key, as `instructions.file_chars`, where its value comes from.

    `own_names` are the instruction files' names that count in the user's own folder, whatever a workspace's file says;
    `files` are those that were read, `servers` the MCP servers, `warned` what the user should know.
    """

    config: Config = field(default_factory=Config)
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    files: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()
    own_names: tuple[str, ...] = ()


@dataclass(slots=True)
class _Merging:
    """What was merged so far."""

    values: dict[str, Any]
    origins: dict[str, str]
    files: list[str] = field(default_factory=list[str])
    warned: list[ContextWarning] = field(default_factory=list[ContextWarning])

    def take(self, given: Mapping[str, Any], origin: str, *, trusted: bool) -> None:
        for key, value in given.items():
            if trusted or _may(key, value, self.values[key]):
                self.values[key], self.origins[key] = value, origin
            elif value != self.values[key]:
                self.warned.append(ContextWarning(origin, f"{key} is not taken from a workspace's file: {_why(key)}"))


def read_configuration(
    workspace: Path | None, home: Path | None = None, variables: Mapping[str, str] | None = None
) -> Configuration:
    """The configuration for a workspace (None: without one), from files and environment variables. Raises BadConfig."""
    folders = folders_of(workspace, home or home_folder())
    defaults = values_of(Config())
    merging = _Merging(defaults, dict.fromkeys(defaults, "default"))
    own_names = Config().instructions.names
    for file in settings_files(folders, FILE_NAME):
        given = _given(file, merging.warned)
        if given is not None:
            merging.files.append(file.origin)
            merging.take(given, file.origin, trusted=file.is_users)
        if file.is_users:
            own_names = tuple(merging.values["instructions.names"])
    named = os.environ if variables is None else variables
    for name, key in VARIABLES.items():
        if named.get(name):
            origin = f"variable {name}"
            merging.take(_checked({key: named[name]}, origin), origin, trusted=True)
    servers, files, more = read_servers(settings_files(folders, mcp.FILE_NAME))
    warned = (*folders.warned, *merging.warned, *more)
    config = msgspec.convert(_nested(merging.values), Config)
    return Configuration(config, merging.origins, (*merging.files, *files), servers, warned, own_names)


def values_of(config: Config) -> dict[str, Any]:
    """Every value of a configuration by its dotted key, as plain values."""
    return dict(_leaves(msgspec.to_builtins(config), Config))


def _given(file: SettingsFile, warned: list[ContextWarning]) -> dict[str, Any] | None:
    """The values that a file sets, by dotted key; None if it is not there. Raises BadConfig.

    A workspace's file that leads out of its folder is not there, with a warning.
    """
    import tomllib

    try:
        text = file.text()
    except (OSError, ValueError) as error:
        if not file.is_users and isinstance(error, OutsideFolder):
            warned.append(ContextWarning(file.origin, f"left out: {error}"))
            return None
        raise BadConfig(file.origin, "", describe_error(error)) from error
    if text is None:
        return None
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadConfig(file.origin, "", f"it is not TOML: {error}") from error
    return _checked(found, file.origin)


def _checked(found: dict[str, Any], origin: str) -> dict[str, Any]:
    """What a table sets, by dotted key. Raises BadConfig where a key is unknown, or its value of a wrong type or range."""
    try:
        config = msgspec.convert(found, Config)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        key = where.strip("`.").removeprefix(".")
        unknown = re.search(r"unknown field `(.*)`", what)
        if unknown:
            key = f"{key}.{unknown[1]}".removeprefix(".")
            what = f"there is no such setting{_near(key)}"
        elif what.startswith("Invalid enum value"):
            what = f"expected one of {', '.join(map(repr, _choices(key)))}"
        raise BadConfig(origin, key, what) from error
    negative = next((key for key, value in _leaves(found, Config) if type(value) is int and value < 0), "")
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
    every = values_of(config)
    return {key: every[key] for key, _ in _leaves(found, Config)}


def _choices(key: str) -> tuple[Any, ...]:
    """The values that a key may have, where these are few."""
    kind: Any = Config
    for name in key.split("."):
        kind = next(one.type for one in msgspec.structs.fields(kind) if one.name == name)
    return get_args(kind)


def _near(key: str) -> str:
    import difflib

    known = list(values_of(Config()))
    close = difflib.get_close_matches(key, known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key, value in values.items():
        *tables, name = key.split(".")
        table = whole
        for one in tables:
            table = table.setdefault(one, {})
        table[name] = value
    return whole


def _may(key: str, value: Any, now: Any) -> bool:
    """Whether a workspace's file may put a value in the place of the one so far."""
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


def _why(key: str) -> str:
    return _REASONS.get(ALLOWED.get(key, ""), "only the user's own file sets it")


def _leaves(values: Mapping[str, Any], kind: type[Struct], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a nested mapping that has the form of `kind`, by its dotted key."""
    fields = {one.name: one.type for one in msgspec.structs.fields(kind)}
    for name, value in values.items():
        inner = fields[name]
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from _leaves(cast("Mapping[str, Any]", value), inner, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
