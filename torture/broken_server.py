"""Runs the command `nexus` with broken builds: `python -m torture.broken_server BUILD[,BUILD] serve …`.

A server is a process of its own, so the builds of this process do not reach it by themselves.
"""

from __future__ import annotations

import sys

from nexus.cli import main
from torture import broken


def run(names: str, arguments: list[str]) -> None:
    """Apply the builds, and run the command."""
    for name in names.split(","):
        broken.apply(name)
    sys.argv[1:] = arguments
    main()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
