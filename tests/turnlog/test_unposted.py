"""Texts that were not posted: with the posting tools offered, nobody received them (document 001)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.ledger.sqlite import SqliteLedger
from nexus.tools import ToolRegistry
from nexus.turnlog import write
from nexus.turnlog.context_log import context_entries
from nexus.turnlog.entries import entry_text
from nexus.turnlog.live import TurnLog
from nexus.turnlog.reader import log_text, violations
from nexus.turnlog.threads import thread_tools
from nexus.turnlog.write import log_entries, log_texts, strict_entries
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message, Part, Text, Thinking, ToolCall
from nexus.types.stream_events import StreamEnd
from support.hostile import TEXTS
from turnlog.test_turnlog_laws import imported

LOOK = ToolCall("c", "look", '{"reasoning": "To see"}')
REPLIES: st.SearchStrategy[tuple[Part, ...]] = st.one_of(
    st.tuples(TEXTS.map(Text)),
    st.tuples(TEXTS.map(Thinking), TEXTS.map(Text)),
    st.tuples(TEXTS.map(Text), TEXTS.map(Thinking), TEXTS.map(Text)),
    st.tuples(TEXTS.map(Text), st.just(LOOK)),
)


def look() -> str:
    """Look."""
    return "seen"


def offered(nx: Engine, *, posting: bool) -> ToolRegistry:
    registry = ToolRegistry([look])
    if posting:
        registry.include(thread_tools(nx, "main", lambda _: None))
    return registry


def contents(text: str) -> list[Any]:
    return [entry["content"] for entry in json.loads(text) if entry["role"] == "assistant"]


def run_turns(nx: Engine, calls: list[tuple[tuple[Part, ...], bool]]) -> list[bool]:
    """Record a reply per call, with results of its tools as the next event; return which calls were final texts."""
    event: Any = "Hello?"
    for parts, posting in calls:
        ctx = nx.assemble(event, session="main", tools=offered(nx, posting=posting))
        reply = Message("assistant", parts)
        nx.record(ctx, nexus.AgentResult((reply,)))
        event = [nexus.tool(call.id, "seen") for call in reply.calls()] or "Go on."
    return [not any(isinstance(part, ToolCall) for part in parts) for parts, _ in calls]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(REPLIES, st.booleans()), min_size=1, max_size=4))
def test_log_import_and_log_give_the_same_entries(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[tuple[Part, ...], bool]]
) -> None:
    with nexus.open(ledger=SqliteLedger()) as nx:
        are_texts = run_turns(nx, calls)
        entries = nx.ledger.entries("main")
        text = log_text(entries)
        strict = "".join(log_texts(strict_entries(log_entries(entries), Counter())))
        file = tmp_path_factory.mktemp("live") / "log.json"
        TurnLog(nx, "main", file)(StreamEnd("end_turn"))
    assert [one for one in violations(text) if one.level == "error"] == []
    for content, (_, posting), is_text in zip(contents(text), calls, are_texts, strict=True):
        assert (content["toolCall"] == "finishRequest") == (is_text and posting)
        assert (content["toolCall"] == "postMessage") == (is_text and not posting)
    assert contents(file.read_text("utf-8")) == contents(strict)
    for written in (text, strict):
        with imported(written, tmp_path_factory.getbasetemp()) as nx:
            assert json.loads(log_text(nx.ledger.entries("log"))) == json.loads(written)


def test_law_finds_a_reader_that_takes_an_unposted_text_for_a_post(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_posting", lambda _: None)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        test_log_import_and_log_give_the_same_entries(tmp_path_factory)


@pytest.mark.parametrize("posting", [True, False])
def test_model_sees_unposted_text_as_reasoning(*, posting: bool) -> None:
    with nexus.open(ledger=":memory:") as nx:
        tools = offered(nx, posting=posting)
        ctx = nx.assemble("Hello?", session="main", tools=tools, profile="turnlog")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Done."),)))
        ctx = nx.assemble("And now?", session="main", tools=tools, profile="turnlog")
        content = json.loads(ctx.messages[1].text())["content"]
        expected = {"toolCall": "finishRequest", "reasoning": "Done."}
        assert content == (expected if posting else {"toolCall": "postMessage", "text": "Done."})
        shown = [json.loads(entry_text(entry))["content"] for entry in context_entries(ctx)]
        assert content in shown
        ctx = nx.assemble("And now?", session="main", tools=tools)
        assert content in [json.loads(entry_text(entry))["content"] for entry in context_entries(ctx)]


def test_partial_text_and_later_calls_of_a_turn_are_unposted_too() -> None:
    with nexus.open(ledger=":memory:") as nx:
        turn = nx.begin("Hello?", session="main", tools=offered(nx, posting=True))
        turn.assemble()
        turn.fail("error", "broke off", partial="I wi")
        assert contents(log_text(nx.ledger.entries("main"))) == [{"toolCall": "finishRequest", "reasoning": "I wi"}]


def test_later_calls_of_an_older_ledger_have_the_tools_of_their_turn() -> None:
    """Earlier versions named the tools of a turn's first call alone."""
    store = SqliteLedger()
    tools = {"tools": ["postMessage", "getThreadHistory", "finishRequest"]}
    with nexus.open(ledger=store) as nx:
        for number, (body, starts) in enumerate([(tools, True), ({}, False), ({}, True)]):
            message = Message("assistant", (Text(f"{number}"),))
            sized = with_sizes((message,), nx.counter)
            store.commit("main", Commit((NewEntry(messages=sized, body=body, starts_turn=starts),)))
        names = [content["toolCall"] for content in contents(log_text(nx.ledger.entries("main")))]
    assert names == ["finishRequest", "finishRequest", "postMessage"]


def test_thread_history_has_posted_messages_only() -> None:
    with nexus.open(ledger=":memory:") as nx:
        run_turns(nx, [((Text("Nobody received this."),), True)])
        tools = thread_tools(nx, "main", lambda _: None)
        shown = asyncio.run(tools.execute("getThreadHistory", {"reasoning": "To see"}))
    assert "Hello?" in shown
    assert "Nobody" not in shown
