"""Token cost of images by the providers' published formulas, never a count of their base64 text.

The formulas are in `image_rules`, their parameters in `data/providers.json`, with their sources. Sizes are in pixels,
results in tokens.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

from nexus.tokens.image_rules import Detail, FixedRule, ImageRule, largest_tokens, rule_tokens, shrink_factor
from nexus.tokens.model_table import provider_table
from nexus.types.message import Image

Vendor: TypeAlias = str
"""A model's maker that publishes what images cost: a key of `images` in `data/providers.json`."""

UNKNOWN_SIZE_TOKENS = 1_600
"""Tokens of an image of unknown size: the most for one of standard resolution at any default model, rounded up."""


def image_tokens(image: Image, provider: Vendor, model: str = "", detail: Detail = "auto") -> int:
    """Return the tokens of one image for a provider, by the maker's own name of the model (`gpt-5.4-mini`).

    Without a model the provider's default rule applies. `auto` counts as the model handles it, mostly as `high`. An image
    of unknown size counts as the model's largest, of a model without budget as `NO_BUDGET` patches, and never less than
    `UNKNOWN_SIZE_TOKENS`, unless size makes no difference.
    """
    rule = _row(provider, model)[1]
    if isinstance(rule, FixedRule) or (image.width > 0 and image.height > 0):
        return rule_tokens(rule, image.width, image.height, detail)
    if model:
        return max(largest_tokens(rule, detail), UNKNOWN_SIZE_TOKENS)
    return UNKNOWN_SIZE_TOKENS


def effective_size(width: int, height: int, provider: Vendor, model: str = "") -> tuple[int, int]:
    """Return the size to which the provider shrinks a larger image before the model sees it; a smaller one unchanged.

    An image of that size costs no more tokens than the original one.
    """
    rule = _row(provider, model)[1]
    size = scaled_size(width, height, shrink_factor(rule, width, height))
    # Rounding to whole pixels may make one tile more of it.
    costs_more = rule_tokens(rule, *size, "auto") > rule_tokens(rule, width, height, "auto")
    if costs_more:
        return (width, height)
    return size


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    """Return the size times `scale`, in whole pixels: rounded down, at least 1, never enlarged."""
    scale = min(scale, 1.0)
    # 1536 * (1024 / 1536) is 1023.9999999999999.
    return max(1, math.floor(round(width * scale, 6))), max(1, math.floor(round(height * scale, 6)))


def rule_name(provider: Vendor, model: str) -> str:
    """Return the name of a model that counts by the same rule, so that rules can be compared by name."""
    return _row(provider, model)[0]


def has_image_rules(vendor: str) -> bool:
    """Return True if the maker of a model publishes what images cost."""
    return vendor in provider_table().images


def max_image_tokens(image: Image) -> int:
    """Return the largest of the providers' figures, each for its default model; `UNKNOWN_SIZE_TOKENS` without a size."""
    if image.width <= 0 or image.height <= 0:
        return UNKNOWN_SIZE_TOKENS
    rules = (_row(vendor, "")[1] for vendor in provider_table().images)
    return max(rule_tokens(rule, image.width, image.height, "auto") for rule in rules)


@lru_cache(maxsize=256)
def _row(provider: Vendor, model: str) -> tuple[str, ImageRule]:
    """Return the rule for a model and its name, by the longest known beginning of the model's name."""
    rules = provider_table().images[provider]
    if not model:
        rule = next(rule for rule in rules if rule.default)
        return rule.name or rule.prefixes[0], rule
    pairs = [(prefix, rule) for rule in rules for prefix in rule.prefixes if model.startswith(prefix)]
    prefix, rule = max(pairs, key=lambda pair: len(pair[0]))
    return rule.name or prefix, rule
