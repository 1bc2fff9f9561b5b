"""`nexus models`: windows, output limits and prices."""

from __future__ import annotations

from typing import cast

import click
import msgspec

from nexus.budget.models import Model, all_models, resolve, snapshot_date
from nexus.cli.shared import common, console, emit


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
    from rich.table import Table

    table = Table(box=None, pad_edge=False, caption=f"snapshot of {snapshot_date()}; prices in USD per million tokens")
    for column in ("model", "provider", "window", "output", "in", "cached", "out"):
        table.add_column(column, justify="left" if column in ("model", "provider") else "right", no_wrap=True)
    for model in models:
        prices = model.prices
        figures = (prices.input, prices.cache_read, prices.output) if prices else ()
        cells = [f"{figure:g}" for figure in figures] or ["", "", ""]
        table.add_row(model.name, model.provider, f"{model.context_tokens:,}", f"{model.max_output_tokens:,}", *cells)
    console(width=120).print(table)


def _one(model: Model, *, as_json: bool) -> None:
    if as_json:
        emit(msgspec.to_builtins(model))
        return
    for field, value in msgspec.to_builtins(model).items():
        if value not in ("", None):
            click.echo(f"{field.replace('_', ' '):<20} {_shown(value)}")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {price:g}" for key, price in cast("dict[str, float]", value).items())
    return f"{value:,}" if type(value) is int else str(value)
