"""Params and results of the server's methods, and their JSON forms in snake_case and camelCase.

Field names are document 004's, as printed. Fields of structs are renamed for camelCase; keys of the caller's own values,
such as request bodies and tool definitions, never are.
"""

from __future__ import annotations

import uuid
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from nexus.engine.analysis.explain import Explanation
from nexus.errors import BadSetting
from nexus.providers.errors.failures import FailureKind
from nexus.text.as_received import ReceivedFormat
from nexus.types.block import ContextWarning
from nexus.types.decoding import decodable
from nexus.types.message import Message, Part, Role, ToolCall
from nexus.types.request import TokenUsage
from nexus.types.settings import Settings

Case: TypeAlias = Literal["snake", "camel"]
RequestKey: TypeAlias = str | int

MAX_REQUEST_ID_CHARS = 200
_INTEGER_BOUND = 2**63


class NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A method without params."""


class AgentSettings(Settings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of an agent's calls (`nexus.Settings`), and its id and parent, as the ledger has them.

    A setting that is left out, or has its default, is the server's; of permissions, toolset and principal the parent's.
    """

    agent_id: str | None = None
    """By default a new one."""
    system: str = msgspec.field(default="", name="system_prompt")
    """First in every context; by default the workspace's prompt alone."""
    permissions: Annotated[tuple[str, ...], Meta(min_length=1)] = ()
    """Names of permissions; by default its parent's, or no limit."""
    parent_agent_id: str | None = None
    """Agent whose permissions and tools are the most that this one may have."""


