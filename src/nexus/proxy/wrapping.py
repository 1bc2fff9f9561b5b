"""Clients that are started behind a proxy of their own: what tells each of them the address.

Everything is in the arguments and the environment of the one process, so that nothing is left when it has ended, also after
a kill: no settings file of the client is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from nexus.errors import BadSetting

Environment: TypeAlias = Mapping[str, str]

CODEX_LOGIN_UPSTREAM = "https://chatgpt.com/backend-api/codex"
"""Where Codex sends requests of users who are logged in with ChatGPT, without a key."""

LOCAL_NAMES = "127.0.0.1,localhost"

UNBOUNDED_RETRIES = "unbounded_connection_retries"
"""Feature of Codex with which it never gives up while nothing listens, whatever number of retries is set."""


class Wrapped(Struct, frozen=True):
    """Command and environment of a client behind a proxy."""

    command: tuple[str, ...]
    variables: dict[str, str]
    """Further variables of its environment."""
    upstreams: tuple[dict[str, Any], ...] = ()
    """Where its requests go: the servers that its environment named before."""
    notes: tuple[str, ...] = ()
    """What the client does differently behind another address than its provider's."""


def wrap(command: Sequence[str], url: str, environment: Environment) -> Wrapped:
    """Return how a client is started behind the proxy at `url`. Raises BadSetting without a command.

    Args:
        command: Its name or path, and its arguments.
        url: The address of the proxy.
        environment: The variables that it would be started with.
    """
    if not command:
        raise BadSetting("no client named (for example: nexus wrap claude)")
    name = Path(command[0]).name.lower().removesuffix(".exe").removesuffix(".cmd")
    wrapped = CLIENTS.get(name, _any_client)(tuple(command), url, environment)
    return Wrapped(
        wrapped.command,
        {**wrapped.variables, **_without_outer_proxy(environment)},
        wrapped.upstreams,
        wrapped.notes,
    )


def _without_outer_proxy(environment: Environment) -> dict[str, str]:
    """Return the variables with which a client reaches this machine without the proxy of its network."""
    variables: dict[str, str] = {}
    for name in ("NO_PROXY", "no_proxy"):
        hosts = environment.get(name, "")
        variables[name] = f"{hosts},{LOCAL_NAMES}" if hosts else LOCAL_NAMES
    return variables


def _upstream(url: str | None, *formats: str) -> tuple[dict[str, Any], ...]:
    if not url:
        return ()
    return ({"url": url, "formats": [*formats]},)


def _claude(command: tuple[str, ...], url: str, environment: Environment) -> Wrapped:
    variables = {"ANTHROPIC_BASE_URL": url}
    if "ENABLE_TOOL_SEARCH" not in environment:
        # Behind another address than Anthropic's Claude Code loads each tool's schema, unless it is told not to.
        variables["ENABLE_TOOL_SEARCH"] = "true"
    notes = ("Remote Control and managed settings are off behind another address than Anthropic's",)
    return Wrapped(command, variables, _upstream(environment.get("ANTHROPIC_BASE_URL"), "anthropic"), notes)


def _codex(command: tuple[str, ...], url: str, environment: Environment) -> Wrapped:
    fields = {"name": "OpenAI through Nexus", "wire_api": "responses"}
    upstream = environment.get("OPENAI_BASE_URL", "").removesuffix("/v1")
    if environment.get("OPENAI_API_KEY"):
        fields |= {"base_url": f"{url}/v1", "env_key": "OPENAI_API_KEY"}
        values = ",".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
    else:
        upstream = CODEX_LOGIN_UPSTREAM
        fields["base_url"] = url
        values = (
            ",".join(f"{name}={json.dumps(value)}" for name, value in fields.items()) + ",requires_openai_auth=true"
        )
    overrides = ("-c", "model_provider=nexus", "-c", f"model_providers.nexus={{{values}}}")
    overrides += ("-c", f"features.{UNBOUNDED_RETRIES}=false")
    return Wrapped((command[0], *overrides, *command[1:]), {}, _upstream(upstream, "responses", "openai"))


def _opencode(command: tuple[str, ...], url: str, environment: Environment) -> Wrapped:
    try:
        config = json.loads(environment.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError as error:
        raise BadSetting("OPENCODE_CONFIG_CONTENT is no JSON (mend it, or unset it)") from error
    providers = config.setdefault("provider", {})
    for name, path in (("anthropic", "/v1"), ("openai", "/v1"), ("google", "/v1beta")):
        providers.setdefault(name, {}).setdefault("options", {})["baseURL"] = f"{url}{path}"
    notes = ("only the providers anthropic, openai and google of opencode go through the proxy",)
    return Wrapped(command, {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, (), notes)


def _gemini(command: tuple[str, ...], url: str, environment: Environment) -> Wrapped:
    upstream = _upstream(environment.get("GOOGLE_GEMINI_BASE_URL"), "gemini")
    notes: tuple[str, ...] = ()
    if not environment.get("GEMINI_API_KEY"):
        notes = ("without GEMINI_API_KEY Gemini CLI does not use this address (a login with Google goes elsewhere)",)
    return Wrapped(command, {"GOOGLE_GEMINI_BASE_URL": url}, upstream, notes)


def _aider(command: tuple[str, ...], url: str, environment: Environment) -> Wrapped:
    upstreams = (
        *_upstream(environment.get("OPENAI_API_BASE", "").removesuffix("/v1"), "openai", "responses"),
        *_upstream(environment.get("ANTHROPIC_API_BASE"), "anthropic"),
    )
    variables = {"OPENAI_API_BASE": f"{url}/v1", "ANTHROPIC_API_BASE": url, "ANTHROPIC_BASE_URL": url}
    return Wrapped(command, variables, upstreams)


def _any_client(command: tuple[str, ...], url: str, environment: Environment) -> Wrapped:
    """Any program on an official SDK, and `llm`: the SDKs read these variables."""
    upstreams = (
        *_upstream(environment.get("OPENAI_BASE_URL", "").removesuffix("/v1"), "openai", "responses"),
        *_upstream(environment.get("ANTHROPIC_BASE_URL"), "anthropic"),
        *_upstream(environment.get("GOOGLE_GEMINI_BASE_URL"), "gemini"),
    )
    variables = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "ANTHROPIC_BASE_URL": url,
        "GOOGLE_GEMINI_BASE_URL": url,
    }
    return Wrapped(command, variables, upstreams)


CLIENTS: dict[str, Callable[[tuple[str, ...], str, Environment], Wrapped]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "gemini": _gemini,
    "aider": _aider,
}
"""How each client is told, by the name of its program."""
