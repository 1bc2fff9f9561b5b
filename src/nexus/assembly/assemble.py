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
from nexus.assembly.fit.cut import LEAST_HISTORY, CutContext, FitResult, FixedTokens, fit
from nexus.assembly.forms.tagged_message import framed
from nexus.assembly.gather import event_messages, gather, merge_frozen_blocks, session_instructions
from nexus.assembly.inputs import AssemblyInputs, plan_budget
from nexus.assembly.manifest import RenderedPrefix, build_manifest, prefix_report
from nexus.assembly.preamble import covered_messages, entry_limits, plan_eviction, preamble_messages
from nexus.assembly.token_report import budget_with_usage, token_lines
from nexus.context import Accounting, AssembledContext, EngineState, Planner, Provenance, RepairReport
from nexus.errors import BudgetTooSmall, EmptyEvent
from nexus.tokens.anchor import anchor_of
from nexus.tokens.measure import message_tokens, text_tokens_json, tools_tokens
from nexus.tokens.model import Model
from nexus.types.block import Block, ContextWarning, Slot
from nexus.types.compaction_plan import CompactionPlan, Trigger
from nexus.types.context_record import of_system
from nexus.types.environment import ORIGIN as ENVIRONMENT
from nexus.types.history import History
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import ATTACHED, Image, Message, Note, Part, Text
from nexus.types.profile import ONE_TURN, STORED_NOTES, MessageFormatName, Profile, Share
from nexus.types.request import Request
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.sources.session_blocks import SURROUNDINGS_SOURCE
from nexus.workspace.times import DATE_TIME_SOURCE, FRESH_MS

REQUEST_TOKENS = 40
"""Allowance for what stands around the messages in a request body: keys, model name, cache marks."""


KEPT_BACK = 3
"""Tokens kept back where scaling to a model's own tokens rounds the account's four parts up."""


def assemble(request: Request, profile: Profile, inputs: AssemblyInputs) -> AssembledContext:
    """The context for `request`. Raises BudgetTooSmall, EmptyEvent."""
    return assemble_fitted(request, profile, inputs)[0]


def assemble_fitted(request: Request, profile: Profile, inputs: AssemblyInputs) -> tuple[AssembledContext, FitResult]:
    """The context for `request`, and how it was made to fit. Raises BudgetTooSmall, EmptyEvent."""
    budget = plan_budget(request, inputs.model)
    room = _room(budget.available, inputs.factor)
    blocks, warned = _system(request, profile, inputs, budget.available)
    notes, more = _gathered(_beside(request, profile, inputs), "current", profile, inputs, budget.available, blocks)
    warned.extend(more)
    system, tools = "\n\n".join(sanitize_text(block.text) for block in blocks), canonical(request.tools)
    fixed = _measure(system, tools, inputs)
    front, fitted, event, notes = _fit_behind(request, profile, inputs, room, fixed, blocks, notes)
    history, current = _shown(fitted, event, front)

    slot = RenderedPrefix(blocks, front.blocks, system, tools, front.fixed, front.entries)
    manifest = build_manifest(request, profile, inputs, fitted, slot, event)
    sent = msgspec.to_builtins(manifest)
    context = AssembledContext(
        system_prompt=system,
        history=history,
        current=current,
        event=event,
        tools=tools,
        model=request.model or inputs.model.name,
        provider=inputs.model.provider,
        model_config=dict(request.model_config),
        token_budget=budget_with_usage(budget, front.fixed, fitted, inputs.factor),
        session_label=request.routing.session,
        parent_turn_id=f"{inputs.thread}.{fitted.window.turn}" if fitted.window.turn else None,
        role=request.routing.role,
        toolset_name=request.permissions.toolset,
        permissions_granted=request.permissions.granted,
        source_event_id=request.event.id or None,
        workspace_path=inputs.workspace,
        accounting=Accounting(
            model_info=inputs.model,
            prefix=prefix_report(inputs, sent, slot, fitted),
            token_breakdown=token_lines(
                slot, notes.included, notes.already_in_history, fitted, inputs.factor, inputs.counter
            ),
            full_share=fitted.whole_tokens / room,
            anchor=anchor_of(inputs.last_manifest, sent, inputs.factor),
        ),
        provenance=Provenance(
            manifest=manifest,
            starts_turn=not request.event.results,
            blocks=(*blocks, *front.blocks, *notes.included),
            already_in_history=tuple(notes.already_in_history),
            omitted_blocks=tuple(notes.omitted),
            covered_by_blocks=front.covered,
            denied_tools=inputs.denied_tools,
            tool_definitions=request.tools,
            routing=request.routing,
            identity=request.identity,
            context_json=_injected(request, blocks, inputs),
            request=request,
        ),
        cut=fitted.cut,
        warnings=_once(_before(inputs), warned, front.warnings, _left_out(notes), _warned(inputs.model, tools, fitted)),
        repairs=RepairReport(dict(fitted.window.fold.done)),
        _engine=EngineState(
            renderers=inputs.renderers,
            planner=_planner(request, inputs, room, manifest.base - fitted.window.tokens)
            if _may_compact(inputs, profile)
            else None,
            window_after_cut=fitted.window if fitted.cut else None,
        ),
    )
    return context, fitted


