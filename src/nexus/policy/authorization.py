"""Applying policies to a request before anything is assembled: role, session, tools, and a worker's persona."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.recorded_calls import last_call
from nexus.ledger.store import LedgerStore
from nexus.policy import DeniedTool, Grant, Policy, decide
from nexus.types.block import ContextWarning
from nexus.types.request import Permissions, Request
from nexus.types.tool_definition import canonical, iter_definitions, tool_metadata


class AuthorizedRequest(Struct, frozen=True):
    """A request within its policies, the tools that it may not offer, and warnings."""

    request: Request
    denied_tools: tuple[DeniedTool, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def authorize(request: Request, policies: Sequence[Policy], store: LedgerStore, persona: str = "") -> AuthorizedRequest:
    """Restrict a request to what the policies grant.

    Args:
        request: The request, its tools in any provider's form.
        policies: In order of precedence.
        store: Resolves session aliases, and a manager's persona.
        persona: Used where neither the request nor a worker's manager has one. A worker inherits the persona of the
            last call in its manager's session.

    Raises:
        NotAllowed, BadSessionKey, BadTool, LedgerError: See `decide`; a malformed tool definition is always rejected.
    """
    grant = decide(policies, request, lambda label: store.resolve(label) or label)
    if grant.denied_tools:
        canonical(request.tools)  # raises for a malformed definition even if its tool would not be offered
    routing = replace(request.routing, session=grant.session, role=grant.role, own=False)
    warnings = grant.warnings
    identity = request.identity
    if not identity.persona:
        inherited, more = _inherited_persona(store, grant, routing.manager)
        identity = replace(identity, persona=inherited or persona)
        warnings = (*warnings, *more)
    request = replace(
        request,
        routing=routing,
        identity=identity,
        permissions=Permissions(grant.toolset, grant.permissions, grant.capabilities),
        tools=tuple(_named_or_invalid(request.tools, grant.tools)) if grant.denied_tools else request.tools,
    )
    return AuthorizedRequest(request, grant.denied_tools, warnings)


def _inherited_persona(store: LedgerStore, grant: Grant, manager: str) -> tuple[str, list[ContextWarning]]:
    """Return the persona of the session that spawned a worker: the one in the call, else the one in the ledger."""
    if grant.role != "worker":
        return "", []
    if not manager:
        label = store.resolve(grant.session)
        update = store.session(label) if label is not None else None
        manager = update.facts.parent_session if update is not None else ""
    if not manager:
        return "", []
    thread = store.thread_of(manager)
    if thread is None:
        text = f"manager session {manager!r} not found: this worker inherits no persona"
        return "", [ContextWarning("nexus:persona", text)]
    row = last_call(store, thread)
    return str(row.manifest.get("persona", "")) if row is not None else "", []


def _named_or_invalid(definitions: Iterable[Mapping[str, Any]], names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the definitions of these tools, and those without a name, which are rejected where they are read."""
    for definition in iter_definitions(definitions):
        tool = tool_metadata(definition)
        if tool is None or tool.name in names:
            yield cast("dict[str, Any]", definition)
