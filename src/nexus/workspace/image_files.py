"""Preparation of image files for providers: typed by content, without metadata, no larger than a model uses.

Hostile files target decoders, so the header is read first and only four formats are ever opened. A small image of nothing
but pixels keeps its bytes; other images are re-encoded, deterministically.
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

from nexus.errors import UnreadableFile
from nexus.tokens.images import scaled_size

TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}

MAX_BYTES = 3_750_000
"""Size limit of a sent file: five million characters of base64. Anthropic accepts 5,242,880 of them, the others more."""

MAX_EDGE = 8_000
"""Pixels. Anthropic rejects a larger image (platform.claude.com, vision), and a session may switch to any model."""

JPEG_QUALITY = 90
PLAIN_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
"""Pixel formats that every provider reads; others (16 bits, CMYK, …) are converted."""

_PNG_CHUNKS = re.compile("IHDR|PLTE|IDAT|IEND|tRNS|cHRM|gAMA|iCCP|sBIT|sRGB|cICP|bKGD|hIST|pHYs|sPLT")
_WEBP_CHUNKS = frozenset({"VP8 ", "VP8L", "VP8X", "ALPH", "ICCP"})
_JPEG_MARKERS = frozenset({*range(0xC0, 0xD0), 0xDB, 0xDD})
_JPEG_PREFIXES = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}
_JPEG_BYTES = {0xE0: 14, 0xEE: 12}
"""Sizes of a JFIF segment without a thumbnail, and of Adobe's, which describes the color space."""

_ROTATED = 0x0112
_DECODING = (OSError, ValueError, SyntaxError, EOFError, struct.error, IndexError, MemoryError, OverflowError)


class ImageHeader(Struct, frozen=True):
    """Header of an image file; sizes in pixels."""

    format: str
    """Pillow's name of the format."""
    width: int
    height: int
    is_animated: bool = False


class Inspection(Struct, frozen=True):
    """Properties of an image; sizes in pixels."""

    media_type: str
    width: int
    height: int
    is_usual: bool
    """Whether it is whole, with pixels that every provider reads."""
    is_animated: bool


class Pixels(Struct, frozen=True):
    """An image as it is sent."""

    media_type: str
    data: bytes
    width: int
    height: int
    first_of_many: bool = False
    """Whether it is the first frame of an animation."""


def read_header(data: bytes, name: str = "the image") -> ImageHeader:
    """Return the header without decoding. Raises UnreadableFile unless the content is PNG, JPEG, GIF or WebP."""
    with _open_image(data, name) as image:
        kind = "JPEG" if image.format == "MPO" else image.format or ""  # a photograph with smaller ones behind it
        return ImageHeader(kind, *image.size, kind != "JPEG" and getattr(image, "is_animated", False))


def prepare_image(data: bytes, name: str, fits: Callable[[int, int], tuple[int, int]], max_pixels: int) -> Pixels:
    """Return the image as it is sent: upright, without metadata, one frame, scaled to the size that `fits` returns.

    Raises UnreadableFile for another type, more pixels than `max_pixels` (by the header), or damaged data.
    """
    header = _checked_header(data, name, max_pixels)
    image = _decoded(data, name)
    upright = _upright(image)
    size = fits(*upright.size)
    size = scaled_size(*size, MAX_EDGE / max(size))
    is_plain = image.mode in PLAIN_MODES and upright is image and not header.is_animated
    if is_plain and size == upright.size and len(data) <= MAX_BYTES and _is_clean(data, header.format):
        return Pixels(TYPES[header.format], data, *size)
    return _encoded(upright, header, size, MAX_BYTES)


def inspect_image(data: bytes, max_pixels: int, name: str = "the image") -> Inspection:
    """Return what an image is, after decoding all of it.

    Raises UnreadableFile for another type, more pixels than `max_pixels` (by the header), or damaged data.
    """
    header = _checked_header(data, name, max_pixels)
    image = _decoded(data, name)
    is_usual = image.mode in PLAIN_MODES and _is_complete(data, header.format)
    # A PNG with frames is a still image for programs that know only PNG.
    is_animated = header.is_animated and header.format != "PNG"
    return Inspection(TYPES[header.format], *image.size, is_usual=is_usual, is_animated=is_animated)


def shrink_image(data: bytes, edge_px: int, max_bytes: int, name: str = "the image") -> Pixels:
    """Return the first frame of an image, upright, without metadata, within an edge and a number of bytes (0: any)."""
    header = read_header(data, name)
    upright = _upright(_decoded(data, name))
    longest = max(upright.size)
    size = scaled_size(*upright.size, (edge_px or longest) / longest)
    return _encoded(upright, header, size, max_bytes or MAX_BYTES)


def _checked_header(data: bytes, name: str, max_pixels: int) -> ImageHeader:
    """Return the header. It is read before any pixel is decoded: a small file can promise a huge image."""
    header = read_header(data, name)
    if max_pixels and header.width * header.height > max_pixels:
        raise UnreadableFile(
            f"{name} has {header.width}x{header.height} pixels, over {max_pixels:,}: make it smaller", code="bad_image"
        )
    return header