class CreateAgent(AgentSettings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of a new agent. An id whose session exists continues that session."""

    if_exists: Literal["error", "continue"] = "error"
    """`continue` returns an existing agent whose settings are those that are passed; an error if one is another."""


class AgentCreated(Struct, frozen=True):
    """A new agent, and the path for its requests."""

    agent_id: str
    url: str


class AgentInfo(Struct, frozen=True):
    """One agent of the list."""

    agent_id: str
    created_at: str
    """ISO 8601, in UTC."""
    message_count: int
    should_shutdown: bool
    """Whether it was shut down."""
    parent_agent_id: str | None
    model: str


class AgentList(Struct, frozen=True):
    """The agents of the token's tenant, oldest first."""

    agents: tuple[AgentInfo, ...]


class DestroyAgent(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent to remove."""

    agent_id: str


class AgentDestroyed(Struct, frozen=True):
    """The removed agent. `success` is false if there was none; its session stays."""

    success: bool
    agent_id: str


class ServerStopping(Struct, frozen=True):
    """The server stops when the requests under way are answered."""

    success: bool
    message: str


class Send(Struct, frozen=True, forbid_unknown_fields=True):
    """A user's message. The same `request_id` again is answered from the ledger."""

    content: str
    request_id: RequestKey | None = None
    """Idempotency key within the agent; by default a new one."""


class SendResult(Struct, frozen=True):
    """The answer; without `content` if `cancel` ended the request."""

    request_id: RequestKey
    content: str | UnsetType = UNSET
    cancelled: bool | UnsetType = UNSET


class Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    """The request to end."""

    request_id: RequestKey


class CancelResult(Struct, frozen=True):
    """The canceled request. `cancelled` is false, with a reason, if it was not under way."""

    cancelled: bool
    request_id: RequestKey
    reason: str | UnsetType = UNSET


class TokenCounts(Struct, frozen=True):
    """Tokens of the agent's next context.

    `available` is the part of the `budget` that a context may fill: the model's window minus the reserves, not what is left.
    """

    system: int
    tools: int
    messages: int
    total: int
    budget: int
    available: int


class ContextInfo(Struct, frozen=True):
    """Number of messages in the next context, and whether it has a system prompt."""

    message_count: int
    system_prompt: bool


class GetMessages(Struct, frozen=True, forbid_unknown_fields=True):
    """A range of the session's messages."""

    offset: int = 0
    """From the oldest; negative: from the newest."""
    limit: int = 100
    """At most 1,000."""


class MessageList(Struct, frozen=True):
    """Messages as stored, those that no call shows any more included."""

    messages: tuple[Message, ...]
    offset: int
    total: int


class Compact(Struct, frozen=True, forbid_unknown_fields=True):
    """A compaction now."""

    focus: str = ""
    """Topic that the summary keeps above all."""


class CompactResult(Struct, frozen=True):
    """The compaction, or the reason why there was none."""

    compacted: bool
    tokens_before: int | UnsetType = UNSET
    tokens_after: int | UnsetType = UNSET
    tokens_saved: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class Success(Struct, frozen=True):
    """Done."""

    success: bool


class Fork(Struct, frozen=True, forbid_unknown_fields=True):
    """A new agent with this one's settings and its history up to a turn."""

    new_agent_id: str | None = None
    """By default a new one."""
    turn: int | None = None
    """Last turn that it shares; by default all."""


class Explain(Struct, frozen=True, forbid_unknown_fields=True):
    """A recorded call; by default the next one."""

    turn: int | None = None
    call: int | None = None
    """By default the turn's last."""


class Begin(Struct, frozen=True, forbid_unknown_fields=True):
    """A user's message, to be answered by the caller's own loop."""

    content: str
    request_id: RequestKey | None = None
    """Idempotency key within the agent: the same one again is the same turn."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tool definitions in any provider's format."""


class TurnState(Struct, frozen=True):
    """A turn. `tool_calls` are without results so far."""

    turn: int
    status: str
    """`pending`, `streaming`, `completed`, `failed` or `interrupted`."""
    tool_calls: tuple[ToolCall, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


class CallResult(Struct, frozen=True, forbid_unknown_fields=True):
    """Result of a tool call."""

    call_id: str
    content: str
    name: str = ""
    is_error: bool = False


class Assemble(Struct, frozen=True, forbid_unknown_fields=True):
    """The next call of the open turn, behind the results of its tools."""

    results: tuple[CallResult, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    """By default the agent's."""
    format: ReceivedFormat | None = None
    """Format of the body: `openai` (chat completions), `responses`, `anthropic` or `gemini`; by default the model's."""


class AssembledBody(Struct, frozen=True):
    """The request body to send to the provider, and its size."""

    context_id: str
    """Pass it to `record`."""
    session: str
    turn: int
    """Turn of the call; 0 if `record` will begin it."""
    model: str
    provider: str
    format: ReceivedFormat
    body: dict[str, Any]
    tokens: int
    available: int
    warnings: tuple[ContextWarning, ...] = ()
    action: Literal["append", "fork", "new", "repeat"] | UnsetType = UNSET
    """Of `mirror`: what `record` will do with the session."""


class ReplyResult(Struct, frozen=True, forbid_unknown_fields=True):
    """A reply of a program whose messages are not a provider's."""

    parts: tuple[Part, ...]
    usage: TokenUsage = TokenUsage()
    stop_reason: str = ""
    """In the words of any provider."""
    model: str = ""
    """The model that answered; by default the context's."""


class RecordReply(Struct, frozen=True, forbid_unknown_fields=True):
    """The provider's reply."""

    reply: dict[str, Any] | str | None = None
    """The provider's response, or the text."""
    context_id: str = ""
    """The context that was sent; by default the open turn's."""
    result: ReplyResult | None = None
    """The reply in neutral parts, in place of `reply`."""


class RecordResult(Struct, frozen=True):
    """The stored reply. `tool_calls` are to be run, and their results passed to `assemble`."""

    session: str
    turn: int
    status: str
    tool_calls: tuple[ToolCall, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


class Fail(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of the open turn without a reply."""

    error: str
    kind: FailureKind = "error"
    """Kind of the failure, as `nexus.failure_of` names it; `aborted` for a cancellation."""
    partial: str = ""
    """Text that had arrived."""
    turn: int = 0
    """The turn that failed, refused if another one is open; 0 for whichever is open."""


class Mirror(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole message list of a program that keeps its own."""

    messages: tuple[dict[str, Any], ...]
    """In any provider's format."""
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    format: ReceivedFormat | None = None
    """Format of the body; by default the model's."""
    reserve: int = 0
    """Tokens that the caller adds to the request itself."""
    conversation: str = ""
    """Id of the conversation, if the caller has one: its lists are compared with each other alone."""
    window: bool = False
    """True if the list may lack earlier messages, which are then put back in front."""


class ListMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A neutral message of a program's list."""

    role: Role
    parts: tuple[Part, ...]
    """A part of kind `unknown` has in `raw` what no other kind can hold, such as a file: it is kept and counted."""


class Fit(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole message list of a program that sends messages of its own types."""

    messages: tuple[ListMessage, ...]
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    reserve: int = 0
    """Tokens that the caller adds to the request itself."""
    conversation: str = ""
    """Id of the conversation, if the caller has one: its lists are compared with each other alone."""


class ShownMessage(Struct, frozen=True):
    """A message to send."""

    item: int | UnsetType = UNSET
    """Index of the list's message that it is made from; none for an omission notice and the like."""
    message: ListMessage | UnsetType = UNSET
    """The message to send instead; without it, send the list's own."""


class FittedList(Struct, frozen=True):
    """The messages to send, in order, and their size."""

    context_id: str
    """Pass it to `record`."""
    session: str
    model: str
    shown: tuple[ShownMessage, ...]
    tokens: int
    available: int
    action: Literal["append", "fork", "new", "repeat"]
    """What `record` will do with the session."""
    warnings: tuple[ContextWarning, ...] = ()


ExplainResult: TypeAlias = Explanation


def request_key(request_id: RequestKey | None) -> RequestKey:
    """Return the id of a request, or a new one. Raises BadSetting for an empty or too long one."""
    if isinstance(request_id, str) and not request_id.strip():
        raise BadSetting(f"request_id is empty (use 1 to {MAX_REQUEST_ID_CHARS} characters, or leave it out)")
    if isinstance(request_id, str) and len(request_id) > MAX_REQUEST_ID_CHARS:
        raise BadSetting(f"request_id has {len(request_id):,} characters (use 1 to {MAX_REQUEST_ID_CHARS})")
    if isinstance(request_id, int) and abs(request_id) >= _INTEGER_BOUND:
        raise BadSetting("request_id is larger than 64 bits (use a text)")
    if request_id is None:
        return uuid.uuid4().hex
    return request_id


def message_text(text: str) -> str:
    """Return the text of a user's message. Raises BadSetting for a blank one."""
    if not text.strip():
        raise BadSetting("content is blank (give the message a text)")
    return text


def url_of(agent_id: str) -> str:
    """Return the path for an agent's requests."""
    return f"/agent/{quote(agent_id, safe='')}"


def camel(name: str) -> str:
    """Return a snake_case name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def read_params(values: dict[str, Any] | list[Any], kind: type[Struct]) -> Struct:
    """Return the params of a method, by name in either case; null is as if left out. Raises BadSetting."""
    info = _struct_info(kind)
    names = [field.encode_name for field in info.fields]
    if isinstance(values, list):
        raise BadSetting(f"params are an array (pass an object with {', '.join(names) or 'no names'})")
    plain = cast("dict[str, Any]", _snake(values, info))
    if len(plain) < len(values):
        raise BadSetting("a param is present in snake_case and camelCase (pass it once)")
    if unknown := next((name for name in plain if name not in names), None):
        close = get_close_matches(unknown[:80], names, 1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        else:
            hint = f"params: {', '.join(names) or 'none'}"
        raise BadSetting(f"param {unknown[:80]!r} unknown ({hint})")
    present = {name: value for name, value in plain.items() if value is not None}
    try:
        return msgspec.convert(present, decodable(kind))
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)
        raise BadSetting(f"{text[:1].lower()}{text[1:]}") from error


@cache
def _struct_info(kind: type[Struct]) -> msgspec.inspect.StructType:
    """Return the fields of a struct: the same for every request, and slow to find out."""
    return cast("msgspec.inspect.StructType", msgspec.inspect.type_info(kind))


def _snake(value: Any, info: msgspec.inspect.Type) -> Any:
    """Return a value with the snake_case names of the structs that it is to become."""
    if isinstance(info, msgspec.inspect.StructType) and isinstance(value, dict):
        fields = {name: field for field in info.fields for name in (camel(field.encode_name), field.encode_name)}
        plain: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            field = fields.get(key)
            plain[field.encode_name if field else key] = _snake(item, field.type) if field else item
        return plain
    if isinstance(info, msgspec.inspect.VarTupleType) and isinstance(value, list):
        return [_snake(item, info.item_type) for item in cast("list[Any]", value)]
    if isinstance(info, msgspec.inspect.UnionType) and isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        structs = [kind for kind in info.types if isinstance(kind, msgspec.inspect.StructType)]
        struct = next((kind for kind in structs if kind.tag in (None, fields.get("type"))), None)
        return fields if struct is None else _snake(fields, struct)
    return value


def to_plain(value: Any, case: Case = "snake") -> Any:
    """Return the JSON value of a result in a case."""
    if case == "snake":
        return msgspec.to_builtins(value)
    if isinstance(value, Struct):
        plain = cast("dict[str, Any]", msgspec.to_builtins(value))
        fields = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        return {
            camel(key): to_plain(getattr(value, fields[key]), case) if key in fields else item
            for key, item in plain.items()
        }
    if isinstance(value, (list, tuple)):
        return [to_plain(item, case) for item in cast("tuple[Any, ...]", value)]
    return msgspec.to_builtins(value)
