"""`nexus explain`: included, truncated and omitted content of a call, with reasons."""

from __future__ import annotations

import click

from nexus.analysis.replay import explain_call, replay_call
from nexus.cli._options import (
    BUDGET_OPTION,
    CALL_OPTION,
    MESSAGE_OPTION,
    MODEL_OPTION,
    PROFILE_OPTION,
    TOOLS_OPTION,
    CommandOptions,
    command_options,
    profile_option,
    read_tools,
)
from nexus.cli._tables import print_explanation
from nexus.types.message import Text
from nexus.types.request import Event, Request, Routing


@click.command("explain")
@click.argument("session")
@click.argument("turn", required=False, type=click.IntRange(min=1))
@CALL_OPTION
@click.option("--all", "every", is_flag=True, help="List each message of long ranges too.")
@click.option("--unverified", is_flag=True, help="Also show a recorded call that cannot be verified, with a warning.")
@MODEL_OPTION
@BUDGET_OPTION
@PROFILE_OPTION
@MESSAGE_OPTION
@TOOLS_OPTION
@command_options
def command(
    session: str,
    turn: int | None,
    call: int | None,
    model: str,
    budget: int | None,
    profile: str,
    message: str,
    tools: str | None,
    options: CommandOptions,
    *,
    every: bool,
    unverified: bool,
) -> None:
    """Show what happens to each block, tool and message of SESSION in its next call, or in the recorded call of TURN.

    Each message of the ledger is listed once: included, truncated, summarized, omitted or not applicable, and why. The
    options --model to --tools are for the next call.

    Example: nexus explain main 7
    """
    if turn is None and (call is not None or unverified):
        raise click.UsageError("--call and --unverified require a TURN")
    profile, profile_file = profile_option(profile)
    with options.open(**profile_file) as nx:
        if turn is not None:
            recorded = nx.recorded_call(session, turn, call)
            explanation = explain_call(nx.replay_deps, replay_call(nx.replay_deps, recorded, unverified=unverified))
        else:
            nx.ledger.thread(session)
            request = Request(
                Event((Text(message),)),
                Routing(session),
                model=model or nx.model,
                tools=tuple(read_tools(tools)) if tools else (),
                available_tokens=budget,
                profile=profile,
            )
            explanation = nx.explain_request(request)
    print_explanation(explanation, every=every, as_json=options.as_json)
