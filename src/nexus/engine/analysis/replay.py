"""Replay of recorded calls from the ledger alone, verified by the hash of the body that was sent.

The ledger contains the history up to the call's head with its cuts, checkpoints and pins; all other inputs were
stored by hash (`nexus.assembly.manifest_store`). A replay runs through the same assembly as the original call. Later
undos, compactions and forks do not affect it; missing parts are listed, never invented.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.assemble import assemble_fitted
from nexus.assembly.continuity import history_header
from nexus.assembly.fit.lookup import lookup_with
from nexus.assembly.fit.result import FitResult
from nexus.assembly.fit.view import build_view
from nexus.assembly.formats.protocol import View
from nexus.assembly.formats.registry import FORMATS, find_format
from nexus.assembly.inputs import plan_budget
from nexus.assembly.manifest_store import parse_stored_manifest, with_stored_fields, with_stored_meta
from nexus.context import AssembledContext
from nexus.engine.analysis.diff import Difference, Side, diff_prompts
from nexus.engine.analysis.explain import Explanation, explain
from nexus.engine.analysis.recorded_inputs import RecordedCallInputs, ReplayDeps, stored_block
from nexus.errors import CannotReplay, NexusError
from nexus.ledger import replay
from nexus.ledger.recorded_calls import RecordedCall
from nexus.policy.authorization import AuthorizedRequest
from nexus.text.frames import MARKS_VERSION
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.image_limits import image_limits
from nexus.tokens.image_price import image_price
from nexus.tokens.model import resolve
from nexus.types.block import ContextWarning
from nexus.types.ledger_entries import Cut, Entry
from nexus.types.message import ATTACHED, Note
from nexus.types.profile import STORED_NOTES, MessageFormatName, Profile
from nexus.types.request import Event, Request
from nexus.types.settings import Strategy
from nexus.workspace.source_context import SourceContext


class ReplayOverrides(Struct, frozen=True):
    """Overrides for replaying a past call. Unset fields keep the recorded values."""

    model: str = ""
    budget: int | None = None
    profile: str = ""
    strategy: Strategy | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    """All tools of the call; () is none."""
    event: Event | None = None
    skills: tuple[str, ...] | None = None
    """All active skills of the call; () is none."""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A replayed call."""

    inputs: RecordedCallInputs
    ctx: AssembledContext
    fitted: FitResult
    checkpoints: tuple[Entry, ...]
    """Checkpoints on the path up to the call, newest first."""
    missing: tuple[str, ...] = ()
    """Reasons why the replay is not verified."""

    @property
    def call(self) -> RecordedCall:
        """The call that was replayed."""
        return self.inputs.call


def replay_call(deps: ReplayDeps, call: RecordedCall, *, unverified: bool = False) -> ReplayedCall:
    """Replay a call as it was sent and verify the hash of its body; `unverified` turns reasons into warnings.

    Raises:
        CannotReplay: An input is missing, or the body's hash differs, unless `unverified` is set. A damaged manifest or
            event is always an error.
    """
    inputs = RecordedCallInputs(deps, call)
    replayed = _replay(inputs)
    missing = [*inputs.missing]
    recorded_hash = inputs.stored.body
    if not missing and not recorded_hash:
        missing.append("body hash not stored: the body had no JSON form")
    if not missing:
        # The context's own hash is the recorded one, so the body is rendered and hashed again.
        body = replayed.ctx.to_provider(replayed.ctx.accounting.model_info.provider_format)
        if hashlib.sha256(msgspec.json.encode(body)).hexdigest() != recorded_hash:
            recorded = inputs.manifest.get("render"), inputs.manifest.get("marks", 0)
            current = RENDER_VERSION, MARKS_VERSION
            versions = "recorded with renderer {}, frames {}; replayed with {}, {}"
            detail = ""
            if recorded != current:
                detail = f" ({versions.format(*recorded, *current)})"
            missing.append(f"body hash differs from the recorded one{detail}")
    if missing and not unverified:
        raise CannotReplay(call.label, missing)
    warnings = tuple(ContextWarning("nexus:replay", f"not verified: {reason}") for reason in missing)
    ctx = dataclasses.replace(replayed.ctx, warnings=(*replayed.ctx.warnings, *warnings))
    return dataclasses.replace(replayed, ctx=ctx, missing=tuple(missing))


