"""The calls of a recorded session: the messages before each reply of the model, the reply, and the time.

Compactions, clears and cuts of the session are ignored: each policy gets all messages and truncates by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.replay import conversation_rows
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Note
from nexus.types.request import Event

START_MS = 1_767_225_600_000
"""Time of the first call if it is unknown: 2026-01-01, 00:00 UTC."""


class CallPoint(Struct, frozen=True):
    """One call."""

    before: tuple[Message, ...]
    """Messages since the previous call that got no reply of their own."""
    event: Event
    reply: tuple[Message, ...]
    at_ms: int = 0
    """0 if unknown."""


class RecordedSession(Struct, frozen=True):
    """A session as its calls, in order, and its leading system messages."""

    instructions: tuple[Message, ...]
    points: tuple[CallPoint, ...]


def recorded_session(entries: Iterable[Entry]) -> RecordedSession:
    """Return the calls of a session's entries: one for each reply of the model.

    The event is the user's last message, or the results of a batch of tools. Notes that were sent with a message are
    removed: each policy's assembly adds its own.
    """
    instructions: list[Message] = []
    points: list[CallPoint] = []
    pending: list[Message] = []
    for entry in entries:
        rows = conversation_rows(entry)
        instructions += (_without_notes(row.message) for row in entry.rows[: len(entry.rows) - len(rows)])
        for message in (_without_notes(row.message) for row in rows):
            if message.role != "assistant":
                pending.append(message)
            elif pending:
                points.append(_point(pending, message))
                pending = []
            elif points:
                points[-1] = replace(points[-1], reply=(*points[-1].reply, message))
    return RecordedSession(tuple(instructions), tuple(points))


def times_of(points: Sequence[CallPoint], interval_ms: int) -> list[int]:
    """Return the time of each call: the recorded one, but never before the previous call.

    A call without a recorded time follows `interval_ms` after the previous one.
    """
    times: list[int] = []
    for point in points:
        last = times[-1] if times else START_MS - interval_ms
        if not point.at_ms:
            times.append(last + interval_ms)
        else:
            times.append(max(point.at_ms, last) if times else point.at_ms)
    return times


def _point(pending: list[Message], reply: Message) -> CallPoint:
    first = len(pending) - 1
    if pending[-1].role == "tool":
        while first and pending[first - 1].role == "tool":
            first -= 1
    event = pending[first:]
    at_ms = event[-1].at_ms
    if event[0].role == "tool":
        return CallPoint(tuple(pending[:first]), Event(results=tuple(event)), (reply,), at_ms)
    return CallPoint(tuple(pending[:first]), Event(content=event[0].parts), (reply,), at_ms)


def _without_notes(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Note))
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)
