"""Notes that replace images of older turns.

A note is a pure function of the stored image, so it has the same bytes in every call. The ledger keeps the image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.types.message import Image, Message, Part, Text, ToolResult

NOTE_TOKENS = 120
"""Upper bound of a note's tokens. An image frees at least its own tokens minus these."""

_PLAIN_TYPE = re.compile(r"[A-Za-z0-9/+.-]{1,40}\Z")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,80}\Z")


def with_image_notes(message: Message) -> Message:
    """Return the message with each image, also in results, replaced by a note; the same object if it has none."""
    if next(images_of(message), None) is None:
        return message
    return replace(message, parts=tuple(map(_part, message.parts)))


def freed_tokens(message: Message, images: ImagePrice = ANY_MODEL) -> int:
    """Return the minimum of tokens that image notes free in the message."""
    return sum(max(images.tokens(image) - NOTE_TOKENS, 0) for image in images_of(message))


def images_of(message: Message) -> Iterator[Image]:
    """Yield the images that a message shows, including images in results."""
    for part in message.parts:
        if isinstance(part, Image):
            if _is_shown(part):
                yield part
        elif isinstance(part, ToolResult):
            yield from (item for item in part.content if isinstance(item, Image))


def _is_shown(image: Image) -> bool:
    """Return False for an image without data, which no prompt contains."""
    return bool(image.data or image.url)


def _part(part: Part) -> Part:
    if isinstance(part, Image):
        return _note(part, "") if _is_shown(part) else part
    if isinstance(part, ToolResult):
        content = (_note(item, part.call_id) if isinstance(item, Image) else item for item in part.content)
        return replace(part, content=tuple(content))
    return part


def _note(image: Image, call_id: str) -> Text:
    """Return type, size and the command for the image. The session's name may change, so the note omits it."""
    kind = image.media_type if _PLAIN_TYPE.match(image.media_type) else "an image"
    size = f" {image.width}x{image.height}" if image.width > 0 and image.height > 0 else ""
    call = f" --call {call_id}" if _PLAIN_ID.match(call_id) else ""
    return Text(f"[{kind}{size} was shown here before; to see it again: `nexus history SESSION{call} --images FOLDER`]")
