"""The images of a request body in any of the four formats, and what their provider would say against them.

Nothing of Nexus is imported here: types and sizes are read from the bytes by Pillow, limits are those of the providers' pages.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import PIL.Image

TYPES = {
    "anthropic": {"PNG", "JPEG", "GIF", "WEBP"},
    "openai": {"PNG", "JPEG", "GIF", "WEBP"},
    "responses": {"PNG", "JPEG", "GIF", "WEBP"},
    "gemini": {"PNG", "JPEG", "WEBP"},
}
NUMBERS = {"anthropic": 100, "openai": 500, "responses": 500, "gemini": 900}


class SentImage(NamedTuple):
    """One image of a body: its declared type and base64, or its address."""

    media_type: str
    data: str
    url: str = ""

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.data, validate=True)

    @property
    def opened(self) -> PIL.Image.Image:
        image = PIL.Image.open(BytesIO(self.content))
        image.load()
        return image


def sent_images(value: Any) -> Iterator[SentImage]:
    """Yield the images anywhere in a body, in order."""
    if isinstance(value, list):
        for item in value:
            yield from sent_images(item)
    elif isinstance(value, dict):
        source, address = value.get("source"), value.get("image_url")
        blob, file = value.get("inline_data"), value.get("file_data")
        if value.get("type") == "image" and isinstance(source, dict):
            yield SentImage(source.get("media_type", ""), source.get("data", ""), source.get("url", ""))
        elif address is not None:
            yield _of_url(address if isinstance(address, str) else address["url"])
        elif blob is not None:
            yield SentImage(blob["mime_type"], blob["data"])
        elif file is not None:
            yield SentImage(file.get("mime_type", ""), "", file["file_uri"])
        else:
            for item in value.values():
                yield from sent_images(item)


def _of_url(url: str) -> SentImage:
    match = re.match(r"data:([^;,]*);base64,", url)
    return SentImage(match[1], url[match.end() :]) if match else SentImage("", "", url)


def image_problems(body: Any, wire: str) -> list[str]:
    """Return what the provider would say against the images of a body."""
    images = list(sent_images(body))
    problems = [f"{len(images)} images, at most {NUMBERS[wire]}"] if len(images) > NUMBERS[wire] else []
    edge = 2_000 if wire == "anthropic" and len(images) > 20 else 8_000
    for number, image in enumerate(images):
        if image.url:
            is_address = image.url.startswith(("https://", "http://")) and not image.url.endswith((".svg", ".bmp"))
            problems += [] if is_address else [f"image {number}: address {image.url[:40]!r}"]
            continue
        if wire == "gemini" and image.media_type in ("image/heic", "image/heif"):
            continue  # Pillow does not read them
        try:
            opened = image.opened
        except (OSError, SyntaxError, ValueError, binascii.Error) as error:
            problems.append(f"image {number}: {error}")
            continue
        kind = "JPEG" if opened.format == "MPO" else opened.format or ""
        if kind not in TYPES[wire] or image.media_type != f"image/{kind.lower()}":
            problems.append(f"image {number}: {image.media_type!r} is {kind}")
        if max(opened.size) > edge:
            problems.append(f"image {number}: {opened.size} over {edge} pixels")
        if wire == "anthropic" and len(image.data) > 5_242_880:
            problems.append(f"image {number}: {len(image.data):,} characters")
    return problems