def _decoded(data: bytes, name: str) -> PIL.Image.Image:
    image = _open_image(data, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
    except _DECODING as error:
        raise UnreadableFile(f"{name} is damaged or cut short: {error}", code="bad_image") from error
    return image


def _upright(image: PIL.Image.Image) -> PIL.Image.Image:
    """Return the image rotated as its metadata says; the same object if they say nothing, or cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if image.getexif().get(_ROTATED, 1) != 1:
                return PIL.ImageOps.exif_transpose(image)
            return image
    except _DECODING:
        return image


def _encoded(image: PIL.Image.Image, header: ImageHeader, size: tuple[int, int], max_bytes: int) -> Pixels:
    """Return the pixels as JPEG if they were one, else as PNG, in this size or a smaller one with few enough bytes."""
    kind = "JPEG" if header.format == "JPEG" else "PNG"
    bare = _bare_image(image, kind)
    while True:
        # Pillow's own types name numpy's, which is not needed here.
        scaled = bare if size == bare.size else bare.resize(size, PIL.Image.Resampling.LANCZOS)  # pyright: ignore[reportUnknownMemberType]
        target = BytesIO()
        scaled.save(target, kind, **({"quality": JPEG_QUALITY} if kind == "JPEG" else {}))
        if target.tell() <= max_bytes:
            return Pixels(TYPES[kind], target.getvalue(), *size, header.is_animated)
        # The size of a file grows with its area; 0.95 leaves room for what compresses worse.
        size = scaled_size(*size, min(0.9, 0.95 * math.sqrt(max_bytes / target.tell())))


def _open_image(data: bytes, name: str) -> PIL.Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PIL.Image.open(BytesIO(data), formats=list(TYPES))
    except PIL.Image.DecompressionBombError as error:
        raise UnreadableFile(
            f"{name} says that it has far more pixels than are ever shown: make it smaller", code="bad_image"
        ) from error
    except _DECODING as error:
        is_unidentified = isinstance(error, PIL.UnidentifiedImageError)
        if is_unidentified:
            why = "its content is of another type, or damaged"
        else:
            why = str(error)
        raise UnreadableFile(
            f"{name} is no PNG, JPEG, GIF or WebP image that can be read: {why}", code="bad_image"
        ) from error


def _bare_image(image: PIL.Image.Image, kind: str) -> PIL.Image.Image:
    """Return the pixels in a mode that the target format supports and that can be scaled."""
    is_transparent = kind == "PNG" and (image.has_transparency_data or image.mode in ("LA", "La", "PA", "RGBA", "RGBa"))
    if image.mode == "I;16":  # Pillow would clip instead of scale: every value over 255 would be white
        image = PIL.Image.frombytes("L", image.size, image.tobytes()[1::2])
    mode = "RGB"
    if is_transparent:
        mode = "RGBA"
    elif image.mode in ("1", "L"):
        mode = "L"
    bare = image.convert(mode)
    bare.info = {}
    return bare


def _is_complete(data: bytes, kind: str) -> bool:
    """Return True if a file has its end. Decoders read some files without it that a provider refuses."""
    match kind:
        case "PNG":
            return b"IEND" in data
        case "JPEG":
            return data.rfind(b"\xff\xd9") > data.rfind(b"\xff\xda")
        case "WEBP":
            return int.from_bytes(data[4:8], "little") + 8 <= len(data)
        case _:
            return data.rstrip(b"\0").endswith(b";")


def _is_clean(data: bytes, kind: str) -> bool:
    """Return whether a file has pixels and color data only: no text, location, time, thumbnail or trailing data."""
    try:
        match kind:
            case "PNG":
                return all(_PNG_CHUNKS.fullmatch(name) for name in _png_chunks(data))
            case "JPEG":
                for marker, segment in _jpeg_segments(data):
                    prefix = _JPEG_PREFIXES.get(marker, b"")
                    is_known = bool(prefix) or marker in _JPEG_MARKERS
                    has_size = len(segment) == _JPEG_BYTES.get(marker, len(segment))
                    if not (is_known and has_size and segment.startswith(prefix)):
                        return False
                return True
            case "WEBP":
                return all(name in _WEBP_CHUNKS for name in _webp_chunks(data))
            case _:  # GIF, which Gemini does not accept
                return False
    except (struct.error, IndexError, ValueError):
        return False


def _png_chunks(data: bytes) -> Iterator[str]:
    """Yield the names of the chunks, and "" for trailing data."""
    at = 8
    name = ""
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
    """Yield the markers between the first and the last with their segments, and -1 for trailing data."""
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
        # Pixels follow: in them, FF is followed by 00 or a restart marker; any other byte makes it the next marker.
        while data[at] != 0xFF or data[at + 1] == 0 or 0xD0 <= data[at + 1] <= 0xD7:
            at = data.index(b"\xff", at + 1)
    if at + 2 != len(data):
        yield -1, b""
