"""The decision about one call: principal, role, session, permissions, and which of the tools it may offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from msgspec import Struct

from nexus.errors import NotAllowed
from nexus.policy.principals import MatchKind, PolicyMatch, check_owner, effective_principal, match_policy, session_of
from nexus.policy.values import MESSAGING, REPLY, DeniedTool, Grant, Policy, Toolset
from nexus.types.block import ContextWarning
from nexus.types.request import Request
from nexus.types.settings import AgentRole
from nexus.types.tool_definition import ToolMetadata, tool_rows

SOURCE = "nexus:policy"
TOOLSET_SEPARATOR = " & "


class AppliedToolset(Struct, frozen=True):
    """A toolset that applies to a call, with the policy that defines it and thereby its categories."""

    name: str
    toolset: Toolset
    policy: Policy


def decide(
    policies: Policy | Sequence[Policy],
    request: Request,
    names_of: Callable[[str], Sequence[str]] = lambda label: (label,),
) -> Grant:
    """Apply policies, in order of precedence, to a request. An already granted request gets the same grant.

    `names_of` returns the names that decide whose a session is (`owning_names`). Raises NotAllowed for a role, session or toolset that the
    principal may not use, and BadSetting.
    """
    if isinstance(policies, Policy):
        policies = (policies,)
    else:
        policies = tuple(policies)
    requested = request.settings
    principal = requested.principal
    matches = [match_policy(policy, principal) for policy in policies]
    role = role_of(requested.role, matches)
    session = session_of(None if request.chooses_session else request.session, principal, role, matches)
    for label in filter(None, (session, requested.manager)):
        check_owner(label, principal, matches, names_of)
    toolsets = applied_toolsets(requested.toolset, role, matches)
    tools: dict[str, tuple[ToolMetadata, Mapping[str, Any]]] = {}
    for tool, definition in tool_rows(request.tools):
        if tool is not None:  # a definition without a name is rejected where definitions are read
            tools[tool.name] = (tool, definition)
    reasons = {name: denial_reason(tool, role, matches, toolsets) for name, (tool, _) in sorted(tools.items())}
    is_closed = any(match.kind == "closed" for match in matches)
    grants = [() if match.kind == "closed" else match.entry.permissions for match in matches]
    bounds = [set(names) for names in grants if names is not None]
    permissions = requested.permissions
    if bounds:  # what is requested, or the principal's own, within what every policy grants
        own = requested.permissions or effective_principal(matches).permissions or ()
        permissions = tuple(sorted(set(own).intersection(*bounds)))
    lists = (requested.capabilities, *(applied.toolset.capabilities for applied in toolsets))
    listed = [set(names) for names in lists if names is not None]
    capabilities = None
    if listed:
        capabilities = tuple(sorted(listed[0].intersection(*listed[1:])))
    return Grant(
        role,
        session,
        TOOLSET_SEPARATOR.join(toolset.name for toolset in toolsets) or requested.toolset,
        permissions,
        () if is_closed else capabilities,
        tuple(name for name, reason in reasons.items() if not reason),
        tuple(DeniedTool(name, reason, dict(tools[name][1])) for name, reason in reasons.items() if reason),
        effective_principal(matches).person,
        tuple(_explanation(request, matches, role, session, toolsets)),
        tuple(_warnings(request, matches, permissions, toolsets, [tool for tool, _ in tools.values()])),
    )


def role_of(requested: AgentRole, matches: Sequence[PolicyMatch]) -> AgentRole:
    """Return the role of a call: the lowest that the policies assign, or a lower one that was requested.

    `unified` requests the role that the policies assign. Raises NotAllowed.
    """
    roles: list[AgentRole] = [match.entry.role for match in matches if match.entry.role is not None]
    # A worker may do less than any other role, so everybody may ask to be one.
    if not roles or requested == "worker":
        return requested
    # One policy that says `worker` wins: policies only restrict.
    highest = "worker" if "worker" in roles else roles[0]
    if requested == "unified":
        return highest
    if highest == "worker":
        raise NotAllowed(f"role {requested!r} not allowed: the policy allows {highest!r}")
    return requested


# toolsets and tools -------------------------------------------------------------------------------------------------


def find_toolset(name: str, policies: Sequence[Policy]) -> AppliedToolset | None:
    """Return the toolset of that name in the first policy that defines it, so the user's before the workspace's."""
    policy = next((policy for policy in policies if name in policy.toolsets), None)
    if policy is not None:
        return AppliedToolset(name, policy.toolsets[name], policy)
    return None


def applied_toolsets(requested: str, role: AgentRole, matches: Sequence[PolicyMatch]) -> list[AppliedToolset]:
    """Return all toolsets that apply: the principal's, the role's, and the requested ones. Raises NotAllowed."""
    policies = [match.policy for match in matches]
    # A policy's toolset may be defined in it or in an earlier policy, not in a later one: the workspace's policy must
    # not redefine a toolset of the user's.
    references: list[tuple[str, Sequence[Policy]]] = []
    for count, match in enumerate(matches, 1):
        rule = match.policy.roles.get(role)
        references += [(name, policies[:count]) for name in (match.entry.toolset, rule.toolset if rule else "") if name]
    if requested and policies:
        references += [(name, policies) for name in requested.split(TOOLSET_SEPARATOR)]
    toolsets: dict[str, AppliedToolset] = {}
    for name, candidates in references:
        toolset = find_toolset(name, candidates)
        if toolset is None:
            names = ", ".join(sorted({name for policy in candidates for name in policy.toolsets})) or "none"
            raise NotAllowed(f"toolset {name!r} not found (toolsets of the policy: {names})")
        toolsets.setdefault(name, toolset)
    return list(toolsets.values())


def denial_reason(
    tool: ToolMetadata, role: AgentRole, matches: Sequence[PolicyMatch], toolsets: Sequence[AppliedToolset]
) -> str:
    """Return why a tool is not offered; empty if it is."""
    closed = next((match for match in matches if match.kind == "closed"), None)
    if closed is not None:
        return f"{closed.policy.name} does not define the principal and has no default"
    if tool.roles and role not in tool.roles:
        return f"only for role {', '.join(tool.roles)}"
    categories = {tool.category}.union(*(categories_of(tool, match.policy) for match in matches))
    if role == "worker" and tool.name != REPLY and MESSAGING in categories:
        return f"workers may use no messaging tool except `{REPLY}`"
    for match in matches:
        rule = match.policy.roles.get(role)
        pattern = ""
        if rule is not None:
            pattern = matching_pattern(tool.name, rule.deny)
        if pattern:
            return f"role {role} is denied {pattern!r}"
    for applied in toolsets:
        toolset = applied.toolset
        pattern = matching_pattern(tool.name, toolset.deny)
        if pattern:
            return f"toolset {applied.name!r} denies {pattern!r}"
        in_category = categories_of(tool, applied.policy) & set(toolset.categories)
        if not in_category and not matching_pattern(tool.name, toolset.tools):
            return f"not in toolset {applied.name!r}"
    return ""


def categories_of(tool: ToolMetadata, policy: Policy) -> set[str]:
    """Return the categories of a tool: the one in its definition, and those that the policy assigns by name."""
    categories = {name for name, patterns in policy.categories.items() if matching_pattern(tool.name, patterns)}
    if tool.category:
        return categories | {tool.category}
    return categories


def matching_pattern(name: str, patterns: tuple[str, ...]) -> str:
    """Return the pattern that a tool's name matches, an exact one first; empty if none does."""
    # An exact name explains more than a wildcard that matches it too.
    if name in patterns:
        return name
    return next((pattern for pattern in _wildcards(patterns) if fnmatchcase(name, pattern)), "")


