"""Which skills were used here, and when last: `.nexus/used.json` in the workspace, a map of names to Unix milliseconds.

It is a note for people and for the list of capabilities, no record: the file may be deleted, and one that cannot be read
counts as empty. Of two programs that write at the same moment the last one stands.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from nexus.types.block import ContextWarning
from nexus.workspace.files.reader import READ_BYTES, Files

USED = Path(".nexus") / "used.json"
MOST_NAMES = 1_000
"""Names that are kept, the newest."""

_values = msgspec.json.Decoder(dict[str, object])


def used_skills(workspace: Path) -> tuple[dict[str, int], list[ContextWarning]]:
    """When each skill was used last, in Unix milliseconds, by name; and what is wrong with the file that says so."""
    name = USED.as_posix()
    found, note = Files(workspace, READ_BYTES).read(name)
    if found is None:
        return {}, [note] if note else []
    try:
        values = _values.decode(found.text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}, [ContextWarning(name, "not used: it is no JSON object of names and times")]
    times = {skill: at for skill, at in values.items() if type(at) is int and at >= 0}
    bad = len(values) - len(times)
    return times, [ContextWarning(name, f"{bad} of its {len(values)} times are none; they do not count")] if bad else []


def record_use(workspace: Path, name: str, at_ms: int) -> None:
    """Notes that a skill was used. The file is replaced whole. Raises OSError when it cannot be written."""
    file = workspace / USED
    file.parent.mkdir(exist_ok=True)
    if not file.parent.resolve().is_relative_to(workspace.resolve()):
        raise OSError(0, "it leads out of the workspace", str(file.parent))
    times = sorted({**used_skills(workspace)[0], name: at_ms}.items(), key=lambda one: (-one[1], one[0]))
    data = msgspec.json.format(msgspec.json.encode(dict(sorted(times[:MOST_NAMES]))), indent=2) + b"\n"
    handle, half = tempfile.mkstemp(".part", ".used-", file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(half).replace(file)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise
