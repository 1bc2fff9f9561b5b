"""`nexus config models`: context windows, output limits and prices, and the calibrated token factors of a ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import click
import msgspec

from nexus.assembly.record import calibration_factor, parse_calibration_key
from nexus.cli._listing import Column, Listing, number, time, wrapped
from nexus.cli._options import CommandOptions, nexus_command
from nexus.render.console import printable
from nexus.tokens.model import Model, all_models, newest_like, resolve, retirement_date, snapshot_date
from nexus.tokens.model_names import same_model


def _price(kind: str) -> Callable[[Model], str]:
    """Return the cell of one of a model's prices; empty without prices."""
    return lambda model: f"{getattr(model.prices, kind):g}" if model.prices else ""


MODELS = Listing(
    wrapped("model", "name"),
    Column("provider"),
    number("window", "context_tokens"),
    number("output", "max_output_tokens"),
    number("in", _price("input")),
    number("cached", _price("cache_read")),
    number("out", _price("output")),
    Column("until", retirement_date),
)
CALIBRATIONS = Listing(
    wrapped("model"),
    Column("provider"),
    number("factor", lambda value: f"{value['factor']:.2f}"),
    number("initial", lambda value: f"{value['cold_factor']:.2f}"),
    number("reports", "samples"),
    time("updated", "at_ms"),
    empty="No calibrations yet (`nexus record` calibrates from the usage that replies report).",
)


@nexus_command("models")
@click.argument("name", required=False)
@click.option("--calibrated", is_flag=True, help="Show the token factors that the ledger has from reported usage.")
def command(name: str | None, calibrated: bool, options: CommandOptions) -> None:
    """List the known models, or show how NAME is resolved.

    Models have context windows, output limits, prices and announced last days.

    Example: nexus config models claude-sonnet-5-5
    """
    if calibrated:
        _print_calibrations(name, options)
    elif name:
        fields = _facts(resolve(name))
        shown = {field: value for field, value in fields.items() if value not in ("", None)}
        options.report(
            fields,
            *(f"{field.replace('_', ' '):<20} {printable(_display(value))}" for field, value in shown.items()),
        )
    else:
        models = list(all_models())
        MODELS.print(models, options, document={"date": snapshot_date(), "models": list(map(_facts, models))})
        if not options.as_json:
            click.echo(f"snapshot of {snapshot_date()}; prices in USD per million tokens; until: announced last day")


def _facts(model: Model) -> dict[str, Any]:
    """Return the model's fields, the announced last day, and a newer model of its kind."""
    return {**msgspec.to_builtins(model), "retires": retirement_date(model), "newer": newest_like(model)}


def _print_calibrations(name: str | None, options: CommandOptions) -> None:
    values: list[dict[str, Any]] = []
    with options.open() as nx:
        for provider, key, calibration in nx.ledger.upkeep.calibrations():
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
    CALIBRATIONS.print(values, options)
    if values and not options.as_json:
        click.echo(
            "factor: the model's tokens per base token, or per token of the estimate by content; "
            "initial: the factor without reports"
        )


def _display(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {price:g}" for key, price in cast("dict[str, float]", value).items())
    if type(value) is int:
        return f"{value:,}"
    return str(value)
