"""Limits of the images in one request, by provider: types, pixels, bytes and number.

The figures are rows of `data/providers.json`, with their reasons.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from nexus.tokens.model import Model
from nexus.tokens.model_table import ImageLimitRow, provider_table
from nexus.types.config import ImagesConfig


class ImageLimits(Struct, frozen=True, omit_defaults=True):
    """Limits of sent images; 0 is unlimited. Manifests store them, so that a replay sends the same images."""

    edge_px: int = 0
    """Longest edge of any image."""

    file_bytes: int = 0
    """Bytes of one image, before base64."""

    decoded_px: int = 0
    """Pixels of an image that is decoded; one with more becomes a note."""

    many_images: int = 0
    """Number of images above which `many_edge_px` is the longest edge."""

    many_edge_px: int = 0
    max_images: int = 0
    """Images in one request."""

    total_bytes: int = 0
    """Bytes of all images of a request, as base64."""

    has_gif: bool = True
    has_animation: bool = True
    has_heic: bool = False
    has_error_images: bool = True
    has_chat_result_images: bool = True


def image_limits(model: Model, config: ImagesConfig) -> ImageLimits:
    """Return the limits for a model: the smaller of its maker's limits and its provider format's.

    Many servers use OpenAI's format, so only the maker counts there. Models of an unknown maker have the limits of
    compatible servers.
    """
    rows = provider_table().image_limits
    if model.provider_format == "openai":
        return _limits(rows.get(model.vendor, rows["other"]), config)
    limits = _limits(rows[model.provider_format], config)
    if model.vendor in rows:
        return _smaller(limits, _limits(rows[model.vendor], config))
    return limits


@cache
def shared_limits() -> ImageLimits:
    """Return limits within which every provider accepts an image."""
    limits = ImageLimits()
    for row in provider_table().image_limits.values():
        limits = _smaller(limits, _limits(row, ImagesConfig()))
    return replace(limits, has_heic=False)


def _limits(row: ImageLimitRow, config: ImagesConfig) -> ImageLimits:
    return ImageLimits(
        edge_px=_tighter(row.edge_px, config.longest_edge),
        file_bytes=row.file_bytes,
        decoded_px=config.max_pixels,
        many_images=row.many_images,
        many_edge_px=row.many_edge_px,
        max_images=row.max_images,
        total_bytes=row.total_bytes,
        has_gif=row.has_gif,
        has_animation=row.has_animation,
        has_heic=row.has_heic,
        has_error_images=row.has_error_images,
        has_chat_result_images=row.has_chat_result_images,
    )


def _smaller(first: ImageLimits, second: ImageLimits) -> ImageLimits:
    return ImageLimits(
        edge_px=_tighter(first.edge_px, second.edge_px),
        file_bytes=_tighter(first.file_bytes, second.file_bytes),
        decoded_px=_tighter(first.decoded_px, second.decoded_px),
        many_images=_tighter(first.many_images, second.many_images),
        many_edge_px=_tighter(first.many_edge_px, second.many_edge_px),
        max_images=_tighter(first.max_images, second.max_images),
        total_bytes=_tighter(first.total_bytes, second.total_bytes),
        has_gif=first.has_gif and second.has_gif,
        has_animation=first.has_animation and second.has_animation,
        has_heic=first.has_heic and second.has_heic,
        has_error_images=first.has_error_images and second.has_error_images,
        has_chat_result_images=first.has_chat_result_images and second.has_chat_result_images,
    )


def _tighter(first: int, second: int) -> int:
    """Return the smaller of two limits, where 0 is unlimited."""
    if first and second:
        return min(first, second)
    return first or second
