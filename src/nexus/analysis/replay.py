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

from nexus.analysis.diff import Difference, Side, diff_prompts
from nexus.analysis.explain import Explanation, explain
from nexus.analysis.recorded_inputs import RecordedCallInputs, ReplayDeps, block_of
from nexus.assembly.assemble import assemble_fitted
from nexus.assembly.continuity import history_header
from nexus.assembly.fit.cut import FitResult, Strategy
from nexus.assembly.fit.view import View, build_view
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.inputs import plan_budget
from nexus.assembly.manifest_store import parse_stored_manifest, with_stored_fields, with_stored_meta
from nexus.context import AssembledContext
from nexus.errors import CannotReplay, NexusError
from nexus.ledger import replay
from nexus.ledger.recorded_calls import RecordedCall
from nexus.policy.authorization import AuthorizedRequest
from nexus.text.frames import MARKS_VERSION
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.image_price import image_price
from nexus.tokens.model import resolve
from nexus.types.block import Block, ContextWarning
from nexus.types.history import HistoryHeader
from nexus.types.ledger_entries import Entry
from nexus.types.message import ATTACHED, Note
from nexus.types.profile import STORED_NOTES, MessageFormatName, Profile
from nexus.types.request import Event, Request
from nexus.workspace.source_context import SourceContext


class ReplayOverrides(Struct, frozen=True):
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
class ReplayedCall:
    """A past call made again. `missing` says what it could not be made from, or how it differs; empty: it is proven.

    `fitted` has the window that is shown; `marks` are the path's up to the call, newest first.
    """

    call: RecordedCall
    ctx: AssembledContext
    fitted: FitResult
    marks: tuple[Entry, ...]
    missing: tuple[str, ...] = ()


def replay_call(deps: ReplayDeps, call: RecordedCall, *, unverified: bool = False) -> ReplayedCall:
    """The call as it was sent, proven by its hash.

    Raises CannotReplay where it cannot be proven, unless `unproven`: then it is as near as the ledger allows, and the
    context's warnings say what is missing.
    """
    past = RecordedCallInputs(deps, call)
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
    if missing and not unverified:
        raise CannotReplay(call.label, missing)
    warned = tuple(ContextWarning("nexus:replay", f"not proven: {what}") for what in missing)
    ctx = dataclasses.replace(made.ctx, warnings=(*made.ctx.warnings, *warned))
    return dataclasses.replace(made, ctx=ctx, missing=tuple(missing))


def what_if(deps: ReplayDeps, call: RecordedCall, change: ReplayOverrides) -> ReplayedCall:
    """The context that the call's event would get at its place with something changed. Nothing is written.

    Another profile, or other skills, read the workspace as it is now; all else is as it was. Other tools, profiles and
    skills are admitted as a new call's are, by the policies of now. Raises BudgetTooSmall, EmptyEvent, UnknownProfile,
    NotAllowed, BadPolicy, BadTool, CannotReplay.
    """
    past = RecordedCallInputs(deps, call)
    made = _changed(past, change)
    if past.missing:
        raise CannotReplay(call.label, past.missing)
    return made


def diff_calls(deps: ReplayDeps, earlier: ReplayedCall, later: ReplayedCall) -> Difference:
    """How a past call's prompt follows that of another one."""
    old, new = (
        Side(
            made.ctx,
            made.fitted,
            parse_stored_manifest({**made.call.row.manifest, "recorded_at": made.call.row.seq}),
            made.call.label,
        )
        for made in (earlier, later)
    )
    return diff_prompts(old, new, deps.stable_counter)


def explain_call(deps: ReplayDeps, replayed: ReplayedCall) -> Explanation:
    """What became of every block, tool and message in a past call."""
    entries = deps.store.entries(replayed.call.thread, 0, replayed.ctx.provenance.manifest.head)
    return explain(replayed.ctx, replayed.fitted, entries, replayed.marks, deps.stable_counter, replayed.call.label)


def _hash(ctx: AssembledContext) -> str:
    """The hash of the whole body, made anew."""
    return hashlib.sha256(msgspec.json.encode(ctx.to_provider(ctx.accounting.model_info.wire))).hexdigest()


