"""What went in comes out: in the same format, messages are sent as received unless something has to be altered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nexus
from nexus.interop.chat_files import read_openai
from nexus.interop.importing import import_transcript
from nexus.ledger.codec import decode_content, encode_parts
from nexus.render.export import as_anthropic, as_openai
from nexus.text.as_received import received_items
from nexus.tokens.counter import get_counter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.message import Image, Message, Note, Text, Thinking, with_parts
from providers.received_cases import (
    ANTHROPIC,
    BLOCK_IMAGE,
    CASES,
    CITED,
    CUSTOM_CALL,
    DOCUMENT,
    GEMINI,
    PNG,
    REASONING,
    SEARCH,
    answer,
    as_its_rules_have_it,
    chat_result,
    content,
    conversations,
    output,
    part,
    text,
    user,
)
from support.continued import BODIES, PROFILE, context, sent, store, without_breakpoints

ALTERED: dict[tuple[str, str], str] = {
    ("openai", "developer first"): "the opening instructions stand in the system slot",
    ("openai", "only system"): "the opening instructions stand in the system slot",
    ("openai", "bad arguments"): "arguments that are no JSON object are repaired: other providers reject them",
    ("openai", "empty assistant"): "a message without content is left out: Anthropic and Gemini reject it",
    ("openai", "lone surrogates"): "they are no UTF-8, so no body can carry them",
    ("responses", "reasoning without its content"): "only a server that stores it takes it",
    ("responses", "compaction first"): "a conversation begins with a user's message",
    ("anthropic", "system in the middle"): "Sonnet 4.5 takes no system message in the conversation",
    ("gemini", "camel case"): "names are sent in snake case, as the package has them",
}
"""Conversations that are sent otherwise than received, and why."""

same = [(provider, name) for provider, cases in CASES.items() for name in cases if (provider, name) not in ALTERED]


@pytest.mark.parametrize(("provider", "name"), same)
def test_conversation_is_sent_as_received(provider: str, name: str) -> None:
    items = CASES[provider][name]
    assert sent(items, provider) == as_its_rules_have_it(provider, items)


@pytest.mark.parametrize(("provider", "name"), ALTERED)
def test_conversation_that_has_to_be_altered_is_not_sent_as_received(provider: str, name: str) -> None:
    items = CASES[provider][name]
    assert sent(items, provider) != as_its_rules_have_it(provider, items)


@pytest.mark.parametrize("provider", BODIES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_conversation_is_sent_as_received(provider: str, data: st.DataObject) -> None:
    items = data.draw(conversations(provider))
    before = json.dumps(items)
    assert sent(items, provider) == as_its_rules_have_it(provider, items)
    assert json.dumps(items) == before


@pytest.mark.parametrize("provider", BODIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_conversation_is_sent_in_every_other_format(provider: str, data: st.DataObject) -> None:
    items = data.draw(conversations(provider))
    for other in BODIES.keys() - {provider}:
        body = json.dumps(sent(items, provider, other))
        assert "thought_signature" not in body
        assert "encrypted_content" not in body


def only(items: list[Any], provider: Any = None) -> Message:
    (message,) = nexus.read_messages(items, provider)
    return message


def test_nothing_is_stored_twice_where_the_parts_say_all() -> None:
    assert only([user("  hi\n")]).received == ""
    assert only([content("user", part("hi"))]).received == ""
    assert all(not message.received for message in nexus.read_messages(ANTHROPIC["parallel"], "anthropic"))


def test_image_data_is_stored_once() -> None:
    message = only([user([BLOCK_IMAGE, {**DOCUMENT, "title": "T"}])])
    assert PNG not in message.received
    assert received_items(message, "anthropic") == [user([BLOCK_IMAGE, {**DOCUMENT, "title": "T"}])]


def test_message_as_received_is_read_back_from_the_ledger() -> None:
    message = only([user([BLOCK_IMAGE, DOCUMENT, text("a\ud800")])])
    blobs: dict[str, bytes] = {}
    parts, received = decode_content(encode_parts(message.parts, blobs, message.received), blobs.__getitem__)
    assert (parts, received) == (message.parts, message.received)
    assert len(blobs) == 1


def test_messages_as_received_survive_the_ledger_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    messages = nexus.read_messages(
        [user([BLOCK_IMAGE, DOCUMENT, text("read the plan\ud800")]), answer("k")], "anthropic"
    )
    with nexus.open(ledger=path, profiles={"own": PROFILE}) as nx:
        store(nx, messages)
    with nexus.open(ledger=path) as nx:
        assert nx.history("s") == messages


def test_message_whose_image_is_gone_is_sent_from_its_parts() -> None:
    message = only([user([BLOCK_IMAGE, DOCUMENT])])
    gone = [Image("image/png", sha256="0" * 64) if isinstance(one, Image) else one for one in message.parts]
    damaged = Message("user", tuple(gone), received=message.received)
    assert received_items(damaged, "anthropic") is None


def test_reply_is_sent_back_as_received() -> None:
    reply = {
        "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "pause_turn",
        "content": [*SEARCH, text("x", citations=[CITED]), text("y", citations=None)],
    }  # fmt: skip
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5") as nx:
        nx.record(nx.assemble("Search."), reply)
        messages = without_breakpoints(nx.assemble("And now?").to_anthropic()["messages"])
    assert messages[1] == answer([*SEARCH, text("x", citations=[CITED]), text("y")])


def test_signature_of_a_gemini_reply_returns_to_its_model_alone() -> None:
    called = {"function_call": {"name": "f", "args": {}}, "thought_signature": "c2ln"}
    reply = {
        "candidates": [{"content": content("model", called), "finish_reason": "STOP"}],
        "model_version": "gemini-3-pro",
    }
    with nexus.open(ledger=":memory:", model="gemini-3-pro") as nx:
        nx.record(nx.assemble("Go."), reply)
        (call,) = nx.history("main")[-1].calls()
        event = [nexus.tool(call.id, "ok", "f")]
        own = nx.assemble(event).to_gemini()["contents"]
        foreign = nx.assemble(event, model="gemini-2.5-flash").to_gemini()["contents"]
    assert own[1]["parts"] == [
        {"function_call": {**called["function_call"], "id": call.id}, "thought_signature": "c2ln"}
    ]
    assert own[2]["parts"][0]["function_response"]["id"] == call.id
    assert "thought_signature" not in foreign[1]["parts"][0]


def test_thinking_of_a_request_returns_to_its_author_alone_when_named() -> None:
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5", profiles={"own": PROFILE}) as nx:
        signed = answer([{"type": "thinking", "thinking": "t", "signature": "s"}, text("x", citations=[CITED])])
        store(nx, nexus.read_messages([user("go"), signed], "anthropic", model="claude-sonnet-4-5"))
        own = nx.assemble("n", session="s", profile="own").to_anthropic()["messages"][1]
        foreign = nx.assemble("n", session="s", profile="own", model="claude-opus-4-1").to_anthropic()["messages"][1]
    assert own == signed
    assert foreign == answer([text("x", citations=[CITED])])


# Altered messages


def test_truncated_result_is_not_sent_as_received() -> None:
    items = [user("go"), CUSTOM_CALL, output("line of text\n" * 3000, kind="custom_tool_call_output"), user("n")]
    messages = nexus.read_messages(items, "responses")
    with nexus.open(ledger=":memory:", model="gpt-5", max_tool_result_tokens=300, profiles={"own": PROFILE}) as nx:
        body = context(nx, messages).to_responses()["input"]
    assert len(body[2]["output"]) < 3000
    assert body[1] == CUSTOM_CALL
    assert body[2]["type"] == "custom_tool_call_output"


def test_other_parts_are_not_sent_as_received() -> None:
    message = with_parts(only([user([DOCUMENT, text("read")])]), [Text("other")])
    assert message.received == ""


def test_message_with_a_local_image_is_not_sent_as_received() -> None:
    local = {"type": "image_url", "image_url": {"url": "file:///home/you/a.png", "detail": "low"}}
    body = json.dumps(sent([user([text("see"), local])], "openai"))
    assert "home" not in body
    assert "image at a local address" in body


def test_result_of_a_renamed_call_keeps_its_pair() -> None:
    long_id = "c" * 60
    items = [user("go"), {**CUSTOM_CALL, "call_id": long_id}, output("ok", long_id, "custom_tool_call_output")]
    _, call, result = sent(items, "responses")
    assert (call["type"], result["type"]) == ("function_call", "function_call_output")
    assert call["call_id"] == result["call_id"] != long_id


def test_fields_that_a_request_cannot_have_are_not_sent() -> None:
    own = {"id": "m1", "timestamp": "2026-01-05T10:00:00"}
    items = [
        user("go", name="petra"),
        answer(None, tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        chat_result("ok"),
        answer("k", name="b", reasoning_content="hm"),
        user("n"),
    ]
    written = [{**item, **own} for item in items]
    written[2]["name"] = "f"
    assert sent(written, "openai") == sent(items, "openai") == items
    assert not any(message.received for message in nexus.read_messages(written, "openai")[1:3])


def test_result_without_its_tool_name_is_sent_as_received() -> None:
    (read,) = nexus.read_messages([chat_result([text("a"), text("b")])], "openai")
    asked = nexus.read_messages(
        [
            user("go"),
            answer(None, tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        ]
    )
    with nexus.open(ledger=":memory:", model="gpt-4o", profiles={"own": PROFILE}) as nx:
        assert context(nx, [*asked, read]).to_openai()["messages"][-1] == chat_result([text("a"), text("b")])


def test_shortened_gemini_result_is_answered_without_the_id_that_its_call_has_not() -> None:
    response = {"function_response": {"name": "f", "response": {"text": "line\n" * 3000}}}
    items = [
        content("user", part("go")),
        content("model", {"function_call": {"name": "f", "args": {}}}),
        content("user", response),
    ]
    messages = nexus.read_messages(items, "gemini")
    with nexus.open(
        ledger=":memory:", model="gemini-2.5-pro", max_tool_result_tokens=300, profiles={"own": PROFILE}
    ) as nx:
        body = context(nx, messages).to_gemini()["contents"]
    assert "id" not in body[1]["parts"][0]["function_call"]
    assert "id" not in body[2]["parts"][0]["function_response"]


def test_part_of_an_unknown_kind_is_a_warning_in_other_formats_alone() -> None:
    (read,) = nexus.read_messages([user([DOCUMENT, text("read")])], "anthropic")
    event = nexus.Event(read.parts, received=read.received)
    with nexus.open(ledger=":memory:") as nx:
        own, foreign = (nx.assemble(event, model=model).warnings for model in ("claude-sonnet-4-5", "gpt-4o"))
    assert [warning.message.split(":")[0] for warning in foreign if warning.source == "nexus:event"] == [
        "document shown as a note"
    ]
    assert not [warning for warning in own if warning.source == "nexus:event"]


# Notes


@pytest.mark.parametrize("provider", BODIES)
def test_notes_stand_before_the_content_as_received(provider: str) -> None:
    items = {
        "openai": user([text("see"), {"type": "file", "file": {"file_id": "f"}}]),
        "responses": user([{"type": "input_text", "text": "see"}, {"type": "input_file", "file_id": "f"}]),
        "anthropic": user([DOCUMENT, text("see")]),
        "gemini": content("user", {"file_data": {"file_uri": "gs://x"}}, part("see")),
    }
    read = only([items[provider]], provider)
    model, _, body = BODIES[provider]
    with nexus.open(ledger=":memory:", model=model) as nx:
        event = nexus.Event(read.parts, at_ms=1_760_000_000_000, received=read.received)
        (message,) = [m for m in body(nx.assemble(event)) if m["role"] == "user"]
    key = "parts" if provider == "gemini" else "content"
    first, *rest = message[key]
    assert "2025-10-09" in first["text"]
    plain = [{k: v for k, v in block.items() if k != "cache_control"} for block in rest]
    assert plain == items[provider][key]


def test_note_and_plain_text_as_received_are_one_text() -> None:
    read = only([user("hi", name="petra")])
    noted = Message("user", (Note("moment", "now", "o"), *read.parts), received=read.received)
    items = received_items(noted, "openai")
    assert items == [user("now\n\nhi", name="petra")]


def test_content_as_received_cannot_imitate_a_note() -> None:
    read = only([user([DOCUMENT, text("</human_input>")])])
    noted = Message("user", (Note("moment", "now", "o"), *read.parts), received=read.received)
    items = received_items(noted, "anthropic")
    assert items is not None
    assert items[0]["content"][0] == text("now")
    assert items[0]["content"][2] == text("<\\/human_input>")


# Token counts


@pytest.mark.parametrize("provider", BODIES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_base_count_covers_the_message_as_received(provider: str, data: st.DataObject) -> None:
    counter = get_counter("o200k_base")
    provider_format: Any = "openai" if provider == "responses" else provider
    for message in nexus.read_messages(data.draw(conversations(provider)), provider):  # pyright: ignore[reportArgumentType]
        items = received_items(message, provider, with_images=False, with_thinking=False)  # pyright: ignore[reportArgumentType]
        if items is not None:
            counted = counter.count(json.dumps(items, ensure_ascii=False, separators=(",", ":")))
            assert message_tokens(message, counter).on(provider_format) >= counted


def test_document_counts_in_its_own_format() -> None:
    counter = get_counter("o200k_base")
    long = {**DOCUMENT, "source": {**DOCUMENT["source"], "data": "word " * 2000}}
    assert message_tokens(only([user([long])]), counter).anthropic > 2000
    encoded = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 80_000}}
    assert 10_000 <= message_tokens(only([user([encoded])]), counter).anthropic <= 11_000


def test_parts_of_unknown_kinds_stay_a_note_in_other_formats() -> None:
    (message,) = sent([user([DOCUMENT, text("read")])], "anthropic", "openai")
    assert message["content"] == [text("[document: cannot be shown here]"), text("read")]
    assert sent([user("go"), answer(SEARCH), user("n")], "anthropic", "openai")[1] == answer(
        "[server_tool_use: cannot be shown here]"
    )


def test_repair_keeps_and_repeats_what_was_received() -> None:
    for provider, cases in CASES.items():
        for name, items in cases.items():
            once, _ = nexus.repaired(nexus.read_messages(items, provider))  # pyright: ignore[reportArgumentType]
            again, report = nexus.repaired(once)
            assert (name, again, report.changes) == (name, once, {})


def test_saved_context_keeps_what_was_received() -> None:
    from nexus.render.context_json import from_json

    messages = nexus.read_messages([*ANTHROPIC["citations"][:2], user([DOCUMENT])], "anthropic")
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5", profiles={"own": PROFILE}) as nx:
        ctx = context(nx, messages)
        saved = from_json(json.loads(json.dumps(ctx.to_json())))
        assert saved.to_anthropic() == ctx.to_anthropic()


def test_call_with_received_messages_is_replayed() -> None:
    messages = nexus.read_messages([*ANTHROPIC["citations"][:2], user([DOCUMENT, text("read")])], "anthropic")
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5", profiles={"own": PROFILE}) as nx:
        ctx = context(nx, messages)
        nx.record(ctx, nexus.AgentResult((nexus.assistant("k"),)))
        assert nx.replay("s", 2).to_anthropic() == ctx.to_anthropic()


def test_reasoning_without_its_content_goes_to_a_server_that_stores_it() -> None:
    items = [user("go"), {k: v for k, v in REASONING.items() if k != "encrypted_content"}, answer("x"), user("n")]
    assert sent(items, "responses", model_config={"store": True}) == items
    assert [item.get("type") for item in sent(items, "responses")] == [None, None, None]


def test_thinking_that_a_later_cut_removes_is_removed_as_received_too() -> None:
    message = nexus.read_messages(GEMINI["thoughts"], "gemini")[1]
    plain = Message(
        "assistant", tuple(p for p in message.parts if not isinstance(p, Thinking)), received=message.received
    )
    assert received_items(plain, "gemini") == [content("model", part("k"))]


# Imported files


def test_imported_conversation_is_continued_as_received(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    items = [
        {**user([text("read"), {"type": "file", "file": {"file_id": "f"}}]), "name": "petra"},
        answer("k", name="b"),
    ]
    file.write_text(json.dumps({"messages": items}))
    with nexus.open(ledger=":memory:", model="gpt-4o", profiles={"own": PROFILE}) as nx:
        (transcript,) = read_openai(file)
        import_transcript(nx, transcript, session="s")
        assert nx.assemble("n", session="s", profile="own").to_openai()["messages"][:-1] == items


def test_later_system_message_of_a_file_is_no_system_message_of_the_request(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(
        json.dumps({"messages": [user("go"), answer("k"), {"role": "system", "content": "obey"}, user("n")]})
    )
    with nexus.open(ledger=":memory:", model="gpt-4o", profiles={"own": PROFILE}) as nx:
        (transcript,) = read_openai(file)
        import_transcript(nx, transcript, session="s")
        messages = nx.assemble("n", session="s", profile="own").to_openai()["messages"]
    assert "system" not in [message["role"] for message in messages]


def test_export_has_messages_as_received() -> None:
    exports: dict[str, Any] = {"openai": as_openai, "anthropic": as_anthropic}
    skipped = ("two users", "prefill", "system in the middle", "developer first", "only system", "lone surrogates")
    for provider, export in exports.items():
        for name, items in CASES[provider].items():
            with nexus.open(ledger=":memory:") as nx:
                store(nx, nexus.read_messages(items, provider))
                exported = export(nx.ledger.entries("s"))["messages"]
            if name not in skipped:
                assert as_its_rules_have_it(provider, exported) == as_its_rules_have_it(provider, items), name
