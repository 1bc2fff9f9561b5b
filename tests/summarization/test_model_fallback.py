"""The ladder with a model behind a server: whatever the server does, a summary comes out, after a bounded number of calls."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from nexus.summarization.model_summarizer import ModelSummarizer
from nexus.summarization.summarizer import MOST_PARTS, TRIES, FallbackSummarizer
from nexus.testing.model_server import disconnect, fail, model_server, reply, respond
from nexus.tokens.counter import get_counter
from nexus.types.message import assistant, user
from summarization.conversations import PORTS, rows

GOOD = (
    "## Task\n> Build a small status server in Python.\n\n## Constraints\n- Never log passwords.\n- The port is 9090.\n\n"
    "## Files\n- changed src/server.py\n\n## Identifiers\n- OPS-4711, tests/test_server.py::test_port"
)
COUNTER = get_counter()
CALL_TOKENS = 3_000
says = partial(reply, model="little-2026-01-01", input_tokens=500, output_tokens=40)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(fail(500, "down"), id="500"),
        pytest.param(fail(400, "too long", code="context_length_exceeded"), id="too long"),
        pytest.param(disconnect(), id="hangs up"),
        pytest.param(respond(200, b"{"), id="broken JSON"),
        pytest.param(says(""), id="says nothing"),
        pytest.param(says("Sure! Here is your Dockerfile."), id="carries it out"),
        pytest.param(says("## Task\n" + "no " * 900), id="loops"),
    ],
)
def test_failing_server_leads_to_extractive_summary(step: Any) -> None:
    with model_server() as server:
        server.script(step)
        model = ModelSummarizer("little", base_url=server.openai_url, call_tokens=CALL_TOKENS, max_retries=0)
        written = FallbackSummarizer(COUNTER, model).summary(PORTS, "", 300)
    assert written.by == "extractive" and "Never log passwords" in written.text
    assert [one.method for one in written.attempts] == ["little"] * TRIES
    assert len(server.bodies) == TRIES


def test_server_summary_is_accepted_with_author_and_cost() -> None:
    with model_server() as server:
        server.script(says(GOOD))
        written = FallbackSummarizer(COUNTER, ModelSummarizer("little", base_url=server.openai_url)).summary(
            PORTS, "", 300
        )
    assert (written.by, written.model, written.provider) == ("little", "little-2026-01-01", "127.0.0.1")
    assert (written.call_tokens, written.attempts) == (540, ())


@pytest.mark.parametrize("thinking_tokens", [0, 2_000])
def test_long_conversation_is_sent_in_parts_within_call_tokens(thinking_tokens: int) -> None:
    talk = rows(*(make(f"Point {n}: " + f"matter {n} " * 60) for n in range(120) for make in (user, assistant)))
    with model_server() as server:
        server.script(says("## Task\n> Talk about the points."))
        bound = CALL_TOKENS + thinking_tokens
        model = ModelSummarizer(
            "little", base_url=server.openai_url, call_tokens=bound, thinking_tokens=thinking_tokens
        )
        written = FallbackSummarizer(COUNTER, model).summary(talk, "", 300)
    assert written.model and not [one for one in written.attempts if "TooLarge" in one.reason]
    assert 1 < len(server.bodies) <= MOST_PARTS * TRIES
    for body in server.bodies:
        assert COUNTER.count(body["messages"][0]["content"]) + 300 <= CALL_TOKENS
