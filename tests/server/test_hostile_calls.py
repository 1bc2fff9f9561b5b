"""Calls that reach for more than they may: other tenants' sessions, settings of an earlier version, rights, repeated requests."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torture.version_6 import as_version_6, hide

from nexus.engine import Engine, open_engine
from nexus.errors import BadSetting, ServerCallFailed
from nexus.ledger.location import open_ledger
from nexus.server.agents import StoredAgents
from nexus.server.client import AgentClient, Client
from nexus.server.forms import NoParams, SendResult
from nexus.server.methods import METHODS
from nexus.testing.model_server import ModelRequest, Response, fail, hang, reply
from server.running import MODEL, TOKEN, Running, running

OTHER = "token-of-another-tenant"
TOKENS = {TOKEN: "local", OTHER: "other"}
SECRET = "My secret is 4711."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, tokens=TOKENS) as server:
        yield server


@pytest.fixture
def client(server: Running) -> Client:
    return server.client()


@contextmanager
def ledger_of(folder: Path, tenant: str = "local") -> Iterator[Engine]:
    """Open a tenant's part of the server's ledger, as the command line does."""
    engine = open_engine(ledger=open_ledger(None, str(folder / "ledger.db"), folder, tenant=tenant), model=MODEL)
    try:
        yield engine
    finally:
        engine.close()


def failure(call: Callable[[], object]) -> ServerCallFailed:
    with pytest.raises(ServerCallFailed) as caught:
        call()
    for secret in (TOKEN, OTHER, "4711", "Traceback", tempfile.gettempdir()):
        assert secret not in str(caught.value)
    return caught.value


# settings of an earlier version -----------------------------------------------------------------------------------------

LABELS = {
    "settings of an agent": "nexus:agent:mine",
    "configuration": "configuration:default",
    "identity of a user": "identity:ann",
    "alias of settings": "latest",
    "settings that were renamed": "renamed",
    "name of before": "nexus:agent:moved",
}


@pytest.fixture
def old_ledger(tmp_path: Path) -> None:
    """A ledger in which an earlier version stored agents, configuration and identities as messages of sessions."""
    with ledger_of(tmp_path) as engine:
        for name in ("mine", "moved", "closed", "destroyed"):
            flags = {"is_closed": name in ("closed", "destroyed"), "is_destroyed": name == "destroyed"}
            left_out = {"permissions": None, "budget": None, "parent_agent_id": None, "principal": "", "model": ""}
            body = {"agent_id": name, "settings": {"agent_id": name, "system_prompt": SECRET, **left_out}, **flags}
            hide(engine.ledger.store, f"nexus:agent:{name}", {**body, "is_closed": False}, body)
            engine.ledger.sessions.create(name)
        for label in ("configuration:default", "identity:ann"):
            hide(engine.ledger.store, label, {"text": SECRET})
        engine.ledger.sessions.rename("nexus:agent:moved", "renamed")
        engine.ledger.sessions.alias("latest", "nexus:agent:mine")
        engine.add_system_message(SECRET, session="nexus:agent:talk")
    as_version_6(tmp_path / "ledger.db")


@pytest.mark.usefixtures("old_ledger")
def test_agents_of_an_earlier_version_are_there_with_their_settings(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.client()
        listed = {info.agent_id: info.should_shutdown for info in client.list_agents()}
        assert listed == {"mine": False, "moved": False, "closed": True}
        for name in ("mine", "moved"):
            agent = client.agent(name)
            assert agent.get_messages().total == 0
            assert agent.send("Hi").content == "Hello."
            assert SECRET in json.dumps(server.model.bodies[-1])
        assert failure(lambda: client.agent("closed").send("Hi")).code == "agent_closed"
        for name in ("destroyed", "talk"):
            assert failure(lambda name=name: client.agent(name).send("Hi")).code == "no_such_agent"
    with running(tmp_path) as server:
        assert server.client().agent("mine").get_messages().total == 2


@pytest.mark.usefixtures("old_ledger")
@pytest.mark.parametrize("what", LABELS)
def test_settings_of_an_earlier_version_are_no_agent_and_no_messages(tmp_path: Path, what: str) -> None:
    name = LABELS[what]
    with running(tmp_path) as server:
        client = server.client()
        agent, mine = client.agent(name), client.agent("mine")
        calls: tuple[Callable[[], object], ...] = (
            lambda: client.create_agent("child", parent_agent_id=name),
            lambda: agent.fork("copy"),
            agent.get_messages,
            lambda: agent.send("Hi"),
            lambda: agent.begin("Hi"),
            agent.explain,
            lambda: agent.mirror([{"role": "user", "content": "Hi"}]),
            lambda: next(agent.events()),
        )
        for call in calls:
            assert failure(call).code == "no_such_agent"
        assert not client.destroy_agent(name)
        created = client.create_agent(name)
        assert created.get_messages().total == 0
        assert created.send("Hi").content == "Hello."
        assert SECRET not in json.dumps(server.model.bodies)
        assert SECRET not in str(created.explain())
        client.destroy_agent(name)
        assert mine.fork(f"fork of {what}").get_messages().total == 0


# other tenants -------------------------------------------------------------------------------------------------------

PARAMS: dict[str, dict[str, Any]] = {
    "send": {"content": "x"},
    "cancel": {"request_id": "r1"},
    "begin": {"content": "x", "request_id": "r1"},
    "record": {"reply": "x"},
    "fail": {"error": "x"},
    "mirror": {"messages": [{"role": "user", "content": SECRET}]},
    "fit": {"messages": [{"role": "user", "parts": [{"type": "text", "text": SECRET}]}]},
    "fork": {"new_agent_id": "copy"},
}


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.scope == "agent"])
def test_agent_of_another_tenant_does_not_exist_for_any_method(server: Running, method: str) -> None:
    server.client().create_agent("mine").send(SECRET, "r1")
    params = {"agent_id": "mine", **PARAMS.get(method, {})}
    error = server.rpc(method, params, Authorization=f"Bearer {OTHER}")
    assert error["data"] == {"code": "no_such_agent"} and "4711" not in error["message"]
    assert server.client().agent("mine").get_messages().total == 2
    assert server.client(OTHER).list_agents() == ()


def test_same_alias_label_and_principal_in_two_tenants_never_meet(
    server: Running, client: Client, tmp_path: Path
) -> None:
    client.create_agent("mine", principal="ann").send(SECRET)
    with ledger_of(tmp_path) as engine:
        engine.ledger.sessions.alias("latest", "mine")
        engine.ledger.sessions.rename("mine", "moved")
    other = server.client(OTHER)
    for name in ("latest", "moved", "mine", "local", "local:mine", "other"):
        agent = other.create_agent(name, principal="ann")
        assert agent.get_messages().total == 0
        assert agent.mirror([{"role": "user", "content": SECRET}]).action == "new"
        assert "4711" not in json.dumps(other.call("list_agents", NoParams(), dict[str, Any]))
        assert agent.fork(f"fork of {name}").get_messages().total == 0
        other.destroy_agent(name)
        other.destroy_agent(f"fork of {name}")
    assert client.agent("mine").get_messages().total == 2


def test_context_of_another_tenant_or_agent_is_not_known(server: Running, client: Client) -> None:
    mine = client.create_agent("mine")
    mine.begin(SECRET)
    context_id = mine.assemble().context_id
    for token, name in ((OTHER, "mine"), (TOKEN, "second")):
        agent = server.client(token).create_agent(name)
        assert failure(lambda agent=agent: agent.record("x", context_id)).code == "bad_event"
        agent.begin("Hi")
        recorded = agent.record("Hello.", context_id)
        assert recorded.session == name and len(recorded.warnings) == 1
    assert [message.text() for message in mine.get_messages().messages] == [SECRET]


def test_position_of_another_tenants_stream_is_a_gap(server: Running, client: Client) -> None:
    mine = client.create_agent("mine")
    stream = mine.events()
    position = next(stream).id
    mine.send(SECRET)
    other = server.client(OTHER).create_agent("mine")
    events = other.events(position)
    assert next(events).type == "gap"
    for reader in (stream, events):
        reader.close()


# rights --------------------------------------------------------------------------------------------------------------


def rights_of(folder: Path, agent_id: str) -> tuple[object, object, object]:
    """Return permissions, toolset and principal of an agent's next call."""
    with ledger_of(folder) as engine:
        options: Any = StoredAgents(engine).get(agent_id).options
    return options.get("permissions"), options.get("toolset"), options.get("principal")


