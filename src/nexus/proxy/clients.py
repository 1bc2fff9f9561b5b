"""The sender of a request: the client's name, its user, and its id of the conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from nexus.proxy.calls import CallPlace
from nexus.proxy.requests import ClientRequest
from nexus.proxy.settings import ProxySettings

CLIENTS: dict[str, str] = {
    "claude-cli": "claude-code",
    "claude-code": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "geminicli": "gemini-cli",
    "gemini-cli": "gemini-cli",
    "aider": "aider",
    "litellm": "litellm",
    "llm/": "llm",
    "openai/": "openai",
    "asyncopenai/": "openai",
    "anthropic/": "anthropic",
    "asyncanthropic/": "anthropic",
    "google-genai": "google-genai",
}
"""Names of clients by what their `User-Agent` contains, in lower case."""

OTHER = "other"
MAX_ID_CHARS = 200


def client_name(headers: Mapping[str, str]) -> str:
    """Return the name of a client, `other` for an unknown one."""
    agent = headers.get("user-agent", "").lower()
    if headers.get("x-claude-code-session-id"):
        return "claude-code"
    return next((name for part, name in CLIENTS.items() if part in agent), OTHER)


def place_of(
    headers: Mapping[str, str], request: ClientRequest | None, settings: ProxySettings, user: str
) -> CallPlace:
    """Return whose call a request is. The user is the token's, or else the one that the settings' header names."""
    conversation = next(filter(None, map(headers.get, settings.conversation_headers)), "")
    if not conversation and request is not None:
        conversation = request.conversation
        if conversation and settings.no_text:  # it is a part of the body
            conversation = _sha256(conversation)
    if not user and settings.user_header:
        user = headers.get(settings.user_header, "")
    return CallPlace(client_name(headers), _short(user), _short(conversation))


def _short(name: str) -> str:
    """Return a name of bounded length; different names stay different."""
    if len(name) <= MAX_ID_CHARS:
        return name
    digest = _sha256(name)
    return f"{name[: MAX_ID_CHARS - len(digest) - 1]}~{digest}"


def _sha256(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
