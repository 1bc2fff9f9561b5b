"""What an image costs: the providers' published formulas, never a count of its base64 text.

OpenAI's older models shrink an image and count tiles of 512 pixels; its smaller and newer ones count patches of 32
pixels under a budget. Anthropic counts patches of 28 pixels. Gemini counts tiles of at most 768 pixels, and from 3 on a
fixed number for each resolution. Sources: developers.openai.com (images and vision), platform.claude.com (vision),
ai.google.dev (image understanding, media resolution). Sizes are in pixels, results in tokens. OpenAI publishes no tokens
per patch for GPT-5.2 and later but the small ones; `MEASURED` is what developers measured (community.openai.com).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

from nexus.types.message import Image

Vendor: TypeAlias = Literal["openai", "anthropic", "gemini"]
Detail: TypeAlias = Literal["auto", "low", "medium", "high", "original"]

UNKNOWN_SIZE_TOKENS = 1_600
"""Taken for an image of unknown size: what Anthropic charges at most for one of standard resolution, rounded up."""

MEASURED = 1.2
"""Tokens per patch of GPT-5.2 to 5.4, as measured; taken for all later models, of which nothing is known."""

NO_BUDGET = 10_000
"""Patches of an image of unknown size where there is no budget: the largest that was ever published."""


class _Tiles(NamedTuple):
    """OpenAI's tiles: a base, and so much for each tile of 512 pixels."""

    base: int
    tile: int


class _Patches(NamedTuple):
    """OpenAI's patches of 32 pixels: tokens per patch, and how many an image has at most (0: any number) at each detail."""

    factor: float
    high: int = 1_536
    original: int = 1_536
    auto: int = 1_536

    def most(self, detail: Detail) -> int:
        """How many patches an image has at most."""
        return self.original if detail == "original" else self.auto if detail == "auto" else self.high


_GPT_4O = _Tiles(85, 170)
_NEWEST = _Patches(MEASURED, 2_500, 0, 0)

# By the longest beginning of the model's name; a name that is not here is taken for a model of the newest kind. The
# factors of the small models are the published ones; 1.20 was measured for some of them.
_OPENAI: dict[str, _Tiles | _Patches] = {
    "": _NEWEST,
    "chatgpt-4o": _GPT_4O,
    "codex-mini": _Patches(1.72),
    "computer-use": _Tiles(65, 129),
    "gpt-4": _GPT_4O,
    "gpt-4.1-mini": _Patches(1.62),
    "gpt-4.1-nano": _Patches(2.46),
    "gpt-4o-mini": _Tiles(2833, 5667),
    "gpt-5": _Tiles(70, 140),
    "gpt-5-codex-mini": _Patches(1.62),
    "gpt-5-mini": _Patches(1.62),
    "gpt-5-nano": _Patches(2.46),
    "gpt-5.1-codex-mini": _Patches(1.62),
    "gpt-5.2": _Patches(MEASURED),
    "gpt-5.3": _Patches(MEASURED),
    "gpt-5.4": _Patches(MEASURED, 2_500, 10_000, 2_500),
    "gpt-5.4-mini": _Patches(1.62),
    "gpt-5.4-nano": _Patches(2.46),
    "gpt-5.5": _Patches(MEASURED, 2_500, 10_000, 10_000),
    "gpt-5.6": _NEWEST,
    "gpt-5.": _NEWEST,
    "gpt-5.1": _Tiles(70, 140),
    "o1": _Tiles(75, 150),
    "o3": _Tiles(75, 150),
    "o4-mini": _Patches(1.72),
}
_MOST_TILES = 8
"""Of an image that was shrunk to 2048 x 768 pixels."""

