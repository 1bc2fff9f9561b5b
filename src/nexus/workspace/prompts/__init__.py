"""Texts that ship with the package, and the templates that `nexus init` writes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prompt_text(name: str) -> str:
    """Return a packaged text without its final line break."""
    return (files(__name__) / name).read_text("utf-8").removesuffix("\n")
