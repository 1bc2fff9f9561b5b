"""Session keys: labels whose prefix names the kind of a conversation.

`dm:` is for one person, `group:` for a group, `worker:` for one task, `system:` for automatic work. A label without one of
these prefixes is free and has no rules.
"""

from __future__ import annotations

import unicodedata
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from nexus.errors import BadSetting
from nexus.types.settings import AgentRole

SessionKind: TypeAlias = Literal["dm", "group", "worker", "system"]

KINDS: tuple[SessionKind, ...] = get_args(SessionKind)

MAX_CHARS = 256
"""Longest name of a session."""

ROLES_BY_KIND: dict[SessionKind, tuple[AgentRole, ...]] = {
    "dm": ("manager", "unified"),
    "group": ("manager", "unified"),
    "system": ("manager", "unified"),
    "worker": ("worker", "unified"),
}
"""Roles that each kind of session admits. A unified agent is both manager and worker."""

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # names in some scripts, and emoji, need these


class SessionKey(Struct, frozen=True):
    """A label with a known prefix: `dm:telegram:42` is of kind `dm` and has the name `telegram:42`."""

    kind: SessionKind
    name: str

    @property
    def label(self) -> str:
        """The session's label."""
        return f"{self.kind}:{self.name}"


def parse(label: str) -> SessionKey | None:
    """Return the parts of a label; None if it is free. Raises BadSetting for an invalid name after a known prefix."""
    kind, colon, name = label.partition(":")
    if not colon or kind not in KINDS:
        return None
    return key(kind, name)


def key(kind: SessionKind, name: str) -> SessionKey:
    """Return the session key of a name; nothing in it is a pattern or a path.

    Raises BadSetting if the name is empty or too long, begins or ends with white space, or has control characters.
    """
    problem = ""
    if not name:
        problem = "is empty"
    elif len(name) > MAX_CHARS:
        problem = f"has {len(name):,} characters, at most {MAX_CHARS} are allowed"
    elif name != name.strip():
        problem = "begins or ends with white space"
    elif any(unicodedata.category(char) in _INVISIBLE and char not in _JOINERS for char in name):
        problem = "has control characters or line breaks"
    if problem:
        raise BadSetting(
            f"session key {f'{kind}:{name}'[:80]!r} invalid: the part after '{kind}:' {problem}", code="bad_session_key"
        )
    return SessionKey(kind, name)


def check(label: str, role: AgentRole) -> None:
    """Raise BadSetting if a label is invalid, or the session does not admit an agent of that role."""
    session_key = parse(label)
    if session_key is not None and role not in ROLES_BY_KIND[session_key.kind]:
        fitting = " or ".join(ROLES_BY_KIND[session_key.kind])
        remedy = "name another session"
        if role == "worker":
            remedy = "name its own session, for example 'worker:report-1'"
        raise BadSetting(
            f"role '{role}' not admitted in session {label!r}: sessions '{session_key.kind}:' are for {fitting} ({remedy})",
            code="bad_session_key",
        )
