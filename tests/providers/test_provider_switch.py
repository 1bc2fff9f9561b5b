"""A session goes on with another provider: the same ids on each wire, call after call, and no foreign signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import nexus
from nexus.context import AssembledContext
from nexus.engine import Engine
from support.sdk_replies import REPLIES
from support.validity import CHECKS

Body = dict[str, Any]
BODIES: dict[str, Callable[[AssembledContext], Body]] = {
    "openai": AssembledContext.to_openai,
    "responses": AssembledContext.to_responses,
    "anthropic": AssembledContext.to_anthropic,
    "gemini": AssembledContext.to_gemini,
}
MODELS = {"openai": "gpt-5", "responses": "gpt-5", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}
PROOFS = {"openai": (), "responses": ("c2VhbGVk",), "anthropic": ("c2ln",), "gemini": ("Z2VtaW5p",)}
"""What each provider's replies are signed with; chat completions sign nothing."""
TOOLS = [{"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]


def gemini_without_id() -> Body:
    """A reply of Gemini whose call has no id, and a signature that stands with the call."""
    reply = REPLIES["gemini"]("I look.", call=True).model_dump(mode="json", exclude_none=True)
    part = reply["candidates"][0]["content"]["parts"][-1]
    del part["function_call"]["id"]
    part["thought_signature"] = "Z2VtaW5p"
    return reply


def begun(nx: Engine, wire: str, rounds: int = 2) -> None:
    """A session with two calls of a tool, held with one provider; each reply has the same call id."""
    event: Any = "Which index?"
    for _ in range(rounds):
        ctx = nx.assemble(event, session="s", model=MODELS[wire], tools=TOOLS)
        assert CHECKS[wire](BODIES[wire](ctx)) == []
        reply = gemini_without_id() if wire == "gemini" else REPLIES[wire]("I look.", call=True)
        result = nexus.read_reply(reply)
        nx.record(ctx, result)
        event = [nexus.tool(call.id, "GIN", call.name) for call in result.tool_calls]
    nx.record(nx.assemble(event, session="s", model=MODELS[wire], tools=TOOLS), REPLIES[wire]("GIN."))


def call_ids(wire: str, body: Body) -> list[str]:
    """The ids of all calls in a body, then those of all results."""
    match wire:
        case "openai":
            calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", [])]
            answers = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
        case "responses":
            calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
            answers = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
        case "anthropic":
            blocks = [block for message in body["messages"] for block in message["content"]]
            calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        case _:
            parts = [part for content in body["contents"] for part in content["parts"]]
            calls = [part["function_call"]["id"] for part in parts if "function_call" in part]
            answers = [part["function_response"]["id"] for part in parts if "function_response" in part]
    assert calls == answers
    return calls


def opened() -> Engine:
    return nexus.open(ledger=":memory:", clock_ms=lambda: 1_760_000_000_000)


@pytest.mark.parametrize("first", MODELS)
def test_session_is_valid_with_stable_ids_in_every_format(first: str) -> None:
    with opened() as nx:
        begun(nx, first)
        seen: dict[str, list[str]] = {}
        for number in range(3):
            for wire, model in MODELS.items():
                ctx = nx.assemble(f"question {number}", session="s", model=model, tools=TOOLS)
                body = BODIES[wire](ctx)
                assert CHECKS[wire](body) == []
                ids = call_ids(wire, body)
                assert len(set(ids)) == len(ids) == 2 + number
                assert ids[: len(seen.get(wire, []))] == seen.get(wire, [])
                seen[wire] = ids
            ctx = nx.assemble(f"question {number}", session="s", model="gpt-5", tools=TOOLS)
            nx.record(ctx, REPLIES["responses"]("I look.", call=True))
            ctx = nx.assemble([nexus.tool("call_1", "GIN", "read_file")], session="s", model="gpt-5", tools=TOOLS)
            nx.record(ctx, REPLIES["responses"]("GIN."))
        cold = Engine(None, nx.ledger.store, clock_ms=nx.clock_ms).assemble(
            "x", session="s", model="gpt-5", tools=TOOLS
        )
        assert BODIES["responses"](cold) == BODIES["responses"](
            nx.assemble("x", session="s", model="gpt-5", tools=TOOLS)
        )
        assert seen["responses"] == seen["openai"] == seen["anthropic"] == seen["gemini"]


@pytest.mark.parametrize("first", MODELS)
@pytest.mark.parametrize("then", MODELS)
def test_signature_is_not_sent_to_another_provider(first: str, then: str) -> None:
    with opened() as nx:
        begun(nx, first)
        foreign = nx.assemble("And now?", session="s", model=MODELS[then], tools=TOOLS)
        shown = nx.assemble("And now?", session="s", model=MODELS[first], tools=TOOLS)
    for ctx in (foreign, shown):
        body = json.dumps(BODIES[then](ctx))
        assert CHECKS[then](json.loads(body)) == []
        if first != then:
            assert not [proof for proof in PROOFS[first] if proof in body]


def long_calls(form: str, ids: list[str]) -> list[Body]:
    """A list with calls of these ids, and their results; in chat completions as its parts do not say it."""
    if form == "anthropic":
        blocks: list[Body] = [{"type": "tool_use", "id": call_id, "name": "read_file", "input": {}} for call_id in ids]
        results = [{"type": "tool_result", "tool_use_id": call_id, "content": "GIN"} for call_id in ids]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    function = {"name": "read_file", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    messages: list[Body] = [{"role": "assistant", "name": "searcher", "content": None, "tool_calls": calls}]
    return messages + [{"role": "tool", "tool_call_id": call_id, "content": "GIN"} for call_id in ids]


@pytest.mark.parametrize("form", ["anthropic", "openai"])
def test_long_ids_stay_for_anthropic_and_are_short_and_distinct_for_openai(form: str) -> None:
    ids = [f"{'x' * 90}{number}" for number in range(2)]
    sent = [{"role": "user", "content": [{"type": "text", "text": "Which index?"}]}, *long_calls(form, ids)]
    end = [{"role": role, "content": [{"type": "text", "text": "GIN"}]} for role in ("assistant", "user")]
    seen: list[list[str]] = []
    with opened() as nx:
        for messages in (sent, [*sent, *end]):
            ctx = nx.mirror(messages, model=MODELS["anthropic"], tools=TOOLS)
            bodies = {wire: write(ctx) for wire, write in BODIES.items()}
            assert {wire: CHECKS[wire](body) for wire, body in bodies.items()} == {wire: list[str]() for wire in BODIES}
            seen += [call_ids(wire, bodies[wire]) for wire in ("anthropic", "openai", "responses")]
            nx.record(ctx, REPLIES["anthropic"]("GIN."))
    assert seen[0] == ids
    assert len({*seen[1]}) == 2
    assert seen == [ids, seen[1], seen[1], ids, seen[1], seen[1]]


@pytest.mark.parametrize("wire", ["responses", "anthropic"])
def test_signature_returns_to_its_model_after_turn_with_another(wire: str) -> None:
    with opened() as nx:
        begun(nx, wire)
        nx.record(nx.assemble("Why?", session="s", model="gemini-2.5-pro", tools=TOOLS), REPLIES["gemini"]("So."))
        body = json.dumps(BODIES[wire](nx.assemble("And?", session="s", model=MODELS[wire], tools=TOOLS)))
    assert all(proof in body for proof in PROOFS[wire])
