"""Credentials by name: where each is found, whether it is there, and what changes that.

The first of these places that has a value counts: the credential's own variable (`NEXUS_CREDENTIAL_…`), the place that the
list names (a variable, or the system's keyring), a variable that a skill declares for it. Listing asks no keyring, since
that may open a dialogue or wait; `check` and `get` do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import BadCredential, NoCredential
from nexus.workspace.credentials import index, system
from nexus.workspace.credentials.index import CheckState, CredentialEntry
from nexus.workspace.credentials.names import is_valid_for, is_variable, known_name, name_of, variable_of
from nexus.workspace.credentials.secret import Secret, check_secret

SERVICE = "nexus"
"""The keyring's service for the user's usual folder; another folder's has its path behind it."""

KEYRING_TIMEOUT_S = 60.0
"""How long a keyring may take: long enough for somebody to unlock it."""

Declared = Mapping[str, tuple[str, ...]]
"""The credentials that skills require, each with the variables that these skills declare for it."""


class Credentials:
    """The credentials of one user's folder. `variables` are the process's own unless given."""

    def __init__(
        self, home: Path, variables: Mapping[str, str] | None = None, *, timeout_s: float = KEYRING_TIMEOUT_S
    ) -> None:
        self.home, self.timeout_s = home, timeout_s
        self._variables = os.environ if variables is None else variables
        usual = home.absolute() == (Path.home() / ".nexus").absolute()
        self.service = SERVICE if usual else f"{SERVICE}:{home.absolute()}"

    def has_variable(self, variable: str) -> bool:
        """Whether a variable of the environment is set and not empty."""
        return bool(Secret(self._variables.get(variable, "")))

    def entries(self, declared: Declared | None = None) -> dict[str, CredentialEntry]:
        """Every credential that is on the list, has a variable or is required by a skill, by name, sorted.

        One that has no value anywhere is `missing`. No keyring is asked. Raises CredentialsDamaged.
        """
        declared, listed = declared or {}, index.read(self.home)
        own = (name for variable in self._variables if (name := name_of(variable)) is not None)
        return {name: self._entry_in_any_case(name, listed, declared) for name in sorted({*own, *listed, *declared})}

    def get(self, name: str, declared: Declared | None = None) -> Secret:
        """The value. Raises BadCredential, NoCredential, CredentialsDamaged, KeyringUnusable, PackageMissing."""
        entry = self._entry(known_name(name), index.read(self.home), declared or {})
        secret = self._value(entry) if entry else None
        if not secret:
            raise NoCredential(
                f"there is no value for the credential {name!r}: `nexus credential set {name}` stores one in the system's "
                f"keyring, and the variable {variable_of(name)} gives one"
            )
        return secret

    def set(self, name: str, secret: Secret) -> CredentialEntry:
        """Stores a value in the system's keyring, and the name in the list. Raises as `get`, and CredentialsNotSaved."""
        known_name(name)
        check_secret(secret)
        index.read(self.home)
        system.put(self.service, name, secret, self.timeout_s)
        return self._listed(CredentialEntry(name, "keyring", self.service))

    def refer(self, name: str, variable: str) -> CredentialEntry:
        """Says that a variable of the environment has the value; it is stored nowhere. Raises BadCredential and as `set`."""
        if not is_variable(variable):
            raise BadCredential(
                "a variable's name has letters, digits and underscores; this one is not shown, in case it is a value"
            )
        noted = index.read(self.home).get(known_name(name))
        if noted is not None and noted.where == "keyring":
            raise BadCredential(
                f"the keyring has a value for {name!r}; `nexus credential remove {name}` takes it away first"
            )
        return self._listed(CredentialEntry(name, "variable", variable=variable))

    def check(self, names: Iterable[str], now_ms: int, declared: Declared | None = None) -> list[CredentialEntry]:
        """Looks whether the values are there, and notes it. What was marked as broken stays so until set or marked anew.

        Nothing is run and nobody is asked whether a value is still accepted: a command would have to come from a skill,
        and a workspace must not run programs with secrets because somebody looks at it. Raises as `get`; NoCredential
        for a name that is neither configured nor required by a skill.
        """
        declared, listed = declared or {}, index.read(self.home)
        looked = [self._looked(known_name(name), listed, declared, now_ms) for name in names]
        self._noted([entry for entry in looked if entry.name in listed or entry.state != "missing"])
        return looked

    def mark(self, name: str, state: CheckState, now_ms: int, declared: Declared | None = None) -> CredentialEntry:
        """Notes what a user or a program found out, e.g. that a service refused the value. Raises NoCredential."""
        listed = index.read(self.home)
        entry = self._entry(known_name(name), listed, declared or {}) or listed.get(name)
        if entry is None:
            raise NoCredential(f"there is no credential {name!r} to mark; `nexus credential list` shows all")
        marked = replace(entry, state=state, checked_ms=now_ms, of="")
        self._noted([marked])
        return marked

    def remove(self, name: str, *, keep_value: bool = False) -> bool:
        """Takes the name off the list, and its value out of the keyring unless `keep_value`. Whether there was a value.

        Raises NoCredential for a name that is not on the list, and as `set`.
        """
        entry = index.read(self.home).get(known_name(name))
        if entry is None:
            variable = " (a variable of the environment gives it)" if self.has_variable(variable_of(name)) else ""
            raise NoCredential(f"the credential {name!r} is not on the list{variable}; there is nothing to remove")
        away = entry.where == "keyring" and not keep_value
        had = away and system.delete(entry.service, name, self.timeout_s)
        index.change(self.home, lambda entries: (one for one in entries.values() if one.name != name))
        return had

    def _entry(self, name: str, listed: Mapping[str, CredentialEntry], declared: Declared) -> CredentialEntry | None:
        """The first place that has a value, with the state that was noted of this very place; None if there is none."""
        noted = listed.get(name)
        return next((_as_noted(place, noted) for place in self._places(name, noted, declared)), None)

    def _entry_in_any_case(
        self, name: str, listed: Mapping[str, CredentialEntry], declared: Declared
    ) -> CredentialEntry:
        found = self._entry(name, listed, declared)
        return found or replace(listed.get(name) or CredentialEntry(name, "variable"), state="missing")

    def _places(self, name: str, noted: CredentialEntry | None, declared: Declared) -> Iterable[CredentialEntry]:
        """The places that have a value, as far as can be said without asking a keyring."""
        variables = [variable_of(name)]
        if noted is not None and noted.where == "variable":
            variables.append(noted.variable)
        yield from (CredentialEntry(name, "variable", variable=one) for one in variables if self.has_variable(one))
        if noted is not None and noted.where == "keyring" and not (noted.state == "missing" and not noted.of):
            yield CredentialEntry(name, "keyring", noted.service)
        own = (one for one in declared.get(name, ()) if is_valid_for(one, name) and self.has_variable(one))
        yield from (CredentialEntry(name, "variable", variable=one) for one in own)

    def _looked(
        self, name: str, listed: Mapping[str, CredentialEntry], declared: Declared, now_ms: int
    ) -> CredentialEntry:
        noted = listed.get(name)
        if not (name in listed or name in declared or variable_of(name) in self._variables):
            raise NoCredential(f"there is no credential {name!r} to check; `nexus credential list` shows all")
        again = {name: replace(noted, state="unchecked")} if noted is not None and noted.state == "missing" else listed
        found = self._entry(name, again, declared)
        entry = found or replace(noted or CredentialEntry(name, "variable", variable=variable_of(name)), of="")
        if not self._value(entry):
            return replace(entry, state="missing", checked_ms=now_ms)
        return entry if entry.state == "broken" else replace(entry, state="ok", checked_ms=now_ms)

    def _value(self, entry: CredentialEntry) -> Secret | None:
        if entry.where == "keyring":
            return system.fetch(entry.service, entry.name, self.timeout_s)
        return Secret(self._variables.get(entry.variable, ""))

    def _listed(self, entry: CredentialEntry) -> CredentialEntry:
        index.change(self.home, lambda known: {**known, entry.name: entry}.values())
        return entry

    def _noted(self, looked: Iterable[CredentialEntry]) -> None:
        """Notes states; an entry keeps its own place where another one was looked at."""
        newer = {entry.name: entry for entry in looked}
        if newer:
            index.change(
                self.home,
                lambda known: {**known, **{name: _kept(known.get(name), one) for name, one in newer.items()}}.values(),
            )


def _same(one: CredentialEntry, other: CredentialEntry) -> bool:
    return (one.where, one.variable) == (other.where, other.variable)


def _as_noted(place: CredentialEntry, noted: CredentialEntry | None) -> CredentialEntry:
    """The place with what was noted of it."""
    if noted is None or (noted.of != place.variable if noted.of else not _same(noted, place)):
        return place
    return replace(place, state=noted.state, checked_ms=noted.checked_ms)


def _kept(noted: CredentialEntry | None, looked: CredentialEntry) -> CredentialEntry:
    """What the list is to say after `looked` was looked at."""
    if noted is None or _same(noted, looked):
        return looked
    return replace(noted, state=looked.state, checked_ms=looked.checked_ms, of=looked.variable)
