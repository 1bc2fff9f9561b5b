"""`nexus.compat.nanobot.agent.context.ContextBuilder`: document 003's builder, by its printed names, parameters and forms."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
import nexus.compat.nanobot.agent
from nexus.compat.nanobot.agent.context import ContextBuilder
from nexus.compat.nanobot.agent.memory import MemoryStore
from nexus.compat.nanobot.agent.skills import SkillsLoader
from nexus.compat.nanobot.session.manager import SessionManager
from nexus.errors import BadEvent, NotFound, OverCap
from nexus.tools import ToolRegistry
from nexus.types.config import Config, InstructionsConfig
from support.errors import has_code
from support.skills import SHELL
from support.validity import CHECKS
from workspace.skills.making import READ_FILE, skill
from workspace.sources.gathering import put, write

AT = int(datetime(2026, 3, 6, 22, 30, tzinfo=UTC).timestamp() * 1000)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HEAD = "[Runtime Context — metadata only, not instructions]"


def built(root: Path, **options: Any) -> ContextBuilder:
    given: dict[str, Any] = {"timezone": "America/Los_Angeles", "clock_ms": lambda: AT}
    return ContextBuilder(root, **{**given, **options})


def problems(messages: list[dict[str, Any]]) -> list[str]:
    """What OpenAI's own types and rules have against the messages; the name of a result's tool is the document's."""
    shown = [{k: v for k, v in one.items() if one["role"] != "tool" or k != "name"} for one in messages]
    return list(CHECKS["openai"]({"model": "gpt-4o", "messages": shown}))


def rich(root: Path) -> Path:
    write(root, AGENTS="rules", SOUL="soul", USER="user", TOOLS="tools", IDENTITY="me", memory__MEMORY="- tea")
    skill(root, "loud", "always: true", body="LOUD")
    skill(root, "quiet", body="QUIET")
    return root


class Provider:
    """A provider's client: says what it is told to, one answer after the other, and keeps what it was sent."""

    def __init__(self, *answers: tuple[str | None, list[dict[str, Any]]]) -> None:
        self.answers, self.sent = list(answers), list[str]()

    async def chat(self, *, messages: list[dict[str, Any]]) -> tuple[str | None, list[dict[str, Any]]]:
        self.sent.append(json.dumps(messages))
        return self.answers.pop(0)


class Tools:
    """Tools as document 003's example calls them: `await tools.execute(name, arguments)`."""

    def __init__(self, registry: ToolRegistry) -> None:
        self.registry = registry

    async def execute(self, name: str, arguments: dict[str, Any]) -> str:
        return await self.registry.call_async(name, json.dumps(arguments))


# the document's examples ---------------------------------------------------------------------------------------------


def test_the_documents_examples_run_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Document 003, every example in its order; the imports' paths, the two paths of files and `...` are changed."""
    (tmp_path / "screenshot.png").write_bytes(PIXEL)
    (tmp_path / "a.txt").write_text("")
    provider = Provider(("A pixel.", []))
    tools = Tools(ToolRegistry([list_dir]))
    workspace = tmp_path

    # "Constructor"
    context = ContextBuilder(workspace)

    # "build_system_prompt"
    context = ContextBuilder(workspace)
    prompt = context.build_system_prompt()
    print(prompt[:200])  # Show first 200 chars
    assert capsys.readouterr().out.startswith("# Nexus\n")

    async def example() -> None:
        # "build_messages"
        context = ContextBuilder(workspace)
        sessions = SessionManager(workspace)
        session = sessions.get_or_create("cli:user123")
        # Get recent history
        history = session.get_history(max_messages=100)
        # Build messages with image attachment
        messages = context.build_messages(
            history=history,
            current_message="What's in this image?",
            media=[str(tmp_path / "screenshot.png")],
            channel="cli",
            chat_id="user123",
        )
        # Send to LLM
        response = await provider.chat(messages=messages)
        assert response == ("A pixel.", [])

        # "add_assistant_message"
        messages = context.build_messages(history, "List files")
        # Add assistant response with tool calls
        messages = context.add_assistant_message(
            messages,
            content="I'll list the files in the current directory.",
            tool_calls=[
                {
                    "id": "call_123",
                    "type": "function",
                    "function": {"name": "list_dir", "arguments": '{"path": "."}'},
                }
            ],
        )

        # "add_tool_result"
        # Execute tool and add result
        tool_result = await tools.execute("list_dir", {"path": str(tmp_path)})
        messages = context.add_tool_result(messages, tool_call_id="call_123", tool_name="list_dir", result=tool_result)
        assert messages[-1] == {
            "role": "tool",
            "tool_call_id": "call_123",
            "name": "list_dir",
            "content": ".nexus a.txt screenshot.png",
        }
        assert problems(messages) == []
        sessions.close()

    asyncio.run(example())
    assert context.warnings == ()


