"""Reading the messages that a program has: in any format, as dicts or objects, mixed, and errors that name the item."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai import types
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response

import nexus
from nexus.errors import BadEvent, BadSetting
from nexus.providers.messages import as_messages
from nexus.types.message import Text, Thinking, ToolCall, ToolResult, Unknown
from providers.received_cases import CASES, answer, content, part, text, user
from support.continued import sent
from support.sdk_replies import anthropic_reply, gemini_reply, openai_reply, responses_reply

PLAIN = (
    "plain",
    "two users",
    "prefill",
    "whitespace",
    "lone surrogates",
    "tags",
    "texts",
    "empty assistant",
    "only system",
)
"""Conversations that are the same in several formats."""


@pytest.mark.parametrize("provider", CASES)
def test_format_is_recognized(provider: str) -> None:
    for name, items in CASES[provider].items():
        if name not in (*PLAIN, "developer first", "system in the middle", "developer in the middle", "blocks"):
            assert nexus.read_messages(items) == nexus.read_messages(items, provider), name  # pyright: ignore[reportArgumentType]


def test_plain_messages_are_read_as_chat_completions() -> None:
    items = [user([text("hi")]), answer("hello")]
    assert nexus.read_messages(items) == nexus.read_messages(items, "openai")


def test_mixed_formats_are_rejected_with_their_places() -> None:
    items = [user("hi"), CASES["anthropic"]["thinking"][1], CASES["openai"]["tool round"][1]]
    with pytest.raises(BadEvent, match=r"message 1 is of format anthropic, message 2 is of format openai.*provider="):
        nexus.read_messages(items)


@pytest.mark.parametrize(
    ("items", "provider", "reason"),
    [
        ([user("x"), {"role": "wizard", "content": "x"}], "openai", "message 1: not a message: 'role' is 'wizard'"),
        ([user("x"), 7], "anthropic", "message 1: not a message"),
        (
            [user("x"), {"role": "tool", "content": "x", "tool_call_id": "c"}],
            "responses",
            "message 1: .*function_call_output",
        ),
        ([content("user", part("x")), {"role": "user", "parts": "x"}], "gemini", "message 1: not a content"),
        ("hi", "openai", "has no plain text"),
        (7, None, "message 0: not a message"),
        ([user({"a": 1})], None, "message 0: .*'content' is dict"),
    ],
)
def test_item_that_is_no_message_is_rejected_with_its_index(items: Any, provider: Any, reason: str) -> None:
    with pytest.raises(BadEvent, match=reason):
        nexus.read_messages(items, provider)


def test_unknown_provider_is_rejected_with_the_possible_ones() -> None:
    with pytest.raises(BadSetting, match="openai, responses, anthropic, gemini"):
        nexus.read_messages([], "mistral")  # pyright: ignore[reportArgumentType]


def test_items_that_are_nested_too_deeply_are_rejected() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(BadEvent, match="nested too deeply"):
        nexus.read_messages([user([{"type": "file", "file": deep}])])


@pytest.mark.parametrize("provider", ["responses", "gemini", None])
def test_text_is_a_message_where_the_api_takes_one(provider: Any) -> None:
    assert nexus.read_messages("hi", provider) == [nexus.user("hi")]


def test_texts_and_parts_among_gemini_contents_are_messages() -> None:
    assert nexus.read_messages(["hi", {"text": "you"}, types.Part(text="x")], "gemini") == [
        nexus.user("hi"), nexus.user("you"), nexus.user("x"),
    ]  # fmt: skip


def test_one_message_is_a_list_of_one() -> None:
    assert nexus.read_messages(user("hi")) == [nexus.user("hi")]
    assert as_messages(nexus.user("hi")) == [nexus.user("hi")]


def test_objects_of_the_packages_are_read() -> None:
    chat: ChatCompletionMessage = openai_reply(call=True).choices[0].message
    (read,) = nexus.read_messages([chat])
    assert read.parts == (Text("Yes."), ToolCall("call_1", "read_file", '{"path": "notes.md"}'))
    reply: AnthropicMessage = anthropic_reply(call=True)
    asked, answered = nexus.read_messages([user("hi"), {"role": "assistant", "content": reply.content}])
    assert (asked, answered.parts[0]) == (nexus.user("hi"), Thinking("An easy one.", signature="c2ln"))
    response: Response = responses_reply(call=True)
    asked, answered = nexus.read_messages([user("hi"), *response.output])
    assert [type(one) for one in answered.parts] == [Thinking, Text, ToolCall]
    thought = types.Part(text="k", thought_signature=b"\xff\xef")
    (model,) = nexus.read_messages([types.Content(role="model", parts=[thought])])
    assert model.parts == (Thinking("", signature="_-8="), Text("k"))


def test_objects_of_the_packages_are_sent_as_their_fields() -> None:
    reply = responses_reply(call=True)
    items = [user("go"), *reply.output, {"type": "function_call_output", "call_id": "call_1", "output": "ok"}]
    assert sent(items, "responses")[1:4] == [one.model_dump(mode="json", exclude_none=True) for one in reply.output]
    answered = gemini_reply().candidates[0].content
    assert sent([content("user", part("go")), answered, content("user", part("n"))], "gemini")[1] == content(
        "model", {"text": "An easy one.", "thought": True}, part("Yes.")
    )


def test_neutral_messages_and_a_providers_are_read_together() -> None:
    call = nexus.ToolCall("c1", "look", "{}")
    items = [
        nexus.user("go"),
        nexus.assistant("", call),
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        user("n"),
    ]
    assert as_messages(items) == [
        nexus.user("go"),
        nexus.assistant("", call),
        nexus.tool("c1", "ok", "look"),
        nexus.user("n"),
    ]


def test_items_of_the_model_in_a_row_are_one_message() -> None:
    messages = nexus.read_messages(CASES["responses"]["reasoning, text and call with ids"], model="gpt-5")
    assert [message.role for message in messages] == ["user", "assistant", "tool", "user"]
    assert [type(one) for one in messages[1].parts] == [Thinking, Text, ToolCall]
    assert messages[1].model == "gpt-5"
    assert messages[2].parts == (ToolResult("c1", (Text("ok"),), "f"),)


def test_items_of_a_program_are_its_own_messages() -> None:
    messages = nexus.read_messages(CASES["responses"]["computer"], "responses")
    assert [(message.role, type(message.parts[0])) for message in messages[1:3]] == [
        ("assistant", Unknown),
        ("user", Unknown),
    ]


def test_iterables_are_read() -> None:
    assert nexus.read_messages(iter((user("a"), user("b")))) == [nexus.user("a"), nexus.user("b")]
