"""The pool of agents of document 004, against a model server on the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import nexus
from compat.nexus3.rpc.pools import add, components, requests, run, script, sent_texts, weather
from compat.nexus3.talks import texts
from nexus.compat.nexus3.rpc.pool import Agent, AgentConfig, AgentPool
from nexus.errors import AgentError, BadSetting, ModelCallFailed, NotAllowed
from nexus.testing.model_server import hang, reply
from support.errors import has_code


@pytest.fixture(autouse=True)
def _prompt(tmp_path: Path) -> None:
    (tmp_path / "NEXUS.md").write_text("Be brief.")


async def answer(agent: Agent, text: str) -> str:
    return "".join([piece async for piece in agent.session.send(text)])


def test_agents_share_the_provider_and_have_each_a_conversation(tmp_path: Path) -> None:
    """Document 004, "Key points" 1 and 2."""

    async def work(pool: AgentPool) -> None:
        one, other = await pool.create("one"), await pool.create("other")
        await asyncio.gather(answer(one, "Hello, one!"), answer(other, "Hello, other!"))
        assert texts(one.context.messages)[1:] == ["Hello, one!", "Hi."]
        assert texts(other.context.messages)[1:] == ["Hello, other!", "Hi."]
        assert (len(pool), "one" in pool, [agent.agent_id for agent in pool]) == (2, True, ["one", "other"])

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)
        assert [len(body["messages"]) for body in server.bodies] == [3, 3]


def test_prompt_is_the_loaders_for_a_server_unless_the_agent_has_its_own(tmp_path: Path) -> None:
    """Document 004, "Key points" 3, "System Prompt Override"."""

    async def work(pool: AgentPool) -> None:
        default, own = await pool.create("a"), await pool.create(config=AgentConfig("b", "You are special."))
        assert "Be brief." in default.context.system_prompt
        assert default.context.system_prompt.endswith("Mode: HTTP JSON-RPC Server")
        await answer(default, "Hello!")
        await answer(own, "Hello!")

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)
        prompts = [body["messages"][0] for body in server.bodies]
    assert prompts[0]["content"].startswith("# Personal Configuration\nBe brief.")
    assert prompts[1] == {"role": "system", "content": "You are special."}


def test_registry_defines_the_tools_of_context_and_calls(tmp_path: Path) -> None:
    """Document 004, "Key points" 4: "Injected into context from the agent's SkillRegistry"."""

    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        assert await answer(agent, "Weather?") == "Let me look.\n\nIt is sunny."
        assert agent.context.get_tool_definitions() == agent.registry.get_definitions()
        assert texts(agent.context.messages)[1:] == [
            "Weather?", "Let me look.", "weather?", "!Sunny in Rome.", "It is sunny.",
        ]  # fmt: skip

    call = nexus.ToolCall("c1", "weather", '{"city": "Rome"}')
    with script(reply("Let me look.", call), reply("It is sunny.")) as server:
        run(components(server, tmp_path, tools=[weather, add]), work)
        assert [tool["function"]["name"] for tool in server.bodies[0]["tools"]] == ["add", "weather"]


def test_session_begins_with_its_start_when_an_agent_is_created(tmp_path: Path) -> None:
    """Document 004, "Temporal Context" 2: "Added to message history when a new agent is created"."""

    async def work(pool: AgentPool) -> str:
        agent = await pool.create("a")
        (first,) = texts(agent.context.messages)
        await answer(agent, "Hello!")
        assert texts(agent.context.messages)[0] == first
        return first

    with script(reply("Hi.")) as server:
        first = run(components(server, tmp_path), work)
        sent = server.bodies[0]["messages"]
    assert first.startswith("[Session started: ")
    assert sent[1] == {"role": "user", "content": first}
    assert sent[2]["content"].startswith("Current date: ")


def test_pool_continues_the_session_of_an_id_that_its_log_has(tmp_path: Path) -> None:
    async def first(pool: AgentPool) -> list[str]:
        agent = await pool.create("a")
        await answer(agent, "Hello!")
        return texts(agent.context.messages)

    async def again(pool: AgentPool) -> list[str]:
        agent = await pool.create("a")
        before = texts(agent.context.messages)
        await answer(agent, "And now?")
        return before

    with script(reply("Hi.")) as server:
        before = run(components(server, tmp_path), first)
        assert run(components(server, tmp_path), again) == before
        assert sent_texts(server.bodies[1]) == [*before, "And now?"]


def test_log_has_prompt_start_and_messages_and_replays_each_call(tmp_path: Path) -> None:
    """Document 004, "Agent": "SessionLogger (writes to agent's log directory)"."""

    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        await answer(agent, "Hello!")
        agent.context.set_system_prompt("You are somebody else.")
        await answer(agent, "Who are you?")
        prompt, start, *rest = texts(agent.logger.history())
        assert prompt.startswith("# Personal Configuration")
        assert start.startswith("[Session started: ")
        assert rest == ["Hello!", "Hi.", "You are somebody else.", "Who are you?", "Hi."]

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)
        bodies = server.bodies
    assert bodies[1]["messages"][0]["content"] == "You are somebody else."
    with nexus.open(ledger=tmp_path / "logs" / "ledger.db", model="gpt-4o") as nx:
        for turn, body in enumerate(bodies, 1):
            assert nx.replay("a", turn).to_openai()["messages"] == body["messages"]
        assert [turn.status for turn in nx.ledger.turns("a")] == ["completed", "completed"]


def test_agent_without_an_id_gets_a_new_one(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        ids = {(await pool.create()).agent_id, (await pool.create(config=AgentConfig())).agent_id}
        assert len(ids) == 2
        assert all(pool.get(agent_id) for agent_id in ids)

    with script() as server:
        run(components(server, tmp_path), work)


def test_id_that_is_unknown_in_use_or_invalid_is_reported(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        await pool.create("a")
        assert pool.get("b") is None
        assert await pool.destroy("b") is False
        for arguments in (("a", None), (None, AgentConfig("a"))):
            with pytest.raises(BadSetting, match="agent 'a' exists"):
                await pool.create(*arguments)
        with pytest.raises(BadSetting, match="two ids"):
            await pool.create("b", AgentConfig("c"))
        with pytest.raises(BadSetting, match="blank"):
            await pool.create(" ")
        with pytest.raises(BadSetting, check=has_code("bad_session_key")):
            await pool.create("dm: ")
        with pytest.raises(BadSetting, match="parent agent 'x' not found"):
            await pool.create("b", AgentConfig(parent_agent_id="x"))
        with pytest.raises(BadSetting, match="tool 'x' not found"):
            await pool.create("b", AgentConfig(tools=("x",)))
        assert len(pool) == 1
        results = await asyncio.gather(*(pool.create("twice") for _ in range(2)), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Agent", "BadSetting"]

    with script() as server:
        run(components(server, tmp_path), work)


def test_child_has_at_most_what_its_parent_has(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        await pool.create("parent", AgentConfig(tools=("add",), permissions=("read",)))
        child = await pool.create("child", AgentConfig(parent_agent_id="parent"))
        assert (child.config.tools, child.config.permissions) == (("add",), ("read",))
        assert [tool.name for tool in child.registry.tools()] == ["add"]
        grandchild = await pool.create("grandchild", AgentConfig(tools=(), parent_agent_id="child"))
        assert len(grandchild.registry) == 0
        with pytest.raises(NotAllowed, match="tool 'weather' not allowed: parent agent 'parent' lacks it"):
            await pool.create("more", AgentConfig(tools=("add", "weather"), parent_agent_id="parent"))
        with pytest.raises(NotAllowed, match="permission 'write' not allowed"):
            await pool.create("more", AgentConfig(permissions=("write",), parent_agent_id="child"))
        with pytest.raises(NotAllowed):
            await pool.create("more", AgentConfig(tools=("add",), parent_agent_id="grandchild"))
        assert child.logger.ledger.sessions.metadata("child").parent_session == "parent"
        await answer(child, "Weather?")
        assert texts(child.context.messages)[3].startswith("!there is no tool 'weather'")

    call = nexus.ToolCall("c1", "weather", '{"city": "Rome"}')
    with script(reply("", call), reply("I cannot.")) as server:
        run(components(server, tmp_path, tools=[weather, add]), work)
        assert [tool["function"]["name"] for tool in server.bodies[0]["tools"]] == ["add"]


def test_agent_that_is_destroyed_while_it_sends_keeps_what_had_arrived(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        pieces: list[str] = []

        async def destroy_after_two_pieces() -> None:
            async for piece in agent.session.send("Count."):
                pieces.append(piece)
                if len(pieces) == 2:
                    assert await pool.destroy("a") is True

        with pytest.raises(ModelCallFailed, match="canceled"):
            await destroy_after_two_pieces()
        assert pool.get("a") is None
        with pytest.raises(AgentError, check=has_code("agent_closed")):
            await answer(agent, "And now?")
        with pytest.raises(AgentError, check=has_code("agent_closed")):
            await agent.session.compact()
        again = await pool.create("a")
        assert texts(again.context.messages)[1:] == ["Count.", "".join(pieces)]
        assert again.logger.ledger.turns("a")[0].status == "interrupted"

    with script(reply("one two three four five six", event_interval_s=0.05)) as server:
        run(components(server, tmp_path), work)


def test_agent_that_takes_the_id_of_one_being_destroyed_has_its_prompt(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        running = asyncio.ensure_future(answer(agent, "Hello!"))
        await requests(server, 1)
        server.script(reply("Hi."))
        _, again = await asyncio.gather(pool.destroy("a"), pool.create("a", AgentConfig(system_prompt="Be new.")))
        await asyncio.wait([running])
        assert isinstance(running.exception(), ModelCallFailed)
        assert await answer(again, "And now?") == "Hi."

    with script(hang()) as server:
        run(components(server, tmp_path), work)
        assert server.bodies[-1]["messages"][0]["content"] == "Be new."


def test_pool_that_is_closed_while_agents_run_ends_their_turns(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agents = [await pool.create(name) for name in "abc"]
        running = [asyncio.ensure_future(answer(agent, "Hello!")) for agent in agents]
        await requests(server, 3)
        await pool.close()
        results = await asyncio.gather(*running, return_exceptions=True)
        assert [type(result) for result in results] == [ModelCallFailed] * 3
        with pytest.raises(AgentError, match="pool is closed", check=has_code("agent_closed")):
            await pool.create("d")
        await pool.close()

    with script(hang()) as server:
        run(components(server, tmp_path), work)
    with nexus.open(ledger=tmp_path / "logs" / "ledger.db") as nx:
        turns = [nx.ledger.turns(name)[0] for name in "abc"]
    assert {turn.status for turn in turns} == {"interrupted"}


def test_log_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def work(pool: AgentPool) -> None:
        with pytest.raises(BadSetting, match=r"log folder .* not created"):
            await pool.create("a")
        assert len(pool) == 0

    with script() as server:
        run(components(server, tmp_path, base_log_dir=tmp_path / "file" / "logs"), work)


def test_200_agents_of_a_pool_run_at_once(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agents = [await pool.create(f"agent-{number}") for number in range(200)]
        texts_ = await asyncio.gather(*(answer(agent, f"I am {agent.agent_id}.") for agent in agents))
        assert set(texts_) == {"Hi."}
        for agent in agents:
            assert texts(agent.context.messages)[1:] == [f"I am {agent.agent_id}.", "Hi."]

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)
        assert len(server.requests) == 200
