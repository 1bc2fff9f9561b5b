"""Entry point of `python -m nexus.cli`."""

from __future__ import annotations

from nexus.cli import main

main()