def _again(past: RecordedCallInputs) -> ReplayedCall:
    """The call as it was."""
    model, counter = past.settings.model, past.counter()
    view = View(
        past.view_name, model.wire, model.name, past.largest(), pin_first_message=past.task(), images=past.images(), message_format=FORMATS[past.form()],
        header=past.opens(),
    )  # fmt: skip
    with past.kit.store.snapshot():
        entry = past.entry(past.call.row.seq)
        window = past.window(view, past.sent.new_cut or past.cut_in_force(), counter)
        event, placed = past.event(entry)
        request = past.request(entry, event)
        given = past.materials(view, model, window, request)
        sources = past.sources([*placed, *past.already_in_history(window)])
        marks = past.marks()
    profile = _stored(request.profile, past.form())
    try:
        ctx, fitted = assemble_fitted(request, profile, dataclasses.replace(given, sources=sources))
    except NexusError as error:
        raise CannotReplay(past.call.label, (*past.missing, str(error))) from error
    left = tuple(block_of(note, "") for note in past.sent.notes if note.state == "left out")
    ctx = with_stored_fields(ctx, past.sent, entry.rows)
    ctx = dataclasses.replace(ctx, provenance=dataclasses.replace(ctx.provenance, omitted_blocks=left))
    return ReplayedCall(past.call, ctx, fitted, tuple(marks))


def _changed(past: RecordedCallInputs, change: ReplayOverrides) -> ReplayedCall:
    """The call with a change, in the view that it then belongs to, with what that view had decided before it."""
    kit, counter = past.kit, past.counter()
    entry = past.entry(past.call.row.seq)
    event, placed = past.event(entry)
    same = change.skills is None and change.profile in ("", past.manifest.get("profile"))
    same = same and (change.tools is None or not FORMATS[past.form()].lists_tools)
    event = event if same else replace(event, content=(*_attached(placed), *event.content))
    asked = _asked(past, past.request(entry, change.event or event), change, same=same)
    request = asked.request
    model = resolve(change.model, kit.models) if change.model else past.settings.model
    with kit.store.snapshot():
        available = plan_budget(request, model).available
        decided = (
            change.strategy or kit.strategy,
            kit.max_tool_result_tokens,
            kit.workspace_context.config.images.keep_turns,
        )
        profile, known = (_stored(request.profile, past.form()), None) if same else kit.resolved(request.profile)
        message_format = FORMATS[profile.message_format]
        view = build_view(request.profile, model, available, counter, *decided, message_format=message_format)
        view = replace(
            view,
            pin_first_message=past.task(),
            images=image_price(model, past.factor(model)),
        )
        opens = past.opens() if same else _opens(past, profile, request)
        view = replace(view, header=opens)
        earlier = [cut for cut in kit.store.cuts(past.call.thread, view.name) if cut.at_seq < past.head]
        window = past.window(view, earlier[-1] if earlier else None, counter)
        given = past.materials(view, model, window, request)
        sources = past.sources([*placed, *past.already_in_history(window)])
        marks = past.marks()
    given = dataclasses.replace(given, sources=sources, denied_tools=asked.denied_tools, warnings=asked.warnings)
    if known is not None:
        desk = dataclasses.replace(given.source_context, environment=kit.survey())
        given = dataclasses.replace(given, sources=known, source_context=desk)
    ctx, fitted = assemble_fitted(request, profile, given)
    ctx = with_stored_meta(ctx, past.sent, entry.rows) if change.event is None else ctx
    return ReplayedCall(past.call, ctx, fitted, tuple(marks))


def _opens(past: RecordedCallInputs, profile: Profile, request: Request) -> HistoryHeader:
    """How another profile would have opened the history at that time, in UTC."""
    desk = SourceContext(request, past.kit.workspace_context, request.event.at_ms, "")
    thread = past.call.thread if past.head else None
    return history_header(profile, past.kit.store, thread, past.sent, replay.live_checkpoints(past.marks()).mark, desk)


def _asked(past: RecordedCallInputs, request: Request, change: ReplayOverrides, *, same: bool) -> AuthorizedRequest:
    """The changed request. Where something is read anew, other tools or another profile, it is admitted as a new call is."""
    request = replace(
        request,
        model=change.model or request.model,
        available_tokens=change.budget or request.available_tokens,
        profile=change.profile or request.profile,
    )
    if same and change.tools is None:
        return AuthorizedRequest(request, past.withheld)
    tools = (*request.tools, *(one.definition for one in past.withheld)) if change.tools is None else change.tools
    skills = past.named_skills() if change.skills is None else change.skills
    return past.kit.authorize(replace(request, tools=tools, skills=skills))


def _stored(name: str, form: MessageFormatName) -> Profile:
    """The profile under its name, with what was stored in the place of its sources."""
    return Profile(name, "", ("blocks",), (STORED_NOTES,), preamble=("ahead",), message_format=form)


def _attached(placed: Iterable[Block]) -> tuple[Note, ...]:
    """The attached files among the blocks of a message, as they were shown: they are the user's, whatever the profile."""
    return tuple(Note("moment", block.text, block.source) for block in placed if block.source.startswith(ATTACHED))
