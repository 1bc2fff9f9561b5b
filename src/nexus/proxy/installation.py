"""Entries in the settings of clients that always go through a proxy: planned, written, and taken back.

What was written is remembered in a file in the user's Nexus folder, one for each client. Only that is taken back, and only
where the user has not changed it since. All else in a client's file keeps its bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadConfig, NotFound
from nexus.providers.received import mapping
from nexus.proxy.settings import CHATGPT_PATH, check_url
from nexus.proxy.wrapping import UNBOUNDED_RETRIES, wrap
from nexus.text.json_members import with_member, without_member
from nexus.types.decoding import decodable
from nexus.types.validation import parse_toml
from nexus.workspace.files.settings_file import decoded_settings, read_settings_file, write_settings_file

Environment: TypeAlias = Mapping[str, str]

INSTALLED = "proxy-installed-{}.json"
"""Name of the file that remembers what was written for a client."""

ADDRESS = "ANTHROPIC_BASE_URL"
TOOL_SEARCH = "ENABLE_TOOL_SEARCH"

RETRIES = "CLAUDE_CODE_MAX_RETRIES"
CLAUDE_RETRIES = "4"
"""Retries of Claude Code in place of 10, whatever the reason: 8 to 9 seconds without a proxy, not three minutes."""

CODEX_REQUEST_RETRIES = 2
"""Retries of a request of Codex in place of 4. It sends it again five times after that: 10 to 11 seconds in all."""


class Installation(Struct, frozen=True):
    """The entries that are written for one client, or would be."""

    client: str
    file: str
    url: str
    entries: dict[str, str]
    """Names and values in Claude Code's `env`; for Codex the pieces of text by the key that each sets."""
    created: tuple[str, ...] = ()
    """`env` or `file`, if they were not there before."""


class SettingsChange(Struct, frozen=True):
    """A change of a client's file that is not made yet."""

    installation: Installation
    before: bytes | None
    """The file as it was read; None if there is none."""
    after: bytes | None
    """The file to write; None deletes it."""
    remaining: tuple[str, ...] = ()
    """Entries that stay, because they were changed since."""

    @property
    def is_empty(self) -> bool:
        """Return True if the file stays as it is."""
        return self.before == self.after


def settings_file(client: str, environment: Environment, home: Path) -> Path:
    """Return the settings file of a client."""
    if client == "claude":
        return Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude").expanduser() / "settings.json"
    return Path(environment.get("CODEX_HOME") or home / ".codex").expanduser() / "config.toml"


def installations(folder: Path) -> list[Installation]:
    """Return what is installed, by the files in the user's Nexus folder."""
    found = (installation_of(client, folder) for client in CLIENTS)
    return [installation for installation in found if installation is not None]


def installation_of(client: str, folder: Path) -> Installation | None:
    """Return what was written for a client; None if nothing was."""
    try:
        data = (folder / INSTALLED.format(client)).read_bytes()
        return msgspec.json.decode(data, type=decodable(Installation))
    except (OSError, msgspec.DecodeError):
        return None


def current_entries(installation: Installation) -> list[str]:
    """Return the entries that are as they were written. Raises BadConfig."""
    file = Path(installation.file)
    text = decoded_settings(file, read_settings_file(file))
    changed = CLIENTS[installation.client].taken_back(text, installation)[1]
    return [name for name in installation.entries if name not in changed]


def gives_up(installation: Installation) -> bool:
    """Return True if the client says within seconds that no proxy runs, by its settings. Raises BadConfig."""
    file = Path(installation.file)
    return CLIENTS[installation.client].gives_up(installation.file, decoded_settings(file, read_settings_file(file)))


def plan(client: str, url: str, folder: Path, environment: Environment, home: Path) -> SettingsChange:
    """Return the change that sends a client to the proxy at `url`; an empty one if it goes there already.

    Raises BadConfig if the file cannot be read, sends the client elsewhere or is installed otherwise, BadSetting for the url.
    """
    url = url.rstrip("/")
    check_url(url)
    file = settings_file(client, environment, home)
    old = installation_of(client, folder)
    if old is not None and old.file != str(file):
        raise BadConfig(old.file, "", f"has the entries of an earlier installation (nexus proxy uninstall {client})")
    before = read_settings_file(file)
    text = decoded_settings(file, before)
    new = Installation(client, str(file), url, {}, old.created if old is not None else ())
    remaining: list[str] = []
    if old is not None:
        text, remaining = CLIENTS[client].taken_back(text, old)
    if before is None:
        new = replace(new, created=("file",))
    text, new = CLIENTS[client].added(text, new, environment)
    if old is not None and old.url == url and not remaining and old.entries.keys() == new.entries.keys():
        return SettingsChange(old, before, before)
    return SettingsChange(new, before, text.encode() if text or before is not None else None)


