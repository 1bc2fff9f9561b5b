"""A call on the engine's side: its context, the body that is sent, and the record of its answer. Everything here blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.errors import BadEvent, BadReply, BadSetting, BadTool, BudgetTooSmall
from nexus.providers.costs import cost_of_reply
from nexus.providers.received import items_of
from nexus.providers.replies import read_reply
from nexus.providers.streams import StreamReader
from nexus.proxy.cache_breakpoints import (
    breakpoint_places,
    has_breakpoints,
    keeps_an_hour,
    with_allowed_breakpoints,
    with_breakpoints,
)
from nexus.proxy.omitted_tool import Lookups, with_tool
from nexus.proxy.openai_cache import with_cache_fields
from nexus.proxy.reports import CallReport
from nexus.proxy.requests import ClientRequest, Fields, encoded
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.model import Model, resolve
from nexus.types.request import TOOLS_ORIGIN, AgentResult, TokenUsage

NO_LIMIT = 1 << 40
"""Tokens of a budget that leaves everything in."""

INSTRUCTION_TOKENS = 24
"""Tokens of the form of a system or developer message beside its text, at most."""

IMAGE_BYTES = (
    b'"image',
    b'"input_image',
    b'"document"',
    b'"file"',
    b'"input_file',
    b"inlineData",
    b"inline_data",
    b"fileData",
    b"file_data",
)
"""Words of bodies whose tokens are not bounded by their bytes: a short address may be a large image."""

TOKENS_PER_BYTE = 1.6
"""Upper bound: o200k_base has at most one token for a byte, and no model counts more than 1.5 times as many."""

_OF_NO_CHANGE = (TOOLS_ORIGIN, "nexus:model")
"""Sources of warnings that change nothing here: tools are sent as received, and a model is what the client names."""

_OPENAI = ("openai", "responses")
_OPENAI_FIELDS_ADDED = "prompt cache key or breakpoint added: the client sets none"

_SHOWN_REASONS = 20


class CallPlace(Struct, frozen=True):
    """Whose call it is: names that keep lists of different clients, users and conversations apart."""

    client: str
    user: str = ""
    conversation: str = ""


class PreparedCall(Struct, frozen=True):
    """The body and the context of a request."""

    data: bytes
    """The body; the received one if nothing had to be changed."""
    ctx: AssembledContext
    offers_tool: bool = False
    """True if the body has the tool `nexus_omitted`."""


def surely_fits(request: ClientRequest, budget: int) -> bool:
    """Return True if a body's size says that it is within a budget, whatever it contains."""
    is_bounded = len(request.text) * TOKENS_PER_BYTE <= budget
    return is_bounded and not any(name in request.text for name in IMAGE_BYTES)


def assemble(nx: Engine, request: ClientRequest, place: CallPlace, budget: int | None) -> AssembledContext:
    """Return the context of a request. Raises BadEvent for a part of a conversation, and what `Engine.mirror` raises.

    Args:
        nx: The engine.
        request: The request.
        place: Whose call it is.
        budget: Its tokens; None leaves everything in.
    """
    if request.continues_stored_response:
        raise BadEvent("the provider has the earlier messages, so that this list is not the conversation")
    options: dict[str, Any] = {
        "scope": place.client,
        "conversation": place.conversation,
        "window": False,
        "provider": request.format,
        "system": request.system_text,
        "budget": budget or NO_LIMIT,
        "reserve": _form_tokens(request),
    }
    if place.user:
        options["principal"] = place.user
    if request.model:
        options["model"] = request.model
    try:
        return nx.mirror(request.items, tools=request.tools, extra=request.settings, **options)
    except BadSetting:
        return nx.mirror(request.items, tools=request.tools, **options)
    except BadTool:
        # Tools that nothing here can read are sent as received; their size is kept free.
        options["reserve"] += nx.counter.count(json.dumps(request.body.get("tools")))
        return nx.mirror(request.items, **options)


def _form_tokens(request: ClientRequest) -> int:
    """Return the tokens of messages with instructions that a system prompt, which is counted for them, does not have."""
    count = len(request.leading_instructions)
    if request.format == "openai":  # the system prompt is a message there
        count = max(count - 1, 0)
    return INSTRUCTION_TOKENS * count


