"""`nexus cache`: a session's use of the prompt cache as reported, and its cost under different truncation policies."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import click
import msgspec

from nexus.cli._listing import Column, Listing, number, wrapped
from nexus.cli._options import (
    BUDGET_OPTION,
    MODEL_OPTION,
    PROFILE_OPTION,
    TENANT_OPTION,
    TOOLS_OPTION,
    CommandOptions,
    NexusGroup,
    session_argument,
)
from nexus.cli._output import count_noun, emit, emit_with_list, format_time, print_lines, progress_bar, quoted
from nexus.cli._parameters import Choice
from nexus.cli._usage import reported_usage
from nexus.engine import Engine
from nexus.engine.analysis.cache_use import CachedCall, CacheUse, cached_calls, sum_calls
from nexus.engine.simulation.cache import PolicyResult, Simulation, simulate_session
from nexus.providers.prompt_cache import dollars
from nexus.render.console import printable
from nexus.tokens.model import Model
from nexus.tokens.model_table import DEFAULT_MODEL

PROVIDER_MODELS = {
    "anthropic": DEFAULT_MODEL,
    "deepseek": "deepseek-v4-flash",
    "gemini": "gemini-2.5-pro",
    "groq": "groq/openai/gpt-oss-120b",
    "openai": "gpt-5.5",
}
"""Model to use for a provider when none is named."""

CALLS = Listing(
    Column("turn"),
    Column("time"),
    Column("model"),
    *map(number, ("input", "read", "written", "cached", "predicted", "lost", "USD")),
    wrapped("break"),
)
POLICIES = Listing(
    Column("policy"),
    *map(number, ("calls", "input", "read", "written", "fresh", "cached", "input $", "relative", "breaks", "mean")),
)

MISS_REASONS = {
    "expired": "after the cache expired",
    "minimum": "with a prompt too short to be cached",
    "lookback": "without a cache breakpoint near enough to the cached prefix",
    "unmarked": "without cache breakpoints",
}


EXAMPLES = """\b
Examples:
  nexus cache show main                      list reported cache reads and each prefix break
  nexus cache simulate main --budget 16000   compare truncation policies
"""


@click.group("cache", cls=NexusGroup, epilog=EXAMPLES)
def command() -> None:
    """Show a session's use of the prompt cache, or simulate it."""


@command.subcommand("show", epilog="Example: nexus cache show main")
@TENANT_OPTION
@session_argument()
@click.option("--breaks", "breaks_only", is_flag=True, help="List only calls with a prefix break.")
def show(session: str, breaks_only: bool, options: CommandOptions) -> None:
    """Show the reported cache use of each call of SESSION, next to the prediction, and each prefix break with its price.

    read and written are input tokens that the provider read from its cache and stored there. predicted is the part of
    the last prompt that a warm cache can reuse. lost tokens were sent before and processed again.
    """
    with options.session(session) as (nx, label), progress_bar("Reading") as progress:
        calls = list(cached_calls(nx.ledger.store, nx.ledger.thread(label), nx.resolve, progress))
    use = sum_calls(calls)
    listed = calls
    if breaks_only:
        listed = [call for call in calls if call.causes]
    if options.as_json:
        emit_with_list({"session": label, "totals": use}, "calls", map(_call_value, listed))
        return
    click.echo(f"{quoted(label)}: {count_noun(use.calls, 'call')}, {use.reported_calls:,} with reported usage")
    if listed:
        CALLS.print_rows(list(map(_call_row, listed)))
    print_lines(_use_lines(use, {call.model for call in calls}))


def _call_value(call: CachedCall) -> dict[str, Any]:
    return {**msgspec.to_builtins(call), "share": call.share}


def _call_row(call: CachedCall) -> dict[str, Any]:
    row: dict[str, Any] = {
        "turn": call.turn,
        "time": format_time(call.at_ms, seconds=True),
        "model": call.model,
        "input": "not reported",
        "predicted": call.predicted_tokens,
        "lost": call.lost_tokens or None,
        "break": "; ".join(call.causes),
    }
    if call.input_tokens is not None:
        row["input"] = call.input_tokens
        row["read"] = call.read_tokens
        row["written"] = call.written_tokens
        row["cached"] = f"{call.share:.1%}"
    if call.lost_tokens and call.lost_dollars is not None:
        row["USD"] = _format_usd(Decimal(call.lost_dollars))
    return row


