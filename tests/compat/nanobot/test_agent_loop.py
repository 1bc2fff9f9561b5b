"""Document 003's running parts: its printed loop, `AgentLoop` on a bus, and sessions that are saved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.compat.nanobot.agent.context import ContextBuilder
from nexus.compat.nanobot.agent.loop import AgentLoop
from nexus.compat.nanobot.agent.memory import MemoryStore
from nexus.compat.nanobot.bus.events import InboundMessage, OutboundMessage
from nexus.compat.nanobot.bus.queue import MessageBus
from nexus.compat.nanobot.providers.base import LLMProvider
from nexus.compat.nanobot.session.manager import SessionManager
from nexus.errors import BadReply
from nexus.models import Models, open_client
from nexus.testing.model_server import ModelServer, fail, hang, model_server, reply
from nexus.tools import ToolRegistry

CALL = nexus.ToolCall("call_123", "list_dir", '{"path": "."}')
"""The call of document 003, "add_assistant_message"."""


def list_dir(path: str) -> str:
    """List a folder."""
    return f"AGENTS.md SOUL.md in {path}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


def provider_at(server: ModelServer) -> LLMProvider:
    return LLMProvider(Models({"gpt-4o": open_client(base_url=server.openai_url)}), "gpt-4o")


def test_the_documents_loop_runs_with_only_the_prefix_changed(tmp_path: Path, server: ModelServer) -> None:
    """Document 003, the examples of "build_messages", "add_assistant_message" and "add_tool_result", in their order."""
    workspace, tools = tmp_path, ToolRegistry([list_dir])
    (workspace / "SOUL.md").write_text("You are Aya.")
    server.script(reply("I'll list the files in the current directory.", CALL), reply("There are two."))

    async def main() -> list[dict[str, Any]]:
        provider = provider_at(server)
        context = ContextBuilder(workspace)
        sessions = SessionManager(workspace)
        session = sessions.get_or_create("cli:user123")
        # Get recent history
        history = session.get_history(max_messages=100)
        messages = context.build_messages(
            history=history, current_message="List files", channel="cli", chat_id="user123"
        )
        # Send to LLM
        response = await provider.chat(messages=messages, tools=tools.get_definitions())
        while response.has_tool_calls:
            # Add assistant response with tool calls
            messages = context.add_assistant_message(
                messages, response.content, [call.to_openai_tool_call() for call in response.tool_calls]
            )
            for call in response.tool_calls:
                # Execute tool and add result
                tool_result = await tools.execute(call.name, call.arguments)
                messages = context.add_tool_result(
                    messages, tool_call_id=call.id, tool_name=call.name, result=tool_result
                )
            response = await provider.chat(messages=messages, tools=tools.get_definitions())
        context.add_assistant_message(messages, response.content)
        for message in messages[1 + len(history) :]:
            session.add_message(**message)
        sessions.save(session)
        await provider.aclose()
        sessions.close()
        return messages

    messages = asyncio.run(main())
    first, second = server.bodies
    assert first["messages"] == messages[:2]
    assert "You are Aya." in messages[0]["content"]
    assert second["messages"][2]["tool_calls"][0]["function"] == {"name": "list_dir", "arguments": '{"path":"."}'}
    assert second["messages"][3]["content"] == "AGENTS.md SOUL.md in ."
    with SessionManager(workspace) as sessions:
        assert sessions.get_or_create("cli:user123").get_history() == messages[1:]


def test_provider_returns_the_reply_with_usage_and_thinking(server: ModelServer) -> None:
    server.script(reply("Hi.", thinking="A greeting.", input_tokens=7, output_tokens=2))

    async def main() -> None:
        provider = provider_at(server)
        response = await provider.chat([{"role": "user", "content": "Hello"}], max_tokens=50, temperature=0.5)
        assert (response.content, response.reasoning_content, response.finish_reason) == ("Hi.", "A greeting.", "stop")
        assert response.usage == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        await provider.aclose()

    asyncio.run(main())
    assert server.bodies[0]["temperature"] == 0.5


def run_loop(
    workspace: Path, server: ModelServer, work: Callable[[AgentLoop, MessageBus], Awaitable[None]], **options: Any
) -> None:
    """Run a loop while `work` talks to its bus."""

    async def main() -> None:
        bus = MessageBus()
        loop = AgentLoop(bus, provider_at(server), workspace, tools=[list_dir], builtin=False, **options)
        running = asyncio.ensure_future(loop.run())
        try:
            async with asyncio.timeout(30):
                await work(loop, bus)
        finally:
            loop.stop()
            await running
            await loop.close()

    asyncio.run(main())


def test_loop_answers_messages_of_channels_in_their_sessions(tmp_path: Path, server: ModelServer) -> None:
    """Document 003, "Runtime Context": channel and chat id; its session keys are `channel:chat_id`."""
    server.script(reply("I look.", CALL), reply("There are two."), reply("Good morning."))

    async def work(loop: AgentLoop, bus: MessageBus) -> None:
        await bus.publish_inbound(InboundMessage("telegram", "ann", "12345", "List files", metadata={"thread": 7}))
        assert await bus.consume_outbound() == OutboundMessage("telegram", "12345", "There are two.", {"thread": 7})
        await bus.publish_inbound(InboundMessage("cli", "ben", "user123", "Hello"))
        assert (await bus.consume_outbound()).content == "Good morning."
        assert [one["key"] for one in loop.sessions.list_sessions()] == ["cli:user123", "telegram:12345"]
        history = loop.sessions.get_or_create("telegram:12345").get_history()
        assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant"]
        assert history[2]["name"] == "list_dir"

    run_loop(tmp_path, server, work)
    (_, user), *_ = (body["messages"] for body in server.bodies)
    assert "Channel: telegram\nChat ID: 12345" in str(user["content"]).replace("\\n", "\n")


def test_process_direct_returns_the_answer_and_reports_progress(tmp_path: Path, server: ModelServer) -> None:
    server.script(reply("I look.", CALL), reply("There are two."))
    progress: list[str] = []

    async def note(text: str) -> None:
        progress.append(text)

    async def work(loop: AgentLoop, _: MessageBus) -> None:
        assert await loop.process_direct("List files", on_progress=note) == "There are two."
        assert len(loop.sessions.get_or_create("cli:direct").get_history()) == 4

    run_loop(tmp_path, server, work)
    assert progress == ["I look."]


def test_failed_turn_and_invalid_message_are_answered_with_the_error(tmp_path: Path, server: ModelServer) -> None:
    server.script(fail(400, "model asleep"))

    async def work(loop: AgentLoop, bus: MessageBus) -> None:
        await bus.publish_inbound(InboundMessage("cli", "ann", "1", "Hello"))
        assert "model asleep" in (await bus.consume_outbound()).content
        assert "model asleep" in await loop.process_direct("Hello")
        await bus.publish_inbound(InboundMessage("cli", "ann", "", "Hello"))
        assert (await bus.consume_outbound()).content.startswith("Sorry, that failed: ")

    run_loop(tmp_path, server, work)


def test_message_of_a_stopped_loop_is_answered_after_the_next_start(tmp_path: Path, server: ModelServer) -> None:
    server.script(hang())

    async def begin(_: AgentLoop, bus: MessageBus) -> None:
        await bus.publish_inbound(InboundMessage("telegram", "ann", "12345", "Hello"))
        while not server.requests:  # noqa: ASYNC110 - the server runs in another thread
            await asyncio.sleep(0.01)

    run_loop(tmp_path, server, begin)
    server.script(reply("Good morning."))

    async def wait(_: AgentLoop, bus: MessageBus) -> None:
        assert await bus.consume_outbound() == OutboundMessage("telegram", "12345", "Good morning.")

    run_loop(tmp_path, server, wait)


def test_sessions_store_added_messages_when_saved(tmp_path: Path) -> None:
    with SessionManager(tmp_path) as sessions:
        session = sessions.get_or_create("cli:a")
        session.add_message("user", "Hi")
        assert session.get_history() == [{"role": "user", "content": "Hi"}]
        assert sessions.get_or_create("cli:a") is session
        assert sessions.engine.history("cli:a") == []
        sessions.save(session)
        session.add_message("assistant", "Hello", reasoning_content="A greeting.", thinking_blocks=[BLOCK])
        sessions.save(session)
        assert [turn.status for turn in sessions.engine.ledger.turns("cli:a")] == ["completed"]
        session.add_message("user", "not saved")
        sessions.invalidate("cli:a")
        _, answer = sessions.get_or_create("cli:a").get_history()
    assert answer == {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "A greeting.",
        "thinking_blocks": [BLOCK],
    }


BLOCK = {"type": "thinking", "thinking": "A greeting.", "signature": "c2ln"}


def test_cleared_session_hides_its_messages_and_keeps_them_in_the_ledger(tmp_path: Path) -> None:
    with SessionManager(tmp_path) as sessions:
        session = sessions.get_or_create("cli:a")
        session.append([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
        session.clear()
        assert session.get_history() == []
        session.add_message("user", "Again")
        sessions.save(session)
        assert session.get_history() == [{"role": "user", "content": "Again"}]
        assert [message.text() for message in sessions.engine.history("cli:a")] == ["Hi", "Hello", "Again"]


def test_invalid_message_is_refused_when_it_is_added(tmp_path: Path) -> None:
    with SessionManager(tmp_path) as sessions:
        session = sessions.get_or_create("cli:a")
        with pytest.raises(BadReply, match="role"):
            session.add_message("robot", "x")
        assert session.messages == []


def test_list_sessions_has_keys_times_and_the_ledgers_path(tmp_path: Path) -> None:
    with SessionManager(tmp_path, clock_ms=lambda: 1_700_000_000_000) as sessions:
        sessions.get_or_create("cli:a").append([{"role": "user", "content": "Hi"}])
        (row,) = sessions.list_sessions()
        assert row["key"] == "cli:a"
        assert row["updated_at"] == row["created_at"] == "2023-11-14T22:13:20Z"
        assert Path(row["path"]).is_file()


def test_signed_thinking_of_recorded_replies_is_in_the_history(tmp_path: Path) -> None:
    parts = (nexus.types.message.Thinking("A greeting.", "c2ln"), nexus.Text("Hello"))
    with nexus.open(tmp_path) as nx:
        ctx = nx.assemble("Hi", session="cli:a")
        nx.record(ctx, nexus.AgentResult((nexus.Message("assistant", parts),)))
    with SessionManager(tmp_path) as sessions:
        answer = sessions.get_or_create("cli:a").get_history()[-1]
    assert (answer["reasoning_content"], answer["thinking_blocks"]) == ("A greeting.", [BLOCK])


def test_the_history_log_grows_with_sessions_and_compactions(tmp_path: Path, server: ModelServer) -> None:
    """Document 003, "Memory Integration": "History log: Searchable conversation log in HISTORY.md"."""
    server.script(*(reply(f"Answer {number}.") for number in range(6)))
    log = tmp_path / "memory" / "HISTORY.md"

    async def work(loop: AgentLoop, bus: MessageBus) -> None:
        await bus.publish_inbound(InboundMessage("telegram", "ann", "12345", "Which index do we use?"))
        await bus.consume_outbound()
        assert "Session 'telegram:12345'" in log.read_text() and "Which index do we use?" in log.read_text()
        for number in range(4):
            await loop.process_direct(f"The port of server {number} is {8000 + number}. " + "It is taken. " * 200)
        assert log.read_text().count("Session ") == 2, "each session once"
        assert loop.sessions.engine.compact("cli:direct", profile="workspace", budget=3_000)
        await loop.process_direct("And now?")
        assert "Summary of session 'cli:direct' before entry" in log.read_text()
        assert loop.history_error == ""
        assert MemoryStore(tmp_path).search("index")[0].text.startswith("Session 'telegram:12345'")

    run_loop(tmp_path, server, work)


def test_a_history_log_that_cannot_be_written_fails_no_answer(tmp_path: Path, server: ModelServer) -> None:
    server.script(reply("Hi."))
    (tmp_path / "memory" / "HISTORY.md").mkdir(parents=True)

    async def work(loop: AgentLoop, _: MessageBus) -> None:
        assert await loop.process_direct("Hello") == "Hi."
        assert "HISTORY.md" in loop.history_error

    run_loop(tmp_path, server, work)
