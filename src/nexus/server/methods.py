"""The methods of the server, and the table of them: everything else about a method is made from its row.

Methods of the server take the tenant's engine, methods of an agent its stored settings too. `send` hands the message to
the broker, so an accepted one survives a kill; `begin`, `assemble`, `record`, `fail`, `mirror` and `fit` are for programs
that call the model themselves.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nexus.broker import EventResult
from nexus.broker.broker import CANCELED
from nexus.context import AssembledContext
from nexus.engine import NEXT_MESSAGE, Engine
from nexus.engine.events import check_untouched
from nexus.engine.overflow_recovery import await_compaction
from nexus.engine.turn import Turn, begin_turn, open_turn, turn_of
from nexus.errors import (
    AgentError,
    BadEvent,
    BadSetting,
    IdempotencyConflict,
    LateReply,
    LedgerError,
    ModelCallFailed,
    NexusError,
    NotAccepted,
    NotAllowed,
    NotFound,
    TurnSuperseded,
)
from nexus.ledger.lease import SessionLease, async_session_lease, async_session_of_process
from nexus.ledger.replay import messages_from
from nexus.ledger.sessions import Lease, QueuedEvent
from nexus.ledger.unrecorded_replies import is_of_storage
from nexus.providers.server_edits import has_compaction
from nexus.server import forms
from nexus.server.agents import StoredAgent, event_id
from nexus.server.contexts import WaitingContext, waiting_context
from nexus.server.fitted_lists import fit_list, reply_of
from nexus.server.forms import message_text, request_key
from nexus.server.jsonrpc import INVALID_PARAMS, SERVER_ERROR, RpcError
from nexus.server.tenants import Tenant, Tenants
from nexus.summarization import NOTHING
from nexus.text.as_received import ReceivedFormat
from nexus.types.block import ContextWarning
from nexus.types.ledger_entries import Committed
from nexus.types.message import Text
from nexus.types.request import AgentResult, Event
from nexus.types.settings import CallArguments

T = TypeVar("T")

MAX_MESSAGES = 1_000


@dataclass(frozen=True, slots=True)
class Call:
    """The tenant and agent of one call."""

    tenants: Tenants
    tenant: Tenant
    agent: StoredAgent
    """Without an id for methods of the server."""
    stop: Callable[[], None] | None
    """Stops the server; None if the tenant may not."""

    @property
    def label(self) -> str:
        """The session of the agent."""
        return self.agent.agent_id

    def count(self, committed: Committed, ctx: AssembledContext, result: AgentResult) -> None:
        """Count a reply of a program's own loop, unless it was recorded before."""
        if committed.added:
            self.tenant.counts.add_record(self.tenant.name, ctx, result)


NO_AGENT = StoredAgent("", forms.AgentSettings())

# methods of the server ---------------------------------------------------------------------------------------------


async def create_agent(call: Call, params: forms.CreateAgent) -> forms.AgentCreated:
    """Create an agent, or continue an existing one; an id whose session exists continues that session."""
    agent = await call.tenant.nx.run(call.tenant.agents.create, params)
    return forms.AgentCreated(agent.agent_id, forms.url_of(agent.agent_id))


async def list_agents(call: Call, _params: forms.NoParams) -> forms.AgentList:
    """List the agents, oldest first."""
    return forms.AgentList(await call.tenant.nx.run(call.tenant.agents.list))


async def destroy_agent(call: Call, params: forms.DestroyAgent) -> forms.AgentDestroyed:
    """Remove an agent; its running requests end as canceled, and its session stays."""
    success = True
    try:
        await call.tenant.nx.run(call.tenant.agents.destroy, params.agent_id)
    except NotFound as error:
        if error.code != "no_such_agent":
            raise
        success = False
    await _cancel_all(call, params.agent_id)  # also of a removed agent: a process may have been killed before this line
    return forms.AgentDestroyed(success=success, agent_id=params.agent_id)


async def shutdown_server(call: Call, _params: forms.NoParams) -> forms.ServerStopping:
    """Stop the server when running turns have ended. For servers of one tenant."""
    if call.stop is None:
        raise NotAllowed("server has several tenants, or is part of another program (stop it with its process)")
    call.stop()
    return forms.ServerStopping(success=True, message="Server shutting down")


