"""OpenAI's prompt cache through the proxy: what a request gets, and who gets nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from nexus.proxy.openai_cache import BREAKPOINT, KEY, is_openai, with_cache_fields
from nexus.proxy.requests import ClientRequest
from nexus.proxy.settings import ProxySettings, Upstream
from nexus.testing.model_server import model_server, reply
from nexus.tokens.model import resolve
from proxy.running import running_proxy
from proxy.test_formats import ask

INSTRUCTIONS = "Answer in one sentence."
LONG = "A long sentence about a garden with many different flowers and trees in it. " * 30
TYPES: dict[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(CompletionCreateParamsNonStreaming),
    "responses": TypeAdapter(ResponseCreateParamsNonStreaming),
}
PATHS = {"openai": "/v1/chat/completions", "responses": "/v1/responses"}


def body_of(format_: str, texts: list[str], model: str = "gpt-5.6") -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "developer", "content": INSTRUCTIONS}]
    for index, text in enumerate(texts):
        items.append({"role": "user" if index % 2 == 0 else "assistant", "content": text})
    return {"model": model, "messages" if format_ == "openai" else "input": items}


def items_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body.get("messages") or body["input"]


def running(provider: Any, **settings: Any) -> Any:
    upstreams = ({"url": provider.anthropic_url, "openai_cache_fields": True},)
    return running_proxy(provider, upstreams=upstreams, **settings)


@pytest.mark.parametrize("format_", ["openai", "responses"])
def test_request_gets_key_and_breakpoint_and_nothing_else(format_: str) -> None:
    body = body_of(format_, ["Hello."])
    with model_server(reply("ok")) as provider, running(provider, mode="heal") as proxy:
        answer = ask(proxy, PATHS[format_], body)
    sent = provider.bodies[-1]
    TYPES[format_].validate_python(sent)
    assert answer.headers["x-nexus-outcome"] == "marked"
    block = items_of(sent)[0]["content"][-1]
    assert block.pop(BREAKPOINT) == {"mode": "explicit"}
    assert block == {"type": "text" if format_ == "openai" else "input_text", "text": INSTRUCTIONS}
    assert items_of(sent)[1:] == items_of(body)[1:]
    assert set(sent) - set(body) == {KEY}


@pytest.mark.parametrize("format_", ["openai", "responses"])
def test_cut_list_keeps_key_and_instructions_of_the_conversation(format_: str) -> None:
    texts = ["Hello."]
    with model_server(*[reply("ok")] * 20) as provider, running(provider, mode="fit", budget=4_000) as proxy:
        for number in range(16):
            answer = ask(proxy, PATHS[format_], body_of(format_, texts))
            texts += ["ok", f"{number} {LONG}"]
    assert answer.headers["x-nexus-outcome"] == "fitted"
    assert len({sent[KEY] for sent in provider.bodies}) == 1
    assert len({json.dumps(items_of(sent)[0]) for sent in provider.bodies}) == 1
    assert BREAKPOINT in items_of(provider.bodies[-1])[0]["content"][-1]


def test_fields_of_the_client_are_its_own() -> None:
    body = body_of("openai", ["Hello."])
    body[KEY] = "mine"
    items_of(body)[1]["content"] = [{"type": "text", "text": "Hello.", BREAKPOINT: {"mode": "explicit"}}]
    with model_server(reply("ok")) as provider, running(provider, mode="heal") as proxy:
        ask(proxy, PATHS["openai"], body)
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()


def test_compatible_server_gets_the_request_as_received() -> None:
    body = body_of("openai", ["Hello."])
    with model_server(reply("ok")) as provider, running_proxy(provider, mode="heal") as proxy:
        ask(proxy, PATHS["openai"], body)
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()


def fields_of(format_: str, body: dict[str, Any]) -> dict[str, Any]:
    request = ClientRequest("openai" if format_ == "openai" else "responses", PATHS[format_], json.dumps(body).encode())
    return with_cache_fields(request.body, request, resolve(request.model))


def test_model_that_pays_nothing_for_writing_gets_the_key_alone() -> None:
    body = body_of("openai", ["Hello."], model="gpt-4o")
    changed = fields_of("openai", body)
    assert changed == {**body, KEY: changed[KEY]}


def test_other_conversation_and_other_beginning_have_other_keys() -> None:
    bodies = [body_of("responses", [text]) for text in ("Hello.", "Good morning.")]
    first, second = (fields_of("responses", body)[KEY] for body in bodies)
    assert first != second


@pytest.mark.parametrize(
    "url", ["https://openai.com.example.org", "https://notopenai.com", "http://127.0.0.1:80/api.openai.com"]
)
def test_address_that_only_looks_like_openai_gets_nothing(url: str) -> None:
    assert not is_openai(url)
    assert not ProxySettings(upstreams=(Upstream(url),)).adds_cache_fields("openai", url)


def test_openai_gets_the_fields_unless_they_are_switched_off() -> None:
    url = "https://api.openai.com"
    assert ProxySettings().adds_cache_fields("openai", url)
    assert not ProxySettings(cache_marks=False).adds_cache_fields("openai", url)
    assert not ProxySettings().adds_cache_fields("gemini", url)
