"""`nexus config completion`: the script by which a shell completes commands, options and session names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from nexus.cli._options import CommandOptions, nexus_command
from nexus.cli._parameters import Choice

COMPLETE_VARIABLE = "_NEXUS_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
# Bash would end a word at a colon, which many session names have (telegram:42).
BASH_WORDS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}\n"


@nexus_command("completion")
@click.argument("shell", type=Choice(SHELLS))
def command(shell: str, options: CommandOptions) -> None:
    """Print the completion script for SHELL.

    It completes commands, options and session names in bash, zsh or fish.

    Add it to the shell's startup file: `eval "$(nexus config completion bash)"` in ~/.bashrc, `eval "$(nexus config completion zsh)"`
    in ~/.zshrc; for fish, write it to ~/.config/fish/completions/nexus.fish.

    Example: nexus config completion bash
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click cannot complete in {shell} (update click)")
    completion = kind(click.get_current_context().find_root().command, {}, "nexus", COMPLETE_VARIABLE)
    # `source` would first run bash to check its version.
    script = (completion.source_template % completion.source_vars()).strip("\n")
    if shell == "bash":
        script = BASH_WORDS + script
    options.report({"shell": shell, "script": script}, script)
