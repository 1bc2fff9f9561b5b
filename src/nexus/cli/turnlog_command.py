"""`nexus turnlog`: files in the turn-log format."""

from __future__ import annotations

import click

from nexus.cli._options import NexusGroup


@click.group("turnlog", cls=NexusGroup, modules={"validate": "import.validate"})
def command() -> None:
    """Check turn logs. `nexus history --as turnlog` writes one, `nexus import` reads it.

    Example: nexus turnlog validate log.json
    """