def _use_lines(use: CacheUse, models: set[str]) -> Iterator[str]:
    if use.share is None:
        if use.calls:
            yield "Cache use unknown: no call has reported usage"
        return
    if use.predicted_share is None:
        predicted = ""
    else:
        predicted = f"; {use.predicted_share:.1%} predicted with a warm cache"
    yield f"Read from the cache: {use.read_tokens:,} of {use.input_tokens:,} input tokens, {use.share:.1%}{predicted}"
    if use.dollars is not None:
        unpriced = ""
        if use.unpriced_calls:
            unpriced = f", unknown for {count_noun(use.unpriced_calls, 'call')}"
        yield f"Cost at list prices: {use.dollars:,.4f} USD{unpriced}"
    else:
        yield f"Prices unknown for {', '.join(sorted(map(printable, models - {''}))) or 'unnamed models'}"
    if use.lost_dollars is None:
        price = ""
    else:
        price = f", {use.lost_dollars:,.4f} USD more than reading them"
    loss = "nothing processed again"
    if use.breaks:
        loss = f"{use.lost_tokens:,} tokens processed again{price}"
    yield f"Prefix breaks: {use.breaks:,}, {loss}"


@command.subcommand("simulate")
@session_argument(default="main")
@click.option("--provider", type=Choice(list(PROVIDER_MODELS)), help="Provider, with a usual model of it.")
@MODEL_OPTION
@BUDGET_OPTION
@click.option("--ttl", type=Choice(["5m", "1h"]), help="Lifetime of Anthropic's cache breakpoints [5m].")
@click.option(
    "--interval",
    type=click.IntRange(min=0, max=31_536_000),
    default=30,
    show_default=True,
    help="Seconds between calls whose time is unknown.",
)
@click.option("--keep", type=click.IntRange(min=0), help="History that a cut must keep [a quarter of the budget].")
@TOOLS_OPTION
@PROFILE_OPTION
def simulate(
    session: str, provider: str | None, ttl: str | None, interval: int, keep: int | None, options: CommandOptions
) -> None:
    """Simulate prompt-cache cost of SESSION under different truncation policies.

    Policies: nexus; window (the newest messages that fit); refill (fills the budget in each call); nothing (no
    truncation).

    Example: nexus cache simulate main --budget 16000
    """
    definitions = options.tool_definitions()
    with options.session(session) as (nx, label), progress_bar("Simulating") as progress:
        simulation = simulate_session(
            nx,
            label,
            _model(nx, provider, options.model or _own_model(nx, label, provider), ttl),
            budget=options.budget,
            hour=ttl == "1h",
            interval_ms=interval * 1000,
            tools=definitions,
            least_kept=keep,
            profile=options.model_and_profile(nx, label)[1],
            progress=progress,
        )
    if options.as_json:
        emit(_json_value(simulation))
        return
    print_lines(map(printable, _heading(simulation)))
    if simulation.calls:
        POLICIES.print_rows([_row(simulation, result) for result in simulation.rows])
        print_lines(map(printable, _notes(simulation)))


def _own_model(nx: Engine, label: str, provider: str | None) -> str:
    """Return the model of the session's newest reported call, if it has prices; empty if a provider is named."""
    name = "" if provider else reported_usage(nx, label).last_model
    if name and nx.resolve(name).prices:
        return name
    return ""


def _model(nx: Engine, provider: str | None, name: str, ttl: str | None) -> Model:
    """Return the named model, else the provider's. Raises BadParameter if the options contradict each other."""
    model = nx.resolve(name or PROVIDER_MODELS.get(provider or "", nx.model))
    if provider and provider not in (model.provider, model.vendor):
        raise click.BadParameter(
            f"{model.name} is a model of {model.provider}, not of {provider} (omit --provider or the model)",
            param_hint="--provider",
        )
    if ttl and model.vendor != "anthropic":
        raise click.BadParameter(f"{model.provider} has no choice of cache lifetime", param_hint="--ttl")
    return model


def _heading(simulation: Simulation) -> Iterator[str]:
    rule = simulation.rule
    model = simulation.model
    calls = f"{count_noun(simulation.calls, 'call')} to {model.name} ({model.provider})"
    yield f"{quoted(simulation.session)}: {calls}, budget {simulation.available:,} tokens"
    kind = "automatic"
    if rule.uses_breakpoints:
        kind = f"breakpoints, at most {rule.max_breakpoints}, look-back {rule.lookback_blocks} blocks"
    steps = f"from {rule.min_tokens:,} tokens in steps of {rule.step_tokens}"
    yield f"Cache: {kind}; {steps}; lifetime {rule.ttl_ms // 60_000} minutes"
    if model.warning:
        yield f"Warning: {model.warning}"
    if not rule.priced:
        yield "Prices unknown for this model: relative costs only, with the usual factors of such a cache"
    if simulation.timed < simulation.calls:
        unknown = count_noun(simulation.calls - simulation.timed, "call")
        yield f"Time unknown for {unknown}: {simulation.interval_ms / 1000:g} s after the previous call assumed"
    if not simulation.calls:
        yield "No calls to simulate: the model has no messages in this session"


