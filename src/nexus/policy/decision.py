"""Which of the given tools a call may offer, and why the others are out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.errors import BadSessionKey, NotAllowed
from nexus.policy.values import MESSAGING, REPLY, DeniedTool, Grant, Policy, Principal, Toolset
from nexus.types import session_key
from nexus.types.block import ContextWarning
from nexus.types.request import AgentRole, Permissions, Request
from nexus.types.tool_definition import ToolMetadata, iter_definitions, tool_metadata

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


def applied_toolsets(asked: str, role: AgentRole, standings: Sequence[PolicyMatch]) -> list[Applied]:
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


def denial_reason(
    tool: ToolMetadata, role: AgentRole, standings: Sequence[PolicyMatch], sets: Sequence[Applied]
) -> str:
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
        denied = matching_pattern(tool.name, rule.deny) if rule is not None else ""
        if denied:
            return f"role {role} is denied {denied!r}"
    return next(filter(None, (_outside(tool, one) for one in sets)), "")


def _writes(tool: ToolMetadata, standings: Sequence[PolicyMatch]) -> bool:
    """Whether a tool is a messaging tool, by its definition or by any policy."""
    return tool.category == MESSAGING or any(MESSAGING in categories_of(tool, one.policy) for one in standings)


def _outside(tool: ToolMetadata, one: Applied) -> str:
    denied = matching_pattern(tool.name, one.toolset.deny)
    if denied:
        return f"toolset {one.name!r} denies {denied!r}"
    inside = matching_pattern(tool.name, one.toolset.tools) or categories_of(tool, one.policy) & set(
        one.toolset.categories
    )
    return "" if inside else f"not in toolset {one.name!r}"


def categories_of(tool: ToolMetadata, policy: Policy) -> set[str]:
    """The categories of a tool: what its definition says, and those that the policy gives by name."""
    given = {name for name, patterns in policy.categories.items() if matching_pattern(tool.name, patterns)}
    return given | {tool.category} if tool.category else given


def matching_pattern(name: str, patterns: tuple[str, ...]) -> str:
    """The pattern that a tool's name matches: itself, else the first with `*` or `?`; empty if none does."""
    return name if name in patterns else next((one for one in _wild(patterns) if fnmatchcase(name, one)), "")


@lru_cache(maxsize=256)
def _wild(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if "*" in pattern or "?" in pattern)


def unmatched_patterns(toolset: Toolset, tools: Iterable[ToolMetadata]) -> list[str]:
    """The patterns of a toolset that none of the tools match: what is misspelt, or not there."""
    names = {tool.name for tool in tools}
    patterns = dict.fromkeys((*toolset.tools, *toolset.deny))
    left = [pattern for pattern in patterns if pattern not in names]
    wild = _wild(tuple(left))
    return [one for one in left if one not in wild or not any(fnmatchcase(name, one) for name in names)]


How: TypeAlias = Literal["named", "default", "closed", "open"]


class PolicyMatch(Struct, frozen=True):
    """How one policy knows a principal: by name, by its default, not at all (`closed`), or it names nobody (`open`)."""

    policy: Policy
    how: How
    entry: Principal = Principal()


def match_policy(policy: Policy, principal: str) -> PolicyMatch:
    """How a policy knows a principal; `entry` has what the default fills in. Names are compared as they are."""
    own, default = policy.principals.get(principal) if principal else None, policy.default
    if own is None and default is None:
        return PolicyMatch(policy, "closed" if policy.principals else "open")
    if default is None:
        return PolicyMatch(policy, "named", own or Principal())
    filled = own or Principal()
    entry = Principal(
        filled.person,
        filled.role or default.role,
        filled.toolset or default.toolset,
        filled.session,
        filled.permissions if filled.permissions is not None else default.permissions,
    )
    return PolicyMatch(policy, "named" if own is not None else "default", entry)


def effective_principal(standings: Sequence[PolicyMatch]) -> Principal:
    """What counts of who somebody is: the word of the first policy that names anybody at all, whatever later ones say."""
    first = _first(standings)
    return first.entry if first is not None else Principal()


def _first(standings: Sequence[PolicyMatch]) -> PolicyMatch | None:
    return next((one for one in standings if one.how != "open"), None)


def role_of(asked: AgentRole, standings: Sequence[PolicyMatch]) -> AgentRole:
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
    asked: str | None, principal: str, role: AgentRole, standings: Sequence[PolicyMatch], resolve: Callable[[str], str]
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
        mine = {own, f"dm:{principal}", f"dm:{effective_principal(standings).person or principal}"}
        for name in dict.fromkeys((label, resolve(label))):
            _refuse(name, principal, standings, owned=name in mine or label in mine)
    return label


def own_label(principal: str, standings: Sequence[PolicyMatch]) -> str:
    """The label of the session that is the principal's own."""
    return effective_principal(standings).label(principal)


def _fits(label: str, role: AgentRole) -> bool:
    found = session_key.parse(label)
    return found is None or role in session_key.FITS[found.kind]


