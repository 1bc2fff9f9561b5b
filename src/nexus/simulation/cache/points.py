"""The calls of a recorded session: what came before each answer of the model, the answer, and when.

Compactions, clears and cuts of the session are passed over: each policy sees all that was said, and trims by itself.
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
"""The time of the first call where the session knows none: 2026-01-01, 00:00 UTC."""


class CallPoint(Struct, frozen=True):
    """One call: what was said before it without an answer, the event, the answer, and the call's time if it is known."""

    before: tuple[Message, ...]
    event: Event
    reply: tuple[Message, ...]
    at_ms: int = 0


class RecordedSession(Struct, frozen=True):
    """A session as its calls, in order, and the system messages that opened it."""

    instructions: tuple[Message, ...]
    points: tuple[CallPoint, ...]


def recorded_session(entries: Iterable[Entry]) -> RecordedSession:
    """The calls of a session's entries: one wherever the model answered; what nobody answered is no call.

    The event is the user's last message, or the results of a batch of tools. Notes that were sent with a message are
    left out: each policy gets those that belong to its own call.
    """
    instructions: list[Message] = []
    points: list[CallPoint] = []
    pending: list[Message] = []
    for entry in entries:
        said = conversation_rows(entry)
        instructions += (_plain(row.message) for row in entry.rows[: len(entry.rows) - len(said)])
        for message in (_plain(row.message) for row in said):
            if message.role != "assistant":
                pending.append(message)
            elif pending:
                points.append(_point(pending, message))
                pending = []
            elif points:
                points[-1] = replace(points[-1], reply=(*points[-1].reply, message))
    return RecordedSession(tuple(instructions), tuple(points))


def times_of(points: Sequence[CallPoint], interval_ms: int) -> list[int]:
    """When each call is made: at its known time, never before the last one; `interval_ms` after it where none is known."""
    times: list[int] = []
    for point in points:
        last = times[-1] if times else START_MS - interval_ms
        known = point.at_ms if not times else max(point.at_ms, last)
        times.append(known if point.at_ms else last + interval_ms)
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


def _plain(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Note))
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)
