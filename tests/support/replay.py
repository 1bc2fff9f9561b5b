"""Plays a recorded session again, call by call: what the agent would have asked Nexus for, and what it would record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.errors import BudgetTooSmall
from nexus.interop.transcript import Transcript
from nexus.types.ledger_entries import Commit, Compaction, NewEntry
from nexus.types.message import Message
from nexus.types.request import AgentResult, Event

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"


@dataclass(frozen=True)
class Mark:
    """The conversation was cleared, or compacted to a summary."""

    summary: str | None


@dataclass(frozen=True)
class CallPoint:
    """What came since the last call: first what is merely appended, then the event; then the recorded reply."""

    appended: tuple[Message, ...]
    event: Event
    reply: tuple[Message, ...]


def call_points(transcript: Transcript) -> Iterator[CallPoint | Mark]:
    """A call point before every assistant message (pieces that follow each other count as one), and the marks."""
    pending: list[Message] = []
    reply: list[Message] = []
    for step in transcript.steps:
        if step.kind != "messages":
            yield from _flush(pending, reply)
            pending, reply = [], []
            yield Mark(step.summary if step.kind == "compaction" else None)
            continue
        for message in step.messages:
            if message.role == "assistant":
                reply.append(message)
                continue
            if reply:
                yield from _flush(pending, reply)
                pending, reply = [], []
            pending.append(message)
    yield from _flush(pending, reply)


def _flush(pending: list[Message], reply: list[Message]) -> Iterator[CallPoint]:
    if not pending:
        if reply:
            yield CallPoint((), Event(), tuple(reply))
        return
    if pending[-1].role == "tool":
        cut = len(pending)
        while cut and pending[cut - 1].role == "tool":
            cut -= 1
        yield CallPoint(tuple(pending[:cut]), Event(results=tuple(pending[cut:])), tuple(reply))
    else:
        yield CallPoint(tuple(pending[:-1]), Event(content=pending[-1].parts), tuple(reply))


def append(nx: Engine, session: str, *messages: Message, starts_turn: bool = False) -> None:
    if messages:
        nx.ledger.store.commit(
            session, Commit((NewEntry(messages=with_sizes(messages, nx.counter), starts_turn=starts_turn),))
        )


def mark(nx: Engine, session: str, at: Mark) -> None:
    """Appends a clear or a compaction of everything so far."""
    thread = nx.ledger.store.thread_of(session)
    head = nx.ledger.store.head(thread)[0] if thread else 0
    if at.summary is None:
        entry = NewEntry("clear")
    else:
        entry = NewEntry("compaction", body=msgspec.to_builtins(Compaction(1, head, head + 2, at.summary)))
    nx.ledger.store.commit(session, Commit((entry,)))


def record(nx: Engine, session: str, point: CallPoint, ctx: object | BudgetTooSmall) -> None:
    """Records the reply with its context, or, where the context was refused, appends event and reply all the same."""
    if isinstance(ctx, BudgetTooSmall):
        event = point.event.results or (Message("user", point.event.content),)
        append(nx, session, *event, *point.reply, starts_turn=not point.event.results)
    else:
        nx.record(ctx, AgentResult(messages=point.reply))  # pyright: ignore[reportArgumentType]
