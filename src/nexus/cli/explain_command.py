"""`nexus explain`: what became of each block, tool and message in a call, and why."""

from __future__ import annotations

import click

from nexus.analysis.replay import explain_call, replay_call
from nexus.cli.explaining import show
from nexus.cli.shared import common, named_profile, open_here, read_tools
from nexus.engine import NEXT_MESSAGE
from nexus.ledger.recorded_calls import recorded_call
from nexus.types.message import Text
from nexus.types.request import Event, Request, Routing


@click.command("explain")
@click.argument("session")
@click.argument("turn", required=False, type=click.IntRange(min=1))
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in the turn [its last].")
@click.option("--all", "every", is_flag=True, help="List each message, also of long ranges with one fate.")
@click.option("--unproven", is_flag=True, help="Show a recorded call also where it cannot be proven, with a warning.")
@click.option("-m", "--model", default="", help="Model of the next call [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens of the next call.")
@click.option("--profile", default="layered", show_default=True, help="Form of the next call, a name or a file.")
@click.option("--message", default=NEXT_MESSAGE, help="The next message, to be counted too.")
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file with the next call's tool definitions.")
@common
def command(
    session: str,
    turn: int | None,
    call: int | None,
    model: str,
    budget: int | None,
    profile: str,
    message: str,
    tools: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    every: bool,
    unproven: bool,
    as_json: bool,
) -> None:
    """Show what became of each block, tool and message of SESSION in its next call, or in the recorded one of TURN.

    Each message of the ledger is listed once: in, clipped, summarised, out or not shown, and why.

    Example: nexus explain main 7
    """
    if turn is None and (call is not None or unproven):
        raise click.UsageError("--call and --unproven are of a recorded call: name its TURN.")
    profile, more = named_profile(profile)
    with open_here(workspace, ledger, **more) as nx:
        nx.ledger.thread(session)
        if turn is not None:
            told = explain_call(
                nx.replay_deps,
                replay_call(nx.replay_deps, recorded_call(nx.store, session, turn, call), unverified=unproven),
            )
        else:
            request = Request(
                Event((Text(message),)),
                Routing(session),
                model=model or nx.model,
                tools=tuple(read_tools(tools)) if tools else (),
                available_tokens=budget,
                profile=profile,
            )
            told = nx.explain_request(request)
    show(told, every=every, as_json=as_json)
