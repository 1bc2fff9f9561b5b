"""Linking a principal's session to a person's: by rename, alias or merge. Histories are never mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.errors import NotAllowed
from nexus.ledger.history_operations import Ledger
from nexus.policy.principals import match_policy, principal_session
from nexus.policy.values import Policy
from nexus.types import session_key

LinkKind: TypeAlias = Literal["renamed", "merged", "aliased", "nothing"]
"""`renamed`: only the principal had a session. `merged`: both had one. `aliased`: only the person had one.
`nothing`: neither had one, or the link exists already."""


class PrincipalLink(Struct, frozen=True):
    """The changes that made `old` refer to `new`."""

    kind: LinkKind
    old: str
    new: str
    target: str = ""
    """The archived label of the principal's previous session, after a merge."""


def link_principal(ledger: Ledger, policies: Sequence[Policy], principal: str, person: str = "") -> PrincipalLink:
    """Redirect `dm:PRINCIPAL` to `dm:PERSON`, or to the session that the policies assign to the principal, permanently.

    Raises NotAllowed if the policies assign another session, or neither they nor the call name a person, and as
    `SessionDirectory.rename`, `.alias` and `.merge`.
    """
    assigned = principal_session(principal, [match_policy(policy, principal) for policy in policies])
    old = session_key.key("dm", principal).label
    new = assigned
    if person:
        new = session_key.key("dm", person).label
    if new == old:
        raise NotAllowed(f"principal {principal!r} not linked: the policy assigns no person (give one)")
    if assigned not in (old, new):
        raise NotAllowed(f"principal {principal!r} not linked to {new!r}: the policy assigns session {assigned!r}")
    source = ledger.resolve(old)
    target = ledger.resolve(new)
    if source == target:
        return PrincipalLink("nothing", old, new)
    reason = f"{principal} speaks in {new}"
    if target is None:
        ledger.sessions.rename(old, new, reason)
        return PrincipalLink("renamed", old, new)
    if source is None:
        ledger.sessions.alias(old, new, reason)
        return PrincipalLink("aliased", old, new)
    return PrincipalLink("merged", old, new, ledger.sessions.merge(old, new, reason).label)
