"""A reply is behind the message that it answers, in every view, or in a session of its own: whoever was faster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nexus
from nexus import AgentResult, Event, Text, ToolCall, assistant
from nexus.engine import Engine
from nexus.engine.turn import Turn
from nexus.errors import BadEvent, BadReply, IdempotencyConflict, LateReply, LedgerError, TurnSuperseded
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.history import SUMMARY_MARKER
from nexus.types.message import Message

PROFILES = ("layered", "bare", "tagged", "tagged_stable", "turnlog", "repl", "workspace")


def asked(number: int, *, by: str = "") -> Event:
    return Event((Text(f"Question {number}?"),), id=f"e{number}{by}")


def answer(number: int) -> AgentResult:
    return AgentResult((assistant(f"Answer {number}."),))


def misplaced(messages: Sequence[Message]) -> list[str]:
    """Return the answers that are behind another question than their own. A summary has sections, not turns."""
    wrong: list[str] = []
    question = ""
    for message in messages:
        if SUMMARY_MARKER in message.text() or "[CONTEXT SUMMARY]" in message.text():
            continue
        for kind, number in re.findall(r"(Question|Answer) (\d+)", message.text()):
            if kind == "Question":
                question = number
            elif number != question:
                wrong.append(f"Answer {number} behind question {question}")
    return wrong


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[Engine]:
    with nexus.open(model="gpt-4o", ledger=tmp_path / "ledger.db", home=tmp_path) as opened:
        yield opened


def test_reply_of_an_earlier_turn_is_stored_behind_its_own_question(nx: Engine) -> None:
    first = nx.begin(asked(1), session="s")
    first.assemble()
    second = nx.begin(asked(2), session="s")
    second.assemble()
    second.record(answer(2))
    with pytest.raises(LateReply, match="turn 2 has begun since") as late:
        first.record(answer(1))
    assert [message.text() for message in nx.history("s")] == ["Question 1?", "Question 2?", "Answer 2."]
    stored = late.value.stored_as
    assert [message.text() for message in nx.history(stored)] == ["Question 1?", "Answer 1."]
    assert late.value.reply == answer(1)
    assert [info.label for info in nx.ledger.upkeep.late_replies("s")] == [stored]
    assert stored not in [info.label for info in nx.sessions()]
    ctx = nx.replay(stored, 1)
    assert ctx.current_message.text().endswith("Question 1?")
    assert [turn.status for turn in nx.ledger.turns("s")] == ["interrupted", "completed"]


def test_same_late_reply_again_adds_nothing(nx: Engine) -> None:
    first = nx.begin(asked(1), session="s")
    ctx = first.assemble()
    nx.begin(asked(2), session="s")
    labels: set[str] = set()
    for _ in range(2):
        with pytest.raises(LateReply) as late:
            first.record(answer(1), ctx)
        labels.add(late.value.stored_as)
    (label,) = labels
    assert len(nx.history(label)) == 2


def test_results_that_come_late_are_kept_apart_and_end_the_turn(nx: Engine) -> None:
    first = nx.begin(asked(1), session="s", tools=[])
    first.assemble()
    first.record(AgentResult((assistant("", ToolCall("c", "look", "{}")),)))
    nx.begin(asked(2), session="s")
    with pytest.raises(TurnSuperseded):
        first.result("c", "found it")
    (late,) = nx.ledger.upkeep.late_replies("s")
    assert [result.content for message in nx.history(late.label) for result in message.results()] == [
        (Text("found it"),)
    ]
    assert all(not list(message.results()) for message in nx.history("s"))
    assert not first.fail_if_open("error", "gone")


def test_completed_turn_is_neither_failed_nor_answered_again(nx: Engine) -> None:
    turn = nx.begin(asked(1), session="s")
    ctx = turn.assemble()
    turn.record(answer(1))
    with pytest.raises(TurnSuperseded, match="it has ended"):
        turn.fail("error", "too late")
    other = AgentResult((assistant("Another answer."),))
    with pytest.raises((LateReply, IdempotencyConflict)):
        turn.record(other, ctx)
    assert [turn.status for turn in nx.ledger.turns("s")] == ["completed"]
    assert [message.text() for message in nx.history("s")] == ["Question 1?", "Answer 1."]


def test_reply_after_a_rewind_behind_its_turn_is_late(nx: Engine) -> None:
    nx.begin(asked(0), session="s").assemble()
    nx.current_turn("s").record(answer(0), nx.current_turn("s").assemble())  # pyright: ignore[reportOptionalMemberAccess]
    turn = nx.begin(asked(1), session="s")
    turn.assemble()
    nx.ledger.rewind("s", turn=1)
    nx.begin(asked(2), session="s").assemble()
    with pytest.raises(LateReply, match="went back behind it") as late:
        turn.record(answer(1))
    assert [message.text() for message in nx.history("s")] == ["Question 0?", "Answer 0.", "Question 2?"]
    assert [message.text() for message in nx.history(late.value.stored_as)][-2:] == ["Question 1?", "Answer 1."]


def test_reply_to_an_erased_session_brings_nothing_back(nx: Engine) -> None:
    turn = nx.begin(asked(1), session="s")
    turn.assemble()
    nx.ledger.upkeep.erase("s")
    nx.begin(asked(2), session="s")
    with pytest.raises(LateReply) as late:
        turn.record(answer(1))
    assert late.value.stored_as == ""
    assert late.value.reply == answer(1)
    assert [message.text() for message in nx.history("s")] == ["Question 2?"]
    assert [info.label for info in nx.sessions(include_inactive=True)] == ["s"]


def test_results_assembled_without_a_turn_do_not_land_in_a_later_one(nx: Engine) -> None:
    ctx = nx.assemble("Question 1?", session="s")
    nx.record(ctx, AgentResult((assistant("", ToolCall("c", "look", "{}")),)))
    results = nx.assemble([nexus.tool("c", "found", "look")], session="s")
    nx.record(nx.assemble("Question 2?", session="s"), answer(2))
    with pytest.raises(LateReply) as late:
        nx.record(results, answer(1))
    assert misplaced(nx.history("s")) == []
    assert misplaced(nx.history(late.value.stored_as)) == []


def test_erase_takes_the_late_replies_of_a_session(nx: Engine) -> None:
    first = nx.begin(asked(1), session="s")
    first.assemble()
    nx.begin(asked(2), session="s")
    with pytest.raises(LateReply):
        first.record(answer(1))
    nx.ledger.upkeep.erase("s")
    assert nx.sessions(include_inactive=True) == []


STEPS = ("begin", "record", "call", "result", "fail", "complete", "current", "rewind", "compact", "plain")


class Actors:
    """Two programs with one ledger, whose turns run into each other."""

    def __init__(self, store: SqliteLedger) -> None:
        home = Path("/nonexistent")
        self.engines = [nexus.open(ledger=store, model="gpt-4o", home=home) for _ in range(2)]
        self.turns: list[tuple[int, Turn]] = []
        self.paid: set[int] = set()
        self.in_errors: set[int] = set()
        self.number = 0

    def step(self, kind: str, who: int, which: int) -> None:
        nx = self.engines[who]
        number, turn = self.turns[which % len(self.turns)] if self.turns else (0, None)
        try:
            self._run(nx, kind, number, turn)
        except LateReply as late:
            if not late.stored_as:
                self.in_errors.add(number)
        except (BadEvent, BadReply, LedgerError):
            pass

    def _run(self, nx: Engine, kind: str, number: int, turn: Turn | None) -> None:
        if kind == "begin":
            self.number += 1
            self.turns.append((self.number, nx.begin(asked(self.number), session="s")))
        elif kind == "plain":
            self.number += 1
            nx.record(nx.assemble(f"Question {self.number}?", session="s"), answer(self.number))
        elif kind == "rewind":
            nx.ledger.rewind("s", turn=max(nx.ledger.thread_info("s").turn - 1, 0))
        elif kind == "compact":
            nx.compact("s", share=0.01)
        elif turn is not None:
            self._continue(nx, kind, number, turn)

    def _continue(self, nx: Engine, kind: str, number: int, turn: Turn) -> None:
        if kind == "record":
            turn.assemble()
            self.paid.add(number)
            turn.record(answer(number))
        elif kind == "call":
            turn.assemble()
            turn.record(AgentResult((assistant("", ToolCall("c", "look", "{}")),)))
        elif kind == "result":
            turn.result("c", "found")
        elif kind == "fail":
            turn.fail("error", "broken", partial=f"Answer {number}, half.")
        elif kind == "complete":
            turn.complete()
        elif kind == "current":
            other = nx.current_turn("s")
            if other is not None and turn.stored is not None and other.number == turn.number:
                self.turns.append((number, other))


def views(nx: Engine, session: str) -> Iterator[Sequence[Message]]:
    yield nx.history(session)
    for profile in PROFILES:
        for budget in (100_000, 4_000):
            yield nx.assemble("And now?", session=session, profile=profile, budget=budget).messages


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1), st.integers(0, 5)), max_size=14))
@example(steps=[("begin", 0, 0), ("begin", 0, 0), ("plain", 0, 0), ("compact", 0, 0)])  # a compaction divides turn 3
@settings(max_examples=60, deadline=None)
def test_every_reply_is_behind_its_question_in_every_view(steps: list[tuple[str, int, int]]) -> None:
    with closing(SqliteLedger(":memory:")) as store:
        actors = Actors(store)
        for kind, who, which in steps:
            actors.step(kind, who, which)
        nx = actors.engines[0]
        wrong: list[Any] = []
        found = set[str]()
        for info in nx.sessions(include_inactive=True):
            for messages in views(nx, info.label):
                wrong += misplaced(messages)
        for thread in store.threads():
            for entry in store.entries(thread.id):
                found.update(re.findall(r"Answer (\d+)\.", " ".join(row.message.text() for row in entry.rows)))
        assert wrong == []
        assert {str(number) for number in actors.paid - actors.in_errors} <= found, "a reply was lost"


@pytest.mark.parametrize("missing", ["_check_turn", "_pass_fence"])
def test_store_without_its_checks_shows_a_reply_under_another_question(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken builds that the law must find: one stores every reply, one lets every program write."""
    monkeypatch.setattr(Writing, missing, lambda *_, **__: 1)
    with closing(SqliteLedger(":memory:")) as store:
        actors = Actors(store)
        nx, other = actors.engines
        first = nx.begin(asked(1), session="s")
        first.assemble()
        if missing == "_check_turn":
            nx.begin(asked(2), session="s")
            monkeypatch.setattr(Writing, "_pass_fence", lambda *_, **__: 1)
            first.record(answer(1))
            assert misplaced(nx.history("s")) == ["Answer 1 behind question 2"]
            return
        second = other.current_turn("s", model="gpt-4.1")
        assert second is not None
        second.assemble()
        second.record(AgentResult((assistant("", ToolCall("c", "look", "{}")),)))
        first.record(answer(1))  # while the other program runs the tool
        assert [message.role for message in nx.history("s")] == ["user", "assistant", "assistant"]


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1"])
def test_second_program_that_continues_a_turn_shuts_out_the_first(nx: Engine, model: str) -> None:
    first = nx.begin(asked(1), session="s")
    first.assemble()
    second = nx.current_turn("s", model=model)
    assert second is not None
    second.assemble()
    second.record(AgentResult((assistant("", ToolCall("c", "look", "{}")),)))
    with pytest.raises(LateReply, match=r"another (program has taken over|reply was recorded)") as late:
        first.record(answer(1))
    assert [message.text() for message in nx.history(late.value.stored_as)] == ["Question 1?", "Answer 1."]
    second.result("c", "found")
    second.assemble()
    second.record(answer(1))
    assert [message.role for message in nx.history("s")] == ["user", "assistant", "tool", "assistant"]
