"""The values of a turn log: an entry, the position in a log, and what one or more entries stand for."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.render.turnlog.texts import Members, indent, json_string, object_text, value_text
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message

LogRole: TypeAlias = Literal["system", "user", "assistant"]
LOG_ROLES = ("system", "user", "assistant")
"""Document 001, "Implementation Requirements", 5: only these roles are used."""

FIELDS = ("index", "turn", "timestamp", "role", "content")
"""The fields that each entry has, in the printed order."""

EXTRA = "nexus"
"""The key for what the printed form has no place for."""

POST = "postMessage"
NO_USER = "<@user>"
"""The user's id where none is known."""

NO_SYSTEM = "(This conversation has no system message of its own.)"
CLEARED = "(The conversation was cleared here.)"
SUMMARY = SUMMARY_MARKER
"""What the first system entry says where a session has no system text, what the one after a clear says there, and how
the one after a compaction begins."""


class LogEntry(Struct, frozen=True):
    """One entry. `content` is a system text, or the members of the printed object as JSON texts.

    `extra` is the object under the key `nexus`. `written` is the entry's JSON text where it came from a file that another
    program wrote in a way of its own; it is then shown as it was.
    """

    index: int
    turn: int
    timestamp: str
    role: LogRole
    content: str | Members
    extra: dict[str, Any] = {}
    written: str = ""


class Position(Struct, frozen=True):
    """Where the next entry of a log stands: its index, the turn so far, the role and the time of the entry before it.

    `instructions` is the system text that the log began with, None before the first entry. `at_us` is in microseconds,
    `first` the index from which entries count as shown: after a clear, or what the last compaction kept.
    """

    index: int = 0
    turn: int = 0
    role: str = ""
    at_us: int | None = None
    instructions: str | None = None
    first: int = 0


class Unit(Struct, frozen=True):
    """What stands together in a log: a message, or a compaction or clear, with the tool results that follow it.

    `message` is None for a mark, and for results before which nothing stands. `at_ms` is the time of its entry in the
    ledger, for messages without one; `facts` what a file said of it (see `nexus.interop.turnlog`); `principal` who spoke;
    `kept` is the place from which a compaction kept the messages, `kept_from` the index there, `summary` and `about` its
    text and facts.
    """

    kind: Literal["message", "results", "compaction", "clear"] = "message"
    message: Message | None = None
    results: tuple[Message, ...] = ()
    at_ms: int = 0
    facts: dict[str, Any] = {}
    principal: str = ""
    summary: str = ""
    about: dict[str, Any] = {}
    kept: MessageRef | None = None
    kept_from: int | None = None
    place: MessageRef = MessageRef(0, 0)
    result_places: tuple[MessageRef, ...] = ()


def entry_text(entry: LogEntry) -> str:
    """The entry as the text of a JSON object without spaces."""
    if entry.written:
        return entry.written
    content = json_string(entry.content) if isinstance(entry.content, str) else object_text(entry.content)
    told = {"index": entry.index, "turn": entry.turn, "timestamp": entry.timestamp, "role": entry.role}
    extra = f',"{EXTRA}":{value_text(entry.extra)}' if entry.extra else ""
    return f'{value_text(told)[:-1]},"content":{content}{extra}}}'


def printed_entry(entry: LogEntry) -> str:
    """The entry as it stands in the document's example: one member a line, two spaces a level."""
    return "\n".join(indent(entry_text(entry), 1))
