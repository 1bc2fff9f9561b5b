"""Making a recorded call again, from the ledger alone, and proving by its hash that it is the one that was sent.

The history up to the call's head stands in the ledger, with every cut, mark and pin that held there; what stood beside it
was stored once, by its hash (`nexus.sent`). A call runs through the same assembly as when it was made. What came later, an
undo, a compaction, a fork, changes nothing; what is missing is named, and nothing is made up in its place.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.assemble import Materials, assemble_fitted, planned
from nexus.assembled import AssembledContext, Face
from nexus.block import Block, Warned
from nexus.budget.counter import TokenCounter
from nexus.budget.models import Model, resolve
from nexus.budget.tokens import plan
from nexus.difference import Difference, Side, difference
from nexus.environment import Environment
from nexus.errors import CannotReplay, NexusError
from nexus.explain import Explanation, explained
from nexus.fit.cut import Fitted, Strategy
from nexus.fit.view import LARGEST_PART, Reading, View, filled, size_class, view_of
from nexus.fit.window import Window
from nexus.layer import Layer, Trust
from nexus.learn import calibrated_name, factor_of
from nexus.ledger import replay
from nexus.ledger.entries import Cut, Entry
from nexus.ledger.store import LedgerStore
from nexus.ledger.text_rule import from_json
from nexus.message import ATTACHED, Message, Note
from nexus.policy import Withheld
from nexus.profile import Profile
from nexus.profiles import named
from nexus.recorded import RecordedCall, last_of_view
from nexus.render.parts import RENDER_VERSION
from nexus.render.wire.tools import ToolSpec
from nexus.request import Event, Permissions, Request, Routing
from nexus.sent import NoteHead, Settings, sent_of
from nexus.sources import SOURCES, Desk, Source, Surroundings

_blocks = msgspec.json.Decoder(list[Block])
_tools = msgspec.json.Decoder(list[ToolSpec])
_settings = msgspec.json.Decoder(Settings)
_withheld = msgspec.json.Decoder(tuple[Withheld, ...])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kit:
    """What past calls are made again with. What is around, models, strategy and limits matter where something is changed."""

    store: LedgerStore
    counter: TokenCounter
    standing: TokenCounter
    face: Face
    around: Surroundings = dataclasses.field(default_factory=Surroundings)
    models: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    strategy: Strategy = "oldest_first"
    largest_result: int | None = None
    survey: Callable[[], Environment] = Environment


class Change(Struct, frozen=True):
    """What is to be otherwise in a past call: nothing, unless given. `event` takes the place of the recorded one."""

    model: str = ""
    budget: int | None = None
    profile: str = ""
    strategy: Strategy | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A past call made again. `missing` says what it could not be made from, or how it differs; empty: it is proven.

    `fitted` has the window that is shown; `marks` are the path's up to the call, newest first.
    """

    call: RecordedCall
    ctx: AssembledContext
    fitted: Fitted
    marks: tuple[Entry, ...]
    missing: tuple[str, ...] = ()


def replayed(kit: Kit, call: RecordedCall, *, unproven: bool = False) -> Replayed:
    """The call as it was sent, proven by its hash.

    Raises CannotReplay where it cannot be proven, unless `unproven`: then it is as near as the ledger allows, and the
    context's warnings say what is missing.
    """
    past = _Past(kit, call)
    made = past.again()
    missing = [*past.missing]
    wanted = past.sent.body
    if not missing and not wanted:
        missing.append("its body had no JSON form, so that no hash of it was stored")
    if not missing and _hash(made.ctx) != wanted:
        was = past.manifest.get("render")
        why = f" (it was rendered by version {was}, this is {RENDER_VERSION})" if was != RENDER_VERSION else ""
        missing.append(f"its body does not have the hash that was stored when it was sent{why}")
    if missing and not unproven:
        raise CannotReplay(call.label, missing)
    warned = tuple(Warned("nexus:replay", f"not proven: {what}") for what in missing)
    ctx = dataclasses.replace(made.ctx, warnings=(*made.ctx.warnings, *warned))
    return dataclasses.replace(made, ctx=ctx, missing=tuple(missing))


def what_if(kit: Kit, call: RecordedCall, change: Change) -> Replayed:
    """The context that the call's event would get at its place with something changed. Nothing is written.

    Another profile reads the workspace as it is now; all else is as it was. Raises BudgetTooSmall, EmptyEvent,
    UnknownProfile, CannotReplay.
    """
    past = _Past(kit, call)
    made = past.changed(change)
    if past.missing:
        raise CannotReplay(call.label, past.missing)
    return made


def difference_between(kit: Kit, earlier: Replayed, later: Replayed) -> Difference:
    """How a past call's prompt follows that of another one."""
    old, new = (
        Side(made.ctx, made.fitted, {**made.call.row.manifest, "recorded_at": made.call.row.seq}, made.call.label)
        for made in (earlier, later)
    )
    return difference(old, new, kit.standing)


def explained_call(kit: Kit, made: Replayed) -> Explanation:
    """What became of every block, tool and message in a past call."""
    entries = kit.store.entries(made.call.thread, 0, made.ctx.manifest.head)
    return explained(made.ctx, made.fitted, entries, made.marks, kit.standing, made.call.label)


