"""`nexus profile`: the available profiles, their sources by slot, and the cost of their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec

from nexus.cli._exit_codes import UNREADABLE
from nexus.cli._options import BUDGET_OPTION, MODEL_OPTION, CommandOptions, command_options, profile_option
from nexus.cli._output import emit, print_warning
from nexus.cli._tables import print_table
from nexus.profiles.user.registry import ProfileEntry
from nexus.render.console import printable
from nexus.simulation.profile_order import WHEN, ProfileReport, check_profile_order
from nexus.types.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])


def _measuring_options(command: F) -> F:
    """Add the options of the call that is measured: session, model, budget."""
    session = click.option("-s", "--session", default="main", show_default=True, help="Session of the measured call.")
    return session(MODEL_OPTION(BUDGET_OPTION(command)))


@click.group("profile")
@command_options
@click.pass_context
def command(ctx: click.Context, options: CommandOptions) -> None:
    """List, show and check profiles.

    A profile assigns sources to slots, in an order that determines the reuse of prompt caches.

    Example: nexus profile check mine
    """
    options.pass_on(ctx, command.commands)


@command.command("list")
@command_options
def list_(options: CommandOptions) -> None:
    """List the profiles.

    They are built in, yours, from plugins, or the workspace's. Warnings go to standard error.

    Example: nexus profile list
    """
    with options.open() as nx:
        entries, warnings = nx.profiles.entries()
    warnings = [*warnings, *(warning for entry in entries for warning in entry.warnings)]
    if options.as_json:
        emit({"profiles": [_json_value(entry) for entry in entries], "warnings": msgspec.to_builtins(warnings)})
        return
    print_table(("profile", "source", "format", "description"), map(_row, entries), wraps=("description",))
    for warning in warnings:
        print_warning(warning)


def _row(entry: ProfileEntry) -> tuple[str, ...]:
    if entry.profile is None:
        return entry.name, entry.source, "", f"invalid: {entry.problem}"
    source = "built-in" if entry.kind == "ready" else entry.source
    return entry.name, source, entry.profile.message_format, entry.profile.description


def _json_value(entry: ProfileEntry) -> dict[str, Any]:
    profile = entry.profile
    return {
        "name": entry.name,
        "kind": "built-in" if entry.kind == "ready" else entry.kind,
        "from": entry.source,
        "message_format": profile.message_format if profile else None,
        "summary": profile.summary if profile else None,
        "session_header": profile.session_header if profile else None,
        "freeze_system_prompt": profile.freeze_system_prompt if profile else None,
        "description": profile.description if profile else None,
        "system": list(profile.system) if profile else None,
        "preamble": list(profile.preamble) if profile else None,
        "current": list(profile.current) if profile else None,
        "trouble": entry.problem,
    }


@command.command("show")
@click.argument("name")
@_measuring_options
@command_options
def show(name: str, session: str, model: str, budget: int | None, options: CommandOptions) -> None:
    """Show the sources of profile NAME in order.

    Each has its slot, its volatility and its tokens in this workspace. NAME may be a file.

    Example: nexus profile show layered
    """
    name, profile_file = profile_option(name)
    with options.open(**profile_file) as nx:
        report = check_profile_order(nx, name, session=session, model=model, budget=budget)
    if options.as_json:
        emit(_report_value(report))
        return
    profile = report.profile
    title = f"{printable(report.name)} ({printable(report.origin)}), format {profile.message_format}"
    click.echo(f"{title}: {printable(profile.description)}")
    for feature in _features(profile):
        click.echo(feature)
    for share in profile.shares:
        click.echo(f"{share.layer}: at least {share.floor:.0%}, at most {share.ceiling:.0%} of the available tokens")
    names = ("slot", "source", "changes", "tokens", "blocks from")
    print_table(names, _source_rows(report), numbers=("tokens",), wraps=("blocks from",))
    _print_warnings(report)


def _features(profile: Profile) -> Iterator[str]:
    """Yield a line for each optional feature of a profile."""
    if profile.session_header:
        yield "The first message of a new session has the time of its start."
    if profile.summary == "context":
        yield "A summary has the heading [CONTEXT SUMMARY]."
    if profile.freeze_system_prompt:
        yield "The system prompt does not change during a session until a compaction or clear."


def _source_rows(report: ProfileReport) -> Iterator[tuple[str, ...]]:
    for slot in ("system", "ahead", "current"):
        for row in report.rows:
            if row.slot == slot:
                changes = WHEN[row.changes] if row.changes else "not declared"
                yield _slot_name(slot), row.source, changes, f"{row.tokens:,}", ", ".join(row.origins) or "(none now)"
        if slot == "ahead":
            yield "history", "(the conversation)", "", f"{report.history_tokens:,}", "the session's messages"


def _slot_name(slot: str) -> str:
    """Return the name of a slot; manifests store the preamble as `ahead`."""
    return "preamble" if slot == "ahead" else slot


def _report_value(report: ProfileReport) -> dict[str, Any]:
    value, profile = msgspec.to_builtins(report), report.profile
    shares = value.pop("profile")["shares"]
    return {
        **value,
        "rows": [{**row, "slot": _slot_name(row["slot"])} for row in value["rows"]],
        "summary": profile.summary,
        "shares": shares,
        "description": profile.description,
        "message_format": profile.message_format,
        "session_header": profile.session_header,
        "freeze_system_prompt": profile.freeze_system_prompt,
        "preamble": list(profile.preamble),
    }


@command.command("check")
@click.argument("name", required=False)
@_measuring_options
@command_options
def check(name: str | None, session: str, model: str, budget: int | None, options: CommandOptions) -> int:
    """Check profile NAME, or all profiles in files.

    Reports errors, and the cost of volatile blocks before stable ones.

    Example: nexus profile check mine
    """
    name, profile_file = profile_option(name) if name else ("", {})
    invalid: list[ProfileEntry] = []
    with options.open(**profile_file) as nx:
        names = [name]
        if not name:
            entries = [entry for entry in nx.profiles.entries()[0] if entry.kind in ("user", "workspace")]
            invalid = [entry for entry in entries if entry.profile is None]
            names = [entry.name for entry in entries if entry.profile is not None]
        reports = [check_profile_order(nx, each, session=session, model=model, budget=budget) for each in names]
    if options.as_json:
        emit(
            {"profiles": [_report_value(report) for report in reports], "broken": [_json_value(row) for row in invalid]}
        )
    else:
        for report in reports:
            _print_report(report)
        for entry in invalid:
            click.echo(f"{printable(entry.source)}: invalid: {printable(entry.problem)}")
        if not reports and not invalid:
            click.echo("No profile files (list the built-in profiles: nexus profile list).")
    return UNREADABLE if invalid else 0


def _print_report(report: ProfileReport) -> None:
    count = sum(finding.level == "warning" for finding in report.findings) + len(report.warnings)
    state = "ok" if not count else "1 warning" if count == 1 else f"{count} warnings"
    click.echo(f"{printable(report.name)} ({printable(report.origin)}): {state}")
    for finding in report.findings:
        click.echo(f"{finding.level.capitalize()}: {printable(finding.text)}")
    _print_warnings(report)


def _print_warnings(report: ProfileReport) -> None:
    for warning in report.warnings:
        print_warning(warning, err=False)
