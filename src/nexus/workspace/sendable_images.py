"""Images as they may be sent: typed by their bytes, decoded, within a provider's limits.

Each image is decoded once; the finding is cached by the hash of its data. Stored images are never changed. A copy that
is sent instead depends only on the data and the limits, so every call sends the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import UnreadableFile
from nexus.tokens.image_limits import ImageLimits
from nexus.types.message import Image

T = TypeVar("T")
K = TypeVar("K")

MAX_FINDINGS = 4_096
MAX_COPIED_CHARS = 64_000_000
"""Characters of base64 in all cached copies together."""

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_PATH = re.compile(
    r"(?:/|~/|\.{1,2}/|file:|[A-Za-z]:[\\/]).{0,4000}\Z|[^\n]{1,1000}\.(?:png|jpe?g|gif|webp|svg|bmp)\Z", re.IGNORECASE
)
_ADDRESS = re.compile(
    r"https?://[^?#]*\.(svg|svgz|bmp|ico|tiff?|pdf|psd|heic|heif|avif)(?:[?#].*)?\Z", re.IGNORECASE | re.DOTALL
)

_OTHER_TYPES: tuple[tuple[bytes, str], ...] = (
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\0\0\1\0", "ICO"),
    (b"8BPS", "PSD"),
    (b"%PDF", "PDF"),
)
_HEIC_BRANDS = {
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"hevc": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
}


class Finding(Struct, frozen=True, gc=False):
    """Properties of an image according to its bytes."""

    media_type: str = ""
    width: int = 0
    height: int = 0
    size: int = 0
    """Bytes of the file."""
    is_usual: bool = True
    is_animated: bool = False
    is_plain_base64: bool = True
    """False if its data is base64 in another form: with line breaks, of addresses, behind `data:`."""
    reason: str = ""
    """Reason why it cannot be sent; empty if it can."""


class _Memo(Generic[T, K]):
    """LRU cache of results, by hash of the data and a setting."""

    def __init__(self, compute: Callable[[str, K], T], max_results: int, chars: Callable[[T], int]) -> None:
        self._compute = compute
        self._max_results = max_results
        self._chars_of = chars
        self._results: OrderedDict[tuple[bytes, object], T] = OrderedDict()
        self._chars = 0
        self._lock = Lock()

    def of(self, data: str, setting: K) -> T:
        key = hashlib.sha256(data.encode("utf-8", "surrogatepass")).digest(), setting
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = self._compute(data, setting)
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self._chars += self._chars_of(result)
            while len(self._results) > self._max_results or (self._chars > MAX_COPIED_CHARS and len(self._results) > 1):
                self._chars -= self._chars_of(self._results.popitem(last=False)[1])
        return result


def sendable_image(image: Image, limits: ImageLimits) -> Image | str:
    """Return the image in a form that may be sent, or the reason why it cannot be sent.

    An image that needs no change is returned as the same object. Addresses are not fetched; one that names a file of an
    unreadable type is rejected.
    """
    data = image.data or (image.url if image.url[:5].lower() == "data:" else "")
    if not data:
        kind = _ADDRESS.match(image.url)
        if kind:
            type_name = kind[1].upper()
        elif "svg" in image.media_type.lower():
            type_name = "SVG"
        else:
            type_name = ""
        is_read = not type_name or (type_name in ("HEIC", "HEIF") and limits.has_heic)
        if is_read:
            return image
        return _unread(type_name)
    finding = _findings.of(data, limits.decoded_px)
    if finding.reason:
        return finding.reason
    if finding.media_type in _HEIC_BRANDS.values():
        if not limits.has_heic:
            return _unread("HEIC")
    elif not _is_within(finding, limits):
        return _copies.of(data, (limits.edge_px, limits.file_bytes))
    if not finding.is_plain_base64:
        text = _plain_base64(data)
        return Image(finding.media_type, text, width=finding.width, height=finding.height)
    if image.media_type == finding.media_type:
        return image
    return replace(image, media_type=finding.media_type)


def longest_edge(image: Image, limits: ImageLimits) -> int:
    """Return the pixels of an image's longest edge; 0 if it is unknown, as for an address."""
    if image.data:
        finding = _findings.of(image.data, limits.decoded_px)
    else:
        finding = Finding()
    return max(finding.width, finding.height)


def _is_within(finding: Finding, limits: ImageLimits) -> bool:
    is_small = max(finding.width, finding.height) <= (limits.edge_px or finding.width + finding.height)
    is_short = finding.size <= (limits.file_bytes or finding.size)
    is_read = limits.has_gif or finding.media_type != "image/gif"
    return finding.is_usual and is_small and is_short and is_read and (limits.has_animation or not finding.is_animated)


def _plain_base64(data: str) -> str:
    match = _DATA_URL.match(data)
    text = _SPACE.sub("", data[match.end() :] if match else data)
    text = text.replace("-", "+").replace("_", "/").rstrip("=")
    return text + "=" * (-len(text) % 4)


def _inspected(data: str, decoded_px: int) -> Finding:
    from nexus.workspace.image_files import inspect_image  # Pillow is imported only when an image is used

    text = _plain_base64(data)
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return Finding(reason="its data is a file path" if _PATH.match(data) else "its data is not base64")
    if not content:
        return Finding(reason="its data is empty")
    if content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS:
        return Finding(_HEIC_BRANDS[content[8:12]], is_plain_base64=text == data)
    try:
        found_image = inspect_image(content, decoded_px)
    except UnreadableFile as error:
        return Finding(reason=_reason(data, content, error))
    return Finding(
        found_image.media_type,
        found_image.width,
        found_image.height,
        len(content),
        found_image.is_usual,
        found_image.is_animated,
        text == data,
    )


def _copied(data: str, limits: tuple[int, int]) -> Image:
    from nexus.workspace.image_files import shrink_image

    pixels = shrink_image(base64.b64decode(_plain_base64(data)), *limits)
    return Image(pixels.media_type, base64.b64encode(pixels.data).decode(), width=pixels.width, height=pixels.height)


_findings: _Memo[Finding, int] = _Memo(_inspected, MAX_FINDINGS, lambda _finding: 0)
_copies: _Memo[Image, tuple[int, int]] = _Memo(_copied, MAX_FINDINGS, lambda image: len(image.data))


def _reason(data: str, content: bytes, error: UnreadableFile) -> str:
    head = content[:1_000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<svg", b"<?xml", b"<!doctype svg")) or b"<svg" in head:
        return _unread("SVG")
    for opening, kind in _OTHER_TYPES:
        if content.startswith(opening):
            return _unread(kind)
    if content[4:8] == b"ftyp":
        return _unread("AVIF or video")
    if _PATH.match(data) and not content.startswith(b"\xff\xd8"):
        return "its data is a file path"
    if " pixels" in str(error):
        return "it has too many pixels to be decoded (make it smaller)"
    # Never the decoder's own words: another version of it would send another prompt.
    is_known = content.startswith((b"\x89PNG", b"\xff\xd8", b"GIF8", b"RIFF"))
    if is_known:
        return "its file is damaged or cut short"
    return "it is no PNG, JPEG, GIF or WebP"


def _unread(kind: str) -> str:
    return f"it is {kind}, which this model does not read (convert it to PNG or JPEG)"
