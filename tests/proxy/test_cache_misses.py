"""What calls read from the provider's cache, and the named cause of each miss."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import nexus
from nexus.proxy import cache_misses
from nexus.testing.fakes import FixedClock
from nexus.testing.model_server import ModelServer, Step, model_server, reply
from proxy.running import RunningProxy, running_proxy
from proxy.test_formats import ask, request_of

Body = dict[str, Any]
LONG = "A long sentence about a garden with many different flowers and trees in it. " * 30
MARK = {"type": "ephemeral"}


def used(input_tokens: int, read: int = 0, written: int = 0, *, hour: bool = False) -> Step:
    return reply(
        "ok",
        input_tokens=input_tokens,
        output_tokens=1,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=written if hour else 0,
    )


def marked(texts: list[str], *, ttl: str = "") -> Body:
    """Return a request whose last message has a breakpoint."""
    body = request_of("anthropic", texts)[1]
    mark = {**MARK, "ttl": ttl} if ttl else MARK
    body["messages"][-1]["content"] = [{"type": "text", "text": texts[-1], "cache_control": mark}]
    body["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    return body


def asked(running: RunningProxy, provider: ModelServer, body: Body, step: Step, path: str = "/v1/messages") -> Body:
    """Return what the proxy says of a call that the provider answers with a step."""
    provider.script(step)
    return recorded(running, ask(running, path, body).headers["x-nexus-call"])


def recorded(running: RunningProxy, call_id: str) -> Body:
    """Return a call once it is recorded: on a busy machine the tokenizer takes longer than an answer waits."""
    for _ in range(500):
        call = running.call(call_id)
        if call["session"]:
            break
    return call


def change_tools(body: Body) -> None:
    body["tools"][0]["description"] = "Looks."


def change_system(body: Body) -> None:
    body["system"] = "Be long."


def change_model(body: Body) -> None:
    body["model"] = "claude-opus-4-5"


def change_settings(body: Body) -> None:
    body["thinking"] = {"type": "enabled", "budget_tokens": 1_024}
    body["max_tokens"] = 2_000


def change_message(body: Body) -> None:
    body["messages"][1]["content"] = "Another answer."


def change_nothing(body: Body) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "cause", "detail"),
    [
        (change_tools, cache_misses.TOOLS, "the tool definitions changed"),
        (change_system, cache_misses.SYSTEM, "nexus:system (system) changed"),
        (change_model, cache_misses.MODEL, "the model changed from claude-sonnet-4-5"),
        (change_settings, cache_misses.SETTINGS, "thinking"),
        (change_message, cache_misses.MESSAGES, "message 2 is another one"),
        (change_nothing, cache_misses.UNKNOWN, ""),
    ],
)
def test_miss_has_the_clients_change_as_its_cause(change: Callable[[Body], None], cause: str, detail: str) -> None:
    texts = [f"Question 1. {LONG}", "ok", f"Question 2. {LONG}", "ok", "Question 3."]
    with model_server() as provider, running_proxy(provider) as running:
        first = asked(running, provider, marked(texts[:1]), used(3_000, 0, 3_000))
        second = asked(running, provider, marked(texts[:3]), used(6_000, 3_000, 3_000))
        body = marked(texts)
        change(body)
        third = asked(running, provider, body, used(6_500, 100, 6_400))
        status = running.get("/nexus/status").json()["cache"]
        metrics = running.get("/nexus/metrics").text
    assert first["cache"] == {
        "read_tokens": 0, "expected_tokens": 0, "cause": cache_misses.FIRST, "detail": "",
    }  # fmt: skip
    assert second["cache"] == {"read_tokens": 3_000, "expected_tokens": 3_000, "cause": "", "detail": ""}
    assert third["cache"] == {"read_tokens": 100, "expected_tokens": 6_000, "cause": cause, "detail": detail}
    assert status["misses"] == {cache_misses.FIRST: 1, cause: 1}
    assert (status["read_tokens"], status["input_tokens"]) == (3_100, 15_500)
    assert f'nexus_proxy_cache_misses_total{{cause="{cause}"}} 1.0' in metrics


@pytest.mark.parametrize(("ttl", "cause"), [("", cache_misses.EXPIRED), ("1h", cache_misses.UNKNOWN)])
def test_miss_after_the_caches_lifetime_says_so(ttl: str, cause: str) -> None:
    clock = FixedClock()
    texts = [f"Question 1. {LONG}", "ok", "Question 2."]
    with (
        nexus.open(ledger=":memory:", clock_ms=clock) as nx,
        model_server() as provider,
        running_proxy(provider, nx=nx) as running,
    ):
        asked(running, provider, marked(texts[:1], ttl=ttl), used(3_000, 0, 3_000, hour=bool(ttl)))
        clock.advance(6 * 60_000)
        late = asked(running, provider, marked(texts, ttl=ttl), used(3_100, 0, 3_100, hour=bool(ttl)))
    assert late["cache"]["cause"] == cause
    assert ("6 minutes after" in late["cache"]["detail"]) == (not ttl)


def test_list_that_is_sent_once_more_is_not_called_changed() -> None:
    body = marked([f"Question 1. {LONG}"])
    with model_server() as provider, running_proxy(provider) as running:
        asked(running, provider, body, used(3_000, 0, 3_000))
        provider.script(reply("Another answer.", input_tokens=3_000, cache_write_tokens=3_000))
        again = recorded(running, ask(running, "/v1/messages", body).headers["x-nexus-call"])
    assert (again["cache"]["expected_tokens"], again["cache"]["cause"]) == (3_000, cache_misses.UNKNOWN)


def test_call_behind_one_without_usage_is_no_miss() -> None:
    texts = [f"Question 1. {LONG}", "ok", "Question 2."]
    with model_server() as provider, running_proxy(provider) as running:
        asked(running, provider, marked(texts[:1]), used(0))
        second = asked(running, provider, marked(texts), used(3_100, 0, 3_100))
    assert (second["cache"]["expected_tokens"], second["cache"]["cause"]) == (0, "")


def test_prompt_below_the_smallest_one_is_not_the_clients_fault() -> None:
    with model_server() as provider, running_proxy(provider) as running:
        asked(running, provider, marked(["Hello."]), used(300))
        second = asked(running, provider, marked(["Hello.", "ok", "Yes?"]), used(400))
    assert second["cache"]["cause"] == cache_misses.TOO_SHORT


def test_client_without_breakpoints_has_that_as_the_cause_until_the_proxy_adds_them() -> None:
    texts = [f"Question 1. {LONG}", "ok", "Question 2.", "ok", "Question 3.", "ok", "Question 4."]
    causes: list[str] = []
    with model_server() as provider, running_proxy(provider, mode="record") as running:
        for count in (1, 3):
            body = request_of("anthropic", texts[:count])[1]
            causes.append(asked(running, provider, body, used(3_000))["cache"]["cause"])
        running.set_mode("heal")
        for count, step in ((5, used(3_000, 0, 3_000)), (7, used(3_100, 3_000, 100))):
            causes.append(asked(running, provider, request_of("anthropic", texts[:count])[1], step)["cache"]["cause"])
        unmarked = running.get("/nexus/status").json()["cache"]["unmarked_calls"]
    assert causes == [cache_misses.FIRST, cache_misses.NO_BREAKPOINT, cache_misses.NO_BREAKPOINT, ""]
    assert unmarked == 2


def test_cut_by_the_proxy_is_its_own_cause() -> None:
    texts = [f"Question 0. {LONG}"]
    causes: list[str] = []
    with model_server() as provider, running_proxy(provider, mode="fit", budget=6_000) as running:
        for number in range(1, 14):
            call = asked(running, provider, marked(texts), used(4_000, 500 if number > 1 else 0, 3_500))
            if call["outcome"] == "fitted":
                causes.append(call["cache"]["cause"])
            texts += ["ok", f"Question {number}. {LONG}"]
    # Behind a cut the provider is as scripted: it forgets what the cut list has stored.
    assert causes[:2] == [cache_misses.OWN_CUT, cache_misses.UNKNOWN]


@pytest.mark.parametrize("format_", ["openai", "responses", "gemini"])
def test_cause_does_not_depend_on_the_format(format_: str) -> None:
    texts = [f"Question 1. {LONG * 3}", "ok", "Question 2.", "ok", "Question 3."]
    with model_server() as provider, running_proxy(provider) as running:
        calls: list[Body] = []
        for count, step in ((1, used(6_000)), (3, used(6_100, 5_900)), (5, used(6_200))):
            path, body = request_of(format_, texts[:count])
            if count == 5:
                body = _with_system(copy.deepcopy(body), format_)
            calls.append(asked(running, provider, body, step, path))
    found = [call["cache"]["cause"] for call in calls]
    assert found == [cache_misses.FIRST, "", cache_misses.SYSTEM]
    assert calls[2]["breakpoints"] == []


def _with_system(body: Body, format_: str) -> Body:
    match format_:
        case "openai":
            body["messages"][0]["content"] = "Be long."
        case "responses":
            body["instructions"] = "Be long."
        case _:
            body["systemInstruction"] = {"parts": [{"text": "Be long."}]}
    return body


def test_answer_without_usage_has_no_cause() -> None:
    with model_server(used(0)) as provider, running_proxy(provider) as running:
        call = recorded(running, ask(running, "/v1/messages", marked(["Hello."])).headers["x-nexus-call"])
    assert call["session"]
    assert call["cache"] is None
