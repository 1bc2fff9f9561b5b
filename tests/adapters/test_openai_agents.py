"""Agents of OpenAI Agents with `NexusSession`: budget, loss, failures, runs in flight, and every kind of item."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    Session,
    SQLiteSession,
    WebSearchTool,
    function_tool,
)
from agents.run import CallModelData, ModelInputData
from click.testing import CliRunner
from pydantic import BaseModel

import nexus
from nexus.adapters.openai_agents import NexusSession
from nexus.adapters.openai_agents_calls import definitions
from nexus.cli import cli
from nexus.testing.model_server import ModelServer, fail, model_server, reply
from support.agent_model import BUDGET, AgentModel, check_ledger, run_figures, said, words

TURNS = 20
IMAGE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@function_tool
def lookup(query: str) -> str:
    """Looks something up; some lookups fail."""
    if sum(map(ord, query)) % 5 == 0:
        raise RuntimeError("the index is gone")
    return words(300, query)


async def converse(url: str, memory: NexusSession, turns: int, *, streamed: bool = False, **agent: Any) -> list[Any]:
    """Return the messages of the conversation as the runner has them."""
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        model = OpenAIChatCompletionsModel("gpt-4o", client)
        helper = Agent("helper", instructions="You are careful. " * 20, model=model, **(agent or {"tools": [lookup]}))
        config = RunConfig(call_model_input_filter=memory, tracing_disabled=True)
        items: list[Any] = []
        for turn in range(turns):
            text: Any = f"Turn {turn}: {words(30, str(turn))}"
            if turn in (3, 17):
                text = [with_image(text)]
            if streamed:
                result: Any = Runner.run_streamed(helper, text, session=memory, hooks=memory, run_config=config)
                assert len([event async for event in result.stream_events()]) > 60
            else:
                result = await Runner.run(helper, text, session=memory, hooks=memory, run_config=config)
            items = [*items, *result.to_input_list()[-len(result.new_items) - 1 :]]
        return items


def with_image(text: str) -> Any:
    return {
        "role": "user",
        "content": [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": IMAGE}],
    }


@pytest.mark.parametrize("mode", ["plain", "streamed"])
def test_agent_stays_in_budget_and_loses_nothing(mode: str, record_property: Callable[..., None]) -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, model_server(model) as server:
        memory = NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET)
        items = asyncio.run(converse(server.openai_url, memory, TURNS, streamed=mode == "streamed"))
        messages = nexus.read_messages(items, "responses")
        record_property("figures", run_figures(f"openai-agents {mode}", model, nx, messages))
    content = str(said(messages))
    assert content.count("'image'") == 2
    assert "An error occurred while running the tool" in content


def test_new_object_continues_the_stored_session() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, model_server(model) as server:
        first, later = (NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET) for _ in range(2))
        asyncio.run(converse(server.openai_url, first, 2))
        assert asyncio.run(later.get_items()) == asyncio.run(first.get_items())
        asyncio.run(converse(server.openai_url, later, 2))
        check_ledger(nx, nexus.read_messages(asyncio.run(later.get_items()), "responses"))


def test_popped_item_is_not_sent_and_stays_in_the_ledger() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, model_server(model) as server:
        memory = NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET)
        assert isinstance(memory, Session)
        items = asyncio.run(converse(server.openai_url, memory, 2))
        assert asyncio.run(memory.pop_item()) == items[-1]
        assert asyncio.run(memory.get_items(limit=1)) == [items[-2]]
        asyncio.run(converse(server.openai_url, memory, 1))
        branch, trunk = nx.sessions()
        assert said(nx.history(trunk.label)) == said(nexus.read_messages(items, "responses"))
        assert said(nx.history(branch.label)) == said(nexus.read_messages(asyncio.run(memory.get_items()), "responses"))
    assert not model.problems


async def run(server: ModelServer, memory: NexusSession, text: Any, *, responses: bool = False, **agent: Any) -> Any:
    """Run an agent once and return its result."""
    async with openai.AsyncOpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client:
        kind: Any = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
        helper = Agent(**{"name": "helper", "model": kind("gpt-4o", client), **agent})
        config = RunConfig(call_model_input_filter=memory, tracing_disabled=True)
        return await Runner.run(helper, text, session=memory, hooks=memory, run_config=config)


def stored(nx: nexus.Engine) -> list[Any]:
    return sorted(said(nx.history(session.label)) for session in nx.sessions())


ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": IMAGE}]},
    {
        "role": "user",
        "content": [{"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"], "results": None},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1",
        "container_id": "c",
        "outputs": [],
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
    {"type": "mcp_list_tools", "id": "ml_1", "server_label": "docs", "tools": []},
    {"type": "mcp_call", "id": "mc_1", "server_label": "docs", "name": "f", "arguments": "{}", "output": "ok"},
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "cc_1",
        "status": "completed",
        "action": {"type": "wait"},
        "pending_safety_checks": [],
    },
    {"type": "computer_call_output", "call_id": "cc_1", "output": {"type": "computer_screenshot", "image_url": IMAGE}},
    {"type": "shell_call", "id": "sh_1", "call_id": "sc_1", "status": "completed", "action": {"commands": ["ls"]}},
    {
        "type": "shell_call_output",
        "call_id": "sc_1",
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    {
        "type": "apply_patch_call",
        "id": "ap_1",
        "call_id": "ac_1",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "a"},
    },
    {"type": "apply_patch_call_output", "call_id": "ac_1", "status": "failed", "output": "no such file"},
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "ctc_1", "name": "sql", "input": "SELECT 1"},
    {"type": "custom_tool_call_output", "call_id": "ctc_1", "output": "1"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"},
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": IMAGE}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "text": "Done",
                "annotations": [
                    {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 4}
                ],
            }
        ],
    },
]


async def filtered(memory: NexusSession, items: list[Any], **agent: Any) -> list[Any]:
    """Return the input that a model gets for items."""
    data = CallModelData(ModelInputData(items, "Be brief."), Agent("a", model="gpt-5.5", **agent), None)
    return (await memory(data)).input


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.get("type", "user"))
def test_every_kind_of_item_is_sent_as_it_is(item: Any) -> None:
    """Alone, with what belongs to it, and between all others: the same objects, also when nothing else is."""
    partner = [other for other in ITEMS if item.get("call_id") and other.get("call_id") == item["call_id"]] or [item]
    if item.get("type") == "reasoning":
        partner = [item, ITEMS[-1]]  # the API refuses it alone
    for items in (partner, ITEMS):
        own = [{"role": "user", "content": "Begin"}, *items, {"role": "user", "content": "Go on"}]
        with nexus.open(ledger=":memory:") as nx:
            sent = asyncio.run(filtered(NexusSession("chat", nx), own))
        assert [*map(id, sent)] == [*map(id, own)]


@pytest.mark.parametrize("budget", [3_000, 4_000, 5_000, 6_000, 8_000])
def test_items_that_are_left_are_the_same_objects_in_pairs(budget: int) -> None:
    long = [{"role": role, "content": words(200, f"{role}{n}")} for n in range(20) for role in ("user", "assistant")]
    own = [*long, *ITEMS[3:], {"role": "user", "content": "Go on"}]
    with nexus.open(ledger=":memory:") as nx:
        sent = asyncio.run(filtered(NexusSession("chat", nx, budget=budget), own))
    assert len(sent) < len(own)
    ids = {id(item) for item in own}
    assert all(id(item) in ids for item in sent if item.get("role") != "user" and item.get("type") != "message")
    calls, outputs = (
        sorted(item["call_id"] for item in sent if item.get("type", "").endswith(end)) for end in ("_call", "_output")
    )
    assert calls == outputs


def test_session_does_what_the_framework_s_own_does() -> None:
    async def compare(nx: nexus.Engine) -> None:
        own, ours, rng = SQLiteSession("chat"), NexusSession("chat", nx), random.Random(7)
        other = NexusSession("other", nx)
        await other.add_items(ITEMS)
        for number in range(60):
            limit = rng.choice([None, 0, 1, 3, -1])
            assert await own.get_items(limit) == await ours.get_items(limit)
            match rng.randrange(8):
                case 0:
                    await own.clear_session()
                    await ours.clear_session()
                case 1 | 2:
                    assert await own.pop_item() == await ours.pop_item()
                case _:
                    items: list[Any] = [{"role": "user", "content": f"{number}"}, *rng.sample(ITEMS, 2)][
                        : rng.randrange(4)
                    ]
                    await own.add_items(items)
                    await ours.add_items(items)
        own.close()
        assert await other.get_items() == ITEMS
        await ours.clear_session()
        assert len(nx.ledger.store.documents("adapter:openai-agents:item")) == len(ITEMS)

    with nexus.open(ledger=":memory:") as nx:
        asyncio.run(compare(nx))


def test_writers_of_two_processes_lose_nothing(tmp_path: Path) -> None:
    async def write(name: str) -> None:
        async with nexus.open_async(ledger=tmp_path / "ledger.db") as nx:
            for number in range(10):
                await NexusSession("chat", nx).add_items([{"role": "user", "content": f"{name}{number}"}])

    async def write_all() -> list[Any]:
        await asyncio.gather(*map(write, "abc"))
        async with nexus.open_async(ledger=tmp_path / "ledger.db") as nx:
            return await NexusSession("chat", nx).get_items()

    texts = [item["content"] for item in asyncio.run(write_all())]
    assert sorted(texts) == sorted(f"{name}{number}" for name in "abc" for number in range(10))


def test_sessions_and_users_never_meet() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server(reply("Hi.")) as server:
        for user, name in (("ann", "a"), ("ann", "b"), ("bob", "a")):
            memory = NexusSession(name, nx, principal=user)
            assert asyncio.run(memory.get_items()) == []
            asyncio.run(run(server, memory, "Hello"))
        assert stored(nx) == [[("user", "Hello"), ("assistant", "Hi.")]] * 3
        with pytest.raises(nexus.NexusError, match="no id"):
            NexusSession("", nx)


def test_runs_in_flight_on_one_object_keep_their_calls_apart() -> None:
    """Answers arrive in the other order than the questions were asked."""

    def answer(request: Any) -> Any:
        question = request.body["messages"][-1]["content"]
        interval = 0.001 if question == "slow" else 0
        return reply(f"answer to {question}", byte_interval_s=interval)(request)

    async def both(server: ModelServer, memory: NexusSession) -> None:
        await asyncio.gather(*(run(server, memory, text) for text in ("slow", "fast")))

    with nexus.open(ledger=":memory:") as nx, model_server(answer) as server:
        asyncio.run(both(server, NexusSession("chat", nx)))
        histories = stored(nx)
    assert histories == [[("user", text), ("assistant", f"answer to {text}")] for text in ("fast", "slow")]


def test_failed_call_leaves_nothing_and_the_next_one_is_right() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server(fail(500, "down"), reply("Hi.")) as server:
        memory = NexusSession("chat", nx)
        with pytest.raises(openai.InternalServerError):
            asyncio.run(run(server, memory, "Hello"))
        assert nx.sessions() == []
        asyncio.run(run(server, memory, "Again"))
        check_ledger(nx, nexus.read_messages(asyncio.run(memory.get_items()), "responses"))


def test_message_over_the_budget_is_not_sent() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server() as server:
        with pytest.raises(nexus.BudgetTooSmall, match="nothing was sent"):
            asyncio.run(run(server, NexusSession("chat", nx, budget=300), words(900, "long")))
        assert server.bodies == []


def test_session_goes_on_when_a_message_over_the_budget_was_popped() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server(reply("Hi.")) as server:
        memory = NexusSession("chat", nx, budget=300)
        for text in (words(900, "long"), "Short"):  # both wait for an answer, and are never cut
            with pytest.raises(nexus.BudgetTooSmall):
                asyncio.run(run(server, memory, text))
        for _ in range(2):
            asyncio.run(memory.pop_item())
        asyncio.run(run(server, memory, "Short"))
        assert check_ledger(nx, nexus.read_messages(asyncio.run(memory.get_items()), "responses")) == 2


def test_run_goes_on_if_its_call_cannot_be_recorded(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(NexusSession):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            usage, response.usage = response.usage, None
            await super().on_llm_end(context, agent, response)
            response.usage = usage

    with nexus.open(ledger=":memory:") as nx, model_server(reply("Hi.")) as server:
        assert asyncio.run(run(server, Failing("chat", nx), "Hello")).final_output == "Hi."
    (record,) = [record for record in caplog.records if record.name.startswith("nexus")]
    assert (record.name, record.levelno) == ("nexus.adapters.openai_agents", logging.WARNING)


@pytest.mark.parametrize("responses", [False, True])
def test_usage_and_stop_reason_are_recorded(*, responses: bool) -> None:
    step = reply("Hi.", input_tokens=900, output_tokens=7, cache_read_tokens=600, reasoning_tokens=3)
    with nexus.open(ledger=":memory:") as nx, model_server(step) as server:
        asyncio.run(run(server, NexusSession("chat", nx), "Hello", responses=responses))
        (session,) = nx.sessions()
        (turn,) = nx.ledger.turns(session.label)
        (entry,) = [entry for entry in nx.ledger.entries(session.label) if entry.body.get("usage")]
    used = {"input_tokens": 900, "output_tokens": 7, "cache_read_tokens": 600, "cache_write_tokens": 0}
    assert entry.body["usage"] == {**used, "reasoning_tokens": 3}
    assert turn.stop_reason == "end_turn"


def test_handoff_and_its_tool_are_one_conversation() -> None:
    call = nexus.ToolCall("call_1", "transfer_to_expert", "{}")
    with nexus.open(ledger=":memory:") as nx, model_server(reply("", call), reply("I know.")) as server:

        async def converse() -> list[Any]:
            async with openai.AsyncOpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client:
                model = OpenAIChatCompletionsModel("gpt-4o", client)
                expert = Agent("expert", model=model, instructions="You know.")
                front = Agent("front", model=model, handoffs=[expert])
                memory = NexusSession("chat", nx, budget=4_000)
                config = RunConfig(call_model_input_filter=memory, tracing_disabled=True)
                result = await Runner.run(front, "Hello", session=memory, hooks=memory, run_config=config)
                assert result.final_output == "I know."
                return await memory.get_items()

        check_ledger(nx, nexus.read_messages(asyncio.run(converse()), "responses"))


def test_tools_and_output_type_count() -> None:
    class Answer(BaseModel):
        number: int

    tools = [
        [lookup],
        [WebSearchTool()],
        [FileSearchTool(vector_store_ids=["v"])],
        [CodeInterpreterTool({"type": "code_interpreter", "container": {"type": "auto"}})],
        [
            HostedMCPTool(
                {"type": "mcp", "server_label": "docs", "server_url": "https://a.example", "require_approval": "never"}
            )
        ],
    ]
    offers = [{}, *({"tools": some} for some in tools), {"output_type": Answer}, {"handoffs": [Agent("other")]}]
    agents = [Agent("helper", **offer) for offer in offers]
    definition_lists = [definitions(agent, [*agent.tools, *agent.handoffs]) for agent in agents]
    counted = [nexus.count_tokens("Hello", model="gpt-5.5", tools=found) for found in definition_lists]
    assert min(counted[1:]) > counted[0]


def test_commands_show_recorded_calls(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with nexus.open(ledger=path) as nx, model_server(AgentModel()) as server:
        asyncio.run(converse(server.openai_url, NexusSession("chat", nx, budget=BUDGET), 5))
        (session,) = nx.sessions()
    for command in (["explain"], ["context"], ["cache", "show"], ["history"]):
        result = CliRunner().invoke(cli, [*command, "--ledger", str(path), session.label])
        assert result.exit_code == 0, (command, result.output)
        assert result.output.strip()


def test_items_of_a_person_are_erased() -> None:
    async def talk(nx: nexus.Engine) -> None:
        ann, bob = (NexusSession("chat", nx, principal=name) for name in ("ann", "bob"))
        for session in (ann, bob):
            await session.add_items([{"role": "user", "content": "Hi"}])
        nx.ledger.upkeep.erase_principal("ann")
        assert await ann.get_items() == []
        assert len(await bob.get_items()) == 1

    with nexus.open(ledger=":memory:") as nx:
        asyncio.run(talk(nx))
