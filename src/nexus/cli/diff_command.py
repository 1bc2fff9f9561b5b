"""`nexus diff`: the first difference between the prompts of two recorded calls, and its cost."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from nexus.analysis.diff import Difference
from nexus.analysis.replay import diff_calls, replay_call
from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit
from nexus.render.console import printable


@click.command("diff")
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1))
@click.argument("later", required=False, type=click.IntRange(min=1))
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in TURN [the last].")
@click.option("--later-call", type=click.IntRange(min=1), help="Number of the call in LATER [the last].")
@click.option("--unverified", is_flag=True, help="Also compare calls that cannot be verified, with a warning.")
@command_options
def command(
    session: str,
    turn: int,
    later: int | None,
    call: int | None,
    later_call: int | None,
    options: CommandOptions,
    *,
    unverified: bool,
) -> None:
    """Compare the calls of turns TURN and LATER in SESSION; with TURN alone, compare it with the call before.

    Both calls are rebuilt. The output has the causes, the first difference and its byte, the tokens that remain a
    prefix for the provider's cache, and the price of those that do not.

    Example: nexus diff main 7
    """
    if later is None and later_call is not None:
        raise click.UsageError("--later-call requires LATER")
    with options.open() as nx:
        first = nx.recorded_call(session, turn, call)
        pair = (
            (nx.previous_call(first), first) if later is None else (first, nx.recorded_call(session, later, later_call))
        )
        replayed = [replay_call(nx.replay_deps, recorded, unverified=unverified) for recorded in pair]
        difference = diff_calls(nx.replay_deps, *replayed)
    if options.as_json:
        emit(msgspec.to_builtins(difference))
        return
    for line in _lines(difference):
        click.echo(printable(line))
    for side in replayed:
        for missing in side.missing:
            click.echo(printable(f"Warning: {side.call.label} not verified: {missing}"), err=True)


def _lines(diff: Difference) -> Iterator[str]:
    yield f"{diff.later_call}, after {diff.earlier_call}"
    if diff.state == "same":
        yield f"The same: {diff.earlier_bytes:,} bytes, {diff.stable_tokens:,} tokens"
        return
    if diff.state == "extends":
        yield (
            f"Extends: all {diff.earlier_bytes:,} bytes of the earlier body except its end begin the later one, "
            f"of {diff.later_bytes:,}"
        )
    else:
        yield f"Broken at {diff.at}"
        yield from (f"  because {cause}" for cause in diff.causes)
        yield f"First byte that differs: {diff.byte:,} (of {diff.earlier_bytes:,} and {diff.later_bytes:,})"
        yield from (f"  both    {diff.common}", f"  earlier {diff.earlier_excerpt}", f"  later   {diff.later_excerpt}")
    yield f"Prefix: {diff.stable_tokens:,} tokens stay, {diff.reprocessed_tokens:,} are new or processed again"
    if diff.lost_tokens:
        price = "price unknown" if diff.price is None else f"${diff.price:.6f} with a warm cache"
        yield f"Lost: {diff.lost_tokens:,} tokens that were sent before are processed again: {price}"
