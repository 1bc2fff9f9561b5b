"""Callers of the MCP server: the engine of each tenant, opened when it is first needed, and what each caller may do.

Nothing here loads the engine before the first call, so that a client is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nexus.adapters.mcp_server.definitions import ToolArguments
from nexus.errors import LedgerUnusable, NexusError

if TYPE_CHECKING:
    from nexus.adapters.mcp_server.answers import McpAnswers, SessionPrincipals
    from nexus.engine.async_engine import AsyncEngine


class McpEngines:
    """The engines of the tenants, and the answers to their callers.

    Args:
        open_tenant: Opens the engine of a tenant, on a thread.
        is_current: Returns False for an engine that must be opened again, because its ledger was made meanwhile.
        has_memory: Whether the workspace's memory is the callers', as it is where there is one tenant.
    """

    def __init__(
        self,
        open_tenant: Callable[[str], AsyncEngine],
        is_current: Callable[[AsyncEngine], bool],
        *,
        has_memory: bool = True,
    ) -> None:
        self._open_tenant = open_tenant
        self._is_current = is_current
        self._has_memory = has_memory
        self._engines: dict[str, AsyncEngine] = {}
        self._session_principals = WeakKeyDictionary["AsyncEngine", "SessionPrincipals"]()
        self._lock = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None

    async def call(self, tenant: str, principal: str, name: str, arguments: ToolArguments) -> dict[str, Any]:
        """Return the answer of a tool. Raises NexusError."""
        nx = await self._engine(tenant)
        try:
            return await nx.run(self._answers(nx, principal).call, name, arguments)
        except LedgerUnusable as error:
            if error.code not in ("ledger_gone", "ledger_closed"):
                raise
        await self._forget(tenant, nx)  # the file is another one now, such as a restored backup
        nx = await self._engine(tenant)
        return await nx.run(self._answers(nx, principal).call, name, arguments)

    async def denial(self, tenant: str, principal: str, name: str) -> str:
        """Return why a caller may not use a tool; empty if it may. Raises NexusError."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(tenant))
        if self._has_memory and not principal:
            return ""
        nx = await self._engine(tenant)
        return await nx.run(self._answers(nx, principal).denial, name)

    async def close(self) -> None:
        """Close all engines."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        for nx in self._engines.values():
            await nx.close()

    def _answers(self, nx: AsyncEngine, principal: str) -> McpAnswers:
        from nexus.adapters.mcp_server.answers import McpAnswers, SessionPrincipals

        session_principals = self._session_principals.setdefault(nx, SessionPrincipals(nx.engine.ledger.store))
        return McpAnswers(nx.engine, principal, has_memory=self._has_memory, session_principals=session_principals)

    async def _engine(self, tenant: str) -> AsyncEngine:
        async with self._lock:
            nx = self._engines.get(tenant)
            if nx is not None and not self._is_current(nx):
                del self._engines[tenant]
                await nx.close()
                nx = None
            if nx is None:
                nx = await asyncio.to_thread(self._open_tenant, tenant)
                self._engines[tenant] = nx
            return nx

    async def _forget(self, tenant: str, nx: AsyncEngine) -> None:
        """Close an engine whose ledger is gone, unless another call did."""
        async with self._lock:
            if self._engines.get(tenant) is nx:
                del self._engines[tenant]
                with suppress(NexusError):
                    await nx.close()

    async def _warm(self, tenant: str) -> None:
        """Open the engine of a tenant before its first call, to which an error is left."""
        with suppress(NexusError):
            nx = await self._engine(tenant)
            await nx.run(self._answers, nx, "")
