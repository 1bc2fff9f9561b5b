"""Last use of skills: `.nexus/used.json` in the workspace, a map of names to Unix milliseconds.

Best-effort cache for people and the list of capabilities. The file is safe to delete, an unreadable one counts as empty,
and of two simultaneous writers the last one wins.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from nexus.types.block import ContextWarning
from nexus.workspace.files.reader import READ_BYTES, Files

USED = Path(".nexus") / "used.json"
MAX_NAMES = 1_000
"""Number of names in the file, the most recent."""

_values = msgspec.json.Decoder(dict[str, object])


def used_skills(workspace: Path) -> tuple[dict[str, int], list[ContextWarning]]:
    """Return the time of each skill's last use in Unix milliseconds, by name, and warnings about the file."""
    name = USED.as_posix()
    file, warning = Files(workspace, READ_BYTES).read(name)
    if file is None:
        return {}, [warning] if warning else []
    try:
        values = _values.decode(file.text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}, [ContextWarning(name, "not used: not a JSON object of names and times")]
    times = {skill: at for skill, at in values.items() if type(at) is int and at >= 0}
    invalid = len(values) - len(times)
    text = f"{invalid} of {len(values)} times are invalid and ignored"
    return times, [ContextWarning(name, text)] if invalid else []


def record_use(workspace: Path, name: str, at_ms: int) -> None:
    """Record the use of a skill, replacing the file at once. Raises OSError if it cannot be written."""
    file = workspace / USED
    file.parent.mkdir(exist_ok=True)
    if not file.parent.resolve().is_relative_to(workspace.resolve()):
        raise OSError(0, "leads out of the workspace", str(file.parent))
    times = sorted({**used_skills(workspace)[0], name: at_ms}.items(), key=lambda item: (-item[1], item[0]))
    data = msgspec.json.format(msgspec.json.encode(dict(sorted(times[:MAX_NAMES]))), indent=2) + b"\n"
    handle, part = tempfile.mkstemp(".part", ".used-", file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(part).replace(file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
