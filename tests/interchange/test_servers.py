"""Servers that are not quite the standard: their streams, replies and errors, and what goes back to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nexus
from models.calls import Sleeps, call, client_of, context, failed_call, reply_of, shown
from nexus.engine import Engine
from nexus.errors import BadReply, ToolCallFailed
from nexus.providers.errors import classify
from nexus.providers.signatures import NO_SIGNATURE
from nexus.providers.streams import StreamReader
from nexus.testing.model_server import Response, Step, model_server
from nexus.text.as_received import ReceivedFormat
from nexus.tools import ToolRegistry
from nexus.types.stream_events import Token
from support.errors import has_code
from support.validity import CHECKS

Json = dict[str, Any]
OWN = "own"


def part(name: str | None = None, arguments: Any = None, **fields: Any) -> Json:
    """Return a fragment of a call."""
    function = {"name": name, "arguments": arguments}
    return {**fields, "function": {key: value for key, value in function.items() if value is not None}}


def chunk(delta: Json, reason: str | None = None) -> Json:
    """Return a chunk of a chat completion."""
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices}


ONE, TWO = '{"x":1}', '{"x":2}'
EQUAL_INDEX = "https://github.com/langchain-ai/langchain/issues/34807"
NO_INDEX = "https://github.com/jin-bo/agentao/issues/117"
REPEATED = "https://github.com/huggingface/smolagents/issues/1958"

CALLS = [
    ("equal index, other ids", EQUAL_INDEX,
     [part("f", ONE, index=0, id="a"), part("g", TWO, index=0, id="b")], [("a", "f", ONE), ("b", "g", TWO)]),
    ("equal index, same tool, in pieces", EQUAL_INDEX,
     [part("f", '{"x"', index=0, id="a"), part(None, ":1}", index=0), part("f", '{"x"', index=0, id="b"),
      part(None, ":2}", index=0)], [("a", "f", ONE), ("b", "f", TWO)]),
    ("equal index, pieces in turns by id", OWN,
     [part("f", "", index=0, id="a"), part("f", "", index=0, id="b"), part(None, ONE, index=0, id="a"),
      part(None, TWO, index=0, id="b")], [("a", "f", ONE), ("b", "f", TWO)]),
    ("id and name in each fragment", REPEATED,
     [part("pay", '{"x"', index=0, id="a"), part("pay", ":1}", index=0, id="a")], [("a", "pay", ONE)]),
    ("name in each fragment, no id", OWN,
     [part("pay", '{"x"', index=0), part("pay", ":1}", index=0)], [("call_1", "pay", ONE)]),
    ("name again behind the end", OWN,
     [part("pay", ONE, index=0, id="a"), part("pay", "", index=0)], [("a", "pay", ONE)]),
    ("name behind complete arguments", OWN,
     [part("pay", ONE, index=0), part("pay", TWO, index=0)], [("call_1", "pay", ONE), ("call_2", "pay", TWO)]),
    ("name first, arguments later", OWN,
     [part("pay", ONE, index=0), part("pay", "", index=0), part(None, TWO, index=0)],
     [("call_1", "pay", ONE), ("call_2", "pay", TWO)]),
    ("no index", NO_INDEX,
     [part("f", '{"x"', id="a"), part(None, ":1}"), part("g", '{"x"', id="b"), part(None, ":2}")],
     [("a", "f", ONE), ("b", "g", TWO)]),
    ("an index for each fragment", "https://github.com/comet-ml/opik/issues/8362",
     [part("f", "", index=0, id="a"), part(None, '{"x"', index=1), part(None, ":1}", index=2)], [("a", "f", ONE)]),
    ("an id for each fragment", OWN,
     [part("f", '{"x"', index=0, id="a"), part(None, ":1}", index=0, id="z")], [("a", "f", ONE)]),
    ("empty ids", OWN,
     [part("f", ONE, index=0, id="a"), part("g", TWO, index=0, id="")], [("a", "f", ONE), ("call_2", "g", TWO)]),
    ("one id for two calls", OWN,
     [part("f", ONE, index=0, id="a"), part("f", TWO, index=1, id="a")], [("a", "f", ONE), ("call_2", "f", TWO)]),
    ("arguments as objects", OWN, [part("f", {"x": 1}, id="a"), part("g", {"x": 2}, id="b")],
     [("a", "f", ONE), ("b", "g", TWO)]),
    ("an empty object first", OWN, [part("f", "{}", index=0, id="a"), part(None, ONE, index=0, id="a")], [("a", "f", ONE)]),
    ("arguments again at the end", OWN, [part("f", ONE, index=0, id="a"), part(None, ONE, index=0)], [("a", "f", ONE)]),
    ("name in pieces", OWN, [part("lo", index=0, id="a"), part("ok", ONE, index=0)], [("a", "look", ONE)]),
    ("id behind the beginning", OWN, [part("f", '{"x"', index=0), part(None, ":1}", index=0, id="a")], [("a", "f", ONE)]),
    ("id behind the end", OWN, [part("f", ONE, index=0), {"index": 0, "id": "a"}], [("a", "f", ONE)]),
    ("id behind the end, with the name", OWN, [part("f", ONE, index=0), part("f", "", index=0, id="a")], [("a", "f", ONE)]),
    ("id with the whole call again", OWN, [part("f", ONE, index=0), part("f", ONE, index=0, id="a")], [("a", "f", ONE)]),
    ("id with the arguments of an empty object", OWN,
     [part("f", "{}", index=0), part(None, ONE, index=0, id="a")], [("a", "f", ONE)]),
    ("ids behind two calls, no index", OWN, [part("f", ONE), part("g", TWO), {"id": "a"}, {"id": "b"}],
     [("a", "f", ONE), ("b", "g", TWO)]),
    ("another call with an id", OWN,
     [part("f", ONE, index=0), part("f", TWO, index=0, id="b")], [("call_1", "f", ONE), ("b", "f", TWO)]),
    ("longer name each time", OWN, [part("lo", index=0, id="a"), part("look", ONE, index=0)], [("a", "look", ONE)]),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "_source", "fragments", "expected"), CALLS, ids=[row[0] for row in CALLS])
@pytest.mark.parametrize("ending", ["finish reason", "[DONE]"])
def test_fragments_become_calls(
    _name: str, _source: str, fragments: list[Json], expected: list[tuple[str, str, str]], ending: str
) -> None:
    reader = StreamReader("openai")
    for fragment in fragments:
        reader.add(chunk({"tool_calls": [fragment]}))
    reader.add(chunk({}, "tool_calls") if ending == "finish reason" else "[DONE]")
    result = reader.reply()
    assert [(one.id, one.name, one.arguments) for one in result.tool_calls] == expected
    assert result.stop_reason == "tool_use"
    assert [(one.id, one.name, one.arguments) for one in reader.reply(partial=True).tool_calls] == expected


CALL = [part("f", ONE, id="a")]
HELLO: Json = {"role": "assistant", "content": "hello"}


def message_chunk(message: Json, reason: str | None = None, **fields: Any) -> Json:
    """Return a chunk with a message in place of a delta."""
    return {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}], **fields}


CHUNK = {"object": "chat.completion.chunk"}
MESSAGES: list[tuple[str, list[Json], str, bool]] = [
    ("whole message", [message_chunk(HELLO, "stop", **CHUNK)], "hello", False),
    ("in pieces", [message_chunk({"content": "hel"}, **CHUNK), message_chunk({"content": "lo"}, "stop", **CHUNK)],
     "hello", False),
    ("in pieces that look like replies", [message_chunk({"content": "hel"}), message_chunk({"content": "lo"}, "stop")],
     "hello", False),
    ("whole behind its deltas", [chunk({"content": "hel"}), chunk({"content": "lo"}), message_chunk(HELLO, "stop")],
     "hello", False),
    ("whole behind a part of it", [chunk({"content": "hel"}), message_chunk(HELLO, "stop", **CHUNK)], "hello", False),
    ("calls", [message_chunk({"content": "hello", "tool_calls": CALL}, "tool_calls", **CHUNK)], "hello", True),
    ("calls behind their deltas",
     [chunk({"content": "hello", "tool_calls": CALL}), message_chunk({**HELLO, "tool_calls": CALL}, "tool_calls")],
     "hello", True),
    ("a call that is no list", [chunk({"content": "hello", "tool_calls": CALL[0]}), chunk({}, "tool_calls")], "hello", True),
    ("a call that is no list, whole",
     [message_chunk({**HELLO, "tool_calls": {**CALL[0], "type": "function"}}, "tool_calls")], "hello", True),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "chunks", "text", "has_call"), MESSAGES, ids=[row[0] for row in MESSAGES])
def test_message_in_a_chunk_is_read(_name: str, chunks: list[Json], text: str, has_call: bool) -> None:
    reader = StreamReader("openai")
    assert "".join(reader.read(chunks)) == text
    result = reader.reply()
    assert result.messages[0].text() == text
    assert [(one.id, one.name, one.arguments) for one in result.tool_calls] == [("a", "f", ONE)] * has_call
    assert result.stop_reason == ("tool_use" if has_call else "end_turn")


def test_call_that_is_no_list_goes_out_as_a_list() -> None:
    call_of_client = {**CALL[0], "type": "function"}
    items: list[Json] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": call_of_client},
        {"role": "tool", "tool_call_id": "a", "content": "found"},
    ]
    with nexus.open(ledger=":memory:") as nx:
        ctx = nx.mirror(items, provider="openai", model="gpt-4o")
        assert CHECKS["openai"](ctx.to_openai()) == []
        assert ctx.to_openai()["messages"][1]["tool_calls"] == [call_of_client]
        assert ctx.mirrored is not None and not ctx.mirrored.unchanged


@pytest.mark.parametrize(("kind", "key"), [("function_call", "arguments"), ("custom_tool_call", "input")])
def test_call_whose_item_is_never_done_is_read_from_its_pieces(kind: str, key: str) -> None:
    """Some servers of the Responses API send neither the whole item nor the output at the end."""
    reader = StreamReader("responses")
    for index, name in enumerate("fg"):
        item = {"type": kind, "id": f"i{index}", "call_id": name, "name": name, key: ""}
        delta = (
            "response.function_call_arguments.delta"
            if kind == "function_call"
            else "response.custom_tool_call_input.delta"
        )
        reader.add({"type": "response.output_item.added", "output_index": index, "item": item})
        for piece in ('{"x"', ":1}"):
            reader.add({"type": delta, "output_index": index, "item_id": f"i{index}", "delta": piece})
    assert reader.reply(partial=True).tool_calls == ()
    reader.add({"type": "response.completed", "response": {"object": "response", "status": "completed", "output": []}})
    assert [(one.id, one.arguments) for one in reader.reply().tool_calls] == [("f", ONE), ("g", ONE)]


def sse(*events: Json, end: str = "data: [DONE]\n\n") -> bytes:
    """Return a body of server-sent events."""
    return ("".join(f"data: {json.dumps(event)}\n\n" for event in events) + end).encode()


def raw(data: bytes, media_type: str = "text/event-stream") -> Step:
    """Return a step that answers with these bytes."""
    return lambda _: Response(200, data, {"content-type": media_type})


def plain(body: Json) -> Step:
    """Return a step that answers with plain JSON."""
    return raw(json.dumps(body, indent=1).encode(), "application/json")


COMPLETION = {
    "id": "c", "object": "chat.completion", "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
}  # fmt: skip
ANTHROPIC = {
    "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hello"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
RESPONSE = {
    "id": "r", "object": "response", "status": "completed", "model": "m",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}],
}  # fmt: skip
GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP"}]}
HEL, LO = chunk({"content": "hel"}), chunk({"content": "lo"}, "stop")

ANSWERS: list[tuple[str, ReceivedFormat, Step, str]] = [
    ("plain JSON", "openai", plain(COMPLETION), "hello"),
    ("plain JSON as events", "openai", raw(json.dumps(COMPLETION).encode()), "hello"),
    ("plain JSON of Anthropic's format", "anthropic", plain(ANTHROPIC), "hello"),
    ("plain JSON of Responses", "responses", plain(RESPONSE), "hello"),
    ("plain JSON of Gemini", "gemini", plain(GEMINI), "hello"),
    ("[DONE] without a finish reason", "openai", raw(sse(HEL, chunk({"content": "lo"}))), "hello"),
    ("content as a list", "openai",
     raw(sse(chunk({"content": [{"type": "text", "text": "hel"}]}), chunk({"content": [{"type": "text", "text": "lo"}]}),
             chunk({}, "stop"))), "hello"),
    ("an invalid byte", "openai", raw(sse(HEL, LO).replace(b"hel", b"h\xffl")), "h\ufffdllo"),
    ("an invalid byte in plain JSON", "openai",
     raw(json.dumps(COMPLETION).encode().replace(b"hel", b"h\xffl"), "application/json"), "h\ufffdllo"),
    ("an invalid byte from Gemini", "gemini", raw(sse(GEMINI, end="").replace(b"hel", b"h\xffl")), "h\ufffdllo"),
    ("a byte order mark", "openai", raw(b"\xef\xbb\xbf" + sse(HEL, LO)), "hello"),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "format_", "step", "text"), ANSWERS, ids=[row[0] for row in ANSWERS])
def test_answer_is_read_with_one_request(_name: str, format_: ReceivedFormat, step: Step, text: str) -> None:
    with model_server(step) as server:
        items = call(client_of(server, format_, sleeps=Sleeps()), context(format_))
        assert len(server.requests) == 1
    result = reply_of(items).result
    assert (result.messages[0].text(), result.stop_reason, shown(items, Token)) == (text, "end_turn", text)


FAILED: Json = {
    "id": "r", "object": "response", "status": "failed", "model": "m", "output": [],
    "error": {"code": "context_length_exceeded", "message": "It does not fit."},
}  # fmt: skip
TOO_LONG = "This model's maximum context length is 100 tokens. However, you requested 200 tokens."
OVERFLOWS: list[tuple[str, str, ReceivedFormat, Step]] = [
    ("response.failed", "https://github.com/IgorWarzocha/howaboua-pi-stuff/issues/244", "responses",
     raw(sse({"type": "response.failed", "response": FAILED}, end=""))),
    ("a failed response as plain JSON", OWN, "responses", plain(FAILED)),
    ("an error under status 200", OWN, "openai", plain({"error": {"message": TOO_LONG, "code": 400}})),
    ("an error within a gateway's", OWN, "openai",
     plain({"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"message": TOO_LONG})}}})),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "_source", "format_", "step"), OVERFLOWS, ids=[row[0] for row in OVERFLOWS])
def test_overflow_in_an_accepted_answer_fails_as_overflow(
    _name: str, _source: str, format_: ReceivedFormat, step: Step
) -> None:
    with model_server(step) as server:
        _, error = failed_call(client_of(server, format_, sleeps=Sleeps()), context(format_))
        assert (error.failure_kind, len(server.requests)) == ("overflow", 1)


LIMITS = [
    ("max_tokens must be at least 1, got -7584.", "overflow"),
    ("max_completion_tokens must be at least 1, got -12", "overflow"),
    ("`max_tokens` must be greater than 0, but got -33", "overflow"),
    ("max_new_tokens must be at least 0, got -7584.", "overflow"),
    ("max_tokens must be at least 1, got -1", "other"),
    ("max_tokens must be at least 1, got 0", "other"),
    ("max_tokens must be less than 8192", "other"),
]


@pytest.mark.parametrize(("text", "kind"), LIMITS)
def test_negative_room_for_the_answer_is_overflow(text: str, kind: str) -> None:
    """https://github.com/vllm-project/vllm/issues/36789"""
    verdict = classify({"error": {"message": text, "code": 400}}, window=32_768)
    assert verdict.kind == kind
    assert verdict.kind == "other" or verdict.requested > 32_768