def prepare(
    nx: Engine,
    request: ClientRequest,
    place: CallPlace,
    budget: int | None,
    report: CallReport,
    *,
    marks: bool,
    omitted_tool: bool = False,
) -> PreparedCall:
    """Return the body to send, healed and within the budget, and say in the report what is changed and why.

    Raises what `Engine.mirror` raises.

    Args:
        nx: The engine.
        request: The request.
        place: Whose call it is.
        budget: Its tokens; None leaves everything in.
        report: Gets outcome, reasons and tokens.
        marks: Add cache breakpoints if there are none.
        omitted_tool: Add the tool `nexus_omitted` if messages are omitted.
    """
    request_to_send, ctx = _assembled(nx, request, place, budget, omitted_tool=omitted_tool)
    report.tokens = ctx.token_budget.used.total
    if ctx.mirrored is not None and ctx.mirrored.has_unchanged_list:
        return PreparedCall(marked_body(request, report) if marks else request.data, ctx)
    body = request_to_send.with_list(ctx)
    report.reasons += [reason for reason in changes(ctx, len(request.items)) if reason not in report.reasons]
    if request.format == "anthropic":
        body = with_allowed_breakpoints(body, request.body, adds=marks)
        report.adds_breakpoints = marks and not has_breakpoints(request.text)
    elif marks and request.format in _OPENAI:
        fitted = body
        body = with_cache_fields(fitted, request, resolve(request.model))
        if body is not fitted and _OPENAI_FIELDS_ADDED not in report.reasons:
            report.reasons.append(_OPENAI_FIELDS_ADDED)
    report.outcome = "healed"
    if budget is not None:  # a repair joins messages too: nothing is omitted by that
        report.omitted = omitted_count(ctx)
        if report.omitted or _is_shortened(ctx):
            report.outcome = "fitted"
    return PreparedCall(encoded(body), ctx, request_to_send is not request)


def _assembled(
    nx: Engine, request: ClientRequest, place: CallPlace, budget: int | None, *, omitted_tool: bool
) -> tuple[ClientRequest, AssembledContext]:
    """Return a request and its context; with `omitted_tool` the request with that tool, if messages are omitted.

    The tool is a part of the prompt's beginning, which then stays: it is there from the first cut on. Raises as `assemble`.
    """
    request_with_tool = with_tool(request) if omitted_tool and budget is not None else None
    if request_with_tool is None:
        return request, assemble(nx, request, place, budget)
    try:
        ctx = assemble(nx, request_with_tool, place, budget)
    except BudgetTooSmall:
        return request, assemble(nx, request, place, budget)
    if omitted_count(ctx) and ctx.cut is None:
        return request_with_tool, ctx
    # A list that fits without the tool is not cut for it.
    without = assemble(nx, request, place, budget)
    if omitted_count(without):
        return request_with_tool, ctx
    return request, without


def marked_body(request: ClientRequest, report: CallReport) -> bytes:
    """Return a body with the fields of the prompt cache that it lacks; as received if it lacks none.

    Raises BadEvent for a body that is no request.
    """
    body = _with_cache_fields(request)
    if body is None or body is request.body:
        return request.data
    report.outcome = "marked"
    report.adds_breakpoints = True
    if request.format == "anthropic":
        report.reasons.append("cache breakpoints added: the client sets none")
    else:
        report.reasons.append(_OPENAI_FIELDS_ADDED)
    return encoded(body)


def _with_cache_fields(request: ClientRequest) -> Fields | None:
    if request.format == "anthropic" and not has_breakpoints(request.text) and request.items:
        return with_breakpoints(request.body)
    if request.format in _OPENAI and request.items:
        return with_cache_fields(request.body, request, resolve(request.model))
    return None


