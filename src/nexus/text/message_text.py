"""What of a message is shown, the same for every provider: notes joined with the text, bytes of images as notes say."""

from __future__ import annotations

from nexus.text.frames.beside import escape_part, escape_text
from nexus.types.message import Image, Message, Note, Text, ToolResult

RENDER_VERSION = 2
"""Raised whenever the same values would give other bytes."""


def visible_parts(message: Message) -> list[Text | Image]:
    """A user message's text and images in sending order: notes, then images, then the user's own text (document 003).

    Without images it is one text: the notes, a blank line, the text. Beside notes, no words look like one (`frames.beside`).
    """
    notes = [part for part in message.parts if isinstance(part, Note)]
    if not any(note.text for note in notes):
        return [part for part in message.parts if isinstance(part, (Text, Image))]
    images = [part for part in message.parts if isinstance(part, Image)]
    texts = [part for part in message.parts if isinstance(part, Text)]
    beside = [] if images else texts[:1]
    shown = escape_text(notes, beside[0].text if beside else None)
    return [Text(shown), *images, *map(escape_part, texts[len(beside) :])]


def text_of_result(result: ToolResult) -> str:
    """A tool result as text only, for wires whose results hold no images: each image becomes a line that says so."""
    lines = [item.text if isinstance(item, Text) else image_note(item) for item in result.content]
    return "\n".join(lines)


def image_note(image: Image) -> str:
    """The line that stands where an image cannot."""
    size = f" {image.width}x{image.height}" if image.width else ""
    return f"[image left out here: {image.media_type}{size}; this provider's tool results hold text only]"
