"""Sessions of agents of document 004: text as it comes, failures, and compaction by themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import nexus
from compat.nexus3.rpc.pools import answering, components, is_summary, run, script, sent_texts, weather
from compat.nexus3.talks import Listener, texts
from nexus.compat.nexus3.context import ContextConfig, ContextManager
from nexus.compat.nexus3.context.logger import LedgerLogger
from nexus.compat.nexus3.rpc.pool import AgentConfig, AgentPool
from nexus.compat.nexus3.rpc.session import Session
from nexus.compat.nexus3.session import LogConfig, SessionLogger
from nexus.errors import BadSetting, BudgetTooSmall, ModelCallFailed
from nexus.ledger.sqlite import SqliteLedger
from nexus.models import RetryPolicy, open_client
from nexus.testing.model_server import break_stream, fail, hang, reply
from nexus.tools import ToolRegistry

SMALL = ContextConfig(max_tokens=1_400, reserve_tokens=200)


@pytest.fixture(autouse=True)
def _prompt(tmp_path: Path) -> None:
    (tmp_path / "NEXUS.md").write_text("Use tabs.")


def test_send_yields_the_text_as_it_comes(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> list[str]:
        agent = await pool.create("a")
        return [piece async for piece in agent.session.send("Count.")]

    with script(reply("one two three")) as server:
        assert run(components(server, tmp_path), work) == ["one ", "two ", "three"]


def test_failure_of_the_provider_is_raised_and_the_next_send_works(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        with pytest.raises(ModelCallFailed) as caught:
            await agent.session.answer("Hello?")
        assert caught.value.failure_kind == "auth"
        assert await agent.session.answer("And now?") == "Hi."
        assert texts(agent.context.messages)[1:] == ["Hello?", "And now?", "Hi."]
        assert [turn.status for turn in agent.logger.ledger.turns("a")] == ["failed", "completed"]

    with script(fail(401, "wrong key"), reply("Hi.")) as server:
        run(components(server, tmp_path), work)


def test_text_that_begins_again_follows_a_blank_line(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> list[str]:
        agent = await pool.create("a")
        text = "".join([piece async for piece in agent.session.send("Count.")])
        return [text, texts(agent.context.messages)[-1]]

    with script(break_stream(reply("one two three"), "disconnect", after=2), reply("one two three")) as server:
        retries = RetryPolicy(first_delay_s=0.01)
        shared = components(server, tmp_path)
        shared = type(shared)(
            shared.config, open_client(base_url=server.openai_url, retries=retries), shared.prompt_loader, tmp_path
        )
        text, stored = run(shared, work)
    assert text.endswith("\n\none two three") and text.startswith("one")
    assert stored == "one two three"


@pytest.mark.parametrize("strategy", ["oldest_first", "middle_out"])
def test_session_that_overflows_compacts_and_loads_its_prompt_again(tmp_path: Path, strategy: str) -> None:
    """Document 004, "Compaction" 1 to 5, in the call that would not fit."""

    async def work(pool: AgentPool) -> None:
        config = ContextConfig(SMALL.max_tokens, SMALL.reserve_tokens, strategy)
        agent = await pool.create("a", AgentConfig(context=config))
        await agent.session.answer("Remember port 8080. " + "word " * 100)
        (tmp_path / "NEXUS.md").write_text("Use spaces.")
        for number in range(8):
            await agent.session.answer(f"Message {number}. " + "word " * 100)
        assert "Use spaces." in agent.context.system_prompt
        start, summary, *rest = texts(agent.context.messages)
        assert start.startswith("[Session started: ")
        assert summary.startswith("[CONTEXT SUMMARY]\n")
        assert rest[-1] == "Hi."
        assert not agent.context.is_over_budget()
        assert len([text for text in texts(agent.logger.history()) if text.startswith("Message")]) == 8

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)
        bodies = [body for body in server.bodies if not is_summary(body)]
    compacted = [any("[CONTEXT SUMMARY]" in str(m["content"]) for m in body["messages"]) for body in bodies]
    first = compacted.index(True)
    assert first > 1
    assert all(compacted[first:])
    for body, is_compacted in zip(bodies, compacted, strict=True):
        prompt = body["messages"][0]["content"]
        assert ("Use spaces." in prompt, "Use tabs." in prompt) == (is_compacted, not is_compacted)
        assert body["messages"][1]["content"].startswith("[Session started: ")
    with nexus.open(ledger=tmp_path / "logs" / "ledger.db", model="gpt-4o") as nx:
        for turn, body in enumerate(bodies, 1):
            assert nx.replay("a", turn).to_openai()["messages"] == body["messages"]


NOTES = "## Task\n> Answer the messages.\n\n## Facts\n- The port is 8080.\n\n## Identifiers\n- port 8080"


async def talk(agent: Any, turns: int = 9) -> None:
    """Send messages that overflow a small context."""
    await agent.session.answer("Remember port 8080. " + "word " * 100)
    for number in range(turns - 1):
        await agent.session.answer(f"Message {number}. " + "word " * 100)


def test_summary_of_a_session_is_written_by_its_agents_model(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        one = await pool.create("a", AgentConfig(context=SMALL, model="gpt-4o-mini"))
        other = await pool.create("b", AgentConfig(context=SMALL))
        await asyncio.gather(talk(one), talk(other))
        assert "The port is 8080." in texts(one.context.messages)[1]
        for agent, model in ((one, "gpt-4o-mini"), (other, "gpt-4o")):
            entries = agent.logger.ledger.entries(agent.agent_id)
            bodies = [entry.body for entry in entries if entry.kind == "compaction"]
            assert {(body["model"], body["provider"]) for body in bodies} == {(model, "openai")}
            assert all(body["call_tokens"] > body["call_output_tokens"] > 0 for body in bodies)

    with script(answering("Hi.", reply(NOTES))) as server:
        run(components(server, tmp_path), work)
        assert {body["model"] for body in server.bodies if is_summary(body)} == {"gpt-4o", "gpt-4o-mini"}


@pytest.mark.parametrize("summary", [fail(401, "wrong key"), reply("Sure! I will do that."), fail(500, "down")])
def test_summary_is_extractive_when_the_agents_model_fails(tmp_path: Path, summary: Any) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a", AgentConfig(context=SMALL))
        await talk(agent)
        assert texts(agent.context.messages)[1].startswith("[CONTEXT SUMMARY]\n")
        assert {turn.status for turn in agent.logger.ledger.turns("a")} == {"completed"}

    with script(answering("Hi.", summary)) as server:
        run(components(server, tmp_path), work)


def test_slow_summary_of_one_agent_does_not_hold_up_another(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        one, other = [await pool.create(name, AgentConfig(context=SMALL)) for name in "ab"]
        task = asyncio.create_task(talk(one))
        for _ in range(2_000):
            if any(map(is_summary, server.bodies)):
                break
            await asyncio.sleep(0.01)
        assert await asyncio.wait_for(other.session.answer("Hello."), 10) == "Hi."
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert one.logger.ledger.turns("a")[-1].status == "interrupted"
        assert not [entry for entry in one.logger.ledger.entries("a") if entry.kind == "compaction"]

    with script(answering("Hi.", hang())) as server:
        run(components(server, tmp_path), work)


def test_compaction_by_hand_uses_the_agents_model(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a", AgentConfig(context=ContextConfig(max_tokens=3_000, reserve_tokens=200)))
        await talk(agent, 12)
        outcome = await agent.session.compact("the port")
        assert (outcome.method, "The port is 8080." in outcome.summary) == ("gpt-4o", True)
        assert "the port" in str([body for body in server.bodies if is_summary(body)][-1])

    with script(answering("Hi.", reply(NOTES))) as server:
        run(components(server, tmp_path), work)


def test_messages_are_those_of_the_last_call_after_a_compaction(tmp_path: Path) -> None:
    """Document 004, "Context Synchronization": "what's in `_messages` equals what's in the LLM's context window"."""

    async def work(pool: AgentPool) -> list[str]:
        agent = await pool.create("a", AgentConfig(context=SMALL, system_prompt="Be brief."))
        for number in range(12):
            await agent.session.answer(f"{number}: " + "word " * 90)
        return texts(agent.context.messages)

    with script(reply("Hi.")) as server:
        start, summary, *messages, last = run(components(server, tmp_path), work)
        sent = sent_texts(server.bodies[-1])
    assert (start, last) == (sent[0], "Hi.")
    assert summary.endswith(sent[1])
    assert [text.strip() for text in messages] == [text.strip() for text in sent[2:]]


def test_messages_are_those_of_the_last_call_after_a_cut(tmp_path: Path) -> None:
    """A compaction that was undone is not made again: the next call is cut."""

    async def work(pool: AgentPool) -> list[str]:
        agent = await pool.create("a", AgentConfig(context=SMALL, system_prompt="Be brief."))
        log = agent.logger.ledger
        for number in range(9):
            await agent.session.answer(f"{number}: " + "word " * 90)
            if log.live("a").checkpoint is not None:
                break
        log.undo("a")
        await agent.session.answer("Last.")
        return texts(agent.context.messages)

    with script(reply("Hi.")) as server:
        messages = run(components(server, tmp_path), work)
        sent = sent_texts(server.bodies[-1])
    words = [text.strip() for text in messages if text[:1].isdigit()]
    assert 0 < len(words) < 7
    assert words == [text.strip() for text in sent if text[:1].isdigit()]
    assert messages[-2:] == [sent[-1], "Hi."]


def test_message_that_never_fits_is_an_error_and_stores_nothing(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a", AgentConfig(context=SMALL))
        with pytest.raises(BudgetTooSmall):
            await agent.session.answer("word " * 5_000)
        assert len(agent.context.messages) == 1
        assert await agent.session.answer("Hello!") == "Hi."

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)


def test_sends_of_one_session_follow_each_other(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        await asyncio.gather(*(agent.session.answer(str(number)) for number in range(5)))
        said = texts(agent.context.messages)[1:]
        assert sorted(said[::2]) == list("01234")
        assert said[1::2] == ["Hi."] * 5

    with script(reply("Hi.", event_interval_s=0.01)) as server:
        run(components(server, tmp_path), work)


def test_consumer_that_stops_early_interrupts_the_turn(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        pieces = agent.session.send("Count.")
        first = await anext(pieces)
        await pieces.aclose()
        assert texts(agent.context.messages)[1:] == ["Count.", first]
        assert agent.logger.ledger.turns("a")[0].status == "interrupted"

    with script(reply("one two three four", event_interval_s=0.05)) as server:
        run(components(server, tmp_path), work)


def test_session_runs_alone_over_its_logger(tmp_path: Path) -> None:
    """Document 004, "Creation Patterns" 1, with a local zone, then in another process's ledger."""

    async def main(text: str) -> list[str]:
        provider = open_client(base_url=server.openai_url)
        with SessionLogger(LogConfig(tmp_path / "logs", "alone")) as logger:
            context = ContextManager(logger=logger, timezone="local")
            context.set_system_prompt("You are helpful.")
            registry = ToolRegistry([weather])
            context.set_tool_definitions(registry.get_definitions())
            session = Session(provider, context=context, logger=logger, registry=registry, model="gpt-4o")
            await session.answer(text)
            said = texts(context.messages)
            await session.close()
            await session.close()
        await provider.aclose()
        return said

    with script(reply("Hi.")) as server:
        assert asyncio.run(main("Hello!"))[1:] == ["Hello!", "Hi."]
        assert asyncio.run(main("Again!"))[1:] == ["Hello!", "Hi.", "Again!", "Hi."]
        assert server.bodies[1]["messages"][0]["content"] == "You are helpful."
        assert "(local)" in server.bodies[1]["messages"][1]["content"]


