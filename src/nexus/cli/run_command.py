"""`nexus run`: one task for an agent, its reply on standard output, and an exit code for its outcome."""

from __future__ import annotations

import sys

import click

from nexus.cli._options import CommandOptions, nexus_command, read_input
from nexus.cli._output import print_warning
from nexus.cli.chat_agent import AgentSettings, ChatAgent, agent_options, new_event, run_turn
from nexus.cli.chat_screen import JsonScreen, PlainScreen
from nexus.types.message import Image
from nexus.workspace.attachments import read_image


@nexus_command("run")
@click.argument("task", required=False)
@click.option("--image", "images", multiple=True, type=click.Path(dir_okay=False), help="Image file; repeatable.")
@agent_options
def command(task: str | None, images: tuple[str, ...], settings: AgentSettings, options: CommandOptions) -> int:
    """Run TASK with an agent of the workspace and print its reply. `-`, or no TASK, reads it from standard input.

    Status lines are on standard error. --json prints each event as a line. The exit code is 6 if the model failed, 7 at
    a limit, 130 after Ctrl-C.

    Example: git diff | nexus run - --session review
    """
    text = _task(task)
    screen = JsonScreen() if options.as_json else PlainScreen()
    with ChatAgent(options, settings) as agent:
        parts: list[Image] = []
        for name in images:
            image, warning = read_image(name, model=agent.model, config=agent.nx.workspace_context.config.images)
            parts.append(image)
            if warning is not None:
                print_warning(warning)
        return run_turn(agent, screen, new_event(text, parts))


def _task(task: str | None) -> str:
    """Return the task from the argument or standard input. Raises UsageError without one."""
    if task is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("Missing argument 'TASK': a text, `-`, or a text on standard input.")
    text = read_input() if task in (None, "-") else task
    if not text.strip():
        raise click.UsageError("the task is empty: give a text")
    return text