@lru_cache(maxsize=256)
def _wildcards(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if "*" in pattern or "?" in pattern)


def unmatched_patterns(toolset: Toolset, tools: Iterable[ToolMetadata]) -> list[str]:
    """Return the patterns of a toolset that match none of the tools: misspelled names, or tools that are missing."""
    names = {tool.name for tool in tools}
    unused = [pattern for pattern in dict.fromkeys((*toolset.tools, *toolset.deny)) if pattern not in names]
    matched = {pattern for pattern in _wildcards(tuple(unused)) if any(fnmatchcase(name, pattern) for name in names)}
    return [pattern for pattern in unused if pattern not in matched]


# permissions, explanation and warnings ------------------------------------------------------------------------------


def _explanation(
    request: Request, matches: Sequence[PolicyMatch], role: str, session: str, toolsets: Sequence[AppliedToolset]
) -> Iterator[str]:
    """Yield the source of each part of the decision, a line each."""
    if not matches:
        yield "no policy: only the limits of the role apply"
        return
    principal = request.settings.principal
    subject = "a call without principal"
    if principal:
        subject = f"principal {principal!r}"
    texts: dict[MatchKind, str] = {
        "named": f"{subject} is defined",
        "default": f"{subject} is not defined; the default applies",
        "closed": f"{subject} is not defined and there is no default: no tools",
        "open": "no principals defined; defaults apply",
    }
    yield from (f"{match.policy.name}: {texts[match.kind]}" for match in matches)
    roles = (f", {match.policy.name} assigns {match.entry.role}" for match in matches if match.entry.role is not None)
    yield f"role {role}: requested {request.settings.role}{''.join(roles)}"
    yield f"session {session!r}: {'the session of the principal' if request.chooses_session else 'requested'}"
    yield from (f"toolset {applied.name!r}: defined in {applied.policy.name}" for applied in toolsets)


def _warnings(
    request: Request,
    matches: Sequence[PolicyMatch],
    permissions: Sequence[str],
    toolsets: Sequence[AppliedToolset],
    tools: Sequence[ToolMetadata],
) -> Iterator[ContextWarning]:
    requested = request.settings
    principal = requested.principal
    if requested.toolset and not matches:
        yield ContextWarning(SOURCE, f"toolset {requested.toolset!r} has no effect: no policy defines it")
    for match in matches:
        if match.kind == "closed":
            subject = "a call without principal"
            if principal:
                subject = f"principal {principal!r}"
            text = f"{subject} is not defined in {match.policy.name}, which has no default: no tools, no permissions"
            yield ContextWarning(SOURCE, text)
    rejected = sorted(set(requested.permissions).difference(permissions))
    if rejected:
        yield ContextWarning(SOURCE, f"permissions not granted: {', '.join(rejected)}")
    for applied in toolsets if tools else ():
        unmatched = unmatched_patterns(applied.toolset, tools)
        if unmatched:
            text = f"patterns of toolset {applied.name!r} match no given tool: {', '.join(unmatched)}"
            yield ContextWarning(SOURCE, text)
