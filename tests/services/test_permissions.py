"""The permissions of docs/bus.md: the services run with them, and no user reads or sends what is another's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import nexus
from nexus.bus import Bus, Message, open_bus
from nexus.errors import BusError
from nexus.models import open_client
from nexus.services import ConfigService, Run, RunClient, Topics
from nexus.services.orchestrator import RunState
from nexus.services.serve import serve
from nexus.testing.model_server import model_server, reply
from services.running import run
from support.nats_server import NatsServer, require_nats_server

DOCS = Path(__file__).parents[2] / "docs" / "bus.md"


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    require_nats_server()
    config = re.findall(r"```conf\n(.*?)```", DOCS.read_text(), re.DOTALL)[0]
    (tmp_path / "nats.conf").write_text(re.sub(r"\$[A-Z]+_PASSWORD", "secret", config))
    server = NatsServer(tmp_path / "nats", "-c", str(tmp_path / "nats.conf"))
    yield server
    server.stop()


async def open_as(nats: NatsServer, user: str) -> Bus:
    return await open_bus(nats.url.replace("//", f"//{user}:secret@"))


def test_services_run_with_the_permissions_of_the_docs(nats: NatsServer) -> None:
    async def main() -> None:
        with model_server(reply("Hello.")) as server:
            models = open_client(base_url=server.openai_url, api_key="test")
            async with nexus.open_async(ledger=":memory:", model="gpt-4o") as nx:
                await ConfigService(nx).set_default("mood.enabled", value=True)
                buses = {user: await open_as(nats, user) for user in ("context", "llm", "orchestrator", "web")}
                async with (
                    serve(buses["context"], nx, models, only=["context"]),
                    serve(buses["llm"], nx, models, only=["llm"]),
                    serve(buses["orchestrator"], nx, models, only=["orchestrator"]),
                ):
                    client = RunClient(buses["web"])
                    items = [item async for item in client.stream(Run("ada", "I'm so tired", "r1"))]
                    end = items[-1]
                    assert isinstance(end, RunState)
                    assert (end.state, end.reason, len(items) > 2) == ("done", "", True)
                    assert "[MOOD]\\ntired" in str(server.bodies[0])
                    spied: list[Message] = []

                    async def spy(message: Message) -> None:
                        spied.append(message)

                    for topic in (Topics.CONTEXT_BUILD_REQUEST, Topics.LLM_REQUEST, Topics.RUN_REQUEST):
                        await buses["web"].subscribe(topic, spy)
                    with pytest.raises(BusError):
                        await buses["web"].request(Message(Topics.CONTEXT_BUILD_REQUEST, {}), timeout_s=0.5)
                    await client.run(Run("eve", "Hi", "r1"))
                    assert spied == []
                for bus in buses.values():
                    await bus.close()
            await models.aclose()

    run(main)
