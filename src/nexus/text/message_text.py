"""Visible parts of messages, the same for every provider: notes joined with the text, images as notes where needed."""

from __future__ import annotations

from nexus.text.frames.beside import escape_part, escape_text
from nexus.types.message import Image, Message, Note, Text, ToolResult

RENDER_VERSION = 2
"""Raised whenever equal values would be rendered to other bytes."""


def visible_parts(message: Message) -> list[Text | Image]:
    """Return a user message's text and images in sending order: notes, images, the user's own text.

    Without images this is one text: the notes, a blank line, the user's text. Text next to notes is escaped, so that it
    cannot imitate one (`frames.beside`).
    """
    notes = [part for part in message.parts if isinstance(part, Note)]
    if not any(note.text for note in notes):
        return [part for part in message.parts if isinstance(part, (Text, Image))]
    images = [part for part in message.parts if isinstance(part, Image)]
    texts = [part for part in message.parts if isinstance(part, Text)]
    joined = [] if images else texts[:1]
    text = escape_text(notes, joined[0].text if joined else None)
    return [Text(text), *images, *map(escape_part, texts[len(joined) :])]


def text_of_result(result: ToolResult) -> str:
    """Return a tool result as text, for providers whose tool results cannot contain images."""
    return "\n".join(item.text if isinstance(item, Text) else image_note(item) for item in result.content)


def image_note(image: Image) -> str:
    """Return the line that replaces an image in a text-only result."""
    size = f" {image.width}x{image.height}" if image.width else ""
    return f"[image left out here: {image.media_type}{size}; this provider's tool results hold text only]"
