"""`nexus replay`: the request body of a recorded call, made again from the ledger and proven by its hash."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from nexus.analysis.replay import ReplayedCall, replay_call
from nexus.assembly.manifest_store import parse_stored_manifest
from nexus.cli.shared import common, emit, open_here
from nexus.context import AssembledContext
from nexus.ledger.recorded_calls import recorded_call
from nexus.render.console import printable

FORMS = ("openai", "responses", "anthropic", "gemini")


@click.command("replay")
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1))
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in the turn [its last].")
@click.option("--as", "form", type=click.Choice(FORMS), help="Form of the body [the model's own].")
@click.option("--bytes", "exact", is_flag=True, help="Write the very bytes that the hash is of, for sha256sum.")
@click.option("--unproven", is_flag=True, help="Show the body also where it cannot be proven, with a warning.")
@common
def command(
    session: str,
    turn: int,
    call: int | None,
    form: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    exact: bool,
    unproven: bool,
    as_json: bool,
) -> None:
    """Print the request body of TURN's call in SESSION as it was sent. What it rests on is said on standard error.

    The body is made again from the ledger alone, and its hash compared with the one that was stored when it was sent.

    Example: nexus replay main 7 --call 2
    """
    if exact and as_json:
        raise click.UsageError("--bytes writes the body alone: leave --json out.")
    with open_here(workspace, ledger) as nx:
        made = replay_call(nx.replay_deps, recorded_call(nx.store, session, turn, call), unverified=unproven)
    body = body_of(made.ctx, form)
    stored = parse_stored_manifest(made.call.row.manifest).body
    if as_json:
        head = {"session": session, "turn": turn, "call": made.call.number, "calls": made.call.count}
        proof = {"proven": not made.missing, "sha256": stored, "missing": list(made.missing)}
        emit(
            {
                **head,
                "model": made.ctx.model,
                "form": form or made.ctx.accounting.model_info.wire,
                **proof,
                "body": body,
            }
        )
        return
    click.echo(_proof(made, stored, form), err=True)
    if exact:
        click.echo(msgspec.json.encode(body), nl=False)
    else:
        emit(body)


def body_of(ctx: AssembledContext, form: str | None) -> dict[str, Any]:
    """The body in a form; in the model's own if none is named."""
    match form or ctx.accounting.model_info.wire:
        case "responses":
            return ctx.to_responses()
        case "anthropic":
            return ctx.to_anthropic()
        case "gemini":
            return ctx.to_gemini()
        case _:
            return ctx.to_openai()


def _proof(made: ReplayedCall, stored: str, form: str | None) -> str:
    what = f"{made.call.label}, {made.ctx.model}"
    if made.missing:
        return printable(f"Warning: {what}: NOT PROVEN: {'; '.join(made.missing)}")
    own = made.ctx.accounting.model_info.wire
    other = f"; this is the same call in the form {form}" if form and form != own else ""
    return printable(f"{what}: proven, its {own} body has SHA-256 {stored}{other}")