def plan_removal(client: str, folder: Path) -> SettingsChange:
    """Return the change that takes an installation back. Raises NotFound if there is none, BadConfig."""
    old = installation_of(client, folder)
    if old is None:
        raise NotFound(f"nothing is installed for {client} (nexus proxy install {client})", code="not_installed")
    file = Path(old.file)
    before = read_settings_file(file)
    if before is None:
        return SettingsChange(old, None, None, tuple(old.entries))
    text, remaining = CLIENTS[client].taken_back(decoded_settings(file, before), old)
    after = text.encode()
    if "file" in old.created and "".join(text.split()) in ("", "{}"):
        after = None
    return SettingsChange(old, before, after, tuple(remaining))


def install(change: SettingsChange, folder: Path) -> None:
    """Make a change of `plan`, and remember it first. Raises BadConfig; the client's file is then unchanged."""
    client = change.installation.client
    memory = folder / INSTALLED.format(client)
    write_settings_file(
        memory,
        read_settings_file(memory),
        msgspec.json.format(msgspec.json.encode(change.installation), indent=2) + b"\n",
    )
    write_settings_file(Path(change.installation.file), change.before, change.after)


def uninstall(change: SettingsChange, folder: Path) -> None:
    """Make a change of `plan_removal`, and forget the installation. Raises BadConfig; the file is then unchanged."""
    write_settings_file(Path(change.installation.file), change.before, change.after)
    with suppress(FileNotFoundError):
        (folder / INSTALLED.format(change.installation.client)).unlink()


WITHOUT_PROXY = {
    "claude": f"while no proxy runs there, it says so after about 10 seconds: {CLAUDE_RETRIES} retries of any error, not 10",
    "codex": "while no proxy runs there, it says so after about 10 seconds, and does not wait for the network without end",
}
"""What the entries make of clients that retry for three minutes (Claude Code 2.1.332) or until Ctrl-C (Codex 0.169)."""


WITHOUT_LIMIT = {
    "claude": f"without a proxy it retries for three minutes: {RETRIES} is not set (nexus proxy install claude)",
    "codex": f"without a proxy it never gives up: features.{UNBOUNDED_RETRIES} is on (nexus proxy install codex)",
}
"""What they do without these entries."""


OWN_RETRIES = {
    "claude": f"{RETRIES} stays as you set it: so often it retries while no proxy runs there",
    "codex": f"features.{UNBOUNDED_RETRIES} stays on, as you set it: while no proxy runs there, it never gives up",
}
"""What a client does whose user has set these entries himself."""


def notes(change: SettingsChange, environment: Environment) -> tuple[str, ...]:
    """Return what else there is to know of a client that always goes through a proxy."""
    client = change.installation.client
    others = wrap((client,), "", environment).notes
    if client == "codex" and not environment.get("OPENAI_API_KEY"):
        others = ("it is for a login with ChatGPT (with a key: set OPENAI_API_KEY, uninstall, install again)",)
    entries = change.installation.entries
    text = decoded_settings(Path(change.installation.file), change.after)
    is_bounded = client == "codex" and CLIENTS[client].gives_up(change.installation.file, text)
    if is_bounded or any(RETRIES in name for name in entries):
        return (WITHOUT_PROXY[client], *others)
    return (OWN_RETRIES[client], *others)


# Claude Code ---------------------------------------------------------------------------------------------------------


