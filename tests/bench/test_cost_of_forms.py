"""The bench of what each form costs: it plays a session as `nexus cache simulate` does, and asks a real server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from benchmarks.bodies import Remembered
from benchmarks.forms import simulated
from benchmarks.forms_played import AFTER_ANSWER_MS, AFTER_CALL_MS, FORMS, NOTE_EVERY, START_MS, play, times_of
from benchmarks.forms_served import RULE, serve
from benchmarks.report import NotRun
from benchmarks.sessions import ROOT, Call, Session

import nexus
from nexus.assembly.record import with_sizes
from nexus.engine.simulation.cache import simulate_session
from nexus.providers.prompt_cache import cache_rule
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message, Text, ToolCall, assistant, tool, user
from nexus.types.request import Event

CLAUDE, GPT = "claude-sonnet-4-5", "gpt-5.5"
NAMED = {form.name: form for form in FORMS}
CLOCKED = NAMED["repl, clock in the system prompt"]
STEP_MS = 70_000


def talk(turns: int) -> list[Message]:
    """Turns of a question, a call, its result and an answer, 70 seconds between calls."""
    said: list[Message] = []
    for number in range(turns):
        at_ms = START_MS + 2 * number * STEP_MS
        call = ToolCall(f"c{number}", "run_command", '{"command":"make"}')
        said += [user(f"Question {number}? " * 20, at_ms=at_ms), assistant("I look.", call)]
        said += [tool(call.id, "a line of output\n" * 40, at_ms=at_ms + STEP_MS), assistant("That is it. " * 20)]
    return said


def session(said: list[Message]) -> Session:
    """The messages as calls: each answer with what came before it."""
    asked = [
        Event(results=(one,), at_ms=one.at_ms) if one.role == "tool" else Event(content=one.parts, at_ms=one.at_ms)
        for one in said[::2]
    ]
    return Session("s", tuple(Call(event, (reply,)) for event, reply in zip(asked, said[1::2], strict=True)))


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_session_costs_what_the_simulation_says(model: str, tmp_path: Path) -> None:
    root, said, counter = tmp_path / "agent", talk(4), Remembered()
    shutil.copytree(ROOT / "examples" / "agent", root)
    tools = msgspec.json.decode((ROOT / "examples" / "tools.json").read_bytes())["tools"]
    with nexus.open(root, ledger=":memory:", model=model, timezone="Europe/Lisbon") as nx:
        rows = [with_sizes(said[at : at + 4], nx.counter) for at in range(0, len(said), 4)]
        nx.ledger.store.commit("s", Commit(tuple(NewEntry(messages=row, starts_turn=True) for row in rows)))
        known = nx.resolve(model)
        expected = simulate_session(nx, "s", known, tools=tools).rows[0].totals
    sent = play(session(said), NAMED["layered"], model, counter)
    found = simulated(sent, known, cache_rule(known), counter)
    assert (found.calls, found.prompt, found.read) == (8, expected.prompt, expected.read)
    assert found.input_dollars == expected.input_dollars > 0


def test_the_clock_of_each_call_stands_in_one_forms_system_prompt_alone() -> None:
    said = talk(2)
    for name, form in NAMED.items():
        sent = play(session(said), form, CLAUDE, Remembered())
        systems = [one.body["system"][0]["text"] for one in sent]
        clocked = [
            f"Current time: 00:0{minute} (local)" in text for text, minute in zip(systems, (0, 1, 2, 3), strict=True)
        ]
        assert clocked == [form is CLOCKED] * 4, name
        assert len(set(systems)) == (4 if form is CLOCKED else 1), name


def test_the_memory_grows_where_a_form_shows_it() -> None:
    said = [message for _ in range(NOTE_EVERY // 2) for message in talk(1)] + talk(1)
    for name, form in NAMED.items():
        shown = "Noted after call" in str(play(session(said), form, GPT, Remembered())[-2].body)
        assert shown == (name in ("layered", "workspace", "turnlog")), name


def test_times_are_the_sessions_own_or_follow_after_a_usual_while_and_never_go_back() -> None:
    results = Event(results=(tool("c", "done"),))
    events = [
        Event(),
        results,
        Event(at_ms=START_MS + 500_000),
        Event(at_ms=9),
        msgspec.structs.replace(results, at_ms=0),
    ]
    first = START_MS + AFTER_ANSWER_MS
    second, third = first + AFTER_CALL_MS, START_MS + 500_000
    assert times_of(Call(event, ()) for event in events) == [first, second, third, third, third + AFTER_CALL_MS]
    assert times_of([Call(Event(at_ms=9), ())]) == [9]


@pytest.mark.slow
def test_a_real_server_has_in_its_cache_what_the_simulator_says() -> None:
    calls = tuple(
        Call(Event(content=(Text(f"Question {number}? " * 9),)), (assistant("Yes. " * 9),)) for number in range(3)
    )
    sent = play(Session("s", calls), msgspec.structs.replace(NAMED["repl"], profile="bare"), "gpt-4o", Remembered())
    try:
        served = serve(one.body for one in sent)
    except NotRun as reason:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(reason))
    with nexus.open(None, ledger=":memory:") as nx:
        expected = simulated(sent, nx.resolve("gpt-4o"), RULE, Remembered())
    assert served.calls == 3
    assert served.share == pytest.approx(expected.share, abs=0.05)
    assert 0.5 < served.share < 1
