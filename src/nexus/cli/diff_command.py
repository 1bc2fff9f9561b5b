"""`nexus diff`: where the prompt of a recorded call differs from an earlier one's, and what that costs."""

from __future__ import annotations

import click
import msgspec

from nexus.analysis.diff import Difference
from nexus.analysis.replay import diff_calls, replay_call
from nexus.cli.shared import common, emit, open_here
from nexus.errors import BadReference
from nexus.ledger.recorded_calls import call_before, recorded_call
from nexus.render.console import printable


@click.command("diff")
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1))
@click.argument("later", required=False, type=click.IntRange(min=1))
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in TURN [its last].")
@click.option("--later-call", type=click.IntRange(min=1), help="Number of the call in LATER [its last].")
@click.option("--unproven", is_flag=True, help="Compare also what cannot be proven to be as it was sent.")
@common
def command(
    session: str,
    turn: int,
    later: int | None,
    call: int | None,
    later_call: int | None,
    workspace: str | None,
    ledger: str | None,
    *,
    unproven: bool,
    as_json: bool,
) -> None:
    """Show how the call of turn LATER in SESSION differs from that of TURN; with TURN alone, from the call before it.

    Both are made again: what caused the difference, the first thing and byte that differ, the tokens that stay a prefix
    for the provider's cache, and the price of those that do not.

    Example: nexus diff main 7
    """
    if later is None and later_call is not None:
        raise click.UsageError("--later-call is of a second turn: name LATER.")
    with open_here(workspace, ledger) as nx:
        one = recorded_call(nx.store, session, turn, call)
        other = recorded_call(nx.store, session, later, later_call) if later is not None else one
        before = call_before(nx.store, one) if later is None else one
        if before is None:
            raise BadReference(f"{one.label} is the first: there is no call before it")
        made = [replay_call(nx.replay_deps, found, unverified=unproven) for found in (before, other)]
        found = diff_calls(nx.replay_deps, *made)
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    for line in _lines(found):
        click.echo(printable(line))
    for one_made in made:
        for what in one_made.missing:
            click.echo(printable(f"Warning: {one_made.call.label}: not proven: {what}"), err=True)


def _lines(found: Difference) -> list[str]:
    lines = [f"{found.later_call}, after {found.earlier_call}"]
    if found.state == "same":
        return [*lines, f"The same: {found.earlier_bytes:,} bytes, {found.stable_tokens:,} tokens"]
    if found.state == "extends":
        kept = f"all {found.earlier_bytes:,} bytes of the earlier body but its end are the beginning of the later one"
        lines.append(f"Extends: {kept}, of {found.later_bytes:,}")
    else:
        lines += [f"Broken at {found.at}", *(f"  because {cause}" for cause in found.causes)]
        lines.append(f"First byte that differs: {found.byte:,} (of {found.earlier_bytes:,} and {found.later_bytes:,})")
        lines += [f"  both    {found.common}", f"  earlier {found.earlier}", f"  later   {found.later}"]
    lines.append(
        f"Prefix: {found.stable_tokens:,} tokens stay, {found.reprocessed_tokens:,} are new or processed again"
    )
    if found.lost_tokens:
        price = "no price is known" if found.price is None else f"${found.price:.6f} with a warm cache"
        lines.append(f"Lost: {found.lost_tokens:,} tokens that were sent before are processed again: {price}")
    return lines
