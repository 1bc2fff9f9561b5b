"""List of credentials on disk: names, locations of their values, results of the last check. No values.

It is `credentials.json` in the user's folder, mode 0600. A writer creates `credentials.json.lock` with the new text, which
excludes others, and renames it over the old file. A damaged file is never overwritten.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.errors import CredentialsDamaged, CredentialsNotSaved
from nexus.workspace.credentials.names import is_name, is_variable

FILE = "credentials.json"
FORM = 1
"""Version of the file format."""

MAX_BYTES = 1_000_000
LOCK_WAIT_S = 2.0

CheckState: TypeAlias = Literal["unchecked", "ok", "missing", "broken"]
"""`ok`: the value exists. `missing`: it does not. `broken`: marked as rejected."""


class CredentialEntry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A credential: the keyring's service or the variable with its value, and the state at the last check."""

    name: str
    where: Literal["keyring", "variable"]
    service: str = ""
    variable: str = ""
    state: CheckState = "unchecked"
    checked_ms: int = 0
    of: str = ""
    """Variable that the state belongs to, if it preceded the credential's own location."""


class _Index(Struct, frozen=True, forbid_unknown_fields=True):
    form: int
    credentials: tuple[CredentialEntry, ...] = ()


class _Form(Struct, frozen=True):
    form: int


_index = msgspec.json.Decoder(_Index)
_form = msgspec.json.Decoder(_Form)


def read(home: Path) -> dict[str, CredentialEntry]:
    """Return the entries by name; none without a file. Raises CredentialsDamaged."""
    file = home / FILE
    try:
        data = _file_bytes(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CredentialsDamaged(f"{file} cannot be read: {error.strerror or error} (left unchanged)") from None
    if data is None:
        raise CredentialsDamaged(f"{file} is a link, not a regular file, or too large (left unchanged)")
    problem, entries = _decode(data)
    if problem:
        raise CredentialsDamaged(
            f"{file} {problem} (left unchanged: repair it, or move it away and set the credentials again; it has no values)"
        )
    return {entry.name: entry for entry in entries}


def change(home: Path, update: Callable[[dict[str, CredentialEntry]], Iterable[CredentialEntry]]) -> None:
    """Replace the entries by the result of `update` while other processes are excluded.

    Raises CredentialsDamaged or CredentialsNotSaved; the file is then unchanged.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = home / f"{FILE}.lock"
        file = os.fdopen(_create_lock(lock), "wb")
        try:
            with file:
                entries = sorted(update(read(home)), key=lambda entry: entry.name)
                file.write(msgspec.json.format(msgspec.json.encode(_Index(FORM, tuple(entries))), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            lock.replace(home / FILE)
        except BaseException:
            with suppress(OSError):
                lock.unlink()
            raise
    except OSError as error:
        text = f"{home / FILE} cannot be written: {error.strerror or error} (left unchanged)"
        raise CredentialsNotSaved(text) from None


def _create_lock(lock: Path) -> int:
    """Return a handle of the lock file, which must not exist yet. Raises CredentialsNotSaved after LOCK_WAIT_S."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if time.monotonic() > deadline:
                text = f"list of credentials locked by another process (left unchanged; delete {lock} if there is none)"
                raise CredentialsNotSaved(text) from None
        time.sleep(0.02)


def _file_bytes(file: Path) -> bytes | None:
    """Return the file's bytes; None if it is not a regular file, or too large."""
    if file.is_symlink():
        return None
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
            return None
        return os.read(handle, MAX_BYTES)
    finally:
        os.close(handle)


def _decode(data: bytes) -> tuple[str, tuple[CredentialEntry, ...]]:
    """Return a problem, "" for none, and the entries. The problem quotes nothing: the file may contain a pasted value."""
    try:
        form = _form.decode(data).form
        if form != FORM:
            return f"has form {form}, this Nexus reads {FORM}", ()
        entries = _index.decode(data).credentials
    except msgspec.ValidationError as error:
        path = str(error).rpartition(" - at ")[2] if " - at " in str(error) else "its outermost value"
        return f"has an invalid value at {path}", ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "is not JSON", ()
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names) or not all(map(_is_valid, entries)):
        return "has a duplicate name, or an invalid name or variable", ()
    return "", entries


def _is_valid(entry: CredentialEntry) -> bool:
    return is_name(entry.name) and (is_variable(entry.variable) if entry.where == "variable" else bool(entry.service))
