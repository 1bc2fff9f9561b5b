"""Messages that a program exchanged without the engine, added to a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.assembly.record import unanswered_calls, with_sizes
from nexus.engine.engine import Engine
from nexus.types.ledger_entries import Commit, Committed, NewEntry
from nexus.types.message import Message


def add_messages(
    nx: Engine, messages: Sequence[Message], *, session: str = "main", body: Mapping[str, Any] | None = None
) -> Committed:
    """Add messages that were exchanged without this engine to a session, in one transaction. It is created if needed.

    `body` is stored with each of them, such as `{"principal": …}`. A reply without tool calls ends its turn.
    """
    store = nx.ledger.store
    thread = store.thread_of(session)
    is_open = thread is not None and store.thread(thread).open_turn
    entries: list[NewEntry] = []
    for sized in with_sizes(messages, nx.counter):
        at_ms = sized.message.at_ms or nx.clock_ms()
        entries.append(NewEntry(messages=(sized,), body=dict(body or {}), at_ms=at_ms, starts_turn=not is_open))
        is_open = sized.message.role != "assistant" or bool(unanswered_calls((sized.message,)))
        if not is_open:
            entries.append(NewEntry("completed", at_ms=at_ms))
    return nx.ledger.commit(session, Commit(tuple(entries)))