# methods of an agent -----------------------------------------------------------------------------------------------


async def send(call: Call, params: forms.Send) -> forms.SendResult:
    """Send a user's message and wait for the answer. The same `request_id` again does not run again."""
    request_id = request_key(params.request_id)
    event = Event((Text(message_text(params.content)),), id=event_id(call.label, request_id))
    await call.tenants.check_model(call.tenant, call.agent.settings.model, event.id)
    try:
        row = await call.tenant.broker.submit(event, session=call.label, **call.agent.options)
    except IdempotencyConflict as error:
        raise _conflict(request_id) from error
    await _check_open(call, row, request_id)
    result = await _result_of(call, row, request_id)
    state = result.event.state
    reason = result.event.reason
    if state == "done":
        texts = (message.text() for message in result.replies)
        return forms.SendResult(request_id, content="\n\n".join(filter(None, texts)))
    if reason == CANCELED:
        return forms.SendResult(request_id, cancelled=True)
    code = ModelCallFailed.code
    if state == "dropped":
        code = NotAccepted.code
    data = {"code": code, "request_id": request_id}
    advice = ""
    if state == "dropped":
        advice = " (send it later, with another request_id)"
    raise RpcError(SERVER_ERROR, f"{reason or state}{advice}", data)


async def cancel(call: Call, params: forms.Cancel) -> forms.CancelResult:
    """Cancel a request under way: it ends as interrupted, with its partial reply."""
    request_id = request_key(params.request_id)
    rows = await call.tenant.nx.run(call.tenant.nx.engine.ledger.store.events_with_id, event_id(call.label, request_id))
    if any([await _cancel(call, row, request_id) for row in rows]):
        return forms.CancelResult(cancelled=True, request_id=params.request_id)
    return forms.CancelResult(cancelled=False, request_id=params.request_id, reason="not found or completed")


async def shutdown(call: Call, _params: forms.NoParams) -> forms.Success:
    """End the agent's running requests as canceled and accept no more."""
    await call.tenant.nx.run(call.tenant.agents.close, call.label)
    await _cancel_all(call, call.label)
    return forms.Success(success=True)


async def get_tokens(call: Call, _params: forms.NoParams) -> forms.TokenCounts:
    """Return the tokens of the agent's next context, without its message."""
    ctx = await _next_context(call)
    tools = system = messages = 0
    for line in ctx.accounting.token_breakdown:
        if line.source == "nexus:tools":
            tools += line.tokens
        elif line.slot == "system":
            system += line.tokens
        elif line.slot != "current":
            messages += line.tokens
    budget = ctx.token_budget
    total = system + tools + messages
    window = max(ctx.accounting.model_info.context_tokens, budget.available)
    return forms.TokenCounts(system, tools, messages, total, window, budget.available)


async def get_context(call: Call, _params: forms.NoParams) -> forms.ContextInfo:
    """Return the number of messages in the agent's next context, and whether it has a system prompt."""
    ctx = await _next_context(call)
    return forms.ContextInfo(len(ctx.history), system_prompt=bool(ctx.system_prompt))


async def get_messages(call: Call, params: forms.GetMessages) -> forms.MessageList:
    """Return messages of the agent's session, oldest first, those that no call shows any more included."""
    if not 1 <= params.limit <= MAX_MESSAGES:
        raise BadSetting(f"limit is a number from 1 to {MAX_MESSAGES:,}")
    store = call.tenant.nx.engine.ledger.store
    messages, first, total = await call.tenant.nx.run(messages_from, store, call.label, params.offset, params.limit)
    return forms.MessageList(tuple(messages), first, total)


async def compact(call: Call, params: forms.Compact) -> forms.CompactResult:
    """Replace older messages by a summary now. Nothing is deleted."""
    engine = call.tenant.nx.engine
    options = call.agent.options
    outcome = NOTHING
    async with _lease(call):
        plan = await call.tenant.nx.run(partial(engine.plan, call.label, **options))
        if plan is not None:
            compaction = partial(engine.compact, call.label, focus=params.focus, plan=plan)
            outcome = await await_compaction(lambda cancel: compaction(cancel=cancel))
    if not outcome:
        return forms.CompactResult(compacted=False, reason=outcome.reason or NOTHING.reason)
    call.tenant.counts.add_compaction(call.tenant.name, outcome.method)
    before = outcome.tokens_before
    after = outcome.tokens_after
    return forms.CompactResult(compacted=True, tokens_before=before, tokens_after=after, tokens_saved=before - after)


