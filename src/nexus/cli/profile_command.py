"""`nexus profile`: the profiles that are known here, what each puts where, and what its order costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec

from nexus.cli.shared import common, emit, handed_down, named_profile, open_here
from nexus.cli.table import print_table
from nexus.errors import BadProfile
from nexus.profiles.user.registry import ProfileEntry
from nexus.render.console import printable
from nexus.simulation.profile_order import WHEN, ProfileReport, SlotRow, as_json_value, check_profile_order
from nexus.types.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])


def _measured(command: F) -> F:
    """The options of what is measured: session, model, budget."""
    command = click.option(
        "--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves]."
    )(command)
    command = click.option("-m", "--model", default="", help="Model, for its prices [claude-sonnet-4-5].")(command)
    return click.option("-s", "--session", default="main", show_default=True, help="Session whose next call counts.")(
        command
    )


@click.group("profile")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List, show and check profiles: which sources stand in which slot, in which order, and what that costs.

    Example: nexus profile check mine
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


@command.command("list")
@common
def listed(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List the profiles: ready ones, your own, plugins', the workspace's. Warnings go to standard error.

    Example: nexus profile list
    """
    with open_here(workspace, ledger) as nx:
        rows, warned = nx.profiles.entries()
    warned = [*warned, *(note for row in rows for note in row.warnings)]
    if as_json:
        emit({"profiles": [_value(row) for row in rows], "warnings": msgspec.to_builtins(warned)})
        return
    print_table(("profile", "from", "form", "what"), map(_row, rows), wraps=("what",))
    for note in warned:
        click.echo(f"Warning: {printable(note.source)}: {printable(note.message)}", err=True)


def _row(row: ProfileEntry) -> tuple[str, ...]:
    if row.profile is None:
        return row.name, row.source, "", f"cannot be used: {row.trouble}"
    return row.name, _from(row), row.profile.message_format, row.profile.description


def _from(row: ProfileEntry) -> str:
    return "ready" if row.kind == "ready" else row.source


def _value(row: ProfileEntry) -> dict[str, Any]:
    found = row.profile
    return {
        "name": row.name,
        "kind": row.kind,
        "from": row.source,
        "form": found.message_format if found else None,
        "summary": found.summary if found else None,
        "says_start": found.session_header if found else None,
        "frozen": found.freeze_system_prompt if found else None,
        "what": found.description if found else None,
        "system": list(found.system) if found else None,
        "ahead": list(found.preamble) if found else None,
        "current": list(found.current) if found else None,
        "trouble": row.trouble,
    }


@command.command("show")
@click.argument("name")
@_measured
@common
def show(
    name: str,
    session: str,
    model: str,
    budget: int | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Show profile NAME, or the one of a file: its sources in order, with slot, volatility and tokens in this workspace.

    Example: nexus profile show layered
    """
    name, more = named_profile(name)
    with open_here(workspace, ledger, **more) as nx:
        found = check_profile_order(nx, name, session=session, model=model, budget=budget)
    if as_json:
        emit(as_json_value(found))
        return
    profile = found.profile
    click.echo(
        f"{printable(found.name)} ({printable(found.origin)}), form {profile.message_format}: {printable(profile.description)}"
    )
    for told in _own_ways(profile):
        click.echo(told)
    for share in profile.shares:
        click.echo(f"{share.layer}: at least {share.floor:.0%}, at most {share.ceiling:.0%} of the available tokens")
    print_table(
        ("slot", "source", "changes", "tokens", "holds"), _sources(found), numbers=("tokens",), wraps=("holds",)
    )
    _say_warnings(found)


def _own_ways(profile: Profile) -> Iterator[str]:
    """How a profile's history opens, and whether its system slot stays, where that is otherwise than usual."""
    if profile.session_header:
        yield "The first message of a new session says when it was started."
    if profile.summary == "context":
        yield "A summary stands under [CONTEXT SUMMARY]."
    if profile.freeze_system_prompt:
        yield "The system slot stays as a session began with it, until it is compacted or cleared."


def _sources(found: ProfileReport) -> Iterator[tuple[str, ...]]:
    for slot in ("system", "ahead", "current"):
        yield from (_line(row) for row in found.rows if row.slot == slot)
        if slot == "ahead":
            yield "history", "(the conversation)", "", f"{found.history_tokens:,}", "what was said and done"


def _line(row: SlotRow) -> tuple[str, ...]:
    changes = WHEN[row.changes] if row.changes else "not declared"
    return row.slot, row.source, changes, f"{row.tokens:,}", ", ".join(row.origins) or "(nothing now)"


@command.command("check")
@click.argument("name", required=False)
@_measured
@common
def check(
    name: str | None,
    session: str,
    model: str,
    budget: int | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> int:
    """Check profile NAME, or all that stand in files: what is wrong, and what a volatile block before a stable one costs.

    Example: nexus profile check mine
    """
    given, more = named_profile(name) if name else ("", {})
    looked: list[ProfileReport] = []
    broken: list[ProfileEntry] = []
    with open_here(workspace, ledger, **more) as nx:
        names = [given]
        if not given:
            rows = [row for row in nx.profiles.entries()[0] if row.kind in ("user", "workspace")]
            broken = [row for row in rows if row.profile is None]
            names = [row.name for row in rows if row.profile is not None]
        looked += (check_profile_order(nx, one, session=session, model=model, budget=budget) for one in names)
    if as_json:
        emit({"profiles": [as_json_value(one) for one in looked], "broken": [_value(row) for row in broken]})
    else:
        for one in looked:
            _tell(one)
        for row in broken:
            click.echo(f"{printable(row.source)}: cannot be used: {printable(row.trouble)}")
        if not looked and not broken:
            click.echo("There is no file of a profile; `nexus profile list` has the ready ones (docs/profiles.md).")
    return BadProfile.exit_code if broken else 0


def _tell(found: ProfileReport) -> None:
    warnings = sum(one.level == "warning" for one in found.findings) + len(found.warned)
    state = "fine" if not warnings else "1 warning" if warnings == 1 else f"{warnings} warnings"
    click.echo(f"{printable(found.name)} ({printable(found.origin)}): {state}")
    for one in found.findings:
        click.echo(f"{one.level.capitalize()}: {printable(one.text)}")
    _say_warnings(found)


def _say_warnings(found: ProfileReport) -> None:
    for note in found.warned:
        click.echo(f"Warning: {printable(note.source)}: {printable(note.message)}")
