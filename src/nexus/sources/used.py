"""Which skills were used here, and when last: `.nexus/used.json` in the workspace, a map of names to Unix milliseconds.

It is a note for people and for the list of capabilities, no record: the file may be deleted, and one that cannot be read
counts as empty. Of two programs that write at the same moment the last one stands.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from nexus.sources.files import Files

USED = Path(".nexus") / "used.json"
MOST_NAMES = 1_000
"""Names that are kept, the newest."""

_FILE_CHARS = 200_000
_times = msgspec.json.Decoder(dict[str, int])


def used_skills(workspace: Path) -> dict[str, int]:
    """When each skill was used last, in Unix milliseconds, by name; empty where nothing was noted."""
    found, _ = Files(workspace, _FILE_CHARS).read(USED.as_posix())
    try:
        return _times.decode(found.text) if found is not None else {}
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}


def note_use(workspace: Path, name: str, at_ms: int) -> None:
    """Notes that a skill was used. The file is replaced whole. Raises OSError when it cannot be written."""
    file = workspace / USED
    file.parent.mkdir(exist_ok=True)
    if not file.parent.resolve().is_relative_to(workspace.resolve()):
        raise OSError(0, "it leads out of the workspace", str(file.parent))
    times = sorted({**used_skills(workspace), name: at_ms}.items(), key=lambda one: (-one[1], one[0]))
    data = msgspec.json.format(msgspec.json.encode(dict(sorted(times[:MOST_NAMES]))), indent=2) + b"\n"
    handle, half = tempfile.mkstemp(".part", ".used-", file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(half).replace(file)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise
