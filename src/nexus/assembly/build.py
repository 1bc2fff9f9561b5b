"""Construction of the assembled context from the gathered blocks and the fitted window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from nexus.assembly.fit.choose import ChosenFit
from nexus.assembly.fit.compaction_plan import Aim, plan_compaction
from nexus.assembly.fit.cut_history import KEEP_USER_TURNS
from nexus.assembly.fit.result import FitResult
from nexus.assembly.fit.truncate_results import describe_image
from nexus.assembly.fit.window import Window
from nexus.assembly.gather import SystemPrompt
from nexus.assembly.inputs import AssemblyInputs
from nexus.assembly.manifest import build_manifest, prefix_report
from nexus.assembly.sent_messages import sent_messages
from nexus.assembly.token_report import budget_with_usage, token_lines
from nexus.context import Accounting, AssembledContext, EngineState, Planner, Provenance, RepairReport, StoredEvent
from nexus.errors import BadEvent
from nexus.providers.openai import NAME_CHANGED, has_changed_name
from nexus.providers.settings import translate_settings
from nexus.providers.tools import tool_problems
from nexus.text.as_received import received_format
from nexus.text.message_text import unsendable_kind
from nexus.tokens.calibration import anchor_of
from nexus.tokens.image_limits import ImageLimits
from nexus.tokens.image_price import sent_images
from nexus.tokens.model import Model
from nexus.types.block import Block, ContextWarning
from nexus.types.compaction_plan import CompactionPlan, Trigger
from nexus.types.environment import ORIGIN as ENVIRONMENT
from nexus.types.history import History
from nexus.types.ledger_entries import TurnPosition
from nexus.types.message import ATTACHED, Image, Message, Note, Part, Text, Unknown
from nexus.types.profile import Profile
from nexus.types.request import TOOLS_ORIGIN, Event, Request, system_record
from nexus.workspace.sendable_images import sendable_image


def build_context(
    request: Request,
    profile: Profile,
    inputs: AssemblyInputs,
    system: SystemPrompt,
    chosen: ChosenFit,
    current_warnings: Iterable[ContextWarning],
) -> AssembledContext:
    """Return the context of a call. Raises BadEvent."""
    preamble, notes, result = chosen.preamble, chosen.current, chosen.result
    history, current = _history_and_current(chosen)
    scale = inputs.scale
    model = scale.model
    session = inputs.session
    settings, problems = translate_settings(request.settings.model_config, model, model.provider_format, system.tools)
    manifest = build_manifest(request, profile, inputs, system, chosen, settings)
    return AssembledContext(
        system_prompt=system.text,
        history=history,
        current=current,
        event=chosen.event,
        tools=system.tools,
        model=request.settings.model or model.name,
        provider=model.provider,
        model_config=dict(request.settings.model_config),
        token_budget=budget_with_usage(scale, preamble.fixed, result),
        session_label=session.label or request.session,
        parent_turn_id=f"{session.thread}.{turn}" if (turn := result.window.path.turn) else None,
        role=request.settings.role,
        toolset_name=request.settings.toolset,
        permissions_granted=request.settings.permissions,
        source_event_id=request.event.id or None,
        workspace_path=inputs.workspace,
        accounting=Accounting(
            model_info=model,
            prefix=prefix_report(inputs, manifest, system, chosen),
            token_breakdown=token_lines(system, chosen),
            full_share=result.whole_tokens / scale.available,
            anchor=anchor_of(inputs.last.manifest, manifest, scale.factor),
        ),
        provenance=Provenance(
            manifest=manifest,
            starts_turn=_starts_turn(request.event, inputs.stored_event, result.window),
            stored_event=inputs.stored_event,
            mirrored=inputs.mirrored.place,
            memory=inputs.view.message_format.memory,
            blocks=(*system.blocks, *preamble.blocks, *notes.included),
            already_in_history=tuple(notes.already_in_history),
            omitted_blocks=tuple(notes.omitted),
            covered_by_blocks=preamble.covered,
            denied_tools=inputs.denied_tools,
            tool_definitions=request.tools,
            settings=request.settings,
            context_json=_context_json(request, system.blocks, inputs),
            request=request,
        ),
        cut=result.cut,
        warnings=_distinct(
            inputs.source_context.workspace.warnings,
            inputs.warnings,
            system.warnings,
            current_warnings,
            preamble.warnings,
            _request_warnings(problems, system, model),
            (ContextWarning(n.source, "omitted from this call: it does not fit the budget") for n in notes.omitted),
            _fit_warnings(chosen, model, inputs.view.image_limits, has_tools=bool(system.tools)),
        ),
        repairs=_repairs(result, model),
        _engine=EngineState(
            renderers=inputs.renderers,
            planner=_planner(request, inputs, preamble.fixed.total, manifest.base - result.window.tokens),
            sent_messages=partial(sent_messages, chosen, history, current, inputs.stored_event, _own_formats(model)),
            plain_text=inputs.view.message_format.plain_text,
            position=_position(session.thread, result.window),
            compact_at=profile.compact_at,
            compact_to=profile.compact_to,
            cut_windows=(inputs.window, result.window) if result.cut else None,
        ),
    )


def _repairs(result: FitResult, model: Model) -> RepairReport:
    """Return the changes that made messages and names in them valid, and those that the number of images made."""
    images = result.images
    is_chat = model.provider_format == "openai"
    names = Counter({NAME_CHANGED: sum(map(has_changed_name, result.visible)) if is_chat else 0})
    limited = Counter(
        {
            "image shown as a note because of the provider's limit": images.notes,
            "image shrunk because there are many": sum(image.is_large for image in images.images[images.notes :]),
        }
    )
    return RepairReport(dict(+(result.window.fold.changes + Counter(result.repairs) + limited + names)))


def _request_warnings(problems: Iterable[str], system: SystemPrompt, model: Model) -> Iterator[ContextWarning]:
    """Yield the warnings about settings, with these problems, and about tools."""
    yield from (ContextWarning("nexus:settings", problem) for problem in problems)
    yield from (ContextWarning(TOOLS_ORIGIN, problem) for problem in tool_problems(system.tools, model))


def _starts_turn(event: Event, stored: StoredEvent | None, window: Window) -> bool:
    """Return whether the event starts a turn; late results may have none."""
    if stored is not None:
        return stored.starts_turn
    return not event.results or not window.path.turn


def _position(thread: int, window: Window) -> TurnPosition | None:
    """Return the newest entry of the history; None for a new session."""
    if thread:
        return TurnPosition(thread, window.head, window.path.turn)
    return None


def _planner(request: Request, inputs: AssemblyInputs, fixed_tokens: int, other_tokens: int) -> Planner | None:
    """Return the planner of a context that may be compacted."""
    if inputs.session.may_compact and inputs.view.message_format.memory is None:
        return compaction_planner(request, inputs, fixed_tokens, other_tokens)
    return None


def compaction_planner(request: Request, inputs: AssemblyInputs, fixed_tokens: int, other_tokens: int) -> Planner:
    """Return a planner for the window. `other_tokens` are the base tokens of everything else.

    `fixed_tokens` are those of system prompt, tools and preamble alone, without the event.

    The plan is made only on request, because it reads every message.
    """

    def plan(trigger: Trigger, share: float) -> CompactionPlan | None:
        view = inputs.view
        keeps_user_turns = view.strategy in KEEP_USER_TURNS
        aim = Aim(request.session, view.name, inputs.scale, share, trigger, keeps_user_turns=keeps_user_turns)
        return plan_compaction(inputs.window, fixed_tokens, other_tokens, aim, inputs.session)

    return plan


def _history_and_current(chosen: ChosenFit) -> tuple[History, tuple[Message, ...]]:
    result = chosen.result
    event = chosen.event
    preamble = chosen.preamble
    visible = result.visible
    count = result.closing_count
    if result.images.images:
        first = len(result.window.opening.messages) + len(result.window.messages)
        visible = tuple(result.images.applied_to(visible, first))
    closing = visible[:count]
    current = visible[count:]
    answers = any(message.role == "tool" for message in event)
    if not current or not (answers or any(_has_content(part) for message in event for part in message.parts)):
        reason = "it has no text, no image and no attached file"
        if answers:
            reason = "its tool results answer no open call"
        raise BadEvent(
            f"event is empty: {reason}; nothing was sent (pass text, an image or results of open calls)",
            code="empty_event",
        )
    history = _with_limited_images(result.window.history(closing, result.closing_tokens), result)
    if preamble.messages:
        opening = (*preamble.messages, *history.opening)
        tokens = history.tokens + preamble.fixed.preamble
        history = replace(history, opening=opening, tokens=tokens)
    return history, current


def _with_limited_images(history: History, result: FitResult) -> History:
    """Return the history after the changes that the number of the request's images makes."""
    images = result.images
    window = result.window
    if not images.images:
        return history
    key = images.edge_px, images.notes
    # A later call with the same changes extends these fragments.
    fragments = window.caches.limited_fragments.get(key)
    if fragments is None:
        fragments = {}
        window.caches.limited_fragments = {key: fragments}
    opening = tuple(images.applied_to(history.opening, 0))
    shared = images.applied_to(window.messages[: history.end], len(opening))
    return replace(history, opening=opening, shared=shared, fragments=fragments)


