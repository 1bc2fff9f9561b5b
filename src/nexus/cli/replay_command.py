"""`nexus replay`, `diff` and `explain`: recorded calls, rebuilt from the ledger and verified, compared and explained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from nexus.assembly.manifest_store import parse_stored_manifest
from nexus.cli._options import (
    BUDGET_OPTION,
    PROFILE_OPTION,
    SESSION_MODEL_OPTION,
    STRATEGY_OPTION,
    TENANT_OPTION,
    TOOLS_OPTION,
    CommandOptions,
    nexus_command,
    session_argument,
)
from nexus.cli._output import PROVIDER_FORMATS, emit, request_body
from nexus.cli._parameters import Choice
from nexus.cli._proxy_calls import call_number, open_recorded_call
from nexus.cli._sessions import resolve_session
from nexus.cli._tables import print_explanation
from nexus.engine import NEXT_MESSAGE, Engine
from nexus.engine.analysis.diff import Difference
from nexus.engine.analysis.explain import Explanation
from nexus.engine.analysis.replay import (
    ReplayedCall,
    ReplayOverrides,
    diff_calls,
    explain_call,
    replay_call,
    what_if,
)
from nexus.ledger.recorded_calls import RecordedCall
from nexus.ledger.search_text import all_text
from nexus.render.console import printable
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Text
from nexus.types.request import Event
from nexus.types.settings import CallArguments, Strategy

CALL_OR_ID = click.option(
    "--call", metavar="N|ID", help="Number of the call in TURN [the last]; without SESSION the id of a proxy's call."
)


@nexus_command("replay")
@TENANT_OPTION
@session_argument(required=False)
@click.argument("turn", required=False, type=click.IntRange(min=1))
@CALL_OR_ID
@click.option("--as", "output_format", type=Choice(PROVIDER_FORMATS), help="Provider format [the model's].")
@click.option("--bytes", "exact", is_flag=True, help="Write the exact bytes that were hashed, for sha256sum.")
@click.option("--unverified", is_flag=True, help="Also show a body that cannot be verified, with a warning.")
def command(
    session: str | None,
    turn: int | None,
    call: str | None,
    output_format: str | None,
    exact: bool,
    unverified: bool,
    options: CommandOptions,
) -> None:
    """Print the request body of the call of TURN in SESSION as it was sent. The verification goes to standard error.

    The body is rebuilt from the ledger alone, and its hash is compared with the stored one. `--call ID` alone is a call
    of the proxy, as its answer's header `x-nexus-call` names it.

    Example: nexus replay main 7 --call 2
    """
    if exact and options.as_json:
        raise click.UsageError("--bytes and --json exclude each other")
    if session is None:
        with open_recorded_call(options, _proxy_call(call)) as (nx, recorded):
            replayed = replay_call(nx.calls.dependencies, recorded, unverified=unverified)
    elif turn is None:
        raise click.UsageError("Missing argument 'TURN'.")
    else:
        with options.session(session) as (nx, label):
            recorded = nx.calls.find(label, turn, call_number(call))
            replayed = replay_call(nx.calls.dependencies, recorded, unverified=unverified)
    model_format: str = replayed.ctx.accounting.model_info.provider_format
    body = request_body(replayed.ctx, output_format or model_format)
    stored_hash = parse_stored_manifest(replayed.call.row.manifest).body
    if options.as_json:
        emit(
            {
                "session": replayed.call.session,
                "turn": replayed.call.turn,
                "call": replayed.call.number,
                "calls": replayed.call.count,
                "model": replayed.ctx.model,
                "form": output_format or model_format,
                "proven": not replayed.missing,
                "sha256": stored_hash,
                "missing": replayed.missing,
                "body": body,
            }
        )
        return
    name = f"{replayed.call.label}, {replayed.ctx.model}"
    if replayed.missing:
        click.echo(printable(f"Warning: {name}: NOT VERIFIED: {'; '.join(replayed.missing)}"), err=True)
    else:
        other = ""
        if output_format not in (None, model_format):
            other = f"; printed in the format {output_format}"
        click.echo(printable(f"{name}: verified, its {model_format} body has SHA-256 {stored_hash}{other}"), err=True)
    if exact:
        click.echo(msgspec.json.encode(body), nl=False)
    else:
        emit(body)


@nexus_command("diff")
@session_argument()
@click.argument("turn", type=click.IntRange(min=1))
@click.argument("later", required=False, type=click.IntRange(min=1))
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in TURN [the last].")
@click.option("--later-call", type=click.IntRange(min=1), help="Number of the call in LATER [the last].")
@click.option("--unverified", is_flag=True, help="Also compare calls that cannot be verified, with a warning.")
def diff(
    session: str,
    turn: int,
    later: int | None,
    call: int | None,
    later_call: int | None,
    unverified: bool,
    options: CommandOptions,
) -> None:
    """Compare the calls of two turns of SESSION.

    TURN is compared with LATER; alone, with the call before. Both calls are rebuilt. The output has the causes, the first difference and its byte, the tokens that remain a
    prefix for the provider's cache, and the price of those that do not.

    Example: nexus session diff main 7
    """
    if later is None and later_call is not None:
        raise click.UsageError("--later-call requires LATER")
    with options.session(session) as (nx, label):
        first = nx.calls.find(label, turn, call)
        if later is None:
            pair = (nx.calls.before(first), first)
        else:
            pair = (first, nx.calls.find(label, later, later_call))
        replayed = [replay_call(nx.calls.dependencies, recorded, unverified=unverified) for recorded in pair]
        difference = diff_calls(nx.calls.dependencies, *replayed)
    options.report(difference, *map(printable, _difference_lines(difference)))
    for side in replayed if not options.as_json else ():
        for missing in side.missing:
            click.echo(printable(f"Warning: {side.call.label} not verified: {missing}"), err=True)


def _difference_lines(diff: Difference) -> Iterator[str]:
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
        if diff.price is None:
            price = "price unknown"
        else:
            price = f"${diff.price:.6f} with a warm cache"
        yield f"Lost: {diff.lost_tokens:,} tokens that were sent before are processed again: {price}"


@nexus_command("explain")
@TENANT_OPTION
@session_argument(required=False)
@click.argument("turn", required=False, type=click.IntRange(min=1))
@CALL_OR_ID
@click.option("--all", "every", is_flag=True, help="List each message of long ranges too.")
@click.option("--full", is_flag=True, help="Add the whole text of each message that the call does not contain whole.")
@click.option("--unverified", is_flag=True, help="Also show a recorded call that cannot be verified, with a warning.")
@SESSION_MODEL_OPTION
@BUDGET_OPTION
@PROFILE_OPTION
@click.option("--message", help="The next message, or another one for the call of TURN.")
@TOOLS_OPTION
@STRATEGY_OPTION
def explain(
    session: str | None,
    turn: int | None,
    call: str | None,
    every: bool,
    full: bool,
    unverified: bool,
    message: str | None,
    strategy: Strategy | None,
    options: CommandOptions,
) -> None:
    """Show what happens to each block, tool and message of SESSION in its next call, or in the recorded call of TURN.

    Each message of the ledger is listed once: included, truncated, summarized, omitted or not applicable, and why. With
    --model to --strategy, the call of TURN is explained as it would have been. `--call ID` alone is a call of the proxy,
    as its answer's header `x-nexus-call` names it.

    Example: nexus explain main 7 --budget 8000
    """
    if session is not None and turn is None and (call is not None or unverified):
        raise click.UsageError("--call and --unverified require a TURN")
    definitions = None
    if options.tools:
        definitions = options.tool_definitions()
    event = None
    if message is not None:
        event = Event((Text(message),))
    changes = ReplayOverrides(options.model, options.budget, options.profile_name, strategy, definitions, event)
    if unverified and changes != ReplayOverrides():
        raise click.UsageError("--unverified cannot be combined with changes: a changed call is not verified")
    if session is None:
        with open_recorded_call(options, _proxy_call(call)) as (nx, recorded):
            explanation = explain_call(nx.calls.dependencies, _replayed(nx, recorded, changes, unverified=unverified))
            texts = _texts(nx, recorded.thread, explanation) if full else {}
        print_explanation(explanation, every=every, as_json=options.as_json, texts=texts)
        return
    engine: dict[str, Any] = {"strategy": strategy} if strategy else {}
    with options.open(reads_stored=True, **engine) as nx:
        label = resolve_session(nx, session)
        if turn is None:
            model, profile = options.model_and_profile(nx, label)
            event = event or Event((Text(NEXT_MESSAGE),))
            arguments: CallArguments = {"model": model, "profile": profile, "budget": options.budget}
            request = nx.request(event, label, {**arguments, "tools": definitions or ()})
            explanation = nx.calls.explain_next(request)
        else:
            recorded = nx.calls.find(label, turn, call_number(call))
            explanation = explain_call(nx.calls.dependencies, _replayed(nx, recorded, changes, unverified=unverified))
        texts = _texts(nx, nx.ledger.thread(label), explanation) if full else {}
    print_explanation(explanation, every=every, as_json=options.as_json, texts=texts)


def _proxy_call(call: str | None) -> str:
    """Return the id of a proxy's call. Raises UsageError for a line that names neither a session nor such a call."""
    if call is None:
        raise click.UsageError("Missing argument 'SESSION' (or --call ID, for a call of the proxy).")
    return call


def _replayed(nx: Engine, recorded: RecordedCall, changes: ReplayOverrides, *, unverified: bool) -> ReplayedCall:
    """Return a recorded call as it was, or as it would have been with changes."""
    if changes == ReplayOverrides():
        return replay_call(nx.calls.dependencies, recorded, unverified=unverified)
    return what_if(nx.calls.dependencies, recorded, changes)


def _texts(nx: Engine, thread: int, explanation: Explanation) -> dict[MessageRef, str]:
    """Return the whole text of each message that a call does not contain whole, with its calls and results."""
    texts: dict[MessageRef, str] = {}
    for line in explanation.lines:
        if line.kind != "message" or line.state == "included" or line.place is None:
            continue
        for entry in nx.ledger.store.entries(thread, line.place.seq - 1, line.place.seq):
            texts |= {row.ref: all_text(row.message.parts) for row in entry.rows if row.ref == line.place}
    return texts
