"""Document 004's ContextManager: what is added is shown, counted and sent."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

import nexus.compat.nexus3.context
from compat.nexus3.talks import AT, Clock, Listener, call, manager, problems, texts
from nexus.compat.nexus3.context import ContextConfig, ContextManager, SimpleTokenCounter, TiktokenCounter
from nexus.errors import BadReply, BadSetting, BadTool
from nexus.types.message import Text, ToolCall, ToolResult
from support.errors import has_code
from support.sdk_replies import openai_reply

START = "[Session started: 2026-01-13 14:30 (UTC)]"
PRINTED = [
    "CompactionResult",
    "build_summarize_prompt",
    "create_summary_message",
    "select_messages_for_compaction",
    "LoadedPrompt",
    "PromptLoader",
    "TokenCounter",
    "SimpleTokenCounter",
    "TiktokenCounter",
    "get_token_counter",
    "ContextManager",
    "ContextConfig",
]


def test_the_module_exports_exactly_the_printed_names() -> None:
    """Document 004, "Module Exports": `__all__`, in its order."""
    assert nexus.compat.nexus3.context.__all__ == PRINTED
    for name in PRINTED:
        assert (inspect.getdoc(getattr(nexus.compat.nexus3.context, name)) or "").strip(), name


def test_the_configuration_has_the_printed_fields_and_defaults() -> None:
    """Document 004, "Configuration": `max_tokens: int = 8000`, `reserve_tokens: int = 2000`, `"oldest_first"`."""
    assert [(one.name, one.default) for one in fields(ContextConfig)] == [
        ("max_tokens", 8000),
        ("reserve_tokens", 2000),
        ("truncation_strategy", "oldest_first"),
    ]


def test_a_setting_that_cannot_be_is_refused_with_the_choices() -> None:
    with pytest.raises(BadSetting, match="oldest_first or middle_out"):
        ContextConfig(truncation_strategy="newest_first")
    with pytest.raises(BadSetting, match=r"strategy \['oldest_first'\] unknown"):
        ContextConfig(truncation_strategy=["oldest_first"])  # pyright: ignore[reportArgumentType]
    for amount in (-1, "8000", 8000.5, None):
        with pytest.raises(BadSetting, match="max_tokens invalid: ", check=has_code("bad_budget")):
            ContextConfig(max_tokens=amount)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadSetting, match="reserve_tokens", check=has_code("bad_budget")):
        ContextConfig(reserve_tokens=-1)
    with pytest.raises(BadSetting, match="message or system"):
        ContextManager(clock="wall")  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadSetting, match="Mars/Olympus"):
        ContextManager(timezone="Mars/Olympus")


def test_without_arguments_a_manager_has_the_documented_defaults() -> None:
    context = ContextManager()
    assert context.config == ContextConfig()
    assert isinstance(context.token_counter, TiktokenCounter)
    assert context.system_prompt == ""
    assert context.get_tool_definitions() == []


def test_the_documented_example_of_basic_use_works() -> None:
    context = ContextManager(ContextConfig(max_tokens=8000, reserve_tokens=2000), clock_ms=Clock())
    context.set_system_prompt("You are helpful.")
    context.add_user_message("Hello!")
    context.add_assistant_message("Hi there!")
    stamp = "Current date: 2026-01-13, Current time: 14:30 (UTC)"
    assert context.build_messages() == [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": START},
        {"role": "user", "content": f"{stamp}\n\nHello!"},
        {"role": "assistant", "content": "Hi there!"},
    ]
    assert context.get_tool_definitions() == []


def test_the_first_message_of_a_session_says_when_it_began() -> None:
    """Document 004, "Combination": "The first message in a new session's history is always: [Session started: …]"."""
    clock = Clock()
    context = manager(clock_ms=clock)
    clock.forward(90)
    context.add_user_message("Hello!")
    assert texts(context.messages) == [START, "Hello!"]
    assert texts(manager(timezone="Asia/Shanghai").messages) == ["[Session started: 2026-01-13 22:30 (local)]"]


def test_messages_is_a_copy() -> None:
    """Document 004, "Properties": `messages`, "Get all messages (read-only copy)"."""
    context = manager()
    context.add_user_message("Hello!")
    context.messages.clear()
    context.messages.append("nothing")
    assert texts(context.messages) == [START, "Hello!"]


def test_tool_calls_are_taken_in_every_usual_form() -> None:
    context = manager()
    forms = [
        ToolCall("a", "read", '{"path": "x"}'),
        call("b", "read", '{"path": "x"}'),
        {"id": "c", "name": "read", "arguments": {"path": "x"}},
    ]
    context.add_user_message("Read.")
    context.add_assistant_message(None, forms)
    context.add_tool_result("a", "read", "text")
    context.add_tool_result("b", "read", ToolResult("", (Text("failed"),), is_error=True))
    context.add_tool_result("c", "read", {"lines": 3})
    body = context.build_messages()
    assert problems(body) == []
    sent = [one["function"]["arguments"] for one in body[-4]["tool_calls"]]
    assert sent == ['{"path": "x"}', '{"path": "x"}', '{"path":"x"}']
    assert [one["content"] for one in body[-3:]] == ["text", "failed", '{"lines":3}']
    assert next(context.log.history()[-2].results()).is_error


def test_tool_calls_of_the_providers_own_package_are_taken_as_they_are() -> None:
    message = openai_reply("I look.", call=True).choices[0].message
    context = manager()
    context.add_user_message("Read.")
    context.add_assistant_message(message.content, message.tool_calls)
    context.add_tool_result(message.tool_calls[0].id, "read_file", "text")
    body = context.build_messages()
    assert problems(body) == []
    (sent,) = body[-2]["tool_calls"]
    assert sent["function"] == {"name": "read_file", "arguments": '{"path": "notes.md"}'}


@pytest.mark.parametrize("calls", ["read", {"id": "a", "name": "read"}, [call("a"), 5], [{"id": "a", "function": "f"}]])
def test_what_is_no_list_of_tool_calls_is_refused_and_nothing_is_added(calls: Any) -> None:
    context = manager()
    context.add_user_message("Read.")
    with pytest.raises(BadReply, match="invalid: "):
        context.add_assistant_message("I look.", calls)
    assert texts(context.messages) == texts(context.log.history()) == [START, "Read."]


def test_what_is_no_definition_of_a_tool_is_refused_and_the_tools_stay() -> None:
    context = manager()
    context.set_tool_definitions([{"name": "read"}])
    for tools, said in (([{"name": object()}], "0 has no JSON form"), ([{"name": "b"}, "c"], "1 invalid: str")):
        with pytest.raises(BadTool, match=said):
            context.set_tool_definitions(tools)
    assert context.get_tool_definitions() == [{"name": "read"}]
    context.set_tool_definitions([{"name": "read", "description": "half of a pair: \ud83d"}])
    assert context.get_token_usage()["tools"] > 0


def test_the_methods_take_their_arguments_by_the_printed_names() -> None:
    """Document 004, "Message Methods"."""
    context = manager()
    context.add_user_message(content="Read.")
    context.add_assistant_message(content="I look.", tool_calls=[call("a")])
    context.add_tool_result(tool_call_id="a", name="read", result="found")
    assert texts(context.messages)[1:] == ["Read.", "I look.", "read?", "!found"]


def test_open_calls_are_answered_in_request_but_not_in_messages() -> None:
    context = manager()
    context.add_user_message("Read both.")
    context.add_assistant_message("", [call("a"), call("b")])
    context.add_tool_result("b", "read", "B")
    body = context.build_messages()
    assert problems(body) == []
    assert [one["content"] for one in body[-2:]] == ["B", "[result unavailable: interrupted]"]
    context.add_tool_result("a", "read", "A")
    assert [one["content"] for one in context.build_messages()[-2:]] == ["B", "A"]
    assert texts(context.messages)[-4:] == ["read?", "read?", "!B", "!A"]


def test_clearing_keeps_system_prompt_tools_and_the_sessions_first_line() -> None:
    """Document 004, "Message Methods": "Clear all messages (keeps system prompt and tools)"."""
    context = manager()
    context.set_system_prompt("Be brief.")
    context.set_tool_definitions([{"name": "read"}])
    context.add_user_message("Hello!")
    context.clear_messages()
    assert texts(context.messages) == [START]
    assert (context.system_prompt, context.get_tool_definitions()) == ("Be brief.", [{"name": "read"}])
    assert problems(context.build_messages()) == []
    assert texts(context.log.history()) == ["Be brief.", START, "Hello!"]


def test_usage_has_the_documented_keys_and_adds_up() -> None:
    """Document 004, "Token Tracking": "breakdown: system, tools, messages, total, budget, available"."""
    context = manager()
    counter = SimpleTokenCounter()
    context.set_tool_definitions([{"name": "read"}])
    context.add_user_message("four" * 10)
    usage = context.get_token_usage()
    assert usage == {
        "system": counter.count(context.build_messages()[0]["content"]),
        "tools": counter.count('[{"name":"read"}]'),
        "messages": counter.count_messages(context.messages),
        "total": usage["system"] + usage["tools"] + usage["messages"],
        "budget": 8000,
        "available": 6000,
    }
    plain = manager(clock="message")
    plain.set_system_prompt("four" * 3)
    assert plain.get_token_usage()["system"] == 3


def test_over_budget_means_more_than_what_is_available() -> None:
    """Document 004, "Token Tracking": "Check if total > available"."""
    context = manager(60, 20)
    used = context.get_token_usage()["total"]
    context.add_user_message("four" * (36 - used))
    assert context.get_token_usage()["total"] == 40
    assert not context.is_over_budget()
    context = manager(60, 20)
    context.add_user_message("four" * (36 - used) + "x")
    assert context.is_over_budget()


def test_custom_logger_and_memory_ledger_receive_every_step() -> None:
    """Document 004, "Responsibilities": "Logs to `SessionLogger` if provided"."""
    listener = Listener()
    context = manager(logger=listener, clock="message")
    context.set_system_prompt("You are helpful.")
    context.set_system_prompt("You are helpful.")
    context.add_user_message("Hello!")
    context.add_assistant_message("I look.", [call("a")])
    context.add_tool_result("a", "read", "found")
    assert listener.told == [
        ("system", "You are helpful."),
        ("user", START),
        ("user", "Current date: 2026-01-13, Current time: 14:30 (UTC)\n\nHello!"),
        ("assistant", "I look.", ("read",)),
        ("tool", "a", "read", "found"),
    ]
    assert texts(context.log.history()) == ["You are helpful.", START, "Hello!", "I look.", "read?", "!found"]


def test_a_logger_that_fails_leaves_the_view_as_it_was() -> None:
    class Full(Listener):
        def log_user(self, content: str) -> None:
            if "Hello" in content:
                raise OSError("disk full")

    context = manager(logger=Full())
    with pytest.raises(OSError, match="disk full"):
        context.add_user_message("Hello!")
    assert texts(context.messages) == [START]
    assert texts(context.log.history()) == [START]


def test_a_session_in_which_nothing_happened_leaves_no_trace() -> None:
    assert manager().log.history() == []


def test_strange_text_is_stored_as_it_is_and_sent_as_a_body_can_carry_it() -> None:
    context = manager()
    context.set_system_prompt("a\ud800b")
    context.add_user_message("\ud800\x00")
    assert context.log.history()[-1].text() == "\ud800\x00"
    body = context.build_messages()
    assert body[-1]["content"] == "\ufffd\x00"
    assert "\ud800" not in body[0]["content"]


def test_the_time_that_is_stored_is_that_of_the_clock() -> None:
    context = manager()
    context.add_user_message("Hello!")
    assert [message.at_ms for message in context.log.history()] == [AT, AT]
