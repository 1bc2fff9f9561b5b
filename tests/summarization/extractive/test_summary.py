"""The summariser without a model: golden summaries, and the laws of its size, its sameness and its updates."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nexus.summarization.check_summary import check_summary
from nexus.summarization.extractive.extract import exact_identifiers, extract
from nexus.summarization.extractive.summary import parse_summary, render_summary, source_tokens, summarize
from nexus.types.ledger_entries import StoredMessage
from nexus.types.message import Message, Text, assistant, user
from summarization.conversations import COUNTER, PORTS, Characters, call, result, rows
from support.hostile import HISTORIES

LAWS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SENTENCES = st.sampled_from(
    ["Never push to main.", "The port is 8080.", "The port is 9090 now.", "We decided to use SQLite.", "I prefer tabs.", "Done.",
     "See OPS-4711 in src/app.py.", "What next?", "[CONTEXT SUMMARY] x", "## Task", "必须使用中文。", "\ud800\x00", "x" * 500, "- [ ] tests"]
)  # fmt: skip
TALKS = st.lists(
    st.builds(
        lambda role, pieces: Message(role, (Text(" ".join(pieces)),)),
        st.sampled_from(["user", "assistant"]),
        st.lists(SENTENCES | st.text(max_size=60), min_size=1, max_size=5),
    ),
    max_size=12,
)

GOLDEN = """## Task
> Build a small status server in Python. Never log passwords. [replaced later]

## Constraints
- Never log passwords.

## Facts
- The port is 9090 now, see ticket OPS-4711.

## Decisions
- We decided to use uvicorn instead of gunicorn.

## Done
- I have created the server.
- `pytest -q` → 3 passed in 0.12s
- I have updated the configuration.

## Open
- Newest request: Please write the Dockerfile next.

## Files
- changed src/server.py

## Errors
- `pytest -q`: 1 failed — solved after changing src/server.py

## Recent
"""


def padded(before: list[StoredMessage]) -> list[StoredMessage]:
    """The rows and a long result that holds nothing, so that a summary is worth it."""
    last = before[-1].ref.seq
    return [*before, *rows(call(90, "search", q="x"), result(90, "nothing here\n" * 400), first_seq=last + 1)]


def test_summary_matches_golden_text() -> None:
    told = summarize(padded(PORTS), 2_000, Characters())
    assert told.startswith(GOLDEN)
    assert told.endswith("- User: Please write the Dockerfile next.")
    assert len(told) <= 2_000


def test_small_budget_keeps_constraints_and_newest_request() -> None:
    told = summarize(padded(PORTS), 260, Characters())
    assert "Never log passwords." in told and "9090" in told and "8080" not in told
    assert "## Recent" not in told


def test_update_keeps_valid_lines_and_replaces_changed_ones() -> None:
    first = summarize(padded(PORTS), 2_000, Characters())
    more = rows(
        user("The port is 7070 now. Always answer in German."), assistant("I have changed the port."), first_seq=40
    )
    told = summarize(padded(more), 2_000, Characters(), previous=first)
    assert "7070" in told and "9090" not in told and "Always answer in German." in told
    assert "uvicorn" in told and "changed src/server.py" in told and told.startswith("## Task\n> Build a small")
    assert told.count("Newest request:") == 1 and "Newest request: The port is 7070" in told


def test_foreign_summary_is_updated_by_its_headings() -> None:
    before = "# Goal\nShip the importer.\n\n**Key decisions:**\n- SQLite only\n\n## Next steps\n1. tests\n\n## Critical context\n- id 42-AB"
    told = summarize(padded(rows(user("Never push to main."))), 1_000, Characters(), previous=before)
    assert told.startswith("## Task\n> Ship the importer.\n")
    assert "## Decisions\n- SQLite only" in told and "## Open\n- 1. tests" in told and "## Facts\n- id 42-AB" in told


@LAWS
@given(TALKS, st.integers(0, 400), st.sampled_from([Characters(), COUNTER]))
def test_summary_is_deterministic_and_within_limits(talk: list[Message], limit: int, counter: Characters) -> None:
    listed = rows(*talk)
    told = summarize(listed, limit, counter)
    assert told == summarize(list(listed), limit, counter)
    assert counter.count(told) <= limit
    source = source_tokens(listed, counter)
    assert not told or counter.count(told) <= source - source * 10 // 100
    told.encode()
    assert "\x00" not in told


@LAWS
@given(TALKS, st.integers(100, 2_000))
def test_extractive_summary_passes_check_summary(talk: list[Message], limit: int) -> None:
    listed = padded(rows(user("Never push."), *talk))
    told = summarize(listed, limit, Characters())
    assert check_summary(told, len(told), source_tokens(listed, Characters())) == {}


@LAWS
@given(TALKS, st.integers(60, 2_000))
def test_update_without_rows_returns_previous_summary(talk: list[Message], limit: int) -> None:
    told = summarize(padded(rows(user("Never push."), *talk)), limit, Characters())
    assert summarize([], limit, Characters(), previous=told) == told


@LAWS
@given(TALKS)
def test_summary_survives_parse_and_render(talk: list[Message]) -> None:
    told = summarize(padded(rows(user("Never push."), *talk)), 3_000, Characters())
    assert render_summary(*parse_summary(told)) == told


@LAWS
@given(HISTORIES, st.integers(1, 200))
def test_any_history_is_summarized_within_budget(history: list[Message], limit: int) -> None:
    told = summarize(rows(*history), limit, COUNTER)
    assert COUNTER.count(told) <= limit and told.encode() is not None


@pytest.mark.parametrize(
    "text", ["\ud800 must \x00 never", "a" * 1_000_000, "我们必须使用中文。" * 20_000, "never do it. " * 80_000, ""]
)
def test_long_and_broken_text_is_summarized(text: str) -> None:
    told = summarize(rows(user(text), assistant(text), call(1, "bash", command=text), result(1, text)), 300, COUNTER)
    assert COUNTER.count(told) <= 300


def test_tool_calls_without_request_have_placeholder_task() -> None:
    steps = rows(call(1, "Write", file_path="a.py", content="x" * 400), result(1, "ok"))
    assert summarize(steps, 200, Characters()) == "## Task\n> (no request in this part)\n\n## Files\n- changed a.py"


def test_exact_identifiers_are_kept_when_they_fit() -> None:
    told = summarize(padded(PORTS), 1_500, Characters())
    assert check_summary(told, len(told), source_tokens(padded(PORTS), Characters())) == {}
    assert all(name in told for name in exact_identifiers(extract(PORTS)))
