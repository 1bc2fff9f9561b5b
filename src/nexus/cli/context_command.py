"""`nexus context`: what fills the context window of a session's next call."""

from __future__ import annotations

import click

from nexus.cli._options import (
    BUDGET_OPTION,
    MESSAGE_OPTION,
    MODEL_OPTION,
    PROFILE_OPTION,
    TOOLS_OPTION,
    CommandOptions,
    command_options,
    profile_option,
    read_tools,
    write_text,
)
from nexus.cli._output import console, emit, plain_output


@click.command("context")
@click.argument("session", default="main")
@MODEL_OPTION
@BUDGET_OPTION
@PROFILE_OPTION
@MESSAGE_OPTION
@TOOLS_OPTION
@click.option("--svg", type=click.Path(dir_okay=False), help="Also write the image to this SVG file.")
@command_options
def command(
    session: str,
    model: str,
    budget: int | None,
    profile: str,
    message: str,
    tools: str | None,
    svg: str | None,
    options: CommandOptions,
) -> None:
    """Show what fills the context window of SESSION's next call: layers, blocks, free space, reserves, cache boundary."""
    from nexus.cli._context_grid import context_grid, grid_svg, window_report

    profile, profile_file = profile_option(profile)
    with options.open(**profile_file) as nx:
        definitions = read_tools(tools) if tools else ()
        ctx = nx.assemble(message, session=session, model=model, budget=budget, profile=profile, tools=definitions)
    if svg:
        write_text(svg, grid_svg(ctx))
    if options.as_json:
        emit(window_report(ctx))
        return
    out = console(width=100)
    out.print(context_grid(ctx, plain=plain_output(), width=out.width))