@pytest.mark.parametrize("first", [FAILED, {"error": {"message": TOO_LONG, "code": 400}}])
def test_call_recovers_from_an_error_in_place_of_a_reply(first: Json) -> None:
    replies = [first, RESPONSE]
    with nexus.open(ledger=":memory:", model="gpt-5", counter=None) as nx:
        for n in range(30):
            nx.record(nx.assemble(f"Question {n} " + "word " * 50, session="s"), RESPONSE)
        answer = nexus.call(nx, "And now?", lambda _: replies.pop(0), session="s")
    assert answer.was_recovered and answer.result.messages[0].text() == "hello"


def test_empty_reply_with_low_usage_is_bad_reply() -> None:
    """A gateway that omits cached tokens from the usage does not make an empty reply an overflow."""
    message = {"role": "assistant", "content": ""}
    empty = {**COMPLETION, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    calls = list[int]()

    def send(ctx: nexus.AssembledContext) -> Json:
        calls.append(ctx.token_budget.used.total)
        return {**empty, "usage": {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}}

    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, pytest.raises(BadReply, match="reply is empty"):
        nexus.call(nx, "word " * 500, send, session="s")
    assert len(calls) == 1


def completion(model: str, reason: str = "tool_calls", /, **message: Any) -> Json:
    """Return a chat completion."""
    fields = {"role": "assistant", "content": None, **message}
    choices = [{"index": 0, "finish_reason": reason, "message": fields}]
    return {"id": "c", "object": "chat.completion", "model": model, "choices": choices}


def tool_calls(*ids: str, **fields: Any) -> list[Json]:
    return [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}, **fields} for i in ids]