def what_if(deps: ReplayDeps, call: RecordedCall, change: ReplayOverrides) -> ReplayedCall:
    """Assemble a recorded call's context with something changed. Nothing is written.

    Another profile or other skills read the workspace as it is now; everything else is as recorded. Other tools,
    profiles and skills must pass today's policies.

    Raises:
        CannotReplay: An input is missing.
        BudgetTooSmall, BadEvent, NotFound, NotAllowed, BadConfig, BadTool: The changed request is invalid.
    """
    inputs = RecordedCallInputs(deps, call)
    replayed = _assemble_changed(inputs, change)
    if inputs.missing:
        raise CannotReplay(call.label, inputs.missing)
    return replayed


def diff_calls(deps: ReplayDeps, old: ReplayedCall, new: ReplayedCall) -> Difference:
    """Return how a call's prompt follows another one's."""
    first, second = (
        Side(
            side.ctx,
            side.fitted,
            parse_stored_manifest({**side.call.row.manifest, "recorded_at": side.call.row.seq}),
            side.call.label,
        )
        for side in (old, new)
    )
    return diff_prompts(first, second, deps.stable_counter)


def cut_of_call(deps: ReplayDeps, call: RecordedCall) -> Cut | None:
    """Return the cut that a recorded call applied, or made; None without one."""
    inputs = RecordedCallInputs(deps, call)
    return inputs.stored.new_cut or inputs.cut_in_force()


def explain_call(deps: ReplayDeps, replayed: ReplayedCall) -> Explanation:
    """Explain every block, tool and message of a replayed call."""
    entries = replayed.inputs.history_entries(0)
    return explain(
        replayed.ctx, replayed.fitted, entries, replayed.checkpoints, deps.stable_counter, replayed.call.label
    )


def _replay(inputs: RecordedCallInputs) -> ReplayedCall:
    """Assemble a call as recorded."""
    model = inputs.settings.model
    counter = inputs.counter()
    view = View(
        inputs.view_name,
        model.provider_format,
        model.name,
        inputs.max_tool_result_tokens(),
        pin_first_message=bool(inputs.manifest.get("task", True)),
        images=inputs.image_price(),
        image_limits=inputs.stored.image_limits,
        message_format=FORMATS[inputs.message_format()],
        header=inputs.history_header(),
        render=inputs.stored.render,
        whole_new_results=bool(inputs.manifest.get("whole_new_results")),
        lookup=inputs.manifest.get("lookup", ""),
    )
    with inputs.deps.store.snapshot():
        entry = inputs.entry(inputs.call.row.seq)
        window = inputs.window(view, inputs.stored.new_cut or inputs.cut_in_force(), counter)
        event, notes = inputs.event(entry)
        request = inputs.request(entry, event)
        assembly_inputs = inputs.assembly_inputs(view, model, window, request)
        sources = inputs.sources([*notes, *inputs.already_in_history(window)])
        checkpoints = inputs.checkpoints()
    profile = stored_profile(request.settings.profile, inputs.message_format())
    try:
        ctx, fitted = assemble_fitted(
            request, profile, dataclasses.replace(assembly_inputs, sources=sources, tools=tuple(inputs.tools))
        )
    except NexusError as error:
        raise CannotReplay(inputs.call.label, (*inputs.missing, str(error))) from error
    omitted = tuple(stored_block(note, "") for note in inputs.stored.notes if note.state == "left out")
    ctx = with_stored_fields(ctx, inputs.stored, inputs.rows(entry))
    ctx = dataclasses.replace(ctx, provenance=dataclasses.replace(ctx.provenance, omitted_blocks=omitted))
    return ReplayedCall(inputs, ctx, fitted, tuple(checkpoints))


