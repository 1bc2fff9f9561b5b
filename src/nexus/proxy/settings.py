"""Settings of a proxy: its mode, budgets and upstreams, from a TOML file and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from nexus.errors import BadConfig, BadSetting
from nexus.proxy.openai_cache import is_openai
from nexus.text.as_received import ReceivedFormat
from nexus.types.decoding import decodable
from nexus.types.validation import parse_toml

Mode: TypeAlias = Literal["record", "heal", "fit", "off"]

MAX_FILE_BYTES = 100_000
MIN_BUDGET = 1_000
"""Smallest budget in tokens: below it no client's tools fit."""

DEFAULT_UPSTREAMS: dict[ReceivedFormat, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "responses": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
"""Where requests of each format go without an upstream in the settings."""

CHATGPT_PATH = "/backend-api/codex"
CHATGPT_UPSTREAM = "https://chatgpt.com"
"""Path of Codex's requests for users who are logged in with ChatGPT, and where they go without an upstream."""

CONVERSATION_HEADERS = (
    "x-claude-code-session-id",
    "thread-id",
    "x-session-affinity",
    "session_id",
    "x-nexus-conversation",
)
"""Headers with which clients name the conversation: Claude Code, Codex, opencode, older Codex, and your own program."""


_TIME = re.compile(r"(\d{1,5})([hdw])", re.ASCII)
_UNITS_MS = {"h": 3_600_000, "d": 24 * 3_600_000, "w": 7 * 24 * 3_600_000}


class Upstream(Struct, frozen=True, forbid_unknown_fields=True):
    """A server that requests go to: the first one in the settings whose conditions all hold."""

    url: str
    """Address before the path that clients send, such as `https://api.anthropic.com`."""
    formats: tuple[ReceivedFormat, ...] = ()
    models: tuple[str, ...] = ()
    """Names of models, with `*` for any characters."""
    clients: tuple[str, ...] = ()
    """Names of clients, as `nexus proxy status` shows them."""
    openai_cache_fields: bool = False
    """It takes OpenAI's fields of the prompt cache, as OpenAI's own servers do."""

    def takes(self, format_: ReceivedFormat | None, client: str, model: str) -> bool:
        """Return True if it is for such requests. An empty condition holds for all."""
        is_for_format = not self.formats or format_ in self.formats
        is_for_client = not self.clients or client in self.clients
        is_for_model = not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)
        return is_for_format and is_for_client and is_for_model


class ProxySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mode, budgets and upstreams of a proxy."""

    mode: Mode = "record"
    """`record` changes nothing, `heal` repairs what a provider would refuse, `fit` keeps each request within its budget.
    `off` records nothing either."""
    budget: int | None = None
    """Tokens of a request in `fit`, with its tools and system prompt."""
    budgets: dict[str, int] = {}
    """Other budgets by the name of a model or client, with `*` for any characters; the first that matches counts."""
    upstreams: tuple[Upstream, ...] = ()
    conversation_headers: tuple[str, ...] = CONVERSATION_HEADERS
    """Headers that name a request's conversation, the first one that it has."""
    user_header: str = ""
    """Header that names the user; conversations of different users are never compared."""
    cache_marks: bool = True
    """Add cache breakpoints in `heal` and `fit` where a client sets none."""
    fail_open: bool = False
    """Send a request in `fit` that could not be fitted, although it is over the budget."""
    no_text: bool = False
    """Record sizes and hashes only: no text of a request or answer reaches the disk."""
    retain: str = ""
    """How long a conversation stays after its newest call, such as `30d`, `12h` or `8w`; empty for ever."""
    omitted_tool: bool = False
    """Add the tool `nexus_omitted` in `fit` to conversations from which messages are omitted."""

    def __post_init__(self) -> None:
        if self.mode == "fit" and self.budget is None and not self.budgets:
            raise BadSetting("mode fit needs a budget (add --budget TOKENS, or budget = TOKENS to the settings)")
        for tokens in (self.budget, *self.budgets.values()):
            if tokens is not None and tokens < MIN_BUDGET:
                raise BadSetting(f"budget of {tokens:,} tokens too small (use {MIN_BUDGET:,} or more)")
        for upstream in self.upstreams:
            check_url(upstream.url)
        if self.no_text and self.mode == "fit":
            raise BadSetting(
                "mode fit needs the ledger: its cuts are stored, so that the next request begins like the last one (leave "
                "out --no-text, or --budget and --mode fit)"
            )
        if self.retain and not self.retain_ms:
            raise BadSetting(
                f"retain is {self.retain[:40]!r}, no time (use hours, days or weeks, such as 12h, 30d or 8w)"
            )

    @property
    def retain_ms(self) -> int:
        """Milliseconds that a conversation stays after its newest call; 0 for ever."""
        match = _TIME.fullmatch(self.retain)
        if match is None:
            return 0
        return int(match[1]) * _UNITS_MS[match[2]]

    def budget_for(self, client: str, model: str) -> int | None:
        """Return the budget of a request in tokens; None if it has none."""
        for pattern, tokens in self.budgets.items():
            if fnmatchcase(model, pattern) or pattern == client:
                return tokens
        return self.budget

    def adds_cache_fields(self, format_: ReceivedFormat, url: str) -> bool:
        """Return True if requests of a format to an address get the fields of the prompt cache that they lack."""
        if not self.cache_marks:
            return False
        if format_ in ("openai", "responses"):
            return is_openai(url) or any(item.openai_cache_fields for item in self.upstreams if item.url == url)
        return format_ == "anthropic"

    def upstream_for(self, format_: ReceivedFormat | None, client: str, model: str, path: str = "") -> str:
        """Return the address that a request goes to; empty if nothing says where."""
        for upstream in self.upstreams:
            if upstream.takes(format_, client, model):
                return upstream.url
        if path.startswith(f"{CHATGPT_PATH}/"):
            return CHATGPT_UPSTREAM
        if format_ is not None:
            return DEFAULT_UPSTREAMS[format_]
        return ""


def check_url(url: str) -> None:
    """Raise BadSetting unless an upstream's address is one of HTTP, without a user, query or fragment."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
        parts = urlsplit("")
    if not is_valid or parts.username or parts.query or parts.fragment:
        raise BadSetting(
            f"upstream {url[:200]!r} is no address of a server (use https://HOST or http://127.0.0.1:PORT)"
        )


def read_settings(
    file: Path | None, changes: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()
) -> ProxySettings:
    """Return the settings of a TOML file with some changed. Raises BadConfig for the file, BadSetting for a change.

    Args:
        file: The file; None for the defaults.
        changes: Values by the settings' names. `upstreams` come before those of the file.
        others: Upstreams behind those of the file.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values = _read_toml(file)
        _converted(values, f"{file}: ")
    upstreams = [*changes.get("upstreams", ()), *values.get("upstreams", ()), *others]
    return _converted({**values, **changes, "upstreams": upstreams})


def named_upstreams(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the upstreams of a command line: `URL` for all requests, or `FORMAT=URL`. Raises BadSetting."""
    upstreams: list[dict[str, Any]] = []
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or "/" in name:
            upstreams.append({"url": text})
        elif name == "openai":
            upstreams.append({"url": url, "formats": ["openai", "responses"]})
        else:
            upstreams.append({"url": url, "formats": [name]})
    return upstreams


def _converted(values: Mapping[str, Any], where: str = "") -> ProxySettings:
    try:
        return msgspec.convert(values, decodable(ProxySettings))
    except msgspec.ValidationError as error:
        # msgspec wraps what a setting's own check raises.
        if isinstance(error.__cause__, BadSetting):
            raise BadSetting(f"{where}{error.__cause__}") from error
        raise BadSetting(f"{where}proxy settings invalid: {error}") from error
    except BadSetting as error:
        raise BadSetting(f"{where}{error}") from error


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadConfig(str(file), "", f"not readable: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise BadConfig(str(file), "", f"larger than {MAX_FILE_BYTES:,} bytes")
    try:
        return parse_toml(data.decode())
    except ValueError as error:
        raise BadConfig(str(file), "", str(error)) from error
