"""Document 000's ContextBuilder: exactly five messages, from services like those that the document names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from nexus.errors import BadTool
from nexus.services.context import CORE_IDENTITY, ContextBuilder, Dialogue
from nexus.services.context.builder import FIRST_ROWS, MOST_ROWS
from nexus.services.tagged import memory_block, parse_memory, parse_moment
from nexus.tools import ToolRegistry
from services.test_formatters import PLAIN, example, row
from services.test_prompts import SEARCH
from support.openai_body import check_openai

NOW = 1_765_353_600_000
PROFILE = {
    "prompt_overrides": {
        "friends_profile": "I prefer concise, direct answers. I'm interested in AI ethics and philosophy."
    }
}


class Stored:
    """A history in memory, newest first, with document 000's method; asynchronous."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.asked = rows, []

    async def get_history(self, owner_key: str, limit: int = 20) -> list[dict[str, Any]]:
        self.asked.append((owner_key, limit))
        return self.rows[:limit]


def build(builder: ContextBuilder, said: str = "hello", profile: Any = None, **options: Any) -> Dialogue:
    return asyncio.run(builder.build("ada", profile or {}, said, **options))


def contents(builder: ContextBuilder, *given: Any, **options: Any) -> list[str]:
    return [message["content"] for message in build(builder, *given, **options).messages]


def registry(*definitions: Mapping[str, Any]) -> ToolRegistry:
    found = ToolRegistry()
    for one in definitions:
        found.register(one)
    return found


def test_the_five_messages_of_the_document_to_the_character() -> None:
    """Document 000, "Message Structure": "The LLM receives exactly 5 messages in this sequence"."""
    builder = ContextBuilder(tool_registry=registry(SEARCH), persistence_service=Stored(example(PLAIN)))
    messages = asyncio.run(
        builder.build_context(
            owner_key="ada",
            user_profile=PROFILE,
            current_input="What's the capital of France?",
            timestamp_utc="2025-12-10T08:00:00Z",
            timezone_offset=-480,
        )
    )
    assert messages == [
        {"role": "system", "content": CORE_IDENTITY},
        {
            "role": "user",
            "content": "[CAPABILITIES]\nAvailable tools in this conversation:\n\n### web_search\n"
            "Search the web for information\nParameters:\n- query (string, required): The search query",
        },
        {
            "role": "user",
            "content": "[SHARED_MEMORY count=3]\nRecent conversation memory:\n\n[2025-12-10 15:30] Human: Search for AI\n"
            "  Nexus: I'll search...\n[tool_use:web_search, query:AI development 2025]\nBased on search results..."
            "\n[2025-12-10 15:32] Human: Thank you",
        },
        {
            "role": "user",
            "content": "[FRIENDS_INFO]\nAbout this friend:\n\n"
            "I prefer concise, direct answers. I'm interested in AI ethics and philosophy.",
        },
        {
            "role": "user",
            "content": "[THIS_MOMENT]\n<current_time>2025-12-10 16:00:00+08:00</current_time>\n<human_input>\n"
            "What's the capital of France?\n</human_input>",
        },
    ]
    assert builder.warnings == ()
    assert builder.prompts.get_core_identity() == messages[0]["content"]


def test_the_signatures_are_the_printed_ones() -> None:
    """Document 000, "ContextBuilder": the parameters of `build_context`; its four dependencies."""
    given = inspect.signature(ContextBuilder.build_context).parameters
    assert list(given)[1:6] == ["owner_key", "user_profile", "current_input", "timestamp_utc", "timezone_offset"]
    assert list(given)[6:] == ["current_run_id"]
    assert [given[name].default for name in list(given)[4:]] == ["", 0, ""], "decided: the defaults"
    made = inspect.signature(ContextBuilder).parameters
    assert list(made)[:4] == ["bus", "tool_registry", "config_service", "persistence_service"]
    assert [one.default for one in list(made.values())[:4]] == [None] * 4
    assert inspect.iscoroutinefunction(ContextBuilder.build_context)