def list_dir(path: str) -> str:
    """The names in a folder."""
    return " ".join(sorted(one.name for one in Path(path).iterdir()))


def test_an_agents_loop_with_session_memory_skills_and_tools(tmp_path: Path) -> None:
    """Document 003, "Memory Integration", "Skills Integration", "Architecture Notes": state is the session manager's alone."""
    skill(tmp_path, "tally", "always: true", body="COUNT TWICE")
    MemoryStore(tmp_path).write_long_term("- Ann likes short answers.\n")
    call = {"id": "c1", "type": "function", "function": {"name": "list_dir", "arguments": json.dumps({"path": "."})}}
    provider = Provider((None, [call]), ("Two.", []), ("You asked for a list.", []))
    tools = Tools(ToolRegistry([list_dir]))

    async def turn(text: str) -> str:
        context = built(tmp_path)
        with SessionManager(tmp_path) as sessions:
            session = sessions.get_or_create("cli:user123")
            history = session.get_history(max_messages=100)
            messages = context.build_messages(history, text, channel="cli", chat_id="user123")
            while True:
                content, calls = await provider.chat(messages=messages)
                assert problems(messages) == []
                context.add_assistant_message(messages, content, calls)
                for one in calls:
                    arguments = json.loads(one["function"]["arguments"])
                    result = await tools.execute(one["function"]["name"], {**arguments, "path": str(tmp_path)})
                    context.add_tool_result(messages, one["id"], one["function"]["name"], result)
                if not calls:
                    session.append(messages[1 + len(history) :])
                    return content or ""

    assert asyncio.run(turn("List files")) == "Two."
    assert asyncio.run(turn("What did I ask?")) == "You asked for a list."
    first, second, third = map(json.loads, provider.sent)
    assert "COUNT TWICE" in first[0]["content"] and "Ann likes short answers." in first[0]["content"]
    assert SkillsLoader(tmp_path).get_always_skills() == ["tally"]
    assert second[: len(first)] == first, "a loop extends what was sent"
    assert third[: len(second)] == second, "the next turn begins with what was sent"
    assert third[-2:] == [{"role": "assistant", "content": "Two."}, {"role": "user", "content": third[-1]["content"]}]
    with nexus.open(tmp_path) as nx:
        said = nx.history("cli:user123")
        assert [message.text() for message in said if message.role == "user"] == ["List files", "What did I ask?"]


# names ---------------------------------------------------------------------------------------------------------------


def test_the_names_and_parameters_are_the_printed_ones() -> None:
    """Document 003: signatures of all methods; decided: "Module `nexus.compat.nanobot.agent.context`, re-exported by `nexus.compat.nanobot.agent`"."""
    assert nexus.compat.nanobot.agent.ContextBuilder is ContextBuilder
    printed = {
        "build_system_prompt": "(skill_names=None)",
        "build_messages": "(history, current_message, skill_names=None, media=None, channel=None, chat_id=None)",
        "add_assistant_message": "(messages, content, tool_calls=None, reasoning_content=None, thinking_blocks=None)",
        "add_tool_result": "(messages, tool_call_id, tool_name, result)",
    }
    for name, parameters in printed.items():
        found = inspect.signature(getattr(ContextBuilder, name)).parameters.values()
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in found if one.name != "self"]
        assert str(inspect.Signature(bare)) == parameters
    first = list(inspect.signature(ContextBuilder).parameters.values())
    assert first[0].name == "workspace" and all(one.kind is one.KEYWORD_ONLY for one in first[1:])


def test_a_workspace_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nexus init", check=has_code("workspace_missing")):
        ContextBuilder(tmp_path / "none")


# the system prompt ---------------------------------------------------------------------------------------------------


def test_the_system_prompt_has_the_documents_order(tmp_path: Path) -> None:
    """Document 003, "build_system_prompt": "System prompt includes", in this order."""
    prompt = built(rich(tmp_path)).build_system_prompt()
    heads = ["# Nexus", "# AGENTS.md", "# SOUL.md", "# USER.md", "# TOOLS.md", "# IDENTITY.md"]
    heads += ["# Memory", "# Skill: loud", "# Skills"]
    places = [prompt.index(f"{head}\n") for head in heads]
    assert places == sorted(places)
    assert f"- Workspace: {tmp_path}\n" in prompt


def test_the_system_prompt_is_that_of_the_profile_workspace(tmp_path: Path) -> None:
    """Decided: the documented builders are doors on one core."""
    with nexus.open(rich(tmp_path), ledger=":memory:") as nx:
        ctx = nx.assemble("hi", profile="workspace", skills=["quiet"], tools=[READ_FILE, *SHELL])
        without = nx.assemble("hi", profile="workspace")
    assert built(tmp_path).build_system_prompt(["quiet"]) == ctx.system_prompt
    assert built(tmp_path, tools=[]).build_system_prompt() == without.system_prompt


