"""Requests for a context and the records of it, results of agents, and token usage as reported by providers.

Records of the context that came with a message are stored as `context_json` under documented key names. A user message has
its record in `Message.meta`. The system prompt is not a message of the ledger, so its record is stored with the manifest
of its call. Other messages have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from nexus.errors import BadEvent, BadSetting
from nexus.types.block import Block, ContextWarning
from nexus.types.environment import ORIGIN, Environment
from nexus.types.message import Message, Part, ToolCall, ToolResult
from nexus.types.settings import CHOICES, CallArguments, Settings, SettingsChanges, check_settings
from nexus.types.tool_calls import ToolCallRecord, tool_call_records
from nexus.types.tool_definition import tool_definitions, usable_definitions
from nexus.types.validation import MAX_DIGITS, check_json, checked


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
    preceding: tuple[Message, ...] = ()
    """User messages that came before `content`, each with its own source, time and id."""
    id: str = ""
    included_ids: tuple[str, ...] = ()
    """Ids of the events whose messages are `preceding`: they are idempotency keys as `id` is."""
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
    received: str = ""
    """`Message.received` of the message that `content` was read from."""
    digests: dict[str, str] = {}
    """Digests of the event and of those that it includes by their ids, as they were before they were joined."""


class Request(Struct, frozen=True):
    """One request for a context."""

    event: Event
    session: str = "main"
    """The session's label."""
    settings: Settings = Settings()
    tools: tuple[dict[str, Any], ...] = ()
    """Definitions in any provider's format."""
    chooses_session: bool = False
    """Use the session that the policy assigns to the speaker, and `session` only without a policy."""
    most_tokens: int = 0
    """Upper bound learned from a provider's rejection; 0 for none."""

    def with_arguments(self, arguments: CallArguments) -> Request:
        """Return the request with changed settings and tools. Raises NotAllowed, BadSetting, BadTool."""
        settings = arguments.get("settings", self.settings)
        if not isinstance(settings, Settings):
            raise BadSetting(
                f"settings are {type(settings).__name__}, not Settings (make them: nexus.Settings(model=…))"
            )
        changes = {name: value for name, value in arguments.items() if name not in ("settings", "tools")}
        settings = settings.with_changes(cast("SettingsChanges", changes))
        if "tools" not in arguments:
            return replace(self, settings=settings)
        return replace(self, settings=settings, tools=tool_definitions(arguments["tools"]))


TOOLS_ORIGIN = "nexus:tools"
"""Source of warnings about tool definitions."""


def checked_settings(settings: Settings) -> Settings:
    """Return settings with the type of every field checked, and those of the model in `model_config`. Raises BadSetting.

    The user's profile and blocks are checked where they are shown, which reports them as warnings.
    """
    if not isinstance(settings, Settings):
        raise BadSetting(f"settings are {type(settings).__name__}, not Settings (make them: nexus.Settings(model=…))")
    for name, allowed in CHOICES.items():
        value = getattr(settings, name)
        if value not in allowed:
            if isinstance(value, str):
                actual = repr(value)[:80]
            else:
                actual = f"a value of type {type(value).__name__}"
            raise BadSetting(f"{name} is one of {', '.join(map(repr, allowed))}, not {actual}")
    try:
        plain = replace(settings, user_profile={}, blocks={}).with_model_settings({})
        valid = checked(plain, Settings, 10**MAX_DIGITS)
        model_config = settings.model_settings()
        check_json(model_config)
        check_settings(model_config)
        blocks = dict(settings.blocks)
        user_profile = dict(settings.user_profile)
    except BadSetting:
        raise
    except (TypeError, ValueError) as error:
        raise BadSetting(f"argument invalid: {error}") from error
    return replace(valid, user_profile=user_profile, blocks=blocks, model_config=model_config)


def checked_request(request: Request) -> tuple[Request, tuple[ContextWarning, ...]]:
    """Return a program's request with the type of every field checked, and a warning for each unusable tool definition.

    Hook data, metadata, user profile and blocks are checked where they are shown, which reports them as warnings. Raises
    BadEvent, BadTool, BadSetting.
    """
    if not isinstance(request, Request):
        raise BadSetting(f"request is {type(request).__name__}, not a Request (make one: nexus.Request(event))")
    try:
        event = checked(replace(request.event, hook_data={}, metadata={}), Event)
        hook_data = dict(request.event.hook_data)
        metadata = dict(request.event.metadata)
    except (TypeError, ValueError) as error:
        raise BadEvent(f"event invalid: {error} (pass a text, a nexus.Event, or results as nexus.tool(…))") from error
    try:
        plain = replace(request, event=Event(), tools=(), settings=Settings())
        valid = checked(plain, Request, 10**MAX_DIGITS)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"argument invalid: {error}") from error
    tools, problems = usable_definitions(request.tools)
    event = replace(event, hook_data=hook_data, metadata=metadata)
    valid = replace(valid, event=event, settings=checked_settings(request.settings), tools=tools)
    return valid, tuple(ContextWarning(TOOLS_ORIGIN, text) for text in problems)


