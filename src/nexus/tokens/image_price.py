"""What an image costs in one view: as the model that is called charges for it, and never less than any default model.

A message's size is counted once, when it is written, with the largest of three default figures for each image
(`most_image_tokens`). Some models charge more: a Claude from 4.7 on for a large image, GPT-4o mini for any. A view adds
what is missing, so that the same history fits each model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from nexus.tokens.images import Vendor, image_tokens, max_image_tokens, rule_name
from nexus.tokens.model import Model
from nexus.tokens.model_lookup import family_of
from nexus.tokens.model_names import base_model_name
from nexus.types.message import Image, Message, ToolResult

VENDORS: dict[str, Vendor] = {"openai": "openai", "anthropic": "anthropic", "gemini": "gemini"}
"""Who publishes what an image costs, by who makes a model."""


class ImagePrice(Struct, frozen=True):
    """How images count in base tokens. Without a `vendor` nothing is known of the model: the largest default counts.

    `model` names the rule. `factor` is the model's tokens per base token where that is below one: images are the model's
    own tokens, which the factor must not make fewer.
    """

    vendor: Vendor | None = None
    model: str = ""
    factor: float = 1.0

    def tokens(self, image: Image) -> int:
        """The base tokens of an image."""
        return max_image_tokens(image) + self.more(image)

    def tokens_in(self, message: Message) -> int:
        """The base tokens of all images of a message, those in results among them."""
        return sum(map(self.tokens, images_in(message)))

    def more(self, image: Image) -> int:
        """What of an image's base tokens `most_image_tokens` does not count."""
        if self.vendor is None:
            return 0
        own = image_tokens(image, self.vendor, self.model)
        return max(math.ceil(own / self.factor) - max_image_tokens(image), 0)

    def more_in(self, message: Message) -> int:
        """The same for all images of a message."""
        return sum(map(self.more, images_in(message))) if self.vendor is not None else 0


ANY_MODEL = ImagePrice()
"""For who does not know the model."""


def images_in(message: Message) -> Iterator[Image]:
    """All images of a message, those in results among them."""
    for part in message.parts:
        if isinstance(part, Image):
            yield part
        elif isinstance(part, ToolResult):
            yield from (item for item in part.content if isinstance(item, Image))


def image_price(model: Model, factor: float = 1.0) -> ImagePrice:
    """How images count for a model; `factor` is its tokens per base token, as known by now."""
    vendor = VENDORS.get(model.vendor)
    if vendor is None:
        return ANY_MODEL
    return ImagePrice(vendor, rule_name(vendor, provider_model_name(model)), min(factor, 1.0))


def provider_model_name(model: Model) -> str:
    """The model by its maker's name; where its own name is of nobody's making (a deployment's), the one that it is taken for."""
    return _makers_name(model.name, model.matched, model.vendor)


@lru_cache(maxsize=256)
def _makers_name(name: str, matched: str, vendor: str) -> str:
    own = base_model_name(name)
    return own if family_of(own)[1] == vendor else base_model_name(matched)
