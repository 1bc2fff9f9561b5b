"""`nexus config`: the settings of a workspace, and what else a call can use: profiles, policy, credentials, tools."""

from __future__ import annotations

import click

from nexus.cli._options import NexusGroup

MODULES = {
    "show": "status.show", "profile": "profile", "policy": "policy", "credential": "credential", "tools": "tools",
    "models": "models", "plugins": "status.plugins", "completion": "completion",
}  # fmt: skip


@click.group("config", cls=NexusGroup, modules=MODULES)
def command() -> None:
    """Show the settings of a workspace, with its profiles, policy, credentials, tools, models and plugins.

    Example: nexus config show
    """
