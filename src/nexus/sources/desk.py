"""What every source is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nexus.block import Block, Warned
from nexus.request import Request
from nexus.sources.files import Files


@dataclass(frozen=True, slots=True)
class Desk:
    """The material at hand: the request, the workspace's files (None without a workspace), the machine's facts.

    `at_ms` is the event's time; `timezone` the zone to show it in, an IANA name, empty if unknown.
    """

    request: Request
    files: Files | None
    host: Mapping[str, str]
    at_ms: int
    timezone: str


Gathered: TypeAlias = tuple[list[Block], list[Warned]]
Source: TypeAlias = Callable[[Desk], Gathered]


def file_block(desk: Desk, name: str, title: str, block: Block) -> Gathered:
    """The file as `block` with its text under a heading; nothing if it is absent."""
    if desk.files is None:
        return [], []
    found, warned = desk.files.read(name)
    notes = [warned] if warned else []
    if found is None:
        return [], notes
    text = f"# {title}\n\n{found.text}"
    return [Block(block.layer, block.name, text, name, block.slot, block.trust, found.left_out_chars)], notes
