"""Cached reader of a workspace's files, inside the workspace only and size-capped, and the decoding of their bytes.

A file is read again when its device, inode, times or size change, so a warm call costs one `stat` per file. A file that
changed just now is always read again: file systems count time in steps, and two changes may fall into one.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct

from nexus.errors import NotFound
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
from nexus.workspace.files.truncate import truncate_text
from nexus.workspace.prompts import without_template_comments

FILE_CHARS = 20_000  # default cap for one file, in characters (document 004's sources use the same)
READ_BYTES = 4_000_000  # number of bytes that are read of any file
TRIES = 3  # attempts to read a file that changes, or whose path changes, while it is read

UNREADABLE = "cannot be read"
"""Beginning of the warning about a file that exists and could not be read."""

LAST_TEXT_USED = "its last text is used"

PASSING = frozenset({
    MOVED, errno.EACCES, errno.EBUSY, errno.EINTR, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM,
    errno.ESTALE, errno.ETIMEDOUT,
})  # fmt: skip
"""Reasons that say nothing about the file: its text is what it was, or will be readable again."""

STEP_NS = 20_000_000
COARSE_STEP_NS = 2_000_000_000
"""Upper bounds for the steps of a file system's clock; the coarse one for times in whole seconds."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 4_096

# Data is binary if it has more NUL characters than this share and this number,
_NUL_SHARE = 0.01
_MIN_NULS = 8
# or if it has any, and these and undecodable bytes together are more than this share.
_UNREADABLE_SHARE = 0.2

_DOUBLE = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{1,3}")
"""A UTF-8 character that was decoded as Windows-1252 or Latin-1 (`é` as `Ã©`)."""

_HIDDEN = re.compile("[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f]")
"""Characters that only a model sees: changes of direction, zero-width spaces, tag characters."""

_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007f]+")
"""The flags of England, Scotland and Wales, which are written with tag characters."""

T = TypeVar("T")


def home_folder() -> Path:
    """Return the user's Nexus folder: the variable `NEXUS_HOME`, else `~/.nexus`. It may not exist."""
    path = os.environ.get("NEXUS_HOME", "")
    try:
        if path:
            return Path(path).expanduser()
        return Path.home() / ".nexus"
    except RuntimeError:  # a container's user without a home: a folder that cannot exist
        return Path(os.devnull) / ".nexus"


def cache_folder(home: Path) -> Path:
    """Return the folder for files that can be made again: `cache` in an existing Nexus folder, else in the user's cache."""
    if home.is_dir():
        return home / "cache"
    path = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(path) if path else Path.home() / ".cache") / "nexus"
    except RuntimeError:
        return home / "cache"