def _own_formats(model: Model) -> tuple[str, ...]:
    """Return the formats of the model's provider."""
    if model.provider_format == "openai":
        return ("openai", "responses")
    return (model.provider_format,)


def _has_content(part: Part) -> bool:
    if isinstance(part, Note):
        return part.origin.startswith(ATTACHED)
    if isinstance(part, Text):
        return bool(part.text.strip())
    return isinstance(part, (Image, Unknown))


def _context_json(request: Request, blocks: list[Block], inputs: AssemblyInputs) -> dict[str, Any]:
    """Return the record of the system prompt's parts."""
    environment = None
    names = request.settings.capabilities
    if any(block.source == ENVIRONMENT for block in blocks):
        environment = inputs.source_context.environment.environment
        if environment is not None and names is not None:
            environment = environment.scoped(names)
    last = inputs.last.manifest
    previous = last.context_json if last is not None else {}
    return system_record(blocks, request.settings.persona, environment, previous)


def _distinct(*warnings: Iterable[ContextWarning]) -> tuple[ContextWarning, ...]:
    """Return all warnings in order, each once: two sources may report the same, as an unknown time zone."""
    return tuple(dict.fromkeys(chain.from_iterable(warnings)))


def _fit_warnings(
    chosen: ChosenFit, model: Model, limits: ImageLimits | None, *, has_tools: bool
) -> list[ContextWarning]:
    """Return the warnings about truncated results of the event, the model, and missing tools."""
    warnings: list[ContextWarning] = []
    result = chosen.result
    # In the format that a message was received in, its parts of unknown kinds are sent.
    own_formats = _own_formats(model)
    for image in (image for message in chosen.event for image in sent_images(message)):
        sendable = image
        if limits is not None:
            sendable = sendable_image(image, limits)
        if isinstance(sendable, str):
            text = f"{describe_image(image)} shown as a note: {sendable}"
            warnings.append(ContextWarning("nexus:event", text))
    noted = [message for message in chosen.event if received_format(message) not in own_formats]
    kinds = dict.fromkeys(unsendable_kind(part) for message in noted for part in message.parts)
    for kind in filter(None, kinds):
        text = f"{kind} shown as a note: it cannot be sent (pass its text, or an image as data)"
        warnings.append(ContextWarning("nexus:event", text))
    if result.truncated_results:
        limit = result.window.rules.limits.limit(result.window.head + 1)
        number = result.truncated_results
        count, each = ("1 tool result", "") if number == 1 else (f"{number} tool results", " each")
        text = f"{count} truncated to {limit:,} tokens{each}; the ledger keeps the full text"
        warnings.append(ContextWarning("nexus:event", text))
    if model.warning:
        warnings.append(ContextWarning("nexus:model", model.warning))
    if result.window.fold.used_ids.counts and not has_tools:
        text = "no tools passed, but the history has tool calls; some providers reject such requests (pass tools=…)"
        warnings.append(ContextWarning("nexus:tools", text))
    return warnings
