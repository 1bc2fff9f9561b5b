"""What the five documents print, with only the import prefix changed: a row for each name, and what it must do.

The documents are the origins of docs/origins.md (000 to 004). Every row is our own wording of a printed example; a row
builds its own values, so that one that fails says which printed name fails.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nexus
from nexus import broker, services
from nexus.bus import Message as BusMessage
from nexus.compat.nanobot.agent.context import ContextBuilder as WorkspaceBuilder
from nexus.compat.nanobot.session.manager import SessionManager
from nexus.compat.nexus3 import context as nexus3
from nexus.compat.nexus3.context.loader import ContextLoader
from nexus.compat.nexus3.context.prompt_loader import FilePromptSource, get_system_info
from nexus.compat.nexus3.core import Message, Role, ToolCall, ToolResult
from nexus.errors import BadEvent, BadSetting, UnreadableFile
from nexus.services import tagged
from nexus.services.context import CORE_IDENTITY, ContextBuilder
from nexus.services.context.formatters import FriendsInfoFormatter, MemoryFormatter, MomentFormatter
from nexus.services.context.prompts import PromptManager
from nexus.tools import ToolRegistry
from nexus.turnlog.reader import violations
from support.errors import has_code

LONG = "\n".join(f"line {number}" for number in range(300))
CLAUDE = "claude-sonnet-4-20250514"
DONE = nexus.AgentResult((nexus.assistant("Done."),))


class Row(NamedTuple):
    """A printed name, and a function of a folder that tries it and returns what must be true."""

    document: str
    name: str
    holds: Callable[[Path], object]


def talk(**config: Any) -> nexus3.ContextManager:
    """Return a manager with a user's message, a call with its result, and a reply, from document 004's values."""
    context = nexus3.ContextManager(nexus3.ContextConfig(**config), timezone="Europe/Lisbon")
    context.set_system_prompt("You are helpful.")
    context.add_user_message("Read a.py.")
    context.add_assistant_message("I look.", [ToolCall(id="c1", name="read_file", arguments={"path": "a.py"})])
    context.add_tool_result("c1", "read_file", ToolResult(output="print(1)"))
    context.add_assistant_message("It prints 1.")
    return context


def filled() -> nexus3.ContextManager:
    context = nexus3.ContextManager()
    for number in range(60):
        context.add_user_message(f"Step {number}. " + "It takes its time. " * 20)
    return context


class Characters:
    """A counter of somebody's own, by the printed protocol."""

    def count(self, text: str) -> int:
        return len(text)

    def count_messages(self, messages: list[Message]) -> int:
        calls = [call for message in messages for call in message.tool_calls]
        arguments = sum(self.count(json.dumps(call.arguments)) for call in calls)
        return arguments + sum(self.count(message.content) for message in messages)


def own_counter(_: Path) -> bool:
    context = nexus3.ContextManager(token_counter=Characters(), clock="system")
    context.add_assistant_message("I look.", [ToolCall("c1", "read_file", {"path": "a.py"})])
    start = len(context.messages[0].content)
    result = "[result unavailable: interrupted]"
    return context.get_token_usage()["messages"] == start + 7 + len('{"path": "a.py"}') + len(result)


def own_logger(_: Path) -> bool:
    got: list[Any] = []

    class Logger:
        def log_system(self, content: str) -> None:
            got.append(content)

        def log_user(self, content: str) -> None:
            got.append(content)

        def log_assistant(self, content: str, tool_calls: Any = ()) -> None:
            got.append((content, [call.arguments for call in tool_calls]))

        def log_tool_result(self, tool_call_id: str, name: str, result: ToolResult) -> None:
            got.append((tool_call_id, name, result.output, result.error, result.success))

    context = nexus3.ContextManager(logger=Logger())
    context.add_assistant_message("", [ToolCall("c1", "read", {"n": 1})])
    context.add_tool_result("c1", "read", ToolResult("found"))
    context.add_tool_result("c2", "read", ToolResult(error="no such file"))
    return got[1:] == [("", [{"n": 1}]), ("c1", "read", "found", "", True), ("c2", "read", "", "no such file", False)]


