"""State of a proxy as text: its calls and conversations, what was read from the cache, and the cost without the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click
import msgspec

from nexus.cli._output import count_noun, print_lines
from nexus.cli._tables import print_table
from nexus.engine import open_engine
from nexus.ledger.location import open_ledger
from nexus.proxy.savings import newest_costs, sum_costs
from nexus.workspace.files.reader import home_folder


def print_state(state: dict[str, Any]) -> None:
    """Print the state of a running proxy, as its own page has it."""
    counts = state["counts"]
    calls = count_noun(counts.get("calls", 0), "call")
    others = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items() if name != "calls")
    mode = f"{state['mode']} without text (no replay, no undo)" if state["no_text"] else state["mode"]
    click.echo(f"{state['url']}: {mode}, {calls}{': ' if others else ''}{others}")
    print_lines(f"  {line}" for line in _money_lines(state))
    rows = [_row(conversation) for conversation in state["conversations"]]
    if rows:
        names = ("last", "client", "session", "calls", "tokens", "of", "cached", "cost", "left out")
        print_table(names, rows, numbers=("calls", "tokens", "of", "cached", "cost", "left out"), wraps=("session",))


def simulated_costs(ledger: str) -> dict[str, Any]:
    """Return what the newest calls of a ledger had cost the other way, as JSON values."""
    store = open_ledger(None, ledger, home_folder())
    with open_engine(None, ledger=store) as nx:
        costs = newest_costs(nx)
    return {
        "without_proxy": msgspec.to_builtins(sum_costs(costs, is_changing=True)),
        "with_breakpoints": msgspec.to_builtins(sum_costs(costs, is_changing=False)),
    }


def _money_lines(state: dict[str, Any]) -> Iterator[str]:
    cache = state["cache"]
    if cache["input_tokens"]:
        read = f"{cache['read_tokens']:,} of {cache['input_tokens']:,} input tokens read"
        yield f"cache: {read}, {100 * cache['read_tokens'] // cache['input_tokens']} %"
    if cache["misses"]:
        yield "not read: " + ", ".join(f"{cause} ({count:,})" for cause, count in cache["misses"].items())
    cost = state.get("cost")
    if cache["unmarked_calls"] and cost is None:
        calls = count_noun(cache["unmarked_calls"], "call")
        yield f"{calls} without cache breakpoints: --cost simulates what they would save, --mode heal adds them"
    if cost is None:
        return
    for name, way in (("without_proxy", "without the proxy"), ("with_breakpoints", "with cache breakpoints")):
        yield from _savings_lines(cost[name], way)


def _savings_lines(savings: dict[str, Any], way: str) -> Iterator[str]:
    missing = savings["missing"]
    if savings["calls"]:
        calls = count_noun(savings["calls"], "call")
        yield (
            f"input of {calls}: ${savings['reported_usd']:.4f} as reported, ${savings['simulated_usd']:.4f} {way} (simulated)"
        )
    if missing:
        reasons = ", ".join(f"{count:,} {why}" for why, count in missing.items())
        yield f"no figure {way} for {count_noun(sum(missing.values()), 'call')}: {reasons}"
    if not savings["calls"] and not missing and way == "without the proxy":
        yield "no calls in heal or fit: nothing to compare"


def _row(conversation: dict[str, Any]) -> tuple[str, ...]:
    reported = conversation["input_tokens"]
    cached = f"{100 * conversation['cache_read_tokens'] // reported} %" if reported else ""
    cost = conversation["cost_usd"]
    return (
        f"{datetime.fromtimestamp(conversation['last_ms'] / 1000):%H:%M}",  # noqa: DTZ006 - the user's own time
        conversation["client"],
        conversation["session"] or conversation["conversation"],
        f"{conversation['calls']:,}",
        f"{conversation['tokens']:,}" if conversation["tokens"] else "",
        f"{conversation['budget']:,}" if conversation["budget"] else "",
        cached,
        "" if cost is None else f"${cost:.2f}",
        f"{conversation['omitted']:,}" if conversation["omitted"] else "",
    )
