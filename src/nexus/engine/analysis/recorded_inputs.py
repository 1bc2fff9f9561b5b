"""Inputs of a recorded call, reconstructed from the ledger. Missing parts are listed by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from nexus.assembly.fit.view import LARGEST_PART, size_class
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView
from nexus.assembly.formats.protocol import View
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.gather import SYSTEM_SOURCE
from nexus.assembly.inputs import AssemblyInputs, LastCall, MirroredList, StoredSession, plan_budget
from nexus.assembly.manifest_store import NoteMetadata, StoredSettings, manifest_of, parse_stored_manifest
from nexus.assembly.profiles.builtin import find_profile
from nexus.assembly.record import calibration_factor, calibration_key, provisional_factor
from nexus.context import Renderers
from nexus.errors import CannotReplay
from nexus.ledger import replay
from nexus.ledger.recorded_calls import RecordedCall, last_of_view
from nexus.ledger.store import LedgerStore
from nexus.ledger.text_encoding import from_json
from nexus.policy import DeniedTool
from nexus.policy.authorization import AuthorizedRequest
from nexus.tokens.budget import compute_budget
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ImagePrice
from nexus.tokens.model import Model, resolve
from nexus.tokens.scale import TokenScale
from nexus.types.block import PREAMBLE, Block, Layer, Trust
from nexus.types.decoding import decodable
from nexus.types.history import PLAIN, HistoryHeader, PreviousTurns
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Message, Note
from nexus.types.profile import STORED_NOTES, MessageFormatName, Profile
from nexus.types.request import Event, Request
from nexus.types.settings import Settings
from nexus.types.tool_definition import ToolSpec
from nexus.workspace.environment.machine import EnvironmentSnapshot
from nexus.workspace.source_context import EngineWorkspace, Source, SourceContext
from nexus.workspace.sources.registry import source_functions

T = TypeVar("T")

SKILL_NAME_PREFIX = "skill "
SKILL_FILE_SUFFIX = "/SKILL.md"
"""Beginning of the name, and end of the source, of a block with skill instructions (`workspace.sources.skills`)."""


@dataclass(frozen=True, slots=True)
class ReplayDeps:
    """Dependencies for replay. All but the first four are used only by `what_if`."""

    store: LedgerStore
    counter: TokenCounter
    stable_counter: TokenCounter
    """The counter with a cache of texts."""
    renderers: Renderers
    workspace_context: EngineWorkspace = dataclasses.field(default_factory=EngineWorkspace)
    models: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    settings: Settings = dataclasses.field(default_factory=Settings)
    """The engine's settings, with which a recorded call had those that the ledger does not have."""
    survey: Callable[[], EnvironmentSnapshot] = EnvironmentSnapshot
    authorize: Callable[[Request], AuthorizedRequest] = AuthorizedRequest
    """Applies today's policies and plugins to a changed request."""
    resolve_profile: Callable[[str], tuple[Profile, Mapping[str, Source]]] = lambda name: (
        find_profile(name),
        source_functions(),
    )
    """Returns the profile of a name, and all sources that it may use."""
    load_plugins: Callable[[], object] = lambda: None
    """Loads plugins, one of which may add the message format of a recorded call."""


