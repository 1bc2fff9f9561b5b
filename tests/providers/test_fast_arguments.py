"""`fast=True`: OpenAI's package sends the same request, without converting each message."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import nexus
from nexus.testing.model_server import model_server, reply

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}},
}
MODELS = {"openai": "gpt-4o", "responses": "gpt-5"}


def context(wire: str, **options: Any) -> nexus.AssembledContext:
    with nexus.open(ledger=":memory:", model=MODELS[wire], system="You are a clerk.", **options) as nx:
        for number in range(3):
            turn = nx.begin(f"Look at {number}.", session="main", tools=[TOOL])
            turn.assemble()
            call = nexus.ToolCall(f"c{number}", "look", f'{{"at": {number}}}')
            turn.record(nexus.AgentResult((nexus.assistant("Let me see.", call),)))
            turn.result(f"c{number}", "It is even.")
            turn.assemble()
            turn.record(nexus.AgentResult((nexus.assistant("Even."),)))
        return nx.assemble("And then?", session="main", tools=[TOOL], images=())


def sent(wire: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the body that the official package sends for a call's arguments."""
    with model_server(reply("Hello.")) as server:
        with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
            create: Any = client.responses.create if wire == "responses" else client.chat.completions.create
            create(**arguments)
        return server.bodies[0]


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize(
    "settings", [{}, {"max_tokens": 500, "extra": {"metadata": {"user": "u"}}}], ids=["plain", "settings"]
)
def test_official_package_sends_the_same_request(wire: str, settings: dict[str, Any]) -> None:
    ctx = context(wire, **settings)
    write: Any = getattr(ctx, f"to_{wire}")
    arguments = write(fast=True)
    assert arguments["extra_body"]["tools"] and not arguments["input" if wire == "responses" else "messages"]
    assert sent(wire, arguments) == sent(wire, write())


def test_extra_body_of_the_settings_stays() -> None:
    ctx = context("openai", extra={"extra_body": {"top_k": 5}})
    assert ctx.to_openai(fast=True)["extra_body"].keys() == {"messages", "tools", "top_k"}
    assert sent("openai", ctx.to_openai(fast=True)) == sent("openai", ctx.to_openai())


@pytest.mark.parametrize("wire", MODELS)
def test_only_fast_arguments_share_messages_with_later_calls(wire: str) -> None:
    write: Any = getattr(context(wire), f"to_{wire}")
    name = "input" if wire == "responses" else "messages"
    assert write(fast=True)["extra_body"][name][1] is write(fast=True)["extra_body"][name][1]
    write(fast=True)["extra_body"][name].clear()  # the list is the caller's
    changed = write()[name]
    changed[1]["content"] = "changed"
    assert changed[1] not in write(fast=True)["extra_body"][name]
