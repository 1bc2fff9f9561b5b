"""Text files that a user gives with a message: the whole file or some of its lines, within a cap that is told."""

from __future__ import annotations

import re
from pathlib import Path

from nexus.errors import UnreadableFile
from nexus.types.block import ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.types.request import Attachment
from nexus.workspace.files.containment import read_file

MOST_BYTES = 20_000_000
"""No larger file is read."""

MOST_CHARS = InstructionsConfig().file_chars
"""What an attachment shows at most, in characters, unless another cap is given."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What no text file holds: control characters other than white space, backspace excluded, and the escape of colours."""

_LINES = re.compile(r"(?P<path>.+):(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})", re.DOTALL)


def attachment_from_file(
    path: str | Path,
    lines: tuple[int, int] | None = None,
    *,
    inside: Path | None = None,
    most_chars: int = MOST_CHARS,
) -> tuple[Attachment, ContextWarning | None]:
    """The file's text, or its lines from the first to the last of `lines` (from 1), and a warning if a cap bit.

    `inside` is the folder that the file has to lie in, where no user named it by hand. Raises UnreadableFile: no regular
    file, no text by its content, or without these lines.
    """
    text = _text(read_file(path, MOST_BYTES, inside=inside), path)
    every = text.splitlines(keepends=True)
    first, last = lines or (1, len(every))
    if not 1 <= first <= last or first > len(every):
        raise UnreadableFile(f"{path} has {len(every):,} lines, and none from {first} to {last}")
    last = min(last, len(every))
    wanted = every[first - 1 : last]
    whole = "".join(wanted)
    if len(whole) <= most_chars:
        numbers = (first, last) if lines else (0, 0)
        return Attachment(str(path), whole.rstrip("\n"), *numbers), None
    return _capped(str(path), wanted, first, most_chars)


def named_lines(given: str) -> tuple[str, tuple[int, int] | None]:
    """`FILE:FIRST-LAST` in its parts; a file that has such a name is meant whole, as any other."""
    found = _LINES.fullmatch(given)
    if found is None or Path(given).exists():
        return given, None
    return found["path"], (int(found["first"]), int(found["last"]))


def _capped(path: str, wanted: list[str], first: int, most_chars: int) -> tuple[Attachment, ContextWarning]:
    """As many whole lines as the cap holds; of a first line that is longer, its beginning."""
    kept, chars = 0, 0
    while kept < len(wanted) and chars + len(wanted[kept]) <= most_chars:
        chars += len(wanted[kept])
        kept += 1
    shown = "".join(wanted[:kept]) if kept else wanted[0][:most_chars]
    left_out = sum(map(len, wanted)) - len(shown)
    told = f"[{left_out:,} more characters of {path} left out (cap {most_chars:,}); read the file for the rest]"
    last = first + max(kept, 1) - 1
    warned = ContextWarning(
        path, f"{left_out:,} of {left_out + len(shown):,} characters left out: the cap is {most_chars:,}"
    )
    return Attachment(path, f"{shown.rstrip(chr(10))}\n{told}", first, last), warned


def _text(data: bytes, path: str | Path) -> str:
    """The bytes as text: UTF-8, or UTF-16 with its mark. Raises UnreadableFile for anything else."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is no text in UTF-8 or UTF-16 (byte {error.start:,})") from error
    if control := _CONTROL.search(text):
        raise UnreadableFile(f"{path} is no text: it has the control character U+{ord(control[0]):04X}")
    return text
