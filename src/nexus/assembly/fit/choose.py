"""Choice of optional parts that fit: the earlier entries of the preamble, the notes of the current message.

The preamble reports fewer earlier entries before anything else is cut. Then memory that was never sent is omitted. Memory
that the history shows is not repeated; a cut removes it with the messages that it leaves out, and it stays away as long as
they do. System prompt, tools, event and last group are never omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeGuard

from msgspec import structs

from nexus.assembly.fit.cut_history import LEAST_HISTORY, CutContext, fit
from nexus.assembly.fit.result import FitResult, FixedTokens, total_tokens, with_event
from nexus.assembly.fit.window import Window
from nexus.assembly.gather import REQUEST_TOKENS, SystemPrompt, event_messages, gather_slot, preamble_messages
from nexus.assembly.inputs import AssemblyInputs
from nexus.errors import BudgetTooSmall
from nexus.tokens.content import MeasuredContent, content_factor
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.scale import TokenScale
from nexus.types.block import PREAMBLE, Block, ContextWarning
from nexus.types.history import OLDER_ENTRIES, PreviousTurns
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message
from nexus.types.profile import Profile
from nexus.types.request import Request

MOST_REFITS = 3
"""Repeated fits because what a cut leaves takes more tokens, counted by itself, than as a part of the whole history."""


@dataclass(frozen=True, slots=True)
class CurrentBlocks:
    """The blocks of the current message, by what became of them."""

    included: list[Block]
    already_in_history: list[Block]
    omitted: list[Block]


@dataclass(frozen=True, slots=True)
class Preamble:
    """The blocks between the system prompt and the conversation, as messages."""

    blocks: list[Block]
    messages: tuple[Message, ...]

    fixed: FixedTokens
    """Base tokens of system prompt, tools and preamble."""

    warnings: list[ContextWarning]

    entries: int
    """Number of earlier entries that the blocks report."""

    covered: frozenset[MessageRef]
    """Positions of the messages in these entries."""


@dataclass(frozen=True, slots=True)
class ChosenFit:
    """The parts of a context that fit the budget together."""

    scale: TokenScale
    """With the factor of this content."""

    preamble: Preamble
    current: CurrentBlocks

    event: tuple[Message, ...]
    """The event as it will be stored."""

    result: FitResult


def choose_fit(
    request: Request, profile: Profile, inputs: AssemblyInputs, system: SystemPrompt, notes: list[Block]
) -> ChosenFit:
    """Return the first choice that fits with the most earlier entries. Raises BudgetTooSmall."""
    message_format = inputs.view.message_format
    previous = inputs.source_context.previous_turns
    stored = inputs.stored_event
    last = inputs.last.manifest
    if stored is not None:
        continues_turn = not stored.starts_turn
    else:
        continues_turn = bool(request.event.results)
    *_, smallest = limits = message_format.entry_limits(previous, last.entries if continues_turn and last else None)
    for limit in limits:
        reported = structs.replace(previous, max_entries=limit)
        preamble = _gather_preamble(profile, inputs, system, reported)
        try:
            chosen = _choose_notes(request, profile, inputs, system, preamble, notes)
        except BudgetTooSmall:
            if limit == smallest:
                raise
            continue
        result = chosen.result
        if result.cut is None or continues_turn or limit == smallest:
            eviction = message_format.plan_eviction(reported, result.window, inputs.view, inputs.cut_number)
            current = result.cut or result.window.cut
            # In a replay the window has this call's cut already; a call makes no more than one. A cut of the open turn
            # stays in force: the call is shown under it, and the next turn evicts.
            if eviction is None or (
                current is not None and (current.at_seq == result.window.head or current.reason != OLDER_ENTRIES)
            ):
                return chosen
            window = replace(result.window, cut=eviction)
            return replace(chosen, result=structs.replace(result, cut=eviction, window=window))
    raise AssertionError("the smallest limit fits or raises")


def with_content_factor(
    scale: TokenScale,
    window: Window,
    system: SystemPrompt,
    preamble: Preamble | None = None,
    result: FitResult | None = None,
) -> TokenScale:
    """Return the scale with the factor of a prompt's content, unless the factor does not depend on it.

    `result` is the window with the event; by default the prompt is the history alone.
    """
    rates = scale.model.content
    wire = window.rules.wire
    if scale.correction is None or rates is None:
        return scale
    fixed = preamble.fixed if preamble else system.fixed
    content = _measured_history(window).copy()
    content.add_text([system.text], fixed.system - REQUEST_TOKENS)
    if preamble:
        content.add_messages(preamble.messages, fixed.preamble, wire)
    if result:
        content.add_messages(result.visible, result.closing_tokens + result.current_tokens, wire)
    if result:
        base = total_tokens(result, fixed)
    else:
        base = fixed.total + window.tokens
    factor = content_factor(content, base, fixed.tools, rates, scale.model.token_factor)
    return replace(scale, factor=factor * scale.correction, content_factor=factor)


def _measured_history(window: Window) -> MeasuredContent:
    """Return the content of a window's opening and messages. Only messages that were added since are measured."""
    wire = window.rules.wire
    if window.caches.content is None:
        window.caches.content = MeasuredContent()
        window.caches.content.add_messages(window.opening.messages, window.opening.tokens, wire)
    for index in range(window.caches.content.history_messages, len(window.messages)):
        window.caches.content.add_messages((window.messages[index],), window.sums[index + 1] - window.sums[index], wire)
    window.caches.content.history_messages = len(window.messages)
    return window.caches.content