class RecordedCallInputs:
    """Inputs of one recorded call. `missing` grows as methods find parts that the ledger does not contain."""

    def __init__(self, deps: ReplayDeps, call: RecordedCall) -> None:
        self.deps = deps
        self.call = call
        self.manifest = call.row.manifest
        self.missing: list[str] = []
        self.previous_turns = PreviousTurns()
        try:
            self.stored = parse_stored_manifest(self.manifest)
            self.head = msgspec.convert(self.manifest["head"], int)
            self.view_name = msgspec.convert(self.manifest["view"], str)
        except (KeyError, msgspec.ValidationError) as error:
            raise CannotReplay(call.label, (f"manifest unreadable: {error}",)) from error
        if not self.stored.blob_hashes:
            self.missing.append("inputs not stored: recorded by a version that stored the history only")
        settings = self._read_input("settings", msgspec.json.Decoder(decodable(StoredSettings)))
        if settings is None:
            settings = StoredSettings(resolve(str(self.manifest.get("model", "")), deps.models), {})
        elif settings.config is None:
            self.missing.append("model settings not stored: one had no JSON form")
        self.settings = settings
        self.blocks = self._read_input("blocks", msgspec.json.Decoder(decodable(list[Block]))) or []
        self.tools = self._read_input("tools", msgspec.json.Decoder(decodable(list[ToolSpec]))) or []
        self.denied_tools = self._read_input("withheld", msgspec.json.Decoder(decodable(tuple[DeniedTool, ...]))) or ()

    def _read_input(self, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """Return an input that the manifest names by hash; None if it names none or the ledger does not contain it."""
        sha256 = self.stored.blob_hashes.get(name)
        if sha256 is None:
            return None
        data = self.deps.store.blob(sha256)
        if data is None:
            self.missing.append(f"{name} ({sha256[:12]}) not in the ledger")
            return None
        return from_json(data.decode(), decoder)

    def counter(self) -> TokenCounter:
        """Return the counter; one other than the recorded is listed as missing."""
        name = self.manifest.get("counter")
        if name != self.deps.counter.name:
            self.missing.append(f"token counter {name} not available: counted by {self.deps.counter.name}")
        return self.deps.counter

    def max_tool_result_tokens(self) -> int:
        """Return the limit for tool results; for earlier versions it follows from the window's size class."""
        if "largest" in self.manifest:
            return int(self.manifest["largest"])
        available = self.manifest.get("available") or compute_budget(self.settings.model).available
        return size_class(available) // LARGEST_PART

    def token_factor(self, model: Model) -> tuple[float, float | None]:
        """Return the recorded token factor for the recorded model, and today's provisional one for another.

        The second value is the correction of the factor by content, None if the first is final.
        """
        if model.name == self.settings.model.name:
            return float(self.manifest.get("factor", 1)), None
        key = calibration_key(model, self.deps.counter.name)
        return provisional_factor(model, calibration_factor(model, self.deps.store.calibration(model.provider, key)))

    def image_price(self) -> ImagePrice:
        """Return how images were counted; earlier versions stored no price of the model."""
        return msgspec.convert(self.manifest.get("images", {}), decodable(ImagePrice))

    def message_format(self) -> MessageFormatName:
        """Return the format in which the conversation was shown. Raises CannotReplay if nothing here knows it."""
        name = str(self.manifest.get("form", "roles"))
        if name not in FORMATS:
            self.deps.load_plugins()
        if name not in FORMATS:
            advice = "install the plugin that adds it, or pass it: nexus.open(plugins=[…])"
            raise CannotReplay(self.call.label, (f"message format {name!r} unknown ({advice})",))
        return name

    def history_header(self) -> HistoryHeader:
        """Return the header of the history."""
        started, heading = (str(self.manifest.get(name) or "") for name in ("begun", "heading"))
        return HistoryHeader(started, heading or PLAIN.summary_heading)

    def entry(self, seq: int) -> Entry:
        """Return one entry of the path."""
        return next(iter(self.deps.store.entries(self.call.thread, seq - 1, seq)))

    def history_entries(self, after: int, until: int | None = None) -> Iterable[Entry]:
        """Return the path's entries `after < seq <= until` up to the call's head, without those of the event."""
        last = self.head if until is None else min(until, self.head)
        entries = self.deps.store.entries(self.call.thread, after, last)
        event_seqs = self.stored.event_seqs
        if event_seqs:
            return (entry for entry in entries if entry.seq not in event_seqs)
        return entries

    def checkpoints(self) -> list[Entry]:
        """Return the checkpoints on the path up to the call, newest first. Later ones do not change a past call."""
        stored = self.deps.store.checkpoints(self.call.thread, self.head)
        return [*stored, *replay.pin_entries(self.list_pins())]

    def list_pins(self) -> tuple[MessageRef, ...]:
        """Return the pins that the caller of a mirrored list passed with the call."""
        return msgspec.convert(self.manifest.get("list_pins", ()), decodable(tuple[MessageRef, ...]))

    def cut_in_force(self) -> Cut | None:
        """Return the cut that the call's view applied."""
        number = self.manifest.get("cut", 0)
        cuts = [cut for cut in self.deps.store.cuts(self.call.thread, self.view_name) if cut.number == number]
        if number and not cuts:
            self.missing.append(f"cut {number} of view {self.view_name} not in the ledger")
        if cuts:
            return cuts[-1]
        return None  # a fork may repeat its parent's number: its own cut comes later

    def window(self, view: View, cut: Cut | None, counter: TokenCounter) -> Window:
        """Return the view's window as it was at the head from which the call began."""
        live = replay.live_checkpoints(self.checkpoints())
        expected = str(self.manifest.get("head_hash", ""))
        head_hash = expected
        if self.head:
            head_hash = self.entry(self.head).hash.hex()
        if head_hash != expected:
            self.missing.append(f"entry {self.head} (the call's head) differs from the recorded one")
        if (live.checkpoint.seq if live.checkpoint else 0) != self.manifest.get("mark"):
            self.missing.append("the clear or compaction in force is not in the ledger")
        ledger_view = LedgerView(self.history_entries, (self.head, bytes.fromhex(expected)), live)
        filled = view.message_format.fill_window(ledger_view, view, cut, counter, starts_turn=self.stored.starts_turn)
        self.previous_turns = filled.previous_turns
        return filled.window

    def rows(self, entry: Entry) -> list[StoredMessage]:
        """Return the rows of the event, where it was stored before the call, and those of the call's entry."""
        return [*(row for seq in self.stored.event_seqs for row in self.entry(seq).rows), *entry.rows]

    def event(self, entry: Entry) -> tuple[Event, list[Block]]:
        """Return the event as the caller passed it, and the blocks that preceded its content in the message."""
        messages = [row.message for row in self.rows(entry)]
        first_reply = next((i for i, message in enumerate(messages) if message.role == "assistant"), len(messages))
        messages = messages[: self.stored.event_messages or first_reply]
        if not messages or len(messages) < self.stored.event_messages:
            raise CannotReplay(self.call.label, (f"entry {entry.seq} (the event) not in the ledger",))
        message = messages[-1]
        metadata = [note for note in self.stored.notes if note.state == "placed"]
        has_notes = bool(metadata) and message.role == "user"
        is_results = messages[0].role == "tool" or not self.stored.starts_turn
        if message.role != "user" or (is_results and not has_notes):
            return Event(results=tuple(messages)), []
        count = len(metadata)
        if not self.stored.event_messages:
            count = _count_leading_notes(message)
        notes = [part for part in message.parts[:count] if isinstance(part, Note)]
        metadata = metadata or [_metadata_of(note) for note in notes]
        blocks = [stored_block(item, note.text) for item, note in zip(metadata, notes, strict=True)]
        results = tuple(messages[:-1])
        content = message.parts[count:]
        event = Event(
            content, results, id=message.id, at_ms=message.at_ms, source=message.source, received=message.received
        )
        return event, blocks

    def already_in_history(self, window: Window) -> list[Block]:
        """Return the blocks that the message did not repeat because the history contained them."""
        blocks: list[Block] = []
        for item in (note for note in self.stored.notes if note.state == "seen"):
            text = window.memory.get(item.source, "")
            if not text:
                # The note is outside the window: it is the newest one of that source on the path.
                rows = (row for entry in reversed([*self.history_entries(0)]) for row in reversed(entry.rows))
                notes = (part for row in rows for part in row.message.parts if isinstance(part, Note))
                text = next((note.text for note in notes if (note.kind, note.origin) == ("memory", item.source)), "")
            if text:
                blocks.append(stored_block(item, text))
        return blocks

    def request(self, entry: Entry, event: Event) -> Request:
        """Return the request as it was granted. The user's profile and a worker's task are in its blocks only."""
        body = entry.body
        manifest = self.manifest
        engine = self.deps.settings
        settings = Settings(
            timezone=engine.timezone,
            run_mode=engine.run_mode,
            clock=engine.clock,
            role=body.get("role") or "unified",
            principal=str(body.get("principal", "")),
            persona=str(manifest.get("persona", "")),
            toolset=str(body.get("toolset", "")),
            permissions=tuple(map(str, body.get("permissions") or ())),
            model=str(manifest.get("model", "")),
            model_config=dict(self.settings.config or {}),
            budget=manifest.get("available") or None,
            profile=str(manifest.get("profile", "")),
        )
        tools = tuple(tool.definition() for tool in self.tools)
        return Request(event, self.stored.session or self.call.session, settings, tools)

    def active_skills(self) -> tuple[str, ...]:
        """Return the skills whose instructions were in the system slot."""
        names = (block.name for block in self.blocks if block.source.endswith(SKILL_FILE_SUFFIX))
        return tuple(name.removeprefix(SKILL_NAME_PREFIX) for name in names if name.startswith(SKILL_NAME_PREFIX))

    def system_text(self) -> str:
        """Return the application's own system prompt."""
        return next((block.text for block in self.blocks if block.source == SYSTEM_SOURCE), "")

    def assembly_inputs(self, view: View, model: Model, window: Window, request: Request) -> AssemblyInputs:
        """Return the inputs of assembly without the sources."""
        store = self.deps.store
        thread = self.call.thread
        last = last_of_view(store, thread, view.name, self.head)
        factor, correction = self.token_factor(model)
        parts = (part.thread for part in store.path(thread) if self.call.row.seq <= part.high)
        return AssemblyInputs(
            source_context=SourceContext(
                request,
                dataclasses.replace(self.deps.workspace_context, warnings=()),
                request.event.at_ms,
                "",
                previous_turns=self.previous_turns,
            ),
            sources={},
            scale=TokenScale(
                model,
                plan_budget(request, model),
                self.deps.stable_counter,
                factor,
                float(self.manifest.get("content", 1)),
                correction,
            ),
            view=view,
            window=window,
            cut_number=window.cut.number + 1 if window.cut else 1,
            session=StoredSession(next(parts, thread), mark=replay.live_checkpoints(self.checkpoints()).checkpoint),
            last=LastCall(manifest_of(last)),
            workspace=str(self.entry(self.call.row.seq).body.get("workspace", "")),
            renderers=self.deps.renderers,
            denied_tools=self.denied_tools,
            mirrored=MirroredList(
                None,
                self.list_pins(),
                msgspec.convert(self.manifest.get("system_parts", ()), tuple[tuple[int, int], ...]),
                msgspec.convert(self.manifest.get("system_names", ()), tuple[tuple[int, int, str], ...]),
            ),
        )

    def sources(self, notes: list[Block]) -> dict[str, Source]:
        """Return sources that yield the stored blocks; `stored_profile` of `analysis.replay` places them."""
        system, preamble = ([block for block in self.blocks if block.slot == slot] for slot in ("system", PREAMBLE))
        return {
            "blocks": lambda _: (system, []),
            "preamble": lambda _: (preamble, []),
            STORED_NOTES: lambda _: (notes, []),
        }


def stored_block(metadata: NoteMetadata, text: str) -> Block:
    """Return a block of the current message from its stored metadata and its text."""
    layer = cast("Layer", metadata.layer)
    trust = cast("Trust", metadata.trust)
    return Block(layer, metadata.name, text, metadata.source, "current", trust)


def _metadata_of(note: Note) -> NoteMetadata:
    """Return the metadata of a note, of which earlier versions stored none: its kind tells its layer."""
    if note.kind == "memory":
        return NoteMetadata("placed", "Memory", note.kind, note.origin, "user")
    return NoteMetadata("placed", "Event", note.kind, note.origin, "system")


def _count_leading_notes(message: Message) -> int:
    """Return how many notes precede a message's content."""
    for number, part in enumerate(message.parts):
        if not isinstance(part, Note):
            return number
    return len(message.parts)