def changed_message(_: Path) -> bool:
    """A message that a program changed is stored as changed; an unchanged one with its time and place."""
    context = talk()
    *_, asks, result, answer = context.messages
    answer["content"] = "It prints 2."
    context.apply_compaction(nexus3.create_summary_message("They read a.py."), [asks, result, answer])
    return [message.content for message in context.messages[2:]] == ["I look.", "print(1)", "It prints 2."]


def compacted(_: Path) -> bool:
    context, counter = filled(), nexus3.get_token_counter()
    older, recent = nexus3.select_messages_for_compaction(
        messages=context.messages, token_counter=counter, available_budget=6000, recent_preserve_ratio=0.25
    )
    prompt = nexus3.build_summarize_prompt(older)
    context.apply_compaction(
        summary_message=nexus3.create_summary_message("The first steps are done."),
        preserved_messages=recent,
        new_system_prompt="Fresh.",
    )
    summary = context.messages[1]
    return (
        "Step 0." in prompt
        and summary.role == Role.USER
        and summary.content.startswith("[CONTEXT SUMMARY]\n")
        and context.messages == [recent[0], summary, *recent[1:]]
        and context.system_prompt == "Fresh."
    )


def private_names(_: Path) -> bool:
    context = filled()
    groups = context._identify_message_groups()  # pyright: ignore[reportPrivateUsage]
    tokens = context._count_group_tokens(groups[0])  # pyright: ignore[reportPrivateUsage]
    flat = context._flatten_groups(groups)  # pyright: ignore[reportPrivateUsage]
    oldest = context._truncate_oldest_first()  # pyright: ignore[reportPrivateUsage]
    middle = context._truncate_middle_out()  # pyright: ignore[reportPrivateUsage]
    before = context.messages
    sent = context._get_context_messages()  # pyright: ignore[reportPrivateUsage]
    return (
        [*before[:1], *flat] == before
        and tokens > 4
        and oldest == sent == context.messages
        and len(sent) < len(before)
        and middle[1] == before[1]
    )


def changed_config(_: Path) -> bool:
    config = nexus3.ContextConfig()
    context = nexus3.ContextManager(config)
    config.max_tokens = 4000
    with pytest.raises(BadSetting, check=has_code("bad_budget")):
        config.reserve_tokens = -1
    with pytest.raises(BadSetting):
        config.truncation_strategy = "newest_first"
    return context.get_token_usage()["available"] == 2000


def tool_with_documented_result(_: Path) -> bool:
    def read_file(path: str) -> ToolResult:
        """Reads a file."""
        return ToolResult(output="text") if path == "a" else ToolResult(error="no such file")

    registry = ToolRegistry([read_file])
    good, bad = (registry.answer(nexus.ToolCall("c", "read_file", json.dumps({"path": path}))) for path in "ab")
    results = [next(message.results()) for message in (good, bad)]
    return [(result.content[0].text, result.is_error) for result in results] == [  # type: ignore[union-attr]
        ("text", False),
        ("no such file", True),
    ]


def missing_vocabulary(_: Path) -> bool:
    for name in ("p50k_base", "r50k_base"):
        with pytest.raises(BadSetting, match="TIKTOKEN_CACHE_DIR"):
            nexus3.TiktokenCounter(encoding_name=name)
    return nexus3.TiktokenCounter(encoding_name="cl100k_base").count("Hello, world!") == 4


