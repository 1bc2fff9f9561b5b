"""The assembled context: what one call shows the model, and everything that explains it (document 002).

It is the contract between assembly, the agent engine and the ledger. It is a value: reading it changes nothing, and a
context that is never recorded leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from nexus.errors import BadSetting
from nexus.policy import DeniedTool
from nexus.tokens.anchor import Anchor
from nexus.tokens.budget import TokenBudget
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.model import Model
from nexus.types.block import Block, ContextWarning
from nexus.types.compaction_plan import COMPACT_AT, COMPACT_TO, CompactionPlan, Trigger
from nexus.types.history import History
from nexus.types.ledger_entries import Cut, MessageRef
from nexus.types.message import Message, ProviderFormat
from nexus.types.profile import MessageFormatName
from nexus.types.request import AgentRole, Identity, Request, Routing
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
    """Seq of the newest entry that the prompt was made from; `head_hash` is its chain value."""

    head_hash: str

    first: tuple[int, int]
    """Position of the first visible message."""

    mark: int
    """Seq of the newest clear or current compaction, 0 without one."""

    cut: int
    """Number of the view's current cut, 0 without one."""

    config: str
    """Hash of the model's settings."""

    synthetic_results: int = field(name="supplied")
    """Number of synthetic tool results added for unanswered calls."""

    current: str
    """Hash of the event."""

    counter: str

    factor: float
    """The model's tokens per base token."""

    available: int
    render: int
    """Version of the rendering."""

    pins: tuple[tuple[int, int, int], ...] = ()
    """Pins that affect the prompt (see `Window.visible_pins`)."""

    base: int = 0
    """Base tokens of the whole prompt."""

    max_tool_result_tokens: int = field(default=0, name="largest")
    """Limit of one tool result in base tokens; 0 is unlimited."""

    pin_first_message: bool = field(default=True, name="task")

    pin_kinds: tuple[str, ...] = ()
    """Reason for each pin in the opening; determines position and length."""

    persona: str = ""
    """The persona that answered. A worker spawned by this session inherits it."""

    images: ImagePrice = ANY_MODEL

    ahead: dict[str, str] = {}
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


class PrefixReport(Struct, frozen=True):
    """`first`: nothing was sent before in this view. `extends`: the last prompt is a prefix of this one. `broken`: why.

    `stable_tokens` is what the provider's cache can reuse of this prompt, in its tokens, when the last call is warm: up to
    the end of the history, or to where a broken prefix first differs. `at` says where that is, `byte` the byte of the
    system slot's text where the block begins that differs (None elsewhere), `lost_tokens` what was warm and is processed
    again, at least where the earlier prompt is not at hand, and `price` what that costs in dollars, if prices are known.
    """

    state: Literal["first", "extends", "broken"]
    causes: tuple[str, ...] = ()
    stable_tokens: int = 0
    at: str = ""
    byte: int | None = None
    lost_tokens: int = 0
    price: float | None = None


class RepairReport(Struct, frozen=True):
    """The changes that made a history valid, by what was done; empty when it was valid as it stood."""

    changes: dict[str, int] = {}

    @property
    def total(self) -> int:
        """How many changes were made."""
        return sum(self.changes.values())

    @property
    def clean(self) -> bool:
        """Whether nothing had to be changed."""
        return not self.total

    def __str__(self) -> str:
        if self.clean:
            return "nothing to repair"
        named = "; ".join(f"{what} ({count})" for what, count in sorted(self.changes.items()))
        return f"{self.total} repaired: {named}"


class TokenLine(Struct, frozen=True):
    """One line of the account: a block, the history or the current message, with its provider tokens."""

    layer: str
    slot: str
    name: str
    source: str = field(name="origin")
    tokens: int
    trust: str = ""
    messages: int = 0


Planner: TypeAlias = Callable[[Trigger, float], CompactionPlan | None]
"""Makes the plan of a compaction for a reason and a share of the room to come down to."""


