"""Making a recorded call again, from the ledger alone, and proving by its hash that it is the one that was sent.

The history up to the call's head stands in the ledger, with every cut, mark and pin that held there; what stood beside it
was stored once, by its hash (`nexus.assembly.manifest_store`). A call runs through the same assembly as when it was made. What came later, an
undo, a compaction, a fork, changes nothing; what is missing is named, and nothing is made up in its place.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.analysis.diff import Difference, Side, difference
from nexus.analysis.explain import Explanation, explained
from nexus.analysis.recorded_inputs import Kit, Past, block_of
from nexus.assembly.assemble import assemble_fitted, planned
from nexus.assembly.continuity import opens_of
from nexus.assembly.fit.cut import Fitted, Strategy
from nexus.assembly.fit.view import View, view_of
from nexus.assembly.manifest_store import as_noted, as_told
from nexus.context import AssembledContext
from nexus.errors import CannotReplay, NexusError
from nexus.ledger import replay
from nexus.ledger.recorded_calls import RecordedCall
from nexus.policy.authorization import Admitted
from nexus.text.frames import MARKS_VERSION
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.image_price import price_of
from nexus.tokens.model import resolve
from nexus.types.block import Block, Warned
from nexus.types.history import Opens
from nexus.types.ledger_entries import Entry
from nexus.types.message import ATTACHED, Note
from nexus.types.profile import STORED_NOTES, Form, Profile
from nexus.types.request import Event, Request
from nexus.workspace.source_context import Desk


class Change(Struct, frozen=True):
    """What is to be otherwise in a past call: nothing, unless given. `event` takes the place of the recorded one.

    `tools` and `skills` are all that the call is given, in the place of those of then.
    """

    model: str = ""
    budget: int | None = None
    profile: str = ""
    strategy: Strategy | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    event: Event | None = None
    skills: tuple[str, ...] | None = None


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
    past = Past(kit, call)
    made = _again(past)
    missing = [*past.missing]
    wanted = past.sent.body
    if not missing and not wanted:
        missing.append("its body had no JSON form, so that no hash of it was stored")
    if not missing and _hash(made.ctx) != wanted:
        was = past.manifest.get("render"), past.manifest.get("marks", 0)
        now = RENDER_VERSION, MARKS_VERSION
        told = "it was rendered by version {}, its marks are of version {}; this is {} and {}"
        why = f" ({told.format(*was, *now)})" if was != now else ""
        missing.append(f"its body does not have the hash that was stored when it was sent{why}")
    if missing and not unproven:
        raise CannotReplay(call.label, missing)
    warned = tuple(Warned("nexus:replay", f"not proven: {what}") for what in missing)
    ctx = dataclasses.replace(made.ctx, warnings=(*made.ctx.warnings, *warned))
    return dataclasses.replace(made, ctx=ctx, missing=tuple(missing))


def what_if(kit: Kit, call: RecordedCall, change: Change) -> Replayed:
    """The context that the call's event would get at its place with something changed. Nothing is written.

    Another profile, or other skills, read the workspace as it is now; all else is as it was. Other tools, profiles and
    skills are admitted as a new call's are, by the policies of now. Raises BudgetTooSmall, EmptyEvent, UnknownProfile,
    NotAllowed, BadPolicy, BadTool, CannotReplay.
    """
    past = Past(kit, call)
    made = _changed(past, change)
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


def _again(past: Past) -> Replayed:
    """The call as it was."""
    model, counter = past.settings.model, past.counter()
    view = View(
        past.view_name, model.wire, model.name, past.largest(), task=past.task(), images=past.images(), form=past.form(),
        opens=past.opens(),
    )  # fmt: skip
    with past.kit.store.snapshot():
        entry = past.entry(past.call.row.seq)
        window = past.window(view, past.sent.made or past.cut_in_force(), counter)
        event, placed = past.event(entry)
        request = past.request(entry, event)
        given = past.materials(view, model, window, request)
        sources = past.sources([*placed, *past.seen(window)])
        marks = past.marks()
    profile = _stored(request.profile, past.form())
    try:
        ctx, fitted = assemble_fitted(request, profile, dataclasses.replace(given, sources=sources))
    except NexusError as error:
        raise CannotReplay(past.call.label, (*past.missing, str(error))) from error
    left = tuple(block_of(note, "") for note in past.sent.notes if note.state == "left out")
    ctx = dataclasses.replace(as_told(ctx, past.sent, entry.rows), left_out=left)
    return Replayed(past.call, ctx, fitted, tuple(marks))


def _changed(past: Past, change: Change) -> Replayed:
    """The call with a change, in the view that it then belongs to, with what that view had decided before it."""
    kit, counter = past.kit, past.counter()
    entry = past.entry(past.call.row.seq)
    event, placed = past.event(entry)
    same = change.skills is None and change.profile in ("", past.manifest.get("profile"))
    same = same and (change.tools is None or past.form() == "roles")  # other forms tell of the tools in a block
    event = event if same else replace(event, content=(*_attached(placed), *event.content))
    asked = _asked(past, past.request(entry, change.event or event), change, same=same)
    request = asked.request
    model = resolve(change.model, kit.models) if change.model else past.settings.model
    with kit.store.snapshot():
        available = planned(request, model).available
        decided = (change.strategy or kit.strategy, kit.largest_result, kit.around.config.images.keep_turns)
        view = view_of(request.profile, model, available, counter, *decided)
        profile, known = (_stored(request.profile, past.form()), None) if same else kit.resolved(request.profile)
        view = replace(view, task=past.task(), images=price_of(model, past.factor(model)), form=profile.form)
        opens = past.opens() if same else _opens(past, profile, request)
        view = replace(view, opens=opens)
        earlier = [cut for cut in kit.store.cuts(past.call.thread, view.name) if cut.at_seq < past.head]
        window = past.window(view, earlier[-1] if earlier else None, counter)
        given = past.materials(view, model, window, request)
        sources = past.sources([*placed, *past.seen(window)])
        marks = past.marks()
    given = dataclasses.replace(given, sources=sources, withheld=asked.withheld, warned=asked.warned)
    if known is not None:
        desk = dataclasses.replace(given.desk, here=kit.look())
        given = dataclasses.replace(given, sources=known, desk=desk)
    ctx, fitted = assemble_fitted(request, profile, given)
    ctx = as_noted(ctx, past.sent, entry.rows) if change.event is None else ctx
    return Replayed(past.call, ctx, fitted, tuple(marks))


def _opens(past: Past, profile: Profile, request: Request) -> Opens:
    """How another profile would have opened the history at that time, in UTC."""
    desk = Desk(request, past.kit.around, request.event.at_ms, "")
    thread = past.call.thread if past.head else None
    return opens_of(profile, past.kit.store, thread, past.manifest, replay.live(past.marks()).mark, desk)


def _asked(past: Past, request: Request, change: Change, *, same: bool) -> Admitted:
    """The changed request. Where something is read anew, other tools or another profile, it is admitted as a new call is."""
    request = replace(
        request,
        model=change.model or request.model,
        available_tokens=change.budget or request.available_tokens,
        profile=change.profile or request.profile,
    )
    if same and change.tools is None:
        return Admitted(request, past.withheld)
    tools = (*request.tools, *(one.definition for one in past.withheld)) if change.tools is None else change.tools
    skills = past.named_skills() if change.skills is None else change.skills
    return past.kit.admit(replace(request, tools=tools, skills=skills))


def _stored(name: str, form: Form) -> Profile:
    """The profile under its name, with what was stored in the place of its sources."""
    return Profile(name, "", ("blocks",), (STORED_NOTES,), ahead=("ahead",), form=form)


def _attached(placed: Iterable[Block]) -> tuple[Note, ...]:
    """The attached files among the blocks of a message, as they were shown: they are the user's, whatever the profile."""
    return tuple(Note("moment", block.text, block.origin) for block in placed if block.origin.startswith(ATTACHED))