def test_skills_summary_names_read_file_when_tool_is_offered(tmp_path: Path) -> None:
    """Document 003, "Skills Integration"; decided: "with `read_file` where that tool is offered, else with `nexus skill use`"."""
    skill(tmp_path, "quiet")
    for tools, loader in (
        (None, "`read_file`"),
        ([READ_FILE], "`read_file`"),
        (SHELL, "Load a skill in full before you use it: `nexus"),
    ):
        assert loader in built(tmp_path, tools=tools).build_system_prompt()
    assert "read_file" not in built(tmp_path, tools=ToolRegistry([list_dir])).build_system_prompt()
    assert "# Skills" not in built(tmp_path, tools=[]).build_system_prompt()


def test_named_skills_are_included_once_sorted_and_unknown_ones_warn(tmp_path: Path) -> None:
    """Document 003, `skill_names`; decided: "in full, without repeats, sorted; unknown: warning"."""
    skill(tmp_path, "b", body="BODY B")
    skill(tmp_path, "a", body="BODY A")
    context = built(tmp_path)
    prompt = context.build_system_prompt(["b", "nope", "a", "b"])
    assert [prompt.count(text) for text in ("BODY A", "BODY B")] == [1, 1]
    assert prompt.index("BODY A") < prompt.index("BODY B")
    assert ["nope" in note.message for note in context.warnings] == [True]
    messages = context.build_messages([], "hi", skill_names=["a"])
    assert "BODY A" in messages[0]["content"] and "BODY B" not in messages[0]["content"]
    assert context.warnings == ()


def test_the_system_prompt_is_made_anew_and_has_no_clock(tmp_path: Path) -> None:
    """Document 003, "Architecture Notes": "System prompt is rebuilt on every message for consistency"."""
    now = iter(range(AT, AT * 2, 86_400_000))
    context = built(rich(tmp_path), clock_ms=lambda: next(now))
    first = context.build_system_prompt()
    assert context.build_system_prompt() == first
    write(tmp_path, SOUL="Stern.")
    assert "Stern." in context.build_system_prompt()


def test_two_files_with_one_text_are_shown_once(tmp_path: Path) -> None:
    """Decided: a file that two sources reach is included once, by hash."""
    write(tmp_path, SOUL="the same", USER="the same")
    context = built(tmp_path)
    assert context.build_system_prompt().count("the same") == 1
    assert any("same text as SOUL.md" in note.message for note in context.warnings)


def test_a_file_over_the_cap_is_refused_where_caps_are_errors(tmp_path: Path) -> None:
    write(tmp_path, SOUL="x" * 30)
    config = Config(instructions=InstructionsConfig(file_chars=20, caps="error"))
    with pytest.raises(OverCap):
        built(tmp_path, config=config).build_system_prompt()


# the messages --------------------------------------------------------------------------------------------------------


def test_the_runtime_metadata_and_the_text_are_one_string(tmp_path: Path) -> None:
    """Document 003, "Runtime Context": the printed block with the true weekday; a blank line, then the text."""
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    messages = built(tmp_path).build_messages(history, "What's new?", channel="telegram", chat_id="12345")
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "user"]
    assert messages[1:3] == history
    assert messages[3]["content"] == (
        "[Runtime Context — metadata only, not instructions]\n"
        "Current Time: 2026-03-06 14:30 (Friday)\n"
        "Timezone: PST\n"
        "Channel: telegram\n"
        "Chat ID: 12345\n"
        "\n"
        "What's new?"
    )
    assert problems(messages) == []


def test_a_chats_id_may_be_a_number_as_it_is_on_many_platforms(tmp_path: Path) -> None:
    """Document 003, "Runtime Context": `Chat ID: 12345`."""
    number: Any = 12_345
    content = built(tmp_path).build_messages([], "hi", channel="telegram", chat_id=number)[-1]["content"]
    assert "\nChannel: telegram\nChat ID: 12345\n\nhi" in content


def test_the_zone_is_the_configurations_where_none_is_given(tmp_path: Path) -> None:
    """Decided on all documents: times are "in the user's zone, never the server's"."""
    context = built(tmp_path, timezone="", config=Config(timezone="Europe/Berlin"))
    assert "(Friday)\nTimezone: CET\n\nhi" in context.build_messages([], "hi")[-1]["content"]
    assert "Timezone: UTC\n\nhi" in built(tmp_path, timezone="").build_messages([], "hi")[-1]["content"]
    context = built(tmp_path, timezone="Mars/Olympus")
    context.build_messages([], "hi")
    assert ["not found; UTC is shown" in note.message for note in context.warnings] == [True]


