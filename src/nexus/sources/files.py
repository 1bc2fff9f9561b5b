"""Reading a workspace's files: inside the workspace only, regular files only, size-capped, cached by their state.

A file is read again when its device, inode, times or size change, so a warm call costs one `stat` for each file.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from nexus.block import Warned, text_hash
from nexus.sources.capping import capped

FILE_CHARS = 20_000
"""Default cap for one file, in characters (document 004's sources use the same)."""

READ_BYTES = 4_000_000
"""No more than this is read of any file."""


def home_folder() -> Path:
    """The user's own folder of Nexus: the variable `NEXUS_HOME`, else `~/.nexus`. It need not be there."""
    named = os.environ.get("NEXUS_HOME", "")
    return Path(named).expanduser() if named else Path.home() / ".nexus"


class FileText(Struct, frozen=True):
    """A file's text within the cap. `left_out_chars` is what the cap kept out; a line at the end of `text` says so.

    `hash` and `chars` are the whole text's hash and size.
    """

    origin: str
    text: str
    left_out_chars: int = 0
    hash: str = ""
    chars: int = 0


@dataclass(slots=True)
class Files:
    """The files under one root. State over time: what was read, by path and file state."""

    root: Path
    file_chars: int = FILE_CHARS
    templates: frozenset[str] = frozenset()
    _seen: dict[str, tuple[tuple[int, ...], FileText | None, Warned | None]] = field(
        default_factory=dict[str, tuple[tuple[int, ...], FileText | None, Warned | None]]
    )

    def read(self, name: str) -> tuple[FileText | None, Warned | None]:
        """The file's text, or None when it is absent, empty or refused; and what the user should know about it."""
        path = os.path.join(self.root, name)  # noqa: PTH118 - hot path
        try:
            state = os.stat(path)  # noqa: PTH116 - hot path
        except (FileNotFoundError, NotADirectoryError):
            return None, None
        except (OSError, ValueError) as error:
            return None, Warned(name, f"cannot be read: {error}")
        key = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)
        known = self._seen.get(name)
        if known is None or known[0] != key:
            known = (key, *self._load(name, Path(path)))
            self._seen[name] = known
        return known[1], known[2]

    def folders(self, name: str) -> list[str]:
        """The names of the folders inside the folder `name`, sorted; none if it is not there."""
        try:
            with os.scandir(self.root / name) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except OSError:
            return []

    def _load(self, name: str, path: Path) -> tuple[FileText | None, Warned | None]:
        root = self.root.resolve()
        try:
            real = path.resolve(strict=True)
            if not real.is_relative_to(root):
                return None, Warned(name, f"left out: it points outside the workspace, to {real}")
            data = _bytes_of(real)
        except (OSError, RuntimeError) as error:
            return None, Warned(name, f"left out: {error}")
        if data is None:
            return None, Warned(name, "left out: it is not a regular file")
        text, warned = _decoded(name, data)
        if len(data) > READ_BYTES:
            note = f"only the first {READ_BYTES:,} bytes were read, and of these the cap's {self.file_chars:,} characters kept"
            found, _ = _capped(name, text.strip("\n"), self.file_chars, None)
            return found, Warned(name, note)
        if not text.strip():
            return None, warned
        if text.strip() in self.templates:
            return None, Warned(name, "left out: it is the untouched template that `nexus init` wrote")
        return _capped(name, text.strip("\n"), self.file_chars, warned)


def _bytes_of(path: Path) -> bytes | None:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        chunks: list[bytes] = []
        size = 0
        while size <= READ_BYTES and (chunk := os.read(handle, 1 << 20)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)
    finally:
        os.close(handle)


def _decoded(name: str, data: bytes) -> tuple[str, Warned | None]:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data[:READ_BYTES].decode(encoding).replace("\r\n", "\n"), None
    except UnicodeDecodeError:
        text = data[:READ_BYTES].decode(encoding, "replace").replace("\r\n", "\n")
        return text, Warned(name, f"is not valid {encoding.upper()}: bytes that could not be read show as \ufffd")


def _capped(name: str, text: str, cap: int, warned: Warned | None) -> tuple[FileText, Warned | None]:
    short = capped(text, cap, name)
    found = FileText(name, short.text, short.left_out_chars, text_hash(text), len(text))
    if not short.left_out_chars:
        return found, warned
    note = f"{short.left_out_chars:,} of {len(text):,} characters left out: the cap is {cap:,} for a file"
    return found, Warned(name, f"{warned.text}; {note}" if warned else note)