def after_a_call(nx: Engine, reply: Any, model: str, then: str = "") -> nexus.AssembledContext:
    """Record a reply with calls, and return the context with their results, for the same model or another one."""
    result = nexus.read_reply(reply)
    nx.record(nx.assemble("Which index?", session="s", model=model), result)
    event = [nexus.tool(one.id, "GIN", one.name) for one in result.tool_calls]
    return nx.assemble(event, session="s", model=then or model)


DETAILS = [
    {"type": "reasoning.text", "text": "hm", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "ZGF0YQ==", "id": "e1", "format": "google-gemini-v1", "index": 1},
]
THINKING = [
    ("DeepSeek", "https://github.com/openclaw/openclaw/issues/73417", "deepseek-v4-pro", {"reasoning_content": "hm"}),
    ("DeepSeek without a thought", "https://github.com/anomalyco/opencode/issues/24722", "deepseek-v4-pro",
     {"reasoning_content": ""}),
    ("Kimi", OWN, "kimi-k2.5", {"reasoning_content": "hm"}),
    ("vLLM", OWN, "qwen3-32b", {"reasoning": "hm"}),
    ("gpt-oss", OWN, "openai/gpt-oss-120b", {"reasoning": "hm"}),
    ("OpenRouter", "https://github.com/home-assistant/core/issues/159812", "anthropic/claude-opus-4.5",
     {"reasoning": "hm", "reasoning_details": DETAILS}),
    ("OpenRouter, encrypted alone", "https://github.com/microsoft/agent-framework/issues/2947",
     "google/gemini-3-pro-preview", {"reasoning_details": DETAILS[1:]}),
    ("Mistral", OWN, "magistral-medium",
     {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "x"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "_source", "model", "fields"), THINKING, ids=[row[0] for row in THINKING])
def test_thinking_goes_back_to_its_model_alone(_name: str, _source: str, model: str, fields: Json) -> None:
    reply = completion(model, tool_calls=tool_calls("a"), **fields)
    with nexus.open(ledger=":memory:", model=model) as nx:
        ctx = after_a_call(nx, reply, model)
        nx.record(ctx, completion(model, "stop", content="GIN"))
        sent = after_a_call(nx, reply, model).to_openai()["messages"]  # servers use an id again in the next turn
    with nexus.open(ledger=":memory:", model=model) as nx:
        other = after_a_call(nx, reply, model, "gpt-4o").to_openai()
    thoughts = [message for message in sent if message.get("tool_calls")]
    assert len(thoughts) == 2 and len({message["tool_calls"][0]["id"] for message in thoughts}) == 2
    for message in thoughts:
        assert {name: message.get(name) for name in fields} == fields
    assert CHECKS["openai"](other) == []
    assert "reasoning" not in json.dumps(other) and "thinking" not in json.dumps(other)


@pytest.mark.parametrize(("_name", "_source", "model", "fields"), THINKING, ids=[row[0] for row in THINKING])
def test_streamed_thinking_is_as_in_a_plain_body(_name: str, _source: str, model: str, fields: Json) -> None:
    whole = completion(model, tool_calls=tool_calls("a"), **fields)
    reader = StreamReader("openai")
    deltas: list[Json] = [{"role": "assistant"}]
    for name, value in fields.items():
        pieces = [value[:1], value[1:]] if isinstance(value, str) else [[one] for one in value]
        deltas += [{name: piece} for piece in pieces]
    for delta in [*deltas, {"tool_calls": [{**tool_calls("a")[0], "index": 0}]}]:
        reader.add({**chunk(delta), "model": model})
    reader.add({**chunk({}, "tool_calls"), "model": model})
    for result in (reader.reply(), nexus.read_reply(whole)):
        with nexus.open(ledger=":memory:", model=model) as nx:
            sent = after_a_call(nx, result, model).to_openai()["messages"][1]
        assert {name: sent.get(name) for name in fields} == fields


OSS, SIZED = "openai/gpt-oss-120b", "gpt-oss:20b"
THOUGHT: Json = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
OPEN_MODELS = [
    ("own thought", OSS, OSS, True, True),
    ("thought of a client's list", "", OSS, False, True),
    ("another model of the family", OSS, SIZED, True, False),
    ("another vendor", OSS, "gpt-5", True, False),
    ("client's list for another vendor", "", "gpt-5", False, False),
]


@pytest.mark.parametrize(
    ("_name", "author", "model", "is_recorded", "is_sent"), OPEN_MODELS, ids=[r[0] for r in OPEN_MODELS]
)
def test_text_of_reasoning_goes_back_to_the_open_model_that_wrote_it(
    _name: str, author: str, model: str, is_recorded: bool, is_sent: bool
) -> None:
    """https://cookbook.openai.com/articles/gpt-oss/handle-raw-cot"""
    call_item = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    items: list[Json] = [{"role": "user", "content": "Look."}]
    with nexus.open(ledger=":memory:") as nx:
        if is_recorded:
            ctx = nx.mirror(items, provider="responses", model=author)
            nx.record(ctx, {**RESPONSE, "model": author, "output": [{**THOUGHT, "encrypted_content": None}, call_item]})
        items += [THOUGHT, call_item, {"type": "function_call_output", "call_id": "a", "output": "found"}]
        ctx = nx.mirror(items, provider="responses", model=model)
        body = ctx.to_responses()
        assert CHECKS["responses"](body) == []
        assert body["input"][1:-2] == ([THOUGHT] if is_sent else [])
        assert CHECKS["openai"](ctx.to_openai()) == []
        nx.record(ctx, {**RESPONSE, "model": model})
        (session,) = nx.sessions()
        assert nx.replay(session.label, nx.ledger.store.thread(session.thread).turn).to_responses() == body


def test_pieces_of_reasoning_details_are_joined() -> None:
    reader = StreamReader("openai")
    text = {"type": "reasoning.text", "index": 0}
    for detail in ({**text, "text": "h"}, {**text, "text": "m"}, {**text, "signature": "c2ln"}, DETAILS[1]):
        reader.add(chunk({"reasoning_details": [detail]}))
    reader.add(chunk({"content": "x"}, "stop"))
    (sent,) = nexus.write_messages(reader.reply().messages, "openai")
    assert sent["reasoning_details"] == [{**text, "text": "hm", "signature": "c2ln"}, DETAILS[1]]


@pytest.mark.parametrize("model", ["deepseek-v4-pro", "kimi-k2.5"])
def test_call_of_another_model_has_an_empty_thought_where_one_is_required(model: str) -> None:
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        ctx = after_a_call(nx, completion("gpt-4o", tool_calls=tool_calls("a")), "gpt-4o", model)
    assert ctx.to_openai()["messages"][1]["reasoning_content"] == ""


GEMINI_3 = "gemini-3-pro-preview"
SIGNED = {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}
SWITCHES = [
    ("from another provider", "https://github.com/AstrBotDevs/AstrBot/issues/9853",
     completion("gpt-4o", tool_calls=tool_calls("a", "b")), "gpt-4o", GEMINI_3, [NO_SIGNATURE, None]),
    ("from another Gemini", "https://github.com/pipecat-ai/pipecat/issues/5809",
     completion("gemini-2.5-pro", tool_calls=tool_calls("a", **SIGNED)), "gemini-2.5-pro", GEMINI_3, [NO_SIGNATURE]),
    ("from its chat completions", OWN, completion(GEMINI_3, tool_calls=tool_calls("a", **SIGNED)), GEMINI_3, GEMINI_3,
     ["c2lnbmVk"]),
    ("to Gemini 2.5", OWN, completion("gpt-4o", tool_calls=tool_calls("a")), "gpt-4o", "gemini-2.5-pro", [None]),
    ("to a later version", OWN, completion("gpt-4o", tool_calls=tool_calls("a")), "gpt-4o", "gemini-3.5-flash",
     [NO_SIGNATURE]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_name", "_source", "reply", "model", "then", "expected"), SWITCHES, ids=[row[0] for row in SWITCHES]
)
def test_calls_are_signed_for_gemini(
    _name: str, _source: str, reply: Json, model: str, then: str, expected: list[str | None]
) -> None:
    with nexus.open(ledger=":memory:", model=model) as nx:
        ctx = after_a_call(nx, reply, model, then)
    body = ctx.to_gemini()
    assert CHECKS["gemini"](body) == []
    assert [part.get("thought_signature") for part in body["contents"][1]["parts"]] == expected
    calls = ctx.to_openai()["messages"][1]["tool_calls"]
    signatures = [call.get("extra_content", {}).get("google", {}).get("thought_signature") for call in calls]
    assert signatures == expected


def message_of(*content: Json, stop: str = "end_turn") -> Json:
    return {**ANTHROPIC, "model": "claude-opus-4-5", "content": list(content), "stop_reason": stop}


SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
TEXT: Json = {"type": "text", "text": "Let me see."}
ORPHAN = "https://github.com/vellum-ai/vellum-assistant/issues/19986"
SERVER_TOOLS: list[tuple[str, str, Json, list[Json]]] = [
    ("paused", ORPHAN, message_of(TEXT, SEARCH, stop="pause_turn"), [TEXT]),
    ("cut off", OWN, message_of(TEXT, SEARCH, stop="max_tokens"), [TEXT]),
    ("refused", OWN, message_of(TEXT, SEARCH, stop="refusal"), [TEXT]),
    ("input missing", OWN, message_of({**SEARCH, "input": None}, FOUND, TEXT), [{**SEARCH, "input": {}}, FOUND, TEXT]),
    ("input as text", OWN, message_of({**SEARCH, "input": '{"query":"x"}'}, FOUND, TEXT), [SEARCH, FOUND, TEXT]),
    ("result alone", OWN, message_of(FOUND, TEXT), [TEXT]),
    ("result before its call", OWN, message_of(FOUND, SEARCH, TEXT), [TEXT]),
    ("call alone", OWN, message_of(SEARCH, stop="pause_turn"),
     [{"type": "text", "text": "[server tool: no result recorded]"}]),
    ("MCP call without its result", OWN,
     message_of(TEXT, {"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "s", "input": {}}), [TEXT]),
]  # fmt: skip


@pytest.mark.parametrize(("_name", "_source", "reply", "expected"), SERVER_TOOLS, ids=[row[0] for row in SERVER_TOOLS])
def test_server_tools_are_paired_before_they_go_out(
    _name: str, _source: str, reply: Json, expected: list[Json]
) -> None:
    with nexus.open(ledger=":memory:", model="claude-opus-4-5") as nx:
        nx.record(nx.assemble("Search.", session="s"), reply)
        body = nx.assemble("And now?", session="s").to_anthropic()
    assert body["messages"][1]["content"] == expected


def test_result_of_a_resumed_turn_keeps_its_call() -> None:
    messages: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "Search."}]},
        {"role": "assistant", "content": [TEXT, SEARCH]},
        {"role": "assistant", "content": [FOUND, TEXT]},
    ]
    read = nexus.read_messages(messages, "anthropic")
    assert nexus.write_messages(read, "anthropic")[1]["content"] == [TEXT, SEARCH, FOUND, TEXT]
    assert nexus.write_messages(read[:2], "anthropic")[1]["content"] == [TEXT, SEARCH]  # the provider goes on with it


def test_program_that_waits_for_a_tool_keeps_its_call() -> None:
    run = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "x"}}
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_2"}
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}, "caller": caller}
    done = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": {"type": "x"}}
    with nexus.open(ledger=":memory:", model="claude-opus-4-5") as nx:
        ctx = after_a_call(nx, message_of(run, use, stop="tool_use"), "claude-opus-4-5")
        assert [block["type"] for block in ctx.to_anthropic()["messages"][1]["content"]] == [
            "server_tool_use",
            "tool_use",
        ]
        nx.record(ctx, message_of(done, TEXT))
        body = nx.assemble("And now?", session="s").to_anthropic()
    assert [block["type"] for block in body["messages"][3]["content"]] == ["code_execution_tool_result", "text"]


