"""The assembled context: everything that one call shows the model, and the figures that explain it.

It is the contract between assembly, the agent engine and the ledger. It is a value: reading it changes nothing, and a
context that is never recorded leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from nexus.errors import BadSetting
from nexus.policy import DeniedTool
from nexus.tokens.budget import TokenBudget
from nexus.tokens.calibration import Anchor
from nexus.tokens.image_limits import ImageLimits
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.model import Model
from nexus.types.block import Block, ContextWarning
from nexus.types.compaction_plan import FULL, FULL_TO, CompactionPlan, Trigger
from nexus.types.history import History, Lookup, Memory
from nexus.types.ledger_entries import Cut, MessageRef, TurnPosition
from nexus.types.message import Message
from nexus.types.profile import MessageFormatName
from nexus.types.request import Request
from nexus.types.settings import AgentRole, Settings
from nexus.types.tool_definition import ToolSpec


class Manifest(Struct, frozen=True):
    """Record of a sent prompt: hashes, the range of the ledger, versions. Its size does not grow with the history.

    The stored keys are older than the attributes; `field(name=…)` maps them.
    """

    id: str
    view: str
    profile: str
    model: str
    system: str
    """Hash of the system prompt's text."""
    blocks: dict[str, str]
    """Hash of each block of the system prompt, by source and name."""
    tools: str
    """Hash of the tool definitions."""
    head: int
    """Seq of the newest entry that the prompt was made from."""
    head_hash: str
    """Chain value of the entry `head`."""
    first: tuple[int, int]
    """Position of the first visible message."""
    mark: int
    """Seq of the newest clear or current compaction, 0 without one."""
    cut: int
    """Number of the view's current cut, 0 without one."""
    config: str
    """Hash of the model's settings."""
    synthetic_results: int = field(name="supplied")
    """Number of tool results added for unanswered calls."""
    current: str
    """Hash of the event."""
    counter: str
    factor: float
    """The model's tokens per base token."""
    available: int
    render: int
    """Version of the rendering."""
    pins: tuple[tuple[int, int, int], ...] = ()
    """Messages of the conversation that are whole because they are pinned; in manifests of earlier versions also the
    pins of the opening, which `opening` has now."""
    base: int = 0
    """Base tokens of the whole prompt."""
    max_tool_result_tokens: int = field(default=0, name="largest")
    """Limit of one tool result in base tokens; 0 is unlimited."""
    pin_first_message: bool = field(default=True, name="task")
    whole_new_results: bool = False
    pin_kinds: tuple[str, ...] = ()
    """Kinds of the pins in the opening; empty in manifests of this version."""
    opening_hash: str = field(default="", name="opening")
    """Hash of the pins in the opening (see `Window.opening_pins`)."""
    persona: str = ""
    """The persona that answered; a worker spawned by this session inherits it."""
    images: ImagePrice = ANY_MODEL
    preamble_blocks: dict[str, str] = field(default_factory=dict[str, str], name="ahead")
    """Hash of each block that is a message before the conversation, by source and name."""
    message_format: MessageFormatName = field(default="roles", name="form")
    entries: int = 0
    """Number of earlier entries that blocks report, in formats that show one turn."""
    session_header: str = field(default="", name="begun")
    """Text of the first message on the session's start, in profiles that have one."""
    summary_heading: str = field(default="", name="heading")
    """Text before a summary, if it is not the usual one."""
    frame_tags: int = field(default=0, name="marks")
    """Version of the frame tags that text cannot forge (`nexus.text.frames`)."""
    content_factor: float = field(default=1.0, name="content")
    """The part of `factor` that was estimated by content; the rest is calibration."""
    cached_settings: tuple[str, str] = ("", "")
    """Hashes of the settings that the prompt cache depends on: from the beginning, and from the first message on."""
    lookup: Lookup = ""
    """What notices say about where the whole can be read."""
    image_limits: ImageLimits | None = None
    """Limits of images; None if they were sent as stored."""
    image_edge: int = 0
    """Longest edge of the images because there were many; 0 if none was larger."""
    image_notes: int = 0
    """Number of images that were notes because there were too many."""
    system_parts: tuple[tuple[int, int], ...] = ()
    """Beginning and end of each block in which the caller's system prompt came, in its text; empty for one block."""
    system_names: tuple[tuple[int, int, str], ...] = ()
    """Beginning, end and participant's name of each message in which it came; empty if none has a name."""
    list_pins: tuple[MessageRef, ...] = ()
    """Pins that the caller of a mirrored list passed with this call."""


