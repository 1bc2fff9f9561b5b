"""Application-provided blocks, by name: `nx.assemble(…, blocks={"mood": "calm"})`.

The names of document 000's future blocks [MOOD] and [CONSTRAINTS] are sources; a profile places any other block as
`fed:NAME`. The text may change with every call, so its place is the current message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nexus.text.one_line import collapse_whitespace
from nexus.types.block import Block, ContextWarning
from nexus.types.profile import Profile
from nexus.workspace.files.reader import FILE_CHARS
from nexus.workspace.source_context import Source, SourceContext, SourceResult

PREFIX = "fed:"
SOURCE_NAMED_BLOCKS = ("mood", "constraints")
"""Blocks whose source has the block's name, without the prefix."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def app_block(name: str) -> Source:
    """Return the source of the application's block of that name."""

    def source(context: SourceContext) -> SourceResult:
        text, omitted, warnings = app_block_text(name, context.request.blocks.get(name))
        if not text:
            return [], warnings
        title = name.replace("_", " ").capitalize()
        framed = f"[{title} — from the application]\n{text}"
        return [Block("Event", name, framed, f"{PREFIX}{name}", "current", "tool", omitted)], warnings

    return source


mood = app_block("mood")
constraints = app_block("constraints")


def app_block_name(source: str) -> str:
    """Return the name of the block that a source `fed:NAME` shows; "" for other sources and invalid names."""
    name = source.removeprefix(PREFIX)
    return name if name != source and name not in SOURCE_NAMED_BLOCKS and _NAME.fullmatch(name) else ""


def app_block_sources(profile: Profile) -> dict[str, Source]:
    """Return the functions of a profile's sources `fed:NAME`."""
    return {source: app_block(name) for source in _source_names(profile) if (name := app_block_name(source))}


def unplaced_blocks(blocks: Mapping[str, str], profile: Profile) -> list[ContextWarning]:
    """Return a warning for each block that the profile has no source for."""
    placed = {app_block_name(source) or source.removesuffix("_block") for source in _source_names(profile)}
    text = f"omitted: profile {profile.name!r} has no source for it"
    names = (name for name in sorted(blocks, key=str) if name not in placed)
    return [ContextWarning(f"{PREFIX}{collapse_whitespace(str(name))[:80]}", text) for name in names]


def app_block_text(name: str, text: object) -> tuple[str, int, list[ContextWarning]]:
    """Return a block's text within the cap ("" for none), the number of omitted characters, and warnings."""
    source = f"{PREFIX}{name}"
    if not isinstance(text, str):
        warning = ContextWarning(source, f"omitted: {type(text).__name__} is not text")
        return "", 0, [] if text is None else [warning]
    over = len(text) - FILE_CHARS if text.strip() else 0
    if over <= 0:
        return text.strip(), 0, []
    short = f"{text[:FILE_CHARS]}\n[{over:,} more characters of {name} left out (cap {FILE_CHARS:,})]"
    return short.strip(), over, [ContextWarning(source, f"{over:,} characters omitted (cap: {FILE_CHARS:,})")]


def _source_names(profile: Profile) -> tuple[str, ...]:
    return (*profile.system, *profile.preamble, *profile.current)
