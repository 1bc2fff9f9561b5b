"""Session keys: labels that say by their prefix whose conversation a session is.

`dm:` is one person's, `group:` a group's, `worker:` one task's, `system:` what the machine does by itself. A label without
one of these prefixes is free: nothing is asked of it.
"""

from __future__ import annotations

import unicodedata
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from nexus.errors import BadSessionKey
from nexus.types.request import AgentRole

SessionKind: TypeAlias = Literal["dm", "group", "worker", "system"]

KINDS: tuple[SessionKind, ...] = get_args(SessionKind)

MOST_CHARS = 256
"""The longest name of a session, in characters."""

FITS: dict[SessionKind, tuple[AgentRole, ...]] = {
    "dm": ("manager", "unified"),
    "group": ("manager", "unified"),
    "system": ("manager", "unified"),
    "worker": ("worker", "unified"),
}
"""The roles that may speak in a session of each kind. A unified agent does a manager's work and a worker's."""

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Of the invisible characters those that names in some scripts, and emoji, are written with."""


class SessionKey(Struct, frozen=True):
    """A label with a known prefix, in its two parts: `dm:telegram:42` is of kind `dm` and has the name `telegram:42`."""

    kind: SessionKind
    name: str

    @property
    def label(self) -> str:
        """The label as sessions have it."""
        return f"{self.kind}:{self.name}"


def parse(label: str) -> SessionKey | None:
    """The parts of a label; None if it is free. Raises BadSessionKey where the name after a known prefix is none."""
    kind, colon, name = label.partition(":")
    if not colon or kind not in KINDS:
        return None
    return key(kind, name)


def key(kind: SessionKind, name: str) -> SessionKey:
    """The session key of a name, as it stands: nothing in it is a pattern or a path.

    Raises BadSessionKey: the name is empty or too long, begins or ends with white space, or has control characters.
    """
    wrong = ""
    if not name:
        wrong = "has no name"
    elif len(name) > MOST_CHARS:
        wrong = f"has {len(name):,} characters, at most {MOST_CHARS} are a name"
    elif name != name.strip():
        wrong = "begins or ends with white space"
    elif any(unicodedata.category(char) in _INVISIBLE and char not in _JOINERS for char in name):
        wrong = "has control characters or line breaks"
    if wrong:
        raise BadSessionKey(f"{f'{kind}:{name}'[:80]!r} is no session key: the part after `{kind}:` {wrong}")
    return SessionKey(kind, name)


def check(label: str, role: AgentRole) -> None:
    """Raises BadSessionKey where a label is none, or where an agent of that role does not belong in such a session."""
    found = parse(label)
    if found is not None and role not in FITS[found.kind]:
        fitting = " or ".join(FITS[found.kind])
        raise BadSessionKey(
            f"a {role} does not speak in session {label!r}: sessions `{found.kind}:` are for {fitting}. "
            + ("Name one of its own, for example 'worker:report-1'" if role == "worker" else "Name another session")
        )
