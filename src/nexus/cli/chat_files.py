"""Files that a message names: images, and text files behind `@`."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})

MAX_FILE_BYTES = 1_000_000
"""Size limit of a text file that is sent with a message."""

_WORDS = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|(?:\\.|[^\s\\])+")
_MENTIONS = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
_OPEN_MENTION = re.compile(r"(?:^|\s)@(\S*)$")
_FENCES = re.compile(r"`{3,}")


def image_paths(text: str) -> list[tuple[str, Path]]:
    """Return the absolute paths of existing image files in a message, as written and as paths.

    Terminals write a file that is dragged into them in quotes, with backslashes, or as an address.
    """
    paths: list[tuple[str, Path]] = []
    for match in _WORDS.finditer(text):
        mention = match[0]
        if mention.startswith("file://"):
            plain = unquote(urlsplit(mention).path)
        else:
            try:
                plain = "".join(shlex.split(mention))
            except ValueError:
                plain = mention
        path = Path(plain)
        with suppress(OSError, RuntimeError, ValueError):
            path = path.expanduser()
            if path.is_absolute() and path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
                paths.append((mention, path))
    return paths


def path_to_complete(text: str) -> str | None:
    """Return the path behind an `@` at the end of a text; None if there is none."""
    match = _OPEN_MENTION.search(text)
    if match:
        return match[1]
    return None


def file_mentions(text: str, root: Path) -> dict[str, Path]:
    """Return the existing files that a text names with `@`, as written. Relative paths begin in `root`."""
    files: dict[str, Path] = {}
    for match in _MENTIONS.finditer(text):
        mention = match[1] or match[2]
        for name in (mention, mention.rstrip(".,;:?!)")):
            with suppress(OSError, RuntimeError, ValueError):
                path = root / Path(name).expanduser()
                if name and path.is_file() and path.suffix.lower() not in IMAGE_SUFFIXES:
                    files.setdefault(name, path)
                    break
    return files


def missing_mentions(text: str, root: Path) -> list[str]:
    """Return the names after an `@` in a text that look like paths and do not exist."""
    names = [(match[1] or match[2]).rstrip(".,;:?!)") for match in _MENTIONS.finditer(text)]
    return [name for name in dict.fromkeys(names) if ("." in name or "/" in name) and not _exists(root, name)]


def _exists(root: Path, name: str) -> bool:
    try:
        return (root / Path(name).expanduser()).exists()
    except (OSError, RuntimeError, ValueError):
        return False


def read_text_file(path: Path) -> tuple[str, str]:
    """Return the text of a file for a message, and why there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            return "", f"it has more than {MAX_FILE_BYTES:,} bytes"
        if b"\0" in content:
            return "", "it is not a text file"
        return content.decode(), ""
    except UnicodeDecodeError:
        return "", "it is not UTF-8 text"
    except OSError as error:
        return "", error.strerror or str(error)


def quote_file(name: str, text: str) -> str:
    """Return a file's text as part of a message, in a fence that the text does not end."""
    longest = max((len(fence) for fence in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{name}:\n{fence}\n{text.rstrip()}\n{fence}"