async def fork(call: Call, params: forms.Fork) -> forms.AgentCreated:
    """Create an agent with this one's settings and its history up to a turn."""
    agent = await call.tenant.nx.run(call.tenant.agents.fork, call.agent, params.new_agent_id, params.turn)
    return forms.AgentCreated(agent.agent_id, forms.url_of(agent.agent_id))


async def explain(call: Call, params: forms.Explain) -> forms.ExplainResult:
    """Explain every block, tool and message of a recorded call, or of the next one."""
    nx = call.tenant.nx
    if params.turn is not None:
        return await nx.run(partial(nx.engine.explain, call.label, params.turn, call=params.call))
    request = call.tenant.nx.engine.request(Event((Text(NEXT_MESSAGE),)), call.label, _with_tools(call))
    return await nx.run(nx.engine.calls.explain_next, request)


# methods for programs with their own loop --------------------------------------------------------------------------


async def begin(call: Call, params: forms.Begin) -> forms.TurnState:
    """Store a user's message, and begin its turn. The same `request_id` again is the same turn."""
    request_id = request_key(params.request_id)
    event = Event((Text(message_text(params.content)),), id=event_id(call.label, request_id))
    options: CallArguments = {**call.agent.options, "tools": params.tools}

    nx = call.tenant.nx.engine
    request = nx.request(event, call.label, options)

    def run(lease: SessionLease) -> tuple[Turn, forms.TurnState, WaitingContext | None]:
        turn = begin_turn(nx, request, lease.fence, lease)
        if not turn.is_new:
            return turn, _state_of(turn), None
        return turn, forms.TurnState(turn.number, "pending", ()), waiting_context(turn.assemble())

    has_hooks = bool(nx.preparation.hooks.plugins)  # those of the moment run once, so the lease comes before them
    try:
        turn, state, context = await _write_in_turn(call, run, takes_lease=has_hooks)
    except IdempotencyConflict as error:
        raise _conflict(request_id) from error
    if context is not None:
        call.tenant.contexts.keep(call.label, context, turn.request)
    return state


async def assemble(call: Call, params: forms.Assemble) -> forms.AssembledBody:
    """Store results of tools, and assemble the request body of the open turn's next call."""
    options: CallArguments = {**call.agent.options, "tools": params.tools}
    if params.model:
        options["model"] = params.model

    nx = call.tenant.nx.engine
    first_context = call.tenant.contexts.take_begun(call.label, nx.request(Event(), call.label, options), nx.clock_ms())
    if first_context is not None and not params.results:
        with suppress(TurnSuperseded):  # nothing is written: a program that has the session meanwhile comes after this
            return await _assembled(call, partial(_checked_context, nx, call.label, first_context), params.format)

    def run(lease: Lease) -> WaitingContext:
        turn = _open_turn(call, options, lease.fence)
        if params.results:
            calls = {row.id for row in turn.tool_calls}
            if unknown := next((result.call_id for result in params.results if result.call_id not in calls), None):
                raise BadEvent(f"turn {turn.number} has no tool call {unknown[:80]!r} (pass ids of `tool_calls`)")
            for result in params.results:
                turn.result(result.call_id, result.content, name=result.name, is_error=result.is_error)
        return waiting_context(turn.assemble())

    async with _lease(call) as lease:
        return await _assembled(call, partial(run, lease), params.format)


