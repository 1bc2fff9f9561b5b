"""Visible parts of messages, the same for every provider: notes joined with the text, images as notes where needed.

In a user message with notes the notes' own frame tags stay, and nothing else in the message can imitate them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from nexus.text.frames.escaping import escape
from nexus.types.message import Image, Message, Note, Part, Text, ToolResult, Unknown, with_neutral_parts, with_parts

PartT = TypeVar("PartT", bound=Part)

RENDER_VERSION = 7
"""Raised whenever equal values would be rendered to other bytes."""

SENT_ADDRESSES = ("https://", "http://", "data:")
"""Beginnings of image addresses that may reach a provider. A file's address would name the caller's files to it."""

SYSTEM_NOTE = "[System message]"
"""Heading of a system message that is shown as a user's."""

PROVIDER_STORAGE = ("gs://", "s3://")
"""Beginnings of image addresses that one provider alone reads. They name nothing of the caller's computer."""

PLUGIN = "hook:"
"""Origin prefix of notes from plugins."""


def visible_parts(message: Message) -> list[Text | Image]:
    """Return a user message's text and images in sending order: notes, images, the user's own text.

    Without images this is one text: the notes, a blank line, the user's text. Text next to notes is escaped, so that it
    cannot imitate one.
    """
    notes = [part for part in message.parts if isinstance(part, Note)]
    if not any(note.text for note in notes):
        return [part for part in message.parts if isinstance(part, (Text, Image))]
    images = [part for part in message.parts if isinstance(part, Image)]
    texts = [part for part in message.parts if isinstance(part, Text)]
    joined = [] if images else texts[:1]
    *first_notes, last = notes
    # Escaped together: the last note's end and the beginning of the user's words can form a tag.
    end = escape_note("\n\n".join([last.text, *(part.text for part in joined)]), last.origin)
    lines = [*(escape_note(note.text, note.origin) for note in first_notes), end]
    return [Text("\n".join(lines)), *images, *map(escape_part, texts[len(joined) :])]


def system_note(message: Message) -> Message:
    """Return a system message as a user's, for providers that take none at its place."""
    return with_parts(replace(message, role="user"), (Text(SYSTEM_NOTE), *message.parts))


def text_of_result(result: ToolResult) -> str:
    """Return a tool result as text, for providers whose tool results cannot contain images."""
    return "\n".join(item.text if isinstance(item, Text) else image_note(item) for item in result.content)


def image_note(image: Image) -> str:
    """Return the line that replaces an image in a text-only result."""
    size = f" {image.width}x{image.height}" if image.width else ""
    return f"[image left out here: {image.media_type}{size}; this provider's tool results hold text only]"


def escape_message(message: Message) -> Message:
    """Return the message with its text escaped, and each note escaped after its own tag.

    Messages without notes and messages of other roles have no frame and are returned unchanged.
    """
    if message.role != "user" or not any(isinstance(part, Note) for part in message.parts):
        return message
    parts = tuple(map(escape_part, message.parts))
    changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
    if changed:
        return with_neutral_parts(message, parts)
    return message


def escape_note(text: str, origin: str) -> str:
    """Return a note's text with all tags escaped except its own head; a plugin's note has no head."""
    # Without its opening bracket the head is no tag, so it stays.
    head = 0 if origin.startswith(PLUGIN) else 1
    rest = text[head:]
    escaped = escape(rest)
    if escaped is rest:
        return text
    return text[:head] + escaped


def escape_part(part: PartT) -> PartT:
    """Return a note or text of a user message that has notes, escaped; any other part unchanged."""
    match part:
        case Note(text=text, origin=origin):
            escaped = escape_note(text, origin)
        case Text(text):
            escaped = escape(text)
        case _:
            return part
    if escaped is text:
        return part
    return replace(part, text=escaped)


def unsendable_kind(part: Part) -> str:
    """Return the name of a part that no provider accepts, its kind or an image's address; empty for any other part."""
    if isinstance(part, Unknown):
        if re.fullmatch(r"[A-Za-z0-9_./-]{1,40}", part.kind):
            return part.kind
        return "part of an unknown kind"
    if isinstance(part, Image) and part.url and not part.data and not part.url.startswith(SENT_ADDRESSES):
        return "image at a local address"
    return ""


def with_unsendable_as_notes(message: Message) -> Message:
    """Return the message with a line of text in place of each part that no provider accepts; the same object without any.

    A part of an unknown kind is still sent as received in its own format, an image at a local address never.
    """

    def noted(part: Part) -> Part:
        if isinstance(part, ToolResult) and any(map(unsendable_kind, part.content)):
            content = (Text(_note(kind)) if (kind := unsendable_kind(item)) else item for item in part.content)
            return replace(part, content=tuple(content))
        if kind := unsendable_kind(part):
            return Text(_note(kind))
        return part

    parts = tuple(map(noted, message.parts))
    if all(map(operator.is_, parts, message.parts)):
        return message
    images = [item for part in message.parts for item in _items(part) if isinstance(item, Image)]
    is_local = any(unsendable_kind(image) and not image.url.startswith(PROVIDER_STORAGE) for image in images)
    if is_local:
        return with_parts(message, parts)
    return with_neutral_parts(message, parts)


def _items(part: Part) -> Iterable[Part]:
    if isinstance(part, ToolResult):
        return part.content
    return (part,)


def kind_line(part: Part) -> str:
    """Return the line in place of a part that only its own format can be sent."""
    return _note(unsendable_kind(part) or "image")


def _note(kind: str) -> str:
    return f"[{kind}: cannot be shown here]"


_ELEMENTS = re.compile(r"\s*<([a-z]{2,30}[_-][a-z_-]{1,40})(?: [^<>]{0,300})?>.*?</\1>\s*", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>\s*[^\s<]")
_WORDS_ELEMENT = re.compile(r"<(?:user|human)[_-](?:query|message|request|input|prompt|question|feedback)[\s>]")
"""Elements in which programs such as Cursor send the user's own words."""
_INTERRUPTION = re.compile(r"\[Request interrupted[^\]\n]*\]\s*")
_PROGRAM_OPENINGS = (
    "[Request interrupted",
    "Base directory for this skill",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)


def is_injected(message: Message, render: int = RENDER_VERSION) -> bool:
    """Return True for a user message that a program wrote: a hook, a skill's text, a reminder, the output of a command.

    Such a message has a program as its source, or each of its texts consists of elements such as `<system-reminder>`, or
    has one of the openings that Claude Code writes. The arguments of a slash command are the user's own, and so is what
    follows a note on an interruption or is inside an element for the user's words.
    """
    if message.source in ("hook", "interrupt") or message.source.startswith("nexus:"):
        return True
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return bool(texts) and not any(_is_typed(text, render) for text in texts)


def typed_text(message: Message) -> str:
    """Return the texts of a user message that the user typed, joined by a newline."""
    return "\n".join(part.text for part in message.parts if isinstance(part, Text) and _is_typed(part.text))


def _is_typed(text: str, render: int = RENDER_VERSION) -> bool:
    text = text.strip()
    if render >= 7 and ((note := _INTERRUPTION.match(text)) is not None):
        text = text[note.end() :]
    if render >= 7 and _WORDS_ELEMENT.search(text):
        return True
    if not text or text.startswith(_PROGRAM_OPENINGS):
        return False
    return not text.startswith("<") or bool(_ELEMENTS.sub("", text)) or _ARGUMENTS.search(text) is not None