def _assemble_changed(inputs: RecordedCallInputs, change: ReplayOverrides) -> ReplayedCall:
    """Assemble a call with overrides, in the view that it then belongs to, with that view's earlier cuts."""
    deps = inputs.deps
    counter = inputs.counter()
    entry = inputs.entry(inputs.call.row.seq)
    event, notes = inputs.event(entry)
    same_sources = change.skills is None and change.profile in ("", inputs.manifest.get("profile"))
    # Formats that list the tools in a block need that block made again for other tools.
    same_sources = same_sources and (change.tools is None or not FORMATS[inputs.message_format()].lists_tools)
    if not same_sources:
        # Attached files are the user's: they stay with any profile.
        files = (Note("moment", block.text, block.source) for block in notes if block.source.startswith(ATTACHED))
        event = replace(event, content=(*files, *event.content))
    recorded_request = inputs.request(entry, change.event or event)
    authorized = _changed_request(inputs, recorded_request, change, same_sources=same_sources)
    request = authorized.request
    model = inputs.settings.model
    if change.model:
        model = resolve(change.model, deps.models).for_counter(deps.counter.name)
    with deps.store.snapshot():
        available = plan_budget(request, model).available
        profile = stored_profile(request.settings.profile, inputs.message_format())
        live_sources = None
        header = inputs.history_header()
        if not same_sources:
            profile, live_sources = deps.resolve_profile(request.settings.profile)
            # The header that this profile would have had at that time, in UTC.
            context = SourceContext(request, deps.workspace_context, request.event.at_ms, "")
            thread = inputs.call.thread if inputs.head else None
            mark = replay.live_checkpoints(inputs.checkpoints()).checkpoint
            header = history_header(profile, deps.store, thread, inputs.stored, mark, context)
        view = build_view(
            request.settings.profile,
            model,
            available,
            counter,
            change.strategy or deps.settings.strategy,
            deps.settings.max_tool_result_tokens,
            deps.workspace_context.config.images.keep_turns,
            message_format=find_format(profile.message_format),
        )
        view = replace(
            view,
            pin_first_message=bool(inputs.manifest.get("task", True)),
            images=image_price(model, inputs.token_factor(model)[0]),
            header=header,
            lookup=lookup_with(request.tools),
            image_limits=image_limits(model, deps.workspace_context.config.images),
        )
        # Only cuts made before the call: later ones are no part of its past.
        cuts = [cut for cut in deps.store.cuts(inputs.call.thread, view.name) if cut.at_seq < inputs.head]
        window = inputs.window(view, cuts[-1] if cuts else None, counter)
        assembly_inputs = dataclasses.replace(
            inputs.assembly_inputs(view, model, window, request),
            sources=inputs.sources([*notes, *inputs.already_in_history(window)]),
            denied_tools=authorized.denied_tools,
            warnings=authorized.warnings,
        )
        checkpoints = inputs.checkpoints()
    # Recorded blocks contain the recorded system prompt; today's default of the engine is no part of the call.
    system = ""
    if live_sources is not None:
        system = inputs.system_text()
    request = replace(request, settings=replace(request.settings, system=system))
    if live_sources is not None:
        context = dataclasses.replace(assembly_inputs.source_context, environment=deps.survey())
        assembly_inputs = dataclasses.replace(assembly_inputs, sources=live_sources, source_context=context)
    ctx, fitted = assemble_fitted(request, profile, assembly_inputs)
    if change.event is None:
        ctx = with_stored_meta(ctx, inputs.stored, inputs.rows(entry))
    return ReplayedCall(inputs, ctx, fitted, tuple(checkpoints))


def _changed_request(
    inputs: RecordedCallInputs, request: Request, change: ReplayOverrides, *, same_sources: bool
) -> AuthorizedRequest:
    """Return the request with overrides. If sources or tools change, it must pass today's policies."""
    settings = replace(
        request.settings,
        model=change.model or request.settings.model,
        budget=change.budget or request.settings.budget,
        profile=change.profile or request.settings.profile,
    )
    request = replace(request, settings=settings)
    if same_sources and change.tools is None:
        return AuthorizedRequest(request, inputs.denied_tools)
    tools = change.tools
    if tools is None:
        tools = (*request.tools, *(tool.definition for tool in inputs.denied_tools))
    if change.skills is None:
        skills = inputs.active_skills()
    else:
        skills = change.skills
    return inputs.deps.authorize(replace(request, tools=tools, settings=replace(settings, skills=skills)))


def stored_profile(name: str, message_format: MessageFormatName) -> Profile:
    """Return a profile whose sources are those of `RecordedCallInputs.sources`."""
    return Profile(name, "", ("blocks",), (STORED_NOTES,), preamble=("preamble",), message_format=message_format)