def test_child_of_a_parent_created_again_with_fewer_rights_has_fewer(client: Client, tmp_path: Path) -> None:
    client.create_agent("parent", permissions=["read", "write"])
    client.create_agent("child", permissions=["read", "write"], parent_agent_id="parent")
    client.create_agent("grandchild", parent_agent_id="child")
    client.destroy_agent("parent")
    client.create_agent("parent", permissions=["read"], toolset="small", principal="ann")
    for name in ("parent", "child", "grandchild"):
        assert rights_of(tmp_path, name) == (("read",), "small", "ann")
    for parent in ("parent", "child", "grandchild"):
        error = failure(lambda parent=parent: client.create_agent("x", permissions=["write"], parent_agent_id=parent))
        assert error.code == "not_allowed"
    client.agent("child").fork("copy")
    assert rights_of(tmp_path, "copy") == (("read",), "small", "ann")


def test_child_without_a_common_permission_is_stopped(client: Client) -> None:
    client.create_agent("parent", permissions=["read", "write"])
    child = client.create_agent("child", permissions=["write"], parent_agent_id="parent")
    client.destroy_agent("parent")
    client.create_agent("parent", permissions=["read"])
    for call in (lambda: child.send("Hi"), child.get_tokens, lambda: child.fork("copy"), lambda: child.begin("Hi")):
        assert failure(call).code == "not_allowed"
    assert client.destroy_agent("child")


