"""What a user says now, in document 000's frame [THIS_MOMENT]: its time, what came with it, its words."""

from __future__ import annotations

from datetime import UTC

from msgspec.structs import replace

from nexus.render.tagged.blocks import moment_block
from nexus.render.tagged.times import moment_time
from nexus.text.frames.beside import escape_note
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.history import MOMENT_ORIGIN
from nexus.types.ledger_entries import Entry, StoredMessage
from nexus.types.message import Image, Message, Note, Text
from nexus.types.sanitize import sanitize_text

OTHER_MOMENTS = ("", "nexus:moment", "nexus:runtime-context", "nexus:date-time", MOMENT_ORIGIN)
"""Origins of the notes that do not stand beside the frame: the time is in it, and other forms tell it in their words."""


def framed(message: Message) -> Message:
    """A user's message as one text in the frame, then its images; any other message as it is.

    A message that was recorded in another form has its own time, in UTC. Other notes stand as texts before the frame.
    """
    if message.role != "user":
        return message
    notes = [part for part in message.parts if isinstance(part, Note)]
    times = [note.text for note in notes if note.origin == MOMENT_ORIGIN]
    time = times[0] if times else moment_time(message.at_ms or None, UTC)
    aside = [
        Text(escape_note(sanitize_text(note.text), note.origin)) for note in notes if note.origin not in OTHER_MOMENTS
    ]
    images = [part for part in message.parts if isinstance(part, Image)]
    if not (times or aside or images or message.text()):
        return message  # a time that stands alone
    text = moment_block(time, sanitize_text(message.text()))
    return replace(message, parts=(*aside, Text(text), *images))


def framed_entry(entry: Entry, counter: TokenCounter) -> Entry:
    """An entry with its users' messages framed, and counted as they are shown then."""
    rows = [_framed_row(row, counter) for row in entry.rows]
    return replace(entry, rows=tuple(rows))


def _framed_row(row: StoredMessage, counter: TokenCounter) -> StoredMessage:
    message = framed(row.message)
    return row if message is row.message else StoredMessage(row.place, message, message_tokens(message, counter))
