"""One recorded call, and what the ledger has of it: what it was made from, read back, with a name for what is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from nexus.assembly.fit.cut import Strategy
from nexus.assembly.fit.view import LARGEST_PART, View, size_class
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView
from nexus.assembly.inputs import AssemblyInputs, plan_budget
from nexus.assembly.manifest_store import NoteMetadata, Settings, manifest_of, parse_stored_manifest
from nexus.assembly.record import calibration_factor, calibration_key
from nexus.context import Renderers
from nexus.errors import CannotReplay
from nexus.ledger import replay
from nexus.ledger.recorded_calls import RecordedCall, last_of_view
from nexus.ledger.store import LedgerStore
from nexus.ledger.text_encoding import from_json
from nexus.policy import DeniedTool
from nexus.policy.authorization import AuthorizedRequest
from nexus.profiles.builtin import find_profile
from nexus.tokens.budget import compute_budget
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ImagePrice
from nexus.tokens.model import Model, resolve
from nexus.types.block import Block, Layer, Trust
from nexus.types.history import PLAIN, HistoryHeader, PreviousTurns
from nexus.types.ledger_entries import Cut, Entry
from nexus.types.message import Message, Note
from nexus.types.profile import STORED_NOTES, MessageFormatName, Profile
from nexus.types.request import Event, Identity, Permissions, Request, Routing
from nexus.types.tool_definition import ToolSpec
from nexus.workspace.environment.probe import EnvironmentSnapshot
from nexus.workspace.source_context import Source, SourceContext, WorkspaceContext
from nexus.workspace.sources.registry import source_functions

_blocks = msgspec.json.Decoder(list[Block])
_tools = msgspec.json.Decoder(list[ToolSpec])
_settings = msgspec.json.Decoder(Settings)
_withheld = msgspec.json.Decoder(tuple[DeniedTool, ...])
T = TypeVar("T")

IN_FULL, SKILL_FILE = "skill ", "/SKILL.md"
"""How the block of a skill in full is named, and its origin ends (`nexus.workspace.sources.skills.active_skills`)."""


@dataclass(frozen=True, slots=True)
class ReplayDeps:
    """What past calls are made again with. All but the first four matters where something is changed.

    `admit` is what a call's request has to pass, `resolved` the profile of a name with all sources that it could use.
    """

    store: LedgerStore
    counter: TokenCounter
    stable_counter: TokenCounter
    renderers: Renderers
    workspace_context: WorkspaceContext = dataclasses.field(default_factory=WorkspaceContext)
    models: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    strategy: Strategy = "oldest_first"
    max_tool_result_tokens: int | None = None
    survey: Callable[[], EnvironmentSnapshot] = EnvironmentSnapshot
    authorize: Callable[[Request], AuthorizedRequest] = AuthorizedRequest
    resolved: Callable[[str], tuple[Profile, Mapping[str, Source]]] = lambda name: (
        find_profile(name),
        source_functions(),
    )


class RecordedCallInputs:
    """One recorded call and what the ledger has of it. State over time: `missing` grows while it is made again."""

    def __init__(self, kit: ReplayDeps, call: RecordedCall) -> None:
        self.kit, self.call, self.manifest = kit, call, call.row.manifest
        self.missing: list[str] = []
        self.earlier = PreviousTurns()
        try:
            self.sent = parse_stored_manifest(self.manifest)
            self.head = msgspec.convert(self.manifest["head"], int)
            self.view_name = msgspec.convert(self.manifest["view"], str)
        except (KeyError, msgspec.ValidationError) as error:
            raise CannotReplay(call.label, (f"its manifest cannot be read ({error})",)) from error
        if not self.sent.inputs:
            self.missing.append("an earlier version recorded it, which did not store what was sent beside the history")
        self.settings = self._settings()
        self.blocks = self._input("blocks", _blocks) or []
        self.tools = self._input("tools", _tools) or []
        self.withheld = self._input("withheld", _withheld) or ()

    # what stood beside the history -------------------------------------------------------------------------------

    def _input(self, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """What is stored by the hash that the manifest names; None, and named as missing, if it is not there."""
        sha256 = self.sent.inputs.get(name)
        if sha256 is None:
            return None
        data = self.kit.store.blob(sha256)
        if data is None:
            self.missing.append(f"its {name} ({sha256[:12]}) are not in the ledger")
            return None
        return from_json(data.decode(), decoder)

    def _settings(self) -> Settings:
        found = self._input("settings", _settings)
        if found is None:
            return Settings(resolve(str(self.manifest.get("model", "")), self.kit.models), {})
        if found.config is None:
            self.missing.append("a setting of its model had no JSON form and was not stored")
        return found

    def counter(self) -> TokenCounter:
        """Who counts: as then, or that is missing."""
        told = self.manifest.get("counter")
        if told != self.kit.counter.name:
            self.missing.append(f"its tokens were counted by {told}, here by {self.kit.counter.name}")
        return self.kit.counter

    def largest(self) -> int:
        """The limit for results; an earlier version's follows from the window's size class."""
        if "largest" in self.manifest:
            return int(self.manifest["largest"])
        available = self.manifest.get("available") or compute_budget(self.settings.model).available
        return size_class(available) // LARGEST_PART

    def factor(self, model: Model) -> float:
        """The factor of then for the model of then, for another one that of now."""
        if model.name == self.settings.model.name:
            return float(self.manifest.get("factor", 1))
        told = calibration_key(model.name, self.kit.counter.name)
        return calibration_factor(model, self.kit.store.calibration(model.provider, told))

    def images(self) -> ImagePrice:
        """How images were counted; earlier versions knew no model's own price."""
        return msgspec.convert(self.manifest.get("images", {}), ImagePrice)

    def form(self) -> MessageFormatName:
        """How the conversation was shown."""
        return msgspec.convert(self.manifest.get("form", "roles"), MessageFormatName)

    def opens(self) -> HistoryHeader:
        """How the history opened."""
        begun, heading = (str(self.manifest.get(name) or "") for name in ("begun", "heading"))
        return HistoryHeader(begun, heading or PLAIN.summary_heading)

    def task(self) -> bool:
        """Whether the session's first task stayed."""
        return bool(self.manifest.get("task", True))

    # what stands in the ledger -----------------------------------------------------------------------------------

    def entry(self, seq: int) -> Entry:
        """One entry of the path."""
        return next(iter(self.kit.store.entries(self.call.thread, seq - 1, seq)))

    def _entries(self, after: int, until: int | None = None) -> Iterable[Entry]:
        last = self.head if until is None else min(until, self.head)
        return self.kit.store.entries(self.call.thread, after, last)

    def marks(self) -> list[Entry]:
        """The marks on the path up to the call, newest first: what came later does not matter."""
        return [mark for mark in self.kit.store.marks(self.call.thread) if mark.seq <= self.head]

    def cut_in_force(self) -> Cut | None:
        """The cut that held, of its view."""
        number = self.manifest.get("cut", 0)
        found = [cut for cut in self.kit.store.cuts(self.call.thread, self.view_name) if cut.number == number]
        if number and not found:
            self.missing.append(f"cut {number} of its view is not in the ledger")
        return found[-1] if found else None  # a fork may have made its own of that number: it comes after its parent's

    def window(self, view: View, cut: Cut | None, counter: TokenCounter) -> Window:
        """The view's window as it was when the path ended where the call began."""
        live = replay.live_checkpoints(self.marks())
        told = str(self.manifest.get("head_hash", ""))
        found = self.entry(self.head).hash.hex() if self.head else told
        if found != told:
            self.missing.append(f"entry {self.head}, after which it was made, is another one than then")
        if (live.mark.seq if live.mark else 0) != self.manifest.get("mark"):
            self.missing.append("the clear or compaction that held is not in the ledger")
        reading = LedgerView(self._entries, (self.head, bytes.fromhex(told)), live)
        filled = view.message_format.fill_window(reading, view, cut, counter, starts_turn=self.sent.opens)
        self.earlier = filled.previous_turns
        return filled.window

    def event(self, entry: Entry) -> tuple[Event, list[Block]]:
        """The event as it was given, and the blocks that stood in its message before the content."""
        said = [row.message for row in entry.rows]
        messages = said[: self.sent.events or next((i for i, m in enumerate(said) if m.role == "assistant"), len(said))]
        if not messages or len(messages) < self.sent.events:
            raise CannotReplay(self.call.label, (f"entry {entry.seq}, which has its event, is lost",))
        message = messages[-1]
        heads = [note for note in self.sent.notes if note.state == "placed"]
        noted = bool(heads) and message.role == "user"
        if (messages[0].role == "tool" or not self.sent.opens) and not noted:
            return Event(results=tuple(messages)), []
        count = len(heads) if self.sent.events else _leading_notes(message)
        notes = [part for part in message.parts[:count] if isinstance(part, Note)]
        blocks = [block_of(head, note.text) for head, note in zip(heads or map(_head, notes), notes, strict=True)]
        results, content = tuple(messages[:-1]), message.parts[count:]
        event = Event(content, results, id=message.id, at_ms=message.at_ms, source=message.source)
        return event, blocks

    def already_in_history(self, window: Window) -> list[Block]:
        """The blocks that were not in the message because the history showed them; their text stands there."""
        found: list[Block] = []
        for head in self.sent.notes:
            text = ""
            if head.state == "seen":
                text = window.memory.get(head.source) or self._shown_before(head.source)
            if text:
                found.append(block_of(head, text))
        return found

    def _shown_before(self, origin: str) -> str:
        """The newest memory note of this origin on the path."""
        rows = (row for entry in reversed([*self._entries(0)]) for row in reversed(entry.rows))
        notes = (part for row in rows for part in row.message.parts if isinstance(part, Note))
        return next((note.text for note in notes if note.kind == "memory" and note.origin == origin), "")

    def request(self, entry: Entry, event: Event) -> Request:
        """What was asked, as it was granted; what was known of the user, and a worker's task, stand in its blocks alone."""
        body, told = entry.body, self.manifest
        granted = tuple(map(str, body.get("permissions") or ()))
        return Request(
            event,
            Routing(self.sent.session or self.call.session, body.get("role") or "unified"),
            Identity(str(body.get("principal", "")), str(told.get("persona", ""))),
            Permissions(str(body.get("toolset", "")), granted),
            model=str(told.get("model", "")),
            tools=tuple(tool.definition() for tool in self.tools),
            model_config=dict(self.settings.config or {}),
            available_tokens=told.get("available") or None,
            profile=str(told.get("profile", "")),
        )

    def named_skills(self) -> tuple[str, ...]:
        """The skills that stood in the system slot in full."""
        names = (block.name.partition(IN_FULL) for block in self.blocks if block.source.endswith(SKILL_FILE))
        return tuple(name for before, found, name in names if found and not before)

    def materials(self, view: View, model: Model, window: Window, request: Request) -> AssemblyInputs:
        """What assembly needs, all but the sources."""
        store, thread = self.kit.store, self.call.thread
        last = last_of_view(store, thread, view.name, self.head)
        parts = (part.thread for part in store.path(thread) if self.call.row.seq <= part.high)
        return AssemblyInputs(
            source_context=SourceContext(
                request,
                dataclasses.replace(self.kit.workspace_context, warnings=()),
                request.event.at_ms,
                "",
                previous_turns=self.earlier,
            ),
            sources={},
            model=model,
            budget=plan_budget(request, model),
            counter=self.kit.stable_counter,
            factor=self.factor(model),
            window=window,
            mark=replay.live_checkpoints(self.marks()).mark,
            view=view,
            cut_number=window.cut.number + 1 if window.cut else 1,
            instructions=(),
            last_manifest=manifest_of(last),
            thread=next(parts, thread),
            workspace=str(self.entry(self.call.row.seq).body.get("workspace", "")),
            renderers=self.kit.renderers,
            denied_tools=self.withheld,
        )

    def sources(self, notes: list[Block]) -> dict[str, Source]:
        """The blocks of then, in the place of the sources that they are from."""
        system, ahead = ([block for block in self.blocks if block.slot == slot] for slot in ("system", "ahead"))
        return {"blocks": lambda _: (system, []), "ahead": lambda _: (ahead, []), STORED_NOTES: lambda _: (notes, [])}


def _leading_notes(message: Message) -> int:
    return next((place for place, part in enumerate(message.parts) if not isinstance(part, Note)), len(message.parts))


def _head(note: Note) -> NoteMetadata:
    """What an earlier version's manifest does not say of a note."""
    memory = note.kind == "memory"
    return NoteMetadata(
        "placed", "Memory" if memory else "Event", note.kind, note.origin, "user" if memory else "system"
    )


def block_of(head: NoteMetadata, text: str) -> Block:
    """A block of the current message, from what is stored of it and its text."""
    return Block(cast("Layer", head.layer), head.name, text, head.source, "current", cast("Trust", head.trust))
