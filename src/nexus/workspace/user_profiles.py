"""Users' profiles: one per principal in the ledger of their tenant, and the local user's own in a file.

A principal's profile is the ledger's document of kind `profile` with the principal's name. `user.json` in the user's folder
is the profile of the local user, who needs no principal; an engine that is not the local user's never opens it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from nexus.errors import BadSetting, HeadMoved, UnreadableFile
from nexus.ledger.documents import PROFILE, change_document
from nexus.ledger.store import DocumentStore
from nexus.types.block import ContextWarning
from nexus.types.sanitize import sanitize_text
from nexus.types.user_profile import FIELDS, user_profile_text
from nexus.types.validation import is_json, parse_json
from nexus.workspace.files.containment import read_file
from nexus.workspace.memory.files import lock_folder

LOCAL_FILE = "user.json"
FOLDER = "users"
"""The local user's profile, and the folder in which earlier versions kept those of principals."""
MAX_BYTES = 1_000_000

_UNSAFE = re.compile(rb"[^a-z0-9._@-]")
_HASH = re.compile(r"%[0-9a-f]{64}")
_MAX_NAME_CHARS = 180
_LOCK = Path(f"{LOCAL_FILE}.lock")

Update: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns a changed profile; called again with the newer one if another writer came first."""


class UserProfiles:
    """The profiles that an engine may read and change.

    Args:
        store: The ledger. Each tenant of it has its own profiles.
        home: The user's folder, for the local user's engine; None for any other, which has no profile without a principal.
    """

    def __init__(self, store: DocumentStore, home: Path | None = None) -> None:
        self._store = store
        self._home = home

    def may_have(self, principal: str | None) -> bool:
        """Return whether a principal can have a profile here; an empty one is the local user, None an unknown one."""
        return bool(principal) or (principal == "" and self._home is not None)

    def stored(self, principal: str) -> dict[str, Any] | None:
        """Return the ledger's profile of a principal; None if there was never one. Raises LedgerError."""
        document = None
        if principal:
            document = self._store.document(PROFILE, principal)
        if document is not None:
            return document.body
        return None

    def read(self, principal: str) -> tuple[dict[str, Any], tuple[ContextWarning, ...]]:
        """Return the profile of a principal, empty if there is none, and warnings about files that are not used."""
        if not principal:
            if self._home is not None:
                return _read_file(self._home / LOCAL_FILE)
            return ({}, ())
        profile = self.stored(principal)
        file = None
        if profile is None and self._home is not None:
            file = old_file(self._home, principal)
        if file is not None and os.path.lexists(file):
            text = (
                "not used: the ledger has the profiles of principals (copy it there: nexus services db import-profiles)"
            )
            return {}, (ContextWarning(str(file), text),)
        return profile or {}, ()

    def put(self, principal: str, profile: dict[str, Any]) -> None:
        """Replace a whole profile; an empty one is forgotten. Raises as `change`."""
        if principal:
            self._store.put_document(PROFILE, principal, _storable(profile))
            return
        with self._locked_file() as file:
            _write_file(file, _storable(profile))

    def change(self, principal: str, update: Update) -> dict[str, Any]:
        """Replace a profile by the result of `update`, and return it. No change of another writer is lost.

        If the ledger never had a profile of this principal, the local user's engine begins with that of an earlier version's
        file. Raises BadSetting without a principal unless this is the local user's engine and for a profile that is no JSON
        object, UnreadableFile, MemoryBusy, LedgerError, and errors of `update`.
        """
        if principal:
            first: dict[str, Any] = {}
            if self._home is not None:
                first = _read_file(old_file(self._home, principal))[0]

            def change(profile: dict[str, Any] | None) -> dict[str, Any]:
                # An empty profile stays as a document: without its number, a writer could not tell that it changed.
                return _storable(update(deepcopy(first) if profile is None else profile))

            return change_document(self._store, PROFILE, principal, change)[0]
        with self._locked_file() as file:
            profile, warnings = _read_file(file)
            if warnings:
                raise UnreadableFile(f"{warnings[0].source} {warnings[0].message}")
            new = _storable(update(profile))
            _write_file(file, new)
        return new

    def import_profile(self, principal: str, profile: dict[str, Any]) -> str:
        """Store a principal's profile unless the ledger has one; return `imported`, or `kept`. Raises LedgerError."""
        try:
            self._store.put_document(PROFILE, principal, _storable(profile), expected_number=0)
        except HeadMoved:
            return "kept"
        return "imported"

    @contextmanager
    def _locked_file(self) -> Generator[Path]:
        if self._home is None:
            raise BadSetting("no principal, and not the local user's engine (name whose profile it is: principal=…)")
        with lock_folder(self._home, _LOCK):
            yield self._home / LOCAL_FILE


