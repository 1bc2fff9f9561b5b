"""`nexus config profile`: the available profiles, their sources by slot, and the cost of their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import msgspec

from nexus.assembly.profiles.user.registry import ProfileEntry
from nexus.cli._exit_numbers import UNREADABLE
from nexus.cli._listing import Column, Listing, number, wrapped
from nexus.cli._options import BUDGET_OPTION, MODEL_OPTION, SESSION, CommandOptions, NexusGroup
from nexus.cli._output import emit, print_warning
from nexus.cli._sessions import resolve_session
from nexus.engine import Engine
from nexus.engine.simulation.profile_order import WHEN, ProfileReport, check_profile_order
from nexus.render.console import printable
from nexus.types.block import PREAMBLE, slot_name
from nexus.types.compaction_plan import FULL, FULL_TO
from nexus.types.counts import count_noun

PROFILES = Listing(
    Column("profile", "name"),
    Column("source", lambda entry: "built-in" if entry.kind == "ready" else entry.source),
    Column("format", lambda entry: entry.profile.message_format if entry.profile else ""),
    wrapped("description", lambda entry: entry.profile.description if entry.profile else f"invalid: {entry.problem}"),
)
SOURCES = Listing(Column("slot"), Column("source"), Column("changes"), number("tokens"), wrapped("blocks from"))

SESSION_OPTION = click.option(
    "-s", "--session", type=SESSION, help="Session of the measured call [main, which may be empty]."
)


@click.group("profile", cls=NexusGroup)
def command() -> None:
    """List, show and check profiles.

    A profile assigns sources to slots, in an order that determines the reuse of prompt caches.

    Example: nexus config profile check mine
    """


@command.subcommand("list")
def list_(options: CommandOptions) -> None:
    """List the profiles.

    They are built in, yours, from plugins, or the workspace's. Warnings go to standard error.

    Example: nexus config profile list
    """
    with options.open() as nx:
        entries, warnings = nx.profiles.entries()
    warnings = [*warnings, *(warning for entry in entries for warning in entry.warnings)]
    document = {"profiles": [_json_value(entry) for entry in entries], "warnings": warnings}
    PROFILES.print(entries, options, document=document)
    if not options.as_json:
        for warning in warnings:
            print_warning(warning)


def _json_value(entry: ProfileEntry) -> dict[str, Any]:
    fields = (
        "message_format",
        "summary",
        "session_header",
        "freeze_system_prompt",
        "compact_at",
        "compact_to",
        "description",
    )
    slots = ("system", "preamble", "current")
    return {
        "name": entry.name,
        "kind": "built-in" if entry.kind == "ready" else entry.kind,
        "from": entry.source,
        **{name: getattr(entry.profile, name, None) for name in (*fields, *slots)},
        "trouble": entry.problem,
    }


@command.subcommand("show")
@click.argument("name")
@SESSION_OPTION
@MODEL_OPTION
@BUDGET_OPTION
def show(name: str, session: str | None, options: CommandOptions) -> None:
    """Show the sources of profile NAME in order.

    Each has its slot, its volatility and its tokens in this workspace. NAME may be a file.

    Example: nexus config profile show layered
    """
    options = replace(options, profile=name)
    with options.open() as nx:
        report = _measure(nx, options.profile_name, session, options)
    if options.as_json:
        emit(_report_value(report))
        return
    profile = report.profile
    title = f"{printable(report.name)} ({printable(report.origin)}), format {profile.message_format}"
    click.echo(f"{title}: {printable(profile.description)}")
    if profile.session_header:
        click.echo("The first message of a new session has the time of its start.")
    if profile.summary == "context":
        click.echo("A summary has the heading [CONTEXT SUMMARY].")
    if profile.freeze_system_prompt:
        click.echo("The system prompt does not change during a session until a compaction or clear.")
    if (profile.compact_at, profile.compact_to) != (FULL, FULL_TO):
        click.echo(
            f"Compaction from {profile.compact_at:.0%} down to {profile.compact_to:.0%} of the available tokens."
        )
    for share in profile.shares:
        click.echo(f"{share.layer}: at least {share.floor:.0%}, at most {share.ceiling:.0%} of the available tokens")
    SOURCES.print_rows(list(_source_rows(report)))
    for warning in report.warnings:
        print_warning(warning, err=False)


def _measure(nx: Engine, name: str, session: str | None, options: CommandOptions) -> ProfileReport:
    label = "main"
    if session is not None:
        label = resolve_session(nx, session)
    return check_profile_order(nx, name, session=label, model=options.model, budget=options.budget)


def _source_rows(report: ProfileReport) -> Iterator[dict[str, Any]]:
    for slot in ("system", PREAMBLE, "current"):
        for row in report.rows:
            if row.slot == slot:
                yield {
                    "slot": slot_name(slot),
                    "source": row.source,
                    "changes": WHEN[row.changes] if row.changes else "not declared",
                    "tokens": row.tokens,
                    "blocks from": ", ".join(row.origins) or "(none now)",
                }
        if slot == PREAMBLE:
            yield {
                "slot": "history",
                "source": "(the conversation)",
                "changes": "",
                "tokens": report.history_tokens,
                "blocks from": "the session's messages",
            }


def _report_value(report: ProfileReport) -> dict[str, Any]:
    value = msgspec.to_builtins(report)
    profile = report.profile
    shares = value.pop("profile")["shares"]
    names = (
        "description",
        "message_format",
        "session_header",
        "freeze_system_prompt",
        "compact_at",
        "compact_to",
        "preamble",
    )
    return {
        **value,
        "rows": [{**row, "slot": slot_name(row["slot"])} for row in value["rows"]],
        "summary": profile.summary,
        "shares": shares,
        **{name: getattr(profile, name) for name in names},
    }


@command.subcommand("check")
@click.argument("name", required=False)
@SESSION_OPTION
@MODEL_OPTION
@BUDGET_OPTION
def check(name: str | None, session: str | None, options: CommandOptions) -> int:
    """Check profile NAME, or all profiles in files.

    Reports errors, and the cost of volatile blocks before stable ones.

    Example: nexus config profile check mine
    """
    options = replace(options, profile=name or "")
    invalid: list[ProfileEntry] = []
    with options.open() as nx:
        names = [options.profile_name]
        if not name:
            entries = [entry for entry in nx.profiles.entries()[0] if entry.kind in ("user", "workspace")]
            invalid = [entry for entry in entries if entry.profile is None]
            names = [entry.name for entry in entries if entry.profile is not None]
        reports = [_measure(nx, each, session, options) for each in names]
    exit_code = UNREADABLE if invalid else 0
    if options.as_json:
        broken = [_json_value(entry) for entry in invalid]
        emit({"profiles": [_report_value(report) for report in reports], "broken": broken})
        return exit_code
    for report in reports:
        _print_report(report)
    for entry in invalid:
        click.echo(f"{printable(entry.source)}: invalid: {printable(entry.problem)}")
    if not reports and not invalid:
        click.echo("No profile files (list the built-in profiles: nexus config profile list).")
    return exit_code


def _print_report(report: ProfileReport) -> None:
    """Print the findings and warnings of a profile's check."""
    count = sum(finding.level == "warning" for finding in report.findings) + len(report.warnings)
    state = count_noun(count, "warning") if count else "ok"
    click.echo(f"{printable(report.name)} ({printable(report.origin)}): {state}")
    for finding in report.findings:
        click.echo(f"{finding.level.capitalize()}: {printable(finding.text)}")
    for warning in report.warnings:
        print_warning(warning, err=False)
