"""Who speaks, by each policy: the role and the session that are theirs, and those that are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.errors import BadSessionKey, NotAllowed
from nexus.policy.values import Policy, Principal
from nexus.types import session_key
from nexus.types.request import AgentRole

How: TypeAlias = Literal["named", "default", "closed", "open"]


class Standing(Struct, frozen=True):
    """How one policy knows a principal: by name, by its default, not at all (`closed`), or it names nobody (`open`)."""

    policy: Policy
    how: How
    entry: Principal = Principal()


def standing(policy: Policy, principal: str) -> Standing:
    """How a policy knows a principal; `entry` has what the default fills in. Names are compared as they are."""
    own, default = policy.principals.get(principal) if principal else None, policy.default
    if own is None and default is None:
        return Standing(policy, "closed" if policy.principals else "open")
    if default is None:
        return Standing(policy, "named", own or Principal())
    filled = own or Principal()
    entry = Principal(
        filled.person,
        filled.role or default.role,
        filled.toolset or default.toolset,
        filled.session,
        filled.permissions if filled.permissions is not None else default.permissions,
    )
    return Standing(policy, "named" if own is not None else "default", entry)


def word(standings: Sequence[Standing]) -> Principal:
    """What counts of who somebody is: the word of the first policy that names anybody at all, whatever later ones say."""
    first = _first(standings)
    return first.entry if first is not None else Principal()


def _first(standings: Sequence[Standing]) -> Standing | None:
    return next((one for one in standings if one.how != "open"), None)


def role_of(asked: AgentRole, standings: Sequence[Standing]) -> AgentRole:
    """The role of a call: the policies' lowest, or less. `unified` asks for whatever the policy says. Raises NotAllowed."""
    said: list[AgentRole] = [one.entry.role for one in standings if one.entry.role is not None]
    if not said or asked == "worker":
        return asked
    most = "worker" if "worker" in said else said[0]
    if asked == "unified":
        return most
    if most == "worker":
        raise NotAllowed(f"the policy allows role {most}, not {asked}. Nothing was made")
    return asked


def session_of(
    asked: str | None, principal: str, role: AgentRole, standings: Sequence[Standing], resolve: Callable[[str], str]
) -> str:
    """The label of a call's session: the one asked for, else the principal's own; without a policy or principal `main`.

    Raises NotAllowed for a session that is somebody else's by name or by alias, and BadSessionKey.
    """
    own = own_label(principal, standings) if principal and standings else "main"
    label = own if asked is None else asked
    if asked is None and role == "worker" and (label == "main" or not _fits(label, role)):
        raise BadSessionKey("a worker has a session of its own: name it, for example 'worker:report-1'")
    session_key.check(label, role)
    first = _first(standings)
    theirs = first is not None and first.how == "named" and label == own
    if principal and standings and not theirs:
        mine = {own, f"dm:{principal}", f"dm:{word(standings).person or principal}"}
        for name in dict.fromkeys((label, resolve(label))):
            _refuse(name, principal, standings, owned=name in mine or label in mine)
    return label


def own_label(principal: str, standings: Sequence[Standing]) -> str:
    """The label of the session that is the principal's own."""
    return word(standings).label(principal)


def _fits(label: str, role: AgentRole) -> bool:
    found = session_key.parse(label)
    return found is None or role in session_key.FITS[found.kind]


def _refuse(label: str, principal: str, standings: Iterable[Standing], *, owned: bool) -> None:
    """Raises NotAllowed where a label is another person's: by a policy's word, or because it is a `dm:`."""
    for one in standings:
        owners = {name for name, entry in one.policy.principals.items() if entry.label(name) == label}
        if owners and principal not in owners:
            raise NotAllowed(f"session {label!r} is not for {principal!r}: {one.policy.name} gives it to somebody else")
    found = session_key.parse(label)
    if found is not None and found.kind == "dm" and not owned:
        raise NotAllowed(f"session {label!r} is not for {principal!r}: a `dm:` is for one person alone")
