"""Reading a workspace's files: inside the workspace only, regular files only, size-capped, cached by their state.

A file is read again when its device, inode, times or size change, so a warm call costs one `stat` for each file. One that
changed just now is read again in any case: file systems count time in steps, and two changes may fall into one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from nexus.errors import WorkspaceMissing
from nexus.types.block import ContextWarning, text_hash
from nexus.workspace.files.containment import MOVED, State, alike_in, folders_in, open_inside, state_of, trouble_with
from nexus.workspace.files.templates import is_edited
from nexus.workspace.files.text_decoding import decode_text
from nexus.workspace.files.truncate import truncate_text

FILE_CHARS = 20_000
"""Default cap for one file, in characters (document 004's sources use the same)."""

READ_BYTES = 4_000_000
"""No more than this is read of any file."""

TRIES = 3
"""How often a file is read that changes meanwhile, or whose path does."""

STEP_NS, COARSE_STEP_NS = 20_000_000, 2_000_000_000
"""Steps of a file system's clock, at most; the coarse one where times are whole seconds."""

T = TypeVar("T")


def home_folder() -> Path:
    """The user's own folder of Nexus: the variable `NEXUS_HOME`, else `~/.nexus`. It need not be there."""
    named = os.environ.get("NEXUS_HOME", "")
    return Path(named).expanduser() if named else Path.home() / ".nexus"


def working_folder() -> Path:
    """The folder that the program runs in. Raises WorkspaceMissing where it was deleted meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise WorkspaceMissing("the folder that this runs in was deleted: change to one that is there") from error


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
    """The files under one root. State over time: what was read, by path and file state.

    `hard_links` reads files that have further names in other folders, which may lie outside the root.
    """

    root: Path
    file_chars: int = FILE_CHARS
    templates: frozenset[str] = frozenset()
    hard_links: bool = False
    _base: str = field(init=False)
    _seen: dict[str, tuple[State | None, FileText | None, ContextWarning | None]] = field(
        default_factory=dict[str, tuple[State | None, FileText | None, ContextWarning | None]]
    )
    _lists: dict[str, tuple[State | None, list[str], ContextWarning | None]] = field(
        default_factory=dict[str, tuple[State | None, list[str], ContextWarning | None]]
    )

    def __post_init__(self) -> None:
        self._base = os.path.join(self.root, "")  # noqa: PTH118 - put before every name that is read

    def read(self, name: str) -> tuple[FileText | None, ContextWarning | None]:
        """The file's text, or None when it is absent, empty or refused; and what the user should know about it."""
        if trouble := trouble_with(name):
            return None, ContextWarning(repr(name)[1:-1], f"left out: {trouble}")
        path = f"{self._base}{name}"
        try:
            key = state_of(os.stat(path))  # noqa: PTH116 - hot path
        except (FileNotFoundError, NotADirectoryError):
            return None, self._absent(name)
        except OSError as error:
            return None, ContextWarning(name, f"cannot be read: {error.strerror or error}")
        known = self._seen.get(name)
        if known is None or known[0] != key:
            known = self._seen[name] = self._load(name, key)
        return known[1], known[2]

    def folders(self, name: str) -> list[str]:
        """The names of the folders inside the folder `name`, sorted; none if it is not there."""
        return self.listed(name)[0]

    def listed(self, name: str) -> tuple[list[str], ContextWarning | None]:
        """The names of the folders inside the folder `name`, sorted, and what the user should know about it."""
        if trouble := trouble_with(name):
            return [], ContextWarning(repr(name)[1:-1], f"left out: {trouble}")
        try:
            key = state_of(os.stat(f"{self._base}{name}"))  # noqa: PTH116 - as above
        except OSError:
            return [], None
        known = self._lists.get(name)
        if known is None or known[0] != key:
            known = self._lists[name] = self._list(name)
        return known[1], known[2]

    def _absent(self, name: str) -> ContextWarning | None:
        """What to say about a file that is not there: nothing, unless its folder is gone or a name is nearly the same."""
        known = self._seen.get(name)
        if known is not None and known[1] is not None and not self.root.is_dir():
            return ContextWarning(name, f"left out: the folder {self.root} is not there any more")
        if known is None or known[1] is not None or known[2] is not None:
            others = ", ".join(alike_in(self.root, name))
            note = ContextWarning(name, f"is not there, but {others} is: capitals count in names") if others else None
            known = self._seen[name] = (None, None, note)
        return known[2]

    def _list(self, name: str) -> tuple[State | None, list[str], ContextWarning | None]:
        try:
            found, state, whole = _again(lambda: folders_in(self.root, name))
        except OSError as error:
            return None, [], ContextWarning(f"{name}/", f"left out: {error.strerror or error}")
        note = None if whole else ContextWarning(f"{name}/", "has too many entries: not all were looked at")
        return None if state is None or is_young(state) else state, found, note

    def _load(self, name: str, key: State) -> tuple[State | None, FileText | None, ContextWarning | None]:
        """The state under which what was read holds (None: for this call only), the text, and what to say."""
        try:
            state, data = _again(lambda: self._bytes(name), until=_is_steady)
        except FileNotFoundError:
            return None, None, None
        except OSError as error:
            return (
                None if error.errno == MOVED else key,
                None,
                ContextWarning(name, f"left out: {error.strerror or error}"),
            )
        text, told = decode_text(data[:READ_BYTES], cut=len(data) > READ_BYTES)
        others = ", ".join(alike_in(self.root, name))
        if others:
            told = (*told, f"differs only in capitals from {others}: on some systems they are one file")
        if state is None:
            told = (*told, f"changed {TRIES} times while it was read: it is shown as it was read last")
        warned = ContextWarning(name, "; ".join(told)) if told else None
        found, said = self._shown(name, data, text, warned)
        if warned is not None and said is not None and said != warned:
            said = ContextWarning(name, f"{warned.message}; {said.message}")
        return None if state is None or others or is_young(state) else state, found, said

    def _bytes(self, name: str) -> tuple[State | None, bytes]:
        """The file's state, None if it changed while it was read, and its bytes: one more than is used if there are more."""
        with open_inside(self.root, name, hard_links=self.hard_links) as handle:
            before = state_of(os.fstat(handle))
            most = min(READ_BYTES, before[-1])  # one that grows for ever has no end to wait for
            chunks: list[bytes] = []
            size = 0
            while size <= most and (chunk := os.read(handle, 1 << 20)):
                chunks.append(chunk)
                size += len(chunk)
            return before if state_of(os.fstat(handle)) == before else None, b"".join(chunks)

    def _shown(
        self, name: str, data: bytes, text: str, warned: ContextWarning | None
    ) -> tuple[FileText | None, ContextWarning | None]:
        if not text.strip():
            return None, warned
        if len(data) > READ_BYTES:
            note = f"only the first {READ_BYTES:,} bytes were read, and of these the cap's {self.file_chars:,} characters kept"
            found, _ = _capped(name, text.strip("\n"), self.file_chars, None)
            return found, ContextWarning(name, note)
        if text.strip() in self.templates:
            return None, ContextWarning(name, "left out: it is the untouched template that `nexus init` wrote")
        changed = is_edited(text) if self.templates else text
        if not changed.strip():
            return None, warned
        return _capped(name, changed.strip("\n"), self.file_chars, warned)


def _again(read: Callable[[], T], *, until: Callable[[T], bool] = bool) -> T:
    """What `read` gives, tried again where its path is changed meanwhile, and until what was read is as it should be."""
    for _ in range(TRIES - 1):
        try:
            found = read()
        except OSError as error:
            if error.errno != MOVED:
                raise
        else:
            if until(found):
                return found
    return read()


def _is_steady(read: tuple[State | None, bytes]) -> bool:
    return read[0] is not None


def is_young(state: State) -> bool:
    """Whether the file could change once more without getting another state."""
    newest = max(state[2], state[3])
    step = COARSE_STEP_NS if newest % 1_000_000_000 == 0 else STEP_NS
    return abs(time.time_ns() - newest) < step


def _capped(name: str, text: str, cap: int, warned: ContextWarning | None) -> tuple[FileText, ContextWarning | None]:
    short = truncate_text(text, cap, name)
    found = FileText(name, short.text, short.left_out_chars, text_hash(text), len(text))
    if not short.left_out_chars:
        return found, warned
    note = f"{short.left_out_chars:,} of {len(text):,} characters left out: the cap is {cap:,} for a file"
    return found, ContextWarning(name, note)
