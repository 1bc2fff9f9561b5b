"""The methods over HTTP, with document 004's printed result forms."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nexus.compat.nexus3.rpc.dispatcher import METHODS as DOCUMENTED
from nexus.errors import ServerCallFailed
from nexus.server import contexts, forms
from nexus.server.client import Client
from nexus.server.methods import METHODS
from nexus.testing.model_server import Response, fail, hang, reply
from nexus.types.message import ToolCall
from server.running import Running, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: Running) -> Client:
    return server.client()


def failure(call: Any) -> ServerCallFailed:
    with pytest.raises(ServerCallFailed) as caught:
        call()
    return caught.value


def test_results_have_the_printed_keys(server: Running) -> None:
    """Document 004's results, as `nexus.compat.nexus3.rpc.Dispatcher` prints them."""
    assert server.rpc("create_agent", {"agent_id": "worker-1", "system_prompt": "You are terse."}) == {
        "agent_id": "worker-1",
        "url": "/agent/worker-1",
    }
    path = "/agent/worker-1"
    assert server.rpc("send", {"content": "Good morning", "request_id": "r1"}, path) == {
        "content": "Hello.",
        "request_id": "r1",
    }
    assert server.rpc("cancel", {"request_id": "r1"}, path) == {
        "cancelled": False,
        "request_id": "r1",
        "reason": "not found or completed",
    }
    tokens = server.rpc("get_tokens", {}, path)
    assert list(tokens) == ["system", "tools", "messages", "total", "budget", "available"]
    assert tokens["system"] > 0 and tokens["messages"] > 0
    assert tokens["total"] == tokens["system"] + tokens["tools"] + tokens["messages"] < tokens["available"]
    assert server.rpc("get_context", {}, path) == {"message_count": 2, "system_prompt": True}
    assert set(server.rpc("compact", {}, path)) == {"compacted", "reason"}
    assert server.rpc("shutdown", {}, path) == {"success": True}
    assert server.rpc("destroy_agent", {"agent_id": "worker-1"}) == {"success": True, "agent_id": "worker-1"}
    assert set(DOCUMENTED) <= set(METHODS)


def test_agents_have_separate_sessions_and_their_own_prompts(server: Running, client: Client) -> None:
    for name in ("a", "b"):
        client.create_agent(name, system=f"You are agent {name}.").send(f"I am for {name}.")
    assert [info.agent_id for info in client.list_agents()] == ["a", "b"]
    assert [info.message_count for info in client.list_agents()] == [2, 2]
    for body, name in zip(server.model.bodies, ("a", "b"), strict=True):
        assert f"You are agent {name}." in json.dumps(body)
        assert json.dumps(body).count("I am for") == 1
    texts = [message.text() for message in client.agent("a").get_messages().messages]
    assert texts == ["I am for a.", "Hello."]


def test_agents_are_listed_by_age_and_without_the_destroyed(client: Client) -> None:
    names = [f"a{number}" for number in range(7)]
    for name in reversed(names):
        client.create_agent(name)
    for name in names[2:6]:
        client.destroy_agent(name)
    listed = client.list_agents()
    assert {info.agent_id for info in listed} == {"a0", "a1", "a6"}
    assert [info.created_at for info in listed] == sorted(info.created_at for info in listed)


def test_many_agents_are_answered_at_the_same_time(server: Running, client: Client) -> None:
    agents = [client.create_agent(f"a{number}") for number in range(30)]
    with ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda agent: agent.send("Hi", agent.agent_id), agents))
    assert [result.request_id for result in results] == [agent.agent_id for agent in agents]
    assert len(server.model.bodies) == 30
    assert {info.message_count for info in client.list_agents()} == {2}