async def record(call: Call, params: forms.RecordReply) -> forms.RecordResult:
    """Store the reply to an assembled context. The same reply again adds nothing."""
    nx = call.tenant.nx
    reply = reply_of(params)
    ctx = None
    if params.context_id:
        ctx = call.tenant.contexts.get(_context_key(call, params.context_id))
    if ctx is not None and ctx.mirrored is not None:
        committed = await nx.record(ctx, reply)
        call.count(committed, ctx, reply)
        is_fork = ctx.mirrored.action == "repeat" and committed.added
        session = ctx.mirrored.session
        if is_fork:
            session = ctx.session_label
        return forms.RecordResult(
            session, committed.turn, "pending" if reply.tool_calls else "completed", reply.tool_calls
        )
    if params.context_id.startswith(_MIRRORED):
        raise BadEvent("context of the list is not known any more (call `mirror` with the same list, and record again)")

    def run(lease: SessionLease) -> tuple[int, str]:
        if ctx is not None:
            turn = turn_of(nx.engine, ctx, lease.fence)
            sent_ctx = ctx
        else:
            turn = _open_turn(call, {**call.agent.options}, lease.fence)
            _check_number(turn, _turn_of_context(params.context_id))
            sent_ctx = turn.assemble()
        committed = turn.record_result(reply, sent_ctx, reply, lease)
        call.count(committed, sent_ctx, reply)
        if committed.added and reply.error is None and not reply.tool_calls:
            return turn.number, "completed"
        return turn.number, turn.status

    writes_more = ctx is None or any(map(has_compaction, reply.messages))
    number, status = await _write_in_turn(call, run, takes_lease=writes_more)
    call.tenant.contexts.drop(call.label)
    warnings = (ContextWarning("nexus:server", _ASSEMBLED_AGAIN),) if params.context_id and ctx is None else ()
    return forms.RecordResult(call.label, number, status, reply.tool_calls, warnings)


async def fail(call: Call, params: forms.Fail) -> forms.TurnState:
    """End the open turn as failed, with its partial reply."""

    def run(lease: Lease) -> forms.TurnState:
        turn = _open_turn(call, {**call.agent.options}, lease.fence)
        _check_number(turn, params.turn)
        turn.fail(params.kind, params.error, partial=params.partial or None)
        call.tenant.counts.add_error(
            call.tenant.name, call.agent.settings.model or call.tenant.nx.engine.model, params.kind
        )
        return _state_of(turn)

    async with _lease(call) as lease:
        return await call.tenant.nx.run(run, lease)


async def mirror(call: Call, params: forms.Mirror) -> forms.AssembledBody:
    """Assemble the request body for a program that has the whole message list of its conversation."""
    options: CallArguments = {**call.agent.options, "tools": params.tools}
    if params.model:
        options["model"] = params.model
    place = {"scope": f"agent:{call.label}", "conversation": params.conversation, "window": params.window}
    mirror_list = partial(call.tenant.nx.engine.mirror, params.messages, reserve=params.reserve, **place, **options)
    return await _assembled(call, lambda: waiting_context(mirror_list()), params.format)


async def fit(call: Call, params: forms.Fit) -> forms.FittedList:
    """Say which messages to send, for a program that has its whole list in types of its own."""
    options: CallArguments = {**call.agent.options, "tools": params.tools}
    if params.model:
        options["model"] = params.model
    nx = call.tenant.nx
    context, answer = await nx.run(partial(fit_list, nx.engine, params, f"agent:{call.label}", options))
    return replace(answer, context_id=_keep(call, context))


# shared by methods -------------------------------------------------------------------------------------------------

_MIRRORED = "list-"
MOST_DIGITS = 20
"""Digits of a turn's number, at most."""
_ASSEMBLED_AGAIN = "context was assembled again for this record: the server had restarted, or many came between"


async def _assembled(
    call: Call, assemble_context: Callable[[], WaitingContext], body_format: ReceivedFormat | None
) -> forms.AssembledBody:
    """Assemble a context and return it as a request body. It is kept for `record`."""

    def run() -> tuple[WaitingContext, ReceivedFormat, dict[str, Any]]:
        context = assemble_context()
        ctx = context.ctx
        chosen: ReceivedFormat = body_format or ctx.accounting.model_info.provider_format
        if chosen == "responses":
            body = ctx.to_responses()
        else:
            body = ctx.to_provider(chosen)
        return context, chosen, body

    context, chosen, body = await call.tenant.nx.run(run)
    ctx = context.ctx
    mirrored = ctx.mirrored
    result = forms.AssembledBody(
        context_id=_keep(call, context),
        session=ctx.session_label,
        turn=_turn_number(ctx),
        model=ctx.model,
        provider=ctx.provider,
        format=chosen,
        body=body,
        tokens=ctx.token_budget.used.total,
        available=ctx.token_budget.available,
        warnings=ctx.warnings,
    )
    if mirrored is None:
        return result
    return replace(result, session=mirrored.session, action=mirrored.action)


