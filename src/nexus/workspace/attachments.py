"""Files that come with a message: images, and text files of which the whole or some lines are shown, within a cap.

An image's type is determined by its content, never its name; `nexus.workspace.image_files` prepares its bytes. A program
that loads one image gets an error if it is unusable; of several that come with a message, an unusable one becomes a warning
and a note in the text (document 003, "Image Support").
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import UnreadableFile
from nexus.text.one_line import collapse_whitespace
from nexus.tokens.image_price import provider_model_name
from nexus.tokens.images import effective_size, has_image_rules, scaled_size
from nexus.tokens.model import resolve
from nexus.types.block import ContextWarning
from nexus.types.config import ImagesConfig, InstructionsConfig
from nexus.types.message import Image, Message, Part, Text, ToolResult, with_neutral_parts
from nexus.types.request import Attachment
from nexus.workspace.files.containment import read_file
from nexus.workspace.source_context import EngineWorkspace

MAX_BYTES = 20_000_000  # larger text files are rejected
MAX_CHARS = InstructionsConfig().file_chars  # default cap of a text file
LONGEST_EDGE = 2_576
"""Pixels. The largest image that a Claude model uses; the default for unknown models and vendors without documentation."""

DEFAULTS = ImagesConfig()

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters of binary files: control characters except white space and the escape of terminal colors."""

_LINES = re.compile(r"(?P<path>.+):(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})", re.DOTALL)


def attachment_from_file(
    path: str | Path, lines: tuple[int, int] | None = None, *, inside: Path | None = None, max_chars: int = MAX_CHARS
) -> tuple[Attachment, ContextWarning | None]:
    """Return the file's text, or its lines `lines` (first and last, from 1), and a warning if it was truncated.

    `inside` is the folder that the file has to be in, if the user did not choose it. Raises UnreadableFile for a file
    that is not regular, not UTF-8 or UTF-16 text, or that lacks these lines.
    """
    data = read_file(path, MAX_BYTES, inside=inside)
    # Without a byte order mark, UTF-16 cannot be told from other encodings.
    encoding = "utf-8-sig"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    try:
        decoded = data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not UTF-8 or UTF-16 text: invalid byte {error.start:,}") from error
    if control := _CONTROL.search(decoded):
        raise UnreadableFile(f"{path} is not text: control character U+{ord(control[0]):04X}")
    file_lines = decoded.splitlines(keepends=True)
    first, last = lines or (1, len(file_lines))
    if not 1 <= first <= last or first > len(file_lines):
        raise UnreadableFile(f"lines {first} to {last} not found in {path}, which has {len(file_lines):,} lines")
    last = min(last, len(file_lines))
    selected = file_lines[first - 1 : last]
    text = "".join(selected)
    if len(text) <= max_chars:
        numbers = (first, last) if lines else (0, 0)
        return Attachment(str(path), text.rstrip("\n"), *numbers), None
    # As many complete lines as fit; of a single longer line, its beginning.
    count = 0
    chars = 0
    while count < len(selected) and chars + len(selected[count]) <= max_chars:
        chars += len(selected[count])
        count += 1
    if count:
        short = "".join(selected[:count])
    else:
        short = selected[0][:max_chars]
    omitted = len(text) - len(short)
    notice = f"[{omitted:,} more characters of {path} left out (cap {max_chars:,}); read the file for the rest]"
    warning = ContextWarning(str(path), f"{omitted:,} of {len(text):,} characters omitted (cap: {max_chars:,})")
    last = first + max(count, 1) - 1
    return Attachment(str(path), f"{short.rstrip(chr(10))}\n{notice}", first, last), warning


def attach_file(
    path: str | Path, lines: tuple[int, int] | None = None, *, inside: Path | None = None, max_chars: int = MAX_CHARS
) -> Attachment:
    """Return a text file, or some of its lines, for `Event.attachments`.

    Args:
        path: The file.
        lines: The first and last line, from 1.
        inside: Folder that the file has to be in, if the user did not choose it.
        max_chars: A longer text is truncated, with a note at its end.

    Raises UnreadableFile.
    """
    return attachment_from_file(path, lines, inside=inside, max_chars=max_chars)[0]


