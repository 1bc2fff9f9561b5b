"""Streams of the four formats: joined, they are the same result as the reply without a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.errors import BadReply, BadSetting
from nexus.types.message import Text, Thinking, ToolCall
from nexus.types.stream_events import Reasoning, Token
from providers.stream_events import STREAMS, chat_events

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
objects = st.dictionaries(texts, st.one_of(st.integers(-9, 9), texts, st.none()), max_size=2)


def whole(text: str) -> list[str]:
    return [text] if text else []


def letters(text: str) -> list[str]:
    return [*text]


def joined(provider: Any, events: Any, *, partial: bool = False) -> nexus.AgentResult:
    reader = nexus.StreamReader(provider)
    for event in events:
        reader.add(event)
    return reader.reply(partial=partial)


def pieces(reader: nexus.StreamReader, events: Any, kind: type) -> str:
    return "".join(piece.text for event in events for piece in reader.add(event) if isinstance(piece, kind))


@pytest.mark.parametrize("provider", STREAMS)
@settings(max_examples=60, deadline=None)
@given(said=texts, thought=texts, arguments=st.lists(objects, max_size=2), data=st.data(), as_dicts=st.booleans())
def test_stream_is_the_result_of_the_whole_reply(
    provider: str, said: str, thought: str, arguments: list[Any], data: st.DataObject, as_dicts: bool
) -> None:
    make, split_into_events = STREAMS[provider]

    def split(text: str) -> list[str]:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        return [piece for piece in pieces if piece]

    reply = make(said, thought, arguments)
    events = [*split_into_events(reply, split)]
    if as_dicts:
        events = [event.model_dump(mode="json") for event in events]
    if provider == "gemini" and not (said or thought or arguments):
        return  # an answer without parts is a content without parts, and no chunk has one
    result = nexus.read_reply(reply)
    assert joined(provider, events) == result
    thinking = "\n".join(
        part.text for m in result.messages for part in m.parts if isinstance(part, Thinking) and part.text
    )
    assert pieces(nexus.StreamReader(provider), events, Token) == "".join(m.text() for m in result.messages)  # pyright: ignore[reportArgumentType]
    assert pieces(nexus.StreamReader(provider), events, Reasoning) == thinking  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("provider", STREAMS)
def test_result_has_text_thinking_calls_usage_and_reasons(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    result = joined(provider, split_into_events(make("Yes.", "Hm.", [{"a": 1}]), letters))
    assert result.messages[0].text() == "Yes."
    assert "Hm." in [part.text for part in result.messages[0].parts if isinstance(part, Thinking)]
    assert [(call.name, json.loads(call.arguments)) for call in result.tool_calls] == [("look", {"a": 1})]
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.cache_read_tokens) == (100, 20, 64)
    assert (result.stop_reason, bool(result.provider_stop_reason), bool(result.model)) == ("tool_use", True, True)


@pytest.mark.parametrize("provider", ["openai", "responses"])
def test_refusal_is_joined(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    reply = make("", "", [], "No.")
    result = joined(provider, split_into_events(reply, letters))
    assert result == nexus.read_reply(reply)
    assert result.messages[0].parts == (Text("No."),)


@pytest.mark.parametrize("provider", STREAMS)
def test_read_yields_the_events_on(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    reply = make("Yes.", "", [{"a": 1}])
    events = [*split_into_events(reply, letters)]

    async def stream() -> AsyncIterator[Any]:
        for event in events:
            yield event

    async def read() -> tuple[list[Any], nexus.AgentResult]:
        reader = nexus.StreamReader(provider)  # pyright: ignore[reportArgumentType]
        return [event async for event in reader.apass_events(stream())], reader.reply()

    reader = nexus.StreamReader(provider)  # pyright: ignore[reportArgumentType]
    assert [*reader.pass_events(iter(events))] == events
    assert (events, reader.reply()) == asyncio.run(read())


@pytest.mark.parametrize("provider", STREAMS)
def test_read_yields_the_text_without_thinking(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    events = [*split_into_events(make("Yes, of course.", "Hm.", [{"a": 1}]), letters)]

    async def stream() -> AsyncIterator[Any]:
        for event in events:
            yield event

    async def read() -> list[str]:
        return [text async for text in nexus.StreamReader(provider).aread(stream())]  # pyright: ignore[reportArgumentType]

    texts = [*nexus.StreamReader(provider).read(events)]  # pyright: ignore[reportArgumentType]
    assert "".join(texts) == "Yes, of course."
    assert len(texts) > 1
    assert asyncio.run(read()) == texts


@pytest.mark.parametrize("provider", STREAMS)
def test_reader_is_complete_only_after_the_end(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    events = [*split_into_events(make("Yes.", "", []), letters)]
    reader = nexus.StreamReader(provider)  # pyright: ignore[reportArgumentType]
    half = len(events) // 2
    states = [(reader.is_complete, [*reader.pass_events(some)]) for some in (events[:half], events[half:])]
    assert ([is_complete for is_complete, _ in states], reader.is_complete) == ([False, False], True)


# Broken off


@pytest.mark.parametrize("provider", STREAMS)
def test_stream_without_its_end_is_rejected(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    events = [*split_into_events(make("Yes.", "", []), letters)]
    ends = {"openai": 2}.get(provider, 1)
    with pytest.raises(BadReply, match=r"no end event.*reply\(partial=True\)"):
        joined(provider, events[:-ends])
    with pytest.raises(BadReply, match="no end event"):
        joined(provider, [])


@pytest.mark.parametrize("provider", STREAMS)
@settings(max_examples=60, deadline=None)
@given(said=texts, arguments=st.lists(objects, min_size=1, max_size=2), share=st.floats(0, 1))
def test_partial_reply_has_only_complete_calls(provider: str, said: str, arguments: list[Any], share: float) -> None:
    make, split_into_events = STREAMS[provider]
    reply = make(said, "Hm.", arguments)
    events = [*split_into_events(reply, letters)]
    whole_reply = nexus.read_reply(reply)
    result = joined(provider, events[: int(share * len(events))], partial=True)
    calls = [(call.name, json.loads(call.arguments)) for call in result.tool_calls]
    assert calls == [("look", one) for one in arguments][: len(calls)]
    texts_so_far = "".join(message.text() for message in result.messages)
    assert "".join(message.text() for message in whole_reply.messages).startswith(texts_so_far)
    assert result.stop_reason in ("aborted", "tool_use")


def test_call_that_was_broken_off_is_left_out() -> None:
    make, split_into_events = STREAMS["anthropic"]
    events = [*split_into_events(make("I look.", "", [{"path": "a"}]), letters)]
    result = joined("anthropic", events[:-4], partial=True)
    assert (result.messages[0].parts, result.stop_reason) == ((Text("I look."),), "aborted")


def test_partial_reply_can_be_recorded_and_continued() -> None:
    make, split_into_events = STREAMS["anthropic"]
    events = [*split_into_events(make("I look.", "Hm.", [{"path": "a"}]), letters)]
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5") as nx:
        nx.record(nx.assemble("Go."), joined("anthropic", events[:-4], partial=True))
        messages = nx.assemble("And?").to_anthropic()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert "toolu_0" not in json.dumps(messages)


def test_thinking_that_was_broken_off_is_not_sent_again() -> None:
    make, split_into_events = STREAMS["anthropic"]
    events = [*split_into_events(make("", "Hm.", []), letters)][:4]
    result = joined("anthropic", events, partial=True)
    assert result.messages[0].parts == (Thinking("Hm"),)
    assert '"thinking"' not in result.messages[0].received


@pytest.mark.parametrize(
    ("provider", "event"),
    [
        ("openai", {"error": {"message": "overloaded", "code": 529}}),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
        ("responses", {"type": "error", "message": "overloaded", "code": "server_error", "sequence_number": 1}),
    ],
)
def test_error_in_a_stream_is_reported(provider: Any, event: Any) -> None:
    with pytest.raises(BadReply, match="overloaded"):
        joined(provider, [event])
    result = joined(provider, [event], partial=True)
    assert (result.messages, result.stop_reason, result.error) == ((), "error", "overloaded")


# What is no stream, and no reply


@pytest.mark.parametrize("event", ["data: {}", 7, None, b"{}"])
def test_what_is_no_event_is_rejected(event: Any) -> None:
    with pytest.raises(BadReply, match="stream event not readable"):
        nexus.StreamReader("openai").add(event)


def test_unknown_provider_is_rejected() -> None:
    with pytest.raises(BadSetting, match="openai, responses, anthropic, gemini"):
        nexus.StreamReader("mistral")  # pyright: ignore[reportArgumentType]


def test_arguments_of_gemini_in_pieces_are_rejected_with_the_setting() -> None:
    part = {
        "functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": True}
    }
    with pytest.raises(BadReply, match="stream_function_call_arguments"):
        nexus.StreamReader("gemini").add({"candidates": [{"content": {"parts": [part]}}]})


@pytest.mark.parametrize("provider", STREAMS)
def test_single_event_is_no_reply(provider: str) -> None:
    make, split_into_events = STREAMS[provider]
    first = next(split_into_events(make("Yes.", "", []), letters))
    with pytest.raises(BadReply, match=r"nexus\.StreamReader"):
        nexus.read_reply(first)


def test_stream_itself_is_no_reply() -> None:
    make, _ = STREAMS["openai"]
    with pytest.raises(BadReply, match=r"nexus\.StreamReader"):
        nexus.read_reply(chat_events(make("Yes.", "", []), letters))


def test_text_is_no_reply() -> None:
    with pytest.raises(BadReply, match=r"nexus\.AgentResult\(\(nexus\.assistant\(text\),\)\)"):
        nexus.read_reply("Yes.")


# Particulars of servers


def chunk(delta: Any, **fields: Any) -> Any:
    return {"object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, **fields}]}


def test_calls_without_an_index_or_in_one_piece_are_joined() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    result = joined("openai", [chunk({"tool_calls": [call]}), chunk({}, finish_reason="stop")])
    assert result.tool_calls == (ToolCall("c1", "f", '{"a":1}'),)


def test_chunks_of_the_packages_helper_are_read() -> None:
    inner = [chunk({"content": "Yes."}), chunk({}, finish_reason="stop")]
    events = [{"type": "content.delta", "delta": "Yes."}, *({"type": "chunk", "chunk": one} for one in inner)]
    assert joined("openai", events).messages[0].text() == "Yes."


def test_response_whose_last_event_lacks_its_items_has_them_from_the_others() -> None:
    make, split_into_events = STREAMS["responses"]
    reply = make("Yes.", "Hm.", [{"a": 1}])
    events = [event.model_dump(mode="json") for event in split_into_events(reply, whole)]
    events[-1]["response"]["output"] = []
    assert joined("responses", events) == nexus.read_reply(reply)


def test_blocked_prompt_of_gemini_ends_its_stream() -> None:
    result = joined("gemini", [{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}])
    assert (result.messages, result.stop_reason, result.error, result.usage.input_tokens) == (
        (),
        "content_filter",
        "SAFETY",
        3,
    )


def test_tokens_of_a_break_are_those_of_the_start() -> None:
    make, split_into_events = STREAMS["anthropic"]
    events: Iterator[Any] = split_into_events(make("Yes.", "", []), whole)
    assert joined("anthropic", [next(events)], partial=True).usage.input_tokens == 100


def test_pieces_of_several_parts_join_as_the_text_of_the_message() -> None:
    def block(index: int, kind: str, *texts: str) -> list[dict[str, Any]]:
        start = {"type": "content_block_start", "index": index, "content_block": {"type": kind, kind: ""}}
        deltas = [{"type": f"{kind}_delta", kind: text} for text in texts]
        return [start, *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)]

    message = {"type": "message", "role": "assistant", "content": [], "model": "m"}
    events = [
        {"type": "message_start", "message": message},
        *block(0, "thinking", "Hm", "m."),
        *block(1, "text", "One"),
    ]
    events += [*block(2, "thinking", "So."), *block(3, "text"), *block(4, "text", "T", "wo"), {"type": "message_stop"}]
    assert pieces(nexus.StreamReader("anthropic"), events, Reasoning) == "Hmm.\nSo."
    assert pieces(nexus.StreamReader("anthropic"), events, Token) == "One\nTwo"
    assert joined("anthropic", events).messages[0].text() == "One\nTwo"


def test_summaries_of_one_reasoning_item_are_paragraphs() -> None:
    def delta(item: int, part: int, text: str) -> dict[str, Any]:
        kind = "response.reasoning_summary_text.delta"
        return {"type": kind, "output_index": item, "summary_index": part, "delta": text}

    events = [delta(0, 0, "First"), delta(0, 0, "."), delta(0, 1, "Second."), delta(1, 0, "Third.")]
    assert pieces(nexus.StreamReader("responses"), events, Reasoning) == "First.\n\nSecond.\nThird."