def test_logger_of_the_program_receives_what_the_agent_does() -> None:
    """Document 004, "With Session Logger": "Messages are automatically logged"."""

    async def main() -> list[tuple[Any, ...]]:
        listener = Listener()
        context = ContextManager(logger=listener)
        context.set_system_prompt("You are helpful.")
        provider = open_client(base_url=server.openai_url)
        session = Session(provider, context=context, registry=ToolRegistry([weather]), model="gpt-4o")
        await session.answer("Weather?")
        await session.close()
        await provider.aclose()
        return listener.told

    with script(reply("", nexus.ToolCall("c1", "weather", '{"city": "Rome"}')), reply("Sunny.")) as server:
        told = asyncio.run(main())
    assert [row[0] for row in told] == ["system", "user", "user", "assistant", "tool", "assistant"]
    assert told[-2:] == [("tool", "c1", "weather", "Sunny in Rome."), ("assistant", "Sunny.", ())]


def test_session_rejects_a_context_with_another_log(tmp_path: Path) -> None:
    provider = open_client(base_url="http://127.0.0.1:9/v1")
    logger = SessionLogger(LogConfig(tmp_path))
    for context, other in (
        (ContextManager(logger=LedgerLogger(SqliteLedger())), None),
        (ContextManager(), logger),
    ):
        with pytest.raises(BadSetting, match="another log"):
            Session(provider, context=context, logger=other)
    logger.close()
