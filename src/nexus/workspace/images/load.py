"""Images and texts from files: what a user shows with a message, as values that can be sent.

What an image is, its content decides and never its name; `nexus.workspace.images.prepare` makes its bytes ready. A program that
gives one image learns by an error what is wrong with it; where several come with a message, one that cannot be shown
becomes a line of the report and a note in the text (document 003, "Image Support").
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
"""Pixels: the largest image that a Claude model uses; taken where the model is not known, or who makes it says nothing."""

DEFAULTS = ImagesConfig()


def image_from_file(
    path: str | Path, *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> Image:
    """The image as a model is shown it: upright, without metadata, no larger than `model` makes use of.

    One that is small enough and has no metadata keeps its bytes; a JPEG stays one, all else becomes PNG, of an animation
    the first frame. `inside` is the folder that the file has to lie in. Raises BadImage: no regular file, larger than the
    limits of `config`, no PNG, JPEG, GIF or WebP by its content, or damaged.
    """
    return read_image(path, model=model, config=config, inside=inside)[0]


def image_from_bytes(
    data: bytes, name: str = "the image", *, model: str = "", config: ImagesConfig = DEFAULTS
) -> Image:
    """The same for bytes in memory; `name` is used in errors."""
    return _made(data, name, model, config)[0]


def read_image(
    path: str | Path, *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> tuple[Image, ContextWarning | None]:
    """The image of `image_from_file`, and what of the file is not in it (of an animation all but the first frame)."""
    try:
        data = read_file(path, config.max_bytes, inside=inside)
    except UnreadableFile as error:
        raise BadImage(str(error)) from error
    return _made(data, str(path), model, config)


def images_of(
    paths: Iterable[str | Path], *, model: str = "", config: ImagesConfig = DEFAULTS, inside: Path | None = None
) -> tuple[list[Image], list[ContextWarning]]:
    """The images of the files, in order, and a warning for each that cannot be shown or is shown in part."""
    images: list[Image] = []
    warned: list[ContextWarning] = []
    for path in paths:
        try:
            image, told = read_image(path, model=model, config=config, inside=inside)
        except BadImage as error:
            warned.append(ContextWarning(str(path), f"not shown: {error}"))
            continue
        images.append(image)
        warned.extend([told] if told else [])
    return images, warned


def media_parts(
    paths: Iterable[str | Path], around: WorkspaceContext, model: str = "", *, inside: bool = False
) -> tuple[list[Part], list[ContextWarning]]:
    """What stands between runtime text and user text (document 003): the images, then a note for each that is not shown.

    Names may lie anywhere unless they have to be `inside` the workspace. The warnings say the same as the notes.
    """
    root = around.files.root if around.files is not None else Path.cwd()
    images, warned = images_of(paths, model=model, config=around.config.images, inside=root if inside else None)
    notes = [Text(f"[{collapse_whitespace(told.message)} ({collapse_whitespace(told.source)})]") for told in warned]
    return [*images, *notes], warned


def with_dimensions(image: Image) -> Image:
    """The image with its size in pixels read from its data; as it is where that cannot be read."""
    if image.width or not image.data:
        return image
    from nexus.workspace.images.prepare import read_header

    try:
        found = read_header(base64.b64decode(image.data, validate=True))
    except (BadImage, ValueError):
        return image
    return replace(image, width=found.width, height=found.height)


def _made(data: bytes, name: str, model: str, config: ImagesConfig) -> tuple[Image, ContextWarning | None]:
    from nexus.workspace.images.prepare import prepare_image

    found = prepare_image(data, name, _fitting(model, config.longest_edge), config.max_pixels)
    image = Image(found.media_type, base64.b64encode(found.data).decode(), width=found.width, height=found.height)
    return image, ContextWarning(
        name, "only the first frame of the animation is shown"
    ) if found.first_of_many else None


def _fitting(model: str, longest_edge: int) -> Callable[[int, int], tuple[int, int]]:
    """Gives the size to which an image of a size is shrunk: `longest_edge`, else what the model makes use of."""
    found = resolve(model) if model and not longest_edge else None
    if found is None or not has_image_rules(found.vendor):
        edge = longest_edge or LONGEST_EDGE
        return lambda width, height: scaled_size(width, height, edge / max(width, height))
    vendor, name = found.vendor, provider_model_name(found)
    return lambda width, height: effective_size(width, height, vendor, name)
