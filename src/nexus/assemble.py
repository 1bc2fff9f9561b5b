"""One call's context: gather → fit → render. Pure: it calls no model and writes nothing.

Everything that touches the world is passed in: the sources by name, the window that the ledger filled, the last
manifest, the clock's reading. A cut is a value in the result; recording the turn stores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from nexus.account import account, spent
from nexus.assembled import AssembledContext, Face, Manifest, Planner, PrefixReport
from nexus.block import Block, Warned, text_hash
from nexus.budget.anchor import anchor_of
from nexus.budget.counter import TokenCounter
from nexus.budget.measure import text_tokens_json, tools_tokens
from nexus.budget.models import Model
from nexus.budget.tokens import TokenBudget, plan
from nexus.environment import ORIGIN as ENVIRONMENT
from nexus.errors import BudgetTooSmall, EmptyEvent
from nexus.fit.broken import Ground, located, measured, named, pinned_places, shown_before
from nexus.fit.cut import LEAST_HISTORY, Fitted, Fixed, Site, fit
from nexus.fit.plan import Aim, plan_compaction
from nexus.fit.prefix import compare
from nexus.fit.view import View
from nexus.fit.window import Window
from nexus.gather import gather, instructions
from nexus.history import History
from nexus.injected import meta_of_user, of_system
from nexus.layer import Slot
from nexus.ledger.entries import Entry
from nexus.legible import legible
from nexus.message import ATTACHED, Image, Message, Note, Part, Text
from nexus.plan import CompactionPlan, Trigger
from nexus.policy import Withheld
from nexus.profile import Profile, Share
from nexus.render.parts import RENDER_VERSION
from nexus.render.wire.tools import ToolSpec, canonical
from nexus.repairs import RepairReport
from nexus.request import Event, Request
from nexus.sources import Desk, Source

REQUEST_TOKENS = 40
"""Allowance for what stands around the messages in a request body: keys, model name, cache marks."""


OUTPUT_SETTINGS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""What providers call the most tokens of a reply."""

KEPT_BACK = 3
"""Tokens kept back where scaling to a model's own tokens rounds the account's four parts up."""


@dataclass(frozen=True, slots=True)
class Materials:
    """What assembly needs besides the request: resolved names, the filled window, and what was sent last.

    `after_mark` is the seq of the session's newest mark. `may_compact` is false where a compaction was just undone.
    `withheld` are tools that the request may not offer, `warned` what is worth a warning before anything is gathered.
    """

    desk: Desk
    sources: Mapping[str, Source]
    model: Model
    counter: TokenCounter
    factor: float
    window: Window
    mark: Entry | None
    view: View
    cut_number: int
    instructions: tuple[Message, ...]
    last_manifest: Mapping[str, Any] | None
    thread: int
    workspace: str
    face: Face
    after_mark: int = 0
    may_compact: bool = True
    withheld: tuple[Withheld, ...] = ()
    warned: tuple[Warned, ...] = ()


def assemble(request: Request, profile: Profile, given: Materials) -> AssembledContext:
    """The context for `request`. Raises BudgetTooSmall, EmptyEvent."""
    return assemble_fitted(request, profile, given)[0]