def _keep(call: Call, context: WaitingContext) -> str:
    """Keep a context for `record`, and return its id."""
    prefix = _MIRRORED if context.ctx.mirrored is not None else ""
    context_id = f"{prefix}{_turn_number(context.ctx)}-{uuid.uuid4().hex[:16]}"
    call.tenant.contexts.keep(_context_key(call, context_id), context)
    return context_id


def _turn_number(ctx: AssembledContext) -> int:
    stored = ctx.provenance.stored_event
    return stored.turn if stored is not None else 0


def _context_key(call: Call, context_id: str) -> str:
    return f"{call.label}\n{context_id}"


def _turn_of_context(context_id: str) -> int:
    """Return the number of the turn that a context was assembled for; 0 if its id names none."""
    number = context_id.partition("-")[0]
    if number.isascii() and number.isdecimal() and len(number) < MOST_DIGITS:
        return int(number)
    return 0


def _check_number(turn: Turn, number: int) -> None:
    """Raise TurnSuperseded if the open turn is another one than the number that a program names; 0 names none."""
    if number not in (0, turn.number):
        raise TurnSuperseded(turn.session, number, f"turn {turn.number} is open")


def _state_of(turn: Turn) -> forms.TurnState:
    """Read the state of a turn from the ledger."""
    status = turn.status
    records = turn.tool_calls if status != "pending" else ()  # a pending turn has no reply
    calls = [record for record in records if record.result is None]
    names = tuple(forms.ToolCall(record.id, record.name, record.arguments) for record in calls)
    return forms.TurnState(turn.number, status, names)


def _checked_context(nx: Engine, session: str, context: WaitingContext) -> WaitingContext:
    """Return the context of a turn that was just begun. Raises TurnSuperseded if anything came since."""
    stored = context.ctx.provenance.stored_event
    assert stored is not None, "begin stores the event"
    nx.recorder.record_waiting()
    check_untouched(nx.ledger, nx.recorder.unrecorded, session, stored)
    return context


def _open_turn(call: Call, options: CallArguments, fence: int) -> Turn:
    nx = call.tenant.nx.engine
    turn = open_turn(nx, nx.request(Event(), call.label, options), fence)
    if turn is None:
        raise BadEvent(f"agent {call.label!r} has no open turn (call `begin` first)")
    return turn


@asynccontextmanager
async def _lease(call: Call) -> AsyncGenerator[Lease]:
    """Hold the agent's session: a turn that the broker runs ends first. Raises SessionBusy."""
    async with async_session_lease(call.tenant.nx.engine.ledger.store, call.label, call.tenant.nx.run) as lease:
        yield lease


async def _write_in_turn(call: Call, write: Callable[[SessionLease], T], *, takes_lease: bool) -> T:
    """Run a write of a turn, whose commit takes and ends the lease; see `_lease`.

    The lease is taken before if the write needs it for longer, or where another program has the session or anything
    else is wrong: then it runs again.
    """
    nx = call.tenant.nx
    async with async_session_of_process(nx.engine.ledger.store, call.label, nx.run, is_brief=True) as lease:
        if lease.is_takable and not takes_lease:
            try:
                return await nx.run(write, lease)
            except NexusError as error:
                if isinstance(error, LateReply) or (isinstance(error, LedgerError) and is_of_storage(error)):
                    raise
        await lease.take_async(nx.run)
        return await nx.run(write, lease)


def _with_tools(call: Call) -> CallArguments:
    return {**call.agent.options, "tools": call.tenant.registry(call.agent)}


async def _next_context(call: Call) -> AssembledContext:
    return await call.tenant.nx.assemble(NEXT_MESSAGE, session=call.label, **_with_tools(call))


