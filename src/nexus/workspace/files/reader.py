"""Cached reader of a workspace's files: inside the workspace only, regular files only, size-capped.

A file is read again when its device, inode, times or size change, so a warm call costs one `stat` per file. A file that
changed just now is always read again: file systems count time in steps, and two changes may fall into one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct

from nexus.errors import WorkspaceMissing
from nexus.types.block import ContextWarning, text_hash
from nexus.workspace.files.containment import (
    MOVED,
    State,
    list_folders,
    names_differing_in_case,
    open_inside,
    path_problem,
    state_of,
)
from nexus.workspace.files.templates import without_marker
from nexus.workspace.files.text_decoding import decode_text
from nexus.workspace.files.truncate import truncate_text

FILE_CHARS = 20_000
"""Default cap for one file, in characters (document 004's sources use the same)."""

READ_BYTES = 4_000_000
"""Number of bytes that are read of any file."""

TRIES = 3
"""Attempts to read a file that changes, or whose path changes, while it is read."""

STEP_NS, COARSE_STEP_NS = 20_000_000, 2_000_000_000
"""Upper bounds for the steps of a file system's clock; the coarse one for times in whole seconds."""

T = TypeVar("T")


def home_folder() -> Path:
    """Return the user's Nexus folder: the variable `NEXUS_HOME`, else `~/.nexus`. It may not exist."""
    path = os.environ.get("NEXUS_HOME", "")
    return Path(path).expanduser() if path else Path.home() / ".nexus"


def working_folder() -> Path:
    """Return the current folder. Raises WorkspaceMissing if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise WorkspaceMissing("current folder was deleted (change to an existing one)") from error


class FileText(Struct, frozen=True):
    """A file's text within the cap; a truncated one says so in its last line."""

    origin: str
    text: str
    omitted_chars: int = 0
    hash: str = ""
    """Hash of the whole text."""
    chars: int = 0
    """Size of the whole text."""


_Read: TypeAlias = "tuple[FileText | None, ContextWarning | None]"
_CachedFile: TypeAlias = "tuple[State | None, FileText | None, ContextWarning | None]"
_CachedFolder: TypeAlias = "tuple[State | None, list[str], ContextWarning | None]"


@dataclass(slots=True)
class Files:
    """Files under one root, cached by path and file state."""

    root: Path
    file_chars: int = FILE_CHARS
    templates: frozenset[str] = frozenset()
    hard_links: bool = False
    """Allow files with further names in other folders, which may be outside the root."""
    _base: str = field(init=False)
    # An entry without a state is valid for the call that read it only.
    _files: dict[str, _CachedFile] = field(default_factory=dict[str, _CachedFile])
    _folders: dict[str, _CachedFolder] = field(default_factory=dict[str, _CachedFolder])

    def __post_init__(self) -> None:
        self._base = os.path.join(self.root, "")  # noqa: PTH118 - the prefix of every name that is read

    def read(self, name: str) -> _Read:
        """Return the file's text, None if it is absent, empty or rejected, and a warning."""
        if problem := path_problem(name):
            return None, ContextWarning(repr(name)[1:-1], f"omitted: {problem}")
        path = f"{self._base}{name}"
        try:
            state = state_of(os.stat(path))  # noqa: PTH116 - hot path
        except (FileNotFoundError, NotADirectoryError):
            return None, self._absent(name)
        except OSError as error:
            return None, ContextWarning(name, f"cannot be read: {error.strerror or error}")
        cached = self._files.get(name)
        if cached is None or cached[0] != state:
            cached = self._files[name] = self._load(name, state)
        return cached[1], cached[2]

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders inside the folder `name`, sorted; none if it does not exist."""
        return self.listed(name)[0]

    def listed(self, name: str) -> tuple[list[str], ContextWarning | None]:
        """Return the names of the folders inside the folder `name`, sorted, and a warning."""
        if problem := path_problem(name):
            return [], ContextWarning(repr(name)[1:-1], f"omitted: {problem}")
        try:
            state = state_of(os.stat(f"{self._base}{name}"))  # noqa: PTH116 - hot path
        except OSError:
            return [], None
        cached = self._folders.get(name)
        if cached is None or cached[0] != state:
            cached = self._folders[name] = self._load_folder(name)
        return cached[1], cached[2]

    def _absent(self, name: str) -> ContextWarning | None:
        """Return a warning about a missing file if its root disappeared or a similar name exists."""
        cached = self._files.get(name)
        if cached is not None and cached[1] is not None and not self.root.is_dir():
            return ContextWarning(name, f"omitted: folder {self.root} no longer exists")
        if cached is None or cached[1] is not None or cached[2] is not None:
            similar = ", ".join(names_differing_in_case(self.root, name))
            text = f"not found, but {similar} exists (names are case-sensitive)"
            cached = self._files[name] = (None, None, ContextWarning(name, text) if similar else None)
        return cached[2]

    def _load_folder(self, name: str) -> _CachedFolder:
        try:
            names, state, is_complete = _retry(lambda: list_folders(self.root, name))
        except OSError as error:
            return None, [], ContextWarning(f"{name}/", f"omitted: {error.strerror or error}")
        warning = ContextWarning(f"{name}/", "too many entries: some were not read")
        return None if state is None or is_young(state) else state, names, None if is_complete else warning

    def _load(self, name: str, key: State) -> _CachedFile:
        try:
            state, data = _retry(lambda: self._bytes(name), until=lambda result: result[0] is not None)
        except FileNotFoundError:
            return None, None, None
        except OSError as error:
            warning = ContextWarning(name, f"omitted: {error.strerror or error}")
            return None if error.errno == MOVED else key, None, warning
        text, notes = decode_text(data[:READ_BYTES], cut=len(data) > READ_BYTES)
        similar = ", ".join(names_differing_in_case(self.root, name))
        if similar:
            notes = (*notes, f"differs only in case from {similar} (the same file on some systems)")
        if state is None:
            notes = (*notes, f"changed {TRIES} times while being read; the last version is shown")
        content, cap_note = self._content(name, data, text)
        if cap_note:
            notes = (*notes, cap_note)
        warning = ContextWarning(name, "; ".join(notes)) if notes else None
        return None if state is None or similar or is_young(state) else state, content, warning

    def _bytes(self, name: str) -> tuple[State | None, bytes]:
        """Return the file's state (None if it changed meanwhile) and bytes, more than `READ_BYTES` if there are more."""
        with open_inside(self.root, name, hard_links=self.hard_links) as handle:
            before = state_of(os.fstat(handle))
            limit = min(READ_BYTES, before[-1])  # a file that keeps growing has no end to wait for
            chunks: list[bytes] = []
            size = 0
            while size <= limit and (chunk := os.read(handle, 1 << 20)):
                chunks.append(chunk)
                size += len(chunk)
            return before if state_of(os.fstat(handle)) == before else None, b"".join(chunks)

    def _content(self, name: str, data: bytes, text: str) -> tuple[FileText | None, str]:
        """Return the text within the cap, None for an empty text or template, and a note about what is omitted."""
        if not text.strip():
            return None, ""
        is_partial = len(data) > READ_BYTES
        if not is_partial:
            if text.strip() in self.templates:
                return None, "omitted: unchanged template"
            text = without_marker(text) if self.templates else text
            if not text.strip():
                return None, ""
        text = text.strip("\n")
        short = truncate_text(text, self.file_chars, name)
        content = FileText(name, short.text, short.omitted_chars, text_hash(text), len(text))
        if is_partial:
            return content, f"only {self.file_chars:,} characters (the cap) of the first {READ_BYTES:,} bytes are shown"
        cap = f"cap per file: {self.file_chars:,}"
        return content, f"{short.omitted_chars:,} of {len(text):,} characters omitted ({cap})" * bool(
            short.omitted_chars
        )


def _retry(read: Callable[[], T], *, until: Callable[[T], bool] = bool) -> T:
    """Return the result of `read`, retried while its path changes or `until` rejects the result."""
    for _ in range(TRIES - 1):
        try:
            result = read()
        except OSError as error:
            if error.errno != MOVED:
                raise
        else:
            if until(result):
                return result
    return read()


def is_young(state: State) -> bool:
    """Return whether the file could change once more without a change of its state."""
    newest = max(state[2], state[3])
    step = COARSE_STEP_NS if newest % 1_000_000_000 == 0 else STEP_NS
    return abs(time.time_ns() - newest) < step
