"""A turn of a session: the event is stored before any call, then each reply and each result as it arrives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.gather import event_messages
from nexus.assembly.inputs import as_event
from nexus.assembly.record import build_event_commit, continued_turn, new_session_metadata, offered_tools, with_sizes
from nexus.context import AssembledContext, EngineState, StoredEvent, engine_state
from nexus.engine.events import event_fields, event_keys, event_of_context, surroundings_of, turn_with_event
from nexus.engine.late_replies import partial_messages, record_waiting_reply, try_store_late
from nexus.errors import BadEvent, BadReply, IdempotencyConflict, SessionBusy, TurnSuperseded, UnreadableFile
from nexus.ledger.overlay import is_partial, open_event
from nexus.ledger.replay import ABORTED, TurnStatus, entries_from_turn
from nexus.ledger.replay import RecordedTurn as StoredTurn
from nexus.ledger.sessions import holder_of
from nexus.providers.errors.failures import FailureKind
from nexus.providers.replies import read_reply
from nexus.types.ledger_entries import Commit, Committed, Entry, MessageRef, NewEntry, TurnPosition
from nexus.types.message import Message, Part, Text, ToolCall, ToolResult
from nexus.types.request import AgentResult, Event, Request
from nexus.types.settings import CallArguments
from nexus.types.tool_calls import ToolCallRecord, tool_call_records
from nexus.types.validation import check_options, checked

if TYPE_CHECKING:
    from nexus.engine.recorder import Recorder
    from nexus.ledger.history_operations import Ledger
    from nexus.ledger.lease import SessionLease
    from nexus.tokens.counter import TokenCounter

CANCELED = "canceled"
"""Text of the failure of a turn that was interrupted."""


class TurnEngine(Protocol):
    """The part of the engine that a turn uses."""

    @property
    def ledger(self) -> Ledger:
        """Operations on sessions."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """Counts what is stored."""
        ...

    @property
    def clock_ms(self) -> Any:
        """Returns the time."""
        ...

    def assemble_request(self, request: Request) -> AssembledContext:
        """Assemble the context for an event that is not stored."""
        ...

    def assemble_stored(self, request: Request, event: StoredEvent) -> AssembledContext:
        """Assemble the context for an event that the ledger has."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Stores replies, also those that the ledger could not store at first."""
        ...


class _WaitingReply(Struct, frozen=True):
    """A reply whose calls wait for results: its entry, which names the results' keys, and the results that came, by call."""

    reply: int
    answered: dict[str, tuple[Part, ...]]


def _read_waiting(ledger: Ledger, session: str) -> _WaitingReply:
    """Return the reply whose calls wait for results, and the results that the ledger has."""
    with ledger.snapshot():
        waiting, _ = open_event(ledger.store, ledger.thread(session))
        # Models use an id again in later replies.
        reply = waiting[0].seq - 1 if waiting else ledger.store.head(ledger.thread(session))[0]
    messages = (row.message for entry in waiting for row in entry.rows)
    return _WaitingReply(reply, {result.call_id: message.parts for message in messages for result in message.results()})


def _messages_of(ledger: Ledger, session: str, number: int) -> list[Message]:
    """Return the stored messages of a turn."""
    entries = entries_from_turn(ledger.store, ledger.thread(session), number)
    return [row.message for entry in entries if entry.turn == number for row in entry.rows]


def _result_message(content: ToolResult | Message) -> Message:
    """Return a result as a message. Raises BadEvent for something else."""
    try:
        return checked(content if isinstance(content, Message) else Message("tool", (content,)), Message)
    except (TypeError, ValueError) as error:
        raise BadEvent(f"result invalid: {error} (pass the call's id, and a text or nexus.tool(…))") from error


