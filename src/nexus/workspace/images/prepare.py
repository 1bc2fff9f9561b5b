"""An image file's bytes as a provider takes them: judged by content, cleaned of metadata, no larger than a model uses.

Decoding is what hostile files aim at, so the header is read first and only four formats are ever opened. An image that
is small enough and holds nothing but pixels keeps its bytes; anything else is written anew, the same bytes each time.
"""

from __future__ import annotations

import math
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO

import PIL
import PIL.Image
import PIL.ImageOps
from msgspec import Struct

from nexus.errors import BadImage
from nexus.tokens.images import scaled_size

TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}

MOST_BYTES = 3_750_000
"""Of a file that is sent: five million characters of base64. Anthropic takes 5,242,880 of them, the others more."""

MOST_EDGE = 8_000
"""Pixels: Anthropic refuses a larger image (platform.claude.com, vision), and a session may go to any model."""

JPEG_QUALITY = 90
PLAIN_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
"""Pixels that every provider reads; others (16 bits, CMYK, …) are converted."""

_PNG_CHUNKS = re.compile("IHDR|PLTE|IDAT|IEND|tRNS|cHRM|gAMA|iCCP|sBIT|sRGB|cICP|bKGD|hIST|pHYs|sPLT")
_WEBP_CHUNKS = frozenset({"VP8 ", "VP8L", "VP8X", "ALPH", "ICCP"})
_JPEG_MARKERS = frozenset({*range(0xC0, 0xD0), 0xDB, 0xDD})
_JPEG_BEGINNINGS = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}
_JPEG_BYTES = {0xE0: 14, 0xEE: 12}
"""Of a JFIF segment without a thumbnail, and of Adobe's, which says how colours are stored."""

_ROTATED = 0x0112
_DECODING = (OSError, ValueError, SyntaxError, EOFError, struct.error, IndexError, MemoryError, OverflowError)


class Header(Struct, frozen=True):
    """What a file's header says: format as Pillow names it, size in pixels, and whether more than one frame follows."""

    format: str
    width: int
    height: int
    frames: bool = False


class Pixels(Struct, frozen=True):
    """An image ready to be sent; `first_of_many` says that it is the first frame of an animation."""

    media_type: str
    data: bytes
    width: int
    height: int
    first_of_many: bool = False


def read_header(data: bytes, name: str = "the image") -> Header:
    """The header; nothing is decoded. Raises BadImage for anything but PNG, JPEG, GIF and WebP, whatever its name."""
    with _opened(data, name) as image:
        kind = "JPEG" if image.format == "MPO" else image.format or ""  # a photograph with smaller ones behind it
        return Header(kind, *image.size, kind != "JPEG" and getattr(image, "is_animated", False))


def prepare_image(data: bytes, name: str, fits: Callable[[int, int], tuple[int, int]], most_pixels: int) -> Pixels:
    """The image as it is sent: upright, without metadata, one frame, at most of the size that `fits` says of its own.

    Raises BadImage: another type, more pixels than `most_pixels` (by the header), damaged or cut short.
    """
    found = read_header(data, name)
    if found.width * found.height > most_pixels:
        raise BadImage(f"{name} has {found.width}x{found.height} pixels, over {most_pixels:,}: make it smaller")
    with _opened(data, name) as image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                image.load()
                rotated = image.getexif().get(_ROTATED, 1) != 1
                plain = PIL.ImageOps.exif_transpose(image) if rotated else image
        except _DECODING as error:
            raise BadImage(f"{name} is damaged or cut short: {error}") from error
        size = fits(*plain.size)
        size = scaled_size(*size, MOST_EDGE / max(size))
        kind = "JPEG" if found.format == "JPEG" else "PNG"
        as_it_is = (
            size == plain.size
            and not rotated
            and not found.frames
            and image.mode in PLAIN_MODES
            and len(data) <= MOST_BYTES
            and _is_clean(data, found.format)
        )
        if as_it_is:
            return Pixels(TYPES[found.format], data, *size)
        written, size = _written(_converted(plain, kind), kind, size)
    return Pixels(TYPES[kind], written, *size, found.frames)