def _row(simulation: Simulation, result: PolicyResult) -> dict[str, Any]:
    totals = result.totals
    relative = simulation.relative(result)
    return {
        "policy": result.policy,
        "calls": totals.calls,
        "input": totals.prompt,
        "read": totals.read,
        "written": totals.written,
        "fresh": totals.uncached,
        "cached": f"{totals.share:.1%}",
        "input $": _format_usd(totals.input_dollars) if simulation.rule.priced else None,
        "relative": None if relative is None else f"{relative:.2f}",
        "breaks": result.breaks.count,
        "mean": result.mean_prompt,
    }


def _notes(simulation: Simulation) -> Iterator[str]:
    """Yield the lines below the table: rejected calls, prompts over the window, other misses, the price of breaks."""
    if simulation.rule.priced:
        yield f"Output is not in the table: {_format_usd(simulation.rows[0].totals.output_dollars)} USD with nexus"
    for result in simulation.rows:
        totals = result.totals
        breaks = result.breaks
        if result.refused:
            yield f"{result.policy}: {count_noun(result.refused, 'call')} rejected: the parts that are never cut exceed the budget"
        if result.over_window:
            limit = simulation.model.max_input_tokens
            yield f"{result.policy}: {count_noun(result.over_window, 'call')} over the window of {limit:,} tokens, which would fail"
        counts = dict(totals.misses)
        misses = [f"{count_noun(counts[why], 'call')} {text}" for why, text in MISS_REASONS.items() if why in counts]
        if misses:
            yield f"{result.policy}: {', '.join(misses)}"
        if breaks.count:
            if breaks.dollars is None:
                price = ""
            else:
                price = f", {_format_usd(breaks.dollars)} USD"
            payback = "never" if breaks.paid_back is None else "at once"
            if breaks.paid_back:
                payback = f"after {breaks.paid_back:,} more {'call' if breaks.paid_back == 1 else 'calls'}"
            yield (
                f"{result.policy}: a break rewrites {breaks.rewritten:,} tokens{price}, drops {breaks.dropped:,} "
                f"and pays for itself {payback}; one in {totals.calls / breaks.count:.1f} calls"
            )
    points = simulation.cut_points
    if points is not None and points.boundary:
        yield (
            f"Cheapest cuts at {simulation.growth:,} new tokens per call, keeping at least {simulation.least_kept:,} of "
            f"the history: at {points.high:,} tokens, down to {points.low:,}, every {count_noun(points.calls, 'call')}"
        )


def _format_usd(amount: Decimal) -> str:
    return f"{amount:.4f}"


def _json_value(simulation: Simulation) -> dict[str, Any]:
    """Return the simulation as JSON; dollars are null for models without prices."""
    priced = simulation.rule.priced
    points = simulation.cut_points
    return {
        "session": simulation.session,
        "model": simulation.model.name,
        "provider": simulation.model.provider,
        "budget": simulation.available,
        "calls": simulation.calls,
        "timed": simulation.timed,
        "interval_s": simulation.interval_ms / 1000,
        "cache": {key: value for key, value in msgspec.to_builtins(simulation.rule).items() if "rates" not in key},
        "growth": simulation.growth,
        "least_kept": simulation.least_kept,
        "policies": [
            {
                "policy": result.policy,
                "calls": result.totals.calls,
                "input": result.totals.prompt,
                "read": result.totals.read,
                "written": result.totals.written,
                "fresh": result.totals.uncached,
                "output": result.totals.output,
                "cached_share": result.totals.share,
                "input_dollars": float(result.totals.input_dollars) if priced else None,
                "output_dollars": float(result.totals.output_dollars) if priced else None,
                "relative_cost": simulation.relative(result),
                "mean_prompt": result.mean_prompt,
                "largest_prompt": result.totals.largest_prompt,
                "refused": result.refused,
                "over_window": result.over_window,
                "outcomes": dict(result.totals.misses),
                "breaks": {
                    "count": result.breaks.count,
                    "rewritten": result.breaks.rewritten,
                    "dropped": result.breaks.dropped,
                    "dollars": None if result.breaks.dollars is None else float(result.breaks.dollars),
                    "paid_back_after_calls": result.breaks.paid_back,
                },
            }
            for result in simulation.rows
        ],
        "cheapest_marks": points
        and {
            "low": points.low,
            "high": points.high,
            "calls": points.calls,
            "dollars_per_new_token": float(points.cost) * float(dollars(1)) if priced else None,
            "over_high_mark": points.now,
        },
    }
