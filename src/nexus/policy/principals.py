"""Principals: the policies that know one, the session that its calls get, and the sessions that it may not use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadSetting, NotAllowed
from nexus.policy.values import Policy, Principal
from nexus.types import session_key
from nexus.types.settings import AgentRole

MatchKind: TypeAlias = Literal["named", "default", "closed", "open"]
"""Why a policy applies: it defines the principal; its default does; neither does; or it defines no principals."""


class PolicyMatch(Struct, frozen=True):
    """A policy applied to a principal."""

    policy: Policy
    kind: MatchKind
    entry: Principal = Principal()
    """The principal's entry, completed from the policy's default."""


def match_policy(policy: Policy, principal: str) -> PolicyMatch:
    """Match a principal against a policy. Names are compared exactly."""
    entry = policy.principals.get(principal) if principal else None
    default = policy.default
    if default is None:
        if entry is None:
            return PolicyMatch(policy, "closed" if policy.principals else "open")
        return PolicyMatch(policy, "named", entry)
    kind: MatchKind = "default" if entry is None else "named"
    entry = entry or Principal()
    # An empty list of permissions grants none; only an unset one takes the default's.
    permissions = default.permissions
    if entry.permissions is not None:
        permissions = entry.permissions
    role = entry.role or default.role
    toolset = entry.toolset or default.toolset
    return PolicyMatch(policy, kind, replace(entry, role=role, toolset=toolset, permissions=permissions))


def effective_principal(matches: Sequence[PolicyMatch]) -> Principal:
    """Return the entry of the first policy that defines principals; later policies do not override it."""
    return next((match.entry for match in matches if match.kind != "open"), Principal())


def session_of(requested: str | None, principal: str, role: AgentRole, matches: Sequence[PolicyMatch]) -> str:
    """Return the session label of a call.

    Without a requested session it is the principal's, or `main` without a principal. Raises BadSetting.
    """
    default_label = "main"
    if principal:
        default_label = principal_session(principal, matches)
    label = default_label if requested is None else requested
    if requested is None and role == "worker":
        key = session_key.parse(label)
        if label == "main" or (key is not None and role not in session_key.ROLES_BY_KIND[key.kind]):
            raise BadSetting("worker session missing (name one, for example 'worker:report-1')", code="bad_session_key")
    session_key.check(label, role)
    return label


def check_owner(
    label: str, principal: str, matches: Sequence[PolicyMatch], names_of: Callable[[str], Sequence[str]]
) -> None:
    """Raise NotAllowed for a session that belongs to somebody else: by name, by alias, as a fork, or as a worker's."""
    if not (principal and matches):
        return
    own_session = principal_session(principal, matches)
    first_kind = next((match.kind for match in matches if match.kind != "open"), "open")
    if first_kind == "named" and label == own_session:
        return
    allowed = {own_session, f"dm:{principal}", f"dm:{effective_principal(matches).person or principal}"}
    for name in names_of(label):
        for match in matches:
            owners = {other for other, entry in match.policy.principals.items() if entry.label(other) == name}
            if owners and principal not in owners:
                text = f"session {name!r} not allowed for {principal!r}"
                raise NotAllowed(f"{text}: {match.policy.name} assigns it to somebody else")
        key = session_key.parse(name)
        if key is not None and key.kind == "dm" and not {name, label} & allowed:
            raise NotAllowed(f"session {name!r} not allowed for {principal!r}: a `dm:` session belongs to one person")


def principal_session(principal: str, matches: Sequence[PolicyMatch]) -> str:
    """Return the label of the principal's session."""
    return effective_principal(matches).label(principal)
