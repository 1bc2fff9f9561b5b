"""Messages as document 002's `buildHistoryMessages` and `buildCurrentMessage` return them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from nexus.assembly.gather import event_messages
from nexus.engine import Engine
from nexus.errors import EmptyEvent
from nexus.ledger.replay import visible_messages
from nexus.profiles.builtin import LAYERED
from nexus.text.frames import escape
from nexus.types.block import Block
from nexus.types.history import SUMMARY_MARKER
from nexus.types.message import Message, Text
from nexus.types.request import AgentRole, Event, Request, Routing
from nexus.workspace.source_context import SourceContext, WorkspaceContext
from nexus.workspace.sources.registry import SOURCES


def build_current_message(event: Event, role: AgentRole = "unified") -> Message:
    """Return the message of an event: time, zone, platform, actions (not for workers) and hook data, then its content.

    Without a time the event happens now. The metadata are notes of the message, which are joined with its content by
    a blank line in the request. Raises EmptyEvent for an event of tool results only, which are messages themselves.
    """
    if event.results and not (event.content or event.attachments):
        raise EmptyEvent("event has no current message: tool results are messages themselves")
    at_ms = event.at_ms or time.time_ns() // 1_000_000
    context = SourceContext(Request(event, Routing(role=role)), WorkspaceContext(), at_ms, str(event.timezone))
    notes: list[Block] = [block for name in LAYERED.current for block in SOURCES[name].function(context)[0]]
    return event_messages(event, notes, at_ms)[-1]


def build_history_messages(nx: Engine, thread: str | int) -> list[Message]:
    """Return the history of a session, or of a thread by its number: the live summary, and all messages that it kept.

    Without a compaction it is the whole history. Leading system messages belong to the system prompt and are omitted.
    Unlike in `nx.assemble` the history is not cut to a budget. Raises NoSuchSession, LedgerError.
    """
    return list(_history(nx, thread))


def _history(nx: Engine, thread: str | int) -> Iterator[Message]:
    with nx.store.snapshot():
        number = thread if isinstance(thread, int) else nx.ledger.thread(thread)
        visible = visible_messages(nx.store, number)
        opening = {row.ref for row in nx.store.instructions(number)}
    if visible.summary:
        yield Message("user", (Text(f"{SUMMARY_MARKER}\n{escape(visible.summary)}"),))
    yield from (row.message for row in visible.rows if row.ref not in opening)
