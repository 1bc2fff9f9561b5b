"""`nexus usage`: calls, tokens and cost of all sessions by day and project."""

from __future__ import annotations

from typing import Any

import click
from msgspec import Struct

from nexus.cli._listing import Column, Listing, number, wrapped
from nexus.cli._options import TENANT_OPTION, CommandOptions, nexus_command
from nexus.cli._output import format_time
from nexus.cli._parameters import Choice
from nexus.cli._usage import ReportedCall, project_of, reported_calls, short_outputs
from nexus.engine import Engine

LOCAL_PROJECT = "(this workspace)"
"""Project of sessions that were not imported, in tables; empty in JSON."""

COUNTS = ("sessions", "calls", "input", "cached", "output")


class _Total(Struct):
    """Sums over the calls of a day and project."""

    day: str
    project: str
    sessions: set[str]
    calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    dollars: float = 0.0
    unpriced_calls: int = 0
    short_outputs: int = 0

    def add(self, session: str, call: ReportedCall) -> None:
        """Add a call."""
        self.sessions.add(session)
        self.calls += 1
        self.input += call.usage.input_tokens
        self.cached += call.usage.cache_read_tokens
        self.output += call.usage.output_tokens
        self.dollars += call.dollars or 0.0
        self.unpriced_calls += call.dollars is None
        self.short_outputs += call.is_output_short

    def value(self) -> dict[str, Any]:
        """Return the sums as JSON; dollars are null if no call has a known price."""
        is_priced = self.unpriced_calls < self.calls
        return {
            "day": self.day,
            "project": self.project,
            "sessions": len(self.sessions),
            **{name: getattr(self, name) for name in COUNTS[1:]},
            "dollars": round(self.dollars, 6) if is_priced else None,
            "unpriced_calls": self.unpriced_calls,
            "short_outputs": self.short_outputs,
        }


@nexus_command("usage")
@TENANT_OPTION
@click.option(
    "--by", type=Choice(["day", "project", "both"]), default="both", show_default=True, help="Rows of the table."
)
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="Only calls from this day on (UTC).")
def command(by: str, since: Any, options: CommandOptions) -> None:
    """Show calls, tokens and cost of all sessions by day and project.

    The usage is what providers reported, the cost is at list prices. Days are in UTC, the project is the folder of an
    imported session. Archived and deleted sessions count too; calls that forks share count once.

    Example: nexus usage --by project
    """
    first_day = ""
    if since is not None:
        first_day = since.strftime("%Y-%m-%d")
    with options.open(reads_stored=True, needs_config=False) as nx:
        totals = _totals(nx, by, first_day)
    values = [total.value() for total in totals]
    places = [column for column in PLACES if by in (column.name, "both")]
    listing = Listing(*places, *map(number, COUNTS), number("USD", _dollars), empty=NO_CALLS)
    empty = ""
    if first_day:
        empty = f"No calls with reported usage since {first_day}."
    listing.print(_rows(values, places[0].name), options, empty=empty, document=values)
    if not options.as_json and (short := sum(total.short_outputs for total in totals)):
        click.echo(f"The cost is at least this: {short_outputs(short)}.")


def _totals(nx: Engine, by: str, first_day: str) -> list[_Total]:
    """Return the sums, newest day first, then the dearest project."""
    totals: dict[tuple[str, str], _Total] = {}
    counted_keys: set[str] = set()
    for info in sorted(nx.sessions(include_inactive=True), key=lambda info: info.thread):
        project = project_of(nx, info.label)
        for call in reported_calls(nx, info.label):
            day = format_time(call.at_ms)[:10]
            if call.key in counted_keys or day < first_day:
                continue
            counted_keys.add(call.key)
            key = (day if by != "project" else "", project if by != "day" else "")
            totals.setdefault(key, _Total(*key, set())).add(info.label, call)
    ordered = sorted(totals.values(), key=lambda total: (-total.dollars, total.project))
    return sorted(ordered, key=lambda total: total.day, reverse=True)


def _rows(values: list[dict[str, Any]], first_column: str) -> list[dict[str, Any]]:
    """Return the rows, and below several ones their sum."""
    if len(values) < 2:
        return values
    total: dict[str, Any] = {name: sum(value[name] for value in values) for name in (*COUNTS[1:], "unpriced_calls")}
    priced = [value["dollars"] for value in values if value["dollars"] is not None]
    total["dollars"] = sum(priced) if priced else None
    # Calls of one session on several days would count it several times.
    total |= {"day": None, "project": None, "sessions": None, first_column: "total"}
    return [*values, total]


def _dollars(value: dict[str, Any]) -> str:
    if value["dollars"] is None:
        return "unknown"
    unknown = ""
    if value["unpriced_calls"]:
        unknown = f" + {value['unpriced_calls']:,} unknown"
    return f"{value['dollars']:,.2f}{unknown}"


PLACES = (
    Column("day", lambda value: "(unknown)" if value["day"] == "" else value["day"] or ""),
    wrapped("project", lambda value: LOCAL_PROJECT if value["project"] == "" else value["project"] or ""),
)
"""The first columns, of which `--by` chooses."""
NO_CALLS = "No calls with reported usage (add sessions: nexus import FILE or nexus record)."
