"""A context shows the profile of exactly the person who speaks: by tenant, principal and way in."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

import nexus
from cli.running import environment, run
from nexus.bus import MemoryBus
from nexus.engine import engine as engine_module
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.models import open_client
from nexus.services import ContextBuilder, LLMService, OrchestratorService, Run, RunClient
from nexus.services.configuration import ConfigService
from nexus.services.serve import serve
from nexus.testing.model_server import ModelServer, model_server, reply
from nexus.workspace.user_profiles import UserProfiles, old_file
from server.running import running

MODEL = "gpt-4o"
TENANTS = ("local", "acme")
PRINCIPALS = ("zoe", "telegram:42")
OPERATOR = "canary-of-the-operator"
OLD_FILE = "canary-of-an-old-file"


def canary(tenant: str, principal: str) -> str:
    return f"canary-{tenant}-{principal.replace(':', '-')}-end"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with profiles of all principals of two tenants in its ledger, of the operator, and of old files."""
    home, root = tmp_path / "home", tmp_path / "ws"
    monkeypatch.setenv("NEXUS_HOME", str(home))
    for folder in (home / "users", root / ".nexus"):
        folder.mkdir(parents=True)
    (home / "user.json").write_text(json.dumps({"friends_profile": OPERATOR}))
    for principal in (*PRINCIPALS, "nobody"):
        old_file(home, principal).write_text(json.dumps({"friends_profile": OLD_FILE}))
    with nexus.open(root):  # the user makes the ledger
        pass
    for tenant, principal in product(TENANTS, PRINCIPALS):
        with nexus.open(root, ledger=stored(root, tenant)) as nx:
            nx.user_profiles.put(principal, {"friends_profile": canary(tenant, principal)})
    return root


def stored(root: Path, tenant: str) -> SqliteLedger:
    return SqliteLedger(root / ".nexus" / "ledger.db", tenant=tenant)


def library(root: Path, tenant: str, principal: str) -> str:
    with nexus.open(root, ledger=stored(root, tenant)) as nx:
        ctx = nx.assemble("hi", profile="tagged", principal=principal or None)
        compact = nx.calls.explain_next(ctx.provenance.request) if ctx.provenance.request else ""
        return f"{json.dumps(ctx.to_openai())} {compact}"


def session_of_a_person(root: Path, tenant: str, principal: str) -> str:
    """A program that names the session alone, as the orchestrator does."""
    with nexus.open(root, ledger=stored(root, tenant)) as nx:
        turn = nx.begin("hi", session=f"dm:{principal}" if principal else "main", profile="tagged")
        return json.dumps(turn.assemble().to_openai())


def command_line(root: Path, _tenant: str, principal: str) -> str:
    who = ("--principal", principal) if principal else ()
    return run("assemble", "hi", "--profile", "tagged", "--as", "openai", *who, folder=root).out


def task(root: Path, _tenant: str, principal: str) -> str:
    """`nexus run`, which talks as `nexus chat` does."""
    who = ("--session", f"dm:{principal}") if principal else ()
    with model_server(reply("Hello.")) as model:
        command = ["-m", "nexus", "run", "hi", "--profile", "tagged", "--base-url", model.openai_url, "-m", MODEL]
        subprocess.run([sys.executable, *command, *who], cwd=root, env=environment(), check=True, capture_output=True)
        return json.dumps(model.bodies)


def server(root: Path, tenant: str, principal: str) -> str:
    tokens = {f"token-of-the-tenant-{name}": name for name in TENANTS}
    with running(root.parent, reply("Hello."), tokens=tokens, ledger=str(root / ".nexus" / "ledger.db")) as live:
        agents = live.client(f"token-of-the-tenant-{tenant}")
        agent = agents.create_agent("helper", profile="tagged", principal=principal or None)
        agent.send("hi")
        own = agents.create_agent("own-loop", profile="tagged", principal=principal or None)
        own.begin("hi")
        return json.dumps([live.model.bodies, own.assemble().body])


