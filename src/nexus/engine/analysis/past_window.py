"""The context of an earlier call of a session: the recorded one, or for an imported call what its file has of it.

A recorded call is rebuilt from its manifest. An imported call has none: its context is assembled from the entries before
its reply, in an empty ledger in memory, with the profile `bare`, and with the system prompt and tools if the file has them.
Most files lack them, so the provider's reported input is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, TypedDict

from msgspec import Struct, structs

from nexus.context import AssembledContext
from nexus.engine import Engine, open_engine
from nexus.engine.analysis.cache_use import CachedCall, cached_calls
from nexus.errors import BadReference
from nexus.ledger.replay import conversation_rows
from nexus.providers.received import items_of, mapping, text_of
from nexus.types.counts import count_noun
from nexus.types.ledger_entries import IMPORTED_REQUEST, Commit, Entry, NewEntry, SizedMessage
from nexus.types.message import Message
from nexus.types.request import Event

PROFILE = "bare"
"""Profile of imported calls: the conversation alone."""


NO_LIMIT = 1_000_000_000
"""A budget that no history exceeds."""


CLIENT_WINDOWS = {"claude_code": 200_000}
"""Largest prompts that clients send to models with a larger window, unless the user selects that.

Sessions of Claude Code with claude-opus-4-6 compacted themselves at 167,361 and 174,247 tokens.
"""


TOOLS_SOURCE = "nexus:tools"
"""Source of warnings about the tools of a call."""


class PastCall(Struct, frozen=True):
    """A call of a session, with its number among the calls of its turn."""

    call: CachedCall
    number: int
    count: int
    is_recorded: bool
    """True if the ledger has the call's manifest, so that its whole prompt is known."""
    most_tokens: int
    """The largest reported input of the session's calls."""


def find_call(nx: Engine, label: str, turn: int | None, number: int | None = None) -> PastCall:
    """Return call `number` [the last] of a turn; without a turn the one with the largest reported input.

    Raises NoSuchSession, BadReference.
    """
    calls = list(cached_calls(nx.ledger.store, nx.ledger.thread(label), nx.resolve))
    if turn is None:
        reported = [call for call in calls if call.input_tokens]
        if not reported:
            raise BadReference(f"session {label!r} has no call with reported usage (name a turn: --at TURN)")
        fullest = max(reported, key=lambda call: call.input_tokens or 0)
        of_turn = [call for call in calls if call.turn == fullest.turn]
        return _past_call(nx, label, calls, of_turn, of_turn.index(fullest))
    of_turn = [call for call in calls if call.turn == turn]
    if not of_turn:
        turns = nx.ledger.thread_info(label).turn
        if 1 <= turn <= turns:
            problem = f"has no calls in turn {turn}"
        else:
            problem = f"has {count_noun(turns, 'turn')}"
        raise BadReference(f"session {label!r} {problem} (list the turns: nexus session turns)")
    wanted = len(of_turn) if number is None else number
    if wanted > len(of_turn):
        raise BadReference(
            f"call {wanted} not found: turn {turn} of session {label!r} has {count_noun(len(of_turn), 'call')}"
        )
    return _past_call(nx, label, calls, of_turn, wanted - 1)


def _past_call(nx: Engine, label: str, calls: list[CachedCall], of_turn: list[CachedCall], at: int) -> PastCall:
    seq = of_turn[at].seq
    is_recorded = bool(nx.ledger.store.assemblies(nx.ledger.thread(label), seq - 1, seq))
    most_tokens = max(call.input_tokens or 0 for call in calls)
    return PastCall(of_turn[at], at + 1, len(of_turn), is_recorded, most_tokens)


