"""Which client a model, a provider or an address gets, and which key goes where."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import nexus
from models.calls import FORMATS, call, context, reply_of
from nexus.errors import BadSetting, NoCredential, PackageMissing
from nexus.models import Models, RetryPolicy, open_client
from nexus.models import open as opening
from nexus.testing.model_server import ModelServer, fail, model_server, reply
from nexus.text.as_received import ReceivedFormat
from support.errors import has_code

VARIABLES = {
    "OPENAI_API_KEY": "sk-openai-11111111111111111111",
    "ANTHROPIC_API_KEY": "sk-ant-22222222222222222222",
    "ANTHROPIC_AUTH_TOKEN": "token-33333333333333333333",
    "GEMINI_API_KEY": "gemini-44444444444444444444",
    "GOOGLE_API_KEY": "google-55555555555555555555",
    "DEEPSEEK_API_KEY": "deepseek-66666666666666666666",
}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of all providers in the environment."""
    for variable, value in VARIABLES.items():
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize(
    ("model", "format_", "host"),
    [
        ("gpt-5", "responses", "api.openai.com"),
        ("claude-sonnet-4-5", "anthropic", "api.anthropic.com"),
        ("gemini-2.5-pro", "gemini", "generativelanguage.googleapis.com"),
        ("deepseek-chat", "openai", "api.deepseek.com"),
    ],
)
@pytest.mark.usefixtures("keys")
def test_model_name_chooses_the_provider(model: str, format_: str, host: str) -> None:
    assert (format_, host) in [
        (client.endpoint.format, str(client.endpoint).split("//")[1].split("/")[0].rstrip("')"))
        for client in (open_client(model), open_client(provider=nexus.tokens.model.resolve(model).provider))
    ]
    assert open_client("gpt-5", format="openai").endpoint.format == "openai"


@pytest.mark.parametrize(
    ("model", "variable"),
    [("gpt-5", "OPENAI_API_KEY"), ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"), ("gemini-2.5-pro", "GEMINI_API_KEY")],
)
def test_missing_key_names_the_variable(model: str, variable: str) -> None:
    with pytest.raises(NoCredential, match=f"set {variable}, or pass api_key=") as caught:
        open_client(model)
    assert nexus.failure_of(caught.value).kind == "auth"


def test_credentials_are_asked_when_the_environment_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def credentials(variable: str) -> str | None:
        asked.append(variable)
        return "from-the-store" if variable == "GOOGLE_API_KEY" else None

    assert open_client("gemini-2.5-pro", credentials=credentials).endpoint.name == "gemini"
    assert asked == ["GEMINI_API_KEY", "GOOGLE_API_KEY"]
    monkeypatch.setenv("GEMINI_API_KEY", "from-the-environment")
    open_client("gemini-2.5-pro", credentials=credentials)
    assert len(asked) == 2


def url_of(server: ModelServer, format_: ReceivedFormat) -> str:
    return {"anthropic": server.anthropic_url, "gemini": server.gemini_url}.get(format_, server.openai_url)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.usefixtures("keys")
def test_other_server_gets_no_key_from_the_environment(format_: ReceivedFormat) -> None:
    with model_server(reply("Yes.")) as server:
        call(open_client(format=format_, base_url=url_of(server, format_)), context(format_))
        call(open_client(format=format_, base_url=url_of(server, format_), api_key="its-own"), context(format_))
    first, second = (str(request.headers) for request in server.requests)
    assert not [value for value in VARIABLES.values() if value in first + second]
    assert "its-own" in second


@pytest.mark.usefixtures("keys")
def test_provider_at_its_own_address_gets_its_key_only_over_https() -> None:
    own, plain = (open_client(base_url=f"{scheme}://api.deepseek.com") for scheme in ("https", "http"))
    assert own.endpoint.without_key(VARIABLES["DEEPSEEK_API_KEY"]) == "[secret: API key]"
    assert plain.endpoint.without_key(VARIABLES["DEEPSEEK_API_KEY"]) == VARIABLES["DEEPSEEK_API_KEY"]


def test_address_alone_is_chat_completions() -> None:
    with model_server(reply("Yes.")) as server:
        answer = reply_of(call(open_client(base_url=server.openai_url), context("openai")))
    assert (answer.result.messages[-1].text(), server.requests[0].format) == ("Yes.", "openai")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no model, provider or base_url"),
        ({"model": "our-own-model"}, "address of provider 'unknown' unknown"),
        ({"base_url": "localhost:8080"}, "is no address of a server"),
        ({"base_url": "http://h/v1", "format": "grpc"}, "format 'grpc' unknown: use openai, responses"),
    ],
)
def test_impossible_arguments_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        open_client(**arguments)


def test_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(BadSetting, match="did you mean 'retries'", check=has_code("unknown_argument")):
        open_client(base_url="http://h/v1", retires=RetryPolicy())  # type: ignore[call-arg]


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.models.endpoints.find_spec", lambda _: None)
    for format_, extra in (("openai", "openai"), ("anthropic", "anthropic"), ("gemini", "gemini")):
        with pytest.raises(PackageMissing, match=rf"pip install '\.\[{extra}\]'"):
            open_client(base_url="http://127.0.0.1:1", format=format_)  # type: ignore[arg-type]


def test_packages_are_imported_when_a_client_is_opened() -> None:
    program = (
        "import sys, nexus.models; print([m for m in ('openai', 'anthropic', 'google.genai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("keys")
def test_router_opens_one_client_for_each_provider() -> None:
    models = Models()
    clients = [models.client_for(context(format_)) for format_ in FORMATS]
    assert [client.endpoint.format for client in clients] == ["responses", "responses", "anthropic", "gemini"]  # type: ignore[attr-defined]
    assert clients[0] is clients[1] is models.client_for(context("openai"))
    asyncio.run(models.aclose())
    assert repr(models) == "Models(anthropic, gemini, openai)"


def test_router_falls_back_to_another_provider_with_one_object() -> None:
    async def converse(failing: ModelServer, working: ModelServer) -> str:
        policy = RetryPolicy(max_retries=0)
        models = Models(
            {
                "anthropic": open_client(format="anthropic", base_url=failing.anthropic_url, retries=policy),
                "gemini-2.5-flash": open_client(format="gemini", base_url=working.gemini_url),
            }
        )
        try:
            try:
                await models.complete(context("anthropic"))
            except nexus.errors.ModelCallFailed as error:
                assert error.kind == "model_error"
            return (await models.complete(context("gemini"))).result.messages[-1].text()
        finally:
            await models.aclose()

    with model_server(fail(529, "overloaded")) as failing, model_server(reply("Yes.")) as working:
        assert asyncio.run(converse(failing, working)) == "Yes."


def test_router_names_what_an_unknown_model_needs() -> None:
    with nexus.open(ledger=":memory:", model="our-own-model") as nx:
        ctx = nx.assemble("Hi")
    with pytest.raises(BadSetting, match="model 'our-own-model' has no client"):
        Models().client_for(ctx)


@pytest.mark.usefixtures("keys")
def test_route_is_not_part_of_the_name_that_the_provider_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    with nexus.open(ledger=":memory:", model="openrouter/anthropic/claude-sonnet-4.5") as nx:
        ctx = nx.assemble("Hi")
    with model_server(reply("Yes.")) as server:
        row = opening._Provider("openai", server.openai_url, ("OPENAI_API_KEY",))
        monkeypatch.setitem(opening._PROVIDERS, "openrouter", row)
        call(Models().client_for(ctx), ctx)  # type: ignore[arg-type]
    assert server.requests[0].model == "anthropic/claude-sonnet-4.5"
