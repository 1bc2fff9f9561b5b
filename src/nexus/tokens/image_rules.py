"""Formulas by which providers charge images; their parameters are rows of `data/providers.json`.

Sizes are in pixels, results in tokens.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from msgspec import Struct

Detail: TypeAlias = Literal["auto", "low", "medium", "high", "original"]

NO_BUDGET = 10_000
"""Patches of an image of unknown size where there is no budget: the largest that was ever published."""


class _Row(Struct, frozen=True, forbid_unknown_fields=True, tag_field="formula"):
    prefixes: tuple[str, ...]
    """Beginnings of model names; the longest one of all rows wins."""
    name: str = ""
    """A model's name for the rule as a whole; empty: each prefix names itself."""
    default: bool = False
    """Used when no model is named."""
    why: str = ""


class TileRule(_Row, frozen=True, forbid_unknown_fields=True, tag="tiles"):
    """A base and a price per tile, after the image was fitted into a square and its short side limited."""

    base_tokens: int = 0
    tile_tokens: int = 0
    square_px: int = 2048
    short_px: int = 768
    tile_px: int = 512


class PatchRule(_Row, frozen=True, forbid_unknown_fields=True, tag="patches"):
    """A price per patch; an image over its budget of patches is shrunk to whole patches that keep its proportions."""

    tokens_per_patch: float = 1.0
    patch_px: int = 32
    max_patches: int = 1_536
    """Most patches of an image; 0 for no limit."""
    max_patches_original: int = 1_536
    max_patches_auto: int = 1_536


class EdgeRule(_Row, frozen=True, forbid_unknown_fields=True, tag="edge"):
    """One token per patch, after the image was shrunk until its long edge and its tokens keep to their limits."""

    long_edge_px: int = 0
    max_tokens: int = 0
    patch_px: int = 28


class CropRule(_Row, frozen=True, forbid_unknown_fields=True, tag="crops"):
    """One tile for a small image, else tiles of two thirds of the short side, between two limits."""

    tile_tokens: int = 0
    single_tile_px: int = 384
    min_tile_px: int = 256
    max_tile_px: int = 768
    long_edge_px: int = 3072


class FixedRule(_Row, frozen=True, forbid_unknown_fields=True, tag="fixed"):
    """A fixed price for each detail, whatever the size."""

    low_tokens: int = 0
    medium_tokens: int = 0
    high_tokens: int = 0
    long_edge_px: int = 3072


ImageRule: TypeAlias = TileRule | PatchRule | EdgeRule | CropRule | FixedRule


def rule_tokens(rule: ImageRule, width: int, height: int, detail: Detail) -> int:
    """Return the tokens of an image of this size."""
    match rule:
        case TileRule():
            tiles = 0 if detail == "low" else _cells(width, height, shrink_factor(rule, width, height), rule.tile_px)
            return rule.base_tokens + rule.tile_tokens * tiles
        case PatchRule():
            budget = _patch_budget(rule, detail)
            patches = _cells(width, height, _patch_scale(width, height, rule.patch_px, budget), rule.patch_px)
            return math.ceil((min(budget, patches) if budget else patches) * rule.tokens_per_patch)
        case EdgeRule():
            return _cells(width, height, shrink_factor(rule, width, height), rule.patch_px)
        case CropRule():
            if max(width, height) <= rule.single_tile_px:
                return rule.tile_tokens
            side = min(rule.max_tile_px, max(rule.min_tile_px, math.floor(min(width, height) / 1.5)))
            return rule.tile_tokens * math.ceil(width / side) * math.ceil(height / side)
        case FixedRule():
            return {"low": rule.low_tokens, "medium": rule.medium_tokens}.get(detail, rule.high_tokens)


def largest_tokens(rule: ImageRule, detail: Detail) -> int:
    """Return the most tokens that an image of any size costs."""
    match rule:
        case TileRule():
            return rule_tokens(rule, rule.square_px, rule.short_px, detail)
        case PatchRule():
            return math.ceil((_patch_budget(rule, detail) or NO_BUDGET) * rule.tokens_per_patch)
        case EdgeRule():
            return rule.max_tokens
        case CropRule():
            # The smallest tiles on the long side; the short side then has at most two.
            return rule.tile_tokens * 2 * (rule.long_edge_px // rule.min_tile_px)
        case FixedRule():
            return rule_tokens(rule, 0, 0, detail)


def shrink_factor(rule: ImageRule, width: int, height: int) -> float:
    """Return the factor by which the provider shrinks an image before the model sees it; 1 or more: not at all."""
    longest = max(width, height)
    match rule:
        case TileRule():
            scale = min(1.0, rule.square_px / longest)
            return scale * min(1.0, rule.short_px / (min(width, height) * scale))
        case PatchRule():
            return _patch_scale(width, height, rule.patch_px, rule.max_patches_auto)
        case EdgeRule():
            # The long edge of the largest image of these proportions that keeps to the limits, by bisection.
            low = 1
            high = min(rule.long_edge_px, longest)
            while low < high:
                middle = (low + high + 1) // 2
                if _cells(width, height, middle / longest, rule.patch_px) <= rule.max_tokens:
                    low = middle
                else:
                    high = middle - 1
            return low / longest
        case CropRule() | FixedRule():
            return rule.long_edge_px / longest


def _patch_budget(rule: PatchRule, detail: Detail) -> int:
    return {"original": rule.max_patches_original, "auto": rule.max_patches_auto}.get(detail, rule.max_patches)


def _patch_scale(width: int, height: int, side: int, budget: int) -> float:
    if not budget or math.ceil(width / side) * math.ceil(height / side) <= budget:
        return 1.0
    scale = math.sqrt(side * side * budget / (width * height))
    across = width * scale / side
    down = height * scale / side
    # A side under one patch cannot shrink to a whole number of them: it stays one.
    return scale * min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down, 1.0)


def _cells(width: int, height: int, scale: float, side: int) -> int:
    """Return the squares of `side` pixels that cover the scaled image."""
    # Rounded before the ceiling: 1536.0000000000002 is three tiles of 512, not four.
    return math.ceil(round(width * scale / side, 6)) * math.ceil(round(height * scale / side, 6))
