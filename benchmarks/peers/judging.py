"""Whether a provider would take a body: the judges of the tests, and the Anthropic form of OpenAI messages.

The form is what an adapter makes that repairs nothing: system apart, results as blocks of a user's message, neighbours of
one role joined. So an error that it shows was in the messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.bodies import Body
from benchmarks.peers.course import Messages
from benchmarks.peers.side import text_of
from benchmarks.sessions import ROOT

sys.path.append(str(ROOT / "tests"))
_JUDGES = import_module("support.validity")
check_openai: Callable[[Body], list[str]] = _JUDGES.check_openai
check_anthropic: Callable[[Body], list[str]] = _JUDGES.check_anthropic

ORDER_OF_ROLES = (
    "there is no user message",
    "the first after the system must be a user's",
    "the last message must be a user's or a tool's",
)
"""Problems that the judge names and OpenAI's API does not: the tests hold Nexus to more than the API asks."""

ANTHROPIC = {"model": "claude-sonnet-4-5", "max_tokens": 4096}


def openai_takes(body: Body) -> bool:
    """Whether OpenAI would take the body."""
    return all(any(rule in problem for rule in ORDER_OF_ROLES) for problem in check_openai(body))


def anthropic_takes(body: Body) -> bool:
    """Whether Anthropic would take the body, which is in its form."""
    return not check_anthropic(body)


def anthropic_body(body: Body) -> Body:
    """The body of OpenAI messages in Anthropic's form."""
    messages: Messages = body["messages"]
    systems = [text_of(message["content"]) for message in messages if message["role"] == "system"]
    turns: Messages = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(_blocks(message))
        else:
            turns.append({"role": role, "content": _blocks(message)})
    tools = [_tool(tool["function"]) for tool in body.get("tools", ())]
    return {**ANTHROPIC, "system": "\n".join(systems), "tools": tools, "messages": turns}


def _blocks(message: dict[str, Any]) -> Messages:
    text = text_of(message.get("content"))
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
    calls = [
        {"type": "tool_use", "id": call["id"], "name": name, "input": json.loads(arguments or "{}")}
        for call in message.get("tool_calls") or ()
        for name, arguments in [(call["function"]["name"], call["function"]["arguments"])]
    ]
    return [*([{"type": "text", "text": text}] if text or not calls else []), *calls]


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": function["parameters"],
    }
