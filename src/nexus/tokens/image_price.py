"""Image cost in one view: as the called model charges, and never less than any default model.

A message is counted once, when it is written, with the largest of the default figures for each image
(`max_image_tokens`). Some models charge more: Claude from 4.7 on for a large image, GPT-4o mini for any. A view adds the
difference, so that the same history fits each model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from nexus.tokens.images import Vendor, has_image_rules, image_tokens, max_image_tokens, rule_name
from nexus.tokens.model import Model, family_of
from nexus.tokens.model_names import base_model_name
from nexus.types.message import Image, Message, ToolResult


class ImagePrice(Struct, frozen=True):
    """Conversion of images to base tokens for one model."""

    vendor: Vendor | None = None
    """Maker of the model; None if it publishes no formula, so that the largest default counts."""
    model: str = ""
    """Name of the rule (`rule_name`)."""
    factor: float = 1.0
    """The model's tokens per base token, at most 1: images are counted in the model's own tokens, and a factor below 1
    must not make them cheaper."""

    def tokens(self, image: Image) -> int:
        """Return the base tokens of an image."""
        return max_image_tokens(image) + self.more(image)

    def tokens_in(self, message: Message) -> int:
        """Return the base tokens of all images of a message, those in results included."""
        return sum(map(self.tokens, images_in(message)))

    def more(self, image: Image) -> int:
        """Return the base tokens of an image that `max_image_tokens` does not count."""
        if self.vendor is None:
            return 0
        tokens = image_tokens(image, self.vendor, self.model)
        return max(math.ceil(tokens / self.factor) - max_image_tokens(image), 0)

    def more_in(self, message: Message) -> int:
        """Return the sum of `more` over all images of a message."""
        if self.vendor is not None:
            return sum(map(self.more, images_in(message)))
        return 0


ANY_MODEL = ImagePrice()
"""For an unknown model."""


def images_in(message: Message) -> Iterator[Image]:
    """Yield all images of a message, those in results included."""
    for part in message.parts:
        if isinstance(part, Image):
            yield part
        elif isinstance(part, ToolResult):
            yield from (item for item in part.content if isinstance(item, Image))


def sent_images(message: Message) -> Iterator[Image]:
    """Yield the images of a message that have data or an address; no prompt contains the others."""
    return (image for image in images_in(message) if image.data or image.url)


def image_price(model: Model, factor: float = 1.0) -> ImagePrice:
    """Return how images count for a model; `factor` is its current number of tokens per base token."""
    if not has_image_rules(model.vendor):
        return ANY_MODEL
    # A name without a maker's name in it ("gpt-latest") counts as a new model, not as the default one.
    name = provider_model_name(model) or model.name
    return ImagePrice(model.vendor, rule_name(model.vendor, name), min(factor, 1.0))


def provider_model_name(model: Model) -> str:
    """Return the maker's name of a model; for another name (a deployment) the name of its matched row."""
    plain = base_model_name(model.name)
    if family_of(plain).vendor == model.vendor:
        return plain
    return base_model_name(model.matched)