def _hash(ctx: AssembledContext) -> str:
    """The hash of the whole body, made anew."""
    return hashlib.sha256(msgspec.json.encode(ctx.to_wire(ctx.window.wire))).hexdigest()


class _Past:
    """One recorded call and what the ledger has of it; `missing` grows while it is made again."""

    def __init__(self, kit: Kit, call: RecordedCall) -> None:
        self.kit, self.call, self.manifest = kit, call, call.row.manifest
        self.missing: list[str] = []
        try:
            self.sent = sent_of(self.manifest)
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

    def again(self) -> Replayed:
        """The call as it was."""
        model, counter = self.settings.model, self._counter()
        view = View(self.view_name, model.wire, model.name, self._largest(), task=self._task())
        with self.kit.store.snapshot():
            entry = self._entry(self.call.row.seq)
            window = self._window(view, self.sent.made or self._cut_in_force(), counter)
            event, placed = self._event(entry)
            request = self._request(entry, event, Change())
            given = self._materials(view, model, window, request, counter)
            sources = self._sources([*placed, *self._seen(window)])
            marks = self._marks()
        try:
            ctx, fitted = assemble_fitted(
                request, _stored(request.profile), dataclasses.replace(given, sources=sources)
            )
        except NexusError as error:
            raise CannotReplay(self.call.label, (*self.missing, str(error))) from error
        left = tuple(_block(note, "") for note in self.sent.notes if note.state == "left out")
        ctx = dataclasses.replace(ctx, cut=self.sent.made, left_out=left)
        return Replayed(self.call, ctx, fitted, tuple(marks))

    def changed(self, change: Change) -> Replayed:
        """The call with a change, in the view that it then belongs to, with what that view had decided before it."""
        kit, counter = self.kit, self._counter()
        model = resolve(change.model, kit.models) if change.model else self.settings.model
        with kit.store.snapshot():
            entry = self._entry(self.call.row.seq)
            event, placed = self._event(entry)
            own = change.profile in ("", self.manifest.get("profile"))
            event = event if own else replace(event, content=(*_attached(placed), *event.content))
            request = self._request(entry, change.event or event, change)
            available = planned(request, model).available
            strategy = change.strategy or kit.strategy
            decided = (strategy, kit.largest_result, kit.around.config.images.keep_turns)
            view = replace(view_of(request.profile, model, available, counter, *decided), task=self._task())
            earlier = [cut for cut in kit.store.cuts(self.call.thread, view.name) if cut.at_seq < self.head]
            window = self._window(view, earlier[-1] if earlier else None, counter)
            given = self._materials(view, model, window, request, counter)
            sources = self._sources([*placed, *self._seen(window)])
            marks = self._marks()
        own = request.profile == self.manifest.get("profile")
        desk = given.desk if own else dataclasses.replace(given.desk, environment=kit.survey())
        given = dataclasses.replace(given, sources=sources if own else SOURCES, desk=desk)
        ctx, fitted = assemble_fitted(request, _stored(request.profile) if own else named(request.profile), given)
        return Replayed(self.call, ctx, fitted, tuple(marks))

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

    def _counter(self) -> TokenCounter:
        told = self.manifest.get("counter")
        if told != self.kit.counter.name:
            self.missing.append(f"its tokens were counted by {told}, here by {self.kit.counter.name}")
        return self.kit.counter

    def _largest(self) -> int:
        """The limit for results; an earlier version's follows from the window's size class."""
        if "largest" in self.manifest:
            return int(self.manifest["largest"])
        available = self.manifest.get("available") or plan(self.settings.model).available
        return size_class(available) // LARGEST_PART

    def _task(self) -> bool:
        return bool(self.manifest.get("task", True))

    # what stands in the ledger -----------------------------------------------------------------------------------

    def _entry(self, seq: int) -> Entry:
        return next(iter(self.kit.store.entries(self.call.thread, seq - 1, seq)))

    def _entries(self, after: int, until: int | None = None) -> Iterable[Entry]:
        last = self.head if until is None else min(until, self.head)
        return self.kit.store.entries(self.call.thread, after, last)

    def _marks(self) -> list[Entry]:
        """The marks on the path up to the call, newest first: what came later does not matter."""
        return [mark for mark in self.kit.store.marks(self.call.thread) if mark.seq <= self.head]

    def _cut_in_force(self) -> Cut | None:
        number = self.manifest.get("cut", 0)
        found = [cut for cut in self.kit.store.cuts(self.call.thread, self.view_name) if cut.number == number]
        if number and not found:
            self.missing.append(f"cut {number} of its view is not in the ledger")
        return found[0] if found else None

    def _window(self, view: View, cut: Cut | None, counter: TokenCounter) -> Window:
        """The view's window as it was when the path ended where the call began."""
        live = replay.live(self._marks())
        told = str(self.manifest.get("head_hash", ""))
        found = self._entry(self.head).hash.hex() if self.head else told
        if found != told:
            self.missing.append(f"entry {self.head}, after which it was made, is another one than then")
        if (live.mark.seq if live.mark else 0) != self.manifest.get("mark"):
            self.missing.append("the clear or compaction that held is not in the ledger")
        reading = Reading(self._entries, (self.head, bytes.fromhex(told)), live)
        return filled(reading, view, cut, counter, task=view.task)[0]

    def _event(self, entry: Entry) -> tuple[Event, list[Block]]:
        """The event as it was given, and the blocks that stood in its message before the content."""
        said = [row.message for row in entry.rows]
        messages = said[: self.sent.events or next((i for i, m in enumerate(said) if m.role == "assistant"), len(said))]
        if not messages or len(messages) < self.sent.events:
            raise CannotReplay(self.call.label, (f"entry {entry.seq}, which has its event, is lost",))
        if messages[0].role == "tool" or not self.sent.opens:
            return Event(results=tuple(messages)), []
        message = messages[-1]
        heads = [note for note in self.sent.notes if note.state == "placed"]
        count = len(heads) if self.sent.events else _leading_notes(message)
        notes = [part for part in message.parts[:count] if isinstance(part, Note)]
        blocks = [_block(head, note.text) for head, note in zip(heads or map(_head, notes), notes, strict=True)]
        event = Event(message.parts[count:], id=message.id, at_ms=message.at_ms, source=message.source)
        return event, blocks

    def _seen(self, window: Window) -> list[Block]:
        """The blocks that were not in the message because the history showed them; their text stands there."""
        found: list[Block] = []
        for head in self.sent.notes:
            text = ""
            if head.state == "seen":
                text = window.memory.get(head.origin) or self._shown_before(head.origin)
            if text:
                found.append(_block(head, text))
        return found

    def _shown_before(self, origin: str) -> str:
        """The newest memory note of this origin on the path."""
        rows = (row for entry in reversed([*self._entries(0)]) for row in reversed(entry.rows))
        notes = (part for row in rows for part in row.message.parts if isinstance(part, Note))
        return next((note.text for note in notes if note.kind == "memory" and note.origin == origin), "")

    # putting it together -----------------------------------------------------------------------------------------

    def _request(self, entry: Entry, event: Event, change: Change) -> Request:
        body = entry.body
        stored = tuple(tool.definition() for tool in self.tools)
        granted = tuple(map(str, body.get("permissions") or ()))
        return Request(
            event,
            Routing(self.sent.session or self.call.session, body.get("role") or "unified"),
            permissions=Permissions(str(body.get("toolset", "")), granted),
            model=change.model or str(self.manifest.get("model", "")),
            tools=stored if change.tools is None else change.tools,
            model_config=dict(self.settings.config or {}),
            available_tokens=change.budget or self.manifest.get("available") or None,
            profile=change.profile or str(self.manifest.get("profile", "")),
        )

    def _materials(
        self, view: View, model: Model, window: Window, request: Request, counter: TokenCounter
    ) -> Materials:
        store, thread = self.kit.store, self.call.thread
        last = last_of_view(store, thread, view.name, self.head)
        told = calibrated_name(model.name, counter.name)
        same = model.name == self.settings.model.name
        known = float(self.manifest.get("factor", 1))
        parts = (part.thread for part in store.path(thread) if self.call.row.seq <= part.high)
        return Materials(
            desk=Desk(request, dataclasses.replace(self.kit.around, warned=()), request.event.at_ms, ""),
            sources={},
            model=model,
            counter=self.kit.standing,
            factor=known if same else factor_of(model, store.calibration(model.provider, told)),
            window=window,
            mark=replay.live(self._marks()).mark,
            view=view,
            cut_number=window.cut.number + 1 if window.cut else 1,
            instructions=(),
            last_manifest={**last.manifest, "recorded_at": last.seq} if last else None,
            thread=next(parts, thread),
            workspace=str(self._entry(self.call.row.seq).body.get("workspace", "")),
            face=self.kit.face,
            withheld=self.withheld,
        )

    def _sources(self, notes: list[Block]) -> dict[str, Source]:
        return {"blocks": lambda _: (self.blocks, []), "notes": lambda _: (notes, [])}


def _stored(name: str) -> Profile:
    """The profile under its name, with what was stored in the place of its sources."""
    return Profile(name, "", ("blocks",), ("notes",))


def _leading_notes(message: Message) -> int:
    return next((place for place, part in enumerate(message.parts) if not isinstance(part, Note)), len(message.parts))


def _attached(placed: Iterable[Block]) -> tuple[Note, ...]:
    """The attached files among the blocks of a message, as they were shown: they are the user's, whatever the profile."""
    return tuple(Note("moment", block.text, block.origin) for block in placed if block.origin.startswith(ATTACHED))


def _head(note: Note) -> NoteHead:
    """What an earlier version's manifest does not say of a note."""
    memory = note.kind == "memory"
    return NoteHead("placed", "Memory" if memory else "Event", note.kind, note.origin, "user" if memory else "system")


def _block(head: NoteHead, text: str) -> Block:
    return Block(cast("Layer", head.layer), head.name, text, head.origin, "current", cast("Trust", head.trust))
