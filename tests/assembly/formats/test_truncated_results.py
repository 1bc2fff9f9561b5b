"""The format of the profile `workspace`: whole results in their own turn, truncated ones in later turns (document 003)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.engine import Engine
from nexus.ledger.sqlite import SqliteLedger

LONG = "\n".join(f"line {number} of a file" for number in range(200))
DONE = nexus.AgentResult((nexus.assistant("Done."),))
PROFILE = {"profile": "workspace", "session": "s", "model": "gpt-4o"}


def opened(store: SqliteLedger | None = None) -> Engine:
    return nexus.open(None, ledger=store or SqliteLedger(), clock_ms=lambda: 1_768_314_600_000)


def asks(call_id: str) -> nexus.AgentResult:
    return nexus.AgentResult((nexus.assistant("", nexus.ToolCall(call_id, "read", "{}")),))


def run_turn(nx: Engine, name: str, results: list[str], *, ends: bool = True) -> Iterator[Any]:
    """Run a turn whose calls get these results, and yield the context of each call before it is recorded."""
    ctx = nx.assemble(f"Turn {name}.", **PROFILE)
    for number, text in enumerate(results):
        yield ctx
        nx.record(ctx, asks(f"{name}_{number}"))
        ctx = nx.assemble([nexus.tool(f"{name}_{number}", text)], **PROFILE)
    yield ctx
    if ends:
        nx.record(ctx, DONE)


def result_texts(ctx: Any) -> list[str]:
    return [item["content"] for item in ctx.to_openai()["messages"] if item["role"] == "tool"]


def test_results_are_whole_in_their_turn_and_truncated_in_the_next() -> None:
    nx = opened()
    *_, last = run_turn(nx, "1", [LONG, "short", LONG])
    assert result_texts(last) == [LONG, "short", LONG]
    first, last = run_turn(nx, "2", [LONG])
    old, short, other = result_texts(first)
    assert max(len(old), len(other)) <= 500 and short == "short"
    assert old.startswith("line 0 of a file\n") and old.endswith("line 199 of a file")
    assert "`nexus history --call 1_0`" in old, "the whole stays in the ledger"
    assert result_texts(last) == [old, short, other, LONG]
    stored = [row.message for entry in nx.ledger.entries("s") for row in entry.rows if row.message.role == "tool"]
    assert [message.parts[0].content[0].text for message in stored] == [LONG, "short", LONG, LONG]


def test_the_rewritten_history_is_declared_and_located() -> None:
    nx = opened()
    list(run_turn(nx, "0", ["short"]))
    *_, last = run_turn(nx, "1", ["short", LONG])
    first, again = run_turn(nx, "2", ["short"])
    report = first.accounting.prefix
    assert report.causes == ("results of earlier turns were truncated to 500 characters",)
    before, now = (ctx.to_openai()["messages"] for ctx in (last, first))
    same = next(at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new)
    assert report.at == f"message {same + 1} of the history" and now[same]["role"] == "tool"
    assert again.accounting.prefix.state == "extends"
    (next_turn,) = run_turn(nx, "3", [])
    assert next_turn.accounting.prefix.state == "extends", "no new result is longer than the limit"


def test_a_pinned_result_stays_whole() -> None:
    nx = opened()
    list(run_turn(nx, "1", [LONG]))
    (place,) = (row.ref for entry in nx.ledger.entries("s") for row in entry.rows if row.message.role == "tool")
    nx.ledger.pin("s", place)
    (ctx,) = run_turn(nx, "2", [])
    assert result_texts(ctx) == [LONG]


def test_an_interrupted_turns_results_are_truncated_when_the_next_turn_begins() -> None:
    nx = opened()
    list(run_turn(nx, "1", [LONG, LONG], ends=False))
    first, *_ = run_turn(nx, "2", [])
    assert all(len(text) <= 500 for text in result_texts(first))


def test_stored_turns_and_a_tool_loop_of_theirs_show_the_same() -> None:
    nx, other = opened(), opened()
    list(run_turn(nx, "1", [LONG]))
    (direct,) = run_turn(nx, "2", [])
    turn = other.begin("Turn 1.", **PROFILE)
    turn.record(asks("1_0"), turn.assemble())
    turn.result("1_0", LONG)
    second = turn.assemble()
    assert result_texts(second) == [LONG]
    turn.record(DONE, second)
    later = other.begin("Turn 2.", **PROFILE)
    assert later.assemble().to_openai()["messages"] == direct.to_openai()["messages"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(["short", LONG, "x" * 501, "x" * 500]), max_size=3), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_prompts_extend_or_declare_and_are_the_same_cold_and_replayed(turns: list[tuple[list[str], bool]]) -> None:
    store = SqliteLedger()
    nx = opened(store)
    before: list[Any] = []
    sent: dict[tuple[str, int], Any] = {}
    recorded = [(results, ends) for results, ends in turns if results or ends]
    for name, (results, ends) in enumerate(recorded):
        for number, ctx in enumerate(run_turn(nx, str(name), results, ends=ends), 1):
            now = ctx.to_openai()["messages"]
            if before:
                extends = now[: len(before)] == before
                assert ctx.accounting.prefix.state == ("extends" if extends else "broken")
            before = now
            nx.record(nx.assemble("Elsewhere.", profile="bare", session="other"), DONE)
            assert (
                nx.assemble("Again.", **PROFILE).to_openai() == opened(store).assemble("Again.", **PROFILE).to_openai()
            )
            sent[str(name), number] = ctx.to_openai()
        if not ends:
            before = []  # the last call got no answer
            sent.pop((str(name), number))
    for (name, number), body in sent.items():
        assert nx.replay("s", int(name) + 1, call=number).to_openai() == body


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro"])
def test_it_holds_for_every_provider(model: str) -> None:
    nx = opened()
    options = {**PROFILE, "model": model}
    ctx = nx.assemble("Read.", **options)
    nx.record(ctx, asks("a"))
    nx.record(nx.assemble([nexus.tool("a", LONG)], **options), DONE)
    ctx = nx.assemble("And?", **options)
    body = json.dumps(ctx.to_provider(ctx.accounting.model_info.provider_format))
    assert "line 199 of a file" in body and "line 100 of a file" not in body
