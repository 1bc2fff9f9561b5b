"""A tenant whose engine cannot be opened: an error of the server, not an agent that is not there."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from nexus.engine import Engine
from nexus.errors import LedgerBusy, NexusError, NotFound
from nexus.models import Models
from nexus.server.app import HttpServer
from nexus.server.security import Tokens
from nexus.server.service import Service
from nexus.server.tenants import Tenants

BODY = {"jsonrpc": "2.0", "id": 1, "method": "get_context"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("folder gone (make a workspace)", code="workspace_missing"), "workspace_missing"),
        (LedgerBusy("locked (try again)"), "ledger_busy"),
    ],
)
def test_engine_that_cannot_be_opened_is_no_missing_agent(error: NexusError, code: str) -> None:
    def engine(_tenant: str) -> Engine:
        raise error

    async def play() -> httpx.Response:
        tenants = Tenants(engine, Models({}))
        app = HttpServer(Service(tenants), Tokens({"token": "shop"})).app
        try:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.post("/agent/a", json=BODY, headers={"Authorization": "Bearer token"})
        finally:
            await tenants.close()

    response = asyncio.run(play())
    assert response.status_code == 500
    assert response.json()["error"]["data"] == {"code": code, "status": 500}