def assemble_fitted(request: Request, profile: Profile, given: Materials) -> tuple[AssembledContext, Fitted]:
    """The context for `request`, and how it was made to fit. Raises BudgetTooSmall, EmptyEvent."""
    budget = planned(request, given.model)
    room = _room(budget.available, given.factor)
    blocks, warned = _gathered(profile.system, "system", profile, given, budget.available)
    blocks.extend(instructions(given.instructions))
    notes, more = _gathered(_beside(request, profile), "current", profile, given, budget.available, blocks)
    system = "\n\n".join(legible(block.text) for block in blocks)
    tools = canonical(request.tools)
    fixed = _measure(system, tools, given)
    event, fitted, notes = _fit(request, given, room, fixed, profile.share("Session"), notes)
    history, current = _shown(fitted, event)

    manifest = _manifest(request, profile, given, fitted, blocks, system, tools, event)
    stable = fixed.system + fixed.tools + fitted.window.tokens
    base = stable + fitted.closing_tokens + fitted.current_tokens
    manifest = _with_view(manifest, base, given.view, fitted, request.identity.persona)
    sent = msgspec.to_builtins(manifest)
    prefix = _prefix(given, sent, blocks, fixed, fitted, stable)
    context = AssembledContext(
        system_prompt=system,
        history=history,
        current=current,
        event=event,
        tools=tools,
        model=request.model or given.model.name,
        provider=given.model.provider,
        model_config=dict(request.model_config),
        token_budget=spent(budget, fixed, fitted, given.factor),
        session_label=request.routing.session,
        parent_turn_id=f"{given.thread}.{fitted.window.turn}" if fitted.window.turn else None,
        role=request.routing.role,
        toolset_name=request.permissions.toolset,
        permissions_granted=request.permissions.granted,
        source_event_id=request.event.id or None,
        workspace_path=given.workspace,
        window=given.model,
        blocks=(*blocks, *notes.placed),
        items=account(blocks, notes.placed, notes.seen, len(tools), fitted, fixed, given.factor, given.counter),
        cut=fitted.cut,
        manifest=manifest,
        prefix=prefix,
        opens_turn=not request.event.results,
        warnings=(*_before(given), *warned, *more, *_left_out(notes), *_warned(given.model, tools, fitted)),
        repairs=RepairReport(dict(fitted.window.fold.done)),
        anchor=anchor_of(given.last_manifest, sent, given.factor),
        full_share=fitted.whole_tokens / room,
        planner=_planner(request, given, room, base - fitted.window.tokens) if given.may_compact else None,
        kept=fitted.window if fitted.cut else None,
        seen=tuple(notes.seen),
        left_out=tuple(notes.left_out),
        withheld=given.withheld,
        given=request.tools,
        routing=request.routing,
        identity=request.identity,
        context_json=_injected(request, blocks, given),
        face=given.face,
        request=request,
    )
    return context, fitted


def plan_for(
    request: Request, profile: Profile, given: Materials, trigger: Trigger, share: float
) -> CompactionPlan | None:
    """The plan of a compaction before anything happens: what is to come down beside system slot and tools."""
    available = planned(request, given.model).available
    blocks, _ = _gathered(profile.system, "system", profile, given, available)
    blocks.extend(instructions(given.instructions))
    fixed = _measure("\n\n".join(legible(block.text) for block in blocks), canonical(request.tools), given)
    room = _room(available, given.factor)
    return _planner(request, given, room, fixed.system + fixed.tools)(trigger, share)


def _planner(request: Request, given: Materials, room: int, beside: int) -> Planner:
    """Makes plans for the window; only when asked, since it looks at every message."""

    def plan(trigger: Trigger, share: float) -> CompactionPlan | None:
        aim = Aim(request.routing.session, given.view.name, room, share, trigger, given.factor)
        return plan_compaction(given.window, beside, aim, given.mark, given.after_mark)

    return plan


@dataclass(frozen=True, slots=True)
class _Notes:
    """What became of the blocks of the current message: placed in it, seen in the history already, or left out."""

    placed: list[Block]
    seen: list[Block]
    left_out: list[Block]


def _fit(
    request: Request, given: Materials, room: int, fixed: Fixed, share: Share, notes: list[Block]
) -> tuple[tuple[Message, ...], Fitted, _Notes]:
    """Fits with memory that the history already shows not repeated; after a cut with all of it; at worst without any.

    A cut takes old memory out of the history with it (document 002: memory is reduced first). The current memory is left
    out only where nothing else would do; system, tools, event and last group never.
    """
    site = Site(
        request.routing.session,
        given.view.name,
        given.cut_number,
        given.mark,
        given.view.strategy,
        share.floor or LEAST_HISTORY,
        share.ceiling,
        given.view.image_turns,
        anew=given.last_manifest is None or given.last_manifest.get("mark") != (given.mark.seq if given.mark else 0),
    )
    seen = [note for note in notes if given.window.memory.get(note.origin) == note.text]
    fresh = _Notes([note for note in notes if note not in seen], seen, [])
    whole = _Notes(notes, [], [])
    lean = [note for note in notes if note.layer != "Memory"]
    tries = [fresh, *([whole] if seen else []), _Notes(lean, [], [note for note in notes if note not in lean])]
    for choice in tries:
        event = event_messages(request.event, choice.placed, given.desk.at_ms)
        try:
            fitted = fit(given.window, room, fixed, site, given.counter, event)
        except BudgetTooSmall as error:
            if choice is tries[-1] or len(lean) == len(notes):
                available = planned(request, given.model).available
                raise error.scaled(given.factor, available, KEPT_BACK if given.factor != 1 else 0) from None
            continue
        if not (choice.seen and fitted.cut):
            return event, fitted, choice
    raise AssertionError("the last choice either fits or raises")


