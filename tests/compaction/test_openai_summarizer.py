"""A summariser through the official `openai` package, against a server on loopback that plays what servers do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import openai
import pytest

from compaction.conversations import PORTS, call, result, rows
from nexus.compaction.check_summary import check_summary
from nexus.compaction.openai_summarizer import MOST_BYTES, OpenAISummarizer
from nexus.compaction.prompt import build_summarize_prompt
from nexus.compaction.summarizer import Summarizer, SummaryReply, SummaryRequest
from nexus.errors import BadReply, BadSetting, PackageMissing, SummarizerFailed, SummaryCallTooLarge
from nexus.testing.model_server import ModelRequest, ModelServer, disconnect, fail, hang, model_server, reply, respond
from nexus.tokens.counter import get_counter
from nexus.types.message import user

GOOD = (
    "## Task\n> Build a small status server in Python.\n\n## Constraints\n- Never log passwords.\n- The port is 9090."
)
REQUEST = SummaryRequest(tuple(PORTS), 300)
PROMPT = build_summarize_prompt([row.message for row in PORTS], most_tokens=300)
PROMPT_TOKENS = get_counter().count(PROMPT)
says = partial(reply, model="little-2026-01-01", input_tokens=500, output_tokens=40)


def completion(text: str) -> dict[str, Any]:
    """Return a chat completion as the server sends it."""
    return json.loads(says(text)(ModelRequest("openai", {}, b"", {})).body)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as served:
        yield served


def summarizer(server: ModelServer, **settings: Any) -> OpenAISummarizer:
    return OpenAISummarizer("little", **{"base_url": server.openai_url, "timeout_s": 5, **settings})


def failure(made: OpenAISummarizer, request: SummaryRequest = REQUEST) -> SummarizerFailed:
    with pytest.raises(SummarizerFailed) as caught:
        made.summarize(request)
    return caught.value


def test_reply_has_author_and_usage(server: ModelServer) -> None:
    server.script(says(GOOD))
    made: Summarizer = summarizer(server)
    assert made.name == "little"
    reply = made.summarize(REQUEST)
    assert reply == SummaryReply(GOOD, "little-2026-01-01", "127.0.0.1", 500, 40)


def test_request_is_one_user_message_with_limits_only(server: ModelServer) -> None:
    server.script(says(GOOD))
    summarizer(server, api_key="sk-mine").summarize(REQUEST)
    assert server.bodies == [
        {
            "model": "little",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 330,  # 300 base tokens, at the 1.1 that is assumed of an unknown model
            "temperature": 0.0,
        }
    ]
    assert server.requests[0].headers["authorization"] == "Bearer sk-mine"


def test_settings_are_sent(server: ModelServer) -> None:
    server.script(says(GOOD))
    made = summarizer(server, temperature=None, thinking_tokens=700, extra_body={"reasoning_effort": "low"})
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
    reply = summarizer(server).summarize(SummaryRequest(tuple(rows(user("a \udc00 b"))), 300, focus="c \ud800 d"))
    assert "\ufffd" in server.bodies[0]["messages"][0]["content"]
    assert reply.text == "## Task\n> \ufffd"


def test_environment_key_is_not_sent_to_other_hosts(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    server.script(says(GOOD))
    summarizer(server).summarize(REQUEST)
    assert server.requests[0].headers["authorization"] == "Bearer none"
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    OpenAISummarizer("little").summarize(REQUEST)
    assert server.requests[1].headers["authorization"] == "Bearer sk-of-the-environment", (
        "both stand in the environment"
    )


def test_missing_openai_key_fails_at_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    told = failure(OpenAISummarizer("gpt-4o"))
    assert "api_key" in str(told)
    assert isinstance(told.__cause__, openai.OpenAIError)


def test_custom_client_is_used_with_summarizer_limits(server: ModelServer) -> None:
    server.script(fail(500, "down"))
    client = openai.OpenAI(
        base_url=server.openai_url, api_key="sk-mine", max_retries=7, default_headers={"x-team": "blue"}
    )
    failure(OpenAISummarizer("little", client=client, max_retries=1))
    assert [request.headers["x-team"] for request in server.requests] == ["blue", "blue"]
    assert client.max_retries == 7


# What the model says. Whether it is a summary is the audit's verdict; what is no text at all is a failure.


@pytest.mark.parametrize(
    ("said", "faults"),
    [
        pytest.param(GOOD, (), id="good"),
        pytest.param("", ("empty", "heading missing"), id="empty"),
        pytest.param(None, ("empty", "heading missing"), id="null"),
        pytest.param(
            "Sure! Here is the Dockerfile:\nFROM python:3.12", ("heading missing", "a reply"), id="carries it out"
        ),
        pytest.param("I'm sorry, but I can't help with that.", ("heading missing", "a refusal"), id="refuses in words"),
        pytest.param(GOOD + "\n- more" * 2_000, ("not smaller", "looping"), id="inflates"),
        pytest.param("## Task\n" + "The plan was to use a cloud. " * 60, ("looping",), id="loops"),
        pytest.param(f"<think>\nThe user wants notes.\n</think>\n\n{GOOD}", (), id="thinks first"),
        pytest.param([{"type": "thinking", "thinking": []}, {"type": "text", "text": GOOD}], (), id="in parts"),
    ],
)
def test_model_text_is_returned_and_checked(server: ModelServer, said: Any, faults: tuple[str, ...]) -> None:
    server.script(says(said))
    text = summarizer(server).summarize(REQUEST).text
    assert tuple(check_summary(text, get_counter().count(text), PROMPT_TOKENS)) == faults
    assert len(server.bodies) == 1


def test_answer_stopped_for_length_is_returned_unchanged(server: ModelServer) -> None:
    server.script(says(GOOD[:60], stop="length"))
    assert summarizer(server).summarize(REQUEST).text == GOOD[:60]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        pytest.param(says("<think>The user wants", stop="length"), "ran out before the first word", id="only thought"),
        pytest.param(says(None, stop="content_filter"), "answer filtered", id="filtered"),
        pytest.param(says("## Task\n> Half", stop="content_filter"), "answer filtered", id="filtered midway"),
        pytest.param(says(None, refusal="I can't help."), "refused by the model: I can't help.", id="refused"),
        pytest.param(respond(200, {"choices": []}), "'choices' with a 'message' missing", id="no choices"),
        pytest.param(respond(200, {"error": {"message": "Upstream is down", "code": 502}}), "Upstream is down", id="error"),
        pytest.param(respond(200, [1]), "not a JSON object", id="a list"),
        pytest.param(respond(200, b'{"choices": [{"mess'), "is not JSON", id="broken JSON"),
        pytest.param(respond(200, b"<html>login</html>"), "is not JSON", id="a page"),
        pytest.param(respond(200, b""), "is not JSON", id="nothing"),
        pytest.param(respond(200, b" " * (MOST_BYTES + 1)), "larger than 8,000,000 bytes", id="endless"),
    ],
)  # fmt: skip
def test_answer_without_summary_fails_with_reason_after_one_call(server: ModelServer, step: Any, why: str) -> None:
    server.script(step)
    told = failure(summarizer(server, max_retries=3))
    assert why in str(told) and str(told).startswith("little: ")
    assert len(server.bodies) == 1


def test_missing_or_invalid_usage_counts_as_zero(server: ModelServer) -> None:
    body = completion(GOOD)
    server.script(
        respond(200, {**body, "usage": None}), respond(200, {**body, "usage": {"prompt_tokens": "many"}, "model": 7})
    )
    made = summarizer(server)
    for _ in range(2):
        reply = made.summarize(REQUEST)
        assert (reply.text, reply.input_tokens, reply.output_tokens) == (GOOD, 0, 0)
    assert reply.model == "little"


def test_server_model_name_is_kept_when_more_specific(server: ModelServer) -> None:
    server.script(respond(200, {**completion(GOOD), "model": "/models/little.gguf"}))
    assert summarizer(server).summarize(REQUEST).model == "little"


# What goes wrong on the way: one typed error, its cause, and a bounded number of calls.


def test_rate_limited_call_is_retried(server: ModelServer) -> None:
    server.script(fail(429, "Rate limit reached", code="rate_limit_exceeded"), says(GOOD))
    assert summarizer(server).summarize(REQUEST).text == GOOD
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("step", "cause", "calls"),
    [
        pytest.param(fail(429, "slow down"), openai.RateLimitError, 3, id="429"),
        pytest.param(fail(500, "oops"), openai.InternalServerError, 3, id="500"),
        pytest.param(fail(503, "loading model"), openai.InternalServerError, 3, id="503"),
        pytest.param(fail(401, "no such key"), openai.AuthenticationError, 1, id="401"),
        pytest.param(fail(404, "no such model"), openai.NotFoundError, 1, id="404"),
        pytest.param(fail(400, "bad request"), openai.BadRequestError, 1, id="400"),
        pytest.param(respond(502, b"<html>"), openai.InternalServerError, 3, id="a proxy's page"),
    ],
)
def test_failing_server_is_retried_max_retries_times(
    server: ModelServer, step: Any, cause: type[Exception], calls: int
) -> None:
    server.script(step)
    told = failure(summarizer(server, max_retries=2))
    assert type(told) is SummarizerFailed
    assert isinstance(told.__cause__, cause)
    assert len(server.bodies) == calls


def test_dropped_connection_fails(server: ModelServer) -> None:
    server.script(disconnect())
    assert isinstance(failure(summarizer(server, max_retries=1)).__cause__, openai.APIConnectionError)
    assert len(server.bodies) == 2
    server.script(disconnect(after=b'{"choices": [{"message": {"content": "## Task'))
    assert failure(summarizer(server, max_retries=1)).__cause__ is not None
    assert len(server.bodies) == 3, "what has begun is not asked for again"


def test_unreachable_server_fails() -> None:
    with model_server() as gone:
        pass
    assert isinstance(failure(summarizer(gone, max_retries=0)).__cause__, openai.APIConnectionError)


def test_unresponsive_server_times_out(server: ModelServer) -> None:
    server.script(hang())
    assert isinstance(failure(summarizer(server, timeout_s=0.2, max_retries=1)).__cause__, openai.APITimeoutError)
    for _ in range(6_000):  # a busy server reads the second request after it was given up
        if len(server.bodies) < 2:
            time.sleep(0.01)
    assert len(server.bodies) == 2


def test_slow_answer_is_abandoned_at_timeout(server: ModelServer) -> None:
    server.script(says(GOOD, byte_interval_s=0.2))
    assert "not complete after 1.5 seconds" in str(failure(summarizer(server, timeout_s=1.5)))


@pytest.mark.parametrize(
    ("step", "limit"),
    [
        pytest.param(
            fail(
                400,
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
                code="context_length_exceeded",
            ),
            8192,
            id="OpenAI",
        ),
        pytest.param(
            fail(
                400,
                "request (9031 tokens) exceeds the available context size (4096 tokens), try increasing it",
                type="exceed_context_size_error",
            ),
            4096,
            id="llama.cpp",
        ),
        pytest.param(respond(413, b"too large"), 0, id="a proxy"),
    ],
)
def test_overflow_error_reports_limit_after_one_call(server: ModelServer, step: Any, limit: int) -> None:
    server.script(step)
    told = failure(summarizer(server, max_retries=3))
    assert isinstance(told, SummaryCallTooLarge)
    assert told.limit_tokens == limit
    assert len(server.bodies) == 1


def test_key_in_error_text_is_redacted(server: ModelServer) -> None:
    server.script(fail(401, "Incorrect API key provided: sk-proj-abcdefghijklmnopqrstuvwx1234."))
    told = failure(summarizer(server))
    assert "Incorrect API key provided" in str(told) and "abcdefghij" not in str(told)


# Fields that servers refuse.

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
    bounds = [{name: n for name, n in body.items() if name.startswith("max_")} for body in server.bodies]
    assert bounds == [{"max_tokens": 330}, {"max_completion_tokens": 330}, {"max_completion_tokens": 330}], (
        "what was learned holds for later calls"
    )


def test_rejected_temperature_is_omitted(server: ModelServer) -> None:
    server.script(NO_MAX_TOKENS, NO_TEMPERATURE, says(GOOD))
    made = summarizer(server)
    assert made.summarize(REQUEST).text == GOOD
    made.summarize(REQUEST)
    assert ["temperature" in body for body in server.bodies] == [True, True, False, False]


@pytest.mark.parametrize("refusal", [NO_MAX_TOKENS, NO_TEMPERATURE, FORBIDDEN])
def test_at_most_three_request_formats_are_tried(server: ModelServer, refusal: Any) -> None:
    server.script(refusal)
    failure(summarizer(server, max_retries=5))
    assert len(server.bodies) <= 3
    server.requests.clear()
    server.script(NO_MAX_TOKENS, NO_TEMPERATURE, fail(400, "Unknown parameter: max_completion_tokens, temperature"))
    failure(summarizer(server, max_retries=5))
    assert len(server.bodies) == 3


def test_openai_hosts_get_max_completion_tokens_first(server: ModelServer) -> None:
    server.script(says(GOOD))
    through = openai.DefaultHttpxClient(proxy=server.anthropic_url)
    client = openai.OpenAI(api_key="sk-mine", base_url="http://api.openai.com/v1", http_client=through)
    assert OpenAISummarizer("gpt-4o", client=client).summarize(REQUEST).provider == "openai"
    through.close()
    (body,) = server.bodies
    assert server.requests[0].headers["host"] == "api.openai.com"
    assert (body["max_completion_tokens"], "max_tokens" in body) == (300, False)


# The last guard: what is larger than one call may be is not sent.


def test_oversized_request_is_rejected_before_sending(server: ModelServer) -> None:
    server.script(says(GOOD))
    needed = PROMPT_TOKENS + 32 + 300
    assert summarizer(server, call_tokens=needed).summarize(REQUEST).text == GOOD
    told = failure(summarizer(server, call_tokens=needed - 1))
    assert isinstance(told, SummaryCallTooLarge)
    assert (told.needed_tokens, told.limit_tokens) == (needed, needed - 1)
    assert isinstance(failure(summarizer(server, call_tokens=needed, thinking_tokens=1)), SummaryCallTooLarge)
    assert len(server.bodies) == 1


def test_call_tokens_exclude_thinking_tokens() -> None:
    made = OpenAISummarizer("little", call_tokens=5_000, thinking_tokens=2_000)
    assert made.call_tokens == 3_000
    assert OpenAISummarizer("little", call_tokens=0, thinking_tokens=2_000).call_tokens == 0, "no bound stays none"


def test_huge_conversation_is_split(server: ModelServer) -> None:
    server.script(says(GOOD))
    huge = SummaryRequest(tuple(rows(*(user(f"line {n} " + "word " * 2_000) for n in range(40)))), 300)
    told = failure(summarizer(server), huge)
    assert isinstance(told, SummaryCallTooLarge) and told.limit_tokens == 8_000
    assert server.bodies == []
    assert summarizer(server, call_tokens=0).summarize(huge).text == GOOD, "without a bound it is the caller's matter"


def test_call_tokens_default_to_window_up_to_32_000() -> None:
    sizes = {model: OpenAISummarizer(model).call_tokens for model in ("gpt-4o", "gpt-4", "a-model-of-ones-own")}
    assert sizes == {"gpt-4o": 32_000, "gpt-4": 8_192, "a-model-of-ones-own": 8_000}


def test_zero_token_summary_is_not_requested(server: ModelServer) -> None:
    server.script(says(GOOD))
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
        {"extra_body": {"max_tokens": 5}},
        {"client": openai.OpenAI(api_key="k"), "base_url": "http://127.0.0.1/v1"},
        {"client": openai.AsyncOpenAI(api_key="k")},
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        OpenAISummarizer(**{"model": "little", **settings})


def test_missing_openai_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(PackageMissing, match=r"pip install 'nexus-context-engine\[openai\]'") as caught:
        OpenAISummarizer("gpt-4o")
    assert isinstance(caught.value, ImportError)


def test_openai_is_imported_lazily() -> None:
    code = (
        "import sys\nfrom nexus.compaction.openai_summarizer import OpenAISummarizer\n"
        "OpenAISummarizer('gpt-4o')\nprint('openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_unreadable_answer_keeps_its_cause(server: ModelServer) -> None:
    server.script(respond(200, b"{"))
    assert isinstance(failure(summarizer(server)).__cause__, BadReply)
