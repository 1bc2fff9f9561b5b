"""`nexus models`: windows, output limits and prices, and what a ledger has learned about counting."""

from __future__ import annotations

from typing import cast

import click
import msgspec

from nexus.assembly.record import calibration_factor, parse_calibration_key
from nexus.cli.listing import moment
from nexus.cli.shared import common, emit, open_here
from nexus.cli.table import print_table
from nexus.render.console import printable
from nexus.tokens.model import Model, all_models, resolve, snapshot_date
from nexus.tokens.model_names import same_model


@click.command("models")
@click.argument("name", required=False)
@click.option("--calibrated", is_flag=True, help="What the ledger has learned from reported usage about counting.")
@common
def command(name: str | None, workspace: str | None, ledger: str | None, *, calibrated: bool, as_json: bool) -> None:
    """List all known models, or show how NAME is resolved."""
    if calibrated:
        _calibrated(name, workspace, ledger, as_json=as_json)
        return
    if name:
        _one(resolve(name), as_json=as_json)
        return
    models = all_models()
    if as_json:
        emit({"date": snapshot_date(), "models": msgspec.to_builtins(models)})
        return
    names = ("model", "provider", "window", "output", "in", "cached", "out")
    print_table(names, map(_row, models), numbers=names[2:], wraps=names[:1])
    click.echo(f"snapshot of {snapshot_date()}; prices in USD per million tokens")


def _calibrated(name: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    with open_here(workspace, ledger) as nx:
        found = [one for one in nx.store.calibrations() if not name or same_model(parse_calibration_key(one[1]), name)]
        models = [nx.resolve(parse_calibration_key(model)) for _, model, _ in found]
    learned = [
        (*one, calibration_factor(model, one[2]), model.token_factor) for one, model in zip(found, models, strict=True)
    ]
    if as_json:
        fields = ("provider", "model", "samples", "at_ms", "factor", "cold_factor")
        emit([dict(zip(fields, (p, m, c.samples, c.at_ms, *factors), strict=True)) for p, m, c, *factors in learned])
        return
    if not learned:
        click.echo("Nothing learned yet: `nexus record` learns from the usage that replies report.")
        return
    names = ("model", "provider", "factor", "before", "reports", "last learned")
    lines = (
        (model, provider, f"{factor:.2f}", f"{cold:.2f}", f"{one.samples:,}", moment(one.at_ms))
        for provider, model, one, factor, cold in learned
    )
    print_table(names, lines, numbers=names[2:5], wraps=names[:1])
    click.echo("factor: the model's tokens for one base token; before: what it is without any report")


def _row(model: Model) -> tuple[str, ...]:
    prices = model.prices
    figures = [f"{price:g}" for price in (prices.input, prices.cache_read, prices.output)] if prices else ["", "", ""]
    return model.name, model.provider, f"{model.context_tokens:,}", f"{model.max_output_tokens:,}", *figures


def _one(model: Model, *, as_json: bool) -> None:
    if as_json:
        emit(msgspec.to_builtins(model))
        return
    for field, value in msgspec.to_builtins(model).items():
        if value not in ("", None):
            click.echo(f"{field.replace('_', ' '):<20} {printable(_shown(value))}")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {price:g}" for key, price in cast("dict[str, float]", value).items())
    return f"{value:,}" if type(value) is int else str(value)