def test_request_id_that_comes_again_is_answered_once(server: Running, client: Client) -> None:
    agent = client.create_agent("a")
    assert agent.send("Hi", "7") == agent.send("Hi", "7")
    assert len(server.model.bodies) == 1
    assert agent.send("Hi", 7).request_id == 7, "a number is another id than its text"
    assert client.create_agent("b").send("Hi", "7").content == "Hello."
    assert len(server.model.bodies) == 3
    error = failure(lambda: agent.send("Something else", "7"))
    assert (error.rpc_code, error.code) == (-32602, "idempotency_conflict") and "another message" in str(error)


def test_cancel_ends_a_request_and_frees_the_agent(server: Running, client: Client) -> None:
    server.model.script(hang(), reply("Done."))
    agent = client.create_agent("a")
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(agent.send, "Work for ever", "long")
        while not server.model.bodies:
            pass
        waiting = pool.submit(agent.send, "Next", "next")
        while not agent.cancel("next").cancelled:  # until it is accepted
            time.sleep(0.01)  # below the rate limit
        assert waiting.result() == forms.SendResult("next", cancelled=True)
        assert agent.cancel("long") == forms.CancelResult(cancelled=True, request_id="long")
        assert sending.result() == forms.SendResult("long", cancelled=True)
    assert agent.send("Go on").content == "Done."


def test_shut_down_agent_cancels_its_requests_and_accepts_no_more(server: Running, client: Client) -> None:
    server.model.script(hang())
    agent = client.create_agent("a")
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(agent.send, "Work for ever", "long")
        while not server.model.bodies:
            pass
        assert agent.shutdown()
        assert sending.result().cancelled
    refused = (lambda: agent.send("Hi"), lambda: agent.begin("Hi"), agent.assemble, agent.compact, agent.fork)
    assert {failure(call).code for call in refused} == {"agent_closed"}
    assert agent.get_messages().messages[0].text() == "Work for ever", "it can be read"
    assert agent.shutdown() and not agent.cancel("long").cancelled
    assert [info.should_shutdown for info in client.list_agents()] == [True]


def test_destroyed_agent_is_gone_and_its_id_continues_the_session(server: Running, client: Client) -> None:
    agent = client.create_agent("a")
    agent.send("Remember me")
    assert client.destroy_agent("a") and not client.destroy_agent("a")
    error = failure(lambda: agent.send("Hi"))
    assert (error.status, client.list_agents()) == (404, ())
    answer = json.loads(server.http("POST", "/agent/a", b'{"jsonrpc": "2.0", "id": 7, "method": "get_context"}')[2])
    assert (answer["id"], answer["error"]["code"]) == (7, -32000), "the refused request is named"
    client.create_agent("a")
    assert agent.get_context().message_count == 2
    assert failure(lambda: client.create_agent("a")).code == "bad_setting"


def test_failed_model_call_is_an_error_without_the_key(server: Running, client: Client) -> None:
    server.model.script(fail(401, "wrong key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"))
    error = failure(lambda: client.create_agent("a").send("Hi"))
    assert (error.rpc_code, error.code) == (-32000, "model_call_failed")
    assert "sk-proj" not in str(error)


def test_child_has_at_most_its_parents_rights(client: Client) -> None:
    client.create_agent("parent", permissions=["read", "write"], principal="ann", toolset="small")
    created = client.create_agent("child", permissions=["read"], parent_agent_id="parent")
    assert created.agent_id == "child"
    refused = {
        "permission": {"permissions": ["read", "root"]},
        "toolset": {"toolset": "all"},
        "principal": {"principal": "root"},
        "grandchild": {"permissions": ["write"], "parent_agent_id": "child"},
    }
    for name, settings in refused.items():
        values = {"parent_agent_id": "parent", **settings}
        error = failure(lambda name=name, values=values: client.create_agent(name, **values))
        assert error.code == "not_allowed", name
    assert failure(lambda: client.create_agent("x", parent_agent_id="nobody")).code == "no_such_agent"


def test_an_agent_takes_every_setting_of_a_call(server: Running, client: Client) -> None:
    settings = {
        "temperature": 0.2,
        "stop": ["END"],
        "blocks": {"Style": "Be terse."},
        "profile": "bare",
        "model": "gpt-4o",
    }
    agent = client.create_agent("a", system="You are a clerk.", **settings)
    agent.send("Hi")
    body = server.model.bodies[-1]
    assert (body["temperature"], body["stop"]) == (0.2, ["END"])
    assert client.create_agent("a", if_exists="continue", temperature=0.2).agent_id == "a"
    assert "another temperature" in str(
        failure(lambda: client.create_agent("a", if_exists="continue", temperature=0.9))
    )
    for name, wrong in {"temperature": 9, "strategy": "never", "permissions": [], "clock": 5}.items():
        error = server.rpc("create_agent", {"agent_id": "x", name: wrong})
        assert error["code"] in (-32602, -32000) and name in error["message"], name
    assert [info.agent_id for info in client.list_agents()] == ["a"]


def test_null_is_a_param_that_is_left_out(server: Running, client: Client) -> None:
    client.create_agent("parent", permissions=["read"], principal="ann")
    nothing = dict.fromkeys(("permissions", "principal", "system_prompt", "budget", "toolset"))
    server.rpc("create_agent", {"agent_id": "child", "parent_agent_id": "parent", **nothing})
    refused = failure(lambda: client.create_agent("grandchild", permissions=["write"], parent_agent_id="child"))
    assert refused.code == "not_allowed"


def test_fork_has_the_settings_and_the_history_up_to_a_turn(client: Client) -> None:
    agent = client.create_agent("a", system="You are terse.")
    for text in ("one", "two"):
        agent.send(text)
    fork = agent.fork("b", turn=1)
    assert [message.text() for message in fork.get_messages().messages] == ["one", "Hello."]
    assert fork.get_context().system_prompt
    assert fork.send("three").content == "Hello."
    assert agent.get_messages().total == 4
    assert failure(lambda: agent.fork("b")).code == "bad_setting"


def test_messages_are_returned_in_ranges(client: Client) -> None:
    agent = client.create_agent("a")
    for text in ("one", "two"):
        agent.send(text)
    part = agent.get_messages(offset=1, limit=2)
    assert ([message.text() for message in part.messages], part.total) == (["Hello.", "two"], 4)
    assert agent.get_messages(offset=-1).messages[0].text() == "Hello."
    assert agent.get_messages(offset=9).messages == ()
    assert failure(lambda: agent.get_messages(limit=0)).code == "bad_setting"


def test_explain_lists_the_next_and_a_recorded_call(client: Client) -> None:
    agent = client.create_agent("a", system="You are terse.")
    agent.send("one")
    assert "You are terse." in str(agent.explain().lines)
    assert agent.explain(turn=1).call != agent.explain().call
    assert failure(lambda: agent.explain(turn=9)).code == "bad_reference"


def test_own_loop_stores_each_step(client: Client) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    agent = client.create_agent("a", system="You are terse.")
    assert agent.begin("Where is it?", "r1", tools) == forms.TurnState(1, "pending")
    assert agent.begin("Where is it?", "r1", tools).turn == 1
    sent = agent.assemble(tools=tools, format="openai")
    assert sent.body["messages"][-1]["content"].endswith("Where is it?") and sent.body["tools"]
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    response = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 50}}
    recorded = agent.record(response, sent.context_id)
    assert recorded.tool_calls == (ToolCall("c1", "look", "{}"),)
    assert agent.record(response, sent.context_id).tool_calls == recorded.tool_calls
    sent = agent.assemble([forms.CallResult("c1", "On the table.", "look")], tools)
    assert sent.format == "openai" and sent.turn == 1
    assert agent.record("It is on the table.", sent.context_id).status == "completed"
    assert [message.role for message in agent.get_messages().messages] == ["user", "assistant", "tool", "assistant"]
    assert failure(agent.assemble).code == "bad_event"


def test_reply_that_was_paid_for_is_stored_after_a_shutdown(client: Client) -> None:
    agent = client.create_agent("a")
    agent.begin("Hello?")
    sent = agent.assemble()
    agent.shutdown()
    assert agent.record("Hi.", sent.context_id).status == "completed"
    assert [message.text() for message in agent.get_messages().messages] == ["Hello?", "Hi."]