class TokenUsage(Struct, frozen=True):
    """Tokens as reported by a provider; `input_tokens` is the whole prompt, cache reads and writes included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """Those of `cache_write_tokens` that are kept for an hour, at a price of their own."""

    def stored(self) -> dict[str, int]:
        """Return the fields as an entry has them: tokens that are kept for an hour only if there are some."""
        fields = to_builtins(self)
        if not self.cache_write_1h_tokens:
            del fields["cache_write_1h_tokens"]
        return fields


class AgentResult(Struct, frozen=True):
    """Result of an agent: all messages produced, with their calls and results, and the usage."""

    messages: tuple[Message, ...]
    usage: TokenUsage = TokenUsage()
    stop_reason: str = ""
    """Why the model stopped, in one word for all providers (`nexus.types.stop_reasons`)."""
    error: str | None = None
    model: str = ""
    permissions_used: tuple[str, ...] = ()
    provider_stop_reason: str = ""
    """The provider's own word for `stop_reason`."""
    cost_usd: float | None = None
    """Cost at list prices, of an agent's result; None if it is not known."""
    calls: int = 0
    """Number of calls of a model that an agent made."""
    cache_miss_reason: str = ""
    """The provider's own word for why its cache did not have the last prompt."""
    context_edits: tuple[str, ...] = ()
    """Types of the edits that the provider made to the prompt, such as `clear_tool_uses_20250919`: its usage is of the
    edited one."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """All tool calls of the messages, in order."""
        return tuple(call for message in self.messages for call in message.calls())

    @property
    def tool_call_records(self) -> tuple[ToolCallRecord, ...]:
        """All tool calls of the messages with their results, in order."""
        return tool_call_records(self.messages)

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """All tool results of the messages, in order; each names its call."""
        return tuple(result for message in self.messages for result in message.results())


HASH_CHARS = 16
"""Hex digits of a stored hash, as in the manifest's `blocks`."""


def meta_of_user(event: Event, at_ms: int) -> str:
    """Return `Message.meta` of the message that carries an event, to which context was added at `at_ms`.

    `hookCount` is the number of hooks and callers that added data. A file that is attached as a whole has no `lines`; one
    that is attached from a line to its end has null as the second.
    """
    attachments: list[dict[str, Any]] = []
    for file in event.attachments:
        attachments.append({"path": file.path})
        if file.first_line:
            attachments[-1]["lines"] = [file.first_line, file.last_line or None]
    record = {
        "event": {"platform": event.platform or None, "hookCount": len(event.hook_data)},
        "attachments": attachments,
        "injectedAt": at_ms,
    }
    return json.dumps({"context_json": record}, separators=(",", ":"))


def system_record(
    blocks: Sequence[Block], persona: str, environment: Environment | None, previous: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the record of a system prompt made of `blocks`; `previous` is the record of the view's last call.

    `version` counts the texts that AGENTS.md had in this view, from 1. `memory` lists the memory files in the prompt.
    Missing parts are null.
    """
    rules = _hash_of(blocks, "AGENTS.md")
    workspace: Mapping[str, Any] = previous.get("workspace", {})
    version = int(workspace.get("version", 0))
    if not version or workspace.get("agentsMdHash") != rules:
        version += 1
    snapshot: dict[str, Any] | None = None
    if environment is not None:
        snapshot = {
            "capabilityCount": len(environment.capabilities),
            "snapshotAt": environment.at_ms,
            "snapshotHash": _hash_of(blocks, ORIGIN),
        }
    return {
        "workspace": {"agentsMdHash": rules, "version": version},
        "persona": {"id": persona or None, "soulHash": _hash_of(blocks, "SOUL.md")},
        "nexusEnv": snapshot,
        "memory": [block.source for block in blocks if block.layer == "Memory"] or None,
    }


def _hash_of(blocks: Sequence[Block], name: str) -> str | None:
    """Return the hash of the file with this name, or of the block's text if it is not from a file."""
    for block in reversed(blocks):
        if block.source.rsplit("/", 1)[-1] == name:
            full_hash = block.files[0] if block.files else block.hash
            return full_hash[:HASH_CHARS]
    return None