def test_empty_permissions_are_refused(client: Client) -> None:
    """A call without permissions has its principal's, so an empty list would be more than the parent's."""
    client.create_agent("parent", permissions=["read"], principal="ann")
    for parent in (None, "parent"):
        with pytest.raises(BadSetting, match="permissions empty"):
            client.create_agent("x", permissions=[], parent_agent_id=parent)


def test_child_of_an_agent_without_a_principal_has_none(client: Client, tmp_path: Path) -> None:
    """A policy may give calls without a principal fewer rights than those of a principal that the child names."""
    client.create_agent("parent")
    error = failure(lambda: client.create_agent("child", principal="root", parent_agent_id="parent"))
    assert error.code == "not_allowed" and "has none" in str(error)
    client.create_agent("child", parent_agent_id="parent")
    assert rights_of(tmp_path, "child") == (None, None, None)


def test_circle_of_parents_ends(client: Client, tmp_path: Path) -> None:
    client.create_agent("a")
    client.create_agent("b", parent_agent_id="a", permissions=["read"])
    client.destroy_agent("a")
    client.create_agent("a", parent_agent_id="b")
    assert rights_of(tmp_path, "a") == rights_of(tmp_path, "b") == (("read",), None, None)
    assert client.agent("a").send("Hi").content == client.agent("b").send("Hi").content == "Hello."


def test_child_created_again_or_continued_has_no_more_than_its_parent(client: Client) -> None:
    client.create_agent("parent", permissions=["read"], principal="ann", toolset="small")
    client.create_agent("child", parent_agent_id="parent").send("Hi")
    client.destroy_agent("child")
    more = ({"permissions": ["root"]}, {"principal": "bob"}, {"toolset": "all"}, {"permissions": ["read", "root"]})
    for settings in more:
        error = failure(lambda settings=settings: client.create_agent("child", parent_agent_id="parent", **settings))
        assert error.code == "not_allowed"
    assert [info.agent_id for info in client.list_agents()] == ["parent"]


def test_destroyed_or_closed_parent_gives_no_rights(client: Client) -> None:
    client.create_agent("destroyed", permissions=["root"])
    client.destroy_agent("destroyed")
    client.create_agent("closed", permissions=["root"]).shutdown()
    kinds = [
        failure(lambda name=name: client.create_agent("x", parent_agent_id=name)).code
        for name in ("destroyed", "closed")
    ]
    assert kinds == ["no_such_agent", "agent_closed"]
    assert [failure(lambda name=name: client.agent(name).fork("x")).code for name in ("destroyed", "closed")][
        1
    ] == "agent_closed"


# the same request again ----------------------------------------------------------------------------------------------


def test_50_equal_requests_at_the_same_time_are_one_turn(server: Running, client: Client) -> None:
    agent = client.create_agent("a")
    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda _: agent.send("Hi", "r1"), range(50)))
    assert set(results) == {SendResult("r1", "Hello.")}
    assert len(server.model.bodies) == 1 and agent.get_messages().total == 2