def later_turn(folder: Path) -> list[list[str]]:
    """Return the texts of the results in a call of their turn and of the next one, in the profile `workspace`."""
    with nexus.open(folder, model="gpt-4o") as nx:
        ctx = nx.assemble("Read.", profile="workspace", session="s")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("", nexus.ToolCall("c", "read", "{}")),)))
        ctx = nx.assemble([nexus.tool("c", LONG)], profile="workspace", session="s")
        nx.record(ctx, DONE)
        later = nx.assemble("And?", profile="workspace", session="s")
        assert later.accounting.prefix.causes == ("results of earlier turns were truncated to 500 characters",)
        bodies = [one.to_openai()["messages"] for one in (ctx, later)]
    return [[item["content"] for item in body if item["role"] == "tool"] for body in bodies]


def saved_history(folder: Path) -> bool:
    builder = WorkspaceBuilder(folder)
    with SessionManager(folder) as sessions:
        session = sessions.get_or_create("cli:user123")
        messages = builder.build_messages(
            session.get_history(max_messages=100), "List files", channel="cli", chat_id="user123"
        )
        call = {"id": "call_123", "type": "function", "function": {"name": "list_dir", "arguments": '{"path": "."}'}}
        builder.add_assistant_message(messages, content="I look.", tool_calls=[call])
        builder.add_tool_result(messages, tool_call_id="call_123", tool_name="list_dir", result=LONG)
        for message in messages[1:]:
            session.add_message(**message)
        sessions.save(session)
        *_, result = session.get_history()
    return result["name"] == "list_dir" and len(result["content"]) <= 500


def five_messages(_: Path) -> bool:
    messages = asyncio.run(
        ContextBuilder().build_context(
            owner_key="ada",
            user_profile={"prompt_overrides": {"friends_profile": "I prefer concise answers."}},
            current_input="What's the capital of France?",
            timestamp_utc="2025-12-10T08:00:00Z",
            timezone_offset=-480,
        )
    )
    tags = [message["content"].split("\n")[0] for message in messages[1:]]
    return (
        messages[0]["content"] == CORE_IDENTITY
        and tags == ["[CAPABILITIES]", "[SHARED_MEMORY count=0]", "[FRIENDS_INFO]", "[THIS_MOMENT]"]
        and "<current_time>2025-12-10 16:00:00+08:00</current_time>" in messages[4]["content"]
    )


def nexus_bus(_: Path) -> bool:
    async def main() -> list[str]:
        bus, got = services.NexusBus(), list[str]()

        async def take(message: BusMessage) -> None:
            got.append(message.topic)

        await bus.subscribe("greetings", take)
        await bus.publish(BusMessage("greetings", {"text": "hi"}))
        await asyncio.sleep(0.05)
        await bus.close()
        return got

    return asyncio.run(main()) == ["greetings"]


def own_tag(_: Path) -> bool:
    block = tagged.tag_block("WEATHER", "rain\n[THIS_MOMENT]")
    for name in ("MOOD", "weather", "THIS_MOMENT", ""):
        with pytest.raises(UnreadableFile, check=has_code("bad_context")):
            tagged.tag_block(name, "x")
    return block == "[WEATHER]\nrain\n\\[THIS_MOMENT]" and tagged.parse_tag("WEATHER", block) == "rain\n[THIS_MOMENT]"


LOG = json.dumps(
    [
        {"index": 0, "turn": 0, "timestamp": "2023-04-04T12:33:00Z", "role": "system", "content": "You're Aya."},
        {"index": 1, "turn": 0, "timestamp": "2023-04-04T12:33:10Z", "role": "user",
         "content": {"userid": "<@U1234546>", "text": "Suggest lunch options please."}},
        {"index": 2, "turn": 1, "timestamp": "2023-04-04T12:33:20Z", "role": "assistant",
         "content": {"toolCall": "getThreadHistory", "ascending": False, "reasoning": "Preferences"}},
    ]
)  # fmt: skip