def _gather_preamble(
    profile: Profile, inputs: AssemblyInputs, system: SystemPrompt, previous: PreviousTurns
) -> Preamble:
    context = replace(inputs.source_context, previous_turns=previous)
    blocks, warnings = gather_slot(
        profile.preamble, PREAMBLE, profile, inputs, source_context=context, previous=system.blocks
    )
    messages = preamble_messages(blocks)
    counter = inputs.scale.counter
    tokens = sum(message_tokens(message, counter).on(inputs.view.provider_format) for message in messages)
    fixed = structs.replace(system.fixed, preamble=tokens)
    entries, covered = inputs.view.message_format.covered_messages(previous)
    return Preamble(blocks, messages, fixed, warnings, entries, covered)


def _choose_notes(
    request: Request,
    profile: Profile,
    inputs: AssemblyInputs,
    system: SystemPrompt,
    preamble: Preamble,
    notes: list[Block],
) -> ChosenFit:
    """Return the fit with the notes that the history lacks; without new memory if that saves messages.

    Raises BudgetTooSmall, in provider tokens.
    """
    window = inputs.window
    scale = inputs.scale
    last = inputs.last.manifest
    share = profile.share("Session")
    context = CutContext(
        request.session,
        inputs.view.name,
        inputs.cut_number,
        inputs.session.mark,
        # A format that shows one turn reports the others in blocks.
        "oldest_first" if inputs.view.message_format.memory is not None else inputs.view.strategy,
        share.floor or LEAST_HISTORY,
        share.ceiling,
        inputs.view.image_turns,
        keeps_fitting=inputs.mirrored.place is not None,
        rewrites_prefix=last is None or last.mark != inputs.session.mark_seq,
    )
    repeated = [note for note in notes if window.memory.get(note.source) == note.text]
    memory = [note for note in notes if note.layer == "Memory"]
    unsent = [note for note in memory if note not in repeated]

    def fitted(choice: CurrentBlocks) -> ChosenFit | BudgetTooSmall:
        event = event_messages(request.event, choice.included, inputs.source_context.at_ms)
        visible = window.rules.path_format.event(event, window.head, request.settings.principal)
        uncut_result = with_event(window, visible, scale.counter, None)

        def within(available: int) -> FitResult:
            return fit(uncut_result, available, preamble.fixed, context, scale.counter, visible)

        def measured(result: FitResult) -> TokenScale:
            return with_content_factor(scale, result.window, system, preamble, result)

        scaled = measured(uncut_result)
        try:
            scaled, result = _fit_as_counted(scaled, within, measured)
        except BudgetTooSmall as error:
            least_fit = _least_fit(error, within)
            if least_fit:
                scaled = max(scaled, measured(least_fit), key=attrgetter("factor"))
            if least_fit is None or total_tokens(least_fit, preamble.fixed) > scaled.available:
                return scaled.scaled(error)
            result = within(scaled.available)
        return ChosenFit(scaled, preamble, choice, event, result)

    # The history as it is: with everything that it lacks, then without memory that was never sent. Memory stays away
    # while messages are left out.
    missing = [note for note in notes if note not in repeated]
    if not (unsent and window.cut is not None and window.cut.omitted_messages):
        chosen = fitted(CurrentBlocks(missing, repeated, []))
        if _is_enough(chosen, repeated) or not (memory or repeated):
            return _fit_of(chosen)
    if unsent:
        chosen = fitted(CurrentBlocks([note for note in missing if note not in unsent], repeated, unsent))
        if _is_enough(chosen, repeated) or not repeated:
            return _fit_of(chosen)
    # A cut takes memory notes out of the history, and no message leaves to make room for them.
    return _fit_of(fitted(CurrentBlocks([note for note in notes if note not in memory], [], memory)))


def _fit_as_counted(
    scaled: TokenScale, within: Callable[[int], FitResult], measured: Callable[[FitResult], TokenScale]
) -> tuple[TokenScale, FitResult]:
    """Return the fit, and the scale by which it was made.

    The messages behind a cut may take more tokens for each base token than the whole history; then the cut is made again.
    Where they take fewer, the larger count stays. Raises BudgetTooSmall, in base tokens.
    """
    result = within(scaled.available)
    for _ in range(MOST_REFITS):
        if result.cut is None or (counted := measured(result)).factor <= scaled.factor:
            break
        scaled = counted
        result = within(counted.available)
    return scaled, result


def _least_fit(error: BudgetTooSmall, within: Callable[[int], FitResult]) -> FitResult | None:
    """Return the fit without any optional messages, for an error in base tokens; None if its size is not known."""
    with suppress(BudgetTooSmall):
        return within(error.needed_tokens)
    return None


def _fit_of(chosen: ChosenFit | BudgetTooSmall) -> ChosenFit:
    """Return a fit. Raises BudgetTooSmall instead of returning it."""
    if isinstance(chosen, BudgetTooSmall):
        raise chosen
    return chosen


def _is_enough(chosen: ChosenFit | BudgetTooSmall, repeated: list[Block]) -> TypeGuard[ChosenFit]:
    """Return True if the history fits without omitting messages, or memory notes that the current message lacks."""
    if isinstance(chosen, BudgetTooSmall):
        return False
    cut = chosen.result.cut
    return cut is None or (cut.reason != "over budget" and not repeated)