INPUTS: list[tuple[str, Any, Json]] = [
    ("null", None, {}),
    ("JSON text", '{"x":1}', {"x": 1}),
    ("empty text", "", {}),
    ("other text", "now", {"_unparsed": "now"}),
    ("a list", [1], {"_unparsed": "[1]"}),
]


@pytest.mark.parametrize(("_name", "value", "expected"), INPUTS, ids=[row[0] for row in INPUTS])
@pytest.mark.parametrize("beside", [(), (SEARCH, FOUND)], ids=["alone", "beside a server tool"])
def test_input_of_a_call_goes_out_as_an_object(
    _name: str, value: Any, expected: Json, beside: tuple[Json, ...]
) -> None:
    anthropic = message_of(*beside, {"type": "tool_use", "id": "t", "name": "look", "input": value}, stop="tool_use")
    function = {"name": "look", **({} if value is None else {"arguments": value})}
    chat = completion("claude-opus-4-5", tool_calls=[{"id": "t", "type": "function", "function": function}])
    item = {"type": "function_call", "call_id": "t", **function}
    response = {**RESPONSE, "model": "claude-opus-4-5", "output": [item]}
    for reply in (anthropic, chat, response):
        with nexus.open(ledger=":memory:", model="claude-opus-4-5") as nx:
            ctx = after_a_call(nx, reply, "claude-opus-4-5")
        assert CHECKS["anthropic"](ctx.to_anthropic()) == []
        assert ctx.to_anthropic()["messages"][1]["content"][-1]["input"] == expected
        assert CHECKS["openai"](ctx.to_openai()) == []
        assert json.loads(ctx.to_openai()["messages"][1]["tool_calls"][0]["function"]["arguments"]) == expected
        assert CHECKS["responses"](ctx.to_responses()) == []
        assert json.loads(ctx.to_responses()["input"][1]["arguments"]) == expected


def test_call_without_a_name_or_an_id_is_sendable() -> None:
    listed = [{"function": {"name": "look", "arguments": "{}"}}, {"id": "b", "function": {"arguments": "{}"}}]
    with nexus.open(ledger=":memory:", model="m") as nx:
        body = after_a_call(nx, completion("m", tool_calls=listed), "m").to_openai()
    assert CHECKS["openai"](body) == []
    assert [call["function"]["name"] for call in body["messages"][1]["tool_calls"]] == ["look", "_"]


def test_number_without_a_fraction_is_an_integer() -> None:
    """https://github.com/langchain-ai/langchain-google/issues/1109"""
    registry = ToolRegistry()

    @registry.tool
    def add(count: int, more: list[int], share: float = 0.5) -> str:
        """Add."""
        return repr((count, more, share))

    assert registry.call("add", '{"count":3.0,"more":[1.0,2]}') == "(3, [1, 2], 0.5)"
    assert registry.call("add", {"count": 3.0, "more": [], "share": 2}) == "(3, [], 2.0)"
    with pytest.raises(ToolCallFailed, check=has_code("bad_arguments")):
        registry.call("add", '{"count":3.5,"more":[]}')
