"""`nexus context`: what fills the window of a session's next call."""

from __future__ import annotations

import click

from nexus.cli.shared import common, console, emit, named_profile, open_here, plain_output, read_tools, write_text
from nexus.engine import NEXT_MESSAGE


@click.command("context")
@click.argument("session", default="main")
@click.option("-m", "--model", default="", help="Model [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves].")
@click.option("--profile", default="layered", show_default=True, help="Form of the context, a name or a file.")
@click.option("--message", default=NEXT_MESSAGE, help="The next message, to be counted too.")
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, to be counted too.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write the picture to this SVG file as well.")
@common
def command(
    session: str,
    model: str,
    budget: int | None,
    profile: str,
    message: str,
    tools: str | None,
    svg: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Show what fills the window of SESSION's next call: by layer and block, free space, reserves, cache boundary."""
    from nexus.cli.grid import account, picture, svg_of

    profile, more = named_profile(profile)
    with open_here(workspace, ledger, **more) as nx:
        given = read_tools(tools) if tools else ()
        ctx = nx.assemble(message, session=session, model=model, budget=budget, profile=profile, tools=given)
    if svg:
        write_text(svg, svg_of(ctx))
    if as_json:
        emit(account(ctx))
        return
    out = console(width=100)
    out.print(picture(ctx, plain=plain_output(), width=out.width))