class PrefixReport(Struct, frozen=True):
    """Comparison of the prompt with the view's last prompt. Tokens are the provider's."""

    state: Literal["first", "extends", "broken"]
    """`first`: the view has no last prompt. `extends`: the last prompt is a prefix of this one. `broken`: it is not."""
    causes: tuple[str, ...] = ()
    stable_tokens: int = 0
    """Tokens that a warm prompt cache can reuse: the whole prefix, or the part before the first difference."""
    at: str = ""
    """The first difference."""
    byte: int | None = None
    """Start of the first different block in the system prompt's text; None for any other."""
    lost_tokens: int = 0
    """Cached tokens that are processed again; a lower bound if the earlier prompt is unknown."""
    price: float | None = None
    """Cost of the lost tokens in dollars, None if prices are unknown."""


class RepairReport(Struct, frozen=True):
    """The changes that made a history valid, with their counts; empty if it was valid."""

    changes: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Number of changes."""
        return sum(self.changes.values())

    @property
    def clean(self) -> bool:
        """True if the history was valid."""
        return not self.total

    def __str__(self) -> str:
        if self.clean:
            return "nothing to repair"
        changes = "; ".join(f"{change} ({count})" for change, count in sorted(self.changes.items()))
        return f"{self.total} repaired: {changes}"


class TokenLine(Struct, frozen=True):
    """One line of the token breakdown: a block, the history or the current message, with its provider tokens."""

    layer: str
    slot: str
    name: str
    source: str = field(name="origin")
    tokens: int
    trust: str = ""
    messages: int = 0


BodyFormat: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "gemini_rest"]
"""Formats of request bodies: `openai` is chat completions, `gemini` the Python client's form, `gemini_rest` JSON."""

Planner: TypeAlias = Callable[[Trigger, float], CompactionPlan | None]
"""Makes the plan of a compaction, for a trigger and a target share of the available tokens."""


class ListRenderer(Protocol):
    """Renders a request body, with messages that may be shared with later calls."""

    def __call__(self, ctx: AssembledContext, *, shared: bool = False) -> dict[str, Any]:
        """Return the body."""
        ...


@dataclass(frozen=True, slots=True)
class Renderers:
    """Functions that render a context: request bodies, report, JSON, hash. Passed in, so that values know no provider."""

    openai: ListRenderer
    anthropic: Callable[[AssembledContext], dict[str, Any]]
    gemini: Callable[[AssembledContext], dict[str, Any]]
    gemini_rest: Callable[[AssembledContext], dict[str, Any]]
    responses: ListRenderer
    report: Callable[[AssembledContext], str]
    as_json: Callable[[AssembledContext], dict[str, Any]]
    body_hash: Callable[[AssembledContext], str]


@dataclass(frozen=True, slots=True)
class Accounting:
    """Token figures of a context: where the tokens went, and how the prompt follows the last one."""

    model_info: Model
    """Facts of the model: context window, prices, provider."""
    prefix: PrefixReport
    token_breakdown: tuple[TokenLine, ...]
    """One line for each block, the history and the current message. The lines add up to `token_budget.used`."""
    full_share: float = 0.0
    """Share of the available tokens that everything would take if nothing were cut."""
    anchor: Anchor | None = None
    """Usage that the provider reported for the last call, and the tokens added since. None if it does not apply."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Messages of an event that were stored before the call, and the seqs of their entries."""

    messages: tuple[Message, ...]
    seqs: tuple[int, ...]
    starts_turn: bool
    refs: tuple[MessageRef, ...] = ()
    """Positions of the messages, if known."""
    turn: int = 0
    """The open turn's number; 0 if the messages are not stored as a turn."""
    hash: bytes = b""
    """Chain value after the last of these entries; empty if the ledger lacks it until `record`."""
    thread: int = 0
    """The thread on which the messages were read."""
    position: TurnPosition | None = None
    """Position of the open turn."""
    fence: int | None = None
    """Fencing token of the program that continues it."""