def _refuse(label: str, principal: str, standings: Iterable[PolicyMatch], *, owned: bool) -> None:
    """Raises NotAllowed where a label is another person's: by a policy's word, or because it is a `dm:`."""
    for one in standings:
        owners = {name for name, entry in one.policy.principals.items() if entry.label(name) == label}
        if owners and principal not in owners:
            raise NotAllowed(f"session {label!r} is not for {principal!r}: {one.policy.name} gives it to somebody else")
    found = session_key.parse(label)
    if found is not None and found.kind == "dm" and not owned:
        raise NotAllowed(f"session {label!r} is not for {principal!r}: a `dm:` is for one person alone")


ORIGIN = "nexus:policy"


def decide(
    policies: Policy | Sequence[Policy], request: Request, resolve: Callable[[str], str] = lambda label: label
) -> Grant:
    """What a request is granted: role, session, toolset, permissions, and which of its tools; with the reasons.

    Each policy can only take away. `resolve` leads a session's alias to its label. A request that was granted before gets
    the same again. Raises NotAllowed, BadSessionKey.
    """
    policies = (policies,) if isinstance(policies, Policy) else tuple(policies)
    principal, routing, asked = request.identity.principal, request.routing, request.permissions
    standings = [match_policy(policy, principal) for policy in policies]
    role = role_of(routing.role, standings)
    session = session_of(None if routing.own else routing.session, principal, role, standings, resolve)
    sets = applied_toolsets(asked.toolset, role, standings)
    tools = {tool.name: (tool, definition) for tool, definition in _tools(request.tools)}
    out = {name: denial_reason(tool, role, standings, sets) for name, (tool, _) in sorted(tools.items())}
    permissions = _permissions(asked, standings)
    return Grant(
        role,
        session,
        JOINED.join(one.name for one in sets) or asked.toolset,
        permissions,
        _capabilities(asked, standings, sets),
        tuple(name for name, why in out.items() if not why),
        tuple(DeniedTool(name, why, dict(tools[name][1])) for name, why in out.items() if why),
        effective_principal(standings).person,
        tuple(_why(request, standings, role, session, sets)),
        tuple(_warned(asked, principal, standings, permissions, sets, [tool for tool, _ in tools.values()])),
    )


def _tools(definitions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[ToolMetadata, Mapping[str, Any]]]:
    """The tools with their definitions; one without a name is refused where definitions are read."""
    for definition in iter_definitions(definitions):
        tool = tool_metadata(definition)
        if tool is not None:
            yield tool, definition


def _permissions(asked: Permissions, standings: Sequence[PolicyMatch]) -> tuple[str, ...]:
    """The permissions asked for, or else those of who speaks, as far as every policy grants them."""
    said = [() if one.how == "closed" else one.entry.permissions for one in standings]
    bounds = [one for one in said if one is not None]
    if not bounds:
        return asked.granted
    return tuple(sorted(set(asked.granted or effective_principal(standings).permissions or ()).intersection(*bounds)))


def _capabilities(
    asked: Permissions, standings: Sequence[PolicyMatch], sets: Sequence[Applied]
) -> tuple[str, ...] | None:
    """The capabilities that all toolsets have; None where none says any."""
    if any(one.how == "closed" for one in standings):
        return ()
    said = [one for one in (asked.capabilities, *(held.toolset.capabilities for held in sets)) if one is not None]
    return tuple(sorted(set(said[0]).intersection(*said[1:]))) if said else None


def _why(
    request: Request, standings: Sequence[PolicyMatch], role: AgentRole, session: str, sets: Sequence[Applied]
) -> Iterator[str]:
    """Where each part of the decision comes from."""
    if not standings:
        yield "no policy: nothing is taken away but what the role is never given"
        return
    who = f"principal {request.identity.principal!r}" if request.identity.principal else "a call without principal"
    told = {
        "named": "is named",
        "default": "is not named, the default holds",
        "closed": "is not named and there is no default: no tools",
        "open": "is bound like everybody: nobody is named",
    }
    yield from (f"{one.policy.name}: {who} {told[one.how]}" for one in standings)
    said = "".join(f", {one.policy.name} says {one.entry.role}" for one in standings if one.entry.role is not None)
    yield f"role {role}: asked for {request.routing.role}{said}"
    yield f"session {session!r}: {'the one of who speaks' if request.routing.own else 'asked for'}"
    yield from (f"toolset {one.name!r}: defined in {one.policy.name}" for one in sets)


def _warned(
    asked: Permissions,
    principal: str,
    standings: Sequence[PolicyMatch],
    permissions: Sequence[str],
    sets: Sequence[Applied],
    tools: Sequence[ToolMetadata],
) -> Iterator[ContextWarning]:
    """What the user should know of the decision."""
    if asked.toolset and not standings:
        yield ContextWarning(
            ORIGIN, f"toolset {asked.toolset!r} is only a name: there is no policy, so it takes no tool away"
        )
    for one in standings:
        if one.how == "closed":
            who = repr(principal) if principal else "a call without principal"
            yield ContextWarning(
                ORIGIN, f"{one.policy.name} does not name {who} and has no default: no tools, no permissions"
            )
    lost = sorted(set(asked.granted).difference(permissions))
    if lost:
        yield ContextWarning(ORIGIN, f"not granted: {', '.join(lost)}")
    for one in sets if tools else ():
        idle = unmatched_patterns(one.toolset, tools)
        if idle:
            yield ContextWarning(ORIGIN, f"of toolset {one.name!r} nothing that is given matches {', '.join(idle)}")
