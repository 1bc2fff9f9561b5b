"""Requests for a context, results of agents, and token usage as reported by providers."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.types.message import Message, Part, ToolCall, ToolResult

AgentRole: TypeAlias = Literal["manager", "worker", "unified"]


class Attachment(Struct, frozen=True):
    """A file that came with a message: its text as shown, and the lines that it was taken from (from 1)."""

    path: str
    text: str
    first_line: int = 0
    last_line: int = 0


class Event(Struct, frozen=True):
    """A user's text and images, or the results of tool calls (messages of role `tool`)."""

    content: tuple[Part, ...] = ()
    """Last in the current message, after time, platform, memory and attachments."""
    results: tuple[Message, ...] = ()
    id: str = ""
    at_ms: int = 0
    timezone: str | int = ""
    """An IANA name, or minutes as of a browser's `getTimezoneOffset` (-480 is +08:00)."""
    channel: str = ""
    chat_id: str = ""
    platform: str = ""
    platform_actions: tuple[str, ...] = ()
    source: str = "human"
    hook_data: dict[str, Any] = {}
    """JSON values from hooks, by their names; shown with the message."""
    metadata: dict[str, Any] = {}
    """JSON values from the event's source; shown with the message."""
    attachments: tuple[Attachment, ...] = ()


class Identity(Struct, frozen=True):
    """The speaker, the persona in which the agent answers, and the user's profile."""

    principal: str = ""
    persona: str = ""
    user_profile: dict[str, Any] = {}


class Permissions(Struct, frozen=True):
    """The toolset and permissions of a call."""

    toolset: str = ""
    granted: tuple[str, ...] = ()
    """Names of permissions, stored with the turn."""
    capabilities: tuple[str, ...] | None = None
    """Capabilities that the environment section lists; None for all."""


class Routing(Struct, frozen=True):
    """The session and role of a call."""

    session: str = "main"
    role: AgentRole = "unified"
    task: str = ""
    """A worker's task."""
    manager: str = ""
    """Label of the session that spawned a worker; its persona is the default for the worker."""
    own: bool = False
    """Use the session that the policy assigns to the speaker, and `session` only without a policy."""


class Request(Struct, frozen=True):
    """One request for a context."""

    event: Event
    routing: Routing = Routing()
    identity: Identity = Identity()
    permissions: Permissions = Permissions()
    model: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    """Definitions in any provider's format."""
    model_config: dict[str, Any] = {}
    available_tokens: int | None = None
    """Overrides the model's window."""
    profile: str = "layered"
    most_tokens: int = 0
    """Upper bound learned from a provider's rejection; 0 for none."""
    skills: tuple[str, ...] = ()
    """Skills whose instructions are included."""
    blocks: dict[str, str] = {}
    """Texts of the application by name, for the sources `mood`, `constraints` and `fed:NAME`."""


class TokenUsage(Struct, frozen=True):
    """Tokens as reported by a provider; `input_tokens` is the whole prompt, cache reads and writes included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class AgentResult(Struct, frozen=True):
    """Result of an agent: all messages produced, with their calls and results, and the usage."""

    messages: tuple[Message, ...]
    usage: TokenUsage = TokenUsage()
    stop_reason: str = ""
    error: str | None = None
    model: str = ""
    permissions_used: tuple[str, ...] = ()

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """All tool calls of the messages, in order."""
        return tuple(call for message in self.messages for call in message.calls())

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """All tool results of the messages, in order; each names its call."""
        return tuple(result for message in self.messages for result in message.results())