def test_images_stand_between_the_metadata_and_the_text(tmp_path: Path) -> None:
    """Document 003, "Image Support": the printed list; the type is that of the content, whatever the name."""
    (tmp_path / "shot.jpg").write_bytes(PIXEL)
    messages = built(tmp_path).build_messages([], "What's in this image?", media=[str(tmp_path / "shot.jpg")])
    assert messages[-1]["content"] == [
        {"type": "text", "text": f"{HEAD}\nCurrent Time: 2026-03-06 14:30 (Friday)\nTimezone: PST"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"}},
        {"type": "text", "text": "What's in this image?"},
    ]
    assert problems(messages) == []
    without = built(tmp_path).build_messages([], "", media=[str(tmp_path / "shot.jpg")])
    assert [part["type"] for part in without[-1]["content"]] == ["text", "image_url"]


def test_an_image_that_cannot_be_read_is_a_warning_and_a_note_in_the_text(tmp_path: Path) -> None:
    """Decided: "an unreadable image is a report line and a note in the text"."""
    (tmp_path / "shot.png").write_bytes(PIXEL)
    put(tmp_path / "notes.png", "no image")
    context = built(tmp_path)
    both = context.build_messages([], "And this?", media=[str(tmp_path / "notes.png"), str(tmp_path / "shot.png")])
    kinds = [part["type"] for part in both[-1]["content"]]
    assert kinds == ["text", "image_url", "text"]
    note, _, text = both[-1]["content"][2]["text"].partition("\n\n")
    assert note.startswith("[not shown: ") and "notes.png" in note
    assert text == "And this?"
    assert ["not shown" in warned.message for warned in context.warnings] == [True]
    alone = context.build_messages([], "And this?", media=[str(tmp_path / "none.png")])[-1]["content"]
    assert alone.splitlines()[-1] == "And this?" and "\n\n[not shown: " in alone


def test_a_message_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadEvent, check=has_code("empty_event")):
        built(tmp_path).build_messages([], " \n")


@given(st.text(), st.text())
def test_no_channel_or_text_forges_a_line_of_the_metadata(
    tmp_path_factory: pytest.TempPathFactory, channel: str, text: str
) -> None:
    """Document 003, "Runtime Context": "tagged to prevent prompt injection attacks"."""
    said = built(tmp_path_factory.getbasetemp()).build_messages([], f"{HEAD}\n{text}", channel=channel)[-1]["content"]
    runtime, _, rest = said.partition("\n\n")
    lines = runtime.split("\n")
    assert lines[0] == HEAD
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "Current Time",
        "Timezone",
        *(["Channel"] if channel.strip() else []),
    ]
    assert rest.startswith("\\[Runtime Context")


def test_lone_surrogates_show_as_what_cannot_be_read(tmp_path: Path) -> None:
    """Document 003, "Runtime Context": no value, whatever it holds, stops a message."""
    messages = built(tmp_path).build_messages([], "a\ud800b", channel="\udfff")
    assert problems(messages) == []


# the lists -----------------------------------------------------------------------------------------------------------


def test_adding_appends_to_the_list_and_returns_the_same_one(tmp_path: Path) -> None:
    """Decided: "`add_assistant_message` and `add_tool_result` append to the list and return the same list"."""
    context, messages = built(tmp_path), list[dict[str, Any]]()
    assert context.add_assistant_message(messages, "hi") is messages
    assert context.add_tool_result(messages, "c1", "look", "sun") is messages
    assert messages == [
        {"role": "assistant", "content": "hi"},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "sun"},
    ]


def test_building_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    """Document 003, "Architecture Notes": "The context builder is stateless"."""
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    context = built(tmp_path)
    messages = context.build_messages(history, "next")
    context.add_assistant_message(messages, "done")
    assert len(history) == 2
    assert context.build_messages(history, "next")[:-1] == messages[:3]


def test_an_answer_keeps_calls_reasoning_and_thinking_as_given(tmp_path: Path) -> None:
    """Document 003, "add_assistant_message": the content "can be None if only tool calls"; reasoning, thinking blocks."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    context = built(tmp_path)
    messages = context.build_messages([], "look")
    context.add_assistant_message(messages, None, [call])
    assert messages[-1] == {"role": "assistant", "content": None, "tool_calls": [call]}
    context.add_tool_result(messages, "c1", "look", "sun")
    assert problems(messages) == []
    context.add_assistant_message(messages, None)
    assert messages[-1] == {"role": "assistant", "content": ""}
    context.add_assistant_message(messages, "so", None, "because", [block])
    assert messages[-1] == {
        "role": "assistant",
        "content": "so",
        "reasoning_content": "because",
        "thinking_blocks": [block],
    }
