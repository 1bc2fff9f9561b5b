"""Entry point of `python -m nexus`."""

from __future__ import annotations

from nexus.cli import main

main()
