"""Images of a message as a provider accepts them: of the right type and small enough, or replaced by a note."""

from __future__ import annotations

from collections import Counter

from nexus.assembly.fit.truncate_results import describe_image
from nexus.text.as_received import received_format, with_changed_images
from nexus.text.message_text import image_note, unsendable_kind
from nexus.tokens.image_limits import ImageLimits, shared_limits
from nexus.tokens.image_price import sent_images
from nexus.types.message import Image, Message, Text, ToolResult, with_parts
from nexus.workspace.sendable_images import sendable_image

CHANGED = "image made valid or smaller"
NOTED = "image that cannot be sent shown as a note"


def with_sendable_images(message: Message, limits: ImageLimits | None, changes: Counter[str] | None = None) -> Message:
    """Return the message with its images within the limits; the same object if nothing changes.

    Images of an assistant's message are sent only as received, so only a received one is checked. `changes` counts the
    changed images.
    """
    if limits is None or (message.role == "assistant" and not message.received):
        return message

    is_chat_result = message.role == "tool" and received_format(message) == "openai"
    if is_chat_result and not limits.has_chat_result_images and next(sent_images(message), None):
        # The parts of a result with images are sent as text there; compatible servers take images.
        message = with_parts(message, message.parts)

    def changed(image: Image, result: ToolResult | None) -> Image | Text:
        if unsendable_kind(image) and image.url[:5].lower() != "data:":
            return image  # the repair has a note of its own for local addresses
        if result is not None and result.is_error and not limits.has_error_images and message.received:
            new: Image | Text = Text(image_note(image))
        else:
            sendable = sendable_image(image, limits)
            if isinstance(sendable, Image):
                new = sendable
            else:
                new = Text(unsent_note(image, sendable))
        if changes is not None and new is not image:
            changes[CHANGED if isinstance(new, Image) else NOTED] += 1
        return new

    return with_changed_images(message, changed)


def with_images_for_all(message: Message) -> Message:
    """Return the message with its images as every provider accepts them."""
    return with_sendable_images(message, shared_limits())


def unsent_note(image: Image, reason: str) -> str:
    """Return the text in place of an image that is not sent."""
    return f"[{describe_image(image)} not shown: {reason}]"
