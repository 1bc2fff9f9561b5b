"""`nexus run`: one task for an agent, its reply on standard output, and an exit code for its outcome."""

from __future__ import annotations

import sys

import click

from nexus.cli._options import CommandOptions, nexus_command, read_input
from nexus.cli._output import print_warning
from nexus.cli._tracing import send_traces
from nexus.cli.chat_agent import ChatAgent, ChatAgentOptions, agent_options, new_event, run_turn
from nexus.cli.chat_screen import ErrorScreen, JsonScreen, PlainScreen
from nexus.render.console import printable
from nexus.types.message import Image


@nexus_command("run")
@click.argument("task", required=False)
@click.option("--image", "images", multiple=True, type=click.Path(dir_okay=False), help="Image file; repeatable.")
@click.option("--turn-log", type=click.Path(dir_okay=False), help="Turn log of the session, a step at a time.")
@click.option("--console", "show_log", is_flag=True, help="Print the lines of the turn log, not the reply.")
@agent_options
def command(
    task: str | None,
    images: tuple[str, ...],
    turn_log: str | None,
    show_log: bool,
    settings: ChatAgentOptions,
    options: CommandOptions,
) -> int:
    """Run TASK with an agent of the workspace and print its reply. `-`, or no TASK, reads it from standard input.

    Status lines are on standard error. --json prints each event as a line. The exit code is 6 if the model failed, 7 at
    a limit, 130 after Ctrl-C.

    Example: git diff | nexus run - --session review
    """
    text = _task(task)
    if show_log and options.as_json:
        raise click.UsageError("--console cannot be combined with --json")
    send_traces()
    if options.as_json:
        screen = JsonScreen()
    elif show_log:
        screen = ErrorScreen()
    else:
        screen = PlainScreen()
    with ChatAgent(options, settings) as agent:
        if turn_log is not None or show_log:
            agent.log_turns(turn_log, click.echo if show_log else None)
        parts: list[Image] = []
        for name in images:
            image, warning = agent.read_image(name)
            parts.append(image)
            if warning is not None:
                print_warning(warning)
        code = run_turn(agent, screen, new_event(text, parts))
        if agent.turn_log is not None and agent.turn_log.error:
            click.echo(f"Warning: turn log: {printable(agent.turn_log.error)}", err=True)
        return code


def _task(task: str | None) -> str:
    """Return the task from the argument or standard input. Raises UsageError without one."""
    if task is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("Missing argument 'TASK': a text, `-`, or a text on standard input.")
    text = read_input() if task in (None, "-") else task
    if not text.strip():
        raise click.UsageError("the task is empty: give a text")
    return text
