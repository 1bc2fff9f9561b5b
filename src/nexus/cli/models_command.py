"""`nexus models`: windows, output limits and prices."""

from __future__ import annotations

from typing import cast

import click
import msgspec

from nexus.budget.models import Model, all_models, resolve, snapshot_date
from nexus.cli.shared import common, emit
from nexus.cli.table import print_table
from nexus.render.console import printable


@click.command("models")
@click.argument("name", required=False)
@common
def command(name: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List all known models, or show how NAME is resolved."""
    del workspace, ledger
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