def record(
    nx: Engine, ctx: AssembledContext, result: AgentResult, report: CallReport, lookups: Lookups | None = None
) -> None:
    """Store a call with its answer, and say where in the report. Raises what `Engine.record` raises.

    `lookups` are the calls of `nexus_omitted` before the answer.
    """
    if lookups is not None:
        result = lookups.added_to(result)
    note_usage(result.usage, ctx.accounting.model_info, report)
    report.action = ctx.mirrored.action if ctx.mirrored is not None else ""
    committed = nx.record(ctx, result)
    session = next(iter(nx.ledger.store.labels_of(committed.thread)), ctx.session_label)
    # A client that sends a request again, and gets the same answer, has the call that is recorded.
    call = nx.calls.at(committed.thread, session, committed.known_at or committed.head)
    report.thread = committed.thread
    report.session = session
    report.turn = call.turn
    report.number = call.number
    if committed.added:
        report.seq = call.row.seq


def note_usage(usage: TokenUsage, model: Model, report: CallReport) -> None:
    """Say in the report what the provider reported of tokens, and their cost; no cost where it reported none."""
    report.usage = usage
    if usage != TokenUsage():
        report.cost_usd = cost_of_reply(usage, model)


def note_sizes(request: ClientRequest, ctx: AssembledContext, report: CallReport) -> None:
    """Say in a report how large the parts of a request are, and where its cache breakpoints are. Raises BadEvent."""
    used = ctx.token_budget.used
    report.tokens = used.total
    report.system_tokens = used.system_prompt
    report.tools_tokens = used.tools
    if request.format != "anthropic":
        return
    if has_breakpoints(request.text):
        report.breakpoints = breakpoint_places(request.body)
        report.has_own_breakpoints = bool(report.breakpoints)
        report.keeps_an_hour = keeps_an_hour(request.body)
    if not report.has_own_breakpoints:
        report.breakpoints = breakpoint_places(with_breakpoints(request.body))


def read_answer(format_: ReceivedFormat, data: bytes, *, is_stream: bool) -> AgentResult:
    """Return a whole answer. Raises BadReply for one that is not whole or cannot be read."""
    if not is_stream:
        return read_reply(_json(data.decode("utf-8", "replace")))
    reader = StreamReader(format_)
    for event in events_of(data):
        reader.add(event)
    if not reader.is_complete:
        raise BadReply("stream ended before its end event")
    return reader.reply()


def events_of(data: bytes) -> Iterator[Any]:
    """Yield the events of a stream: server-sent events by the rules of the HTML standard, or the items of a JSON list.

    The text `[DONE]` is yielded as it is. Raises BadReply.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text.lstrip().startswith("["):
        yield from items_of(_json(text))
        return
    for block in text.split("\n\n"):
        lines = [line.removeprefix("data:").removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        joined = "\n".join(lines)
        if joined == "[DONE]":
            yield joined
        elif joined:
            yield _json(joined)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"answer is no JSON: {str(error)[:200]}") from error


def omitted_count(ctx: AssembledContext) -> int:
    """Return how many messages of the list are not sent."""
    mirrored = ctx.mirrored
    if mirrored is None:
        return 0
    total = mirrored.stored_count + mirrored.missing_count
    sent_count = sum(1 for message in ctx.sent_messages if message.state != "synthetic")
    return max(total - sent_count, 0)


def changes(ctx: AssembledContext, item_count: int) -> list[str]:
    """Return what differs from the received list, in short sentences without any of its text."""
    reasons: list[str] = []
    omitted = omitted_count(ctx)
    if omitted and ctx.history.opening:
        reasons.append(f"{omitted} of {item_count} messages not sent, or as excerpts: over the budget")
    truncated = sum(1 for message in ctx.sent_messages if message.state == "truncated")
    if truncated:
        reasons.append(f"{truncated} messages shortened: large results or images")
    if not ctx.repairs.clean:
        reasons.append(f"repaired: {ctx.repairs}")
    reasons += [
        f"{warning.source}: {warning.message}" for warning in ctx.warnings if warning.source not in _OF_NO_CHANGE
    ]
    if not reasons:
        reasons.append("written anew, in the form that the provider takes")
    return reasons[:_SHOWN_REASONS]


def _is_shortened(ctx: AssembledContext) -> bool:
    return ctx.cut is not None or any(message.state == "truncated" for message in ctx.sent_messages)
