"""Credentials by name: lookup, checks and changes.

The first of these locations with a value counts: the credential's own variable (`NEXUS_CREDENTIAL_…`), the location in the
list (a variable, or the system's keyring), a variable that a skill declares for it. Listing asks no keyring, because that
may open a dialog or wait; `check` and `get` do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import CredentialError, NoCredential
from nexus.workspace.credentials import index, system
from nexus.workspace.credentials.index import (
    CheckState,
    CredentialEntry,
    check_name,
    is_valid_for,
    is_variable,
    name_of,
    variable_of,
)
from nexus.workspace.credentials.secret import Secret, check_secret

SERVICE = "nexus"  # keyring service of the user's usual folder; for another folder, its path is appended
KEYRING_TIMEOUT_S = 60.0  # timeout of a keyring: long enough to unlock it by hand

Declared = Mapping[str, tuple[str, ...]]
"""The credentials that skills require, each with the variables that these skills declare for it."""


class Credentials:
    """The credentials of one user's folder. `variables` are the process's by default."""

    def __init__(
        self, home: Path, variables: Mapping[str, str] | None = None, *, timeout_s: float = KEYRING_TIMEOUT_S
    ) -> None:
        self.home = home
        self.timeout_s = timeout_s
        if variables is None:
            self._variables = os.environ
        else:
            self._variables = variables
        usual = home.absolute() == Path(os.path.expanduser("~/.nexus"))  # noqa: PTH111 - Path raises without a home
        if usual:
            self.service = SERVICE
        else:
            self.service = f"{SERVICE}:{home.absolute()}"

    def has_variable(self, variable: str) -> bool:
        """Return whether an environment variable is set and not empty."""
        return bool(Secret(self._variables.get(variable, "")))

    def entries(self, declared: Declared | None = None) -> dict[str, CredentialEntry]:
        """Return every credential that is listed, has a variable or is required by a skill, by name, sorted.

        One without a value is `missing`. No keyring is asked. Raises CredentialError.
        """
        declared = declared or {}
        listed = index.read(self.home)
        names = {name for variable in self._variables if (name := name_of(variable)) is not None}
        entries: dict[str, CredentialEntry] = {}
        for name in sorted({*names, *listed, *declared}):
            missing = replace(listed.get(name) or CredentialEntry(name, "variable"), state="missing")
            entries[name] = self._entry(name, listed.get(name), declared) or missing
        return entries

    def get(self, name: str, declared: Declared | None = None) -> Secret:
        """Return the value. Raises CredentialError, NoCredential, PackageMissing."""
        entry = self._entry(check_name(name), index.read(self.home).get(name), declared or {})
        secret = self._value(entry) if entry else None
        if not secret:
            raise NoCredential(
                f"credential {name!r} has no value (store one in the system's keyring: nexus config credential set {name}, or set "
                f"the variable {variable_of(name)})"
            )
        return secret

    def for_variable(self, variable: str) -> str | None:
        """Return the value that the user stored for a model's variable: `anthropic` for ANTHROPIC_API_KEY; None without it."""
        try:
            return self.get(variable.removesuffix("_API_KEY").lower().replace("_", "-")).reveal()
        except NoCredential:
            return None

    def set(self, name: str, secret: Secret) -> CredentialEntry:
        """Store a value in the system's keyring, and the name in the list. Raises as `get`, and CredentialError."""
        check_name(name)
        check_secret(secret)
        index.read(self.home)
        system.put(self.service, name, secret, self.timeout_s)
        return self._list(CredentialEntry(name, "keyring", self.service))

    def refer(self, name: str, variable: str) -> CredentialEntry:
        """List an environment variable as the location of the value. Raises CredentialError and as `set`."""
        if not is_variable(variable):
            raise CredentialError(
                "invalid variable name, not shown because it may be a value (use letters, digits and underscores)",
                code="bad_credential",
            )
        entry = index.read(self.home).get(check_name(name))
        if entry is not None and entry.where == "keyring":
            raise CredentialError(
                f"keyring has a value for {name!r} (remove it first: nexus config credential remove {name})",
                code="bad_credential",
            )
        return self._list(CredentialEntry(name, "variable", variable=variable))

    def check(self, names: Iterable[str], now_ms: int, declared: Declared | None = None) -> list[CredentialEntry]:
        """Check that the values exist, and record the result. A broken one stays broken until it is set or marked again.

        Raises as `get`; NoCredential for a name that is neither configured nor required by a skill.
        """
        # Whether a service still accepts the value is not checked: the command would have to come from a skill, and a
        # workspace must not run programs with secrets because a user looks at it.
        declared = declared or {}
        listed = index.read(self.home)
        checked: list[CredentialEntry] = []
        for name in map(check_name, names):
            entry = listed.get(name)
            if not (entry or name in declared or variable_of(name) in self._variables):
                raise NoCredential(f"credential {name!r} not found (list credentials: nexus config credential list)")
            # A keyring entry that was missing is looked up once more.
            if entry is not None and entry.state == "missing":
                retried = replace(entry, state="unchecked")
            else:
                retried = entry
            missing = replace(entry or CredentialEntry(name, "variable", variable=variable_of(name)), of="")
            result = self._entry(name, retried, declared) or missing
            state: CheckState = result.state if result.state == "broken" else "ok"
            if not self._value(result):
                state = "missing"
            is_known = state == result.state == "broken"
            checked.append(result if is_known else replace(result, state=state, checked_ms=now_ms))
        self._record([entry for entry in checked if entry.name in listed or entry.state != "missing"])
        return checked

    def mark(self, name: str, state: CheckState, now_ms: int, declared: Declared | None = None) -> CredentialEntry:
        """Record an observed state, e.g. that a service rejected the value. Raises NoCredential."""
        listed = index.read(self.home)
        entry = self._entry(check_name(name), listed.get(name), declared or {}) or listed.get(name)
        if entry is None:
            raise NoCredential(f"credential {name!r} not found (list credentials: nexus config credential list)")
        entry = replace(entry, state=state, checked_ms=now_ms, of="")
        self._record([entry])
        return entry

    def remove(self, name: str, *, keep_value: bool = False) -> bool:
        """Remove the name from the list, and its value from the keyring unless `keep_value`. Return whether it had one.

        Raises NoCredential for a name that is not listed, and as `set`.
        """
        entry = index.read(self.home).get(check_name(name))
        if entry is None:
            variable = ""
            if self.has_variable(variable_of(name)):
                variable = "; an environment variable defines it"
            raise NoCredential(f"credential {name!r} is not in the list{variable}")
        had_value = entry.where == "keyring" and not keep_value and system.delete(entry.service, name, self.timeout_s)
        index.change(self.home, lambda entries: (entry for entry in entries.values() if entry.name != name))
        return had_value

    def _entry(self, name: str, listed: CredentialEntry | None, declared: Declared) -> CredentialEntry | None:
        """Return the first location with a value, with the state recorded for this location; None without one."""
        variables = [variable_of(name)]
        if listed is not None and listed.where == "variable":
            variables.append(listed.variable)
        places = [CredentialEntry(name, "variable", variable=key) for key in variables if self.has_variable(key)]
        # A keyring is not asked here: it may open a dialog. What the last check found counts.
        if listed is not None and listed.where == "keyring" and (listed.state != "missing" or listed.of):
            places.append(CredentialEntry(name, "keyring", listed.service))
        keys = (key for key in declared.get(name, ()) if is_valid_for(key, name) and self.has_variable(key))
        places += [CredentialEntry(name, "variable", variable=key) for key in keys]
        if listed is None or not places:
            if places:
                return places[0]
            return None
        entry = places[0]
        if (listed.of != entry.variable) if listed.of else not _same_location(listed, entry):
            return entry
        return replace(entry, state=listed.state, checked_ms=listed.checked_ms)

    def _value(self, entry: CredentialEntry) -> Secret | None:
        if entry.where == "keyring":
            return system.fetch(entry.service, entry.name, self.timeout_s)
        return Secret(self._variables.get(entry.variable, ""))

    def _list(self, entry: CredentialEntry) -> CredentialEntry:
        index.change(self.home, lambda entries: {**entries, entry.name: entry}.values())
        return entry

    def _record(self, checked: Iterable[CredentialEntry]) -> None:
        """Record states; an entry keeps its own location if another one was checked."""
        updates = {entry.name: entry for entry in checked}

        def update(entries: dict[str, CredentialEntry]) -> Iterable[CredentialEntry]:
            for name, entry in updates.items():
                listed = entries.get(name)
                if listed is not None and not _same_location(listed, entry):
                    entry = replace(listed, state=entry.state, checked_ms=entry.checked_ms, of=entry.variable)  # noqa: PLW2901 - the entry to record
                entries[name] = entry
            return entries.values()

        if updates:
            index.change(self.home, update)


def _same_location(entry: CredentialEntry, other: CredentialEntry) -> bool:
    return (entry.where, entry.variable) == (other.where, other.variable)
