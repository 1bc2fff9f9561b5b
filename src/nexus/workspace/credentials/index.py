"""The list of credentials on disk: names, where their values are, how the last check went. No values.

It is `credentials.json` in the user's folder, mode 0600. A writer makes `credentials.json.lock` with the new text, which
keeps others out, and puts it in the old one's place in one step. What is damaged is never written over.
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
"""Raised when the form of the file changes."""

MOST_BYTES = 1_000_000
LOCK_WAIT_S = 2.0

CheckState: TypeAlias = Literal["unchecked", "ok", "missing", "broken"]
"""`ok`: the value was there. `missing`: it was not. `broken`: somebody said that it was refused."""


class CredentialEntry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A credential: the keyring's service or the variable that has its value, and its state when it was last checked.

    `of` is the variable that the state is of, where another one came before the credential's own place.
    """

    name: str
    where: Literal["keyring", "variable"]
    service: str = ""
    variable: str = ""
    state: CheckState = "unchecked"
    checked_ms: int = 0
    of: str = ""


class _Index(Struct, frozen=True, forbid_unknown_fields=True):
    form: int
    credentials: tuple[CredentialEntry, ...] = ()


class _Form(Struct, frozen=True):
    form: int


_index = msgspec.json.Decoder(_Index)
_form = msgspec.json.Decoder(_Form)


def read(home: Path) -> dict[str, CredentialEntry]:
    """The entries by name; none where there is no file. Raises CredentialsDamaged."""
    file = home / FILE
    try:
        data = _bytes_of(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CredentialsDamaged(f"{file} cannot be read: {error.strerror or error}. It was not touched") from None
    if data is None:
        raise CredentialsDamaged(f"{file} is a link, a folder, or no file of ours by its size. It was not touched")
    problem, entries = _decoded(data)
    if problem:
        raise CredentialsDamaged(
            f"{file} {problem}. It was not touched: mend it, or move it away and set the credentials again; their values "
            "are not in it"
        )
    return {entry.name: entry for entry in entries}


def change(home: Path, changed: Callable[[dict[str, CredentialEntry]], Iterable[CredentialEntry]]) -> None:
    """Writes what `changed` makes of the entries, while no other process does.

    Raises CredentialsDamaged, CredentialsNotSaved; then the file is as it was.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = home / f"{FILE}.lock"
        file = os.fdopen(_exclusive(lock), "wb")
        try:
            with file:
                entries = sorted(changed(read(home)), key=lambda entry: entry.name)
                file.write(msgspec.json.format(msgspec.json.encode(_Index(FORM, tuple(entries))), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            lock.replace(home / FILE)
        except BaseException:
            with suppress(OSError):
                lock.unlink()
            raise
    except OSError as error:
        text = f"{home / FILE} cannot be written: {error.strerror or error}. It is as it was"
        raise CredentialsNotSaved(text) from None


def _exclusive(lock: Path) -> int:
    """A handle on the file that keeps others out, made now."""
    until = time.monotonic() + LOCK_WAIT_S
    while (handle := _made(lock)) is None:
        if time.monotonic() > until:
            raise CredentialsNotSaved(
                f"another process is changing the list of credentials. If none is, delete {lock}; nothing was changed"
            )
        time.sleep(0.02)
    return handle


def _made(lock: Path) -> int | None:
    try:
        return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None


def _bytes_of(file: Path) -> bytes | None:
    """The file's bytes; None for what is no regular file, or too large."""
    if file.is_symlink():
        return None
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            return None
        return os.read(handle, MOST_BYTES)
    finally:
        os.close(handle)


def _decoded(data: bytes) -> tuple[str, tuple[CredentialEntry, ...]]:
    """What is wrong with the file ("" if nothing), and its entries. No text of the file is repeated."""
    try:
        form = _form.decode(data).form
        if form != FORM:
            return f"has form {form}, this Nexus reads {FORM}", ()
        entries = _index.decode(data).credentials
    except msgspec.ValidationError as error:
        place = str(error).rpartition(" - at ")[2] if " - at " in str(error) else "its outermost value"
        return f"is not in its form, at {place}", ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "is no JSON", ()
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names) or not all(map(_sound, entries)):
        return "has a name twice, or names and variables that cannot be such", ()
    return "", entries


def _sound(entry: CredentialEntry) -> bool:
    return is_name(entry.name) and (is_variable(entry.variable) if entry.where == "variable" else bool(entry.service))
