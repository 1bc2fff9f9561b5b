"""One call's context: gather → fit → render. Pure: it calls no model and writes nothing.

Everything that touches the world is passed in: the sources by name, the window that the ledger filled, the last
manifest, the clock's reading. A cut is a value in the result; recording the turn stores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec

from nexus.assembly.fit.compaction_plan import Aim, plan_compaction
from nexus.assembly.fit.cut import LEAST_HISTORY, Fitted, Fixed, Site, fit
from nexus.assembly.forms.tagged_message import framed
from nexus.assembly.gather import event_messages, gather, instructions, thawed
from nexus.assembly.inputs import Materials, planned
from nexus.assembly.manifest import Slotted, manifest_of, prefix_of
from nexus.assembly.preamble import evicted, limits, messages_of, told
from nexus.assembly.token_report import account, spent
from nexus.context import AssembledContext, Planner
from nexus.errors import BudgetTooSmall, EmptyEvent
from nexus.tokens.anchor import anchor_of
from nexus.tokens.measure import message_tokens, text_tokens_json, tools_tokens
from nexus.tokens.model import Model
from nexus.types.block import Block, Slot, Warned
from nexus.types.compaction_plan import CompactionPlan, Trigger
from nexus.types.context_record import of_system
from nexus.types.environment import ORIGIN as ENVIRONMENT
from nexus.types.history import History
from nexus.types.ledger_entries import Place
from nexus.types.message import ATTACHED, Image, Message, Note, Part, Text
from nexus.types.profile import ONE_TURN, STORED_NOTES, Form, Profile, Share
from nexus.types.repair_report import RepairReport
from nexus.types.request import Request
from nexus.types.sanitize import legible
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.sources.session_blocks import SURROUNDINGS_SOURCE
from nexus.workspace.times import DATE_TIME_SOURCE, FRESH_MS

REQUEST_TOKENS = 40
"""Allowance for what stands around the messages in a request body: keys, model name, cache marks."""


KEPT_BACK = 3
"""Tokens kept back where scaling to a model's own tokens rounds the account's four parts up."""


def assemble(request: Request, profile: Profile, given: Materials) -> AssembledContext:
    """The context for `request`. Raises BudgetTooSmall, EmptyEvent."""
    return assemble_fitted(request, profile, given)[0]


def assemble_fitted(request: Request, profile: Profile, given: Materials) -> tuple[AssembledContext, Fitted]:
    """The context for `request`, and how it was made to fit. Raises BudgetTooSmall, EmptyEvent."""
    budget = planned(request, given.model)
    room = _room(budget.available, given.factor)
    blocks, warned = _system(request, profile, given, budget.available)
    notes, more = _gathered(_beside(request, profile, given), "current", profile, given, budget.available, blocks)
    warned.extend(more)
    system, tools = "\n\n".join(legible(block.text) for block in blocks), canonical(request.tools)
    fixed = _measure(system, tools, given)
    front, fitted, event, notes = _fit_behind(request, profile, given, room, fixed, blocks, notes)
    history, current = _shown(fitted, event, front)

    slot = Slotted(blocks, front.blocks, system, tools, front.fixed, front.entries)
    manifest = manifest_of(request, profile, given, fitted, slot, event)
    sent = msgspec.to_builtins(manifest)
    context = AssembledContext(
        system_prompt=system,
        history=history,
        current=current,
        event=event,
        tools=tools,
        model=request.model or given.model.name,
        provider=given.model.provider,
        model_config=dict(request.model_config),
        token_budget=spent(budget, front.fixed, fitted, given.factor),
        session_label=request.routing.session,
        parent_turn_id=f"{given.thread}.{fitted.window.turn}" if fitted.window.turn else None,
        role=request.routing.role,
        toolset_name=request.permissions.toolset,
        permissions_granted=request.permissions.granted,
        source_event_id=request.event.id or None,
        workspace_path=given.workspace,
        window=given.model,
        blocks=(*blocks, *front.blocks, *notes.placed),
        items=account(slot, notes.placed, notes.seen, fitted, given.factor, given.counter),
        cut=fitted.cut,
        manifest=manifest,
        prefix=prefix_of(given, sent, slot, fitted),
        opens_turn=not request.event.results,
        warnings=_once(_before(given), warned, front.warned, _left_out(notes), _warned(given.model, tools, fitted)),
        repairs=RepairReport(dict(fitted.window.fold.done)),
        anchor=anchor_of(given.last_manifest, sent, given.factor),
        full_share=fitted.whole_tokens / room,
        planner=_planner(request, given, room, manifest.base - fitted.window.tokens)
        if _may_compact(given, profile)
        else None,
        kept=fitted.window if fitted.cut else None,
        seen=tuple(notes.seen),
        left_out=tuple(notes.left_out),
        withheld=given.withheld,
        given=request.tools,
        routing=request.routing,
        identity=request.identity,
        told=front.told,
        context_json=_injected(request, blocks, given),
        face=given.face,
        request=request,
    )
    return context, fitted


def plan_for(
    request: Request, profile: Profile, given: Materials, trigger: Trigger, share: float
) -> CompactionPlan | None:
    """The plan of a compaction before anything happens: what is to come down beside system slot and tools.

    None in a form that shows one turn alone: what is before it takes little room already.
    """
    if profile.form in ONE_TURN:
        return None
    available = planned(request, given.model).available
    blocks, _ = _system(request, profile, given, available)
    fixed = _measure("\n\n".join(legible(block.text) for block in blocks), canonical(request.tools), given)
    room = _room(available, given.factor)
    return _planner(request, given, room, fixed.total)(trigger, share)


def _may_compact(given: Materials, profile: Profile) -> bool:
    return given.may_compact and profile.form not in ONE_TURN


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


@dataclass(frozen=True, slots=True)
class _Front:
    """The blocks between the system slot and the conversation, as messages; how many earlier entries they tell of, and where those stand."""

    blocks: list[Block]
    messages: tuple[Message, ...]
    fixed: Fixed
    warned: list[Warned]
    entries: int = 0
    told: frozenset[Place] = frozenset()


def _fit_behind(
    request: Request,
    profile: Profile,
    given: Materials,
    room: int,
    fixed: Fixed,
    blocks: list[Block],
    notes: list[Block],
) -> tuple[_Front, Fitted, tuple[Message, ...], _Notes]:
    """Fits behind the blocks that are messages. They tell of fewer earlier entries where otherwise something else must go."""
    share, available = profile.share("Session"), planned(request, given.model).available
    again = bool(request.event.results)
    *_, least = mosts = limits(profile, given.desk.earlier, given.last_manifest if again else None)
    for most in mosts:
        earlier = msgspec.structs.replace(given.desk.earlier, most=most)
        own = replace(given, desk=replace(given.desk, earlier=earlier))
        ahead, warned = _gathered(profile.ahead, "ahead", profile, own, available, blocks)
        messages = messages_of(ahead)
        tokens = sum(message_tokens(message, given.counter).on(given.view.wire) for message in messages)
        front = _Front(ahead, messages, msgspec.structs.replace(fixed, ahead=tokens), warned, *told(profile, earlier))
        try:
            event, fitted, placed = _fit(request, given, room, front.fixed, share, notes, profile.form)
        except BudgetTooSmall:
            if most == least:
                raise
            continue
        if fitted.cut is None or again or most == least:
            gone = evicted(profile, earlier, fitted.window, given.view.name, given.cut_number)
            if fitted.cut is None and gone is not None:
                fitted = msgspec.structs.replace(fitted, cut=gone, window=replace(fitted.window, cut=gone))
            return front, fitted, event, placed
    raise AssertionError("the last choice either fits or raises")


def _fit(
    request: Request, given: Materials, room: int, fixed: Fixed, share: Share, notes: list[Block], form: Form
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
            shown = given.window.shape.event(event, given.window.head, request.identity.principal)
            shown = tuple(map(framed, shown)) if form in ONE_TURN else shown
            fitted = fit(given.window, room, fixed, site, given.counter, shown)
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


def _system(request: Request, profile: Profile, given: Materials, most: int) -> tuple[list[Block], list[Warned]]:
    """The system slot's blocks and what the user should know of them."""
    blocks, warned = _gathered(profile.system, "system", profile, given, most)
    blocks.extend(instructions(given.instructions))
    if given.frozen is None:
        return blocks, warned
    fresh = SURROUNDINGS_SOURCE if given.desk.around.clock == "system" else ""
    return thawed(given.frozen, blocks, warned, request.skills, fresh)


