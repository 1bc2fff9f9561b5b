"""A user's message that Nexus adds something to: the added frames stand, and nothing else in it can look like one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from nexus.text.frames.escaping import escape
from nexus.types.message import Message, Note, Part, Text

PartT = TypeVar("PartT", bound=Part)

PLUGIN = "hook:"
"""How the origin of a note begins that is not ours."""


def escape_message(message: Message) -> Message:
    """The message with its parts as they are shown: the user's words escaped, and in each note what follows its own mark.

    A message without notes has no frame and stays as it is, as does one of another role; so do all words without marks.
    """
    if message.role != "user" or not any(isinstance(part, Note) for part in message.parts):
        return message
    parts = tuple(map(escape_part, message.parts))
    changed = any(part is not own for part, own in zip(parts, message.parts, strict=True))
    return replace(message, parts=parts) if changed else message


def escape_text(notes: Sequence[Note], words: str | None) -> str:
    """Notes as one text, a line each, then after a blank line the user's words, if there are some.

    The words are escaped together with what they follow: the end of one and the beginning of the other can be a mark.
    """
    *before, last = notes
    text = last.text if words is None else f"{last.text}\n\n{words}"
    return "\n".join([*(escape_note(note.text, note.origin) for note in before), escape_note(text, last.origin)])


def escape_note(text: str, origin: str) -> str:
    """A note's text: the bracket of its own head stays, so it is a mark, and is the only one. A plugin's has no such head."""
    own = 0 if origin.startswith(PLUGIN) else 1
    rest = text[own:]
    shown = escape(rest)
    return text if shown is rest else text[:own] + shown


def escape_part(part: PartT) -> PartT:
    """A note or text of a user's message that has notes, as it is shown; any other part as it is."""
    match part:
        case Note(text=text, origin=origin):
            shown = escape_note(text, origin)
        case Text(text):
            shown = escape(text)
        case _:
            return part
    return part if shown is text else replace(part, text=shown)
