"""One call's context: gather → fit → build.

Assembly calls no model and writes nothing. Everything from outside is passed in: the sources by name, the window that
the ledger filled, the last manifest, the time. A cut is a value in the result; recording the turn stores it.
"""

from __future__ import annotations

from dataclasses import replace

from nexus.assembly.build import build_context, compaction_planner
from nexus.assembly.fit.choose import choose_fit, with_content_factor
from nexus.assembly.fit.result import FitResult
from nexus.assembly.gather import check_event_size, gather_current, gather_system
from nexus.assembly.inputs import AssemblyInputs
from nexus.context import AssembledContext
from nexus.types.compaction_plan import CompactionPlan, Trigger
from nexus.types.profile import Profile
from nexus.types.request import Request


def assemble(request: Request, profile: Profile, inputs: AssemblyInputs) -> AssembledContext:
    """Return the context for a request. Raises BudgetTooSmall, BadEvent."""
    return assemble_fitted(request, profile, inputs)[0]


def assemble_fitted(request: Request, profile: Profile, inputs: AssemblyInputs) -> tuple[AssembledContext, FitResult]:
    """Return the context for a request, and the result of fitting. Raises BudgetTooSmall, BadEvent."""
    system = gather_system(request, profile, inputs)
    check_event_size(request.event, inputs.scale, system)
    notes, warnings = gather_current(request, profile, inputs, system.blocks)
    chosen = choose_fit(request, profile, inputs, system, notes)
    inputs = replace(inputs, scale=chosen.scale)
    return build_context(request, profile, inputs, system, chosen, warnings), chosen.result


def plan_compaction_for(
    request: Request, profile: Profile, inputs: AssemblyInputs, trigger: Trigger, share: float
) -> CompactionPlan | None:
    """Return the plan of a compaction before an event, None if it is not worth it.

    In formats that show one turn there is none: the messages before it take few tokens already.
    """
    if inputs.view.message_format.memory is not None:
        return None
    system = gather_system(request, profile, inputs)
    inputs = replace(inputs, scale=with_content_factor(inputs.scale, inputs.window, system))
    return compaction_planner(request, inputs, system.fixed.total, system.fixed.total)(trigger, share)
