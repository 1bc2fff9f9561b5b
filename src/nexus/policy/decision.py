"""The decision: what one call is granted by the policies that hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nexus.policy.principals import Standing, role_of, session_of, standing, word
from nexus.policy.tool_access import JOINED, Applied, applied, unmatched, why_not
from nexus.policy.values import Granted, Policy, Withheld
from nexus.types.block import Warned
from nexus.types.request import AgentRole, Permissions, Request
from nexus.types.tool_metadata import Offered, each, offered

ORIGIN = "nexus:policy"


def decide(
    policies: Policy | Sequence[Policy], request: Request, resolve: Callable[[str], str] = lambda label: label
) -> Granted:
    """What a request is granted: role, session, toolset, permissions, and which of its tools; with the reasons.

    Each policy can only take away. `resolve` leads a session's alias to its label. A request that was granted before gets
    the same again. Raises NotAllowed, BadSessionKey.
    """
    policies = (policies,) if isinstance(policies, Policy) else tuple(policies)
    principal, routing, asked = request.identity.principal, request.routing, request.permissions
    standings = [standing(policy, principal) for policy in policies]
    role = role_of(routing.role, standings)
    session = session_of(None if routing.own else routing.session, principal, role, standings, resolve)
    sets = applied(asked.toolset, role, standings)
    tools = {tool.name: (tool, definition) for tool, definition in _tools(request.tools)}
    out = {name: why_not(tool, role, standings, sets) for name, (tool, _) in sorted(tools.items())}
    permissions = _permissions(asked, standings)
    return Granted(
        role,
        session,
        JOINED.join(one.name for one in sets) or asked.toolset,
        permissions,
        _capabilities(asked, standings, sets),
        tuple(name for name, why in out.items() if not why),
        tuple(Withheld(name, why, dict(tools[name][1])) for name, why in out.items() if why),
        word(standings).person,
        tuple(_why(request, standings, role, session, sets)),
        tuple(_warned(asked, principal, standings, permissions, sets, [tool for tool, _ in tools.values()])),
    )


def _tools(definitions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Offered, Mapping[str, Any]]]:
    """The tools with their definitions; one without a name is refused where definitions are read."""
    for definition in each(definitions):
        tool = offered(definition)
        if tool is not None:
            yield tool, definition


def _permissions(asked: Permissions, standings: Sequence[Standing]) -> tuple[str, ...]:
    """The permissions asked for, or else those of who speaks, as far as every policy grants them."""
    said = [() if one.how == "closed" else one.entry.permissions for one in standings]
    bounds = [one for one in said if one is not None]
    if not bounds:
        return asked.granted
    return tuple(sorted(set(asked.granted or word(standings).permissions or ()).intersection(*bounds)))


def _capabilities(asked: Permissions, standings: Sequence[Standing], sets: Sequence[Applied]) -> tuple[str, ...] | None:
    """The capabilities that all toolsets have; None where none says any."""
    if any(one.how == "closed" for one in standings):
        return ()
    said = [one for one in (asked.capabilities, *(held.toolset.capabilities for held in sets)) if one is not None]
    return tuple(sorted(set(said[0]).intersection(*said[1:]))) if said else None


def _why(
    request: Request, standings: Sequence[Standing], role: AgentRole, session: str, sets: Sequence[Applied]
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
    standings: Sequence[Standing],
    permissions: Sequence[str],
    sets: Sequence[Applied],
    tools: Sequence[Offered],
) -> Iterator[Warned]:
    """What the user should know of the decision."""
    if asked.toolset and not standings:
        yield Warned(ORIGIN, f"toolset {asked.toolset!r} is only a name: there is no policy, so it takes no tool away")
    for one in standings:
        if one.how == "closed":
            who = repr(principal) if principal else "a call without principal"
            yield Warned(ORIGIN, f"{one.policy.name} does not name {who} and has no default: no tools, no permissions")
    lost = sorted(set(asked.granted).difference(permissions))
    if lost:
        yield Warned(ORIGIN, f"not granted: {', '.join(lost)}")
    for one in sets if tools else ():
        idle = unmatched(one.toolset, tools)
        if idle:
            yield Warned(ORIGIN, f"of toolset {one.name!r} nothing that is given matches {', '.join(idle)}")
