"""Results of parallel calls are shown with their calls, in whatever order a file has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from interop import claude_events as events
from nexus.assembly.fit.repair import LATE_SOURCE, NO_RESULT
from nexus.interop.detect import read
from nexus.interop.importing import import_transcript
from support.validity import CHECKS

Row = dict[str, Any]


def called(*names: str) -> Row:
    functions = [{"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": functions}


def result(name: str) -> Row:
    return {"role": "tool", "tool_call_id": name, "content": f"<{name}>"}


@st.composite
def turns(draw: st.DrawFn) -> list[Row]:
    """Turns of an agent whose calls are answered in any order, each before the user speaks again."""
    rows: list[Row] = []
    count = 0
    for turn in range(draw(st.integers(1, 3))):
        rows.append({"role": "user", "content": f"request {turn}"})
        waiting: list[str] = []
        for _ in range(draw(st.integers(1, 4))):
            names = [f"c{count + number}" for number in range(draw(st.integers(1, 3)))]
            count += len(names)
            rows.append(called(*names))
            waiting += names
            for _ in range(draw(st.integers(0, len(waiting)))):
                rows.append(result(waiting.pop(draw(st.integers(0, len(waiting) - 1)))))
        rows += map(result, draw(st.permutations(waiting)))
        rows.append({"role": "assistant", "content": f"answer {turn}"})
    return rows


def assembled(path: Path, rows: list[Row]) -> nexus.AssembledContext:
    path.write_text(json.dumps({"messages": rows}))
    with nexus.open(ledger=":memory:") as nx:
        (report,) = [one for transcript in read(path) for one in import_transcript(nx, transcript)]
        return nx.assemble("And now?", session=report.session)


@settings(max_examples=150, deadline=None)
@given(rows=turns())
def test_every_result_is_shown_with_its_call(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    ctx = assembled(tmp_path_factory.mktemp("order") / "chat.json", rows)
    calls: list[str] = []
    for message in ctx.history:
        assert message.source != LATE_SOURCE
        calls += [call.id for call in message.calls()]
        texts = {result.call_id: result.content[0].text for result in message.results()}  # type: ignore[union-attr]
        assert texts == {name: f"<{name}>" for name in texts}
        calls = [name for name in calls if name not in texts]
        assert message.role != "user" or not calls
    assert NO_RESULT not in str(ctx.to_openai())
    for wire, body in (("openai", ctx.to_openai()), ("anthropic", ctx.to_anthropic()), ("gemini", ctx.to_gemini())):
        assert CHECKS[wire](body) == []


def test_next_call_stays_behind_the_results_of_the_calls_before_it(tmp_path: Path) -> None:
    rows = [
        {"role": "user", "content": "Go"},
        called("a"),
        called("b"),
        result("a"),
        called("c"),
        result("b"),
        result("c"),
    ]
    ctx = assembled(tmp_path / "chat.json", rows)
    shown = [[*(call.id for call in m.calls()), *(r.call_id for r in m.results())] for m in ctx.history]
    assert shown == [[], ["a", "b"], ["a"], ["b"], ["c"], ["c"]]


def test_result_after_the_users_words_stays_where_it_is(tmp_path: Path) -> None:
    rows = [{"role": "user", "content": "Go"}, called("a"), {"role": "user", "content": "Wait!"}, result("a")]
    assert [*assembled(tmp_path / "chat.json", rows).history][-1].source == LATE_SOURCE


def test_claude_code_results_follow_their_calls(tmp_path: Path) -> None:
    found = events.read(
        tmp_path,
        events.user("u1", None, "Go"),
        events.said("a1", "u1", "m1", events.call("a")),
        events.said("a2", "a1", "m2", events.call("b")),
        events.user("r1", "a2", [events.result("a", "<a>")]),
        events.said("a3", "r1", "m3", events.call("c")),
        events.user("r2", "a3", [events.result("b", "<b>")]),
        events.user("r3", "r2", [events.result("c", "<c>")]),
    )
    assert events.shown(found.steps) == ["Go", "?a", "!a", "?b", "!b", "?c", "!c"]
