"""The server without a transport: finds the method, its agent and params, runs it, and reports how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nexus.errors import (
    BadSetting,
    NexusError,
)
from nexus.models.tracing import span
from nexus.server.access_log import CURRENT
from nexus.server.agents import StoredAgent, is_valid_id
from nexus.server.forms import Case, camel, read_params, to_plain
from nexus.server.jsonrpc import INVALID_PARAMS, LOG, METHOD_NOT_FOUND, Params, RpcError
from nexus.server.methods import METHODS, NO_AGENT, Call, Method
from nexus.server.openrpc import openrpc
from nexus.server.tenants import Tenants

DISCOVER = "rpc.discover"
_LEDGER_FAILURES = frozenset(
    {"ledger_unavailable", "outcome_unknown", "ledger_damaged", "ledger_full", "ledger_busy", "ledger_gone"}
)
"""Codes of errors that the operator has to know; others are the caller's."""


class Service:
    """Runs methods for tenants.

    Args:
        tenants: The tenants' engines.
        stop: Stops the server; None if no request may.

    Attributes:
        on_request: Called after each request with its method, its outcome (`ok` or `error`) and its seconds.
    """

    def __init__(self, tenants: Tenants, stop: Callable[[], None] | None = None) -> None:
        self.tenants = tenants
        self._stop = stop
        self.on_request: Callable[[str, str, float], None] = lambda _method, _outcome, _seconds: None

    async def call(
        self,
        tenant: str,
        method: str,
        params: Params,
        *,
        agent_id: str | None = None,
        agent: StoredAgent | None = None,
        case: Case = "snake",
    ) -> Any:
        """Run a method for a tenant and return its result: a JSON value, or a struct that is encoded as one.

        Args:
            tenant: Name of the tenant, of the token.
            method: Name of the method.
            params: By name, in snake_case or camelCase.
            agent_id: The agent of the request's path; without one methods of agents take it from their params.
            agent: The agent of the path as `find_agent` returned it, to read it once for a request.
            case: Case of the result's names.

        Raises RpcError, NexusError.
        """
        start = time.perf_counter()
        outcome = "error"
        failure = ""
        label = "unknown"
        if method in METHODS or method == DISCOVER:
            label = method
        attributes = {"rpc.system.name": "jsonrpc", "rpc.method": label, "jsonrpc.protocol.version": "2.0"}
        try:
            with span(label, attributes, kind="server") as traced:
                try:
                    value = await self._call(tenant, method, params, agent_id, agent, case)
                except RpcError as error:
                    traced.set({"rpc.response.status_code": str(error.code)})
                    raise
            outcome = "ok"
        except Exception as error:
            failure = _error_name(error)
            if isinstance(error, NexusError) and error.code in _LEDGER_FAILURES:
                LOG.error("ledger failed: %s", error, extra={"fields": {"tenant": tenant, "method": label}})
            raise
        finally:
            seconds = time.perf_counter() - start
            self.on_request(label, outcome, seconds)
            if (record := CURRENT.get()) is not None:
                record.add_call(label, agent_id or _agent_param(params), failure, seconds)
        return value

    async def _call(
        self, tenant_name: str, method: str, params: Params, agent_id: str | None, agent: StoredAgent | None, case: Case
    ) -> Any:
        row = METHODS.get(method)
        if method == DISCOVER:
            return openrpc()
        if row is None or (agent_id is not None and row.scope == "server"):
            raise RpcError(METHOD_NOT_FOUND, _unknown(method, row, agent_id))
        try:
            agent_id, params = _agent_and_params(params, row, agent_id)
            values = read_params(params, row.params)
        except BadSetting as error:
            raise RpcError(INVALID_PARAMS, f"params of {method} invalid: {error}") from error
        async with self.tenants.use(tenant_name) as tenant:
            if row.scope == "server":
                agent = NO_AGENT
            elif agent is None:
                agent = await tenant.nx.run(tenant.agents.get, agent_id or "", may_be_closed=row.may_be_closed)
            result = await row.run(Call(self.tenants, tenant, agent, self._stop), values)
            if case == "snake":
                return result
            return to_plain(result, case)

    async def find_agent(self, tenant_name: str, agent_id: str) -> StoredAgent | None:
        """Return an agent of a tenant; None for an error that the method reports. Raises NotFound, NotAccepted."""
        async with self.tenants.use(tenant_name) as tenant:
            try:
                return await tenant.nx.run(tenant.agents.get, agent_id)
            except NexusError as error:
                if error.code == "no_such_agent":
                    raise
                return None


def _agent_param(params: Params) -> str:
    """Return the agent that params name, for the access log; empty for none, and for a value that cannot be an id."""
    value = None
    if isinstance(params, dict):
        value = params.get("agent_id", params.get("agentId"))
    if isinstance(value, str) and is_valid_id(value):
        return value
    return ""


def _error_name(error: Exception) -> str:
    """Return an error as its response names it."""
    if isinstance(error, RpcError):
        return str(error.data["code"])
    if isinstance(error, NexusError):
        return error.code
    return type(error).__name__


def _agent_and_params(params: Params, method: Method, agent_id: str | None) -> tuple[str | None, Params]:
    """Return the agent of a request, and the method's own params. Raises BadSetting."""
    if isinstance(params, dict) and method.scope == "agent":
        params = dict(params)
        for name in ("agent_id", camel("agent_id")):
            written = params.pop(name, agent_id)
            if not isinstance(written, str | None) or agent_id not in (None, written):
                raise BadSetting("agent_id is another one than the path's (leave it out)")
            agent_id = written
    if method.scope == "agent" and agent_id is None:
        raise BadSetting("agent_id missing (send the request to /agent/ID, or pass agent_id)")
    return agent_id, params


def _unknown(method: str, row: Method | None, agent_id: str | None) -> str:
    if row is not None and agent_id is not None:
        return f"method {method!r} is not an agent's (send it to /rpc)"
    if agent_id is not None:
        scopes = ("agent",)
    else:
        scopes = ("server", "agent")
    names = ", ".join([name for name, method_row in METHODS.items() if method_row.scope in scopes] + [DISCOVER])
    return f"method {method[:80]!r} not found (methods: {names})"