def _gathered(
    names: tuple[str, ...], slot: Slot, profile: Profile, given: Materials, most: int, earlier: Iterable[Block] = ()
) -> tuple[list[Block], list[Warned]]:
    return gather(names, slot, given.sources, given.desk, profile.shares, most, given.counter, earlier)


def _beside(request: Request, profile: Profile, given: Materials) -> tuple[str, ...]:
    """The sources of what stands before the content.

    Within a turn these are attached files alone, for the rest was sent; and the time, where it was told long ago.
    """
    event = request.event
    if not event.results:
        return profile.current
    wanted = {STORED_NOTES, *(("attachments",) if event.attachments else ())}
    if "date_time" in profile.current and not event.content and _stale(given):
        wanted.add("date_time")
    return tuple(name for name in profile.current if name in wanted)


def _stale(given: Materials) -> bool:
    """Whether the last stamp of time that the history shows is older than a tool loop lets it be, if there is one."""
    if given.desk.around.clock == "system":
        return False
    for row in reversed(given.window.rows):
        if any(isinstance(part, Note) and part.origin == DATE_TIME_SOURCE for part in row.message.parts):
            return given.desk.at_ms - row.message.at_ms > FRESH_MS
    return bool(given.window.rows)


def _measure(system: str, tools: tuple[ToolSpec, ...], given: Materials) -> Fixed:
    return Fixed(
        system=text_tokens_json(system, given.counter) + REQUEST_TOKENS,
        tools=tools_tokens([spec.definition() for spec in tools], given.counter) if tools else 0,
    )


