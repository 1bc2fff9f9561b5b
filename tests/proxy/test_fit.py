"""The three modes: what goes on as received, what is changed and why, and what is never sent."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from nexus.testing.model_server import Step, model_server, overflow, reply, respond
from nexus.types.message import ToolCall
from proxy.running import running_proxy
from proxy.test_formats import FORMATS, ask, request_of
from support.validity import CHECKS

LONG = "A long sentence about a garden with many different flowers and trees in it. " * 30


def long_texts(turns: int) -> list[str]:
    return [f"{'Question' if index % 2 == 0 else 'Answer'} {index}: {LONG}" for index in range(2 * turns - 1)]


@pytest.mark.parametrize("format_", FORMATS)
def test_list_over_the_budget_is_cut_with_its_reason(format_: str) -> None:
    path, body = request_of(format_, long_texts(20))
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=6_000) as running:
        answer = ask(running, path, body)
        call = running.call(answer.headers["x-nexus-call"])
    sent = provider.bodies[-1]
    assert answer.headers["x-nexus-outcome"] == "fitted"
    assert int(answer.headers["x-nexus-omitted"]) == call["omitted"] > 20
    assert call["tokens"] <= 6_000
    assert any("over the budget" in reason for reason in call["reasons"])
    assert "Question 38" in json.dumps(sent)
    changed_fields = ("messages", "input", "contents", *(("system",) if format_ == "anthropic" else ()))
    assert {name: sent[name] for name in body if name not in changed_fields} == {
        name: body[name] for name in body if name not in changed_fields
    }
    changed = [line for line in call["explanation"]["lines"] if line["state"] in ("omitted", "truncated")]
    assert len(changed) >= call["omitted"]
    assert all(line["reason"] for line in changed)


def test_compressed_body_that_is_cut_goes_out_plain() -> None:
    path, body = request_of("anthropic", long_texts(20))
    data = gzip.compress(json.dumps(body).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=6_000) as running:
        answer = httpx.post(running.url + path, content=data, headers=headers, trust_env=False)
    assert answer.headers["x-nexus-outcome"] == "fitted"
    assert "content-encoding" not in provider.requests[-1].headers
    assert "Question 38" in json.dumps(json.loads(provider.requests[-1].data))


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_never_cut_is_not_sent_over_the_budget(format_: str) -> None:
    path, body = request_of(format_, [LONG * 20])
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=2_000) as running:
        answer = ask(running, path, body)
    assert provider.requests == []
    assert answer.status_code == 400
    assert "budget of nexus proxy" in json.dumps(answer.json()["error"])
    assert ("prompt is too long" in answer.text) == (format_ == "anthropic")


def test_over_budget_goes_out_with_fail_open() -> None:
    path, body = request_of("anthropic", [LONG * 20])
    with (
        model_server(reply("ok")) as provider,
        running_proxy(provider, mode="fit", budget=2_000, fail_open=True) as running,
    ):
        answer = ask(running, path, body)
        call = running.call(answer.headers["x-nexus-call"])
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()
    assert answer.headers["x-nexus-outcome"] == "unread"
    assert call["reasons"][0].startswith("budget_too_small")


@pytest.mark.parametrize("mode", ["heal", "fit"])
def test_request_without_breakpoints_gets_some_and_nothing_else(mode: str) -> None:
    path, body = request_of("anthropic", ["Hello.", "Hi.", "How are you?"])
    with model_server(reply("ok")) as provider, running_proxy(provider, mode=mode, budget=50_000) as running:
        answer = ask(running, path, body)
        call = running.call(answer.headers["x-nexus-call"])
    sent = provider.bodies[-1]
    assert answer.headers["x-nexus-outcome"] == "marked"
    assert call["reasons"] == ["cache breakpoints added: the client sets none"]
    assert sent["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert sent["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert json.dumps(sent).count("cache_control") <= 4
    assert CHECKS["anthropic"](sent) == []


def test_breakpoints_of_the_client_are_enough() -> None:
    path, body = request_of("anthropic", ["Hello."])
    body["messages"][0]["content"] = [{"type": "text", "text": "Hello.", "cache_control": {"type": "ephemeral"}}]
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=50_000) as running:
        assert ask(running, path, body).headers["x-nexus-outcome"] == "as_received"
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()


def test_cut_list_has_at_most_four_breakpoints_with_the_clients_lifetime() -> None:
    texts = [f"Short {n}." for n in range(59)]
    path, body = request_of("anthropic", [LONG * 20, "Well.", *texts])
    mark = {"type": "ephemeral", "ttl": "1h"}
    for own_count in (1, 3):
        body["system"] = [{"type": "text", "text": f"Rule {n}.", "cache_control": mark} for n in range(own_count)]
        with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=6_000) as running:
            assert ask(running, path, body).headers["x-nexus-outcome"] == "fitted"
        sent = provider.bodies[-1]
        assert sent["system"] == body["system"]
        assert len(sent["messages"]) > 40  # room for three breakpoints
        assert json.dumps(sent).count('"cache_control": {"type": "ephemeral", "ttl": "1h"}') == 4
        assert json.dumps(sent).count("cache_control") == 4
    assert "cache_control" in json.dumps(sent["messages"][-1])


def test_heal_repairs_a_call_without_its_result() -> None:
    path, body = request_of("anthropic", ["Look.", "I look.", "Go on."])
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    body["tools"] = [{"name": "look", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}]
    body["messages"][1]["content"] = [{"type": "text", "text": "I look."}, call]
    assert CHECKS["anthropic"](body) != []
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="heal") as running:
        answer = ask(running, path, body)
        report = running.call(answer.headers["x-nexus-call"])
    assert answer.headers["x-nexus-outcome"] == "healed"
    assert any("repaired" in reason for reason in report["reasons"])
    sent = provider.bodies[-1]
    assert CHECKS["anthropic"](sent) == []
    assert sent["tools"] == body["tools"]


def test_record_sends_a_broken_history_as_it_is() -> None:
    path, body = request_of("anthropic", ["Look.", "I look.", "Go on."])
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    body["messages"][1]["content"] = [{"type": "text", "text": "I look."}, call]
    with model_server(reply("ok")) as provider, running_proxy(provider) as running:
        answer = ask(running, path, body)
        report = running.call(answer.headers["x-nexus-call"])
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()
    assert answer.headers["x-nexus-outcome"] == "as_received"
    assert report["session"]


@pytest.mark.parametrize("format_", FORMATS)
def test_refusal_as_too_long_is_answered_by_a_smaller_request(format_: str) -> None:
    path, body = request_of(format_, long_texts(20))
    steps = overflow(6_000, 14_000), reply("Fits now.")
    with model_server(*steps) as provider, running_proxy(provider, mode="fit", budget=100_000) as running:
        answer = ask(running, path, body)
        report = running.call(answer.headers["x-nexus-call"])
    assert answer.status_code == 200
    assert "Fits" in answer.text
    assert len(provider.requests) == report["tries"] == 2
    assert len(provider.requests[1].data) < len(provider.requests[0].data)
    assert report["tokens"] <= (9_000 if format_ == "responses" else 6_000)  # its refusal names no limit
    assert any("sent again" in reason for reason in report["reasons"])


IN_STREAM = {
    "response.failed": {
        "response": {"status": "failed", "error": {"code": "context_length_exceeded", "message": "Too long."}}
    },
    "error": {"code": "context_length_exceeded", "message": "Too long.", "param": "input"},
}


def refused_in_stream(kind: str) -> Step:
    """Return a stream of the Responses API that is refused as too long after its first events."""
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    events = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {"type": kind, **IN_STREAM[kind]},
    ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return respond(200, text.encode(), **{"content-type": "text/event-stream"})


@pytest.mark.parametrize("kind", IN_STREAM)
def test_refusal_in_a_stream_is_answered_by_a_smaller_request(kind: str) -> None:
    path, body = request_of("responses", long_texts(20), stream=True)
    steps = refused_in_stream(kind), reply("Fits now.")
    with model_server(*steps) as provider, running_proxy(provider, mode="fit", budget=100_000) as running:
        answer = ask(running, path, body)
        report = running.call(answer.headers["x-nexus-call"])
    assert "response.completed" in answer.text
    assert "response.failed" not in answer.text
    assert len(provider.requests) == report["tries"] == 2
    assert len(provider.requests[1].data) < len(provider.requests[0].data)
    assert report["session"]


def test_other_failure_in_a_stream_goes_through() -> None:
    path, body = request_of("responses", ["Hello."], stream=True)
    event = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Try again."}}}
    data = f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode()
    step = respond(200, data, **{"content-type": "text/event-stream"})
    with model_server(step) as provider, running_proxy(provider, mode="fit", budget=100_000) as running:
        answer = ask(running, path, body)
    assert answer.content == data
    assert len(provider.requests) == 1


def test_refusal_as_too_long_goes_through_in_record() -> None:
    path, body = request_of("anthropic", long_texts(20))
    with model_server(overflow(6_000)) as provider, running_proxy(provider) as running:
        answer = ask(running, path, body)
    assert answer.status_code == 400
    assert "prompt is too long" in answer.text
    assert len(provider.requests) == 1


@pytest.mark.parametrize("format_", FORMATS)
def test_cut_prompts_extend_the_last_one_until_the_next_cut(format_: str) -> None:
    texts = long_texts(8)
    outcomes: list[str] = []
    breaks = 0
    before = ""
    with model_server(reply("Well. " + LONG)) as provider, running_proxy(provider, mode="fit", budget=6_000) as running:
        for turn in range(8, 24):
            path, body = request_of(format_, texts)
            answer = ask(running, path, body)
            outcomes.append(answer.headers["x-nexus-outcome"])
            sent: Any = provider.bodies[-1]
            key = {"responses": "input", "gemini": "contents"}.get(format_, "messages")
            now = json.dumps(_unmarked(sent[key]))
            breaks += bool(before) and not now.startswith(before[:-1])
            before = now
            texts += ["Well. " + LONG, f"Question {turn}: {LONG}"]
    assert set(outcomes) == {"fitted"}
    assert breaks <= 6


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        fields = {name: _unmarked(item) for name, item in value.items() if name != "cache_control"}
        content = fields.get("content")
        if isinstance(content, str):
            fields["content"] = [{"type": "text", "text": content}]
        return fields
    return value


def test_tool_that_cannot_be_read_goes_out_as_received() -> None:
    path, body = request_of("openai", long_texts(20))
    body["tools"] = [
        {"type": "odd", "definition": {"nested": [1, 2, 3]}},
        {"type": "function", "function": {"name": "a b"}},
    ]
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=8_000) as running:
        answer = ask(running, path, body)
    assert answer.headers["x-nexus-outcome"] == "fitted"
    assert provider.bodies[-1]["tools"] == body["tools"]


def test_calls_and_results_of_tools_stay_together() -> None:
    path, body = request_of("anthropic", ["Start."])
    body["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    steps = reply(None, ToolCall("toolu_9", "look", "{}"))
    with model_server(steps) as provider, running_proxy(provider, mode="fit", budget=4_000) as running:
        for number in range(30):
            answer = ask(running, path, body)
            assert answer.status_code == 200, answer.text
            assert CHECKS["anthropic"](provider.bodies[-1]) == []
            call = {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"n": number}}
            result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"Result {number}: {LONG}"}
            body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        assert answer.headers["x-nexus-outcome"] == "fitted"