async def called(model: ModelServer) -> None:
    """Wait for the call of the model."""
    async with asyncio.timeout(60):
        while not model.bodies:  # noqa: ASYNC110 - the server is a thread
            await asyncio.sleep(0.02)


def example_of_the_docs(root: Path, tenant: str, principal: str) -> str:
    """An orchestrator and a builder without a `config_service`."""

    async def main(model: ModelServer) -> None:
        bus, models = MemoryBus(), open_client(base_url=model.openai_url, api_key="test")
        async with nexus.open_async(root, ledger=stored(root, tenant), model=MODEL) as nx:
            builder = ContextBuilder(bus, nx=nx)
            await builder.start()
            async with LLMService(bus, models, nx), OrchestratorService(bus, nx):
                await RunClient(bus).accept(Run(principal or "stranger", "hi", "run"))
                await called(model)
            await builder.stop()
        await models.aclose()
        await bus.close()

    with model_server(reply("Hello.")) as model:
        asyncio.run(main(model))
        return json.dumps(model.bodies)


def services(root: Path, tenant: str, principal: str) -> str:
    """The services that `nexus services run` runs, with the configuration in the ledger."""

    async def main(model: ModelServer) -> None:
        bus, models = MemoryBus(), open_client(base_url=model.openai_url, api_key="test")
        async with nexus.open_async(root, ledger=stored(root, tenant), model=MODEL) as nx:
            await ConfigService(nx).initialize()
            async with serve(bus, nx, models):
                await RunClient(bus).accept(Run(principal or "stranger", "hi", "run"))
                await called(model)
        await models.aclose()
        await bus.close()

    with model_server(reply("Hello.")) as model:
        asyncio.run(main(model))
        return json.dumps(model.bodies)


Way = Callable[[Path, str, str], str]
OF_THE_LOCAL_USER: tuple[Way, ...] = (command_line, task)
OF_PROGRAMS: tuple[Way, ...] = (library, session_of_a_person, server, example_of_the_docs, services)
WAYS = (*OF_PROGRAMS, *OF_THE_LOCAL_USER)
CASES = [
    (way, tenant, principal)
    for way, tenant, principal in product(WAYS, TENANTS, (*PRINCIPALS, "nobody", ""))
    if tenant == "local" or way not in OF_THE_LOCAL_USER
]


def check(way: Way, root: Path, tenant: str, principal: str) -> None:
    words = {canary(*key): key for key in product(TENANTS, PRINCIPALS)} | {OPERATOR: ("", ""), OLD_FILE: ("", "old")}
    text = way(root, tenant, principal)
    assert "hi" in text
    expected = {canary(tenant, principal)} if principal in PRINCIPALS else set[str]()
    if not principal and way in OF_THE_LOCAL_USER:
        expected = {OPERATOR}
    assert {word for word in words if word in text} == expected


@pytest.mark.parametrize(
    ("way", "tenant", "principal"),
    CASES,
    ids=[f"{way.__name__}-{tenant}-{who or 'none'}" for way, tenant, who in CASES],
)
def test_law_context_shows_the_profile_of_exactly_its_principal(
    place: Path, way: Way, tenant: str, principal: str
) -> None:
    check(way, place, tenant, principal)


@pytest.mark.parametrize("way", [library, session_of_a_person, server], ids=lambda way: way.__name__)
def test_build_that_reads_the_operators_file_without_a_principal_is_found(
    place: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(store: LedgerStore, _: Path | None = None) -> UserProfiles:
        return UserProfiles(store, place.parent / "home")

    monkeypatch.setattr(engine_module, "UserProfiles", broken)
    with pytest.raises(AssertionError, match=OPERATOR):
        check(way, place, "local", "")


@pytest.mark.parametrize("way", [library, server, services], ids=lambda way: way.__name__)
def test_build_that_reads_the_profiles_of_another_tenant_is_found(
    place: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "UserProfiles", lambda *_: UserProfiles(stored(place, "local")))
    with pytest.raises(AssertionError, match="canary-local-zoe"):
        check(way, place, "acme", "zoe")