def split_line_range(text: str) -> tuple[str, tuple[int, int] | None]:
    """Split `FILE:FIRST-LAST` into file and lines. The name of an existing file has no lines."""
    match = _LINES.fullmatch(text)
    if match is None or Path(text).exists():
        return text, None
    return match["path"], (int(match["first"]), int(match["last"]))


def image_from_file(
    path: str | Path, *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> Image:
    """Return the image as a model sees it: upright, without metadata, no larger than `model` uses.

    A small image without metadata keeps its bytes; a JPEG stays one, other types become PNG, animations their first frame.
    `inside` is the folder that the file has to be in. Raises UnreadableFile for a file that is not regular, larger than the limits
    of `config`, damaged, or not PNG, JPEG, GIF or WebP by its content.
    """
    return read_image(path, model=model, config=config, inside=inside)[0]


def read_image(
    path: str | Path, *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> tuple[Image, ContextWarning | None]:
    """Return the image as `image_from_file` does, and a warning if only the first frame of an animation is used."""
    from nexus.workspace.image_files import prepare_image  # Pillow is imported only when an image is used

    try:
        data = read_file(path, config.max_bytes, inside=inside)
    except UnreadableFile as error:
        raise UnreadableFile(str(error), code="bad_image") from error
    info = None
    if model and not config.longest_edge:
        info = resolve(model)

    def fits(width: int, height: int) -> tuple[int, int]:
        if info is not None and has_image_rules(info.vendor):
            return effective_size(width, height, info.vendor, provider_model_name(info))
        return scaled_size(width, height, (config.longest_edge or LONGEST_EDGE) / max(width, height))

    pixels = prepare_image(data, str(path), fits, config.max_pixels)
    image = Image(pixels.media_type, base64.b64encode(pixels.data).decode(), width=pixels.width, height=pixels.height)
    warning = ContextWarning(str(path), "only the first frame of the animation is shown")
    return image, warning if pixels.first_of_many else None


def images_of(
    paths: Iterable[str | Path], *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> tuple[list[Image], list[ContextWarning]]:
    """Return the usable images of the files, in order, and a warning for each that is omitted or partial."""
    images: list[Image] = []
    warnings: list[ContextWarning] = []
    for path in paths:
        try:
            image, warning = read_image(path, model=model, config=config, inside=inside)
        except UnreadableFile as error:
            warnings.append(ContextWarning(str(path), f"not shown: {error}"))
            continue
        images.append(image)
        warnings.extend([warning] if warning else [])
    return images, warnings


def media_parts(
    paths: Iterable[str | Path], workspace: EngineWorkspace, model: str = "", *, inside: bool = False
) -> tuple[list[Part], list[ContextWarning]]:
    """Return the parts between runtime text and user text (document 003): images, then a note for each warning.

    With `inside`, files have to be in the workspace.
    """
    if workspace.files is not None:
        root = workspace.files.root
    else:
        root = Path.cwd()
    images, warnings = images_of(paths, model=model, config=workspace.config.images, inside=root if inside else None)
    # The model reads the warnings as notes, so the texts of UnreadableFile keep their bytes.
    notes = [
        Text(f"[{collapse_whitespace(warning.message)} ({collapse_whitespace(warning.source)})]")
        for warning in warnings
    ]
    return [*images, *notes], warnings


def with_dimensions(image: Image) -> Image:
    """Return the image with its size in pixels from its data; unchanged if that cannot be read."""
    if image.width or not image.data:
        return image
    from nexus.workspace.image_files import read_header

    try:
        header = read_header(base64.b64decode(image.data, validate=True))
    except (UnreadableFile, ValueError):
        return image
    return replace(image, width=header.width, height=header.height)


def with_image_sizes(message: Message) -> Message:
    """Return the message with the sizes of its images, which decide their tokens and which files and clients seldom say."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Image):
            parts.append(with_dimensions(part))
        elif isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
            content = (with_dimensions(item) if isinstance(item, Image) else item for item in part.content)
            parts.append(replace(part, content=tuple(content)))
        else:
            parts.append(part)
    if tuple(parts) == message.parts:
        return message
    return with_neutral_parts(message, parts)