def test_failed_turn_keeps_what_had_arrived(client: Client) -> None:
    agent = client.create_agent("a")
    agent.begin("Hello?")
    assert agent.fail("connection lost", "connection", partial="Hel").status == "failed"
    assert "Hel" in agent.get_messages().messages[-1].text()


def test_reply_to_a_context_that_was_forgotten_is_recorded_with_a_warning(client: Client) -> None:
    agent = client.create_agent("a")
    agent.begin("Hello?")
    recorded = agent.record("Hi.", "1-0123456789abcdef")
    assert (recorded.status, len(recorded.warnings)) == ("completed", 1)


@pytest.mark.parametrize("limit", ["MAX_CONTEXTS", "MAX_CONTEXT_MESSAGES", "MAX_CONTEXT_BYTES", "MAX_ALL_BYTES"])
def test_context_that_others_displaced_is_assembled_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(contexts, limit, 1)
    agents = [client.create_agent(name) for name in ("a", "b")]
    ids: list[str] = []
    for agent in agents:
        agent.send("Before.")
        agent.begin("Hello?")
        ids.append(agent.assemble().context_id)
    warnings = [agent.record("Hi.", context).warnings for agent, context in zip(agents, ids, strict=True)]
    assert [len(some) for some in warnings] == [1, 0]


def test_late_reply_to_a_displaced_context_is_not_stored_in_the_turn_that_began_since(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "MAX_CONTEXTS", 1)
    agents = [client.create_agent(name) for name in ("a", "b")]
    agents[0].begin("What is A?")
    late = agents[0].assemble().context_id
    agents[0].begin("What is B?")
    agents[1].begin("Hello?")
    agents[1].assemble()
    assert failure(lambda: agents[0].record("A is 1.", late)).code == "turn_superseded"
    assert failure(lambda: agents[0].fail("no network", turn=1)).code == "turn_superseded"
    assert agents[0].record("B is 2.", agents[0].assemble().context_id).status == "completed"
    texts = [message.text() for message in agents[0].get_messages().messages]
    assert texts == ["What is A?", "What is B?", "B is 2."]


def test_mirror_takes_the_whole_list(client: Client) -> None:
    agent = client.create_agent("a")
    messages = [{"role": "user", "content": "Read the plan."}]
    sent = agent.mirror(messages)
    assert (sent.action, sent.body["messages"][-1]["content"]) == ("new", "Read the plan.")
    recorded = agent.record("I read it.", sent.context_id)
    repeated = agent.mirror(messages)
    assert (repeated.action, repeated.session) == ("repeat", recorded.session)
    assert agent.record("I read it.", repeated.context_id).session == recorded.session
    assert agent.record("Another answer.", agent.mirror(messages).context_id).session not in ("", recorded.session)
    messages += [{"role": "assistant", "content": "I read it."}, {"role": "user", "content": "And now?"}]
    again = agent.mirror(messages)
    assert (again.action, again.session) == ("append", recorded.session)
    assert client.create_agent("b").mirror(messages).action == "new", "lists of two agents never meet"


def test_mirror_keeps_conversations_apart_and_puts_earlier_messages_before_a_window(client: Client) -> None:
    agent, long = client.create_agent("a"), "Opening hours are on the door. " * 10
    items = [("user", "My card is 4111."), ("assistant", long), ("user", "Hours?"), ("assistant", "9 to 5.")]
    messages = [{"role": role, "content": text} for role, text in items]
    question = {"role": "user", "content": "And now?"}
    for options in ({}, {"conversation": "c1"}):
        agent.record(long, agent.mirror(messages[:1], **options).context_id)
        agent.record("9 to 5.", agent.mirror(messages[:3], **options).context_id)
        whole = agent.mirror([*messages[1:], question], **options)
        assert (whole.action, "4111" in str(whole.body)) == ("new", False)
        window = agent.mirror([*messages[1:], question], window=True, **options)
        assert (window.action, "4111" in str(window.body)) == ("append", True)
    assert agent.mirror([*messages, question], conversation="c2").action == "new"


