"""A summarizer through `nexus.models`, against a server on loopback that plays four providers and their failures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from models.calls import FORMATS, address
from nexus.errors import BadSetting, ModelCallFailed, NoCredential, SummarizerFailed
from nexus.models import ModelReply
from nexus.summarization.check_summary import check_summary
from nexus.summarization.model_summarizer import ModelSummarizer
from nexus.summarization.prompt import build_summarize_prompt
from nexus.summarization.summarizer import Summarizer, SummaryReply, SummaryRequest
from nexus.testing.model_server import (
    ModelServer,
    disconnect,
    fail,
    hang,
    model_server,
    overflow,
    reply,
    respond,
)
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.counter import get_counter
from nexus.types.message import user
from summarization.conversations import PORTS, call, result, rows

GOOD = (
    "## Task\n> Build a small status server in Python.\n\n## Constraints\n- Never log passwords.\n- The port is 9090."
)
REQUEST = SummaryRequest(tuple(PORTS), 300)
PROMPT = build_summarize_prompt([row.message for row in PORTS], most_tokens=300)
PROMPT_TOKENS = get_counter().count(PROMPT)
says = partial(reply, model="little-2026-01-01", input_tokens=500, output_tokens=40)
every_format = pytest.mark.parametrize("format_", FORMATS)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as served:
        yield served


def summarizer(server: ModelServer, **settings: Any) -> ModelSummarizer:
    return ModelSummarizer("little", **{"base_url": server.openai_url, "timeout_s": 5, **settings})


def summarizer_of(server: ModelServer, format_: ReceivedFormat, **settings: Any) -> ModelSummarizer:
    return ModelSummarizer(FORMATS[format_], base_url=address(server, format_), format=format_, **settings)


def failure(made: ModelSummarizer, request: SummaryRequest = REQUEST) -> SummarizerFailed:
    with pytest.raises(SummarizerFailed) as caught:
        made.summarize(request)
    return caught.value


def test_reply_has_author_and_usage(server: ModelServer) -> None:
    server.script(says(GOOD))
    made: Summarizer = summarizer(server)
    assert made.name == "little"
    assert made.summarize(REQUEST) == SummaryReply(GOOD, "little-2026-01-01", "127.0.0.1", 500, 40)


# Four formats.


@every_format
def test_summary_is_written_in_every_format(server: ModelServer, format_: ReceivedFormat) -> None:
    server.script(reply(GOOD, input_tokens=500, output_tokens=40))
    written = summarizer_of(server, format_, api_key="k-1").summarize(REQUEST)
    assert written == SummaryReply(GOOD, FORMATS[format_], "127.0.0.1", 500, 40)
    (request,) = server.requests
    assert (request.format, request.is_stream) == (format_, True)
    assert json.dumps(PROMPT)[1:-1] in json.dumps(request.body)
    assert "k-1" in str(request.headers)


@every_format
def test_model_is_told_not_to_think(server: ModelServer, format_: ReceivedFormat) -> None:
    server.script(reply(GOOD))
    models = {"responses": "gpt-5", "openai": "gpt-5", "anthropic": "claude-sonnet-5-5", "gemini": "gemini-2.5-flash"}
    made = ModelSummarizer(models[format_], base_url=address(server, format_), format=format_)
    assert made.summarize(REQUEST).text == GOOD
    sent = json.dumps(server.bodies[0])
    off = {
        "responses": '"effort": "minimal"',
        "openai": '"reasoning_effort": "minimal"',
        "anthropic": '"thinking": {"type": "between_tools"}',
        "gemini": '"thinking_budget": 0',
    }
    assert off[format_] in sent
    assert "temperature" not in sent or format_ == "gemini"


def test_summary_prompt_is_not_written_to_anthropics_cache(server: ModelServer) -> None:
    server.script(reply(GOOD))
    summarizer_of(server, "anthropic").summarize(REQUEST)
    assert "cache_control" not in json.dumps(server.bodies[0])


@every_format
def test_overflow_in_every_format_is_a_call_too_large(server: ModelServer, format_: ReceivedFormat) -> None:
    server.script(overflow(4_096, 9_031))
    told = failure(summarizer_of(server, format_, max_retries=3))
    assert isinstance(told, SummarizerFailed)
    assert told.limit_tokens == (0 if format_ == "responses" else 4_096), "the Responses API does not report it"
    assert len(server.bodies) == 1


@every_format
def test_slow_answer_in_every_format_is_abandoned_and_its_connection_closed(
    server: ModelServer, format_: ReceivedFormat
) -> None:
    server.script(reply("word " * 2_000, event_interval_s=0.05))
    request = SummaryRequest(tuple(PORTS), 300)

    def abandon() -> None:
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.3)
        request.abandoned.set()

    threading.Thread(target=abandon, daemon=True).start()
    assert "abandoned" in str(failure(summarizer_of(server, format_), request))
    for _ in range(500):
        if server.abandoned:
            return
        time.sleep(0.01)
    raise AssertionError("the connection is still open")


# What is sent.


def test_request_is_one_user_message_with_limits_only(server: ModelServer) -> None:
    server.script(says(GOOD))
    summarizer(server, api_key="sk-mine").summarize(REQUEST)
    assert (
        server.bodies
        == [
            {
                "model": "little",
                "messages": [{"role": "user", "content": PROMPT}],
                "max_tokens": 2_530,  # 300 base tokens and 2,000 for thinking, at the 1.1 that is assumed of an unknown model
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ]
    )
    assert server.requests[0].headers["authorization"] == "Bearer sk-mine"


def test_settings_are_sent(server: ModelServer) -> None:
    server.script(says(GOOD))
    made = summarizer(server, temperature=None, thinking_tokens=700, extra={"reasoning_effort": "low"})
    made.summarize(REQUEST)
    (body,) = server.bodies
    assert (body["max_tokens"], body["reasoning_effort"]) == (1100, "low")
    assert "temperature" not in body


def test_focus_previous_summary_and_stricter_wording_are_sent(server: ModelServer) -> None:
    server.script(says(GOOD))
    request = SummaryRequest(
        tuple(PORTS), 300, previous=GOOD, focus="the port", stricter=True, refused_because="it loops"
    )
    summarizer(server).summarize(request)
    asked = server.bodies[0]["messages"][0]["content"]
    assert "which the user named: the port" in asked
    assert "| - Never log passwords." in asked
    assert asked.startswith("Your last answer could not be used (it loops).")


SECRETS = (
    "sk-proj-abcdefghijklmnopqrstuvwx1234",
    "sk-ant-api03-abcdefghijklmnop12345678",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "hunter2-and-more",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_sent(server: ModelServer, secret: str) -> None:
    server.script(says(GOOD))
    told = f"password: '{secret}'" if secret == "hunter2-and-more" else f"use {secret} for it"
    messages = rows(user(told), call(1, "bash", command=f"echo {told}"), result(1, f"{told}\n" * 3))
    summarizer(server).summarize(
        SummaryRequest(tuple(messages), 300, previous=told, focus=told, stricter=True, refused_because=told)
    )
    sent = server.requests[0].data
    assert secret not in sent.decode() and secret not in json.loads(sent)["messages"][0]["content"]
    assert sent.count(b"[secret: ") >= 6


def test_lone_surrogate_does_not_fail_the_request(server: ModelServer) -> None:
    server.script(says("## Task\n> \ud83d"))
    written = summarizer(server).summarize(SummaryRequest(tuple(rows(user("a \udc00 b"))), 300, focus="c \ud800 d"))
    assert "\ufffd" in server.bodies[0]["messages"][0]["content"]
    assert written.text == "## Task\n> \ufffd"


def test_environment_key_is_not_sent_to_other_hosts(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    server.script(says(GOOD))
    summarizer(server).summarize(REQUEST)
    assert server.requests[0].headers["authorization"] == "Bearer none"


def test_missing_key_fails_at_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = failure(ModelSummarizer("gpt-4o"))
    assert "OPENAI_API_KEY" in str(told)
    assert isinstance(told.__cause__, NoCredential)


def test_key_of_the_credentials_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    names: list[str] = []
    failure(ModelSummarizer("gpt-4o", credentials=lambda name: names.append(name) or None))
    assert names == ["OPENAI_API_KEY"]


def test_client_of_the_caller_is_used_and_closed() -> None:
    class Client:
        """Answers without a server."""

        def __init__(self) -> None:
            self.closed = 0

        async def complete(self, ctx: Any) -> ModelReply:
            assert ctx.to_openai()["messages"] == [{"role": "user", "content": PROMPT}]
            raise ModelCallFailed("no reply", "connection")

        async def aclose(self) -> None:
            self.closed += 1

    client = Client()
    assert "no reply" in str(failure(ModelSummarizer("gpt-4o", connect=lambda: client)))
    assert client.closed == 1


def test_summarizer_runs_in_threads_beside_an_event_loop(server: ModelServer) -> None:
    server.script(says(GOOD))
    made = summarizer(server)

    async def main() -> list[SummaryReply]:
        return await asyncio.gather(*(asyncio.to_thread(made.summarize, REQUEST) for _ in range(4)))

    assert {one.text for one in asyncio.run(main())} == {GOOD}


# What the model says. Whether it is a summary is the verdict of `check_summary`; what is no text at all is a failure.


@pytest.mark.parametrize(
    ("said", "faults"),
    [
        pytest.param(GOOD, (), id="good"),
        pytest.param(
            "Sure! Here is the Dockerfile:\nFROM python:3.12", ("heading missing", "a reply"), id="carries it out"
        ),
        pytest.param("I'm sorry, but I can't help with that.", ("heading missing", "a refusal"), id="refuses in words"),
        pytest.param(GOOD + "\n- more" * 2_000, ("not smaller", "looping"), id="inflates"),
        pytest.param("## Task\n" + "The plan was to use a cloud. " * 60, ("looping",), id="loops"),
        pytest.param(f"<think>\nThe user wants notes.\n</think>\n\n{GOOD}", (), id="thinks first"),
    ],
)
def test_model_text_is_returned_and_checked(server: ModelServer, said: Any, faults: tuple[str, ...]) -> None:
    server.script(says(said))
    text = summarizer(server).summarize(REQUEST).text
    assert tuple(check_summary(text, get_counter().count(text), PROMPT_TOKENS)) == faults
    assert len(server.bodies) == 1


def test_thinking_is_no_part_of_the_summary(server: ModelServer) -> None:
    server.script(reply(GOOD, thinking="The user wants notes."))
    for format_ in FORMATS:
        assert summarizer_of(server, format_).summarize(REQUEST).text == GOOD


def test_answer_stopped_for_length_is_returned_unchanged(server: ModelServer) -> None:
    server.script(says(GOOD[:60], stop="length"))
    assert summarizer(server).summarize(REQUEST).text == GOOD[:60]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        pytest.param(says("<think>The user wants", stop="length"), "ran out before the first word", id="only thought"),
        pytest.param(says("## Task\n> Half", stop="content_filter"), "withheld", id="filtered midway"),
        pytest.param(fail(400, "bad request"), "bad request", id="400"),
        pytest.param(fail(401, "no such key"), "no such key", id="401"),
        pytest.param(fail(404, "no such model"), "no such model", id="404"),
    ],
)
def test_answer_without_summary_fails_with_reason_after_one_call(server: ModelServer, step: Any, why: str) -> None:
    server.script(step)
    told = failure(summarizer(server, max_retries=3))
    assert why in str(told) and str(told).startswith("little: ")
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(fail(429, "slow down"), id="429"),
        pytest.param(fail(503, "loading model"), id="503"),
        pytest.param(respond(502, b"<html>"), id="a proxy's page"),
        pytest.param(disconnect(), id="hangs up"),
        pytest.param(disconnect(after=b"data: {"), id="hangs up midway"),
        pytest.param(respond(200, b"data: {\n\n"), id="broken stream"),
    ],
)
def test_failing_server_is_retried_max_retries_times(server: ModelServer, step: Any) -> None:
    server.script(step)
    told = failure(summarizer(server, max_retries=1))
    assert type(told) is SummarizerFailed
    assert isinstance(told.__cause__, ModelCallFailed)
    assert len(server.bodies) == 2


def test_rate_limited_call_is_retried(server: ModelServer) -> None:
    server.script(fail(429, "Rate limit reached", code="rate_limit_exceeded"), says(GOOD))
    assert summarizer(server).summarize(REQUEST).text == GOOD
    assert len(server.bodies) == 2


def test_server_model_name_is_kept_when_more_specific(server: ModelServer) -> None:
    server.script(reply(GOOD, model="/models/little.gguf"))
    assert summarizer(server).summarize(REQUEST).model == "little"


@pytest.mark.parametrize("step", [hang(), says(GOOD * 9, byte_interval_s=0.2)], ids=["hangs", "trickles"])
def test_slow_answer_is_abandoned_at_timeout(server: ModelServer, step: Any) -> None:
    server.script(step)
    assert "no answer in time" in str(failure(summarizer(server, timeout_s=0.5, max_retries=0)))


def test_key_in_error_text_is_redacted(server: ModelServer) -> None:
    server.script(fail(401, "Incorrect API key provided: sk-proj-abcdefghijklmnopqrstuvwx1234."))
    told = failure(summarizer(server))
    assert "Incorrect API key provided" in str(told) and "abcdefghij" not in str(told)


# Settings that servers reject.

NO_MAX_TOKENS = fail(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
NO_TEMPERATURE = fail(
    400,
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
    param="temperature",
    code="unsupported_value",
)
FORBIDDEN = respond(
    422,
    {
        "object": "error",
        "message": {
            "detail": [{"type": "extra_forbidden", "loc": ["body", "max_tokens"], "msg": "Extra inputs are not permitted"}]
        },
    },
)  # fmt: skip


@pytest.mark.parametrize("refusal", [pytest.param(NO_MAX_TOKENS, id="OpenAI"), pytest.param(FORBIDDEN, id="a 422")])
def test_rejected_limit_field_is_exchanged(server: ModelServer, refusal: Any) -> None:
    server.script(refusal, says(GOOD))
    made = summarizer(server)
    assert made.summarize(REQUEST).text == GOOD
    made.summarize(REQUEST)
    limits = [{name: n for name, n in body.items() if name.startswith("max_")} for body in server.bodies]
    assert limits == [{"max_tokens": 2530}, {"max_completion_tokens": 2530}, {"max_completion_tokens": 2530}], (
        "what was learned applies to later calls"
    )


@every_format
def test_rejected_temperature_is_omitted(server: ModelServer, format_: ReceivedFormat) -> None:
    server.script(NO_TEMPERATURE, reply(GOOD))
    made = ModelSummarizer("little", base_url=address(server, format_), format=format_)
    assert made.summarize(REQUEST).text == GOOD
    made.summarize(REQUEST)
    assert ["temperature" in json.dumps(body) for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize("refusal", [NO_MAX_TOKENS, NO_TEMPERATURE, FORBIDDEN])
def test_at_most_three_request_formats_are_tried(server: ModelServer, refusal: Any) -> None:
    server.script(refusal)
    failure(summarizer(server, max_retries=5))
    assert len(server.bodies) <= 3
    server.requests.clear()
    server.script(NO_MAX_TOKENS, NO_TEMPERATURE, fail(400, "Unknown parameter: max_completion_tokens, temperature"))
    failure(summarizer(server, max_retries=5))
    assert len(server.bodies) == 3


# The last guard: what is larger than one call may be is not sent.


def test_oversized_request_is_rejected_before_sending(server: ModelServer) -> None:
    server.script(says(GOOD))
    needed = PROMPT_TOKENS + 32 + 300
    bound = partial(summarizer, server, thinking_tokens=0)
    assert bound(call_tokens=needed).summarize(REQUEST).text == GOOD
    told = failure(bound(call_tokens=needed - 1))
    assert isinstance(told, SummarizerFailed)
    assert (told.needed_tokens, told.limit_tokens) == (needed, needed - 1)
    assert isinstance(failure(summarizer(server, call_tokens=needed, thinking_tokens=1)), SummarizerFailed)
    assert len(server.bodies) == 1


def test_call_tokens_exclude_thinking_tokens() -> None:
    made = ModelSummarizer("little", call_tokens=5_000, thinking_tokens=2_000)
    assert made.call_tokens == 3_000
    assert ModelSummarizer("little", call_tokens=0, thinking_tokens=2_000).call_tokens == 0, "no limit stays none"


def test_call_tokens_default_to_window_up_to_32_000() -> None:
    models = ("gpt-4o", "gpt-4", "gpt-5", "a-model-of-ones-own")
    sizes = {model: ModelSummarizer(model).call_tokens for model in models}
    assert sizes == {"gpt-4o": 32_000, "gpt-4": 8_192, "gpt-5": 29_952, "a-model-of-ones-own": 6_000}
    assert ModelSummarizer("own", models={"own": {"context_tokens": 4_096}}).call_tokens <= 4_096


def test_zero_token_summary_is_not_requested(server: ModelServer) -> None:
    failure(summarizer(server), SummaryRequest(tuple(PORTS), 0))
    assert server.bodies == []


@pytest.mark.parametrize(
    "settings",
    [
        {"model": " "},
        {"call_tokens": -1},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"max_retries": -1},
        {"thinking_tokens": -5},
        {"thinking_tokens": 900, "call_tokens": 900},
        {"extra": {"max_tokens": 5}},
        {"connect": lambda: None, "base_url": "http://127.0.0.1/v1"},
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        ModelSummarizer(**{"model": "little", **settings})


def test_missing_package_is_named_at_the_first_call() -> None:
    code = (
        "import sys\nsys.modules['openai'] = None\n"
        "from nexus.summarization.model_summarizer import ModelSummarizer\n"
        "from nexus.summarization.summarizer import SummaryRequest\n"
        "try: ModelSummarizer('gpt-4o', base_url='http://127.0.0.1:9/v1').summarize(SummaryRequest((), 9))\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install '.[openai]'" in done.stdout


def test_package_is_imported_lazily() -> None:
    code = (
        "import sys\nfrom nexus.summarization.model_summarizer import ModelSummarizer\n"
        "ModelSummarizer('gpt-4o')\nprint('openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