class Turn:
    """One turn of a session, as `Engine.begin` and `Engine.current_turn` return it.

    What a turn is given is durable when the method returns. `Engine.current_turn` continues a turn that was interrupted.

    Attributes:
        session: The session's label.
        number: Number of the turn in its session.
        request: Settings and tools of the turn's calls. Its event is the turn's without messages: time zone, channel,
            platform, metadata and hook data.
        is_new: True if `Engine.begin` stored its event, which did not come before.
        last_reply: The reply that `record` stored last; None before.
    """

    def __init__(
        self,
        engine: TurnEngine,
        request: Request,
        position: TurnPosition,
        ctx: AssembledContext | None = None,
        fence: int = 0,
    ) -> None:
        """Continue a turn, with a fencing token; 0 takes the next one when it writes."""
        self.engine = engine
        self.request = request
        self._ctx = ctx
        if ctx is not None:
            self._event = ctx.provenance.stored_event
        else:
            self._event = None
        self._position = position
        self._fence = fence
        self.is_new = False
        self.session = request.session
        self.number = position.turn
        self._waiting: _WaitingReply | None = None
        self.last_reply: object = None

    def __repr__(self) -> str:
        return f"<Turn {self.number} of session {self.session!r}: {self.status}>"

    @property
    def status(self) -> TurnStatus:
        """`pending`, `streaming`, `completed`, `failed` or `interrupted`, read from the ledger."""
        stored = self.stored
        if stored is not None:
            return stored.status
        return "interrupted"

    @property
    def stored(self) -> StoredTurn | None:
        """The turn as the ledger has it; None if its session went back behind it."""
        ledger = self.engine.ledger
        position = self._position
        with ledger.snapshot():
            thread = ledger.thread_info(self.session)
            if (
                position.seq > thread.head_seq
                or holder_of(ledger.store.path(thread.id), position.seq) != position.thread
            ):
                return None
            return next((turn for turn in ledger.turns(self.session, self.number) if turn.number == self.number), None)

    @property
    def is_open(self) -> bool:
        """True if a call, a result or the end of the turn is still to come."""
        with self.engine.ledger.snapshot():
            return self.engine.ledger.thread_info(self.session).open_turn and self.status not in ("completed", "failed")

    @property
    def replies(self) -> tuple[Message, ...]:
        """The assistant's messages of the turn that are stored."""
        return tuple(
            message
            for message in _messages_of(self.engine.ledger, self.session, self.number)
            if message.role == "assistant"
        )

    @property
    def newest_reply(self) -> tuple[Message, ...]:
        """The assistant's messages of the newest reply that is stored."""
        newest_first = dropwhile(
            lambda message: message.role != "assistant",
            reversed(_messages_of(self.engine.ledger, self.session, self.number)),
        )
        return tuple(takewhile(lambda message: message.role == "assistant", newest_first))[::-1]

    @property
    def tool_calls(self) -> tuple[ToolCallRecord, ...]:
        """The tool calls of the turn that are stored, with their results, status and times."""
        return tool_call_records(_messages_of(self.engine.ledger, self.session, self.number), is_over=not self.is_open)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The turn's tool calls that wait for a result; empty if its next call can be assembled, or it is over."""
        return tuple(
            ToolCall(call.id, call.name, call.arguments) for call in self.tool_calls if call.status == "pending"
        )

    def assemble(self, **changes: Unpack[CallArguments]) -> AssembledContext:
        """Assemble the context of the turn's next call: of its message, or of the results that came since the last reply.

        Args:
            **changes: Arguments of `Engine.assemble` to replace in this and the later calls of the turn.

        Raises:
            BadEvent: No message and no result waits for a reply.
            BudgetTooSmall, LedgerError: As for `Engine.assemble`, or with the `reply` of this call, which waits.
        """
        check_options("assemble", changes, CallArguments)
        if changes:
            self.request = self.request.with_arguments(changes)
            self._ctx = None
        if self._ctx is None:
            self._ctx = self._assemble_stored()
        return self._ctx

    def assemble_request(self, request: Request) -> AssembledContext:
        """Assemble the context of the turn's next call with the settings and tools of a request, as do its later calls."""
        self.request = replace(request, event=self.request.event, session=self.session)
        self._ctx = None
        return self.assemble()

    def attach(self, ctx: AssembledContext) -> AssembledContext:
        """Return a context that another process assembled for the turn's next call, ready for `record`.

        A compaction of it is planned here, when it is needed. Raises UnreadableFile if it is for another call, and BadEvent
        if the turn waits for no reply.
        """
        ledger = self.engine.ledger
        state = engine_state(ctx)
        with ledger.snapshot():
            thread = ledger.thread(self.session)
            stored = self._stored_event(thread, *open_event(ledger.store, thread))
        if state is None or ctx.session_label != self.session or ctx.event[: len(stored.messages)] != stored.messages:
            raise UnreadableFile(
                f"context is not for the next call of turn {self.number} of {self.session!r} (assemble it)",
                code="bad_context",
            )
        provenance = dataclasses.replace(ctx.provenance, stored_event=stored, request=self.request)
        planned = EngineState(state.renderers, lambda trigger, share: self.assemble().plan(trigger, share), math.inf)
        return dataclasses.replace(ctx, provenance=provenance, _engine=planned)

    def record(self, reply: object, ctx: AssembledContext | None = None) -> Committed:
        """Store a reply to the newest context. Without tool calls it completes the turn.

        Args:
            reply: The provider's response, or an AgentResult.
            ctx: The context that was sent, if another than the newest.

        Raises BadReply for an empty reply without an error, and as `Engine.record`.
        """
        ctx = ctx or self._ctx
        if ctx is None and self.last_reply is not None and reply == self.last_reply:
            turn = f"turn {self.number} of session {self.session!r}"
            raise BadReply(f"reply is already recorded in {turn} (nothing was stored; next call: `turn.assemble()`)")
        if ctx is None:
            raise BadReply("turn has no context to record a reply to (call `turn.assemble()` and send that context)")
        return self.record_result(read_reply(reply), ctx, reply)

    def record_result(
        self, result: AgentResult, ctx: AssembledContext, reply: object, lease: SessionLease | None = None
    ) -> Committed:
        """Store a reply that `read_reply` has read; see `record`. The same commit ends the lease."""
        if result.error is None and not any(message.has_content() for message in result.messages):
            why = "no stop reason"
            if result.stop_reason:
                why = f"stop reason {result.stop_reason}"
            raise BadReply(f"reply is empty ({why}; call again, or end the turn with `turn.fail`; nothing was stored)")
        stored = ctx.provenance.stored_event
        if stored is not None and stored.fence != self._fence:
            stored = dataclasses.replace(stored, fence=self._fence)
            ctx = dataclasses.replace(ctx, provenance=dataclasses.replace(ctx.provenance, stored_event=stored))
        committed = self.engine.recorder.record(ctx, result, reply, lease)
        self._ctx = self._event = self._waiting = None
        self.last_reply = reply
        self._fence = committed.fence or self._fence
        return committed

    def result(
        self, call_id: str, content: str | ToolResult | Message, *, name: str = "", is_error: bool = False
    ) -> Committed:
        """Store the result of one tool call as it arrives. The same result again adds nothing.

        Args:
            call_id: Id of the call.
            content: The result's text, a `ToolResult`, or a message of role `tool`.
            name: Name of the tool.
            is_error: True for a failed call.
        """
        if isinstance(content, str):
            content = ToolResult(call_id, (Text(content),), name, is_error)
        message = _result_message(content)
        if [result.call_id for result in message.results()] != [call_id]:
            raise BadEvent(
                f"result is not one result of call {call_id!r} (pass its text, or nexus.tool({call_id!r}, …))"
            )
        return self._store_results({call_id: message})

    def results(self, *results: ToolResult | Message) -> Committed:
        """Store results of several calls in one transaction, each as an entry of its own; see `result`."""
        messages = [_result_message(result) for result in results]
        pairs = [(result.call_id, message) for message in messages for result in message.results()]
        by_call = dict(pairs)
        if not len(results) == len(pairs) == len(by_call) or not results:
            raise BadEvent("results are not one of each call (pass nexus.tool(…) once for each call)")
        return self._store_results(by_call)

    def _store_results(self, results: Mapping[str, Message]) -> Committed:
        """Store results by the ids of their calls. The stored ones are read once, and after a conflict."""
        self._ctx = self._event = None
        at_ms = self.engine.clock_ms()
        results = {
            name: message if message.at_ms else replace(message, at_ms=at_ms) for name, message in results.items()
        }
        kept = self._waiting
        self._waiting = None  # unless all goes well: another writer may have been there
        if kept is not None and kept.answered.keys() & results.keys():
            kept = None
        waiting = kept or _read_waiting(self.engine.ledger, self.session)
        new = {name: message for name, message in results.items() if waiting.answered.get(name) != message.parts}
        if not new:
            thread = self.engine.ledger.thread(self.session)
            return Committed(thread, self.engine.ledger.store.head(thread)[0], 0, self.number)
        entries = [
            NewEntry(messages=with_sizes((message,), self.engine.counter), keys=(f"result:{waiting.reply}:{name}",))
            for name, message in new.items()
        ]
        try:
            committed = self._commit(*entries)
        except IdempotencyConflict:  # another writer stored a result of one of these calls
            if kept is None:
                raise
            return self._store_results(results)
        waiting.answered.update((name, message.parts) for name, message in new.items())
        self._waiting = waiting
        return committed

    def add(self, event: str | Event) -> Committed:
        """Store a further message of the user in the open turn, behind its results. The same `Event.id` adds nothing.

        Raises BadEvent if a tool call waits for its result, or if the turn's last reply has ended it.
        """
        event = as_event(event, ())
        ledger = self.engine.ledger
        now_ms = self.engine.clock_ms()
        if any(call.result is None for call in self.tool_calls):
            raise BadEvent("turn waits for results (store them with `turn.result`, then add the message)")
        thread = ledger.thread_info(self.session)
        if not thread.open_turn or thread.turn != self.number:
            raise BadEvent(f"turn {self.number} of session {self.session!r} has ended (begin another one)")
        messages = with_sizes(event_messages(event, [], event.at_ms or now_ms), self.engine.counter)
        self._ctx = self._event = self._waiting = None
        principal = self.request.settings.principal
        keys = event_keys(event, principal)
        fields = event_fields(event, principal)
        return self._commit(NewEntry(messages=messages, body=fields, at_ms=now_ms, keys=keys))

    def complete(self) -> Committed:
        """End the turn without another reply, when the results of its tools are stored."""
        self._ctx = self._event = self._waiting = None
        return self._commit(NewEntry("completed"))

    def fail(self, kind: FailureKind, text: str, *, partial: object = None) -> Committed:
        """End the turn as failed, with what had arrived of a reply.

        Args:
            kind: Kind of the failure, for programs.
            text: The error, for people.
            partial: Text, a message or a reply that broke off. Its tool calls were never run and are dropped.
        """
        now_ms = self.engine.clock_ms()
        messages = partial_messages(partial)
        entries: list[NewEntry] = []
        if messages:
            sized = with_sizes(messages, self.engine.counter)
            body = {"partial": True, **(offered_tools(self._ctx) if self._ctx is not None else {})}
            entries.append(NewEntry(messages=sized, body=body, at_ms=now_ms))
        entries.append(NewEntry("failed", body={"error": text, "kind": kind}, at_ms=now_ms))
        self._ctx = self._event = self._waiting = None
        return self._commit(*entries)

    def fail_if_open(self, kind: FailureKind, text: str, *, partial: object = None) -> bool:
        """End the turn as failed, unless it has ended; return whether it was open.

        What had arrived of a reply is stored apart if the turn has ended.
        """
        try:
            self.fail(kind, text, partial=partial)
        except TurnSuperseded:
            return False
        return True

    def cancel(self, *, partial: object = None) -> Committed:
        """End the turn as interrupted by its user or its program; see `fail`."""
        return self.fail(ABORTED, CANCELED, partial=partial)

    def _commit(self, *entries: NewEntry) -> Committed:
        """Store entries of the turn. Entries of a superseded turn are stored apart, and TurnSuperseded is raised."""
        ledger = self.engine.ledger
        position = self._position
        commit = Commit(entries, turn=position, fence=self._fence)
        try:
            committed = ledger.commit(self.session, commit)
        except TurnSuperseded:
            if any(sized.message.role != "user" for entry in entries for sized in entry.messages):
                entries_since = entries_from_turn(ledger.store, position.thread, self.number)
                last = max((entry.seq for entry in entries_since if entry.turn == self.number), default=position.seq)
                try_store_late(ledger, self.session, self.number, (position.thread, last), commit)
            raise
        self._fence = committed.fence or self._fence
        return committed

    def _assemble_stored(self) -> AssembledContext:
        ledger = self.engine.ledger
        record_waiting_reply(ledger, self.engine.recorder.unrecorded, self.session, self.number)
        with ledger.snapshot():
            if self._event is not None:  # others may have added messages behind it
                return self.engine.assemble_stored(self.request, self._event)
            thread = ledger.thread(self.session)
            entries, starts_turn = open_event(ledger.store, thread)
            begin = max((index for index, entry in enumerate(entries, 1) if is_partial(entry)), default=0)
            if begin and any(entry.rows for entry in entries[begin:]):  # what came since answers what had arrived
                entries = entries[begin:]
                starts_turn = False
                begin = 0
            stored = self._stored_event(thread, entries, starts_turn)
            if not begin:
                return self.engine.assemble_stored(self.request, stored)
        # The next try replaces what had arrived; the old thread still has it.
        event = [entry for entry in entries if entry.rows and not is_partial(entry)]
        self._commit()  # by the program that continues the turn alone
        ledger.rewind(self.session, seq=event[-1].seq)
        self._ctx = self._event = self._waiting = None
        return self._assemble_stored()

    def _stored_event(self, thread: int, entries: tuple[Entry, ...], starts_turn: bool) -> StoredEvent:
        position = self._position
        is_current = holder_of(self.engine.ledger.store.path(thread), position.seq) == position.thread
        if not entries or entries[0].turn != self.number or not is_current:
            turn = f"turn {self.number} of session {self.session!r}"
            if waiting := ", ".join(f"{call.name} ({call.id})" for call in self.calls):
                raise BadEvent(f"{turn} waits for results of {waiting} (`turn.calls`; store them with `turn.result`)")
            raise BadEvent(
                f"{turn} waits for no reply: neither a message nor a result came after its last reply (add a result, or "
                "begin another turn)"
            )
        return StoredEvent(
            tuple(row.message for entry in entries for row in entry.rows),
            tuple(entry.seq for entry in entries),  # records of failures are between no call and its reply either
            starts_turn,
            tuple(row.ref for entry in entries for row in entry.rows),
            self.number,
            entries[-1].hash,
            thread,
            self._position,
            self._fence,
        )