def plan_compaction_for(
    request: Request, profile: Profile, inputs: AssemblyInputs, trigger: Trigger, share: float
) -> CompactionPlan | None:
    """The plan of a compaction before anything happens: what is to come down beside system slot and tools.

    None in a form that shows one turn alone: what is before it takes little room already.
    """
    if profile.message_format in ONE_TURN:
        return None
    available = plan_budget(request, inputs.model).available
    blocks, _ = _system(request, profile, inputs, available)
    fixed = _measure("\n\n".join(sanitize_text(block.text) for block in blocks), canonical(request.tools), inputs)
    room = _room(available, inputs.factor)
    return _planner(request, inputs, room, fixed.total)(trigger, share)


def _may_compact(given: AssemblyInputs, profile: Profile) -> bool:
    return given.may_compact and profile.message_format not in ONE_TURN


def _planner(request: Request, given: AssemblyInputs, room: int, beside: int) -> Planner:
    """Makes plans for the window; only when asked, since it looks at every message."""

    def plan(trigger: Trigger, share: float) -> CompactionPlan | None:
        aim = Aim(request.routing.session, given.view.name, room, share, trigger, given.factor)
        return plan_compaction(given.window, beside, aim, given.mark, given.after_mark)

    return plan


@dataclass(frozen=True, slots=True)
class CurrentBlocks:
    """What became of the blocks of the current message: placed in it, seen in the history already, or left out."""

    included: list[Block]
    already_in_history: list[Block]
    omitted: list[Block]


@dataclass(frozen=True, slots=True)
class Preamble:
    """The blocks between the system slot and the conversation, as messages; how many earlier entries they tell of, and where those stand."""

    blocks: list[Block]
    messages: tuple[Message, ...]
    fixed: FixedTokens
    warnings: list[ContextWarning]
    entries: int = 0
    covered: frozenset[MessageRef] = frozenset()


def _fit_behind(
    request: Request,
    profile: Profile,
    given: AssemblyInputs,
    room: int,
    fixed: FixedTokens,
    blocks: list[Block],
    notes: list[Block],
) -> tuple[Preamble, FitResult, tuple[Message, ...], CurrentBlocks]:
    """Fits behind the blocks that are messages. They tell of fewer earlier entries where otherwise something else must go."""
    share, available = profile.share("Session"), plan_budget(request, given.model).available
    again = bool(request.event.results)
    *_, least = mosts = entry_limits(
        profile, given.source_context.previous_turns, given.last_manifest if again else None
    )
    for most in mosts:
        earlier = msgspec.structs.replace(given.source_context.previous_turns, max_entries=most)
        own = replace(given, source_context=replace(given.source_context, previous_turns=earlier))
        ahead, warned = _gathered(profile.preamble, "ahead", profile, own, available, blocks)
        messages = preamble_messages(ahead)
        tokens = sum(message_tokens(message, given.counter).on(given.view.wire) for message in messages)
        front = Preamble(
            ahead,
            messages,
            msgspec.structs.replace(fixed, preamble=tokens),
            warned,
            *covered_messages(profile, earlier),
        )
        try:
            event, fitted, placed = _fit(request, given, room, front.fixed, share, notes, profile.message_format)
        except BudgetTooSmall:
            if most == least:
                raise
            continue
        if fitted.cut is None or again or most == least:
            gone = plan_eviction(profile, earlier, fitted.window, given.view.name, given.cut_number)
            if fitted.cut is None and gone is not None:
                fitted = msgspec.structs.replace(fitted, cut=gone, window=replace(fitted.window, cut=gone))
            return front, fitted, event, placed
    raise AssertionError("the last choice either fits or raises")