def _before(given: Materials) -> tuple[Warned, ...]:
    """What was to be said before anything was read: of the configuration, and of what the policies grant."""
    return (*given.desk.around.warned, *given.warned)


def _left_out(notes: _Notes) -> tuple[Warned, ...]:
    return tuple(
        Warned(note.origin, "left out of this call: no room beside what is never cut") for note in notes.left_out
    )


def _gathered(
    names: tuple[str, ...], slot: Slot, profile: Profile, given: Materials, most: int, earlier: Iterable[Block] = ()
) -> tuple[list[Block], list[Warned]]:
    return gather(names, slot, given.sources, given.desk, profile.shares, most, given.counter, earlier)


def _beside(request: Request, profile: Profile) -> tuple[str, ...]:
    """The sources of what stands before the content. Within a turn these are attached files alone: the rest was sent."""
    if not request.event.results:
        return profile.current
    return tuple(name for name in profile.current if name == "attachments" and request.event.attachments)


def event_messages(event: Event, notes: list[Block], at_ms: int) -> tuple[Message, ...]:
    """The event as it will be stored: results as they are, then one user message with its notes before the content."""
    if event.results and not event.content and not notes:
        return event.results
    parts = (*(Note("moment" if n.layer == "Event" else "memory", n.text, n.origin) for n in notes), *event.content)
    meta = meta_of_user(event, at_ms) if notes else ""
    message = Message("user", parts, event.id, at_ms, source=event.source, meta=meta)
    return (*event.results, message)


def planned(request: Request, model: Model) -> TokenBudget:
    """The budget before anything is counted; what the request asks for as output is its reserve."""
    asked = [request.model_config.get(name) for name in OUTPUT_SETTINGS]
    reserve = next((tokens for tokens in asked if isinstance(tokens, int)), None)
    budget = plan(model, available_tokens=request.available_tokens, reserve_response=reserve)
    if not request.most_tokens:
        return budget
    return msgspec.structs.replace(budget, available=min(budget.available, request.most_tokens))


def _measure(system: str, tools: tuple[ToolSpec, ...], given: Materials) -> Fixed:
    return Fixed(
        system=text_tokens_json(system, given.counter) + REQUEST_TOKENS,
        tools=tools_tokens([spec.definition() for spec in tools], given.counter) if tools else 0,
    )


def _shown(fitted: Fitted, event: tuple[Message, ...]) -> tuple[History, tuple[Message, ...]]:
    current = fitted.shown[fitted.ahead :]
    answers = any(message.role == "tool" for message in event)
    if not current or not (answers or any(_says(part) for message in event for part in message.parts)):
        what = "its tool results answer no open call" if answers else "it has no text, no image and no attached file"
        raise EmptyEvent(f"there is nothing to show for this event: {what}. Nothing was sent")
    return fitted.window.view(fitted.shown[: fitted.ahead], fitted.closing_tokens), current


def _says(part: Part) -> bool:
    if isinstance(part, Note):
        return part.origin.startswith(ATTACHED)
    return bool(part.text.strip()) if isinstance(part, Text) else isinstance(part, Image)