CAMEL = {"Nexus-Case": "camel"}


def test_names_are_accepted_and_returned_in_camel_case(server: Running) -> None:
    created = server.rpc("create_agent", {"agentId": "a", "systemPrompt": "Be terse."}, **CAMEL)
    assert created == {"agentId": "a", "url": "/agent/a"}
    sent = server.rpc("send", {"content": "Hi", "requestId": 5}, "/agent/a", **CAMEL)
    assert sent == {"content": "Hello.", "requestId": 5}
    listed = server.rpc("list_agents", {}, **CAMEL)["agents"][0]
    assert {"agentId", "createdAt", "messageCount", "shouldShutdown"} <= set(listed)
    # Keys of the caller's own values stay: the request body has the provider's names.
    server.rpc("begin", {"content": "Hi"}, "/agent/a")
    body = server.rpc("assemble", {}, "/agent/a", **CAMEL)
    assert "contextId" in body and "max_tokens" not in body and "messages" in body["body"]
    results = {"results": [{"callId": "x", "content": "y", "isError": True}]}
    assert "no tool call 'x'" in server.rpc("assemble", results, "/agent/a")["message"]


def test_pages_of_an_allowed_origin_may_call_and_read(tmp_path: Path) -> None:
    origin = "https://app.example"
    with running(tmp_path, origins=[origin]) as server:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,nexus-case"}
        asked = {"Authorization": None, "Content-Type": None, **asked}
        status, headers, _ = server.http("OPTIONS", "/rpc", None, {"Origin": origin, **asked})
        assert (status, headers["access-control-allow-origin"]) == (200, origin)
        assert "access-control-allow-credentials" not in headers
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "list_agents"}'
        status, headers, _ = server.http("POST", "/rpc", body, {"Origin": origin})
        assert (status, headers["access-control-allow-origin"]) == (200, origin)
        for other in ("https://evil.example", "https://app.example.evil", "null"):
            status, headers, _ = server.http("OPTIONS", "/rpc", None, {"Origin": other, **asked})
            assert status == 403 and "access-control-allow-origin" not in headers


def test_methods_of_agents_by_name(server: Running) -> None:
    assert server.rpc("create_agent", {"agent_id": "a", "system_prompt": "Be terse."})["agent_id"] == "a"
    assert server.rpc("send", {"agent_id": "a", "content": "Hi", "request_id": "r"})["content"] == "Hello."


WRONG_PARAMS: dict[str, tuple[str, Any, str]] = {
    "unknown": ("create_agent", {"sytem_prompt": "x"}, "did you mean 'system_prompt'"),
    "tenant in the body": ("create_agent", {"tenant_id": "other"}, "unknown"),
    "parent permissions in the body": ("create_agent", {"parent_permissions": ["root"]}, "unknown"),
    "wrong type": ("create_agent", {"agent_id": 7}, "expected `str | null`"),
    "both cases": ("create_agent", {"agent_id": "x", "agentId": "y"}, "twice|both|once"),
    "by position": ("create_agent", ["a", "Be terse."], "an array"),
    "a case": ("list_agents", {"case": "camel"}, "unknown"),
    "no agent": ("send", {"content": "x"}, "agent_id missing"),
    "agent of a number": ("send", {"agent_id": 5, "content": "x"}, "agent_id"),
}


@pytest.mark.parametrize("name", WRONG_PARAMS)
def test_wrong_params_are_named(server: Running, name: str) -> None:
    method, params, text = WRONG_PARAMS[name]
    error = server.rpc(method, params)
    assert error["code"] == -32602
    assert any(word in error["message"] for word in text.split("|")), error["message"]


BAD_IDS = ("", " ", "a/b", "..", " a", "a\nb", "x" * 201, "a\x1b[31m", "\u202eabc")


