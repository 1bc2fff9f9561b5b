"""Applying policies to a request before anything is assembled: role, session, tools, and a worker's persona."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.recorded_calls import last_call
from nexus.ledger.store import LedgerStore
from nexus.policy import DeniedTool, Grant, Policy, decide
from nexus.types import session_key
from nexus.types.block import ContextWarning
from nexus.types.request import Permissions, Request
from nexus.types.tool_definition import canonical, iter_definitions, tool_metadata


class AuthorizedRequest(Struct, frozen=True):
    """A request within its policies, the tools that it may not offer, and warnings."""

    request: Request
    denied_tools: tuple[DeniedTool, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def authorize(request: Request, policies: Sequence[Policy], store: LedgerStore, persona: str = "") -> AuthorizedRequest:
    """Restrict a request to what the policies grant, in order of precedence.

    `persona` is used where neither the request nor a worker's manager has one. Raises as `decide`, LedgerError, and
    BadTool for a malformed tool definition.
    """
    grant = decide(policies, request, partial(owning_names, store))
    if grant.denied_tools:
        canonical(request.tools)  # raises for a malformed definition even if its tool would not be offered
    routing = replace(request.routing, session=grant.session, role=grant.role, own=False)
    warnings = grant.warnings
    identity = request.identity
    if not identity.persona:
        inherited, more = _inherited_persona(store, grant, routing.manager)
        identity = replace(identity, persona=inherited or persona)
        warnings = (*warnings, *more)
    permissions = Permissions(grant.toolset, grant.permissions, grant.capabilities)
    tools = request.tools
    if grant.denied_tools:
        granted = {*grant.tools, None}  # None: a definition without a name, which is rejected where it is read
        rows = ((tool_metadata(definition), definition) for definition in iter_definitions(tools))
        tools = tuple(cast("dict[str, Any]", row) for tool, row in rows if (tool and tool.name) in granted)
    request = replace(request, routing=routing, identity=identity, permissions=permissions, tools=tools)
    return AuthorizedRequest(request, grant.denied_tools, warnings)


def owning_names(store: LedgerStore, label: str) -> list[str]:
    """Return the names that determine the owner of a session: its name and the names of the sessions it was forked from.

    A `dm:` session belongs to the person that it names, even if it is a fork. Workers' sessions are open to all.
    """
    names: list[str] = []
    at = label
    while at and at not in names:
        at = store.resolve(at) or at
        names.append(at)
        key = session_key.parse(at)
        update = store.session(at) if key is None or key.kind != "dm" else None
        at = update.facts.owner_session if update is not None else ""
    return names


def _inherited_persona(store: LedgerStore, grant: Grant, manager: str) -> tuple[str, list[ContextWarning]]:
    """Return the persona of the session that spawned a worker: the one in the call, else the one in the ledger."""
    if grant.role != "worker":
        return "", []
    # A later call of a worker need not name its manager: the session has it.
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
