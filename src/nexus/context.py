"""The assembled context: what one call shows the model, and everything that explains it (document 002).

It is the contract between assembly, the agent engine and the ledger. It is a value: reading it changes nothing, and a
context that is never recorded leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.errors import BadSetting
from nexus.policy import Withheld
from nexus.tokens.anchor import Anchor
from nexus.tokens.budget import TokenBudget
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.model import Model
from nexus.types.block import Block, Warned
from nexus.types.compaction_plan import COMPACT_AT, COMPACT_TO, CompactionPlan, Trigger
from nexus.types.history import History
from nexus.types.ledger_entries import Cut, Place
from nexus.types.message import Message, Wire
from nexus.types.profile import Form
from nexus.types.repair_report import RepairReport
from nexus.types.request import AgentRole, Identity, Request, Routing


class Manifest(Struct, frozen=True):
    """What was sent, in a size that does not grow with the history: hashes, the range of the ledger, versions.

    `blocks` maps a system block's origin to its hash; `head` and `head_hash` are the ledger's end; `first` the place of
    the first message shown; `supplied` counts results that the event lacked; `mark` the seq of the compaction or clear in force; `cut` the number of the view's cut; `pins` the places of pinned groups that are shown though they lie before `first`.
    `base` is the base count of the whole prompt, and `factor` the model's tokens per base token. `largest` is the most
    base tokens that one result of a tool is shown in (0: no limit), `task` whether the session's first task stays;
    `pin_kinds` says of each pinned group before `first` why it stays, which decides where it stands and how long it is.
    `persona` is the one that answered: a worker that this session spawns inherits it. `images` says how images were counted.
    `ahead` maps the blocks that are messages to their hashes, `form` is how the conversation is shown, `entries` how many
    earlier entries those blocks tell of.
    `marks` is the version of the marks that its text cannot write (`nexus.text.frames`).
    `begun` is what the first message says of the session's start, and `heading` what stands before a summary, where the
    profile has them.
    """

    id: str
    view: str
    profile: str
    model: str
    system: str
    blocks: dict[str, str]
    tools: str
    head: int
    head_hash: str
    first: tuple[int, int]
    mark: int
    cut: int
    config: str
    supplied: int
    current: str
    counter: str
    factor: float
    available: int
    render: int
    pins: tuple[tuple[int, int, int], ...] = ()
    base: int = 0
    largest: int = 0
    task: bool = True
    pin_kinds: tuple[str, ...] = ()
    persona: str = ""
    images: ImagePrice = ANY_MODEL
    ahead: dict[str, str] = {}
    form: Form = "roles"
    entries: int = 0
    begun: str = ""
    heading: str = ""
    marks: int = 0


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


class Item(Struct, frozen=True):
    """One line of the account: a block, the history or the current message, with its provider tokens."""

    layer: str
    slot: str
    name: str
    origin: str
    tokens: int
    trust: str = ""
    messages: int = 0


Planner: TypeAlias = Callable[[Trigger, float], CompactionPlan | None]
"""Makes the plan of a compaction for a reason and a share of the room to come down to."""


@dataclass(frozen=True, slots=True)
class Face:
    """How a context is shown: by provider, as text, as a report. Passed in, so that values know no provider."""

    openai: Callable[[AssembledContext], dict[str, Any]]
    anthropic: Callable[[AssembledContext], dict[str, Any]]
    gemini: Callable[[AssembledContext], dict[str, Any]]
    responses: Callable[[AssembledContext], dict[str, Any]]
    report: Callable[[AssembledContext], str]
    as_json: Callable[[AssembledContext], dict[str, Any]]
    body_hash: Callable[[AssembledContext], str]


@dataclass(frozen=True, slots=True)
class AssembledContext:
    """Everything for one call. `current` is the event as shown: one user message, or the results of tools.

    `event` is the same as it will be stored; `window` the facts of the model; `items` the account of all tokens.
    `full_share` is what everything would take of the room if nothing were cut. `kept` is the engine's: what a cut left,
    so that the next call need not read it again.
    `anchor` is what the provider reported for the last call, and what was added since; None if that says nothing here.
    `seen` are blocks that the history shows already, `left_out` those that had no room: neither is in the message.
    `withheld` are the tools that were given and are not offered, with the reasons; `given` the definitions of the others,
    as they were given. `routing` and `identity` are the request's, as they were granted.
    `request` is what it was assembled for; None where it was read from a file. `context_json` is document 002's record of
    what the system prompt was made of (`nexus.types.context_record`). `told` are the places of earlier messages that a block tells of.
    """

    system_prompt: str
    history: History
    current: tuple[Message, ...]
    event: tuple[Message, ...]
    tools: tuple[Any, ...]
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
    window: Model
    blocks: tuple[Block, ...]
    items: tuple[Item, ...]
    cut: Cut | None
    manifest: Manifest
    prefix: PrefixReport
    opens_turn: bool
    warnings: tuple[Warned, ...] = ()
    repairs: RepairReport = field(default_factory=RepairReport)
    anchor: Anchor | None = None
    full_share: float = 0.0
    planner: Planner | None = field(default=None, repr=False, compare=False)
    kept: object = field(default=None, repr=False, compare=False)
    seen: tuple[Block, ...] = ()
    left_out: tuple[Block, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    given: tuple[dict[str, Any], ...] = ()
    routing: Routing = field(default_factory=Routing)
    identity: Identity = field(default_factory=Identity)
    told: frozenset[Place] = frozenset()
    context_json: dict[str, Any] = field(default_factory=dict[str, Any])
    face: Face | None = field(default=None, repr=False, compare=False)
    request: Request | None = field(default=None, repr=False, compare=False)

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
        return max(self.token_budget.used.total, self.anchor.tokens if self.anchor else 0)

    @property
    def compaction_due(self) -> bool:
        """Whether the whole context, before any cut, takes more than 85 % of what is available, or is expected to."""
        expected = self.expected_tokens / self.token_budget.available
        return self.planner is not None and max(self.full_share, expected) > COMPACT_AT

    def plan(self, trigger: Trigger = "context_limit", share: float = COMPACT_TO) -> CompactionPlan | None:
        """What to summarise so that the context comes down to a share of the room; None if that is not worth it.

        `nexus.Engine.compact` carries it out. None also where a compaction was undone and nothing was said since.
        """
        return self.planner(trigger, share) if self.planner is not None else None

    @property
    def report(self) -> str:
        """What is in, what is out and why, tokens, the cache boundary, as text."""
        return self._face.report(self)

    def to_openai(self) -> dict[str, Any]:
        """The keyword arguments of `client.chat.completions.create`."""
        return self._face.openai(self)

    def to_responses(self) -> dict[str, Any]:
        """The keyword arguments of `client.responses.create`; nothing in them depends on what a server stored."""
        return self._face.responses(self)

    def to_anthropic(self) -> dict[str, Any]:
        """The keyword arguments of `client.messages.create`, with at most four cache marks."""
        return self._face.anthropic(self)

    def to_gemini(self) -> dict[str, Any]:
        """The keyword arguments of `client.models.generate_content`."""
        return self._face.gemini(self)

    @property
    def body_hash(self) -> str:
        """SHA-256 of the JSON of the request body in the model's own form: what `record` stores and `replay` proves.

        Made from what is kept of the last call's hash, so it costs what is new. Raises TypeError or ValueError where a
        setting of the model has no JSON form.
        """
        return self._face.body_hash(self)

    def to_wire(self, wire: Wire) -> dict[str, Any]:
        """The request body in the form of a family of models, OpenAI's in that of chat completions. Raises BadSetting."""
        made = {"openai": self.to_openai, "anthropic": self.to_anthropic, "gemini": self.to_gemini}.get(wire)
        if made is None:
            raise BadSetting(f"the wire is one of openai, anthropic and gemini, not {wire!r}")
        return made()

    def to_json(self) -> dict[str, Any]:
        """The whole context as plain JSON values, with document 002's names."""
        return self._face.as_json(self)

    @property
    def _face(self) -> Face:
        assert self.face is not None, "an AssembledContext comes from nexus.open(...).assemble(...)"
        return self.face