@dataclass(frozen=True, slots=True)
class Renderers:
    """How a context is shown: by provider, as text, as a report. Passed in, so that values know no provider."""

    openai: Callable[[AssembledContext], dict[str, Any]]
    anthropic: Callable[[AssembledContext], dict[str, Any]]
    gemini: Callable[[AssembledContext], dict[str, Any]]
    responses: Callable[[AssembledContext], dict[str, Any]]
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
class Provenance:
    """What a context was made of, and what was left out of it."""

    manifest: Manifest
    starts_turn: bool
    """True if the event starts a turn, False if it continues one with tool results."""

    blocks: tuple[Block, ...]
    shows_one_turn: bool = False
    """True in message formats in which blocks report the earlier turns."""

    already_in_history: tuple[Block, ...] = ()
    """Blocks that are not repeated because the history shows them."""

    omitted_blocks: tuple[Block, ...] = ()
    """Blocks that did not fit the budget."""

    covered_by_blocks: frozenset[MessageRef] = frozenset()
    """Earlier messages that a block reports, in formats that show one turn."""

    denied_tools: tuple[DeniedTool, ...] = ()
    tool_definitions: tuple[dict[str, Any], ...] = ()
    """Definitions of the offered tools, as the caller passed them."""

    routing: Routing = dataclass_field(default_factory=Routing)
    identity: Identity = dataclass_field(default_factory=Identity)
    context_json: dict[str, Any] = dataclass_field(default_factory=dict[str, Any])
    """Record of the system prompt's parts (see `nexus.types.context_record`)."""

    request: Request | None = dataclass_field(default=None, repr=False, compare=False)
    """The request it was assembled for. None if the context was read from a file."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """What the engine attaches to a context: its renderers, the compaction planner, the window that a cut leaves."""

    renderers: Renderers
    planner: Planner | None = None
    window_after_cut: object = None
    """The `Window` after the cut, kept so that the next call does not read it again."""


@dataclass(frozen=True, slots=True)
class AssembledContext:
    """Everything for one call to a model.

    `current` is the event as shown: one user message, or tool results. `event` holds the same messages as they will be
    stored.
    """

    system_prompt: str
    history: History
    current: tuple[Message, ...]
    event: tuple[Message, ...]
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
    def current_message(self) -> Message:
        """The final message that carries the event."""
        return self.current[-1]

    @property
    def messages(self) -> list[Message]:
        """History and current message, in order, as neutral values."""
        return [*self.history, *self.current]

    def allows(self, tool: str) -> bool:
        """Whether a tool was offered with this context, so that a call of it may be run. See `nexus.Engine.check_tool`."""
        return any(spec.name == tool for spec in self.tools)

    @property
    def expected_tokens(self) -> int:
        """What to expect of the prompt in the provider's tokens: the larger of what is counted and of the anchor."""
        return max(self.token_budget.used.total, self.accounting.anchor.tokens if self.accounting.anchor else 0)

    @property
    def compaction_due(self) -> bool:
        """Whether the whole context, before any cut, takes more than 85 % of what is available, or is expected to."""
        expected = self.expected_tokens / self.token_budget.available
        return self._planner is not None and max(self.accounting.full_share, expected) > COMPACT_AT

    def plan(self, trigger: Trigger = "context_limit", share: float = COMPACT_TO) -> CompactionPlan | None:
        """What to summarise so that the context comes down to a share of the room; None if that is not worth it.

        `nexus.Engine.compact` carries it out. None also where a compaction was undone and nothing was said since.
        """
        return self._planner(trigger, share) if self._planner is not None else None

    @property
    def report(self) -> str:
        """What is in, what is out and why, tokens, the cache boundary, as text."""
        return self._renderers.report(self)

    def to_openai(self) -> dict[str, Any]:
        """The keyword arguments of `client.chat.completions.create`."""
        return self._renderers.openai(self)

    def to_responses(self) -> dict[str, Any]:
        """The keyword arguments of `client.responses.create`; nothing in them depends on what a server stored."""
        return self._renderers.responses(self)

    def to_anthropic(self) -> dict[str, Any]:
        """The keyword arguments of `client.messages.create`, with at most four cache marks."""
        return self._renderers.anthropic(self)

    def to_gemini(self) -> dict[str, Any]:
        """The keyword arguments of `client.models.generate_content`."""
        return self._renderers.gemini(self)

    @property
    def body_hash(self) -> str:
        """SHA-256 of the JSON of the request body in the model's own form: what `record` stores and `replay` proves.

        Made from what is kept of the last call's hash, so it costs what is new. Raises TypeError or ValueError where a
        setting of the model has no JSON form.
        """
        return self._renderers.body_hash(self)

    def to_provider(self, wire: ProviderFormat) -> dict[str, Any]:
        """The request body in the form of a family of models, OpenAI's in that of chat completions. Raises BadSetting."""
        made = {"openai": self.to_openai, "anthropic": self.to_anthropic, "gemini": self.to_gemini}.get(wire)
        if made is None:
            raise BadSetting(f"the wire is one of openai, anthropic and gemini, not {wire!r}")
        return made()

    def to_json(self) -> dict[str, Any]:
        """The whole context as plain JSON values, with document 002's names."""
        return self._renderers.as_json(self)

    @property
    def _planner(self) -> Planner | None:
        return self._engine.planner if self._engine is not None else None

    @property
    def _renderers(self) -> Renderers:
        assert self._engine is not None, "an AssembledContext comes from nexus.open(...).assemble(...)"
        return self._engine.renderers


def engine_state(ctx: AssembledContext) -> EngineState | None:
    """Return what the engine attached to a context, None for a context that was built by hand."""
    return ctx._engine  # noqa: SLF001 - the field is private to users, not to the engine  # pyright: ignore[reportPrivateUsage]