def _opened(data: bytes, name: str) -> PIL.Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PIL.Image.open(BytesIO(data), formats=list(TYPES))
    except PIL.Image.DecompressionBombError as error:
        raise BadImage(f"{name} says that it has far more pixels than are ever shown: make it smaller") from error
    except _DECODING as error:
        known = isinstance(error, PIL.UnidentifiedImageError)
        why = "its content is of another type, or damaged" if known else str(error)
        raise BadImage(f"{name} is no PNG, JPEG, GIF or WebP image that can be read: {why}") from error


def _converted(image: PIL.Image.Image, kind: str) -> PIL.Image.Image:
    """The image in a mode that its format writes and that can be scaled, without anything but pixels."""
    clear = kind == "PNG" and (image.has_transparency_data or image.mode in ("LA", "La", "PA", "RGBA", "RGBa"))
    if image.mode == "I;16":
        image = PIL.Image.frombytes("L", image.size, image.tobytes()[1::2])
    grey = image.mode in ("1", "L") and not clear
    bare = image.convert("L" if grey else "RGBA" if clear else "RGB")
    bare.info = {}
    return bare


def _written(image: PIL.Image.Image, kind: str, size: tuple[int, int]) -> tuple[bytes, tuple[int, int]]:
    """The bytes of the image at a size, or at a smaller one where they would be too many; and that size."""
    while True:
        # Pillow's own types name numpy's, which is not needed here.
        scaled = image if size == image.size else image.resize(size, PIL.Image.Resampling.LANCZOS)  # pyright: ignore[reportUnknownMemberType]
        target = BytesIO()
        if kind == "JPEG":
            scaled.save(target, "JPEG", quality=JPEG_QUALITY)
        else:
            scaled.save(target, "PNG")
        if target.tell() <= MOST_BYTES:
            return target.getvalue(), size
        size = scaled_size(*size, min(0.9, 0.95 * math.sqrt(MOST_BYTES / target.tell())))


def _is_clean(data: bytes, kind: str) -> bool:
    """Whether a file has nothing but pixels and their colours: no text, place, time or thumbnail, and nothing behind it.

    A GIF never counts as such: Gemini takes none.
    """
    try:
        match kind:
            case "PNG":
                return all(_PNG_CHUNKS.fullmatch(name) for name in _png_chunks(data))
            case "JPEG":
                return all(_is_plain(*segment) for segment in _jpeg_segments(data))
            case "WEBP":
                return all(name in _WEBP_CHUNKS for name in _webp_chunks(data))
            case _:
                return False
    except (struct.error, IndexError, ValueError):
        return False


def _is_plain(marker: int, segment: bytes) -> bool:
    beginning = _JPEG_BEGINNINGS.get(marker)
    if beginning is None:
        return marker in _JPEG_MARKERS
    return segment.startswith(beginning) and len(segment) == _JPEG_BYTES.get(marker, len(segment))


def _png_chunks(data: bytes) -> Iterator[str]:
    """The names of the chunks; an empty one for what stands behind the last."""
    at, name = 8, ""
    while at < len(data) and name != "IEND":
        (length,) = struct.unpack_from(">I", data, at)
        name = data[at + 4 : at + 8].decode("latin-1")
        yield name
        at += 12 + length
    if at != len(data) or name != "IEND":
        yield ""


def _webp_chunks(data: bytes) -> Iterator[str]:
    (length,) = struct.unpack_from("<I", data, 4)
    if length + 8 != len(data):
        yield ""
    at = 12
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 4)
        yield data[at : at + 4].decode("latin-1")
        at += 8 + length + length % 2


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The markers between the first and the last, with what they hold; -1 for what stands behind the last."""
    at = 2
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0xD9:
            break
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + length
        if marker != 0xDA:
            yield marker, data[at - length + 2 : at]
            continue
        # Pixels follow: in them, FF stands before 00, before a restart marker, or before the next real marker.
        while data[at] != 0xFF or data[at + 1] == 0 or 0xD0 <= data[at + 1] <= 0xD7:
            at = data.index(b"\xff", at + 1)
    if at + 2 != len(data):
        yield -1, b""
