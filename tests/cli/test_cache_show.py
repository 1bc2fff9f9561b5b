"""`nexus cache show`: reported cache use of each call, the prediction, prefix breaks with cause and price, totals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import ESCAPE, run
from cli.stored import rows_of
from nexus.types.request import TokenUsage

MODEL = "claude-opus-4-5"  # $5 for input, $0.50 for cache reads, $6.25 for cache writes, $25 for output
RULES = "# Rules\n\n" + "Say what you do not know. " * 1_000


def import_calls(
    folder: Path, *calls: tuple[str, int, int, int, int], session: str = "s", is_hour: bool = False
) -> None:
    """Import a session file; a call is time, model number, uncached, read and written tokens; without tokens no usage."""
    events: list[dict[str, Any]] = []
    for number, (time, model, fresh, read, written) in enumerate(calls):
        stamp = f"2026-02-06T{time}Z"
        message: dict[str, Any] = {
            "id": f"m{number}",
            "role": "assistant",
            "model": (MODEL, "claude-sonnet-4-5")[model],
        }
        message["content"] = [{"type": "text", "text": f"Answer {number}"}]
        if fresh or read or written:
            usage = {"input_tokens": fresh, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
            message["usage"] = {**usage, "output_tokens": 100}
            if is_hour:
                message["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": written}
        asked = {"role": "user", "content": f"Question {number}"}
        events.append(
            {"type": "user", "uuid": f"u{number}", "timestamp": stamp, "message": asked, "sessionId": session}
        )
        events.append(
            {"type": "assistant", "uuid": f"a{number}", "timestamp": stamp, "message": message, "sessionId": session}
        )
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert run("import", path, folder=folder).code == 0


def record(nx: nexus.Engine, text: str, usage: TokenUsage, *more: nexus.Message, **options: Any) -> int:
    """Record a call with this usage; return its predicted tokens."""
    ctx = nx.assemble(text, session="main", **options)
    nx.record(ctx, nexus.AgentResult((*more, nexus.assistant("Yes.")), usage))
    return ctx.accounting.prefix.stable_tokens


def test_imported_calls_show_reads_share_and_causes(empty: Path) -> None:
    import_calls(
        empty,
        ("10:00:00", 0, 0, 0, 20_000),
        ("10:01:00", 0, 10, 20_000, 1_000),
        ("10:20:00", 0, 10, 0, 22_000),
        ("10:21:00", 1, 10, 0, 22_500),
        ("10:22:00", 1, 0, 0, 0),
        ("10:23:00", 1, 10, 5_000, 18_000),
    )
    ran = run("cache", "show", "s", folder=empty)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "'s': 6 calls, 5 with reported usage"
    assert lines[2].endswith("first call")
    assert lines[3].split()[4:] == ["21,010", "20,000", "1,000", "95.2%", "20,000"]
    # 21,010 tokens written at $6.25 instead of read at $0.50.
    assert lines[4].split(maxsplit=9)[4:] == [
        "22,010", "0", "22,000", "0.0%", "21,010", "21,010  0.1208  19 minutes after the last call; the cache's lifetime is 5",
    ]  # fmt: skip
    assert lines[5].endswith("the model changed from claude-opus-4-5")
    assert "not reported" in lines[6]
    assert lines[7].endswith("unknown: the file does not contain the prompt")
    assert "Read from the cache: 25,000 of 108,540 input tokens, 23.0%" in ran.out
    assert ESCAPE not in ran.out


def test_cache_that_is_kept_for_an_hour_has_its_own_prices_and_lifetime(empty: Path) -> None:
    import_calls(
        empty,
        ("10:00:00", 0, 0, 0, 20_000),
        ("10:20:00", 0, 10, 0, 20_000),
        ("11:40:00", 0, 10, 0, 20_000),
        is_hour=True,
    )
    calls = run("cache", "show", "s", "--json", folder=empty).json["calls"]
    assert calls[0]["dollars"] == pytest.approx(20_000 * 10e-6 + 100 * 25e-6)
    assert calls[1]["causes"] == ["unknown: the file does not contain the prompt"]
    assert calls[2]["causes"] == ["80 minutes after the last call; the cache's lifetime is 60"]
    assert calls[1]["lost_dollars"] == pytest.approx(20_000 * (10 - 0.5) * 1e-6)


def test_break_of_a_recorded_call_has_the_cause_of_its_report(empty: Path) -> None:
    (empty / "AGENTS.md").write_text(RULES)
    with nexus.open(empty, model=MODEL) as nx:
        record(nx, "One?", TokenUsage(7_000, 5, 0, 7_000))
        predicted = record(nx, "Two?", TokenUsage(7_100, 5, 6_990, 110))
        (empty / "AGENTS.md").write_text(f"{RULES}\nBe brief.")
        record(nx, "Three?", TokenUsage(7_200, 5, 0, 7_200))
    assert predicted == 7_000, "the last prompt as its provider reported it"
    value = run("cache", "show", "main", "--json", folder=empty).json
    first, second, third = value["calls"]
    assert (first["causes"], first["predicted_tokens"], first["lost_tokens"]) == (["first call"], 0, 0)
    assert (second["causes"], second["predicted_tokens"]) == ([], 7_000)
    assert third["causes"] == ["AGENTS.md (rules) changed"]
    assert (third["lost_tokens"], third["lost_dollars"]) == (7_100, pytest.approx(7_100 * 5.75e-6))
    totals = value["totals"]
    assert (totals["breaks"], totals["lost_tokens"]) == (1, 7_100)
    assert totals["share"] == pytest.approx(6_990 / 21_300)
    assert totals["dollars"] == pytest.approx(sum(call["dollars"] for call in value["calls"]))
    shown = run("cache", "show", "main", folder=empty).out
    assert "Prefix breaks: 1, 7,100 tokens processed again, 0.0408 USD more than reading them" in shown


def test_breaks_option_lists_only_calls_with_a_break(empty: Path) -> None:
    import_calls(empty, ("10:00:00", 0, 0, 0, 20_000), ("10:01:00", 0, 10, 20_000, 50), ("10:02:00", 0, 10, 0, 21_000))
    value = run("cache", "show", "s", "--breaks", "--json", folder=empty).json
    assert [bool(call["lost_tokens"]) for call in value["calls"]] == [False, True]
    assert value["totals"]["calls"] == 3
    assert run("cache", "show", "s", "--breaks", folder=empty).out.count(MODEL) == 2


def test_short_prompt_that_is_not_cached_is_named(empty: Path) -> None:
    import_calls(empty, ("10:00:00", 0, 500, 0, 0), ("10:01:00", 0, 600, 0, 0))
    calls = run("cache", "show", "s", "--json", folder=empty).json["calls"]
    assert calls[1]["causes"][0].startswith("the last prompt was shorter than the smallest cached prefix")
    assert calls[1]["lost_dollars"] == 0


def test_sum_over_calls_of_an_agent_is_no_break(empty: Path) -> None:
    with nexus.open(empty, model=MODEL) as nx:
        record(nx, "One?", TokenUsage(3_000, 5, 0, 3_000))
        record(nx, "Two?", TokenUsage(9_500, 5, 100, 0), nexus.assistant("I look."))
        record(nx, "Three?", TokenUsage(3_300, 5, 3_000, 300))
    calls = run("cache", "show", "main", "--json", folder=empty).json["calls"]
    assert [(call["causes"], call["lost_tokens"]) for call in calls[1:]] == [([], 0), ([], 0)]
    assert calls[1]["predicted_tokens"] is None


def test_session_without_reported_usage_says_so(talk: Path, empty: Path) -> None:
    assert run("import", talk, "--session", "s", folder=empty).code == 0
    before = rows_of(empty)
    ran = run("cache", "show", "s", folder=empty)
    assert ran.code == 0
    assert ran.out.count("not reported") == 2
    assert ran.out.endswith("Cache use unknown: no call has reported usage\n")
    totals = run("cache", "show", "s", "--json", folder=empty).json["totals"]
    assert (totals["share"], totals["dollars"], totals["reported_calls"]) == (None, None, 0)
    assert rows_of(empty) == before


def test_unknown_session_and_model_without_prices(empty: Path) -> None:
    assert run("cache", "show", "none", folder=empty).code == 2
    with nexus.open(empty, model="our-own") as nx:
        for number, read in enumerate((0, 2_000, 0)):
            record(nx, f"Question {number}", TokenUsage(2_000 + number, 5, read))
    shown = run("cache", "show", "main", folder=empty).out
    assert "Prices unknown for our-own" in shown
    assert "Prefix breaks: 1, 2,001 tokens processed again\n" in shown
    assert "unknown: the prompt extends the last one" in shown


@pytest.mark.parametrize("number", ["01", "06", "09"])
def test_real_sessions_read_what_is_predicted_except_at_breaks(data: Path, empty: Path, number: str) -> None:
    path = data / "claude_code" / f"session_{number}.jsonl"
    assert run("import", path, "--session", "s", folder=empty).code == 0
    value = run("cache", "show", "s", "--json", folder=empty).json
    plain = [call for call in value["calls"] if call["input_tokens"] and not call["causes"]]
    assert len(plain) >= 4
    for call in plain:
        assert call["read_tokens"] == pytest.approx(call["predicted_tokens"], rel=0.02), call
    assert all(call["lost_tokens"] == 0 or call["causes"] for call in value["calls"])
    assert 0.7 < value["totals"]["share"] < 1
