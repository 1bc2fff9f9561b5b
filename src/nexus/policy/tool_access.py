"""Which of the given tools a call may offer, and why the others are out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from nexus.errors import NotAllowed
from nexus.policy.principals import Standing
from nexus.policy.values import MESSAGING, REPLY, Policy, Toolset
from nexus.types.request import AgentRole
from nexus.types.tool_metadata import Offered

JOINED = " & "
"""Between the names of toolsets that hold together."""


class Applied(Struct, frozen=True):
    """A toolset that holds for a call, with the policy that defines it: its categories are the ones that count."""

    name: str
    toolset: Toolset
    policy: Policy


def toolset_named(name: str, policies: Sequence[Policy]) -> Applied | None:
    """The toolset of that name: the first policy's that has it, so the user's before the workspace's."""
    return next((Applied(name, one.toolsets[name], one) for one in policies if name in one.toolsets), None)


def applied(asked: str, role: AgentRole, standings: Sequence[Standing]) -> list[Applied]:
    """All toolsets that hold for a call: the principal's, the role's, and what the call asks for. Raises NotAllowed."""
    policies = [one.policy for one in standings]
    found: dict[str, Applied] = {}
    for place, one in enumerate(standings, 1):
        rule = one.policy.roles.get(role)
        for name in (one.entry.toolset, rule.toolset if rule is not None else ""):
            if name:
                found.setdefault(name, _of(name, policies[:place]))
    for name in asked.split(JOINED) if asked and policies else ():
        found.setdefault(name, _of(name, policies))
    return list(found.values())


def _of(name: str, policies: Sequence[Policy]) -> Applied:
    known = toolset_named(name, policies)
    if known is None:
        there = ", ".join(sorted({one for policy in policies for one in policy.toolsets})) or "none"
        raise NotAllowed(f"there is no toolset {name!r}; the policy has: {there}. Nothing was made")
    return known


def why_not(tool: Offered, role: AgentRole, standings: Sequence[Standing], sets: Sequence[Applied]) -> str:
    """Why a tool is not offered; empty if it is."""
    closed = next((one for one in standings if one.how == "closed"), None)
    if closed is not None:
        return f"{closed.policy.name} does not name who speaks, and has no default"
    if tool.roles and role not in tool.roles:
        return f"only for role {', '.join(tool.roles)}"
    if role == "worker" and tool.name != REPLY and _writes(tool, standings):
        return f"a worker writes to its manager only: of messaging tools it has `{REPLY}`"
    for one in standings:
        rule = one.policy.roles.get(role)
        denied = matching(tool.name, rule.deny) if rule is not None else ""
        if denied:
            return f"role {role} is denied {denied!r}"
    return next(filter(None, (_outside(tool, one) for one in sets)), "")


def _writes(tool: Offered, standings: Sequence[Standing]) -> bool:
    """Whether a tool is a messaging tool, by its definition or by any policy."""
    return tool.category == MESSAGING or any(MESSAGING in categories_of(tool, one.policy) for one in standings)


def _outside(tool: Offered, one: Applied) -> str:
    denied = matching(tool.name, one.toolset.deny)
    if denied:
        return f"toolset {one.name!r} denies {denied!r}"
    inside = matching(tool.name, one.toolset.tools) or categories_of(tool, one.policy) & set(one.toolset.categories)
    return "" if inside else f"not in toolset {one.name!r}"


def categories_of(tool: Offered, policy: Policy) -> set[str]:
    """The categories of a tool: what its definition says, and those that the policy gives by name."""
    given = {name for name, patterns in policy.categories.items() if matching(tool.name, patterns)}
    return given | {tool.category} if tool.category else given


def matching(name: str, patterns: tuple[str, ...]) -> str:
    """The pattern that a tool's name matches: itself, else the first with `*` or `?`; empty if none does."""
    return name if name in patterns else next((one for one in _wild(patterns) if fnmatchcase(name, one)), "")


@lru_cache(maxsize=256)
def _wild(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if "*" in pattern or "?" in pattern)


def unmatched(toolset: Toolset, tools: Iterable[Offered]) -> list[str]:
    """The patterns of a toolset that none of the tools match: what is misspelt, or not there."""
    names = {tool.name for tool in tools}
    patterns = dict.fromkeys((*toolset.tools, *toolset.deny))
    left = [pattern for pattern in patterns if pattern not in names]
    wild = _wild(tuple(left))
    return [one for one in left if one not in wild or not any(fnmatchcase(name, one) for name in names)]