def _fit(
    request: Request,
    given: AssemblyInputs,
    room: int,
    fixed: FixedTokens,
    share: Share,
    notes: list[Block],
    form: MessageFormatName,
) -> tuple[tuple[Message, ...], FitResult, CurrentBlocks]:
    """Fits with memory that the history already shows not repeated; after a cut with all of it; at worst without any.

    A cut takes old memory out of the history with it (document 002: memory is reduced first). The current memory is left
    out only where nothing else would do; system, tools, event and last group never.
    """
    site = CutContext(
        request.routing.session,
        given.view.name,
        given.cut_number,
        given.mark,
        given.view.strategy,
        share.floor or LEAST_HISTORY,
        share.ceiling,
        given.view.image_turns,
        rewrites_prefix=given.last_manifest is None
        or given.last_manifest.get("mark") != (given.mark.seq if given.mark else 0),
    )
    seen = [note for note in notes if given.window.memory.get(note.source) == note.text]
    fresh = CurrentBlocks([note for note in notes if note not in seen], seen, [])
    whole = CurrentBlocks(notes, [], [])
    lean = [note for note in notes if note.layer != "Memory"]
    tries = [fresh, *([whole] if seen else []), CurrentBlocks(lean, [], [note for note in notes if note not in lean])]
    for choice in tries:
        event = event_messages(request.event, choice.included, given.source_context.at_ms)
        try:
            shown = given.window.shape.event(event, given.window.head, request.identity.principal)
            shown = tuple(map(framed, shown)) if form in ONE_TURN else shown
            fitted = fit(given.window, room, fixed, site, given.counter, shown)
        except BudgetTooSmall as error:
            if choice is tries[-1] or len(lean) == len(notes):
                available = plan_budget(request, given.model).available
                raise error.scaled(given.factor, available, KEPT_BACK if given.factor != 1 else 0) from None
            continue
        if not (choice.already_in_history and fitted.cut):
            return event, fitted, choice
    raise AssertionError("the last choice either fits or raises")


def _before(given: AssemblyInputs) -> tuple[ContextWarning, ...]:
    """What was to be said before anything was read: of the configuration, and of what the policies grant."""
    return (*given.source_context.workspace.warnings, *given.warnings)


def _left_out(notes: CurrentBlocks) -> tuple[ContextWarning, ...]:
    return tuple(
        ContextWarning(note.source, "left out of this call: no room beside what is never cut") for note in notes.omitted
    )


def _system(
    request: Request, profile: Profile, given: AssemblyInputs, most: int
) -> tuple[list[Block], list[ContextWarning]]:
    """The system slot's blocks and what the user should know of them."""
    blocks, warned = _gathered(profile.system, "system", profile, given, most)
    blocks.extend(session_instructions(given.instructions))
    if given.frozen_blocks is None:
        return blocks, warned
    fresh = SURROUNDINGS_SOURCE if given.source_context.workspace.clock == "system" else ""
    return merge_frozen_blocks(given.frozen_blocks, blocks, warned, request.skills, fresh)