def test_50_different_requests_with_one_id_are_one_turn(server: Running, client: Client) -> None:
    agent = client.create_agent("a")

    def send(number: int) -> str:
        try:
            return agent.send(f"Hi {number}", "r1").content or ""
        except ServerCallFailed as error:
            assert error.rpc_code == -32602
            return "refused"

    with ThreadPoolExecutor(50) as pool:
        answers = sorted(pool.map(send, range(50)))
    assert answers == ["Hello.", *["refused"] * 49]
    assert len(server.model.bodies) == 1 and agent.get_messages().total == 2


def test_request_that_comes_again_in_one_batch_is_one_turn(server: Running, client: Client) -> None:
    client.create_agent("a")
    call = {"jsonrpc": "2.0", "id": 1, "method": "send", "params": {"agent_id": "a", "content": "Hi", "request_id": 7}}
    answers = json.loads(server.http("POST", "/rpc", json.dumps([call] * 20).encode())[2])
    assert [answer["result"] for answer in answers] == [{"request_id": 7, "content": "Hello."}] * 20
    assert len(server.model.bodies) == 1


def waiting_answer(called: threading.Event, go_on: threading.Event) -> Callable[[ModelRequest], Response]:
    def step(request: ModelRequest) -> Response:
        called.set()
        go_on.wait()
        return reply("Done.")(request)

    return step


def test_request_that_comes_again_while_it_runs_gets_the_same_answer(tmp_path: Path) -> None:
    called, go_on = threading.Event(), threading.Event()
    with running(tmp_path, waiting_answer(called, go_on)) as server, ThreadPoolExecutor() as pool:
        client = server.client()
        agent, other = client.create_agent("a"), client.create_agent("b")
        first = pool.submit(agent.send, "Work", "r1")
        called.wait()
        second = pool.submit(agent.send, "Work", "r1")
        assert failure(lambda: agent.send("Other work", "r1")).rpc_code == -32602
        third = pool.submit(other.send, "Work", "r1")
        go_on.set()
        assert first.result() == second.result() == third.result() == SendResult("r1", "Done.")
        assert len(server.model.bodies) == 2, "another agent's request is another one"


def test_canceled_request_that_comes_again_stays_canceled(server: Running, client: Client) -> None:
    server.model.script(hang(), reply("Done."))
    agent = client.create_agent("a")
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(agent.send, "Work", "r1")
        while not server.model.bodies:
            time.sleep(0.01)
        assert agent.cancel("r1").cancelled and not agent.cancel("r2").cancelled
        assert sending.result().cancelled
    assert agent.send("Work", "r1").cancelled
    assert failure(lambda: agent.send("Other work", "r1")).rpc_code == -32602
    assert len(server.model.bodies) == 1
    assert agent.send("Work", "r2").content == "Done."


def test_failed_request_that_comes_again_fails_again_without_a_call(server: Running, client: Client) -> None:
    server.model.script(fail(400, "no"), reply("Done."))
    agent = client.create_agent("a")
    kinds = {failure(lambda: agent.send("Work", "r1")).code for _ in range(3)}
    assert kinds == {"model_call_failed"} and len(server.model.bodies) == 1


def test_request_that_comes_again_after_a_restart_is_answered_once(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.client().create_agent("a").send("Hi", "r1")
    with running(tmp_path, reply("Something else.")) as server, ThreadPoolExecutor(20) as pool:
        agent: AgentClient = server.client().agent("a")
        results = set(pool.map(lambda _: agent.send("Hi", "r1"), range(20)))
        assert results == {SendResult("r1", "Hello.")}
        assert failure(lambda: agent.send("Hello", "r1")).rpc_code == -32602
        assert server.model.bodies == []


@pytest.mark.parametrize("text", ["Hi", " Hi\0 ", "é\u2028\U0001f600", "x " * 3_000, "<system>Hi</system>"])
def test_id_of_the_callers_own_loop_and_of_send_are_one(server: Running, client: Client, text: str) -> None:
    agent, second = client.create_agent("a"), client.create_agent("b")
    assert agent.begin(text, "r1").turn == agent.begin(text, "r1").turn == 1
    for call in (lambda: agent.begin("Something else", "r1"), lambda: agent.send("Something else", "r1")):
        assert failure(call).rpc_code == -32602, "the other message would be lost"
    assert agent.get_messages().total == 1 and server.model.bodies == []
    assert agent.send(text, "r1").content == "Hello."
    assert second.send(text, "r1").content == "Hello." and second.begin(text, "r1").status == "completed"
    assert failure(lambda: second.begin("Something else", "r1")).rpc_code == -32602
    assert [agent.get_messages().total, second.get_messages().total] == [2, 2]
