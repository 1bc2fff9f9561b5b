"""Limits on all images of a request: above them, large images are shrunk and the oldest become notes.

The number of images is known only when the request is assembled. Both changes depend only on the images that are shown.
Images become notes in batches, so that most calls extend the last one. A call that changes earlier images reports it in
its prefix report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.fit.images import unsent_note
from nexus.assembly.fit.window import Window
from nexus.text.as_received import with_changed_images
from nexus.tokens.image_limits import ImageLimits
from nexus.tokens.image_price import sent_images
from nexus.types.message import Image, Message, Text, ToolResult
from nexus.workspace.sendable_images import longest_edge, sendable_image

STAYING_PERCENT = 80
"""Percentage of the allowed number or bytes of images that remain after a limit is passed."""


class ShownImage(Struct, frozen=True, gc=False):
    """One image of a request, by the index of its message and its number in it."""

    message: int
    number: int
    is_large: bool


class RequestImages(Struct, frozen=True):
    """Changes to a request's images because of their number or total size."""

    limits: ImageLimits = ImageLimits()

    edge_px: int = 0
    """Longest edge for this many images, in pixels; 0 if no image is larger."""

    notes: int = 0
    """Number of images that are notes because they exceed a limit."""

    images: tuple[ShownImage, ...] = ()
    """The images in the order in which they become notes: oldest first, pinned images last. Empty if none changes."""

    def first_change(self, edge_px: int, notes: int, end: int) -> int | None:
        """Return the first message before index `end` that a different edge or number of notes changes."""
        low, high = sorted((notes, self.notes))
        changed = (
            entry.message
            for order, entry in enumerate(self.images)
            if entry.message < end
            and (low <= order < high or (order >= high and entry.is_large and edge_px != self.edge_px))
        )
        return min(changed, default=None)

    def applied_to(self, messages: Sequence[Message], first_index: int) -> list[Message]:
        """Return messages as they are sent; `first_index` is the index of the first of them."""
        if not self.edge_px:
            large = set[int]()
        else:
            large = {entry.message for entry in self.images if entry.is_large}
        noted = {(entry.message, entry.number) for entry in self.images[: self.notes]}
        indexes = large | {message for message, _ in noted}
        limits = replace(self.limits, edge_px=self.edge_px or self.limits.edge_px)
        shown_messages = [*messages]
        for index in indexes:
            place = index - first_index
            if 0 <= place < len(messages):
                shown_messages[place] = _with_limited(messages[place], index, noted, limits)
        return shown_messages


def _with_limited(message: Message, index: int, noted: set[tuple[int, int]], limits: ImageLimits) -> Message:
    numbers = count()

    def limited(image: Image, _result: ToolResult | None) -> Image | Text:
        if (index, next(numbers)) in noted:
            reason = f"a request may have {limits.max_images} images, and they may not be too large together"
            return Text(unsent_note(image, f"{reason}; the newest are shown"))
        sendable = image
        if limits.edge_px:
            sendable = sendable_image(image, limits)
        if isinstance(sendable, Image):
            return sendable
        return Text(unsent_note(image, sendable))

    return with_changed_images(message, limited)


def request_images(window: Window, visible: Sequence[Message]) -> RequestImages:
    """Return the changes to the images of a window and of the messages after it."""
    limits = window.rules.image_limits
    opening = window.opening.messages
    if limits is None or not (window.images or any(map(_has_image, (*opening, *visible)))):
        return RequestImages()
    first = len(opening)
    end = len(opening) + len(window.messages)
    pinned = [*_images(opening, 0), *((first + index, n, image) for index, n, image, is_pin in window.images if is_pin)]
    others = [
        *((first + index, number, image) for index, number, image, is_pin in window.images if not is_pin),
        *_images(visible, end),
    ]
    if len(pinned) > limits.max_images // 2:  # pins give up their images like all others
        pinned, others = [], [*pinned, *others]
    notes = _note_count(
        [len(image.data) for _, _, image in others],
        limits.max_images - len(pinned) if limits.max_images else 0,
        limits.total_bytes - sum(len(image.data) for _, _, image in pinned) if limits.total_bytes else 0,
    )
    edge_px = 0
    if len(pinned) + len(others) - notes > limits.many_images > 0:
        edge_px = limits.many_edge_px
    images = tuple(
        ShownImage(index, number, bool(edge_px) and longest_edge(image, limits) > edge_px)
        for index, number, image in (*others, *pinned)
    )
    if not any(entry.is_large for entry in images[notes:]):
        edge_px = 0
    return RequestImages(limits, edge_px, notes, images if edge_px or notes else ())


def _note_count(sizes: Sequence[int], max_images: int, total_bytes: int) -> int:
    """Return how many of the oldest images become notes.

    The images are counted one by one in their order, so that the number changes only when a limit is passed again. The
    newest image remains.
    """
    first = total = 0
    for index, size in enumerate(sizes):
        total += size
        if not (0 < max_images <= index - first or 0 < total_bytes < total):
            continue
        while first < index and (
            index + 1 - first > max_images * STAYING_PERCENT // 100 > 0
            or total > total_bytes * STAYING_PERCENT // 100 > 0
        ):
            total -= sizes[first]
            first += 1
    return first


def _has_image(message: Message) -> bool:
    return next(sent_images(message), None) is not None


def _images(messages: Iterable[Message], first_index: int) -> Iterator[tuple[int, int, Image]]:
    for index, message in enumerate(messages, first_index):
        yield from ((index, number, image) for number, image in enumerate(sent_images(message)))
