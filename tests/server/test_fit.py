"""`fit`: which messages of a program's own list to send, and the record of its reply in neutral parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

import nexus
from nexus.server.forms import ListMessage, ReplyResult
from nexus.types.message import Image, Text, ToolCall, ToolResult, Unknown
from nexus.types.request import TokenUsage
from server.running import running

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def user(*parts: Any) -> ListMessage:
    return ListMessage("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Any) -> ListMessage:
    return ListMessage("assistant", user(*parts).parts)


def result(call_id: str, text: str, *, is_error: bool = False) -> ListMessage:
    return ListMessage("tool", (ToolResult(call_id, (Text(text),), "find", is_error),))


WHOLE = (
    ListMessage("system", (Text("Be terse."),)),
    ListMessage("system", (Text("Cite."),)),
    user("Look", Image("image/*", PNG), Unknown("file", '{"data":"JVBERi0xLjcK"}')),
    assistant("Both.", ToolCall("c1", "find", "{}"), ToolCall("c2", "find", "not JSON")),
    result("c1", "found"),
    result("c2", "no such order", is_error=True),
    assistant(Unknown("tool-call", '{"toolName":"web"}'), "Done."),
    user("And?"),
)


def test_list_that_fits_is_sent_as_it_is(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for model in ("gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro"):
            agent = server.client().create_agent(model, model=model)
            for _ in ("new", "with all but the event stored"):
                fitted = agent.fit(WHOLE, conversation="c")
                assert [row.item for row in fitted.shown] == [*range(len(WHOLE))]
                assert [row.message for row in fitted.shown if row.message is not UNSET] == []
                agent.record(result=ReplyResult((Text("Yes."),)), context_id=fitted.context_id)


def test_cut_list_names_what_is_left_and_has_the_rest_as_messages(tmp_path: Path) -> None:
    turns = [message for number in range(30) for message in (user(f"Q{number} " * 40), assistant(f"A{number} " * 40))]
    messages = [*turns, user("Find it"), assistant(ToolCall("c1", "find", "{}")), result("c1", "word " * 5_000)]
    with running(tmp_path) as server:
        agent = server.client().create_agent("a", budget=2_000, system="You are a shop.")
        fitted = agent.fit(messages, conversation="c")
    assert fitted.tokens <= fitted.available <= 2_000
    system, *_, last = fitted.shown
    assert system.message == ListMessage("system", (Text("You are a shop."),))
    assert last.item == len(messages) - 1
    assert isinstance(last.message, ListMessage)
    (truncated,) = last.message.parts
    assert isinstance(truncated, ToolResult)
    assert truncated.call_id == "c1"
    items = [row.item for row in fitted.shown if row.item is not UNSET]
    assert items == sorted(items)
    assert len(items) < len(messages)
    assert any(row.item is UNSET and row.message is not UNSET for row in fitted.shown[1:]), "a notice says so"


@pytest.mark.parametrize("call_id", ["c1", "", "is not safe!"])
def test_calls_and_results_have_the_ids_of_the_list(call_id: str, tmp_path: Path) -> None:
    calls = [user("Find it"), assistant(ToolCall(call_id, "find", "{}")), result(call_id, "found")]
    again = [*calls, user("Once more"), *calls[1:]]
    long = [*again, user("A long one"), calls[1], result(call_id, "word " * 5_000)]
    unanswered = [*long, user("The last"), calls[1], user("Stop. What now?")]
    with running(tmp_path) as server:
        agent = server.client().create_agent("a", budget=4_000)
        for number, messages in enumerate((again, long, unanswered)):
            for _ in ("new", "repeated"):
                shown: list[Any] = [*agent.fit(messages, conversation=str(number)).shown]
                sent: list[Any] = [messages[row.item] if row.message is UNSET else row.message for row in shown]
                parts: list[Any] = [part for message in sent for part in message.parts]
                assert {part.id for part in parts if isinstance(part, ToolCall)} == {call_id}
                assert {part.call_id for part in parts if isinstance(part, ToolResult)} == {call_id}
        assert [row.item for row in agent.fit(again, conversation="0").shown] == [*range(len(again))]


def test_recorded_result_continues_the_session_with_its_usage(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        agent = server.client().create_agent("a")
        first = agent.fit([user("Hi")], conversation="c")
        usage = TokenUsage(input_tokens=90, output_tokens=7, cache_read_tokens=80)
        reply = ReplyResult((Text("Hello."), ToolCall("c1", "find", "{}")), usage, "tool-calls", "gpt-4o-2024-08-06")
        recorded = agent.record(result=reply, context_id=first.context_id)
        assert (recorded.status, [call.id for call in recorded.tool_calls]) == ("pending", ["c1"])
        following = [user("Hi"), assistant("Hello.", ToolCall("c1", "find", "{}")), result("c1", "found")]
        second = agent.fit(following, conversation="c")
        assert (second.action, second.session) == ("append", recorded.session)
        other = agent.fit(following, conversation="d")
        assert other.action == "new"
    with nexus.open(ledger=str(tmp_path / "ledger.db")) as nx:
        (turn,) = nx.ledger.turns(first.session)
        assert turn.cache_read_tokens == 80


def test_params_are_read_in_both_cases_and_refused_with_a_reason(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.client().create_agent("a")

        def fit(*parts: Any, role: str = "user", case: str = "camel") -> Any:
            params = {"messages": [{"role": role, "parts": parts}]}
            return server.rpc("fit", params, "/agent/a", **{"Nexus-Case": case})

        text = {"type": "text", "text": "Hi"}
        assert fit(text, {"type": "image", "mediaType": "image/png", "data": PNG})["contextId"]
        assert fit(text, {"type": "image", "media_type": "image/png", "data": PNG}, case="snake")["context_id"]
        refusals = [fit({"type": "nonsense"}), fit(text, role="robot"), fit("Hi"), fit({**text, "extra": 1}, text, 7)]
        assert [refusal["data"]["code"] for refusal in refusals] == ["invalid_params"] * 4
        assert fit(text, role="assistant")["data"]["code"] == "bad_event"
        assert server.rpc("fit", {"messages": []}, "/agent/a")["data"]["code"] == "bad_event"
        for params in ({"context_id": "x"}, {"reply": "a", "result": {"parts": [text]}}):
            assert "pass either" in server.rpc("record", params, "/agent/a")["message"]
