"""A request before anything is assembled for it: what the policies grant it, its tools filtered, a worker's persona."""

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
    """A request as it was granted, the tools that it may not offer, and what is worth a warning."""

    request: Request
    denied_tools: tuple[DeniedTool, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def authorize(request: Request, policies: Sequence[Policy], store: LedgerStore, persona: str = "") -> AuthorizedRequest:
    """The request within what the policies grant. `persona` answers where neither the request nor a manager names one.

    A worker answers with the persona that its manager's session answered with last. Raises NotAllowed, BadSessionKey,
    BadTool, LedgerError.
    """
    granted = decide(policies, request, lambda label: store.resolve(label) or label)
    if granted.denied_tools:
        canonical(request.tools)  # a definition that is none is refused, whether it would be offered or not
    routing = replace(request.routing, session=granted.session, role=granted.role, own=False)
    warned = granted.warnings
    identity = request.identity
    if not identity.persona:
        inherited, more = _inherited(store, granted, routing.manager)
        identity = replace(identity, persona=inherited or persona)
        warned = (*warned, *more)
    request = replace(
        request,
        routing=routing,
        identity=identity,
        permissions=Permissions(granted.toolset, granted.permissions, granted.capabilities),
        tools=tuple(_kept(request.tools, granted.tools)) if granted.denied_tools else request.tools,
    )
    return AuthorizedRequest(request, granted.denied_tools, warned)


def _inherited(store: LedgerStore, granted: Grant, manager: str) -> tuple[str, list[ContextWarning]]:
    """The persona of the session that spawned a worker: the one that the call names, else the one that is on record."""
    if granted.role != "worker":
        return "", []
    if not manager:
        label = store.resolve(granted.session)
        move = store.session(label) if label is not None else None
        manager = move.facts.parent_session if move is not None else ""
    if not manager:
        return "", []
    thread = store.thread_of(manager)
    if thread is None:
        return "", [
            ContextWarning("nexus:persona", f"there is no session {manager!r} whose persona this worker could inherit")
        ]
    row = last_call(store, thread)
    return str(row.manifest.get("persona", "")) if row is not None else "", []


def _kept(definitions: Iterable[Mapping[str, Any]], names: Collection[str]) -> Iterator[dict[str, Any]]:
    """The definitions of these tools, one each. What has no name stays, to be refused where definitions are read."""
    for definition in iter_definitions(definitions):
        tool = tool_metadata(definition)
        if tool is None or tool.name in names:
            yield cast("dict[str, Any]", definition)