def run_nexus(folder: Path, *words: str, text: str = "") -> str:
    command = [sys.executable, "-m", "nexus", *words]
    done = subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def console(folder: Path) -> bool:
    (folder / "log.json").write_text(LOG, "utf-8")
    run_nexus(folder, "import", "log.json", "--session", "lunch", "--ledger", "l.db")
    lines = run_nexus(folder, "history", "lunch", "--as", "console", "--ledger", "l.db")
    return (
        "👤 User <@U1234546> [Turn 0]\n🕐 2023-04-04T12:33:10Z\n> Suggest lunch options please.\n" in lines
        and "🔧 getThreadHistory (ascending: false)\n   └─ Reason: Preferences" in lines
    )


def live_console(folder: Path) -> bool:
    """The text is right below the time, also where a call added metadata to it."""
    with nexus.open(None, ledger=str(folder / "l.db"), model="gpt-4o") as nx:
        nx.record(nx.assemble("Hello.", session="s"), DONE)
    lines = run_nexus(folder, "history", "s", "--as", "console", "--ledger", "l.db").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("🕐"))
    return lines[at + 1] == "> Hello." and lines[at + 2].startswith("  (Current time: ")


def model_config(_: Path) -> bool:
    config = {"temperature": 0.5, "maxTokens": 4000, "thinking": False}
    ctx = nexus.open(None, ledger=":memory:").assemble("Hi", model=CLAUDE, model_config=config)
    body = {**ctx.to_anthropic(), **ctx.to_anthropic().get("extra_body", {})}
    return (body["max_tokens"], body["temperature"]) == (4000, 0.5) and "maxTokens" not in body


def dict_event(event: object) -> Callable[[Path], bool]:
    def holds(_: Path) -> bool:
        with pytest.raises(BadEvent, match=r"nx\.mirror.*nexus\.read_messages"):
            nexus.open(None, ledger=":memory:").assemble(event)  # type: ignore[arg-type]
        return True

    return holds


def lookups(_: Path) -> bool:
    nx = nexus.open(None, ledger=":memory:", model="gpt-4o")
    for number in range(6):
        nx.record(nx.assemble(f"Question {number}. " + "Long. " * 200, session="main"), DONE)
    nx.ledger.sessions.alias("work", "main")
    ctx = nx.assemble("Next.", session="work")
    assert nx.compact("main", budget=1_000)
    latest = broker.find_latest_compaction(nx, "main")
    assert latest is not None
    turn = broker.get_messages_by_turn_id(nx, ctx.parent_turn_id or "")
    return (
        [message.role for message in turn] == ["user", "assistant"]
        and broker.get_compaction(nx, latest.id).summary == latest.summary
        and ctx.to_json()["sessionLabel"] == "main"
    )


def current_message(_: Path) -> bool:
    event = nexus.Event((nexus.Text("Hi"),), platform="imessage", platform_actions=("reply",), timezone="UTC")
    note = broker.build_current_message(event, "manager").parts[0]
    return "Platform: imessage\nAvailable actions: reply" in note.text  # type: ignore[union-attr]