def turn_of(engine: TurnEngine, ctx: AssembledContext, fence: int = 0) -> Turn:
    """Return the open turn whose next call a context is for; `fence` is the token of a lease that the caller holds.

    Raises UnreadableFile for any other context.
    """
    request = ctx.provenance.request
    event = ctx.provenance.stored_event
    if event is None or event.position is None or request is None:
        raise UnreadableFile(
            "context is of no open turn (get it from a turn: `turn = nx.begin(…)`, `turn.assemble()`)",
            code="bad_context",
        )
    request = replace(request_of(ctx), event=request.event)
    return Turn(engine, request, event.position, ctx, fence or event.fence or 0)


def open_turn(engine: TurnEngine, request: Request, fence: int = 0) -> Turn | None:
    """Return the newest turn of a request's session if it is open; see `Engine.current_turn`."""
    engine.recorder.record_waiting()
    store = engine.ledger.store
    with engine.ledger.snapshot():
        thread = store.thread_of(request.session)
        if thread is None or not (row := store.thread(thread)).open_turn:
            return None
        entries = [entry for entry in entries_from_turn(store, row.id, row.turn) if entry.turn == row.turn]
        first = entries[0].seq
        position = TurnPosition(holder_of(store.path(row.id), first), first, row.turn)
    return Turn(engine, replace(request, event=surroundings_of(entries)), position, fence=fence)


