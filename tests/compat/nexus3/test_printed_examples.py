"""Every code example of document 004 as it is printed, with only the import paths changed, and what it does.

Names that an example uses and does not define (`provider`, `logger`, `registry`, `config`) are defined before it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from compat.nexus3.talks import AT, Clock, texts
from nexus.compat.nexus3.context import (
    ContextConfig,
    ContextManager,
    PromptLoader,
    SimpleTokenCounter,
    TiktokenCounter,
    build_summarize_prompt,
    create_summary_message,
    get_token_counter,
    select_messages_for_compaction,
)
from nexus.compat.nexus3.context.compaction import CompactionResult, compact_messages
from nexus.compat.nexus3.context.logger import LedgerLogger
from nexus.compat.nexus3.context.prompt_loader import FilePromptSource, get_system_info
from nexus.compat.nexus3.core import Message, Role, ToolCall, ToolResult
from nexus.compat.nexus3.rpc.dispatcher import Dispatcher
from nexus.compat.nexus3.rpc.pool import AgentConfig, AgentPool, SharedComponents
from nexus.compat.nexus3.rpc.session import Session
from nexus.compat.nexus3.session import LogConfig, SessionLogger
from nexus.ledger.sqlite import SqliteLedger
from nexus.models import open_client
from nexus.testing.model_server import model_server, reply
from nexus.tools import ToolRegistry
from nexus.types.config import Config
from nexus.workspace.environment.machine import this_system


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home and a project, each with its NEXUS.md; the project is the working directory."""
    for folder, text in (("home/.nexus3", "Be brief.\n"), ("project", "Use tabs.\n")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "NEXUS.md").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NEXUS_HOME")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def read_file(path: str) -> str:
    """Reads a file."""
    return Path(path).read_text()


def test_creation_in_a_repl() -> None:
    """Document 004, "Creation Patterns", 1."""

    async def main() -> None:
        provider, logger = open_client(base_url=server.openai_url), SessionLogger(LogConfig())
        registry = ToolRegistry([read_file])

        # Load system prompt
        prompt_loader = PromptLoader()
        loaded_prompt = prompt_loader.load()  # is_repl=True by default

        # Create context manager
        context = ContextManager(
            config=ContextConfig(),
            logger=logger,  # SessionLogger for logging
        )
        context.set_system_prompt(loaded_prompt.content)

        # Inject tool definitions
        context.set_tool_definitions(registry.get_definitions())

        # Create session with context
        session = Session(provider, context=context, logger=logger, registry=registry)

        assert loaded_prompt.content.endswith("Mode: Interactive REPL"), "is_repl=True by default"
        assert "".join([piece async for piece in session.send("Hello!")]) == "Hi there!"
        assert texts(context.messages)[1:] == ["Hello!", "Hi there!"]
        assert context.build_messages()[0] == {"role": "system", "content": loaded_prompt.content}
        assert context.get_token_usage()["tools"] > 0
        assert texts(logger.history())[0] == loaded_prompt.content
        (body,) = server.bodies
        assert body["messages"][:2] == context.build_messages()[:2]
        assert [tool["function"]["name"] for tool in body["tools"]] == ["read_file"]
        await session.close()
        logger.close()
        await provider.aclose()

    with model_server(reply("Hi there!")) as server:
        asyncio.run(main())
    assert Path(".nexus3/logs/ledger.db").is_file()