# Longest edge and most tokens of an image: standard, and from Claude 4.7 on.
_STANDARD, _HIGH = (1568, 1_568), (2576, 4_784)
_STANDARD_CLAUDE = ("claude-3", "claude-2", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4")
_HIGH_CLAUDE = tuple(f"claude-{line}-4-{minor}" for line in ("opus", "sonnet", "haiku") for minor in (7, 8, 9))

GEMINI_EDGE = 3072
"""Pixels on the long edge beyond which Gemini shrinks an image (ai.google.dev, image understanding)."""

_GEMINI_MOST = 258 * 24
"""The most tiles that an image of `GEMINI_EDGE` has: 12 of 256 pixels on its long side, 2 on its short one."""

_GEMINI_3: dict[Detail, int] = {"low": 280, "medium": 560, "high": 1_120, "auto": 1_120, "original": 1_120}


def image_tokens(image: Image, provider: Vendor, model: str = "", detail: Detail = "auto") -> int:
    """Tokens of one image for a provider, by the maker's own name of the model (`gpt-5-mini`).

    Without a model: OpenAI's GPT-4o, Anthropic's standard resolution, Gemini 3 at its default. `auto` counts as the model
    takes it, mostly as `high`. An image of unknown size counts as the model's largest, of a model without budget as
    `NO_BUDGET` patches, and never less than `UNKNOWN_SIZE_TOKENS`, unless size makes no difference.
    """
    if provider == "gemini" and _is_gemini_3(model):
        return _GEMINI_3[detail]
    width, height = image.width, image.height
    if width <= 0 or height <= 0:
        return max(_largest(provider, model, detail), UNKNOWN_SIZE_TOKENS) if model else UNKNOWN_SIZE_TOKENS
    if provider == "openai":
        return _openai(width, height, model, detail)
    if provider == "anthropic":
        return _patches_28(width, height, _anthropic_edge(width, height, *_limits(model)))
    return _gemini_tiles(width, height)


def effective_size(width: int, height: int, provider: Vendor, model: str = "") -> tuple[int, int]:
    """The size in pixels that the provider shrinks a larger image to before the model sees it; a smaller one as it is.

    It costs no more tokens than the image itself. OpenAI's as without a detail; Gemini's, which publishes no size for each
    model, is at most `GEMINI_EDGE` on both sides.
    """
    if provider == "openai":
        rule = _openai_rule(model)
        scale = _tiles_scale(width, height) if isinstance(rule, _Tiles) else _patches_scale(width, height, rule.auto)
    elif provider == "anthropic":
        scale = _anthropic_edge(width, height, *_limits(model)) / max(width, height)
    else:
        scale = GEMINI_EDGE / max(width, height)
    return scaled_size(width, height, scale)


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    """The size times `scale`, in whole pixels: rounded down, at least one, never enlarged."""
    scale = min(scale, 1.0)
    # 1536 * (1024 / 1536) is 1023.9999999999999.
    return max(1, math.floor(round(width * scale, 6))), max(1, math.floor(round(height * scale, 6)))


def rule_name(provider: Vendor, model: str) -> str:
    """A model's name that counts by the same rule as `model` does: one for each rule, so that they can be compared."""
    if provider == "openai":
        return _openai_name(model) or "gpt-5.6"
    if provider == "anthropic":
        return "claude-opus-4-7" if _limits(model) == _HIGH else "claude-opus-4"
    return "gemini-3" if _is_gemini_3(model) else "gemini-2"


def max_image_tokens(image: Image) -> int:
    """The largest of the three providers' figures for an image, each for its default model.

    `UNKNOWN_SIZE_TOKENS` if its size is unknown.
    """
    if image.width <= 0 or image.height <= 0:
        return UNKNOWN_SIZE_TOKENS
    return max(image_tokens(image, vendor) for vendor in ("openai", "anthropic", "gemini"))


def _is_gemini_3(model: str) -> bool:
    return not model or model.startswith(("gemini-3", "gemini-4"))


def _largest(provider: Vendor, model: str, detail: Detail) -> int:
    """The most that an image of any size costs; where there is no budget, `NO_BUDGET` patches."""
    if provider == "anthropic":
        return _limits(model)[1]
    if provider == "gemini":
        return _GEMINI_MOST
    rule = _openai_rule(model)
    if isinstance(rule, _Tiles):
        return rule.base if detail == "low" else rule.base + rule.tile * _MOST_TILES
    return math.ceil((rule.most(detail) or NO_BUDGET) * rule.factor)


def _openai_name(model: str) -> str:
    return max((prefix for prefix in _OPENAI if model.startswith(prefix)), key=len)


def _openai_rule(model: str) -> _Tiles | _Patches:
    return _OPENAI[_openai_name(model)] if model else _GPT_4O


def _openai(width: int, height: int, model: str, detail: Detail) -> int:
    rule = _openai_rule(model)
    if isinstance(rule, _Tiles):
        return rule.base if detail == "low" else rule.base + rule.tile * _tiles_512(width, height)
    return math.ceil(_patches_32(width, height, rule.most(detail)) * rule.factor)


def _tiles_512(width: int, height: int) -> int:
    """Tiles of 512 pixels after fitting into 2048 x 2048 and then shrinking the short side to 768; never enlarged."""
    scale = _tiles_scale(width, height)
    # Rounded before the ceiling: 1536.0000000000002 is three tiles, not four.
    return math.ceil(round(width * scale / 512, 6)) * math.ceil(round(height * scale / 512, 6))


def _tiles_scale(width: int, height: int) -> float:
    scale = min(1.0, 2048 / max(width, height))
    return scale * min(1.0, 768 / (min(width, height) * scale))


def _patches_32(width: int, height: int, most: int) -> int:
    """Patches of 32 pixels; over `most` (0: no limit) an image is shrunk to whole patches that keep its proportions."""
    scale = _patches_scale(width, height, most)
    patches = math.ceil(round(width * scale / 32, 6)) * math.ceil(round(height * scale / 32, 6))
    return min(most, patches) if most else patches


def _patches_scale(width: int, height: int, most: int) -> float:
    if not most or math.ceil(width / 32) * math.ceil(height / 32) <= most:
        return 1.0
    scale = math.sqrt(32 * 32 * most / (width * height))
    across, down = width * scale / 32, height * scale / 32
    # A side under one patch cannot shrink to a whole number of them: it stays one.
    return scale * min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down, 1.0)


def _limits(model: str) -> tuple[int, int]:
    low = not model or (model.startswith(_STANDARD_CLAUDE) and not model.startswith(_HIGH_CLAUDE))
    return _STANDARD if low else _HIGH


def _anthropic_edge(width: int, height: int, longest: int, most: int) -> int:
    """The long edge of the largest image of these proportions that keeps to the limits."""
    low, high = 1, min(longest, max(width, height))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _patches_28(width, height, middle) <= most else (low, middle - 1)
    return low


def _patches_28(width: int, height: int, long_edge: int) -> int:
    scale = long_edge / max(width, height)
    return math.ceil(round(width * scale / 28, 6)) * math.ceil(round(height * scale / 28, 6))


def _gemini_tiles(width: int, height: int) -> int:
    """258 tokens a tile: one tile up to 384 pixels on both sides, else tiles of 2/3 of the short side, 256 to 768."""
    if width <= 384 and height <= 384:
        return 258
    side = min(768, max(256, math.floor(min(width, height) / 1.5)))
    return 258 * math.ceil(width / side) * math.ceil(height / side)