def _shown(fitted: Fitted, event: tuple[Message, ...], front: _Front) -> tuple[History, tuple[Message, ...]]:
    current = fitted.shown[fitted.ahead :]
    answers = any(message.role == "tool" for message in event)
    if not current or not (answers or any(_says(part) for message in event for part in message.parts)):
        what = "its tool results answer no open call" if answers else "it has no text, no image and no attached file"
        raise EmptyEvent(f"there is nothing to show for this event: {what}. Nothing was sent")
    history = fitted.window.view(fitted.shown[: fitted.ahead], fitted.closing_tokens)
    if front.messages:
        opening, tokens = (*front.messages, *history.opening), history.tokens + front.fixed.ahead
        history = replace(history, opening=opening, tokens=tokens)
    return history, current


def _says(part: Part) -> bool:
    if isinstance(part, Note):
        return part.origin.startswith(ATTACHED)
    return bool(part.text.strip()) if isinstance(part, Text) else isinstance(part, Image)


def _injected(request: Request, blocks: list[Block], given: Materials) -> dict[str, Any]:
    """What the system slot was made of."""
    shown = any(block.origin == ENVIRONMENT for block in blocks)
    found, names = given.desk.here.environment if shown else None, request.permissions.capabilities
    told = found if found is None or names is None else found.scoped(names)
    return of_system(blocks, request.identity.persona, told, given.last_manifest)


def _once(*told: Iterable[Warned]) -> tuple[Warned, ...]:
    """All of it in order; what two sources say alike, as that there is no such time zone, stands once."""
    return tuple(dict.fromkeys(chain.from_iterable(told)))


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