@pytest.mark.parametrize("override", [None, "You are a specialized assistant."])
def test_creation_for_an_agent_with_a_prompt_of_its_own_or_the_shared_one(override: str | None) -> None:
    """Document 004, "Creation Patterns", 2, and "Integration with AgentPool": "System Prompt Override"."""

    async def main() -> None:
        provider, logger = open_client(base_url=server.openai_url), SessionLogger(LogConfig())
        registry = ToolRegistry([read_file])
        shared = SharedComponents(config=Config(), provider=provider, prompt_loader=PromptLoader())
        agent_config = AgentConfig(system_prompt=override)

        # Determine system prompt (can be overridden per-agent)
        if agent_config.system_prompt is not None:
            system_prompt = agent_config.system_prompt
        else:
            loaded_prompt = shared.prompt_loader.load(is_repl=False)
            system_prompt = loaded_prompt.content

        # Create context manager for this agent
        context = ContextManager(
            config=ContextConfig(),
            logger=logger,  # Agent's own SessionLogger
        )
        context.set_system_prompt(system_prompt)

        # Inject tool definitions
        context.set_tool_definitions(registry.get_definitions())

        # Context is passed to Session and Dispatcher
        session = Session(provider, context=context, logger=logger, registry=registry)
        dispatcher = Dispatcher(session, context=context)

        assert await dispatcher.send("Hello!", "r1") == {"content": "Hi there!", "request_id": "r1"}
        assert await dispatcher.get_tokens() == context.get_token_usage()
        assert context.system_prompt == (override or shared.prompt_loader.load(is_repl=False).content)
        assert ("Mode: HTTP JSON-RPC Server" in context.system_prompt) == (override is None)
        assert server.bodies[0]["messages"][0]["content"] == context.system_prompt
        await dispatcher.shutdown()
        logger.close()
        await provider.aclose()

    with model_server(reply("Hi there!")) as server:
        asyncio.run(main())


def test_with_agent_pool() -> None:
    """Document 004, "With AgentPool (Multi-Agent)"."""

    async def main() -> None:
        config, provider = Config(), open_client(base_url=server.openai_url)

        # Create shared components
        shared = SharedComponents(
            config=config,
            provider=provider,
            prompt_loader=PromptLoader(),
            base_log_dir=Path(".nexus3/logs"),
        )
        pool = AgentPool(shared)

        # Create agent (gets its own ContextManager)
        agent = await pool.create(agent_id="worker-1")

        # Access agent's context
        usage = agent.context.get_token_usage()
        messages = agent.context.messages  # Read-only copy

        # Create agent with custom system prompt
        custom_agent = await pool.create(
            config=AgentConfig(
                agent_id="custom-worker",
                system_prompt="You are a specialized assistant.",
            )
        )

        assert usage["total"] == usage["system"] + usage["messages"] > 0
        messages.clear()
        assert texts(agent.context.messages)[0].startswith("[Session started: ")
        assert "Use tabs." in agent.context.system_prompt
        assert custom_agent.context.system_prompt == "You are a specialized assistant."
        assert [piece async for piece in custom_agent.session.send("Hello!")] == ["Hi ", "there!"]
        assert len(agent.context.messages) == 1, "isolated"
        await pool.close()
        await provider.aclose()

    with model_server(reply("Hi there!")) as server:
        asyncio.run(main())


def test_core_has_the_values_of_messages() -> None:
    """Document 004, "Dependencies": `Message`, `Role`, `ToolCall`, `ToolResult`."""
    message = Message(Role.ASSISTANT, "I look.", (ToolCall("c1", "read", {"path": "a.py"}),))
    assert message.role == "assistant" == Role.ASSISTANT
    context = ContextManager()
    context.add_user_message("Read a.py.")
    context.add_assistant_message(message.content, message.tool_calls)
    context.add_tool_result("c1", "read", ToolResult("print(1)"))
    assert [said.role for said in context.messages] == [Role.USER, Role.USER, Role.ASSISTANT, Role.TOOL]
    assert [said.content for said in context.messages[1:]] == ["Read a.py.", "I look.", "print(1)"]
    assert context.messages[2] == message and context.messages[2].tool_calls[0].arguments == {"path": "a.py"}
    sent = context.build_messages()
    assert sent[-1].role is Role.TOOL and (sent[-1].tool_call_id, sent[-1].content) == ("c1", "print(1)")
    assert sent[-2]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a.py"}'}
    assert get_token_counter().count_messages(sent) == context.get_token_usage()["messages"]


def test_agents_of_one_ledger_have_each_a_history_of_its_own() -> None:
    """Document 004, "Key points": "Each agent has its own ContextManager with independent message history"."""
    store = SqliteLedger()
    one, other = (ContextManager(logger=LedgerLogger(store, name)) for name in ("worker-1", "worker-2"))
    one.set_system_prompt("One.")
    one.add_user_message("Hello, one!")
    other.add_user_message("Hello, other!")
    assert (texts(one.messages)[1:], texts(other.messages)[1:]) == (["Hello, one!"], ["Hello, other!"])
    assert other.system_prompt == ""
    assert texts(ContextManager(logger=LedgerLogger(store, "worker-2")).messages)[1:] == ["Hello, other!"]