def begin_turn(
    engine: TurnEngine,
    request: Request,
    fence: int = 0,
    lease: SessionLease | None = None,
    add_tools: Callable[[Request], Request] | None = None,
) -> Turn:
    """Store a request's event and return its turn; see `Engine.begin`.

    Args:
        engine: The engine.
        request: The request.
        fence: Token of a lease that the caller holds.
        lease: If it is not held, the commit of the event takes it.
        add_tools: Adds the tools that depend on the session's history, which it reads in the same snapshot.

    Raises SessionBusy or HeadMoved if the lease must be taken before.
    """
    engine.recorder.record_waiting()
    engine.recorder.unrecorded.reserve()
    event = request.event
    ledger = engine.ledger
    with ledger.snapshot():
        if add_tools is not None:
            request = add_tools(request)
        ctx = engine.assemble_request(request)
        label = ctx.session_label
        principal = request.settings.principal
        assembled = ctx.provenance.request
        surroundings = event
        if assembled is not None:
            surroundings = assembled.event
        request = replace(request, session=label, event=surroundings, chooses_session=False)
        known = turn_with_event(ledger, label, event, principal)
        metadata = new_session_metadata(ctx, ledger.store)
        thread = ledger.store.thread_of(label)
        is_open = thread is not None and ledger.store.thread(thread).open_turn
    taking = lease if lease is not None and lease.is_takable else None
    if known is not None:
        if taking is not None:
            raise SessionBusy(label, "", 0)
        if fence:  # shuts out the program that had the turn before, unless that has completed it meanwhile
            record_waiting_reply(ledger, engine.recorder.unrecorded, label, known.turn)
            with suppress(TurnSuperseded):
                ledger.commit(label, Commit(turn=known, fence=fence))
        return Turn(engine, request, known, fence=fence)
    keys = event_keys(event, principal)
    fields = event_fields(event, principal, surroundings)
    commit = build_event_commit(ctx, engine.counter, engine.clock_ms(), keys, fields)
    commit = replace(commit, turn=continued_turn(ctx) if is_open else None, fence=fence)
    if taking is not None:  # nobody else may have written since the context was assembled
        commit = replace(commit, lease=taking.beginning(), expected_head=ctx.provenance.manifest.head)
    committed = ledger.commit(label, commit, metadata)
    if taking is not None:
        taking.note(committed, commit.lease)
    if not committed.added:  # another call stored the event meanwhile
        if taking is not None:
            raise SessionBusy(label, "", 0)
        other = turn_with_event(ledger, label, event, principal)
        return Turn(engine, request, other or TurnPosition(committed.thread, committed.head, committed.turn))
    return _new_turn(engine, request, ctx, committed)


