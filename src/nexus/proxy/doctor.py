"""Checks of what a proxy needs on this machine, and of what other proxies left behind. Nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from nexus.errors import BadConfig
from nexus.providers.received import mapping
from nexus.proxy.installation import WITHOUT_LIMIT, Installation, current_entries, gives_up, settings_file
from nexus.proxy.running import RunningProxy
from nexus.proxy.settings import DEFAULT_UPSTREAMS, ProxySettings
from nexus.proxy.wrapping import CLIENTS
from nexus.types.validation import parse_toml

State: TypeAlias = Literal["ok", "note", "problem"]

CONNECT_S = 5.0

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
ADDRESS_VARIABLES = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE", "GOOGLE_GEMINI_BASE_URL",
)  # fmt: skip
SHELL_FILES = (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".config/fish/config.fish")
MAX_FILE_BYTES = 2_000_000


class ProxyFinding(Struct, frozen=True):
    """One thing that was checked."""

    state: State
    subject: str
    text: str


def examine(
    settings: ProxySettings,
    proxies: Iterable[RunningProxy],
    installed: Sequence[Installation],
    environment: Mapping[str, str],
    home: Path,
) -> Iterator[ProxyFinding]:
    """Yield what is right, worth knowing and wrong. Values of keys are never shown.

    Args:
        settings: The proxy's settings.
        proxies: Those that run.
        installed: What `nexus proxy install` has written.
        environment: The variables of the user's programs.
        home: The user's home folder.
    """
    yield from _clients()
    running = [*proxies]
    for proxy in running:
        yield _reachable(proxy.url, f"proxy of process {proxy.pid}")
    if not running:
        yield ProxyFinding("note", "proxy", "none is running (nexus proxy, or nexus wrap CLIENT)")
    own_urls = {proxy.url for proxy in running}
    yield from _addresses(environment, own_urls)
    for installation in installed:
        yield _installed(installation, own_urls)
    expected_urls = own_urls | {installation.url for installation in installed}
    yield from _left_behind(home)
    yield from _left_in_clients(home, environment, expected_urls)
    for variable in KEY_VARIABLES:
        if environment.get(variable):
            yield ProxyFinding("ok", variable, "is set; it is passed on and never stored")
    for url in dict.fromkeys([*(upstream.url for upstream in settings.upstreams), *DEFAULT_UPSTREAMS.values()]):
        yield _reachable(url, "upstream")


def _clients() -> Iterator[ProxyFinding]:
    for name in (*CLIENTS, "llm"):
        program = shutil.which(name)
        if program:
            yield ProxyFinding("ok", name, f"is installed: nexus wrap {name}")


def _addresses(environment: Mapping[str, str], own_urls: set[str]) -> Iterator[ProxyFinding]:
    """Yield the variables that send clients elsewhere than to their providers."""
    for variable in ADDRESS_VARIABLES:
        url = environment.get(variable, "")
        if not url:
            continue
        if any(url.startswith(address) for address in own_urls):
            yield ProxyFinding("ok", variable, f"leads to a running proxy: {url}")
        elif _is_local(url):
            finding = _reachable(url, variable)
            text = f"leads to {url}, which is no proxy of Nexus"
            if finding.state == "problem":
                text = f"leads to {url}, where nothing answers: clients hang or fail (unset {variable})"
            yield ProxyFinding(finding.state if finding.state == "problem" else "note", variable, text)
        else:
            yield ProxyFinding("note", variable, f"leads to {urlsplit(url).hostname}; `nexus wrap` uses it as upstream")


def _installed(installation: Installation, own_urls: set[str]) -> ProxyFinding:
    """Return whether a client that always goes through a proxy finds one, and whether it still does go there."""
    client = installation.client
    url = installation.url
    subject = f"installed: {client}"
    leave = f"nexus proxy uninstall {client}"
    try:
        remaining = current_entries(installation)
        waits = not gives_up(installation)
    except BadConfig as error:
        return ProxyFinding("problem", subject, str(error))
    if not remaining:
        return ProxyFinding("note", subject, f"{installation.file} no longer has any of its entries ({leave})")
    if any(url.startswith(address) for address in own_urls):
        text = f"goes to the running proxy: {url}"
        if waits:
            return ProxyFinding("note", subject, f"{text}; {WITHOUT_LIMIT[client]}")
        return ProxyFinding("ok", subject, text)
    if _reachable(url, subject).state == "problem":
        text = f"goes to {url}, where nothing answers (nexus proxy; to leave: {leave})"
        if waits:
            text += f"; {WITHOUT_LIMIT[client]}"
        return ProxyFinding("problem", subject, text)
    return ProxyFinding("note", subject, f"goes to {url}, which is no proxy of yours that runs on this machine")


def _left_in_clients(home: Path, environment: Mapping[str, str], own_urls: set[str]) -> Iterator[ProxyFinding]:
    """Yield addresses of this machine in the settings of Claude Code and Codex."""
    file = settings_file("claude", environment, home)
    for path in (file, file.with_name("settings.local.json"), home / ".gemini" / "settings.json"):
        for variable, url in mapping(mapping(_json_of(path)).get("env")).items():
            if variable in ADDRESS_VARIABLES and _is_local(str(url)) and str(url) not in own_urls:
                text = f"sets {variable} to {url} (remove it, if that proxy is gone)"
                yield ProxyFinding("problem", _short(path, home), text)
    file = settings_file("codex", environment, home)
    for name, provider in mapping(mapping(_toml_of(file)).get("model_providers")).items():
        url = str(mapping(provider).get("base_url", ""))
        if _is_local(url) and not any(url.startswith(address) for address in own_urls):
            text = f"provider {name} leads to {url} (remove it, if that is a proxy that is gone)"
            yield ProxyFinding("note", _short(file, home), text)


def _short(file: Path, home: Path) -> str:
    if file.is_relative_to(home):
        return f"~/{file.relative_to(home).as_posix()}"
    return str(file)


def _left_behind(home: Path) -> Iterator[ProxyFinding]:
    """Yield addresses of this machine in files of shells: what a proxy that is gone may have left."""
    for name in SHELL_FILES:
        for number, line in enumerate(_text_of(home / name).splitlines(), 1):
            is_setting = any(variable in line for variable in ADDRESS_VARIABLES) and not line.lstrip().startswith("#")
            if is_setting and ("127.0.0.1" in line or "localhost" in line):
                yield ProxyFinding("problem", f"~/{name}", f"line {number} sends clients to an address of this machine")


def _reachable(url: str, subject: str) -> ProxyFinding:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), CONNECT_S):
            return ProxyFinding("ok", subject, f"{url} answers")
    except OSError as error:
        return ProxyFinding("problem", subject, f"{url} not reached: {error.strerror or error}")


def _is_local(url: str) -> bool:
    try:
        return (urlsplit(url).hostname or "") in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False


def _text_of(file: Path) -> str:
    try:
        if os.path.getsize(file) > MAX_FILE_BYTES:  # noqa: PTH202 - the same error for all
            return ""
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _toml_of(file: Path) -> object:
    try:
        return parse_toml(_text_of(file))
    except ValueError:
        return None


def _json_of(file: Path) -> object:
    try:
        return json.loads(_text_of(file))
    except (ValueError, RecursionError):
        return None