def test_modules_classes_and_methods_are_those_of_the_document() -> None:
    """Document 000, "Architecture Components": files, classes, static methods, parameters; "Import change"."""
    from nexus.services.context import FriendsInfoFormatter, MemoryFormatter, MomentFormatter, PromptManager

    places = {
        ContextBuilder: "builder",
        PromptManager: "prompts",
        MemoryFormatter: "formatters",
        FriendsInfoFormatter: "formatters",
        MomentFormatter: "formatters",
    }
    assert {made: made.__module__ for made in places} == {
        made: f"nexus.services.context.{module}" for made, module in places.items()
    }
    printed = {
        (MemoryFormatter, "format_shared_memory"): ["history", "limit"],
        (MemoryFormatter, "_merge_messages_by_run_id"): ["messages"],
        (MemoryFormatter, "_extract_tool_call_annotation"): ["tool_calls"],
        (FriendsInfoFormatter, "format_friends_info"): ["user_profile"],
        (MomentFormatter, "format_this_moment"): ["current_input", "timestamp_utc", "timezone_offset"],
    }
    for (made, name), parameters in printed.items():
        assert isinstance(inspect.getattr_static(made, name), staticmethod)
        given = inspect.signature(getattr(made, name)).parameters.values()
        assert [one.name for one in given if one.kind is one.POSITIONAL_OR_KEYWORD] == parameters
        assert all(one.default is not one.empty for one in given if one.kind is one.KEYWORD_ONLY)
    assert inspect.signature(MemoryFormatter.format_shared_memory).parameters["limit"].default == 20
    assert list(inspect.signature(PromptManager.get_core_identity).parameters) == ["self"]
    assert list(inspect.signature(PromptManager.get_capabilities_prompt).parameters) == ["self", "tool_definitions"]


def test_tools_that_come_and_go_change_their_block_alone() -> None:
    """Document 000, [CAPABILITIES], "Stability": "Changes when tools are registered/unregistered"; "Modularity"."""
    tools = registry(SEARCH)
    builder = ContextBuilder(tool_registry=tools, clock_ms=lambda: NOW)
    before = contents(builder)
    tools.unregister("web_search")
    after = contents(builder)
    assert after[1].endswith("(No tools are available.)")
    assert [before[at] == after[at] for at in range(5)] == [True, False, True, True, True]


def test_without_services_there_are_five_messages_with_placeholders() -> None:
    """Document 000, [FRIENDS_INFO], "Content": "Placeholder if no profile set"; decided: the other two placeholders."""
    assert contents(ContextBuilder(clock_ms=lambda: NOW))[1:] == [
        "[CAPABILITIES]\nAvailable tools in this conversation:\n\n(No tools are available.)",
        "[SHARED_MEMORY count=0]\nRecent conversation memory:\n\n(No earlier conversation.)",
        "[FRIENDS_INFO]\nAbout this friend:\n\n(Nothing is known about this friend yet.)",
        "[THIS_MOMENT]\n<current_time>2025-12-10 08:00:00+00:00</current_time>\n<human_input>\nhello\n</human_input>",
    ]


def test_the_messages_are_a_body_that_openai_takes() -> None:
    """Document 000, "Data Flow", 3: "Pass to LLMService for API call"."""
    built = build(ContextBuilder(tool_registry=registry(SEARCH), persistence_service=Stored(example(PLAIN))))
    assert check_openai({"model": "gpt-5", "messages": built.messages, "tools": built.tools}) == []


def test_tools_go_into_the_api_as_well() -> None:
    """Document 000, "Data Flow" 3: "Extract messages and tools"."""
    tools = registry(SEARCH)
    assert build(ContextBuilder(tool_registry=tools)).tools == tools.get_all_tool_definitions()
    assert build(ContextBuilder(tool_registry=ToolRegistry())).tools == []


def test_a_registry_of_your_own_will_do_and_what_is_none_is_an_error() -> None:
    class Mine:
        def __init__(self, given: Any) -> None:
            self.given = given

        def get_all_tool_definitions(self) -> Any:
            return self.given

    assert "### web_search\n" in contents(ContextBuilder(tool_registry=Mine([SEARCH])))[1]
    for given in (None, [3], "tools", [{"name": ""}]):
        with pytest.raises(BadTool):
            build(ContextBuilder(tool_registry=Mine(given)))


def test_rows_of_current_run_are_omitted_and_counted() -> None:
    """Decided on 000: rows of the current run are left out; `system` and `command` rows are counted in the report."""
    rows = [row("human", "now", "run_3"), row("command", "/x"), *example(PLAIN)]
    built = build(ContextBuilder(persistence_service=Stored(rows)), current_run_id="run_3")
    assert len(parse_memory(built.messages[2]["content"])) == 3
    assert built.omitted == {"command": 1, "of the current run": 1, "tool": 1}


def test_the_moment_and_the_memory_show_the_same_zone() -> None:
    """Document 000 prints memory and moment of one hour. Decided: memory times in the same zone."""
    shown = contents(
        ContextBuilder(persistence_service=Stored(example(PLAIN))),
        timestamp_utc="2025-12-10T08:00:00Z",
        timezone_offset="America/New_York",
    )
    assert "[2025-12-10 02:30] Human: Search" in shown[2]
    assert parse_moment(shown[4])[0] == "2025-12-10 03:00:00-05:00"


