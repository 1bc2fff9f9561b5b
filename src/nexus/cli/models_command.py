"""`nexus models`: context windows, output limits and prices, and the calibrated token factors of a ledger."""

from __future__ import annotations

from typing import Any, cast

import click
import msgspec

from nexus.assembly.record import calibration_factor, parse_calibration_key
from nexus.cli._options import CommandOptions, nexus_command
from nexus.cli._output import emit, format_time
from nexus.cli._tables import print_table
from nexus.render.console import printable
from nexus.tokens.model import all_models, resolve, snapshot_date
from nexus.tokens.model_names import same_model


@nexus_command("models")
@click.argument("name", required=False)
@click.option("--calibrated", is_flag=True, help="Show the token factors that the ledger has from reported usage.")
def command(name: str | None, calibrated: bool, options: CommandOptions) -> None:
    """List all known models, or show how NAME is resolved."""
    if calibrated:
        _print_calibrations(name, options)
    elif name:
        fields = msgspec.to_builtins(resolve(name))
        shown = {field: value for field, value in fields.items() if value not in ("", None)}
        options.report(
            fields,
            *(f"{field.replace('_', ' '):<20} {printable(_display(value))}" for field, value in shown.items()),
        )
    elif options.as_json:
        emit({"date": snapshot_date(), "models": all_models()})
    else:
        names = ("model", "provider", "window", "output", "in", "cached", "out")
        rows: list[tuple[str, ...]] = []
        for model in all_models():
            prices = (model.prices.input, model.prices.cache_read, model.prices.output) if model.prices else ()
            figures = [f"{price:g}" for price in prices] or ["", "", ""]
            limits = (f"{model.context_tokens:,}", f"{model.max_output_tokens:,}")
            rows.append((model.name, model.provider, *limits, *figures))
        print_table(names, rows, numbers=names[2:], wraps=names[:1])
        click.echo(f"snapshot of {snapshot_date()}; prices in USD per million tokens")


def _print_calibrations(name: str | None, options: CommandOptions) -> None:
    values: list[dict[str, Any]] = []
    with options.open() as nx:
        for provider, key, calibration in nx.ledger.calibrations():
            model_name, by_content = parse_calibration_key(key)
            if name and not same_model(model_name, name):
                continue
            model = nx.resolve(model_name)
            if not by_content:
                model = msgspec.structs.replace(model, content=None)
            values.append(
                {
                    "provider": provider,
                    "model": key,
                    "samples": calibration.samples,
                    "at_ms": calibration.at_ms,
                    "factor": calibration_factor(model, calibration),
                    "cold_factor": model.initial_factor,
                }
            )
    names = ("model", "provider", "factor", "initial", "reports", "updated")
    rows = (
        (
            value["model"],
            value["provider"],
            f"{value['factor']:.2f}",
            f"{value['cold_factor']:.2f}",
            f"{value['samples']:,}",
            format_time(value["at_ms"]),
        )
        for value in values
    )
    empty = "No calibrations yet (`nexus record` calibrates from the usage that replies report)."
    options.report_table(values, names, rows, empty=empty, numbers=names[2:5], wraps=names[:1])
    if values and not options.as_json:
        click.echo(
            "factor: the model's tokens per base token, or per token of the estimate by content; "
            "initial: the factor without reports"
        )


def _display(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {price:g}" for key, price in cast("dict[str, float]", value).items())
    return f"{value:,}" if type(value) is int else str(value)
