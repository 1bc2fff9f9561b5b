"""Images from files: type by content, size and pixels read from the header before anything is decoded."""

from __future__ import annotations

import base64
import warnings
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import BadImage
from nexus.message import Image

IMAGE_BYTES = 5_000_000
"""The smallest of the providers' limits for one image (Anthropic, 5 MB)."""

IMAGE_PIXELS = 40_000_000
"""A header that promises more is refused: such files decode to hundreds of megabytes."""

_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}


def image_from_file(path: Path) -> Image:
    """The image with its size in pixels. Raises BadImage: not there, too large, or no PNG, JPEG, GIF or WebP."""
    try:
        data = path.read_bytes() if path.stat().st_size <= IMAGE_BYTES else b""
    except OSError as error:
        raise BadImage(f"{path} cannot be read: {error.strerror or error}") from error
    if not data:
        raise BadImage(f"{path} is empty or larger than {IMAGE_BYTES:,} bytes: make it smaller")
    return image_from_bytes(data, str(path))


def measured(image: Image) -> Image:
    """The image with its size in pixels read from its data; as it is where that cannot be read."""
    if image.width or not image.data:
        return image
    try:
        found = image_from_bytes(base64.b64decode(image.data, validate=True))
    except (BadImage, ValueError):
        return image
    return replace(image, width=found.width, height=found.height)


def image_from_bytes(data: bytes, name: str = "the image") -> Image:
    """The same for bytes in memory; `name` is used in errors."""
    import PIL
    import PIL.Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with PIL.Image.open(BytesIO(data), formats=list(_TYPES)) as opened:
                kind, (width, height) = opened.format or "", opened.size
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        known = isinstance(error, PIL.UnidentifiedImageError)
        why = "its content is of another type, or damaged" if known else str(error)
        raise BadImage(f"{name} is no PNG, JPEG, GIF or WebP image that can be read: {why}") from error
    if width * height > IMAGE_PIXELS:
        raise BadImage(f"{name} has {width}x{height} pixels, over {IMAGE_PIXELS:,}: make it smaller")
    return Image(_TYPES[kind], base64.b64encode(data).decode(), width=width, height=height)
