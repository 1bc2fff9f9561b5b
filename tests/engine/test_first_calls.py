"""Several first calls of one new session: every reply that was paid for is stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

import nexus
from nexus import AgentResult, ToolCall, assistant
from nexus.errors import NotAllowed


def test_two_first_calls_are_both_recorded() -> None:
    with nexus.open(ledger=":memory:") as nx:
        first, second = (nx.assemble(text, session="s") for text in ("one", "two"))
        nx.record(first, AgentResult((assistant("reply one"),)))
        nx.record(second, AgentResult((assistant("reply two"),)))
        assert not nx.record(second, AgentResult((assistant("reply two"),))).added
        assert [message.text() for message in nx.history("s") if message.role == "assistant"] == [
            "reply one",
            "reply two",
        ]
        assert nx.replay("s", 1).body_hash == first.body_hash
        assert nx.replay("s", 2).body_hash == second.body_hash
        third = nx.assemble("three", session="s")
        assert "other turns were recorded" in " ".join(third.accounting.prefix.causes)


def test_three_threads_that_begin_a_session_lose_no_reply(tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db") as nx:
        barrier = Barrier(3)

        def call(number: int) -> None:
            ctx = nx.assemble(f"question {number}", session="s")
            barrier.wait()
            nx.record(ctx, AgentResult((assistant(f"reply {number}"),)))

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(call, range(3)))
        replies = {message.text() for message in nx.history("s") if message.role == "assistant"}
        assert replies == {"reply 0", "reply 1", "reply 2"}


def test_principals_without_a_policy_have_sessions_of_their_own() -> None:
    with nexus.open(ledger=":memory:") as nx:
        sessions = [nx.assemble("Hello", principal=name).session_label for name in ("ann", "bob")]
        assert sessions == ["dm:ann", "dm:bob"]
        assert nx.assemble("Hello").session_label == "main"


def test_empty_principal_is_not_the_program_itself() -> None:
    with nexus.open(ledger=":memory:") as nx, pytest.raises(NotAllowed, match="principal is empty"):
        nx.assemble("Hello", principal="")


def test_result_of_no_call_names_the_cause_of_the_prefix_break_that_follows() -> None:
    with nexus.open(model="gpt-4o", ledger=":memory:") as nx:
        nx.record(nx.assemble("Go."), AgentResult((assistant("", ToolCall("a", "run", "{}")),)))
        nx.record(nx.assemble([nexus.tool("nobody", "x")]), AgentResult((assistant("", ToolCall("b", "run", "{}")),)))
        prefix = nx.assemble([nexus.tool("b", "done")]).accounting.prefix
    assert prefix.state == "broken"
    assert any("results that it lacked" in cause for cause in prefix.causes)
