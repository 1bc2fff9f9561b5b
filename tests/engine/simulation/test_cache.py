"""A session played again with each policy: real bodies, real times, within the budget, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.stored import rows_of
from nexus.assembly.record import with_sizes
from nexus.engine.simulation.cache import Segmenter, Simulation, simulate_session
from nexus.engine.simulation.cache_policies import (
    NAMES,
    START_MS,
    CallPoint,
    keep_all,
    recorded_session,
    refill,
    sliding_window,
    times_of,
)
from nexus.errors import BadSetting, NoSuchSession
from nexus.interop.detect import read
from nexus.interop.importing import import_transcript
from nexus.providers.prompt_cache import Cache, CacheOutcome, cache_rule
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Image, Message, Note, Text, Thinking, ToolCall, assistant, tool, user
from nexus.types.request import Event
from support.errors import has_code

CLAUDE, GPT, GEMINI = "claude-sonnet-4-5", "gpt-4o", "gemini-2.5-pro"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
WORDS = "the index over the body of each document has one row for each word and its places "


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[nexus.Engine]:
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n" + WORDS * 80)
    with nexus.open(tmp_path) as engine:
        yield engine


def store(nx: nexus.Engine, *messages: Message, session: str = "s") -> None:
    nx.ledger.store.commit(session, Commit((NewEntry(messages=with_sizes(messages, nx.counter), starts_turn=True),)))


def talk(nx: nexus.Engine, turns: int, *, step_ms: int = 0) -> None:
    """Turns of a question, a call, its result of about 170 tokens, and an answer."""
    for number in range(turns):
        call = ToolCall(f"c{number}", "search", f'{{"q":"{number}"}}')
        at_ms = 1_760_000_000_000 + 2 * number * step_ms if step_ms else 0
        store(
            nx,
            user(f"Question {number}: {WORDS}", at_ms=at_ms),
            assistant("I look.", call),
            tool(call.id, f"{number}: " + WORDS * 10, "search", at_ms=at_ms + step_ms),
            assistant(f"Answer {number}: {WORDS}"),
        )


def played(nx: nexus.Engine, model: str = CLAUDE, **options: Any) -> Simulation:
    return simulate_session(nx, "s", nx.resolve(model), **options)


@pytest.mark.parametrize("model", [CLAUDE, GPT, GEMINI])
def test_nexus_is_cheapest_and_only_no_truncation_exceeds_budget(nx: nexus.Engine, model: str) -> None:
    talk(nx, 30)
    found = played(nx, model, budget=5_000)
    rows = {row.policy: row for row in found.rows}
    assert tuple(rows) == NAMES
    assert (found.calls, found.timed) == (60, 0)
    for name in ("nexus", "window", "refill"):
        assert rows[name].totals.largest_prompt <= 5_000
        assert rows[name].refused == rows[name].over_window == 0
    assert rows["nothing"].totals.largest_prompt > 7_500
    costs = {name: row.totals.input_cost for name, row in rows.items()}
    assert costs["nexus"] == min(costs.values())
    assert found.relative(rows["nexus"]) == 1.0
    assert (found.relative(rows["window"]) or 0) > 1.3
    assert rows["nexus"].breaks.count < rows["window"].breaks.count / 4
    assert rows["nothing"].breaks.count == 0


def test_policies_send_the_same_without_a_cut(nx: nexus.Engine) -> None:
    talk(nx, 6)
    found = played(nx)
    assert len({row.totals for row in map(unhashed, found.rows)}) == 1
    sums = found.rows[0].totals
    assert sums.misses == {"first": 1, "hit": 11}
    assert sums.read == sums.prompt - sums.written
    assert sums.written == sums.largest_prompt


def unhashed(row: Any) -> Any:
    """The row with its sums as something that a set can hold."""
    return type(row)("", repr(row.totals), row.refused, row.over_window, row.breaks)


def test_cache_breakpoints_of_body_are_simulated(nx: nexus.Engine) -> None:
    talk(nx, 30)
    ctx = nx.assemble("And now?", session="s", model=CLAUDE)
    body = ctx.to_anthropic()
    call = Segmenter(nx.resolve(CLAUDE), nx.counter).call(body, 5, 7)
    blocks = [*body["system"], *(block for message in body["messages"] for block in message["content"])]
    assert (call.at_ms, call.output_tokens, len(call.segments)) == (5, 7, len(blocks))
    assert list(call.breakpoints) == [place for place, block in enumerate(blocks, 1) if "cache_control" in block]
    assert len(call.breakpoints) == 4
    tokens = ctx.provenance.manifest.base * nx.resolve(CLAUDE).token_factor
    assert call.tokens == pytest.approx(tokens, rel=0.03)


@pytest.mark.parametrize("model", [CLAUDE, GPT, GEMINI])
def test_segment_tokens_add_up_to_token_breakdown(nx: nexus.Engine, model: str) -> None:
    image = Image("image/png", PIXEL, width=800, height=800)
    thought = Message("assistant", (Thinking("I think. ", "s" * 4_000), Text("Yes.")), model=model)
    store(nx, Message("user", (Text("What is this?"), image)), thought)
    definition: dict[str, Any] = {
        "name": "search",
        "description": WORDS,
        "parameters": {"type": "object", "properties": {}},
    }
    ctx = nx.assemble("And now? " + WORDS, session="s", model=model, tools=[definition])
    forms = {"anthropic": ctx.to_anthropic, "gemini": ctx.to_gemini, "openai": ctx.to_openai}
    segmenter = Segmenter(nx.resolve(model), nx.counter)
    segmenter.add_images(ctx.messages)
    call = segmenter.call(forms[ctx.accounting.model_info.provider_format](), 0, 0)
    tokens = ctx.provenance.manifest.base * nx.resolve(model).token_factor
    assert call.tokens == pytest.approx(tokens, rel=0.04, abs=40)


def test_recorded_times_expire_the_cache_except_with_hour(nx: nexus.Engine) -> None:
    talk(nx, 8, step_ms=400_000)
    short, hour = played(nx), played(nx, hour=True)
    assert (short.timed, short.calls) == (16, 16)
    assert short.rows[0].totals.misses == {"first": 1, "expired": 15}
    assert hour.rows[0].totals.misses == {"first": 1, "hit": 15}
    assert hour.rows[0].totals.input_cost < short.rows[0].totals.input_cost


def test_interval_is_used_when_time_is_unknown(nx: nexus.Engine) -> None:
    talk(nx, 3)
    assert played(nx, interval_ms=300_000).rows[0].totals.misses == {"first": 1, "expired": 5}
    assert played(nx, interval_ms=299_999).rows[0].totals.misses == {"first": 1, "hit": 5}


def test_times_never_decrease() -> None:
    points = [CallPoint((), Event(), (), at_ms) for at_ms in (0, 500, 0, START_MS + 90, 7)]
    assert times_of(points, 20) == [START_MS, START_MS, START_MS + 20, START_MS + 90, START_MS + 90]
    assert times_of([CallPoint((), Event(), (), 500), CallPoint((), Event(), ())], 20) == [500, 520]
    assert times_of([], 20) == []


def test_recorded_session_has_one_call_per_reply(nx: nexus.Engine) -> None:
    call, other = ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")
    noted = Message("user", (Note("moment", "Now."), Text("Two")), at_ms=9)
    store(nx, Message("system", (Text("Be brief."),)), user("One"), assistant("A"), assistant("B"))
    store(nx, user("left alone"), noted, assistant("", call, other))
    store(nx, tool("a", "1"), tool("b", "2"), assistant("C"), user("unanswered"))
    found = recorded_session(nx.ledger.entries("s"))
    assert [message.text() for message in found.instructions] == ["Be brief."]
    one, two, three = found.points
    assert (one.event.content, one.reply) == ((Text("One"),), (assistant("A"), assistant("B")))
    assert ([m.text() for m in two.before], two.event.content, two.at_ms) == (["left alone"], (Text("Two"),), 9)
    assert [result.call_id for message in three.event.results for result in message.results()] == ["a", "b"]
    assert played(nx).calls == 3


def test_choices_keep_order_of_groups() -> None:
    sizes = [10, 500, 20, 30]
    assert (sliding_window(sizes, 60), refill(sizes, 60), keep_all(sizes, 60)) == ([2, 3], [0, 2, 3], [0, 1, 2, 3])
    assert (sliding_window(sizes, 5), refill(sizes, 0), sliding_window([], 9), refill([], 9)) == ([], [], [], [])
    assert sliding_window(sizes, 560) == refill(sizes, 560) == [0, 1, 2, 3]


def test_call_over_budget_is_rejected_and_session_continues(nx: nexus.Engine) -> None:
    talk(nx, 2)
    store(nx, user(WORDS * 600), assistant("Long."))
    talk(nx, 1)
    rows = {row.policy: row for row in played(nx, budget=6_000).rows}
    assert [rows[name].refused for name in NAMES] == [1, 1, 1, 0]
    assert rows["nexus"].totals.calls == rows["nothing"].totals.calls - 1 == 6


def test_prompts_over_window_are_counted(nx: nexus.Engine) -> None:
    nx.models = nx.preparation.models = {
        "small": {"context_tokens": 8_192, "prices": {"input": 1, "output": 2, "cache_read": 0.1}}
    }
    talk(nx, 20)
    rows = {row.policy: row for row in played(nx, "small").rows}
    assert 0 < rows["nothing"].over_window < 40
    assert rows["nexus"].over_window == 0


def test_growth_and_cheapest_cut_points_come_from_session(nx: nexus.Engine) -> None:
    talk(nx, 20)
    found = played(nx, budget=4_000)
    assert found.cut_points is not None
    assert 100 < found.growth < 300
    assert found.cut_points.low < found.cut_points.high <= 4_000
    assert found.cut_points.now
    assert found.least_kept == 1_000
    deeper = played(nx, budget=4_000, least_kept=200)
    assert deeper.cut_points is not None
    assert deeper.cut_points.low < found.cut_points.low


def test_break_has_price_and_break_even(nx: nexus.Engine) -> None:
    talk(nx, 20)
    breaks = played(nx, budget=4_000).rows[0].breaks
    assert breaks.count > 0
    assert breaks.dollars is not None
    assert float(breaks.dollars) == pytest.approx(breaks.rewritten * 3.45e-6)
    assert breaks.paid_back == max(0, -(-(breaks.rewritten * 345 - breaks.dropped * 30) // (breaks.dropped * 30)))


def test_empty_session_has_no_calls_and_unknown_one_raises(nx: nexus.Engine) -> None:
    nx.ledger.sessions.create("s")
    found = played(nx)
    assert (found.calls, found.cut_points, found.growth) == (0, None, 0)
    assert {row.totals.calls for row in found.rows} == {0}
    assert found.relative(found.rows[1]) is None
    with pytest.raises(NoSuchSession):
        simulate_session(nx, "none", nx.resolve(CLAUDE))
    with pytest.raises(BadSetting, check=has_code("bad_budget")):
        played(nx, budget=0)


def test_simulation_reports_progress_and_writes_nothing(nx: nexus.Engine) -> None:
    talk(nx, 3)
    assert nx.workspace is not None
    before, told = rows_of(nx.workspace), list[tuple[int, int]]()

    def note(done: int, calls: int) -> None:
        told.append((done, calls))

    played(nx, progress=note)
    assert told == [(number, 6) for number in range(1, 7)]
    assert rows_of(nx.workspace) == before


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_real_session_is_cheapest_with_nexus(data: Path, tmp_path: Path, model: str) -> None:
    with nexus.open(tmp_path) as nx:
        import_transcript(nx, next(iter(read(data / "claude_code" / "session_08.jsonl"))), "s")
        found = played(nx, model, budget=16_000)
    assert (found.calls, found.timed) == (87, 87)
    rows = {row.policy: row for row in found.rows}
    for row in found.rows:
        sums, rates = row.totals, found.rule.rates
        assert sums.calls == 87 - row.refused
        assert sum(sums.misses.values()) == sums.calls
        if found.rule.long_from == 0:
            assert sums.input_cost == sums.read * rates.read + sums.written * rates.write + sums.uncached * rates.input
    assert rows["nexus"].totals.input_cost < rows["nothing"].totals.input_cost
    assert rows["nexus"].totals.input_cost < rows["window"].totals.input_cost / 1.5
    assert rows["nexus"].totals.input_cost < rows["refill"].totals.input_cost / 2
    assert max(rows[name].totals.largest_prompt for name in ("nexus", "window", "refill")) <= 16_000


@pytest.mark.parametrize("model", [CLAUDE, GPT, GEMINI])
def test_changed_system_text_is_read_up_to_change_without_breakpoints(nx: nexus.Engine, model: str) -> None:
    known = nx.resolve(model)
    segmenter, cache = Segmenter(known, nx.counter), Cache(cache_rule(known))
    outcomes: list[CacheOutcome] = []
    for clock in ("14:30", "14:31"):
        (nx.workspace or Path()).joinpath("AGENTS.md").write_text(f"{WORDS * 150}\n\nCurrent time: {clock}")
        ctx = nx.assemble("And now?", session="s", model=model)
        outcomes.append(cache.send(segmenter.call(ctx.to_provider(known.provider_format), 0, 0)))
    first, second = outcomes
    assert (first.miss, second.miss, first.prompt) == ("first", "changed", second.prompt)
    if model == CLAUDE:
        assert second.read == 0
    else:
        assert 0.8 * first.prompt < second.read < first.prompt