ROWS = [
    Row("000", "build_context: five messages", five_messages),
    Row("000", "PromptManager().get_core_identity()", lambda _: PromptManager().get_core_identity() == CORE_IDENTITY),
    Row(
        "000",
        "get_capabilities_prompt",
        lambda _: PromptManager().get_capabilities_prompt([]).startswith("[CAPABILITIES]\n"),
    ),
    Row(
        "000",
        "format_shared_memory",
        lambda _: MemoryFormatter.format_shared_memory([], limit=20).startswith("[SHARED"),
    ),
    Row(
        "000",
        "format_friends_info",
        lambda _: FriendsInfoFormatter.format_friends_info({}).startswith("[FRIENDS_INFO]"),
    ),
    Row(
        "000",
        "format_this_moment",
        lambda _: "<human_input>\nHi\n" in MomentFormatter.format_this_moment("Hi", "2025-12-10T08:00:00Z", -480),
    ),
    Row("000", "NexusBus()", nexus_bus),
    Row("000", "[TAG] blocks of one's own", own_tag),
    Row("001", "the printed array", lambda _: violations(LOG) == [] or [*violations(LOG)] == []),
    Row("001", "console display", console),
    Row("001", "console display of a live session", live_console),
    Row(
        "001",
        "validate -",
        lambda folder: "standard input is a valid turn log" in run_nexus(folder, "turnlog", "validate", "-", text=LOG),
    ),
    Row("001", "run --principal", lambda folder: "--principal" in run_nexus(folder, "run", "--help")),
    Row("002", "getModelLimit", lambda _: broker.get_model_limit(CLAUDE) == 200_000),
    Row("002", "buildCurrentMessage", current_message),
    Row("002", "getMessagesByTurnId, getCompaction, sessionLabel", lookups),
    Row("002", "modelConfig", model_config),
    Row("002", "a provider's message as an event", dict_event({"role": "user", "content": "Hi"})),
    Row("002", "a provider's messages as an event", dict_event([{"role": "user", "content": "Hi"}])),
    Row("003", "add_assistant_message, add_tool_result, get_history", saved_history),
    Row("003", "results over 500 characters: whole in their turn", lambda folder: later_turn(folder)[0] == [LONG]),
    Row(
        "003", "results over 500 characters: the next turn", lambda folder: max(map(len, later_turn(folder)[1])) <= 500
    ),
    Row("004", "ToolCall(arguments={…})", lambda _: talk().messages[2].tool_calls[0].arguments == {"path": "a.py"}),
    Row("004", "Message(role, content)", lambda _: Message(Role.USER, "Hi").content == "Hi"),
    Row("004", "Message(role=…, content=…)", lambda _: Message(role="user", content="Hi").role is Role.USER),
    Row(
        "004",
        "Message of a tool",
        lambda _: (
            Message(Role.TOOL, "found", tool_call_id="c1") == {"role": "tool", "content": "found", "tool_call_id": "c1"}
        ),
    ),
    Row("004", "ToolResult(output)", lambda _: ToolResult("found").output == "found" and ToolResult("found").success),
    Row("004", "tools that return a ToolResult", tool_with_documented_result),
    Row(
        "004", ".content of messages", lambda _: [m.content for m in talk().messages[1:3]] == ["Read a.py.", "I look."]
    ),
    Row("004", "build_messages: attributes", lambda _: talk().build_messages()[0].content == "You are helpful."),
    Row(
        "004", "build_messages: dicts", lambda _: json.loads(json.dumps(talk().build_messages()))[0]["role"] == "system"
    ),
    Row(
        "004",
        "count_messages(build_messages())",
        lambda _: (
            nexus3.get_token_counter().count_messages(talk().build_messages()[1:])
            == talk().get_token_usage()["messages"]
        ),
    ),
    Row(
        "004",
        "count_messages of Message values",
        lambda _: nexus3.SimpleTokenCounter().count_messages([Message(Role.USER, "four")]) == 5,
    ),
    Row("004", "TokenCounter of one's own", own_counter),
    Row("004", "SessionLogger of one's own", own_logger),
    Row("004", "compaction", compacted),
    Row("004", "a changed message", changed_message),
    Row("004", "printed private names", private_names),
    Row("004", "ContextConfig", changed_config),
    Row("004", "TiktokenCounter(encoding_name=…)", missing_vocabulary),
    Row("004", "get_system_info", lambda _: get_system_info(True).startswith("# Environment\n")),
    Row("004", "FilePromptSource", lambda folder: FilePromptSource(folder / "none.md").load() is None),
    Row("004", "ContextLoader", lambda folder: "# Environment" in ContextLoader(folder, home=folder).load().prompt),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.document} {row.name}" for row in ROWS])
def test_what_a_document_prints_works(row: Row, tmp_path: Path) -> None:
    assert row.holds(tmp_path)
