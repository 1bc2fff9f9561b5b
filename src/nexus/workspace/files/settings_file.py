"""Files with settings of other programs: read whole, and replaced whole unless they were changed meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from nexus.errors import BadConfig

MAX_FILE_BYTES = 32_000_000
"""Claude Code keeps the prompts of all projects in its file, too."""


def read_settings_file(file: Path) -> bytes | None:
    """Return a file's bytes; None if there is none. Raises BadConfig if it cannot be read or is too large."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadConfig(str(file), "", f"not readable: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise BadConfig(str(file), "", f"larger than {MAX_FILE_BYTES:,} bytes (nothing was written)")
    return data


def decoded_settings(file: Path, data: bytes | None) -> str:
    """Return the text of a file; "" if there is none. Raises BadConfig if it is no UTF-8."""
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as error:
        raise BadConfig(str(file), "", "is no UTF-8 (nothing was written)") from error


def write_settings_file(file: Path, before: bytes | None, after: bytes | None) -> None:
    """Replace a file whole, unless it was changed since it was read. A link stays, and what it leads to is replaced.

    Raises BadConfig; the file is then unchanged.
    """
    if after == before:
        return
    target = file.resolve()
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if after is None:
            target.unlink()
            return
        mode = target.stat().st_mode & 0o777 if before is not None else 0o600
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as stream:
            stream.write(after)
            stream.flush()
            os.fsync(handle)
        new.chmod(mode)
        if read_settings_file(target) != before:
            raise BadConfig(str(file), "", "was changed meanwhile (nothing was written; do it again)")
        new.replace(target)
    except OSError as error:
        raise BadConfig(str(file), "", f"not written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            new.unlink()