def _manifest(
    request: Request,
    profile: Profile,
    given: Materials,
    fitted: Fitted,
    blocks: list[Block],
    system: str,
    tools: tuple[ToolSpec, ...],
    event: tuple[Message, ...],
) -> Manifest:
    window = fitted.window
    cut = fitted.cut or window.cut
    fields: dict[str, Any] = {
        "view": given.view.name,
        "profile": profile.name,
        "model": request.model or given.model.name,
        "system": text_hash(system),
        "blocks": {named(block): block.hash[:16] for block in blocks},
        "tools": hashlib.sha256(msgspec.json.encode(tools)).hexdigest(),
        "head": window.head,
        "head_hash": window.head_hash.hex(),
        "first": (window.first.seq, window.first.ord),
        "mark": given.mark.seq if given.mark else 0,
        "cut": cut.number if cut else 0,
        "config": hashlib.sha256(repr(sorted(request.model_config.items())).encode()).hexdigest()[:16],
        "supplied": len(fitted.shown) - fitted.ahead - len(event),
        "current": hashlib.sha256(msgspec.msgpack.encode(_hashable(event))).hexdigest(),
        "counter": given.counter.name,
        "factor": given.factor,
        "available": planned(request, given.model).available if request.most_tokens else request.available_tokens or 0,
        "render": RENDER_VERSION,
        "pins": pinned_places(window, fitted.spared),
    }
    return Manifest(id=hashlib.sha256(repr(fields).encode("utf-8", "surrogatepass")).hexdigest()[:32], **fields)


def _with_view(manifest: Manifest, base: int, view: View, fitted: Fitted, persona: str) -> Manifest:
    """The manifest with what its id does not depend on."""
    kinds = tuple(pin.kind for pin in fitted.window.hidden())
    return msgspec.structs.replace(
        manifest, base=base, largest=view.largest, task=view.task, pin_kinds=kinds, persona=persona, images=view.images
    )


def _injected(request: Request, blocks: list[Block], given: Materials) -> dict[str, Any]:
    """What the system slot was made of."""
    shown = any(block.origin == ENVIRONMENT for block in blocks)
    found, names = given.desk.here.environment if shown else None, request.permissions.capabilities
    told = found if found is None or names is None else found.scoped(names)
    return of_system(blocks, request.identity.persona, told, given.last_manifest)


def _prefix(
    given: Materials, sent: dict[str, Any], blocks: list[Block], fixed: Fixed, fitted: Fitted, stable: int
) -> PrefixReport:
    """Whether this call extends the last one; if not, where it breaks and what that costs."""
    before = given.last_manifest
    report = compare(before, sent, fitted.window)
    if before is None or report.state != "broken":
        return msgspec.structs.replace(report, stable_tokens=int(stable * given.factor))
    ground = Ground(
        tools=fixed.tools,
        system=fixed.system,
        blocks=measured(blocks, given.counter),
        window=fitted.window,
        earlier=shown_before(before, given.window, given.mark) if fitted.cut is not None else None,
        counter=given.counter,
        factor=given.factor,
        model=given.model,
        current=fitted.current_tokens,
    )
    return located(report, before, sent, ground)


def _hashable(event: tuple[Message, ...]) -> bytes:
    return repr(event).encode("utf-8", "surrogatepass")


def _warned(model: Model, tools: tuple[ToolSpec, ...], fitted: Fitted) -> tuple[Warned, ...]:
    return (*_shortened(fitted), *_model_warning(model), *_no_tools(tools, fitted))


def _shortened(fitted: Fitted) -> tuple[Warned, ...]:
    """A word about results of this event that are too large to be shown whole."""
    if not fitted.shortened:
        return ()
    limit = fitted.window.clips.limit(fitted.window.head + 1)
    text = (
        f"{fitted.shortened} results of this event are shown in at most {limit:,} tokens each; the ledger has the whole"
    )
    return (Warned("nexus:event", text),)


def _model_warning(model: Model) -> tuple[Warned, ...]:
    return (Warned("nexus:model", model.warning),) if model.warning else ()


def _no_tools(tools: tuple[ToolSpec, ...], fitted: Fitted) -> tuple[Warned, ...]:
    if tools or not fitted.window.fold.used:
        return ()
    text = "the history has tool calls, but no tools are given: some providers refuse such a request. Pass tools=…"
    return (Warned("nexus:tools", text),)


def _room(available: int, factor: float) -> int:
    """The available tokens as base tokens."""
    return available if factor == 1 else int((available - KEPT_BACK) / factor)
