"""`nexus cache-sim`: what a recorded session would have cost with a prompt cache, by how its history is trimmed."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import click
import msgspec

from nexus.cli.listing import label_of, quoted
from nexus.cli.shared import common, emit, named_profile, open_here, progress_bar, read_tools
from nexus.cli.table import print_table
from nexus.engine import Engine
from nexus.providers.prompt_cache import dollars
from nexus.render.console import printable
from nexus.simulation.cache import PolicyResult, Simulation, simulate_session
from nexus.tokens.model import Model

PROVIDERS = {
    "anthropic": "claude-sonnet-4-5",
    "deepseek": "deepseek-chat",
    "gemini": "gemini-2.5-pro",
    "groq": "groq/openai/gpt-oss-120b",
    "openai": "gpt-5.5",
}
"""The model that is taken for a provider where none is named."""

COLUMNS = ("policy", "calls", "input", "read", "written", "fresh", "cached", "input $", "relative", "breaks", "mean")


@click.command("cache-sim")
@click.argument("session", default="main")
@click.option("--provider", type=click.Choice(list(PROVIDERS)), help="Whose cache; its usual model if none is named.")
@click.option("-m", "--model", default="", help="Model, for its window, prices and cache rules [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves].")
@click.option("--ttl", type=click.Choice(["5m", "1h"]), help="How long Anthropic's marks keep a prefix [5m].")
@click.option(
    "--interval",
    type=click.IntRange(min=0, max=31_536_000),
    default=30,
    show_default=True,
    help="Seconds between calls whose time is not known.",
)
@click.option("--keep", type=click.IntRange(min=0), help="History that a cut must keep [a quarter of the budget].")
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, sent with each call.")
@click.option("--profile", default="layered", show_default=True, help="Form of the contexts, a name or a file.")
@common
def command(
    session: str,
    provider: str | None,
    model: str,
    budget: int | None,
    ttl: str | None,
    interval: int,
    keep: int | None,
    tools: str | None,
    profile: str,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Play SESSION again and show what its prompts cost with a prompt cache, by the way in which they are trimmed.

    Four ways: nexus; window, the newest that fit; refill, each time the budget full; nothing, no trimming at all.

    Example: nexus cache-sim main --budget 16000
    """
    given = read_tools(tools) if tools else ()
    profile, more = named_profile(profile)
    with open_here(workspace, ledger, **more) as nx, progress_bar("Simulating") as told:
        found = simulate_session(
            nx,
            label_of(nx, session),
            _model(nx, provider, model, ttl),
            budget=budget,
            hour=ttl == "1h",
            interval_ms=interval * 1000,
            tools=given,
            least_kept=keep,
            profile=profile,
            progress=told,
        )
    if as_json:
        emit(_value(found))
        return
    for line in _heading(found):
        click.echo(printable(line))
    if found.calls:
        print_table(COLUMNS, (_row(found, row) for row in found.rows), numbers=COLUMNS[1:])
        for line in _below(found):
            click.echo(printable(line))


def _model(nx: Engine, provider: str | None, name: str, ttl: str | None) -> Model:
    """The model that is named, else the provider's. Raises BadParameter where they do not fit each other."""
    model = nx.resolve(name or PROVIDERS.get(provider or "", nx.model))
    if provider and provider not in (model.provider, model.vendor):
        raise click.BadParameter(
            f"{model.name} is a model of {model.provider}, not of {provider}: leave --provider out, or the model",
            param_hint="--provider",
        )
    if ttl and model.vendor != "anthropic":
        raise click.BadParameter(
            f"the cache of {model.provider} keeps what it keeps: only Anthropic's marks have a choice of time",
            param_hint="--ttl",
        )
    return model


def _heading(found: Simulation) -> Iterator[str]:
    rule, model = found.rule, found.model
    yield f"{quoted(found.session)}: {found.calls:,} calls to {model.name} ({model.provider}), budget {found.available:,} tokens"
    kind = (
        f"marks, at most {rule.max_breakpoints}, look-back {rule.lookback_blocks} blocks"
        if rule.uses_breakpoints
        else "automatic"
    )
    life = f"{rule.ttl_ms // 60_000} minutes"
    yield f"Cache: {kind}; from {rule.min_tokens:,} tokens in steps of {rule.step_tokens}; kept for {life}"
    if model.warning:
        yield f"Warning: {model.warning}"
    if not rule.priced:
        yield "No price is known for this model: only the relative cost is shown, by the usual factors of such a cache"
    if found.timed < found.calls:
        yield (
            f"The time of {_calls(found.calls - found.timed)} is not known: "
            f"each comes {found.interval_ms / 1000:g} s after the one before"
        )
    if not found.calls:
        yield "The model answered nothing in this session: there is no call to simulate"