class ImportedProfile(Struct, frozen=True):
    """A profile of earlier versions and what became of it."""

    source: str
    """Its file."""
    principal: str
    """Empty if the file's name is a hash."""
    result: str
    """`imported`, `kept` if the ledger had a profile of this principal, or the reason why it was not used."""


def import_files(profiles: UserProfiles, home: Path) -> list[ImportedProfile]:
    """Copy the profiles that earlier versions kept in the user's folder to the ledger, which keeps those that it has.

    The files stay, so that other workspaces' ledgers can have them too. Raises LedgerError.
    """
    folder = home / FOLDER
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [_import_file(profiles, file) for file in files]


def _import_file(profiles: UserProfiles, file: Path) -> ImportedProfile:
    principal = _principal_of(file)
    if not principal:
        text = "name is a hash (import it: nexus assemble --principal NAME --user-profile FILE)"
        return ImportedProfile(str(file), "", text)
    profile, warnings = _read_file(file)
    if warnings:
        return ImportedProfile(str(file), principal, warnings[0].message)
    return ImportedProfile(str(file), principal, profiles.import_profile(principal, profile))


def old_file(home: Path, principal: str) -> Path:
    """Return the file in which earlier versions kept a principal's profile.

    Its name is the principal in lower-case letters, digits and `-._@`, with every other byte percent-encoded, or a hash.
    """
    data = principal.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], data).decode()
    if len(name) > _MAX_NAME_CHARS:
        name = f"%{hashlib.sha256(data).hexdigest()}"
    return home / FOLDER / f"{name}.json"


def _principal_of(file: Path) -> str:
    """Return the principal of a file of earlier versions; empty if its name is a hash or no such name."""
    try:
        principal = unquote_to_bytes(file.stem).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""
    is_hash = _HASH.fullmatch(file.stem) is not None
    if not is_hash and old_file(file.parent.parent, principal).name == file.name:
        return principal
    return ""


def _storable(profile: object) -> dict[str, Any]:
    """Return a JSON object whose texts are valid UTF-8. Raises BadSetting for a value that is none."""
    kind = type(profile).__name__
    plain = None
    if isinstance(profile, Mapping):
        plain = dict(cast("Mapping[str, Any]", profile))
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        is_object = plain is not None and is_json(plain)
    except (TypeError, ValueError, RecursionError):
        text = ""
        is_object = False
    if not is_object:
        if plain is not None:
            what = "has values that are not JSON"
        else:
            what = f"is {kind}, not a dict"
        raise BadSetting(
            f"profile {what} (nothing was stored; pass a dict with text as keys, and text, numbers, booleans, None, lists "
            "and dicts as values)"
        )
    return json.loads(sanitize_text(text))


def _read_file(file: Path) -> tuple[dict[str, Any], tuple[ContextWarning, ...]]:
    if not os.path.lexists(file):
        return {}, ()
    try:
        value = parse_json(read_file(file, MAX_BYTES).decode("utf-8-sig"))
    except (UnreadableFile, OSError, ValueError) as error:
        return {}, (ContextWarning(str(file), f"not used: {error}"),)
    if not isinstance(value, dict):
        return {}, (ContextWarning(str(file), "not used: no JSON object"),)
    return cast("dict[str, Any]", value), ()


def _write_file(file: Path, profile: dict[str, Any]) -> None:
    """Replace a profile's file, or remove it for an empty one. Raises UnreadableFile; the file is then unchanged."""
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        if not profile:
            file.unlink(missing_ok=True)
            return
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
        new.replace(file)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise UnreadableFile(f"'{file}' not written: {error.strerror or error}") from error


def overrides_of(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of a profile by prompt, wherever contexts find them."""
    inner = profile.get("prompt_overrides")
    overrides = dict(cast("Mapping[str, Any]", inner)) if isinstance(inner, Mapping) else {}
    return overrides | {name: profile[name] for name in FIELDS if user_profile_text({name: profile.get(name)})[0]}


def with_override(profile: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    """Return a profile with another text for a prompt; without any for an empty one."""
    others = {field: value for field, value in profile.items() if field not in (name, "prompt_overrides")}
    inner = profile.get("prompt_overrides")
    overrides = dict(cast("Mapping[str, Any]", inner)) if isinstance(inner, Mapping) else {}
    overrides.pop(name, None)
    return {**others, "prompt_overrides": {**overrides, name: text} if text else overrides}


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
                if holder:
                    return {**profile, holder: changed}
                return changed
    return {**profile, "friends_profile": "\n".join(update([]))}


def _with_lines(value: object, update: Callable[[list[str]], list[str]]) -> object:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {**fields, "content": _with_lines(fields["content"], update)}
    lines = update(profile_lines({FIELDS[0]: value}))
    if isinstance(value, (list, tuple)):
        return lines
    return "\n".join(lines)
