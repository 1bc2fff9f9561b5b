"""`nexus replay`: the request body of a recorded call, rebuilt from the ledger and verified by its hash."""

from __future__ import annotations

import click
import msgspec

from nexus.analysis.replay import replay_call
from nexus.assembly.manifest_store import parse_stored_manifest
from nexus.cli._options import CALL_OPTION, CommandOptions, command_options
from nexus.cli._output import PROVIDER_FORMATS, emit, request_body
from nexus.render.console import printable


@click.command("replay")
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1))
@CALL_OPTION
@click.option("--as", "output_format", type=click.Choice(PROVIDER_FORMATS), help="Provider format [the model's].")
@click.option("--bytes", "exact", is_flag=True, help="Write the exact bytes that were hashed, for sha256sum.")
@click.option("--unverified", is_flag=True, help="Also show a body that cannot be verified, with a warning.")
@command_options
def command(
    session: str,
    turn: int,
    call: int | None,
    output_format: str | None,
    options: CommandOptions,
    *,
    exact: bool,
    unverified: bool,
) -> None:
    """Print the request body of the call of TURN in SESSION as it was sent. The verification goes to standard error.

    The body is rebuilt from the ledger alone, and its hash is compared with the stored one.

    Example: nexus replay main 7 --call 2
    """
    if exact and options.as_json:
        raise click.UsageError("--bytes and --json exclude each other")
    with options.open() as nx:
        replayed = replay_call(nx.replay_deps, nx.recorded_call(session, turn, call), unverified=unverified)
    model_format: str = replayed.ctx.accounting.model_info.provider_format
    body = request_body(replayed.ctx, output_format or model_format)
    stored_hash = parse_stored_manifest(replayed.call.row.manifest).body
    if options.as_json:
        emit(
            {
                "session": session,
                "turn": turn,
                "call": replayed.call.number,
                "calls": replayed.call.count,
                "model": replayed.ctx.model,
                "form": output_format or model_format,
                "proven": not replayed.missing,
                "sha256": stored_hash,
                "missing": list(replayed.missing),
                "body": body,
            }
        )
        return
    name = f"{replayed.call.label}, {replayed.ctx.model}"
    if replayed.missing:
        click.echo(printable(f"Warning: {name}: NOT VERIFIED: {'; '.join(replayed.missing)}"), err=True)
    else:
        other = f"; printed in the format {output_format}" if output_format not in (None, model_format) else ""
        click.echo(printable(f"{name}: verified, its {model_format} body has SHA-256 {stored_hash}{other}"), err=True)
    if exact:
        click.echo(msgspec.json.encode(body), nl=False)
    else:
        emit(body)
