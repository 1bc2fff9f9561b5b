"""What calls would have cost otherwise, against sums made by hand with Anthropic's list prices."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.proxy.savings import CallCost, newest_costs, sum_costs
from nexus.testing.fakes import FixedClock
from nexus.testing.model_server import model_server, reply
from proxy.running import running_proxy
from proxy.test_cache_misses import LONG, Body, asked, marked, used
from proxy.test_commands import CLIENT, proxy_process
from proxy.test_commands import nexus as run_nexus
from proxy.test_formats import request_of

# Claude Sonnet 4.5, USD for a token.
INPUT, WRITE, READ = 3e-6, 3.75e-6, 0.3e-6


def costs_in(ledger: Path) -> list[CallCost]:
    with nexus.open(ledger=ledger) as nx:
        return newest_costs(nx)


def test_breakpoints_that_the_client_lacks_are_what_heal_saves(tmp_path: Path) -> None:
    texts = [f"Question 1. {LONG}", "ok", f"Question 2. {LONG}"]
    with model_server() as provider, running_proxy(provider, tmp_path / "l.db", mode="heal") as running:
        asked(running, provider, request_of("anthropic", texts[:1])[1], used(10_000, 0, 10_000))
        asked(running, provider, request_of("anthropic", texts)[1], used(12_000, 10_000, 2_000))
    first, second = costs_in(tmp_path / "l.db")
    assert first.reported_usd == pytest.approx(10_000 * WRITE)
    assert first.simulated_usd == pytest.approx(10_000 * INPUT)
    assert second.reported_usd == pytest.approx(10_000 * READ + 2_000 * WRITE)
    assert second.simulated_usd == pytest.approx(12_000 * INPUT)
    savings = sum_costs([first, second], is_changing=True)
    assert savings.simulated_usd - savings.reported_usd == pytest.approx(0.066 - 0.048)


def test_cut_list_is_compared_with_the_whole_one_at_cache_prices(tmp_path: Path) -> None:
    """A token is a word here, as the scripted provider counts what it gets."""
    texts = [f"Say {number:03}. {LONG}" for number in range(1, 40)]
    with model_server() as provider, running_proxy(provider, tmp_path / "l.db", mode="fit", budget=9_000) as running:
        for count in (11, 13, 15, 17, 19):
            call = asked(running, provider, marked(texts[:count]), reply(texts[count]))
            if call["outcome"] == "fitted":
                break
    *whole, cut = costs_in(tmp_path / "l.db")
    assert call["omitted"] > 2
    assert [cost.simulated_usd for cost in whole] == [cost.reported_usd for cost in whole]
    assert cut.reported_usd == pytest.approx(len(provider.requests[-1].data.split()) * INPUT)
    before = words(marked(texts[: count - 2]))
    expected = before * READ + (words(marked(texts[:count])) - before) * WRITE
    assert cut.simulated_usd == pytest.approx(expected, rel=0.05)


def words(body: Body) -> int:
    return len(json.dumps(body, separators=(",", ":")).split())


def test_record_says_what_breakpoints_would_have_saved(tmp_path: Path) -> None:
    texts = [f"Question 1. {LONG * 40}", "ok", "Yes?"]
    with model_server() as provider, running_proxy(provider, tmp_path / "l.db") as running:
        asked(running, provider, request_of("anthropic", texts[:1])[1], used(10_000))
        asked(running, provider, request_of("anthropic", texts)[1], used(10_010))
        asked(running, provider, marked(["A client that sets some."]), used(2_000, 0, 2_000))
    first, second = costs_in(tmp_path / "l.db")
    assert (first.reported_usd, second.reported_usd) == (pytest.approx(10_000 * INPUT), pytest.approx(10_010 * INPUT))
    assert first.simulated_usd == pytest.approx(10_000 * WRITE)
    assert second.simulated_usd == pytest.approx(10_010 * READ, rel=0.1)
    assert sum_costs([first, second], is_changing=True).calls == 0
    assert sum_costs([first, second], is_changing=False).calls == 2


def test_cache_of_the_other_way_expires_as_the_providers(tmp_path: Path) -> None:
    texts = [f"Question 1. {LONG * 5}", "ok", "Yes?"]
    clock = FixedClock()
    with (
        nexus.open(ledger=tmp_path / "l.db", clock_ms=clock) as nx,
        model_server() as provider,
        running_proxy(provider, nx=nx) as running,
    ):
        asked(running, provider, request_of("anthropic", texts[:1])[1], used(10_000))
        clock.advance(6 * 60_000)
        asked(running, provider, request_of("anthropic", texts)[1], used(10_010))
    _, second = costs_in(tmp_path / "l.db")
    assert second.simulated_usd == pytest.approx(10_010 * WRITE)


def test_calls_without_a_figure_are_counted_with_the_reason(tmp_path: Path) -> None:
    def question(number: int, **fields: Any) -> Body:
        return {**marked([f"Question {number}. {LONG}"]), **fields}

    with model_server() as provider, running_proxy(provider, tmp_path / "l.db", mode="heal") as running:
        asked(running, provider, question(1), used(3_000, 0, 3_000))
        asked(running, provider, question(2), used(0))
        asked(running, provider, question(3, model="a-model-of-nobody"), used(3_000))
        asked(running, provider, question(4), used(900_000))
        provider.script(reply("ok", input_tokens=10))
        broken = {**question(5), "messages": [{"role": "user", "content": 5}]}
        httpx.post(f"{running.url}/v1/messages", json=broken, trust_env=False)
    savings = sum_costs(costs_in(tmp_path / "l.db"), is_changing=True)
    assert savings.calls == 1
    assert savings.simulated_usd == savings.reported_usd == pytest.approx(3_000 * WRITE)
    assert savings.missing == {
        "no usage reported": 1, "no prices known": 1, "more than the model takes": 1, "not recorded": 1,
    }  # fmt: skip


def test_erased_conversation_is_not_counted(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    with model_server() as provider, running_proxy(provider, ledger, mode="heal") as running:
        call = asked(running, provider, request_of("anthropic", [LONG])[1], used(3_000, 0, 3_000))
    ended = run_nexus(tmp_path, "session", "delete", call["session"], "--for-good", "--yes", "--ledger", str(ledger))
    assert ended.returncode == 0, ended.stderr
    assert costs_in(ledger) == []


def test_status_call_and_wrap_show_money_and_misses(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    body = request_of("anthropic", [LONG])[1]
    with model_server(used(10_000, 0, 10_000)) as provider, proxy_process(tmp_path, provider, "--mode", "heal") as ran:
        answer = httpx.post(f"{ran['url']}/v1/messages", json=body, trust_env=False, timeout=60)
        plain = run_nexus(tmp_path, "proxy", "status").stdout
        text = run_nexus(tmp_path, "proxy", "status", "--cost").stdout
        wrapped = run_nexus(
            tmp_path, "wrap", "--mode", "heal", sys.executable, "client.py", ANTHROPIC_BASE_URL=provider.anthropic_url
        )
    called = run_nexus(tmp_path, "proxy", "call", answer.headers["x-nexus-call"]).stdout
    assert "cache: 0 of 10,000 input tokens read, 0 %" in plain
    assert "not read: first call of the conversation (1)" in plain
    assert "simulated" not in plain
    assert "input of 1 call: $0.0375 as reported, $0.0300 without the proxy (simulated)" in text
    assert "$0.0375 as reported, $0.0300 without the proxy (simulated)" in called
    assert "0 tokens read from the cache: first call of the conversation" in called
    last = wrapped.stderr.splitlines()[-1]
    assert "1 call, 10,000 tokens of input, 0 % from the cache, $0.04 at list prices" in last
    assert "$0.01 more input than without the proxy (simulated); look: nexus sessions" in last
