"""Requests of all four formats through the proxy: as received, recorded, and continued in one session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.testing.model_server import model_server, reply, respond
from proxy.running import RunningProxy, running_proxy

Fields = dict[str, Any]


def request_of(format_: str, texts: list[str], *, stream: bool = False) -> tuple[str, Fields]:
    """Return path and body of a request with these texts, of the user and the model in turn."""
    listed = [("user" if index % 2 == 0 else "assistant", text) for index, text in enumerate(texts)]
    match format_:
        case "anthropic":
            messages = [{"role": role, "content": text} for role, text in listed]
            body: Fields = {"model": "claude-sonnet-4-5", "max_tokens": 64, "system": "Be brief.", "messages": messages}
            path = "/v1/messages?beta=true"
        case "openai":
            messages = [{"role": role, "content": text} for role, text in listed]
            body = {"model": "gpt-4o", "messages": [{"role": "system", "content": "Be brief."}, *messages], "seed": 7}
            path = "/v1/chat/completions"
        case "responses":
            items = [{"role": role, "content": text} for role, text in listed]
            body = {"model": "gpt-5", "instructions": "Be brief.", "input": items, "store": False}
            path = "/v1/responses"
        case _:
            contents = [
                {"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]} for role, text in listed
            ]
            system = {"parts": [{"text": "Be brief."}]}
            body = {"contents": contents, "systemInstruction": system, "generationConfig": {"temperature": 0.5}}
            method = "streamGenerateContent?alt=sse" if stream else "generateContent"
            return f"/v1beta/models/gemini-2.5-flash:{method}", body
    return path, {**body, "stream": True} if stream else body


def ask(running: RunningProxy, path: str, body: Fields) -> httpx.Response:
    data = json.dumps(body, indent=1).encode()
    headers = {"content-type": "application/json", "x-api-key": "secret-key-1", "user-agent": "test/1"}
    return httpx.post(running.url + path, content=data, headers=headers, trust_env=False, timeout=60)


FORMATS = ("anthropic", "openai", "responses", "gemini")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("format_", FORMATS)
def test_conversation_goes_through_as_received_and_is_one_session(format_: str, stream: bool, tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    texts = ["Hello."]
    with model_server(reply("First answer."), reply("Second answer."), reply("Third answer.")) as provider:
        with running_proxy(provider, ledger) as running:
            ids: list[str] = []
            for answer in ("First answer.", "Second answer.", "Third answer."):
                path, body = request_of(format_, texts, stream=stream)
                received = ask(running, path, body)
                assert received.status_code == 200
                assert answer.split()[0] in received.text
                assert received.headers["x-nexus-outcome"] == "as_received"
                ids.append(received.headers["x-nexus-call"])
                assert provider.requests[-1].data == json.dumps(body, indent=1).encode()
                assert provider.requests[-1].headers["x-api-key"] == "secret-key-1"
                texts += [answer, "And then?"]
            calls = [running.call(call_id) for call_id in ids]
        assert len({call["session"] for call in calls}) == 1, calls
        assert [call["action"] for call in calls] == ["new", "append", "append"]
        assert all(call["explanation"]["lines"] for call in calls)
    with nexus.open(ledger=ledger) as nx:
        (session,) = nx.sessions()
        said = [message.text() for message in nx.history(session.label)]
        assert said == [*texts[:-1]]
    assert b"secret-key-1" not in ledger.read_bytes()


TELLTALE = (
    'It sends event: message_stop, then data: [DONE] or "finishReason": "STOP" and response.completed, and goes on. '
)


@pytest.mark.parametrize("format_", FORMATS)
def test_only_the_end_of_a_stream_waits_for_its_record(format_: str) -> None:
    path, body = request_of(format_, ["Hello."], stream=True)
    text = TELLTALE * 3
    with model_server(reply(text, event_interval_s=0.02)) as provider, running_proxy(provider) as running:
        pieces: list[bytes] = []
        recorded: list[bool] = []
        with httpx.stream("POST", running.url + path, json=body, trust_env=False, timeout=60) as answer:
            for piece in answer.iter_raw():
                pieces.append(piece)
                recorded.append(bool(running.call(answer.headers["x-nexus-call"])["session"]))
    joined = b"".join(pieces)
    assert joined.count(b"finishReason") >= 3
    assert len(pieces) > 8
    assert sum(recorded) <= 2
    assert recorded[-1]


@pytest.mark.parametrize("format_", FORMATS)
def test_answer_that_comes_byte_by_byte_is_recorded(format_: str) -> None:
    path, body = request_of(format_, ["Hello."], stream=True)
    with model_server(reply("First answer.", byte_interval_s=0.0005)) as provider, running_proxy(provider) as running:
        call = running.call(ask(running, path, body).headers["x-nexus-call"])
    assert call["session"]


def test_gemini_stream_as_a_list_is_recorded() -> None:
    path, body = request_of("gemini", ["Hello."], stream=True)
    replies = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **end}]}
        for text, end in (("First ", {}), ("answer.", {"finishReason": "STOP"}))
    ]
    step = respond(200, json.dumps(replies, indent=1).encode())
    with model_server(step) as provider, running_proxy(provider) as running:
        answer = ask(running, path.removesuffix("?alt=sse"), body)
        call = running.call(answer.headers["x-nexus-call"])
    assert answer.json() == replies
    assert call["session"], call["reasons"]
