"""The images of a session as files: what a note in the place of an old image says how to get."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from nexus.assembly.fit.images import images_of
from nexus.cli.listing import dotted
from nexus.errors import UnreadableFile
from nexus.render.console import printable
from nexus.types.ledger_entries import Entry
from nexus.types.message import Image

ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


def written_images(entries: Iterable[Entry], folder: str) -> Iterator[Entry]:
    """The entries as they are; each image of theirs is written as `PLACE-NUMBER.TYPE` and named on standard error.

    A file that is there already is left as it is, and said to be. Raises UnreadableFile where a file cannot be written.
    """
    for entry in entries:
        for row in entry.rows:
            for number, image in enumerate(images_of(row.message), 1):
                _write(image, Path(folder), f"{dotted(row.place)}-{number}")
        yield entry


def _write(image: Image, folder: Path, name: str) -> None:
    if not image.data:
        click.echo(f"Not a file: image {name} is only an address: {printable(image.url)}", err=True)
        return
    file = folder / f"{name}.{ENDINGS.get(image.media_type, 'bin')}"
    try:
        data = base64.b64decode(image.data, validate=True)
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as target:
            target.write(data)
    except ValueError:
        click.echo(f"Not a file: the data of image {name} is damaged", err=True)
    except FileExistsError:
        click.echo(f"Not written: {printable(str(file))} is there already", err=True)
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be written: {error.strerror or error}") from error
    else:
        click.echo(f"Wrote {printable(str(file))}", err=True)
