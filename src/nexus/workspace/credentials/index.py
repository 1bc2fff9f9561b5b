"""Names of credentials and of their variables, and the list of them on disk: locations and checks, no values.

A name has lower-case letters, digits and single hyphens, as a skill's has, so that each has a variable of its own and no
keyring or file system confuses two of them.

The list is `credentials.json` in the user's folder, mode 0600. A writer creates `credentials.json.lock` with the new text, which
excludes others, and renames it over the old file. A damaged file is never overwritten.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.errors import CredentialError
from nexus.types.decoding import decodable

PREFIX = "NEXUS_CREDENTIAL_"
MAX_CHARS = 64

FILE = "credentials.json"
FORM = 1  # version of the file format
MAX_BYTES = 1_000_000
LOCK_WAIT_S = 2.0

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)

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


class _IndexForm(Struct, frozen=True):
    form: int
    """Read alone first: a later form may have fields that this Nexus rejects."""


class _Index(_IndexForm, frozen=True, forbid_unknown_fields=True):
    credentials: tuple[CredentialEntry, ...] = ()


def is_name(text: str) -> bool:
    """Return whether this can be the name of a credential."""
    return len(text) <= MAX_CHARS and _NAME.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Return whether this can be the name of an environment variable."""
    return _VARIABLE.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return a valid name. Raises CredentialError, without the text: it may be a value in the wrong place."""
    if not is_name(text):
        raise CredentialError(
            f"invalid credential name, not shown because it may be a value (use at most {MAX_CHARS} lower-case letters, "
            "digits and single hyphens, as in 'openai-team'; nothing was stored)",
            code="bad_credential",
        )
    return text


def variable_of(name: str) -> str:
    """Return a credential's own variable: `NEXUS_CREDENTIAL_OPENAI_TEAM` for `openai-team`."""
    return PREFIX + _upper(name)


def name_of(variable: str) -> str | None:
    """Return the credential whose own variable this is, or None."""
    name = variable.removeprefix(PREFIX).lower().replace("_", "-")
    if is_name(name) and variable_of(name) == variable:
        return name
    return None


def is_valid_for(variable: str, name: str) -> bool:
    """Return whether a skill's variable belongs to a credential: `TWITTER_API_KEY` or `TWITTER` for `twitter`."""
    return variable == _upper(name) or variable.startswith(f"{_upper(name)}_")


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


def read(home: Path) -> dict[str, CredentialEntry]:
    """Return the entries by name; none without a file. Raises CredentialError."""
    file = home / FILE
    try:
        data = None
        if not file.is_symlink():  # for systems without O_NOFOLLOW
            handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                state = os.fstat(handle)
                if stat.S_ISREG(state.st_mode) and state.st_size <= MAX_BYTES:
                    data = os.read(handle, MAX_BYTES)
            finally:
                os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CredentialError(
            f"{file} cannot be read: {error.strerror or error} (left unchanged)", code="credentials_damaged"
        ) from None
    if data is None:
        raise CredentialError(
            f"{file} is a link, not a regular file, or too large (left unchanged)", code="credentials_damaged"
        )
    problem, entries = _decode(data)
    if problem:
        raise CredentialError(
            f"{file} {problem} (left unchanged: repair it, or move it away and set the credentials again; it has no values)",
            code="credentials_damaged",
        )
    return {entry.name: entry for entry in entries}


def change(home: Path, update: Callable[[dict[str, CredentialEntry]], Iterable[CredentialEntry]]) -> None:
    """Replace the entries by the result of `update` while other processes are excluded.

    Raises CredentialError, or CredentialError also after LOCK_WAIT_S; the file is then unchanged.
    """
    lock = home / f"{FILE}.lock"
    deadline = time.monotonic() + LOCK_WAIT_S
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            try:
                handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:
                if time.monotonic() > deadline:
                    text = f"list of credentials locked by another process (left unchanged; delete {lock} if there is none)"
                    raise CredentialError(text, code="credentials_not_saved") from None
            time.sleep(0.02)
        try:
            with os.fdopen(handle, "wb") as file:
                entries = sorted(update(read(home)), key=lambda entry: entry.name)
                file.write(msgspec.json.format(msgspec.json.encode(_Index(FORM, tuple(entries))), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            lock.replace(home / FILE)  # releases the lock and publishes the new list in one step
        except BaseException:
            with suppress(OSError):
                lock.unlink()
            raise
    except OSError as error:
        text = f"{home / FILE} cannot be written: {error.strerror or error} (left unchanged)"
        raise CredentialError(text, code="credentials_not_saved") from None


def _decode(data: bytes) -> tuple[str, tuple[CredentialEntry, ...]]:
    """Return a problem, "" for none, and the entries. The problem quotes nothing: the file may contain a pasted value."""
    try:
        form = msgspec.json.decode(data, type=decodable(_IndexForm)).form
        if form != FORM:
            return f"has form {form}, this Nexus reads {FORM}", ()
        entries = msgspec.json.decode(data, type=decodable(_Index)).credentials
    except msgspec.ValidationError as error:
        path = "its outermost value"
        if " - at " in str(error):
            path = str(error).rpartition(" - at ")[2]
        return f"has an invalid value at {path}", ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "is not JSON", ()
    names = [entry.name for entry in entries]
    has_location = all(is_variable(one.variable) if one.where == "variable" else one.service for one in entries)
    if len(set(names)) < len(names) or not all(map(is_name, names)) or not has_location:
        return "has a duplicate name, or an invalid name or variable", ()
    return "", entries
