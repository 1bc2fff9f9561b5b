"""Who may use a proxy, whose conversations are kept apart, and what is never kept."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.server.security import Tokens
from nexus.testing.model_server import model_server, reply, respond
from proxy.running import RunningProxy, running_proxy
from proxy.test_commands import nexus as command
from proxy.test_formats import ask, request_of

TOKENS = {"token-of-anna-1234567": "anna", "token-of-bert-1234567": "bert"}


def post(running: RunningProxy, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(running.url + path, json=body, headers=named, trust_env=False, timeout=30)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_pages_of_other_sites_reach_neither_models_nor_records(headers: dict[str, str], status: int) -> None:
    path, body = request_of("anthropic", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider) as running:
        assert post(running, path, body, **headers).status_code == status
        for own in ("/nexus/status", "/nexus/calls/1"):
            assert running.get(own, **headers).status_code == status
        assert (
            httpx.post(f"{running.url}/nexus/mode", json={"mode": "off"}, headers=headers, trust_env=False).status_code
            == status
        )
        assert running.get("/nexus/health").json()["mode"] == "record"
    assert provider.requests == []


@pytest.mark.parametrize("way", ["header", "path"])
def test_token_is_asked_for_and_not_sent_upstream(way: str, tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    path, body = request_of("anthropic", ["Hello."])
    token = next(iter(TOKENS))
    with model_server(reply("ok")) as provider, running_proxy(provider, ledger, tokens=Tokens(TOKENS)) as running:
        for wrong in ("", "wrong-token-12345678"):
            assert post(running, path, body, x_nexus_token=wrong).status_code == 401
            assert running.get("/nexus/status", **{"x-nexus-token": wrong}).status_code == 401
        if way == "header":
            answer = post(running, path, body, x_nexus_token=token)
        else:
            answer = post(running, f"/nexus/as/{token}{path}", body)
        assert answer.status_code == 200
        call = running.get(f"/nexus/calls/{answer.headers['x-nexus-call']}", **{"x-nexus-token": token}).json()
    (sent,) = provider.requests
    assert call["user"] == "anna"
    assert token not in json.dumps(sent.headers) + sent.path
    assert token.encode() not in ledger.read_bytes()


@pytest.mark.parametrize("mode", ["record", "heal"])
def test_keys_are_in_no_log_and_no_record(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ledger = tmp_path / "l.db"
    path, body = request_of("gemini", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider, ledger, mode=mode) as running:
        keys = {"x-goog-api-key": "key-in-a-header", "authorization": "Bearer key-of-a-bearer"}
        answer = httpx.post(
            f"{running.url}{path}?key=key-in-the-address", json=body, headers=keys, trust_env=False, timeout=30
        )
        call = json.dumps(running.call(answer.headers["x-nexus-call"]))
        status = running.get("/nexus/status").text
        assert provider.requests[-1].headers["x-goog-api-key"] == "key-in-a-header"
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file()).decode("latin-1")
    for key in ("key-in-the-address", "key-in-a-header", "key-of-a-bearer"):
        assert key not in caplog.text + call + status + written


def test_call_of_one_user_is_not_told_to_another() -> None:
    anna, bert = TOKENS
    path, body = request_of("anthropic", ["My secret is 42."])
    with model_server(reply("ok")) as provider, running_proxy(provider, tokens=Tokens(TOKENS)) as running:
        page = f"/nexus/calls/{post(running, path, body, x_nexus_token=anna).headers['x-nexus-call']}"
        assert "My secret" in running.get(page, **{"x-nexus-token": anna}).text
        assert "My secret" in running.get(page).text
        other = running.get(page, **{"x-nexus-token": bert})
        assert (other.status_code, "secret" in other.text) == (404, False)
        for token in TOKENS:
            for own in ("/nexus/status", "/nexus/metrics"):
                assert running.get(own, **{"x-nexus-token": token}).status_code == 403
            assert running.set_mode("off", **{"x-nexus-token": token}).status_code == 403
        # The owner's token opens its pages, and is no user's.
        assert post(running, path, body, x_nexus_token="token-of-the-owner-123").status_code == 401


def test_others_on_the_machine_see_neither_status_nor_calls() -> None:
    path, body = request_of("anthropic", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider) as running:
        call_id = post(running, path, body).headers["x-nexus-call"]
        for own in ("/nexus/status", "/nexus/metrics"):
            assert running.get(own, **{"x-nexus-token": ""}).status_code == 403
        assert running.set_mode("off", **{"x-nexus-token": ""}).status_code == 403
        assert running.get(f"/nexus/calls/{call_id}", **{"x-nexus-token": ""}).status_code == 200
    assert len(call_id) == 27


def test_cookies_of_a_server_go_to_its_client_alone() -> None:
    cookie = respond(200, b"{}", **{"set-cookie": "who=anna; Path=/"})
    path, body = request_of("anthropic", ["Hello."])
    with model_server(cookie) as provider, running_proxy(provider) as running:
        assert post(running, path, body).headers["set-cookie"] == "who=anna; Path=/"
        post(running, path, body)
        post(running, path, body, cookie="own=1")
    assert [request.headers.get("cookie") for request in provider.requests] == [None, None, "own=1"]


def test_same_lists_of_two_users_are_two_sessions() -> None:
    texts = ["Hello.", "Hi.", "My secret is 42. " * 30, "I see.", "And now?"]
    with model_server(reply("Fine.")) as provider, running_proxy(provider, tokens=Tokens(TOKENS)) as running:
        sessions: list[str] = []
        for token in (*TOKENS, *TOKENS):
            path, body = request_of("anthropic", texts)
            answer = post(running, path, body, x_nexus_token=token)
            report = running.get(f"/nexus/calls/{answer.headers['x-nexus-call']}", **{"x-nexus-token": token}).json()
            sessions.append(report["session"])
    assert sessions[0] != sessions[1]
    assert sessions[2:] == sessions[:2]


def test_conversations_of_one_client_are_told_apart_by_its_id() -> None:
    path, body = request_of("anthropic", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider) as running:
        answers = [post(running, path, body, x_claude_code_session_id=name) for name in ("one", "two", "one")]
        calls = [running.call(answer.headers["x-nexus-call"]) for answer in answers]
    assert [call["client"] for call in calls] == ["claude-code"] * 3
    assert calls[0]["session"] == calls[2]["session"] != calls[1]["session"]


def test_restart_goes_on_with_the_session(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    texts = ["Hello."]
    sessions: list[str] = []
    with model_server(reply("ok")) as provider:
        for _ in range(3):
            with running_proxy(provider, ledger) as running:
                answer = ask(running, *request_of("openai", texts))
                sessions.append(running.call(answer.headers["x-nexus-call"])["session"])
            texts += ["ok", "And then?"]
    assert len(set(sessions)) == 1
    with nexus.open(ledger=ledger) as nx:
        assert len(nx.history(sessions[0])) == 6


def test_mode_is_changed_while_it_runs() -> None:
    path, body = request_of("anthropic", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider, budget=50_000) as running:
        outcomes: list[str] = []
        for mode in ("off", "heal", "fit", "record", "wrong"):
            answer = running.set_mode(mode)
            assert answer.status_code == (400 if mode == "wrong" else 200)
            outcomes.append(ask(running, path, body).headers["x-nexus-outcome"])
        status = running.get("/nexus/status").json()
        metrics = running.get("/nexus/metrics").text
    assert outcomes == ["as_received", "marked", "marked", "as_received", "as_received"]
    assert 'nexus_proxy_calls_total{client="other",format="anthropic",outcome="marked"} 2.0' in metrics
    assert status["counts"]["off"] == 1
    assert status["counts"]["calls"] == 5
    assert [call["session"] != "" for call in status["calls"]] == [True, True, True, True, False]
    assert sum(conversation["calls"] for conversation in status["conversations"]) == 5


def test_on_gives_a_proxy_the_mode_that_it_had_before_off() -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="fit", budget=50_000) as running:
        modes: list[str] = []
        for mode in ("off", "off", "on", "on", "heal", "off", "on"):
            modes.append(running.set_mode(mode).json()["mode"])
    assert modes == ["off", "off", "fit", "fit", "heal", "off", "heal"]


def test_call_is_told_to_people_and_programs() -> None:
    path, body = request_of("anthropic", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider) as running:
        call_id = ask(running, path, body).headers["x-nexus-call"]
        text = running.get(f"/nexus/calls/{call_id}", accept="text/plain")
        assert text.headers["content-type"].startswith("text/plain")
        assert text.text.startswith(f"call {call_id}: other, claude-sonnet-4-5, /v1/messages\n")
        assert "recorded in " in text.text
        assert running.get("/nexus/calls/unknown").status_code == 404


@pytest.mark.parametrize("no_text", [False, True])
def test_stream_without_usage_has_no_cost(no_text: bool) -> None:
    path, body = request_of("openai", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider, no_text=no_text) as running:
        without = running.call(ask(running, path, {**body, "stream": True}).headers["x-nexus-call"])
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with_usage = running.call(ask(running, path, asked).headers["x-nexus-call"])
    assert without["cost_usd"] is None
    assert with_usage["cost_usd"] > 0


def test_replay_of_a_call_without_a_readable_answer_says_why_once(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    with model_server(respond(200, b"{not json")) as provider, running_proxy(provider, ledger) as running:
        call_id = ask(running, *request_of("openai", ["Hello."])).headers["x-nexus-call"]
    answer = command(tmp_path, "replay", "--call", call_id, "--ledger", str(ledger))
    assert answer.stderr.startswith(f"nexus: call {call_id} is not recorded: bad_reply: ")