@pytest.mark.parametrize("agent_id", BAD_IDS)
def test_invalid_agent_id_is_rejected(client: Client, agent_id: str) -> None:
    assert failure(lambda: client.create_agent(agent_id)).code in ("bad_setting", "bad_session_key")


def test_id_with_spaces_and_signs_is_quoted_in_the_url(client: Client) -> None:
    agent = client.create_agent("team a: worker?1#%2F ü")
    assert agent.send("Hi").content == "Hello."


def test_tool_loop_of_the_server_joins_the_texts_of_its_steps(tmp_path: Path) -> None:
    def look(place: str) -> str:
        """Look at a place."""
        return f"{place}: empty"

    steps = (reply("I look.", ToolCall("c1", "look", '{"place": "desk"}')), reply("It is empty."))
    with running(tmp_path, *steps, tools=[look]) as server:
        agent = server.client().create_agent("a")
        assert agent.send("Look.").content == "I look.\n\nIt is empty."
        assert agent.get_tokens().tools > 0


def test_response_of_the_model_is_scripted_by_a_function(tmp_path: Path) -> None:
    def step(request: Any) -> Response:
        return reply(f"{len(request.body['messages'])} messages")(request)

    with running(tmp_path, step) as server:
        assert server.client().create_agent("a").send("Hi").content.endswith("messages")


def test_create_agent_continues_an_existing_agent_with_the_same_settings(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.client()
        for _ in range(2):  # a program that runs twice
            agent = client.create_agent("a", system="You are terse.", if_exists="continue")
            assert agent.send("Hi", "r1").content == "Hello."
        assert len(server.model.bodies) == 1
        assert client.create_agent("a", if_exists="continue").get_messages().total == 2
        with pytest.raises(ServerCallFailed, match="another system_prompt"):
            client.create_agent("a", system="You are verbose.", if_exists="continue")
        with pytest.raises(ServerCallFailed, match="exists \\(pass if_exists"):
            client.create_agent("a")
        agent.shutdown()
        with pytest.raises(ServerCallFailed, match="was shut down") as caught:
            client.create_agent("a", if_exists="continue")
        assert caught.value.code == "agent_closed"
        client.destroy_agent("a")
        assert client.create_agent("a", if_exists="continue").send("Hi", "r2").content == "Hello."
    with running(tmp_path) as server:
        assert server.client().create_agent("a", if_exists="continue").get_messages().total == 4


def test_two_servers_that_continue_an_agent_at_once_have_the_same_one(tmp_path: Path) -> None:
    with running(tmp_path) as one, running(tmp_path) as other, ThreadPoolExecutor(8) as pool:
        clients = [one.client(), other.client()] * 4
        for number in range(5):
            name = f"agent-{number}"
            made = list(pool.map(lambda client, name=name: client.create_agent(name, if_exists="continue"), clients))
            assert {agent.agent_id for agent in made} == {name}
        assert len(one.client().list_agents()) == 5


def test_child_that_continues_keeps_within_its_parent(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.client()
        client.create_agent("parent", permissions=["read"])
        for _ in range(2):
            client.create_agent("child", parent_agent_id="parent", if_exists="continue")
        with pytest.raises(ServerCallFailed, match="another permissions"):
            client.create_agent("child", permissions=["write"], parent_agent_id="parent", if_exists="continue")
        with pytest.raises(ServerCallFailed, match="if_exists"):
            server.client().call(
                "create_agent", forms.CreateAgent(agent_id="b", if_exists="replace"), forms.AgentCreated
            )  # type: ignore[arg-type]


def test_refusal_before_a_method_has_a_kind(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        error = failure(server.client("wrong").list_agents)
        assert (error.code, error.status) == ("wrong_token", 401)
        error = failure(server.client().agent("nobody").get_tokens)
        assert (error.code, error.status) == ("no_such_agent", 404)
        error = failure(lambda: next(server.client("wrong").stream("/agent/a/events")))
        assert (error.code, error.status) == ("wrong_token", 401)