class SentMessage(Struct, frozen=True):
    """One of a context's messages, with its position in the ledger."""

    message: Message
    ref: MessageRef | None
    """Position in the ledger; None for a message that the ledger lacks until `record`, and for a synthetic one."""
    state: Literal["unchanged", "truncated", "repaired", "synthetic"]
    """`truncated`: text or images were left out. `repaired`: it was changed to be valid, or joined. `synthetic`: Nexus
    wrote it: a summary, an omission notice, a result that is missing, a block."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The place of a caller's whole message list in the ledger (`Engine.mirror`)."""

    action: Literal["append", "fork", "new", "repeat"]
    """What `record` will do with the session. `repeat`: it has the list and its answer; `record` adds nothing for the same
    answer, and makes the fork `AssembledContext.session_label` for another one."""
    session: str
    """Label of the session that the call is recorded in; another one if that was changed meanwhile."""
    stored_count: int
    """Number of the list's messages that the ledger has."""
    missing_count: int
    """Number of the others, that `record` will store."""
    restored_count: int
    """Number of the session's messages that are put back in front of a window."""
    reserve: int
    """Tokens that the caller adds to the request itself."""
    state: object = dataclass_field(repr=False, compare=False)
    _has_unchanged_list: Callable[[], bool] = dataclass_field(default=bool, repr=False, compare=False)
    _has_unchanged_tools: Callable[[], bool] = dataclass_field(default=bool, repr=False, compare=False)

    @property
    def unchanged(self) -> bool:
        """True if everything fits and nothing has to be repaired: send the received list, byte for byte.

        False if the list is not in a format of the model's provider, or if anything is added to its system prompt. Text
        passed as `system=` counts as received.
        """
        return self._has_unchanged_tools() and self._has_unchanged_list()

    @property
    def has_unchanged_list(self) -> bool:
        """True if the messages and the system prompt are unchanged, whatever became of the tools.

        This is for programs that send the received tools themselves.
        """
        return self._has_unchanged_list()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The parts of a context, included and omitted."""

    manifest: Manifest
    starts_turn: bool
    """True if the event starts a turn, false if it continues one with tool results."""
    blocks: tuple[Block, ...]
    memory: Memory | None = None
    """The blocks that report the earlier turns, in message formats that show only the open turn as messages."""
    already_in_history: tuple[Block, ...] = ()
    """Not repeated because the history shows them."""
    omitted_blocks: tuple[Block, ...] = ()
    """Did not fit the budget."""
    covered_by_blocks: frozenset[MessageRef] = frozenset()
    """Earlier messages that a block reports, in formats that show one turn."""
    denied_tools: tuple[DeniedTool, ...] = ()
    tool_definitions: tuple[dict[str, Any], ...] = ()
    """Of the offered tools, as the caller passed them."""
    settings: Settings = dataclass_field(default_factory=Settings)
    """As the policies grant them. Of a context that was read from a file: role, task, manager, principal, persona, profile."""
    context_json: dict[str, Any] = dataclass_field(default_factory=dict[str, Any])
    """Record of the system prompt's parts (see `nexus.types.request.system_record`)."""
    stored_event: StoredEvent | None = None
    """The part of the event that the ledger already has; None if `record` stores all of it."""
    mirrored: Mirrored | None = None
    """Where a list of `Engine.mirror` belongs; None for other contexts."""
    request: Request | None = dataclass_field(default=None, repr=False, compare=False)
    """The request it was assembled for. None if the context was read from a file."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """State that the engine attaches to a context."""

    renderers: Renderers
    planner: Planner | None = None
    compact_at: float = FULL
    compact_to: float = FULL_TO
    sent_messages: Callable[[], tuple[SentMessage, ...]] | None = None
    plain_text: Callable[[Message], str] = Message.text
    """Returns a message's text without what the message format puts around it."""
    position: TurnPosition | None = None
    """The newest entry of the history when the context was assembled; None for a new session."""
    cut_windows: tuple[object, object] | None = None
    """The `Window` that the cut was made from, and the one after it, so that the next call does not read that again."""


def _with_extra_body(arguments: dict[str, Any], conversation: str) -> dict[str, Any]:
    """Return a call's arguments with conversation and tools in `extra_body`; the package wants the former, so it is empty."""
    moved = {name: arguments[name] for name in (conversation, "tools") if name in arguments}
    rest = {name: value for name, value in arguments.items() if name not in moved}
    return {**rest, conversation: [], "extra_body": {**moved, **rest.get("extra_body", {})}}


