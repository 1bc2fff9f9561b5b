"""Text files that a user attaches to a message: the whole file or some of its lines, within a cap."""

from __future__ import annotations

import re
from pathlib import Path

from nexus.errors import UnreadableFile
from nexus.types.block import ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.types.request import Attachment
from nexus.workspace.files.containment import read_file

MAX_BYTES = 20_000_000
"""Larger files are rejected."""

MAX_CHARS = InstructionsConfig().file_chars
"""Default cap of an attachment."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters of binary files: control characters except white space and the escape of terminal colors."""

_LINES = re.compile(r"(?P<path>.+):(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})", re.DOTALL)


def attachment_from_file(
    path: str | Path,
    lines: tuple[int, int] | None = None,
    *,
    inside: Path | None = None,
    max_chars: int = MAX_CHARS,
) -> tuple[Attachment, ContextWarning | None]:
    """Return the file's text, or its lines `lines` (first and last, from 1), and a warning if it was truncated.

    `inside` is the folder that the file has to be in, if the user did not choose it. Raises UnreadableFile for a file
    that is not regular or not text, or that lacks these lines.
    """
    file_lines = _text(read_file(path, MAX_BYTES, inside=inside), path).splitlines(keepends=True)
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
    count, chars = 0, 0
    while count < len(selected) and chars + len(selected[count]) <= max_chars:
        chars += len(selected[count])
        count += 1
    short = "".join(selected[:count]) if count else selected[0][:max_chars]
    omitted = len(text) - len(short)
    notice = f"[{omitted:,} more characters of {path} left out (cap {max_chars:,}); read the file for the rest]"
    warning = ContextWarning(str(path), f"{omitted:,} of {len(text):,} characters omitted (cap: {max_chars:,})")
    last = first + max(count, 1) - 1
    return Attachment(str(path), f"{short.rstrip(chr(10))}\n{notice}", first, last), warning


def split_line_range(text: str) -> tuple[str, tuple[int, int] | None]:
    """Split `FILE:FIRST-LAST` into file and lines. The name of an existing file has no lines."""
    match = _LINES.fullmatch(text)
    if match is None or Path(text).exists():
        return text, None
    return match["path"], (int(match["first"]), int(match["last"]))


def _text(data: bytes, path: str | Path) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark. Raises UnreadableFile for anything else."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not UTF-8 or UTF-16 text: invalid byte {error.start:,}") from error
    if control := _CONTROL.search(text):
        raise UnreadableFile(f"{path} is not text: control character U+{ord(control[0]):04X}")
    return text