def working_folder() -> Path:
    """Return the current folder. Raises NotFound if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NotFound("current folder was deleted (change to an existing one)", code="workspace_missing") from error


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
    """Whether files with further names in other folders are read, which may be outside the root."""
    _base: str = field(init=False)
    _files: dict[str, _CachedFile] = field(default_factory=dict[str, _CachedFile])
    """An entry without a state is valid for the call that read it only."""
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
            return self._unreadable(name, error)[1:]
        cached = self._files.get(name)
        if cached is None or cached[0] != state:
            cached = self._files[name] = self._load(name, state)
        return cached[1], cached[2]

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
            try:
                names, changed, is_complete = _retry(lambda: list_folders(self.root, name))
            except OSError as error:
                if error.errno in PASSING and cached is not None:
                    text = f"{UNREADABLE}: {error.strerror}; its last entries are used"
                    return cached[1], ContextWarning(f"{name}/", text)
                return [], ContextWarning(f"{name}/", f"omitted: {error.strerror or error}")
            if is_complete:
                warning = None
            else:
                warning = ContextWarning(f"{name}/", "too many entries: some were not read")
            if changed is None or is_young(changed):
                known = None
            else:
                known = changed
            cached = self._folders[name] = (known, names, warning)
        return cached[1], cached[2]

    def _absent(self, name: str) -> ContextWarning | None:
        """Return a warning about a missing file if its root disappeared or a similar name exists."""
        cached = self._files.get(name)
        if cached is not None and cached[1] is not None and not self.root.is_dir():
            return ContextWarning(name, f"omitted: folder {self.root} no longer exists")
        # Without a similar name, the folder is searched once and not in every call.
        if cached is None or cached[1] is not None or cached[2] is not None:
            similar = ", ".join(names_differing_in_case(self.root, name))
            text = f"not found, but {similar} exists (names are case-sensitive)"
            cached = self._files[name] = (None, None, ContextWarning(name, text) if similar else None)
        return cached[2]

    def _unreadable(self, name: str, error: OSError) -> _CachedFile:
        """Return the last text that was read, which is better than an agent without its rules, and a warning."""
        _, text, _ = self._files.get(name, (None, None, None))
        end = f"; {LAST_TEXT_USED}" if text is not None else ""
        return None, text, ContextWarning(name, f"{UNREADABLE}: {error.strerror or error}{end}")

    def _load(self, name: str, key: State) -> _CachedFile:
        try:
            state, data = _retry(lambda: self._bytes(name), until=lambda result: result[0] is not None)
        except FileNotFoundError:
            return None, None, None
        except OSError as error:
            if error.errno in PASSING:  # not cached: the next call tries again
                return self._unreadable(name, error)
            return key, None, ContextWarning(name, f"omitted: {error.strerror or error}")
        text, notes = decode_text(data[:READ_BYTES], cut=len(data) > READ_BYTES)
        # Not cached with a similar name: that name may vanish without a change of this file's state.
        similar = ", ".join(names_differing_in_case(self.root, name))
        if similar:
            notes = (*notes, f"differs only in case from {similar} (the same file on some systems)")
        if state is None:
            notes = (*notes, f"changed {TRIES} times while being read; the last version is shown")
        is_partial = len(data) > READ_BYTES
        is_template = not is_partial and bool(text.strip()) and text.strip() in self.templates
        if is_template:
            notes = (*notes, "omitted: unchanged template")
        elif self.templates:
            text = without_template_comments(text)
        content = None
        if text.strip() and not is_template:
            text = text.strip("\n")
            short = truncate_text(text, self.file_chars, name)
            content = FileText(name, short.text, short.omitted_chars, text_hash(text), len(text))
            cap = f"{short.omitted_chars:,} of {len(text):,} characters omitted (cap per file: {self.file_chars:,})"
            if is_partial:
                cap = f"only {self.file_chars:,} characters (the cap) of the first {READ_BYTES:,} bytes are shown"
            if is_partial or short.omitted_chars:
                notes = (*notes, cap)
        warning = None
        if notes:
            warning = ContextWarning(name, "; ".join(notes))
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
    step = STEP_NS
    if newest % 1_000_000_000 == 0:
        step = COARSE_STEP_NS
    return abs(time.time_ns() - newest) < step


def decode_text(data: bytes, *, cut: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the text with line ends as newlines, and notes about it. `cut`: the data may end inside a character.

    The encoding is the byte order mark's, else UTF-8, or UTF-16 if NUL bytes indicate it. Undecodable bytes become U+FFFD.
    Binary data gives an empty text.
    """
    encoding, start, note = _encoding(data)
    notes = [note] if note else []
    body = memoryview(data)[start:]
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(body, final=not cut)
    except UnicodeDecodeError:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(body, final=not cut)
        name = encoding.upper().removesuffix("-LE").removesuffix("-BE")
        notes.append(f"not valid {name}: undecodable bytes appear as \ufffd (save it as UTF-8)")
    nuls = text.count("\0")
    unreadable = nuls + text.count("\ufffd")
    if nuls > max(len(text) * _NUL_SHARE, _MIN_NULS) or (nuls and unreadable > len(text) * _UNREADABLE_SHARE):
        return "", (f"omitted: not text ({nuls:,} of {len(text):,} characters are NUL)",)
    if nuls:
        text = text.replace("\0", "\ufffd")
        notes.append(f"{nuls:,} NUL characters appear as \ufffd")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text, tuple(notes)
    for match in _DOUBLE.finditer(text):
        # The expression may take more characters than the first one that was encoded twice.
        pieces = (match[0][:end] for end in range(2, len(match[0]) + 1))
        if piece := next((piece for piece in pieces if len(_redecode(piece)) == 1), ""):
            notes.append(f"probably encoded twice ({piece!r} for {_redecode(piece)!r}); shown unchanged")
            break
    hidden = sorted({match[0] for match in _HIDDEN.finditer(_FLAG.sub("", text))})
    if hidden:
        names = ", ".join(f"U+{ord(char):04X}" for char in hidden[:5]) + (", …" if len(hidden) > 5 else "")
        notes.append(f"invisible characters that a model reads ({names}); shown unchanged")
    return text, tuple(notes)


def _encoding(data: bytes) -> tuple[str, int, str]:
    """Return the encoding, the length of its byte order mark, and a note."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark), ""
    even = data[0:_SAMPLE_BYTES:2]
    odd = data[1:_SAMPLE_BYTES:2]
    note = "read as UTF-16 without a byte order mark (save it as UTF-8)"
    # In UTF-16, Western text has a NUL in every second byte: the odd ones in little endian, the even ones in big endian.
    if odd and odd.count(0) > len(odd) * 0.4 and even.count(0) < len(even) * 0.05:
        return "utf-16-le", 0, note
    if odd and even.count(0) > len(even) * 0.4 and odd.count(0) < len(odd) * 0.05:
        return "utf-16-be", 0, note
    return "utf-8", 0, ""


def _redecode(piece: str) -> str:
    """Return the character whose UTF-8 bytes were decoded as Windows-1252 or Latin-1, or the piece itself."""
    for encoding in ("cp1252", "latin-1"):
        try:
            return piece.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
    return piece