def _gathered(
    names: tuple[str, ...],
    slot: Slot,
    profile: Profile,
    given: AssemblyInputs,
    most: int,
    earlier: Iterable[Block] = (),
) -> tuple[list[Block], list[ContextWarning]]:
    return gather(names, slot, given.sources, given.source_context, profile.shares, most, given.counter, earlier)


def _beside(request: Request, profile: Profile, given: AssemblyInputs) -> tuple[str, ...]:
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


def _stale(given: AssemblyInputs) -> bool:
    """Whether the last stamp of time that the history shows is older than a tool loop lets it be, if there is one."""
    if given.source_context.workspace.clock == "system":
        return False
    for row in reversed(given.window.rows):
        if any(isinstance(part, Note) and part.origin == DATE_TIME_SOURCE for part in row.message.parts):
            return given.source_context.at_ms - row.message.at_ms > FRESH_MS
    return bool(given.window.rows)


def _measure(system: str, tools: tuple[ToolSpec, ...], given: AssemblyInputs) -> FixedTokens:
    return FixedTokens(
        system=text_tokens_json(system, given.counter) + REQUEST_TOKENS,
        tools=tools_tokens([spec.definition() for spec in tools], given.counter) if tools else 0,
    )


def _shown(fitted: FitResult, event: tuple[Message, ...], front: Preamble) -> tuple[History, tuple[Message, ...]]:
    current = fitted.visible[fitted.closing_count :]
    answers = any(message.role == "tool" for message in event)
    if not current or not (answers or any(_says(part) for message in event for part in message.parts)):
        what = "its tool results answer no open call" if answers else "it has no text, no image and no attached file"
        raise EmptyEvent(f"there is nothing to show for this event: {what}. Nothing was sent")
    history = fitted.window.view(fitted.visible[: fitted.closing_count], fitted.closing_tokens)
    if front.messages:
        opening, tokens = (*front.messages, *history.opening), history.tokens + front.fixed.preamble
        history = replace(history, opening=opening, tokens=tokens)
    return history, current


def _says(part: Part) -> bool:
    if isinstance(part, Note):
        return part.origin.startswith(ATTACHED)
    return bool(part.text.strip()) if isinstance(part, Text) else isinstance(part, Image)


def _injected(request: Request, blocks: list[Block], given: AssemblyInputs) -> dict[str, Any]:
    """What the system slot was made of."""
    shown = any(block.source == ENVIRONMENT for block in blocks)
    found, names = given.source_context.environment.environment if shown else None, request.permissions.capabilities
    told = found if found is None or names is None else found.scoped(names)
    return of_system(blocks, request.identity.persona, told, given.last_manifest)


def _once(*told: Iterable[ContextWarning]) -> tuple[ContextWarning, ...]:
    """All of it in order; what two sources say alike, as that there is no such time zone, stands once."""
    return tuple(dict.fromkeys(chain.from_iterable(told)))


def _warned(model: Model, tools: tuple[ToolSpec, ...], fitted: FitResult) -> tuple[ContextWarning, ...]:
    return (*_shortened(fitted), *_model_warning(model), *_no_tools(tools, fitted))


def _shortened(fitted: FitResult) -> tuple[ContextWarning, ...]:
    """A word about results of this event that are too large to be shown whole."""
    if not fitted.truncated_results:
        return ()
    limit = fitted.window.limits.limit(fitted.window.head + 1)
    text = f"{fitted.truncated_results} results of this event are shown in at most {limit:,} tokens each; the ledger has the whole"
    return (ContextWarning("nexus:event", text),)


def _model_warning(model: Model) -> tuple[ContextWarning, ...]:
    return (ContextWarning("nexus:model", model.warning),) if model.warning else ()


def _no_tools(tools: tuple[ToolSpec, ...], fitted: FitResult) -> tuple[ContextWarning, ...]:
    if tools or not fitted.window.fold.used:
        return ()
    text = "the history has tool calls, but no tools are given: some providers refuse such a request. Pass tools=…"
    return (ContextWarning("nexus:tools", text),)


def _room(available: int, factor: float) -> int:
    """The available tokens as base tokens."""
    return available if factor == 1 else int((available - KEPT_BACK) / factor)
