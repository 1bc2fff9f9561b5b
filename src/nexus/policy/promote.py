"""Leading a principal's own session to that of the person who it turned out to be: by rename or merge, never by mixing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from nexus.errors import NotAllowed
from nexus.policy.decision import match_policy, own_label
from nexus.types import session_key

if TYPE_CHECKING:
    from nexus.engine import Engine

PromotionKind: TypeAlias = Literal["renamed", "merged", "aliased", "nothing"]


class PrincipalLink(Struct, frozen=True):
    """What was done so that `old` leads to `new`.

    `renamed`: the principal's session goes on under the person's label. `merged`: both had one; the principal's is kept
    under the archived label `kept`. `aliased`: the principal had none yet. `nothing`: neither had one, or it was done before.
    """

    kind: PromotionKind
    old: str
    new: str
    target: str = ""


def link_principal(nx: Engine, principal: str, person: str = "") -> PrincipalLink:
    """Makes `dm:PRINCIPAL` lead to `dm:PERSON` for good; without a person to the session that the policy gives it.

    Raises NotAllowed where the policy gives it another session, or nobody is named; BadSessionKey, SessionMoved,
    BadReference.
    """
    standings = [match_policy(policy, principal) for policy in nx.policies.read()]
    old, known = session_key.key("dm", principal).label, own_label(principal, standings)
    new = session_key.key("dm", person).label if person else known
    if new == old:
        raise NotAllowed(f"{principal!r} cannot be promoted: the policy names no person for it, give one")
    if known not in (old, new):
        raise NotAllowed(f"{principal!r} cannot be promoted to {new!r}: the policy gives it session {known!r}")
    there, target = nx.ledger.resolve(old), nx.ledger.resolve(new)
    if there is not None and there == target:
        return PrincipalLink("nothing", old, new)
    reason = f"{principal} speaks in {new}"
    if target is None and there is not None:
        nx.ledger.rename(old, new, reason)
        return PrincipalLink("renamed", old, new)
    if target is None:
        return PrincipalLink("nothing", old, new)
    if there is None:
        nx.ledger.alias(old, new, reason)
        return PrincipalLink("aliased", old, new)
    return PrincipalLink("merged", old, new, nx.ledger.merge(old, new, reason).label)