def test_basic_context_management() -> None:
    """Document 004, "Basic Context Management"."""
    loader = PromptLoader()
    prompt = loader.load()

    config = ContextConfig(max_tokens=8000, reserve_tokens=2000)
    context = ContextManager(config)
    context.set_system_prompt(prompt.content)

    context.add_user_message("Hello!")
    context.add_assistant_message("Hi there!")

    messages = context.build_messages()
    tools = context.get_tool_definitions()

    assert [one["role"] for one in messages] == ["system", "user", "user", "assistant"]
    assert messages[0]["content"] == prompt.content
    assert messages[2]["content"].endswith("\n\nHello!") and messages[3]["content"] == "Hi there!"
    assert tools == []


@pytest.mark.parametrize(("words", "is_over"), [(10, False), (9_000, True)])
def test_check_token_usage(words: int, is_over: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Document 004, "Check Token Usage", and "Token Budget": 8000, less 2000 reserved, is 6000."""
    context = ContextManager()
    context.add_user_message("word " * words)

    usage = context.get_token_usage()
    print(f"Total: {usage['total']} / {usage['budget']}")
    print(f"Available: {usage['available']}")

    if context.is_over_budget():
        print("Context will be truncated on next build_messages()")

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"Total: {usage['system'] + usage['tools'] + usage['messages']} / 8000", "Available: 6000"]
    assert len(lines) == (3 if is_over else 2)


def test_custom_token_counter() -> None:
    """Document 004, "Custom Token Counter"."""
    counter = get_token_counter()
    assert isinstance(counter, TiktokenCounter)

    counter = get_token_counter(use_tiktoken=False)
    assert isinstance(counter, SimpleTokenCounter)
    assert counter.count("Hello, world!") == 4, "13 characters"

    counter = TiktokenCounter(encoding_name="cl100k_base")
    tokens = counter.count("Hello, world!")
    assert tokens == 4, "`Hello`, `,`, ` world`, `!`"


def test_custom_prompt_sources(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Document 004, "Custom Prompt Sources"."""
    sources = [
        FilePromptSource(Path("/custom/path/NEXUS.md")),
        FilePromptSource(Path.home() / ".nexus3" / "NEXUS.md"),
    ]

    loader = PromptLoader(personal_sources=sources)
    result = loader.load()
    print(f"Personal from: {result.personal_path}")
    print(f"Project from: {result.project_path}")

    assert capsys.readouterr().out.splitlines() == [
        f"Personal from: {home / '.nexus3' / 'NEXUS.md'}",
        f"Project from: {Path.cwd() / 'NEXUS.md'}",
    ]
    assert "Be brief." in result.content and "Use tabs." in result.content


def test_http_server_mode() -> None:
    """Document 004, "HTTP Server Mode": "Mode: HTTP JSON-RPC Server"; "Terminal" in REPL mode only."""
    loader = PromptLoader()
    result = loader.load(is_repl=False)
    assert result.content.endswith("\nMode: HTTP JSON-RPC Server")
    assert "Terminal:" not in result.content


def test_with_session_logger() -> None:
    """Document 004, "With Session Logger": "Messages are automatically logged"."""
    log_config = LogConfig()

    logger = SessionLogger(log_config)
    context = ContextManager(
        config=ContextConfig(),
        logger=logger,
    )

    context.set_system_prompt("You are helpful.")
    assert texts(logger.history())[-1] == "You are helpful."
    context.add_user_message("Hello!")
    assert texts(logger.history())[-1] == "Hello!"
    logger.close()


def test_the_layers_of_a_repl_stand_as_they_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Document 004, "Combination", each line of it, and the first message of a new session's history."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    monkeypatch.setenv("TERM", "xterm-256color")
    this_system.cache_clear()
    try:
        context = ContextManager(clock="system", timezone="Europe/London", clock_ms=Clock(AT))
        context.set_system_prompt(PromptLoader().load().content)
    finally:
        this_system.cache_clear()
    system, first = context.build_messages()
    assert system["content"] == (
        "# Personal Configuration\nBe brief.\n\n"
        "# Project Configuration\nUse tabs.\n\n"
        "# Environment\n"
        "Current date: 2026-01-13, Current time: 14:30 (local)\n"
        f"Working directory: {Path.cwd()}\n"
        "Operating system: Linux (WSL2 on Windows)\n"
        "Terminal: vscode (xterm-256color)\n"
        "Mode: Interactive REPL"
    )
    assert first == {"role": "user", "content": "[Session started: 2026-01-13 14:30 (local)]"}


def test_message_selection_compaction_and_a_prompt_that_is_read_again() -> None:
    """Document 004, "Compaction": its five steps, with "Message Selection" and "System Prompt Reloading"."""
    counter = get_token_counter()
    context = ContextManager(token_counter=counter)
    context.set_system_prompt(PromptLoader().load().content)
    for number in range(60):
        context.add_user_message(f"Step {number}. " + "It is to be done with care. " * 10)
    Path("NEXUS.md").write_text("Use spaces.\n")

    to_summarize, to_preserve = select_messages_for_compaction(
        messages=context.messages,
        token_counter=counter,
        available_budget=6000,
        recent_preserve_ratio=0.25,
    )
    asked = build_summarize_prompt(to_summarize)
    summary_msg, preserved = create_summary_message("The first steps are done."), to_preserve

    loader = PromptLoader()
    fresh_prompt = loader.load().content

    context.apply_compaction(
        summary_message=summary_msg,
        preserved_messages=preserved,
        new_system_prompt=fresh_prompt,
    )

    assert "Step 0." in asked and "Step 59." not in asked
    assert 0 < counter.count_messages(to_preserve[1:]) <= 1500, "a quarter of 6000; the first is the session's start"
    assert counter.count_messages([*to_summarize[-1:], *to_preserve[1:]]) > 1500, "one more would not fit"
    assert context.messages == [to_preserve[0], summary_msg, *to_preserve[1:]]
    assert "Use spaces." in context.system_prompt and "Use tabs." not in context.system_prompt


def test_integration_with_context_manager() -> None:
    """Document 004, "Integration with ContextManager", with the result's four fields."""
    context = ContextManager()
    for number in range(60):
        context.add_user_message(f"Step {number}. " + "It is to be done with care. " * 10)
    before = context.token_counter.count_messages(context.messages)
    result = compact_messages(context.messages, context.token_counter, 2_000)
    assert isinstance(result, CompactionResult)
    fresh_prompt = "You are helpful."

    context.apply_compaction(
        summary_message=result.summary_message,
        preserved_messages=result.preserved_messages,
        new_system_prompt=fresh_prompt,
    )

    assert context.system_prompt == "You are helpful."
    assert context.messages[1] == result.summary_message
    assert context.messages[1].content.startswith("[CONTEXT SUMMARY]\nThe following is a summary")
    assert result.original_token_count == before
    assert result.new_token_count == context.token_counter.count_messages(context.messages)


@pytest.mark.parametrize("strategy", ["oldest_first", "middle_out"])
def test_the_log_on_disk_keeps_what_truncation_took_out_of_messages(strategy: str, tmp_path: Path) -> None:
    """Document 004, "Context Synchronization": "The SQLite log retains the complete history for auditing"."""
    store = SqliteLedger(str(tmp_path / "ledger.db"))
    context = ContextManager(ContextConfig(800, 200, strategy), logger=LedgerLogger(store))
    said = [f"{number}: " + "word " * 40 for number in range(30)]
    for text in said:
        context.add_user_message(text)
    assert texts(context.messages)[1:] == said, "nothing is left out before it is sent"
    assert context.is_over_budget()
    sent = context.build_messages()
    assert [one["content"].partition("\n\n")[2] for one in sent[1:]] == texts(context.messages)[1:]
    assert len(context.messages) < len(said) and not context.is_over_budget()
    store.close()
    store = SqliteLedger(str(tmp_path / "ledger.db"))
    assert texts(LedgerLogger(store).history())[1:] == said
    store.close()


def test_the_surroundings_are_what_get_system_info_says() -> None:
    """Document 004, "System Information", and the note that `get_system_info` is imported from `prompt_loader`."""
    for is_repl in (True, False):
        assert PromptLoader().load(is_repl).content.endswith(f"\n\n{get_system_info(is_repl)}")
