"""Images from files, as message parts.

An image's type is determined by its content, never its name; `nexus.workspace.images.prepare` prepares its bytes. A program
that loads one image gets an error if it is unusable; of several that come with a message, an unusable one becomes a warning
and a note in the text (document 003, "Image Support").
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import BadImage, UnreadableFile
from nexus.text.one_line import collapse_whitespace
from nexus.tokens.image_price import provider_model_name
from nexus.tokens.images import effective_size, has_image_rules, scaled_size
from nexus.tokens.model import resolve
from nexus.types.block import ContextWarning
from nexus.types.config import ImagesConfig
from nexus.types.message import Image, Part, Text
from nexus.workspace.files.containment import read_file
from nexus.workspace.source_context import WorkspaceContext

LONGEST_EDGE = 2_576
"""Pixels. The largest image that a Claude model uses; the default for unknown models and vendors without documentation."""

DEFAULTS = ImagesConfig()


def image_from_file(
    path: str | Path, *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> Image:
    """Return the image as a model sees it: upright, without metadata, no larger than `model` uses.

    A small image without metadata keeps its bytes; a JPEG stays one, other types become PNG, animations their first frame.
    `inside` is the folder that the file has to be in. Raises BadImage for a file that is not regular, larger than the limits
    of `config`, damaged, or not PNG, JPEG, GIF or WebP by its content.
    """
    return read_image(path, model=model, config=config, inside=inside)[0]


def image_from_bytes(
    data: bytes, name: str = "the image", *, model: str = "", config: ImagesConfig = DEFAULTS
) -> Image:
    """Return the same for bytes in memory; `name` is used in errors."""
    return _image(data, name, model, config)[0]


def read_image(
    path: str | Path, *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> tuple[Image, ContextWarning | None]:
    """Return the image as `image_from_file` does, and a warning if only the first frame of an animation is used."""
    try:
        data = read_file(path, config.max_bytes, inside=inside)
    except UnreadableFile as error:
        raise BadImage(str(error)) from error
    return _image(data, str(path), model, config)


def images_of(
    paths: Iterable[str | Path], *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> tuple[list[Image], list[ContextWarning]]:
    """Return the usable images of the files, in order, and a warning for each that is omitted or partial."""
    images: list[Image] = []
    warnings: list[ContextWarning] = []
    for path in paths:
        try:
            image, warning = read_image(path, model=model, config=config, inside=inside)
        except BadImage as error:
            warnings.append(ContextWarning(str(path), f"not shown: {error}"))
            continue
        images.append(image)
        warnings.extend([warning] if warning else [])
    return images, warnings


def media_parts(
    paths: Iterable[str | Path], workspace: WorkspaceContext, model: str = "", *, inside: bool = False
) -> tuple[list[Part], list[ContextWarning]]:
    """Return the parts between runtime text and user text (document 003): images, then a note for each warning.

    With `inside`, files have to be in the workspace.
    """
    root = workspace.files.root if workspace.files is not None else Path.cwd()
    images, warnings = images_of(paths, model=model, config=workspace.config.images, inside=root if inside else None)
    # The model reads the warnings as notes, so the texts of BadImage and UnreadableFile keep their bytes.
    notes = [
        Text(f"[{collapse_whitespace(warning.message)} ({collapse_whitespace(warning.source)})]")
        for warning in warnings
    ]
    return [*images, *notes], warnings


def with_dimensions(image: Image) -> Image:
    """Return the image with its size in pixels from its data; unchanged if that cannot be read."""
    if image.width or not image.data:
        return image
    from nexus.workspace.images.prepare import read_header

    try:
        header = read_header(base64.b64decode(image.data, validate=True))
    except (BadImage, ValueError):
        return image
    return replace(image, width=header.width, height=header.height)


def _image(data: bytes, name: str, model: str, config: ImagesConfig) -> tuple[Image, ContextWarning | None]:
    from nexus.workspace.images.prepare import prepare_image  # Pillow is imported only when an image is used

    pixels = prepare_image(data, name, _target_size(model, config.longest_edge), config.max_pixels)
    image = Image(pixels.media_type, base64.b64encode(pixels.data).decode(), width=pixels.width, height=pixels.height)
    warning = ContextWarning(name, "only the first frame of the animation is shown")
    return image, warning if pixels.first_of_many else None


def _target_size(model: str, longest_edge: int) -> Callable[[int, int], tuple[int, int]]:
    """Return a function from an image's size to its target size: by `longest_edge`, else by what the model uses."""
    info = resolve(model) if model and not longest_edge else None
    if info is None or not has_image_rules(info.vendor):
        edge = longest_edge or LONGEST_EDGE
        return lambda width, height: scaled_size(width, height, edge / max(width, height))
    vendor, name = info.vendor, provider_model_name(info)
    return lambda width, height: effective_size(width, height, vendor, name)
