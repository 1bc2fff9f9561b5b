"""Models behind a gateway's own name: signed thinking returns within the tool loop, whatever the name is."""

from __future__ import annotations

from typing import Any

import pytest

import nexus

NAMES = [
    "my-gateway/claude-prod",
    "prod-deployment",
    "openrouter/anthropic/claude-sonnet-4.5",
    "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcd1234",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
]
REPLY = {
    "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 3},
}  # fmt: skip


def thinking_of(body: dict[str, Any]) -> list[str]:
    messages = [message for message in body["messages"] if isinstance(message["content"], list)]
    return [part["signature"] for message in messages for part in message["content"] if part["type"] == "thinking"]


@pytest.mark.parametrize("name", NAMES)
def test_thinking_returns_in_tool_loop_behind_gateway_name(name: str) -> None:
    with nexus.open() as nx:
        nx.record(nx.assemble("hi", model=name, tools=[{"name": "look"}]), REPLY)
        ctx = nx.assemble([nexus.tool("c1", "seen")], model=name, tools=[{"name": "look"}])
        assert thinking_of(ctx.to_anthropic()) == ["c2ln"]
        nx.record(ctx, nexus.AgentResult((nexus.assistant("done"),)))
        assert nx.replay("main", 1).to_anthropic() == ctx.to_anthropic()
        assert nx.ledger.entries("main")[0].body["model"] == "claude-sonnet-4-5-20250929"


def test_thinking_does_not_return_under_another_gateway_name() -> None:
    with nexus.open() as nx:
        nx.record(nx.assemble("hi", model="gateway/one"), REPLY)
        ctx = nx.assemble([nexus.tool("c1", "seen")], model="gateway/two")
    assert thinking_of(ctx.to_anthropic()) == []


def test_reply_of_another_model_keeps_its_author() -> None:
    """A program that falls back to another provider records the reply of a model that it did not ask for."""
    with nexus.open() as nx:
        nx.record(nx.assemble("hi", model="gpt-4o"), REPLY)
        assert nx.history("main")[-1].model == "claude-sonnet-4-5-20250929"
