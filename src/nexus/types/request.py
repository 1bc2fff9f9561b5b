"""What a call asks for and what came back: the request, the agent's result, the tokens that a provider reported."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.types.message import Message, Part, ToolCall, ToolResult

AgentRole: TypeAlias = Literal["manager", "worker", "unified"]


class Attachment(Struct, frozen=True):
    """A file that a user gave with a message: its text as shown, and the lines that it was taken from (from 1)."""

    path: str
    text: str
    first_line: int = 0
    last_line: int = 0


class Event(Struct, frozen=True):
    """What happened now: a user's text and images, or the results of tool calls (messages of role `tool`).

    `timezone` is an IANA name, or minutes as a browser's `getTimezoneOffset` gives them (-480 is +08:00); `content`
    stands last in the current message, after time, platform, memory and attachments. `hook_data` is what hooks gave for
    this event, by their names, `metadata` what the event's source says of it: both are shown with the message and are
    JSON values.
    """

    content: tuple[Part, ...] = ()
    results: tuple[Message, ...] = ()
    id: str = ""
    at_ms: int = 0
    timezone: str | int = ""
    channel: str = ""
    chat_id: str = ""
    platform: str = ""
    platform_actions: tuple[str, ...] = ()
    source: str = "human"
    hook_data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()


class Identity(Struct, frozen=True):
    """Who is speaking, as which persona the agent answers, and what is known of the user (document 000's profile)."""

    principal: str = ""
    persona: str = ""
    user_profile: dict[str, Any] = {}


class Permissions(Struct, frozen=True):
    """What this call may do: a named toolset and the permissions granted (stored with the turn).

    `capabilities` are the names of those that the agent is told of (document 002's scoped environment); None is all.
    """

    toolset: str = ""
    granted: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None


class Routing(Struct, frozen=True):
    """Where the call belongs: the session's label and the agent's role. `task` is what a worker was spawned for.

    `manager` is the label of the session that spawned a worker: its persona is the worker's where the call names none.
    `own` asks for the session that the policy has for who speaks; `session` is then for where there is no policy.
    """

    session: str = "main"
    role: AgentRole = "unified"
    task: str = ""
    manager: str = ""
    own: bool = False


class Request(Struct, frozen=True):
    """One request for a context (document 002's NexusRequest): event, identity, permissions, routing, model, tools.

    `tools` are definitions in any of the three providers' forms; `available_tokens` overrides the model's window.
    `most_tokens` bounds both, as a provider's refusal taught; 0 is no bound.
    `skills` names those that are to be shown in full. `blocks` are texts of the application by name, for the sources
    `mood`, `constraints` and `fed:NAME`.
    """

    event: Event
    routing: Routing = Routing()
    identity: Identity = Identity()
    permissions: Permissions = Permissions()
    model: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    model_config: dict[str, Any] = {}
    available_tokens: int | None = None
    profile: str = "layered"
    most_tokens: int = 0
    skills: tuple[str, ...] = ()
    blocks: dict[str, str] = {}


class TokenUsage(Struct, frozen=True):
    """Tokens as a provider reported them. `input_tokens` is the whole prompt, cache reads and writes included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class AgentResult(Struct, frozen=True):
    """What an agent engine returns (document 002): all messages produced, with their calls and results, and the usage."""

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
        """The results of those calls that the messages have, in order; each names its call."""
        return tuple(result for message in self.messages for result in message.results())