def _new_turn(engine: TurnEngine, request: Request, ctx: AssembledContext, committed: Committed) -> Turn:
    """Return the turn of an event that was stored just now, with its first context."""
    head_hash = committed.head_hash
    if not head_hash:
        (entry,) = engine.ledger.store.entries(committed.thread, committed.head - 1, committed.head)
        head_hash = entry.hash
    position = TurnPosition(committed.thread, committed.head, committed.turn)
    refs = tuple(MessageRef(committed.head, place) for place in range(len(ctx.event)))
    where = (refs, committed.turn, head_hash, committed.thread, position, committed.fence)
    stored = StoredEvent(ctx.event, (committed.head,), ctx.provenance.starts_turn, *where)
    ctx = dataclasses.replace(ctx, provenance=dataclasses.replace(ctx.provenance, stored_event=stored))
    turn = Turn(engine, request, position, ctx, committed.fence)
    turn.is_new = True
    return turn


def request_of(ctx: AssembledContext) -> Request:
    """Return the request of a context, with its event and the settings and tools that its call has."""
    tools = ctx.provenance.tool_definitions or tuple(tool.definition() for tool in ctx.tools)
    settings = replace(
        ctx.provenance.settings,
        model=ctx.model,
        profile=ctx.provenance.manifest.profile,
        model_config=ctx.model_config,
        role=ctx.role,
        toolset=ctx.toolset_name,
        permissions=ctx.permissions_granted,
        budget=ctx.token_budget.available if ctx.token_budget.direct else None,
    )
    return Request(
        event_of_context(ctx),
        ctx.session_label,
        settings,
        (*tools, *(tool.definition for tool in ctx.provenance.denied_tools)),
    )
