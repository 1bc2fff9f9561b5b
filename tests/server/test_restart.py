"""A server that stops, or is killed: agents come back, and what was accepted is answered once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import nexus
from engine.test_paid_replies import full
from nexus.engine import open_engine
from nexus.errors import AgentError, LedgerFull, NotFound, ServerCallFailed
from nexus.ledger.sqlite import SqliteLedger
from nexus.models import Models, open_client
from nexus.server.agents import StoredAgents, event_id
from nexus.server.client import AgentClient, Client
from nexus.server.forms import CreateAgent, Send
from nexus.server.methods import METHODS, Call
from nexus.server.security import make_token_file, read_tokens
from nexus.server.tenants import ServeOptions, Tenants
from nexus.testing.model_server import ModelRequest, ModelServer, Response, hang, model_server, reply
from server.running import TOKEN, running


def test_agent_comes_back_with_its_settings(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.client()
        client.create_agent("a", system="You are terse.", permissions=["read"]).send("Hi", "r1")
        client.create_agent("closed").shutdown()
    with running(tmp_path) as server:
        client = server.client()
        agent = client.agent("a")
        assert agent.send("And now?").content == "Hello."
        assert "You are terse." in json.dumps(server.model.bodies[0])
        assert agent.get_messages().total == 4
        assert agent.send("Hi", "r1").content == "Hello.", "answered by the process before"
        assert len(server.model.bodies) == 1
        with pytest.raises(ServerCallFailed, match="lacks it"):
            client.create_agent("child", permissions=["write"], parent_agent_id="a")
        with pytest.raises(ServerCallFailed, match="was shut down"):
            client.agent("closed").send("Hi")


@contextmanager
def stopping_server(folder: Path) -> Iterator[tuple[Any, Future[Any], Future[None], Event]]:
    """A server that is told to stop while it works: with that work, the stop, and the event that lets the work end."""
    called, go_on = Event(), Event()

    def step(request: ModelRequest) -> Response:
        called.set()
        go_on.wait()
        return reply("Done.")(request)

    with running(folder, step, options=ServeOptions(grace_s=60)) as server, ThreadPoolExecutor() as pool:
        agent = server.client().create_agent("a")
        sending = pool.submit(agent.send, "Work", "r1")
        called.wait()
        yield server, sending, pool.submit(server.stop), go_on


def test_running_turn_ends_before_the_server_does(tmp_path: Path) -> None:
    with stopping_server(tmp_path) as (_, sending, stopping, go_on):
        go_on.set()
        assert sending.result().content == "Done."
        stopping.result()


def test_stopping_server_answers_health_and_ready_until_its_turns_have_ended(tmp_path: Path) -> None:
    with stopping_server(tmp_path) as (server, sending, stopping, go_on):
        while server.http("GET", "/ready")[0] == 200:
            pass
        paths = (
            ("GET", "/health"),
            ("GET", "/ready"),
            ("POST", "/rpc"),
            ("POST", "/agent/a"),
            ("GET", "/agent/a/events"),
        )
        assert [server.http(method, path, b"{}")[0] for method, path in paths] == [200, 503, 503, 503, 503]
        with pytest.raises(ServerCallFailed, match="is stopping") as caught:
            server.client().agent("a").get_tokens()
        assert (caught.value.code, caught.value.status) == ("not_accepted", 503)
        go_on.set()
        assert sending.result().content == "Done."
        stopping.result()


def test_turn_longer_than_the_grace_goes_on_at_the_next_start(tmp_path: Path) -> None:
    with running(tmp_path, hang(), options=ServeOptions(grace_s=0.0)) as server, ThreadPoolExecutor() as pool:
        agent = server.client().create_agent("a")
        sending = pool.submit(agent.send, "Work", "r1")
        while not server.model.bodies:
            pass
        server.stop()
        with pytest.raises(ServerCallFailed, match="next start") as caught:
            sending.result()
        assert caught.value.code == "server_stopped"
    with running(tmp_path, reply("Done.")) as server:
        assert server.client().agent("a").send("Work", "r1").content == "Done."
        assert len(server.model.bodies) == 1


def test_tenants_are_opened_when_used_and_idle_ones_make_room(tmp_path: Path) -> None:
    tokens = {f"{TOKEN}-{number}": f"tenant-{number}" for number in range(5)}
    with running(tmp_path, tokens=tokens, max_open=2) as server:
        for _ in range(2):
            for token in tokens:
                client = server.client(token)
                if not client.list_agents():
                    client.create_agent("a")
                client.agent("a").send("Hi")
                assert len(server.tenants.tenants()) <= 2
        assert {server.client(token).agent("a").get_messages().total for token in tokens} == {4}


def test_acknowledged_cancellation_is_stored(tmp_path: Path) -> None:
    """A kill after the answer must not let the next process continue the turn."""
    with running(tmp_path, hang()) as server, ThreadPoolExecutor() as pool:
        for end in (AgentClient.shutdown, lambda agent: agent.cancel("r1").cancelled, destroy):
            agent = server.client().create_agent()
            sending = pool.submit(agent.send, "Work", "r1")
            while not server.model.bodies:
                pass
            assert end(agent)
            with closing(SqliteLedger(str(tmp_path / "ledger.db"))) as ledger:
                (event,) = ledger.events_with_id(event_id(agent.agent_id, "r1"))
            assert (event.state, event.reason) == ("failed", "canceled")
            assert sending.result().cancelled
            server.model.requests.clear()


def destroy(agent: AgentClient) -> bool:
    return agent._client.destroy_agent(agent.agent_id)


@pytest.mark.parametrize("end", [StoredAgents.close, StoredAgents.destroy])
def test_message_that_comes_while_its_agent_is_closed_is_refused(tmp_path: Path, end: Any) -> None:
    ledger = tmp_path / "ledger.db"

    async def main(url: str) -> None:
        async with Models({"gpt-4o": open_client(base_url=url)}) as models:
            tenants = Tenants(lambda _: open_engine(ledger=SqliteLedger(str(ledger)), model="gpt-4o"), models)
            async with tenants.use("local") as tenant:
                agent = await tenant.nx.run(tenant.agents.create, CreateAgent(agent_id="a"))
                await tenant.nx.run(end, tenant.agents, "a")
                with pytest.raises((AgentError, NotFound)):
                    await METHODS["send"].run(Call(tenants, tenant, agent, None), Send("Work", "r1"))
            await tenants.close()

    with model_server(hang()) as model:
        asyncio.run(asyncio.wait_for(main(model.openai_url), 60))
    with closing(SqliteLedger(str(ledger))) as store:
        (event,) = store.events_with_id(event_id("a", "r1"))
    assert event.reason == "canceled"


def test_fork_whose_server_was_killed_is_completed_when_repeated(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        agent = server.client().create_agent("a", system="You are terse.")
        for text in ("one", "two"):
            agent.send(text)
    with nexus.open(ledger=tmp_path / "ledger.db") as nx:  # what a kill leaves: the session, and not yet its agent
        nx.ledger.fork("b", "a", turn=1)
        nx.ledger.fork("c", "a", turn=1)
        nx.add_system_message("Someone else's.", session="c")
    with running(tmp_path) as server:
        agent = server.client().agent("a")
        for wrong in ({"new_agent_id": "b", "turn": 2}, {"new_agent_id": "c", "turn": 1}):
            with pytest.raises(ServerCallFailed, match="exists"):
                agent.fork(**wrong)
        fork = agent.fork("b", turn=1)
        assert [message.text() for message in fork.get_messages().messages] == ["one", "Hello."]
        assert fork.get_context().system_prompt
        with pytest.raises(ServerCallFailed, match="exists"):
            agent.fork("b", turn=1)


def test_full_disk_leaves_agents_as_they_were(tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db", home=tmp_path, model="gpt-4o") as nx:
        agents = StoredAgents(nx)
        first = agents.create(CreateAgent(agent_id="first", system="You are terse."))
        large = CreateAgent(agent_id="large", system="x" * 300_000)
        with full(nx):
            with pytest.raises(LedgerFull):
                agents.create(large)
            assert [info.agent_id for info in agents.list()] == ["first"]
            assert agents.get("first") == first
        assert agents.create(large).settings.system == large.system
        assert {info.agent_id for info in agents.list()} == {"first", "large"}


WRITE_TOKEN = """
import resource, sys
from pathlib import Path
from nexus.errors import CredentialError
from nexus.server.security import make_token_file

resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    make_token_file(Path(sys.argv[1]))
except CredentialError:
    sys.exit(3)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits of files are POSIX")
def test_token_file_is_whole_or_absent(tmp_path: Path) -> None:
    """An empty one would keep every later server from starting."""
    file = tmp_path / "server.token"
    assert subprocess.run([sys.executable, "-c", WRITE_TOKEN, str(file)], check=False).returncode == 3
    assert list(tmp_path.iterdir()) == []
    assert make_token_file(file) and read_tokens(file).tenants


# processes -----------------------------------------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "NEXUS_HOME": str(folder / "home"), "NO_COLOR": "1"}


@contextmanager
def served(
    folder: Path, model: ModelServer, *options: str
) -> Iterator[tuple[subprocess.Popen[str], Client, dict[str, Any]]]:
    """Run `nexus serve` as a process and return it with a client and what it printed."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "nexus", "serve", "-w", str(workspace), "--port", "0", "--json", *options]
    command += ["--base-url", model.openai_url, "--model", "gpt-4o"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(folder)
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            printed = json.loads(line)
            token = Path(printed["token_file"]).read_text("utf-8").split()[0]
            assert token not in line
            yield process, Client(printed["url"], token, timeout_s=120), printed
        finally:
            process.kill()


def test_killed_server_answers_what_it_accepted_once(tmp_path: Path) -> None:
    with model_server(hang(), reply("Done.")) as model:
        with served(tmp_path, model) as (process, client, _), ThreadPoolExecutor() as pool:
            agent = client.create_agent("a", system="You are terse.")
            sending = pool.submit(agent.send, "Work", "r1")
            while not model.bodies:
                pass
            process.kill()
            with pytest.raises(ServerCallFailed) as caught:
                sending.result()
            assert caught.value.code == "connection"
        with served(tmp_path, model) as (_, client, _):
            agent = client.agent("a")
            assert agent.send("Work", "r1").content == "Done."
            assert [message.role for message in agent.get_messages().messages] == ["user", "assistant"]
            assert len(model.bodies) == 2 and "You are terse." in json.dumps(model.bodies[1])


def test_process_ends_with_exit_code_0_after_sigterm_and_shutdown_server(tmp_path: Path) -> None:
    with model_server(reply("Hello.")) as model:
        with served(tmp_path, model) as (process, client, printed):
            assert client.create_agent("a").send("Hi").content == "Hello."
            assert Path(printed["token_file"]).stat().st_mode & 0o777 == 0o600
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        with served(tmp_path, model) as (process, client, _):
            assert client.shutdown_server().success
            assert process.wait() == 0
            assert process.stderr is not None and process.stderr.read() == ""


LINES = """{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agentId":"a","systemPrompt":"Be terse."}}
{"jsonrpc":"2.0","id":2,"method":"watch","params":{"agent_id":"a"}}
{"jsonrpc":"2.0","id":3,"method":"send","params":{"agent_id":"a","content":"Hi","request_id":"r1"}}
[{"jsonrpc":"2.0","id":4,"method":"nothing"},{"jsonrpc":"2.0","method":"list_agents"}]
nonsense

{"jsonrpc":"2.0","id":5,"method":"get_context","params":{"agentId":"a"}}
"""


def test_standard_input_and_output_have_the_same_methods(tmp_path: Path) -> None:
    with model_server(reply("Hello.")) as model:
        (tmp_path / "workspace").mkdir()
        command = [sys.executable, "-m", "nexus", "serve", "--stdio", "-w", str(tmp_path / "workspace")]
        command += ["--base-url", model.openai_url, "--model", "gpt-4o"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
        ) as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            answers: dict[Any, Any] = {}
            events: list[dict[str, Any]] = []
            for line in LINES.splitlines():
                process.stdin.write(line + "\n")
                process.stdin.flush()
                if line.strip():
                    wanted = 4 if line[0] == "[" else None if line[0] == "n" else json.loads(line)["id"]
                    while wanted not in answers:
                        answer = json.loads(process.stdout.readline())
                        if isinstance(answer, dict) and "method" in answer:
                            events.append(answer["params"])
                        else:
                            first = answer[0] if isinstance(answer, list) else answer
                            answers[first["id"]] = first
            process.stdin.close()
            assert (process.wait(), process.stderr.read()) == (0, "")
    assert answers[1]["result"] == {"agent_id": "a", "url": "/agent/a"}
    assert answers[3]["result"] == {"request_id": "r1", "content": "Hello."}
    assert (answers[4]["error"]["code"], answers[None]["error"]["code"]) == (-32601, -32700)
    assert answers[4]["error"]["data"] == {"code": "method_not_found"}
    assert answers[None]["error"]["data"] == {"code": "parse_error"}
    assert answers[5]["result"] == {"message_count": 2, "system_prompt": True}
    assert [event["type"] for event in events] == ["stream_start", "token", "stream_end"]


def test_request_at_the_end_of_the_input_is_answered(tmp_path: Path) -> None:
    with model_server(reply("Hello.")) as model:
        (tmp_path / "workspace").mkdir()
        command = [sys.executable, "-m", "nexus", "serve", "--stdio", "-w", str(tmp_path / "workspace")]
        command += ["--base-url", model.openai_url, "--model", "gpt-4o", "--case", "camel"]
        lines = '{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"a"}}'
        ran = subprocess.run(
            command, input=lines, capture_output=True, text=True, env=environment(tmp_path), check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert json.loads(ran.stdout)["result"] == {"agentId": "a", "url": "/agent/a"}
