"""One call's context: gather → fit → build.

Assembly calls no model and writes nothing. Everything from outside is passed in: the sources by name, the window that
the ledger filled, the last manifest, the time. A cut is a value in the result; recording the turn stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nexus.assembly.build import build_context, compaction_planner
from nexus.assembly.fit.choose import choose_fit
from nexus.assembly.fit.result import FitResult
from nexus.assembly.gather import REQUEST_TOKENS, SystemPrompt, event_messages, gather_current, gather_system
from nexus.assembly.inputs import AssemblyInputs
from nexus.context import AssembledContext
from nexus.tokens.content import SAMPLED_MESSAGES, MeasuredPrompt, content_factor
from nexus.tokens.measure import message_tokens
from nexus.types.compaction_plan import CompactionPlan, Trigger
from nexus.types.message import Message
from nexus.types.profile import Profile
from nexus.types.request import Request


def assemble(request: Request, profile: Profile, inputs: AssemblyInputs) -> AssembledContext:
    """Return the context for a request. Raises BudgetTooSmall, EmptyEvent."""
    return assemble_fitted(request, profile, inputs)[0]


def assemble_fitted(request: Request, profile: Profile, inputs: AssemblyInputs) -> tuple[AssembledContext, FitResult]:
    """Return the context for a request, and the result of fitting. Raises BudgetTooSmall, EmptyEvent."""
    system = gather_system(request, profile, inputs)
    notes, warnings = gather_current(request, profile, inputs, system.blocks)
    inputs = _with_content_factor(inputs, system, event_messages(request.event, notes, inputs.source_context.at_ms))
    chosen = choose_fit(request, profile, inputs, system, notes)
    return build_context(request, profile, inputs, system, chosen, warnings), chosen.result


def plan_compaction_for(
    request: Request, profile: Profile, inputs: AssemblyInputs, trigger: Trigger, share: float
) -> CompactionPlan | None:
    """Return the plan of a compaction before an event, None if it is not worth it.

    In formats that show one turn there is none: the messages before it take few tokens already.
    """
    if inputs.view.message_format.shows_one_turn:
        return None
    system = gather_system(request, profile, inputs)
    inputs = _with_content_factor(inputs, system, ())
    return compaction_planner(request, inputs, system.fixed.total)(trigger, share)


def _with_content_factor(inputs: AssemblyInputs, system: SystemPrompt, event: Sequence[Message]) -> AssemblyInputs:
    """Return the inputs with the factor of the prompt's content, unless another is given."""
    if inputs.content_rates is None:
        return inputs
    window, wire = inputs.window, inputs.view.provider_format
    first = max(len(window.messages) - SAMPLED_MESSAGES, 0)
    newest = [
        (message, window.sums[index + 1] - window.sums[index])
        for index, message in enumerate(window.messages[first:], first)
    ]
    sizes = [message_tokens(message, inputs.counter) for message in event]
    current = [(message, size.on(wire) + size.optional) for message, size in zip(event, sizes, strict=True)]
    prompt = MeasuredPrompt(
        REQUEST_TOKENS,
        system.text,
        system.fixed.system - REQUEST_TOKENS,
        system.fixed.tools,
        newest + current,
        window.tokens - sum(tokens for _, tokens in newest),
    )
    return replace(inputs, factor=content_factor(prompt, inputs.content_rates, inputs.model.token_factor, wire))
