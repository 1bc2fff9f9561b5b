"""Users' profiles, kept per principal in the user's folder: `user.json` without a principal, else `users/PRINCIPAL.json`.

A file name is the principal in lower-case letters, digits and `-._@`; every other byte is percent-encoded, so that no
file system confuses two principals.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from nexus.errors import UnreadableFile
from nexus.types.block import ContextWarning
from nexus.types.user_profile import FIELDS, user_profile_text
from nexus.types.validation import parse_json
from nexus.workspace.files.containment import read_file

MAX_BYTES = 1_000_000
MAX_NAME_CHARS = 180

_UNSAFE = re.compile(rb"[^a-z0-9._@-]")


def profile_file(home: Path, principal: str) -> Path:
    """Return the file of a principal's profile in the user's folder."""
    if not principal:
        return home / "user.json"
    data = principal.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], data).decode()
    if len(name) > MAX_NAME_CHARS:
        name = f"%{hashlib.sha256(data).hexdigest()}"
    return home / "users" / f"{name}.json"


def read_profile(home: Path, principal: str) -> tuple[dict[str, Any], tuple[ContextWarning, ...]]:
    """Return the kept profile of a principal, empty if there is none, and a warning about a file that is not usable."""
    file = profile_file(home, principal)
    if not os.path.lexists(file):
        return {}, ()
    try:
        value = parse_json(read_file(file, MAX_BYTES).decode("utf-8-sig"))
    except (UnreadableFile, OSError, ValueError) as error:
        return {}, (ContextWarning(str(file), f"not used: {error}"),)
    if not isinstance(value, dict):
        return {}, (ContextWarning(str(file), "not used: no JSON object"),)
    return cast("dict[str, Any]", value), ()


def keep_profile(home: Path, principal: str, profile: dict[str, Any]) -> Path:
    """Replace the kept profile of a principal, or remove it if `profile` is empty. Return its file.

    Raises UnreadableFile if the file cannot be written; the previous one is then unchanged.
    """
    file = profile_file(home, principal)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        if not profile:
            file.unlink(missing_ok=True)
            return file
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
        new.replace(file)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise UnreadableFile(f"'{file}' not written: {error.strerror or error}") from error
    return file


def profile_lines(profile: Mapping[str, Any]) -> list[str]:
    """Return the lines of the profile's text that contexts show."""
    return user_profile_text(profile)[0].splitlines()


def with_profile_lines(profile: Mapping[str, Any], update: Callable[[list[str]], list[str]]) -> dict[str, Any]:
    """Return a profile with other lines of text, in the field that contexts show; `friends_profile` if there is none.

    The field keeps its form: a text, a list, or an object with `content`.
    """
    for field in FIELDS:
        for holder in ("", "prompt_overrides"):
            inner = profile.get(holder) if holder else profile
            if (
                isinstance(inner, Mapping)
                and user_profile_text({field: cast("Mapping[str, Any]", inner).get(field)})[0]
            ):
                changed = {**cast("Mapping[str, Any]", inner)}
                changed[field] = _with_lines(changed[field], update)
                return {**profile, holder: changed} if holder else changed
    return {**profile, "friends_profile": "\n".join(update([]))}


def _with_lines(value: object, update: Callable[[list[str]], list[str]]) -> object:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {**fields, "content": _with_lines(fields["content"], update)}
    lines = update(profile_lines({FIELDS[0]: value}))
    return lines if isinstance(value, (list, tuple)) else "\n".join(lines)
