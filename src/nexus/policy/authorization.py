"""Applying policies to a request before anything is assembled: role, session, tools, and a worker's persona."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from nexus.ledger.recorded_calls import last_call
from nexus.ledger.sessions import LATE_REPLY, SessionMetadata
from nexus.ledger.store import LedgerStore, SessionStore
from nexus.policy import DeniedTool, Grant, Policy, decide
from nexus.policy.decision import SOURCE
from nexus.types import session_key
from nexus.types.block import ContextWarning
from nexus.types.request import Request
from nexus.types.settings import Settings
from nexus.types.tool_definition import ToolList, canonical, tool_rows

MANAGED = "worker:managed"
"""Session for which a manager's own rights are decided; it belongs to nobody."""


class AuthorizedRequest(Struct, frozen=True):
    """A request within its policies, the tools that it may not offer, and warnings."""

    request: Request
    denied_tools: tuple[DeniedTool, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def authorize(request: Request, policies: Sequence[Policy], store: LedgerStore, persona: str = "") -> AuthorizedRequest:
    """Restrict a request to what the policies grant, in order of precedence.

    A session that another one spawned never has more than that one's last call, and the tools that its principal may
    use. `persona` is used where neither the request nor a worker's manager has one. Raises
    as `decide`, LedgerError, and BadTool for a malformed tool definition.
    """
    requested = request.settings
    manager = parent_call(store, request.session, requested.manager)
    grant = decide(policies, request, partial(owning_names, store))
    if manager is not None:
        grant = within_parent(grant, request, policies, manager)
    if grant.denied_tools:
        canonical(request.tools)  # raises for a malformed definition even if its tool would not be offered
    warnings = grant.warnings
    settings = replace(
        requested,
        role=grant.role,
        toolset=grant.toolset,
        permissions=grant.permissions,
        capabilities=grant.capabilities,
    )
    if not settings.persona:
        inherited, more = _inherited_persona(store, grant, settings.manager)
        settings = replace(settings, persona=inherited or persona)
        warnings = (*warnings, *more)
    tools = request.tools
    if grant.denied_tools:
        granted = {*grant.tools, None}  # None: a definition without a name, which is rejected where it is read
        rows = tool_rows(tools)
        tools = ToolList(cast("dict[str, Any]", row) for tool, row in rows if (tool and tool.name) in granted)
    request = replace(request, session=grant.session, settings=settings, tools=tools, chooses_session=False)
    return AuthorizedRequest(request, grant.denied_tools, warnings)


def owning_names(store: SessionStore, label: str) -> list[str]:
    """Return the names that determine the owner of a session: its own, and those of the sessions that it comes from.

    These are the sessions that it was forked from, and those that spawned it. A `dm:` session belongs to the person that
    it names, whatever it comes from. A late reply belongs to the owner of the session that it was for.
    """
    names = [label]
    waiting = [label]
    visited = set[str]()
    for name in waiting:
        at = store.resolve(name) or name
        if at in visited:
            continue
        visited.add(at)
        update = store.session(at)
        if update is not None:
            metadata = update.metadata
        else:
            metadata = SessionMetadata()
        if metadata.origin == LATE_REPLY:  # its name begins with that of its session
            names = [other for other in names if other != at]
            waiting.append(metadata.owner_session)
            continue
        if at not in names:
            names.append(at)
        key = session_key.parse(at)
        if key is None or key.kind != "dm":
            waiting += filter(None, (metadata.owner_session, metadata.parent_session))
    return names


def session_person(store: SessionStore, label: str) -> str:
    """Return the person that a session is for: of a `dm:` label, or of the one that it leads to or was forked from.

    Empty if there is none. `dm:ada` is for `ada`, who is a principal, or the owner key of a service. Raises BadSetting.
    """
    keys = map(session_key.parse, (label, *owning_names(store, label)))
    return next((key.name for key in keys if key is not None and key.kind == "dm"), "")


class ParentCall(Struct, frozen=True):
    """The last call of the session that spawned another one."""

    session: str
    principal: str = ""
    permissions: tuple[str, ...] = ()
    persona: str = ""


def parent_call(
    store: LedgerStore, session: str, manager: str = "", spawned: Collection[str] = ()
) -> ParentCall | None:
    """Return the last call of the session that spawned another one: the one that it names, else the ledger's.

    Its principal is the one for whom it acts itself, if a session spawned it too. None if there is no such session, or
    it has no recorded call.
    """
    manager = manager or _parent_session(store, session)
    thread = store.thread_of(manager) if manager else None
    row = last_call(store, thread) if thread is not None else None
    if thread is None or row is None:
        return None
    (entry,) = store.entries(thread, row.seq - 1, row.seq)
    principal = str(entry.body.get("principal", ""))
    permissions = entry.body.get("permissions") or ()
    if not principal and manager not in spawned:
        parent = parent_call(store, manager, spawned=(*spawned, manager))
        principal = parent.principal if parent is not None else ""
    return ParentCall(manager, principal, tuple(map(str, permissions)), str(row.manifest.get("persona", "")))


def within_parent(grant: Grant, request: Request, policies: Sequence[Policy], manager: ParentCall) -> Grant:
    """Return a grant without the permissions and tools that the manager's principal lacks. Raises NotAllowed."""
    if not (manager.principal or manager.permissions):  # the program itself called, without limits
        return grant
    settings = Settings(role="worker", principal=manager.principal)
    bound = decide(policies, replace(request, session=MANAGED, settings=settings, chooses_session=False))
    denied = {tool.name for tool in grant.denied_tools}
    missing = sorted(set(grant.permissions) - set(manager.permissions))
    warnings = grant.warnings
    if missing:
        text = f"permissions {', '.join(missing)} not granted: session {manager.session!r}, which spawned this one, lacks them"
        warnings = (*warnings, ContextWarning(SOURCE, text))
    return replace(
        grant,
        permissions=tuple(name for name in grant.permissions if name in manager.permissions),
        tools=tuple(name for name in grant.tools if name in bound.tools),
        denied_tools=(*grant.denied_tools, *(tool for tool in bound.denied_tools if tool.name not in denied)),
        warnings=warnings,
    )


def _parent_session(store: SessionStore, session: str) -> str:
    update = store.session(session)
    if update is None or update.thread is None:
        label = store.resolve(session)
        update = store.session(label) if label is not None else None
    if update is not None:
        return update.metadata.parent_session
    return ""


def _inherited_persona(store: LedgerStore, grant: Grant, manager: str) -> tuple[str, list[ContextWarning]]:
    """Return the persona of the session that spawned a worker: the one in the call, else the one in the ledger."""
    if grant.role != "worker":
        return "", []
    # A later call of a worker need not name its manager: the session has it.
    manager = manager or _parent_session(store, grant.session)
    if not manager:
        return "", []
    call = parent_call(store, grant.session, manager)
    if call is None and store.thread_of(manager) is None:
        text = f"manager session {manager!r} not found: this worker inherits no persona"
        return "", [ContextWarning("nexus:persona", text)]
    return call.persona if call is not None else "", []