@dataclass(frozen=True, slots=True)
class AssembledContext:
    """Everything for one call to a model."""

    system_prompt: str
    history: History
    current: tuple[Message, ...]
    """The event as shown: one user message, or tool results."""
    event: tuple[Message, ...]
    """The messages of `current` as they will be stored."""
    tools: tuple[ToolSpec, ...]
    model: str
    provider: str
    model_config: dict[str, Any]
    token_budget: TokenBudget
    session_label: str
    parent_turn_id: str | None
    role: AgentRole
    toolset_name: str
    permissions_granted: tuple[str, ...]
    source_event_id: str | None
    workspace_path: str
    accounting: Accounting
    provenance: Provenance
    cut: Cut | None = None
    warnings: tuple[ContextWarning, ...] = ()
    repairs: RepairReport = dataclass_field(default_factory=RepairReport)
    _engine: EngineState | None = dataclass_field(default=None, repr=False, compare=False)

    @property
    def mirrored(self) -> Mirrored | None:
        """The place of a list of `Engine.mirror`; None for other contexts."""
        return self.provenance.mirrored

    @property
    def current_message(self) -> Message:
        """The final message that carries the event."""
        return self.current[-1]

    @property
    def messages(self) -> list[Message]:
        """History and current message, in order, as neutral values."""
        return [*self.history, *self.current]

    @property
    def sent_messages(self) -> tuple[SentMessage, ...]:
        """Each of `messages` with its position in the ledger, and whether it is sent as it is stored.

        Thinking that a provider or another model is not sent is not counted as a change.
        """
        engine = self._engine
        if engine is None or engine.sent_messages is None:
            return tuple(SentMessage(message, None, "unchanged") for message in self.messages)
        return engine.sent_messages()

    def allows(self, tool: str) -> bool:
        """Return True if a tool was offered with this context, so that its calls may run. See `nexus.Engine.check_tool`."""
        return any(spec.name == tool for spec in self.tools)

    @property
    def expected_tokens(self) -> int:
        """Expected provider tokens of the prompt: the larger of the counted tokens and the anchor."""
        return max(self.token_budget.used.total, self.accounting.anchor.tokens if self.accounting.anchor else 0)

    @property
    def compaction_due(self) -> bool:
        """True if the context before any cut takes, or is expected to take, more than the profile's `compact_at`."""
        expected = self.expected_tokens / self.token_budget.available
        engine = self._engine
        share = max(self.accounting.full_share, expected)
        return engine is not None and engine.planner is not None and share > engine.compact_at

    def plan(self, trigger: Trigger = "context_limit", share: float | None = None) -> CompactionPlan | None:
        """Return the compaction that shrinks the context to a share of the available tokens; None if not worth it.

        The share is the profile's `compact_to` by default. `nexus.Engine.compact` carries the plan out. None also if a
        compaction was undone and the session has not continued.
        """
        engine = self._engine
        if engine is None or engine.planner is None:
            return None
        return engine.planner(trigger, engine.compact_to if share is None else share)

    @property
    def report(self) -> str:
        """Report as text: included and omitted parts with reasons, tokens, the cache boundary."""
        return self._renderers.report(self)

    def to_openai(self, *, fast: bool = False) -> dict[str, Any]:
        """Return the keyword arguments of `client.chat.completions.create`.

        Args:
            fast: Pass messages and tools in `extra_body`, which the package sends as they are. It converts each of them
                otherwise, which takes longer than all that Nexus does. The request is the same. Later calls share these
                messages: change none of them.
        """
        arguments = self._renderers.openai(self, shared=fast)
        if fast:
            return _with_extra_body(arguments, "messages")
        return arguments

    def to_responses(self, *, fast: bool = False) -> dict[str, Any]:
        """Return the keyword arguments of `client.responses.create`, independent of responses that a server stored.

        `fast` as for `to_openai`.
        """
        arguments = self._renderers.responses(self, shared=fast)
        if fast:
            return _with_extra_body(arguments, "input")
        return arguments

    def to_anthropic(self) -> dict[str, Any]:
        """Return the keyword arguments of `client.messages.create`, with at most four cache breakpoints."""
        return self._renderers.anthropic(self)

    def to_gemini(self) -> dict[str, Any]:
        """Return the keyword arguments of `client.models.generate_content`."""
        return self._renderers.gemini(self)

    def to_gemini_rest(self) -> dict[str, Any]:
        """Return the JSON body of Gemini's REST methods `generateContent` and `streamGenerateContent`.

        The model is part of their address, so it is not in the body.
        """
        return self._renderers.gemini_rest(self)

    @property
    def body_hash(self) -> str:
        """SHA-256 of the request body's JSON in the model's provider format, stored by `record`, verified by `replay`.

        It continues the last call's hash, so only new messages cost time. Raises TypeError or ValueError if a setting of
        the model has no JSON form.
        """
        return self._renderers.body_hash(self)

    def to_provider(self, wire: BodyFormat) -> dict[str, Any]:
        """Return the request body in a provider format; `openai` is chat completions. Raises BadSetting."""
        renderers = {
            "openai": self.to_openai,
            "responses": self.to_responses,
            "anthropic": self.to_anthropic,
            "gemini": self.to_gemini,
            "gemini_rest": self.to_gemini_rest,
        }
        if wire not in renderers:
            raise BadSetting(f"provider format {wire!r} unknown (use {', '.join(renderers)})")
        return renderers[wire]()

    def to_json(self) -> dict[str, Any]:
        """Return the context as plain JSON values, under documented key names."""
        return self._renderers.as_json(self)

    @property
    def _renderers(self) -> Renderers:
        assert self._engine is not None, "context has no renderers (use nexus.open(...).assemble(...))"
        return self._engine.renderers


def engine_state(ctx: AssembledContext) -> EngineState | None:
    """Return what the engine attached to a context, None for a context that was built by hand."""
    return ctx._engine  # noqa: SLF001 - the field is private to users, not to the engine  # pyright: ignore[reportPrivateUsage]