async def _result_of(call: Call, event: QueuedEvent, request_id: forms.RequestKey) -> EventResult:
    """Wait for the result of an event. Raises RpcError if the server stops before."""
    result = asyncio.ensure_future(call.tenant.broker.result(event))
    stopped = asyncio.ensure_future(call.tenants.stopped.wait())
    try:
        await asyncio.wait({result, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            text = (
                "server stopped before the answer; the request goes on at its next start (send it again for the answer)"
            )
            raise RpcError(SERVER_ERROR, text, {"code": "server_stopped", "request_id": request_id})
        return result.result()
    finally:
        for task in (result, stopped):
            task.cancel()
        await asyncio.gather(result, stopped, return_exceptions=True)


async def _cancel(call: Call, event: QueuedEvent, request_id: forms.RequestKey) -> bool:
    """Cancel an event, and return whether it ended as canceled.

    Its end is stored when this returns: the next process would continue a turn that was still to be interrupted.
    """
    if not await call.tenant.broker.cancel(event):
        return False
    return (await _result_of(call, event, request_id)).event.reason == CANCELED


async def _check_open(call: Call, event: QueuedEvent, request_id: forms.RequestKey) -> None:
    """Cancel an event of an agent that was closed while the event was stored. Raises AgentError, NotFound."""
    try:
        await call.tenant.nx.run(call.tenant.agents.get, call.label)
    except (AgentError, NotFound):
        await _cancel(call, event, request_id)
        raise


async def _cancel_all(call: Call, label: str) -> None:
    rows = await call.tenant.nx.run(call.tenant.nx.engine.ledger.store.queued_events, label)
    await asyncio.gather(*(_cancel(call, row, row.id) for row in rows))


def _conflict(request_id: forms.RequestKey) -> RpcError:
    text = f"request_id {request_id!r} was used for another message (use a new one)"
    return RpcError(INVALID_PARAMS, text, {"code": IdempotencyConflict.code, "request_id": request_id})


# the table -----------------------------------------------------------------------------------------------------------

Scope: TypeAlias = Literal["server", "agent"]


@dataclass(frozen=True, slots=True)
class Method:
    """One method. Methods of an agent are at `/agent/ID`, or take an `agent_id`."""

    scope: Scope
    params: type[Struct]
    result: type[Struct]
    run: Callable[[Call, Any], Awaitable[Struct]]
    may_be_closed: bool = False
    """The agent may be shut down: the method reads, or ends something."""

    @property
    def summary(self) -> str:
        """The first paragraph of its documentation."""
        return " ".join((self.run.__doc__ or "").split("\n\n")[0].split())


METHODS: dict[str, Method] = {
    "create_agent": Method("server", forms.CreateAgent, forms.AgentCreated, create_agent),
    "list_agents": Method("server", forms.NoParams, forms.AgentList, list_agents),
    "destroy_agent": Method("server", forms.DestroyAgent, forms.AgentDestroyed, destroy_agent),
    "shutdown_server": Method("server", forms.NoParams, forms.ServerStopping, shutdown_server),
    "send": Method("agent", forms.Send, forms.SendResult, send),
    "cancel": Method("agent", forms.Cancel, forms.CancelResult, cancel, may_be_closed=True),
    "shutdown": Method("agent", forms.NoParams, forms.Success, shutdown, may_be_closed=True),
    "get_tokens": Method("agent", forms.NoParams, forms.TokenCounts, get_tokens, may_be_closed=True),
    "get_context": Method("agent", forms.NoParams, forms.ContextInfo, get_context, may_be_closed=True),
    "get_messages": Method("agent", forms.GetMessages, forms.MessageList, get_messages, may_be_closed=True),
    "compact": Method("agent", forms.Compact, forms.CompactResult, compact),
    "fork": Method("agent", forms.Fork, forms.AgentCreated, fork),
    "explain": Method("agent", forms.Explain, forms.ExplainResult, explain, may_be_closed=True),
    "begin": Method("agent", forms.Begin, forms.TurnState, begin),
    "assemble": Method("agent", forms.Assemble, forms.AssembledBody, assemble),
    "record": Method("agent", forms.RecordReply, forms.RecordResult, record, may_be_closed=True),
    "fail": Method("agent", forms.Fail, forms.TurnState, fail, may_be_closed=True),
    "mirror": Method("agent", forms.Mirror, forms.AssembledBody, mirror),
    "fit": Method("agent", forms.Fit, forms.FittedList, fit),
}
"""All methods but `rpc.discover`, which describes them."""
