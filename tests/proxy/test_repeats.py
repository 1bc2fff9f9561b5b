"""Clients that send a request again, because they did not get its answer, or were started again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nexus.testing.model_server import model_server, reply
from nexus.types.message import ToolCall
from proxy.running import RunningProxy, running_proxy
from proxy.test_formats import Fields, ask, request_of
from support.validity import CHECKS

LONG = "A long sentence about a garden with many different flowers and trees in it. " * 30
LOOK: dict[str, Fields] = {
    "anthropic": {"name": "look", "input_schema": {"type": "object"}},
    "openai": {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
}


def exchanged(format_: str, call_id: str, result: str) -> list[Fields]:
    """Return a call and its result as a client has them in its list."""
    if format_ == "anthropic":
        call = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": result}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    function = {"name": "look", "arguments": "{}"}
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    return [said, {"role": "tool", "tool_call_id": call_id, "content": result}]


def report_of(running: RunningProxy, path: str, body: Fields) -> dict[str, Any]:
    answer = ask(running, path, body)
    assert answer.status_code == 200, answer.text
    return running.call(answer.headers["x-nexus-call"])


@pytest.mark.parametrize("format_", LOOK)
def test_repeated_request_is_explained_as_the_call_that_is_recorded(format_: str) -> None:
    path, body = request_of(format_, ["Look around."])
    body["tools"] = [LOOK[format_]]
    first_list = [*body["messages"]]
    step = reply(None, ToolCall("toolu_a1b2c3d4", "look", "{}"))
    with (
        model_server(step) as provider,
        running_proxy(provider, mode="fit", budget=6_000, cache_marks=False) as running,
    ):
        first = report_of(running, path, body)
        for number in range(6):
            body["messages"] += exchanged(format_, "toolu_a1b2c3d4", f"{number} {LONG}")
            report_of(running, path, body)
        again = report_of(running, path, {**body, "messages": first_list})
    assert (again["action"], again["reasons"]) == ("repeat", [])
    assert (again["turn"], again["number"]) == (first["turn"], first["number"]) == (1, 1)
    assert again["explanation"]["lines"] == first["explanation"]["lines"]


@pytest.mark.parametrize("format_", LOOK)
def test_second_answer_keeps_its_ids_in_a_list_that_fits(format_: str) -> None:
    path, body = request_of(format_, ["Look around."])
    body["tools"] = [LOOK[format_]]
    with (
        model_server() as provider,
        running_proxy(provider, mode="fit", budget=50_000, cache_marks=False) as running,
    ):
        first_list = [*body["messages"]]
        for answer in ("1", "2"):
            body["messages"] = [*first_list]
            for step in ("a", "b"):
                call_id = f"toolu_of_answer_{answer}_{step}"
                provider.script(reply(None, ToolCall(call_id, "look", "{}")))
                session = report_of(running, path, body)["session"]
                body["messages"] += exchanged(format_, call_id, LONG * 20)
        provider.script(reply("A garden."))
        report = report_of(running, path, body)
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()
    assert (report["outcome"], report["reasons"]) == ("as_received", [])
    assert report["session"] == session


def test_second_answer_whose_id_a_provider_refuses_is_not_sent_as_received() -> None:
    path, body = request_of("anthropic", ["Look around."])
    body["tools"] = [LOOK["anthropic"]]
    first_list = [*body["messages"]]
    with model_server() as provider, running_proxy(provider, mode="fit", budget=50_000) as running:
        for call_id in ("toolu_of_answer_1", "an id: with blanks"):
            body["messages"] = [*first_list]
            provider.script(reply(None, ToolCall("toolu_of_answer_1", "look", "{}")))
            report_of(running, path, body)
            body["messages"] += exchanged("anthropic", call_id, LONG * 20)
            report_of(running, path, body)
        assert CHECKS["anthropic"](body) != []
    assert CHECKS["anthropic"](provider.bodies[-1]) == []