def context_of_call(nx: Engine, label: str, chosen: PastCall) -> AssembledContext:
    """Return the context of a call. The budget of an imported one is the whole window that its client used.

    That is its model's, but no more than the client's own limit (`CLIENT_WINDOWS`) if all prompts of the session are
    within that. Nothing is cut: if the file has more than fits, the budget is larger, because the tool sent less than its file has.

    Raises BadReference for an imported call without a message before it, and the errors of `assemble`.
    """
    seq = chosen.call.seq
    if chosen.is_recorded:
        for number in range(1, chosen.count + 1):
            with suppress(BadReference):
                if (recorded := nx.calls.find(label, chosen.call.turn, number)).row.seq == seq:
                    return nx.replay(label, chosen.call.turn, call=recorded.number, unverified=True)
    until_reply = list(nx.ledger.iter_entries(label, 0, seq))
    entries, event_messages = _before_reply(until_reply)
    if not event_messages:
        raise BadReference(f"the call at entry {seq} of session {label!r} has no message before it")
    with closing(_empty_copy(nx)) as copy:
        _append(copy, label, entries, len(event_messages))
        first = event_messages[0]
        if first.role == "tool":
            event = Event(results=event_messages)
        else:
            event = Event(content=first.parts, received=first.received)
        model = chosen.call.model or nx.model
        window = nx.resolve(model).max_input_tokens
        client_window = CLIENT_WINDOWS.get(nx.ledger.sessions.metadata(label).origin, 0)
        if chosen.most_tokens <= client_window:
            window = min(window, client_window)
        ctx = copy.assemble(
            event, session=label, model=model, budget=NO_LIMIT, profile=PROFILE, **_request(until_reply)
        )
    budget = ctx.token_budget
    budget = structs.replace(budget, model_limit=window, available=max(window, budget.used.total))
    # Files of most tools lack the tools, so the warning that none were passed means nothing.
    warnings = tuple(warning for warning in ctx.warnings if warning.source != TOOLS_SOURCE)
    return replace(ctx, token_budget=budget, warnings=warnings)


class _ImportedRequest(TypedDict, total=False):
    """The parts of a request that newer files of Claude Code have."""

    system: str
    tools: Sequence[dict[str, Any]]


def _request(entries: Sequence[Entry]) -> _ImportedRequest:
    """Return system prompt and tools of the newest request in the entries, which its reply has; empty for none."""
    request = next(
        (mapping(entry.body[IMPORTED_REQUEST]) for entry in reversed(entries) if IMPORTED_REQUEST in entry.body), None
    )
    if request is None:
        return {}
    tools = [mapping(tool) for tool in items_of(request.get("tools"))]
    return {"system": text_of(request.get("system")), "tools": tools}


def _before_reply(entries: list[Entry]) -> tuple[list[Entry], tuple[Message, ...]]:
    """Return the entries before the reply that the last one is part of, and the messages at their end that it answers."""
    reply_id = next((row.message.id for row in entries[-1].rows if row.message.role == "assistant"), "")
    entries = entries[:-1]
    while reply_id and entries and any(row.message.id == reply_id for row in entries[-1].rows):
        entries.pop()
    rows = [row.message for entry in entries for row in conversation_rows(entry)]
    first = len(rows) - 1
    if not rows or rows[first].role not in ("user", "tool"):
        return entries, ()
    while first and rows[first].role == rows[first - 1].role == "tool":
        first -= 1
    return entries, tuple(rows[first:])


def _append(copy: Engine, label: str, entries: Sequence[Entry], event_length: int) -> None:
    """Store the entries in a new session, without their last `event_length` messages. Entries keep their numbers."""
    remaining = sum(len(entry.rows) for entry in entries) - event_length
    new: list[NewEntry] = []
    turn = 0
    for entry in entries:
        rows = entry.rows[:remaining]
        remaining -= len(rows)
        if entry.rows and not rows:
            break
        messages = tuple(SizedMessage(row.message, row.size) for row in rows)
        new.append(NewEntry(entry.kind, messages, entry.body, entry.at_ms, entry.turn > turn))
        turn = entry.turn
    if new:
        copy.ledger.store.commit(label, Commit(tuple(new)))


def _empty_copy(nx: Engine) -> Engine:
    """Return an engine with the same workspace, models and configuration, and an empty ledger in memory."""
    return open_engine(
        nx.workspace,
        ledger=":memory:",
        counter=nx.counter,
        settings=nx.settings,
        models=nx.models,
        config=nx.workspace_context.config,
        home=nx.profiles.files.home,
        clock="off",
    )