def _json_of(file: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadConfig(file, "", f"is no JSON: {str(error)[:100]} (nothing was written)") from error
    settings = mapping(value)
    if not isinstance(value, dict) or not isinstance(settings.get("env", {}), dict):
        raise BadConfig(file, "env", "is no JSON object, or the file is none (nothing was written)")
    return settings


def _with_claude(text: str, new: Installation, environment: Environment) -> tuple[str, Installation]:
    del environment
    settings = _json_of(new.file, text)
    values = mapping(settings.get("env"))
    address = values.get(ADDRESS, new.url)
    if address != new.url:
        raise BadConfig(new.file, f"env.{ADDRESS}", _elsewhere(str(address)))
    # Behind another address than Anthropic's Claude Code loads each tool's schema, unless it is told not to.
    wanted = {ADDRESS: new.url, TOOL_SEARCH: "true", RETRIES: CLAUDE_RETRIES}
    entries = {name: value for name, value in wanted.items() if name not in values}
    created = new.created
    changed = text
    if not text and entries:
        changed = json.dumps({"env": entries}, indent=2) + "\n"
    elif "env" not in settings and entries:
        changed = with_member(text, (), "env", entries)
        created = (*created, "env")
    else:
        for name, value in entries.items():
            changed = with_member(changed, ("env",), name, value)
    expected = {**settings, "env": {**values, **entries}} if entries else settings
    _check(new.file, json.loads(changed or "{}") == expected)
    return changed, replace(new, entries=entries, created=created)


def _without_claude(text: str, old: Installation) -> tuple[str, list[str]]:
    settings = _json_of(old.file, text)
    values = mapping(settings.get("env"))
    remaining = [name for name, value in old.entries.items() if values.get(name) != value]
    changed = text
    for name in old.entries:
        if name not in remaining:
            changed = without_member(changed, ("env",), name)
    if {"env", "file"}.intersection(old.created) and json.loads(changed or "{}").get("env") == {}:
        changed = without_member(changed, (), "env")
    return changed, remaining


def _claude_gives_up(file: str, text: str) -> bool:
    return RETRIES in mapping(_json_of(file, text).get("env"))


# Codex ---------------------------------------------------------------------------------------------------------------

_FEATURES = re.compile(r"^[ \t]*\[[ \t]*features[ \t]*\][ \t]*(#[^\r\n]*)?(?=\r?$)", re.MULTILINE)


def _toml_of(file: str, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise BadConfig(file, "", f"is no TOML: {str(error)[:100]} (nothing was written)") from error


def _with_codex(text: str, new: Installation, environment: Environment) -> tuple[str, Installation]:
    settings = _toml_of(new.file, text)
    if "model_provider" in settings:
        raise BadConfig(new.file, "model_provider", _elsewhere(str(settings["model_provider"])))
    if "nexus" in mapping(settings.get("model_providers")):
        raise BadConfig(new.file, "model_providers.nexus", "exists already (remove it, then install)")
    provider: dict[str, Any] = {
        "name": "OpenAI through Nexus",
        "wire_api": "responses",
        "request_max_retries": CODEX_REQUEST_RETRIES,
    }
    if environment.get("OPENAI_API_KEY"):
        provider |= {"base_url": f"{new.url}/v1", "env_key": "OPENAI_API_KEY"}
    else:
        provider |= {"base_url": f"{new.url}{CHATGPT_PATH}", "requires_openai_auth": True}
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith("\n") else end
    lines = ["[model_providers.nexus]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
    expected = deepcopy(settings)
    expected["model_provider"] = "nexus"
    expected.setdefault("model_providers", {})["nexus"] = provider
    entries = {"model_provider": f'model_provider = "nexus"  # by nexus proxy install{end}'}  # before all tables
    changed = text
    features = mapping(settings.get("features"))
    if UNBOUNDED_RETRIES not in features:
        expected["features"] = {**features, UNBOUNDED_RETRIES: False}
        changed, piece = _with_bounded_retries(text, end, is_there="features" in settings)
        entries[f"features.{UNBOUNDED_RETRIES}"] = piece
    entries["model_providers.nexus"] = gap + end.join(("", *lines, ""))
    changed = entries["model_provider"] + changed + entries["model_providers.nexus"]
    try:
        _check(new.file, parse_toml(changed) == expected)
    except ValueError:
        _check(new.file, False)  # noqa: FBT003 - such as `model_providers = {…}` in one line
    return changed, replace(new, entries=entries)


def _with_bounded_retries(text: str, end: str, *, is_there: bool) -> tuple[str, str]:
    """Return Codex's settings with the feature off that lets it retry for ever, and the piece of text that does it.

    `is_there`: True if they have features, perhaps under a heading.
    """
    line = f"{UNBOUNDED_RETRIES} = false  # by nexus proxy install"
    heading = _FEATURES.search(text)
    if heading is None or not is_there:
        piece = f"features.{line}{end}"
        return piece + text, piece
    piece = end + line
    return text[: heading.end()] + piece + text[heading.end() :], piece


def _codex_gives_up(file: str, text: str) -> bool:
    return mapping(_toml_of(file, text).get("features")).get(UNBOUNDED_RETRIES) is False


def _without_codex(text: str, old: Installation) -> tuple[str, list[str]]:
    changed = text
    remaining: list[str] = []
    for name, piece in old.entries.items():
        if changed.count(piece) == 1:
            changed = changed.replace(piece, "")
        else:
            remaining.append(name)
    return changed, remaining


def _elsewhere(address: str) -> str:
    return (
        f"leads to {address[:200]!r} (the proxy takes its place: name it as upstream in ~/.nexus/proxy.toml, remove it "
        "here, then install)"
    )


def _check(file: str, is_as_expected: bool) -> None:
    if not is_as_expected:
        raise BadConfig(
            file, "", "cannot be added to without rewriting it (nothing was written; add the entries by hand)"
        )


class _Client(Struct, frozen=True):
    """The functions that add entries to a client's settings, and take them back."""

    added: Callable[[str, Installation, Environment], tuple[str, Installation]]
    taken_back: Callable[[str, Installation], tuple[str, list[str]]]
    gives_up: Callable[[str, str], bool]
    """Returns True for a file and its text if the client soon says that no proxy runs."""


CLIENTS: dict[str, _Client] = {
    "claude": _Client(_with_claude, _without_claude, _claude_gives_up),
    "codex": _Client(_with_codex, _without_codex, _codex_gives_up),
}
"""Clients with a settings file in which they can be sent to a proxy."""