def test_what_is_wrong_is_said_once_and_the_context_is_made() -> None:
    builder = ContextBuilder(persistence_service=Stored([{"role": "human"}]), clock_ms=lambda: NOW)
    given = {"friends_profile": {"likes": "tea"}}
    messages = asyncio.run(builder.build_context("ada", given, "hi", "yesterday", "Mars/Olympus"))
    assert len(messages) == 5
    assert parse_moment(messages[4]["content"])[0] == "2025-12-10 08:00:00+00:00"
    assert "yesterday" not in str(messages)
    assert [(note.source, note.message) for note in builder.warnings] == [
        ("nexus:history", "rows without a valid time (1, row 1)"),
        ("nexus:moment", "time zone 'Mars/Olympus' not found: UTC is shown"),
        ("nexus:moment", "invalid timestamp: the clock's time is shown"),
        ("nexus:user_profile", "omitted: friends_profile is not text and has no text as its content"),
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"user_defaults": {"prompts": {"friends_profile": {"content": "Likes tea.", "editable": True}}}},
        {"user_defaults.prompts": {"friends_profile": "Likes tea."}},
    ],
)
def test_where_nothing_is_known_the_configuration_speaks_for_every_user(config: dict[str, Any]) -> None:
    """Document 000, "config.example.yml": `user_defaults.prompts.friends_profile`."""
    builder = ContextBuilder(config_service=config)
    assert contents(builder)[3].endswith("\n\nLikes tea.")
    assert contents(builder, "hi", PROFILE)[3].endswith("philosophy.")
    assert contents(ContextBuilder(config_service={"user_defaults": 3}))[3].endswith("yet.)")
    printed = {"content": "", "editable": True, "description": "About this friend - preferences, patterns, and context"}
    example_file = {"user_defaults": {"prompts": {"friends_profile": printed}}}
    assert contents(ContextBuilder(config_service=example_file))[3].endswith("yet.)"), "the file as it is printed"


def test_as_many_rows_are_asked_for_as_fill_the_memory() -> None:
    """Document 000, "Content Processing" 3: limits are applied after merging."""
    long_run = [row("ai", f"step {n}", "run_9") for n in range(3 * FIRST_ROWS)]
    stored = Stored([*long_run, *(row("human", f"q{n}", f"r{n}") for n in range(100))])
    assert len(parse_memory(contents(ContextBuilder(persistence_service=stored))[2])) == 20
    assert stored.asked == [("ada", FIRST_ROWS), ("ada", 2 * FIRST_ROWS), ("ada", 4 * FIRST_ROWS)]
    stored = Stored([row("human", "q")] * 30)
    assert len(parse_memory(contents(ContextBuilder(persistence_service=stored, limit=5))[2])) == 5
    assert stored.asked == [("ada", FIRST_ROWS)]
    stored = Stored(long_run * 50)
    build(ContextBuilder(persistence_service=stored))
    assert stored.asked[-1] == ("ada", MOST_ROWS)


def test_a_service_need_not_be_asynchronous_nor_heed_the_limit() -> None:
    """Document 000, "Dependencies": `PersistenceService`, which is somebody else's."""

    class Old:
        def get_history(self, owner_key: str, limit: int) -> Any:
            assert limit == FIRST_ROWS
            return {"ada": example(PLAIN) * 100}.get(owner_key)

    assert contents(ContextBuilder(persistence_service=Old()))[2].startswith("[SHARED_MEMORY count=20]\n")
    built = asyncio.run(ContextBuilder(persistence_service=Old()).build("bob", {}, "hi"))
    assert built.messages[2]["content"] == memory_block([])


def test_a_service_that_fails_says_so() -> None:
    class Down:
        async def get_history(self, owner_key: str, limit: int) -> Any:
            raise ConnectionError(f"no database for {owner_key}, {limit} rows")

    with pytest.raises(ConnectionError, match="no database for ada"):
        build(ContextBuilder(persistence_service=Down()))


def test_the_same_input_gives_the_same_bytes() -> None:
    builder = ContextBuilder(tool_registry=registry(SEARCH), persistence_service=Stored(example(PLAIN)))
    given = {"timestamp_utc": "2025-12-10T08:00:00Z", "timezone_offset": -480}
    assert contents(builder, **given) == contents(builder, **given)
    bob = asyncio.run(builder.build("bob", {}, "hi"))
    assert bob.messages[0] == {"role": "system", "content": CORE_IDENTITY}


def test_contexts_of_many_users_are_built_at_once() -> None:
    async def all_of_them() -> list[Dialogue]:
        builder = ContextBuilder(persistence_service=Stored(example(PLAIN)))
        return await asyncio.gather(
            *(builder.build(str(n), {"friends_profile": f"user {n}"}, f"{n}") for n in range(50))
        )

    for n, built in enumerate(asyncio.run(all_of_them())):
        assert built.messages[3]["content"].endswith(f"\n\nuser {n}")
        assert parse_moment(built.messages[4]["content"])[1] == str(n)