def _row(found: Simulation, row: PolicyResult) -> tuple[str, ...]:
    sums, relative = row.totals, found.relative(row)
    tokens = (sums.calls, sums.prompt, sums.read, sums.written, sums.uncached)
    return (
        row.policy,
        *(f"{number:,}" for number in tokens),
        f"{sums.share:.1%}",
        _usd(sums.input_dollars) if found.rule.priced else "",
        "" if relative is None else f"{relative:.2f}",
        f"{row.breaks.count:,}",
        f"{row.mean_prompt:,}",
    )


def _below(found: Simulation) -> Iterator[str]:
    """What the table does not hold: refused calls, prompts over the window, other misses, the price of breaks."""
    if found.rule.priced:
        yield f"The answers are not in the table: {_usd(found.rows[0].totals.output_dollars)} USD with nexus"
    for row in found.rows:
        sums, breaks = row.totals, row.breaks
        if row.refused:
            yield f"{row.policy}: {_calls(row.refused)} refused: what is never cut is over the budget"
        if row.over_window:
            limit = found.model.max_input_tokens
            yield f"{row.policy}: {_calls(row.over_window)} over the window of {limit:,} tokens, which would fail"
        other = [f"{_calls(sums.misses[why])} {text}" for why, text in _MISSES.items() if why in sums.misses]
        if other:
            yield f"{row.policy}: {', '.join(other)}"
        if breaks.count:
            price = "" if breaks.dollars is None else f", {_usd(breaks.dollars)} USD"
            after = _paid_back(breaks.paid_back)
            yield (
                f"{row.policy}: a break writes {breaks.rewritten:,} tokens again{price}, drops {breaks.dropped:,} "
                f"and pays for itself {after}; one in {sums.calls / breaks.count:.1f} calls"
            )
    if found.marks is not None and found.marks.boundary:
        yield (
            f"Cheapest cuts at {found.growth:,} new tokens a call, keeping at least {found.least_kept:,} of the history: "
            f"at {found.marks.high:,} tokens, down to {found.marks.low:,}, every {_calls(found.marks.calls)}"
        )


_MISSES: dict[Any, str] = {
    "expired": "after the cache had expired",
    "minimum": "after a prompt that was too short to be cached",
    "lookback": "without a mark near enough to what was cached",
    "unmarked": "without marks",
}


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number:,} calls"


def _paid_back(calls: int | None) -> str:
    if calls is None:
        return "never"
    return f"after {calls:,} more {'call' if calls == 1 else 'calls'}" if calls else "at once"


def _usd(amount: Decimal) -> str:
    return f"{amount:.4f}"


def _value(found: Simulation) -> dict[str, Any]:
    """The simulation as JSON. Dollars are null where no price is known."""
    priced = found.rule.priced
    marks = found.marks and {
        "low": found.marks.low,
        "high": found.marks.high,
        "calls": found.marks.calls,
        "dollars_per_new_token": float(found.marks.cost) * float(dollars(1)) if priced else None,
        "over_high_mark": found.marks.now,
    }
    rule = {key: value for key, value in msgspec.to_builtins(found.rule).items() if "rates" not in key}
    return {
        "session": found.session,
        "model": found.model.name,
        "provider": found.model.provider,
        "budget": found.available,
        "calls": found.calls,
        "timed": found.timed,
        "interval_s": found.interval_ms / 1000,
        "cache": rule,
        "growth": found.growth,
        "least_kept": found.least_kept,
        "policies": [_policy(found, row) for row in found.rows],
        "cheapest_marks": marks,
    }


def _policy(found: Simulation, row: PolicyResult) -> dict[str, Any]:
    sums, breaks, priced = row.totals, row.breaks, found.rule.priced
    return {
        "policy": row.policy,
        "calls": sums.calls,
        "input": sums.prompt,
        "read": sums.read,
        "written": sums.written,
        "fresh": sums.uncached,
        "output": sums.output,
        "cached_share": sums.share,
        "input_dollars": float(sums.input_dollars) if priced else None,
        "output_dollars": float(sums.output_dollars) if priced else None,
        "relative_cost": found.relative(row),
        "mean_prompt": row.mean_prompt,
        "largest_prompt": sums.largest_prompt,
        "refused": row.refused,
        "over_window": row.over_window,
        "outcomes": dict(sums.misses),
        "breaks": {
            "count": breaks.count,
            "rewritten": breaks.rewritten,
            "dropped": breaks.dropped,
            "dollars": None if breaks.dollars is None else float(breaks.dollars),
            "paid_back_after_calls": breaks.paid_back,
        },
    }
