"""User messages with notes: the notes' own frame tags stay, and nothing else in the message can imitate them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from nexus.text.frames.escaping import escape
from nexus.types.message import Message, Note, Part, Text

PartT = TypeVar("PartT", bound=Part)

PLUGIN = "hook:"
"""Origin prefix of notes from plugins."""


def escape_message(message: Message) -> Message:
    """Return the message with its text escaped, and each note escaped after its own tag.

    Messages without notes and messages of other roles have no frame and are returned unchanged.
    """
    if message.role != "user" or not any(isinstance(part, Note) for part in message.parts):
        return message
    parts = tuple(map(escape_part, message.parts))
    changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
    return replace(message, parts=parts) if changed else message


def escape_text(notes: Sequence[Note], words: str | None) -> str:
    """Return the notes, one line each, then a blank line and the user's words, if there are any.

    The words are escaped together with the last note, because its end and their beginning can form a tag.
    """
    *first_notes, last = notes
    text = last.text if words is None else f"{last.text}\n\n{words}"
    return "\n".join([*(escape_note(note.text, note.origin) for note in first_notes), escape_note(text, last.origin)])


def escape_note(text: str, origin: str) -> str:
    """Return a note's text with all tags escaped except its own head; a plugin's note has no head."""
    # Without its opening bracket the head is no tag, so it stays.
    head = 0 if origin.startswith(PLUGIN) else 1
    rest = text[head:]
    escaped = escape(rest)
    return text if escaped is rest else text[:head] + escaped


def escape_part(part: PartT) -> PartT:
    """Return a note or text of a user message that has notes, escaped; any other part unchanged."""
    match part:
        case Note(text=text, origin=origin):
            escaped = escape_note(text, origin)
        case Text(text):
            escaped = escape(text)
        case _:
            return part
    return part if escaped is text else replace(part, text=escaped)
