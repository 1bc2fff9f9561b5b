"""Blocks that the application feeds, by name: `nx.assemble(…, blocks={"mood": "calm"})`.

Two names are sources of their own, after document 000's future blocks [MOOD] and [CONSTRAINTS]; a profile places any other
one as `fed:NAME`. The text may change with every call, so its place is the current message.
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
NAMED = ("mood", "constraints")
"""Blocks whose sources are called as they are."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def app_block(name: str) -> Source:
    """The source of the application's block of that name."""

    def source(desk: SourceContext) -> SourceResult:
        return _block(name, desk.request.blocks.get(name))

    return source


mood = app_block("mood")
constraints = app_block("constraints")


def app_block_name(source: str) -> str:
    """The name of the block that a source `fed:NAME` shows; empty for another source, and for what can be no such name."""
    name = source.removeprefix(PREFIX)
    return name if name != source and name not in NAMED and _NAME.fullmatch(name) else ""


def app_block_sources(profile: Profile) -> dict[str, Source]:
    """The sources `fed:NAME` that a profile names."""
    return {one: app_block(name) for one in _named(profile) if (name := app_block_name(one))}


def unplaced_blocks(blocks: Mapping[str, str], profile: Profile) -> list[ContextWarning]:
    """What to say about given blocks that a profile has no place for."""
    places = {app_block_name(one) or one.removesuffix("_block") for one in _named(profile)}
    return [
        ContextWarning(
            f"{PREFIX}{collapse_whitespace(str(name))[:80]}", f"left out: profile {profile.name!r} has no place for it"
        )
        for name in sorted(blocks, key=str)
        if name not in places
    ]


def app_block_text(name: str, text: object) -> tuple[str, int, list[ContextWarning]]:
    """A block's text within the cap ("" for none), how many characters the cap kept out, and what to say."""
    origin = f"{PREFIX}{name}"
    if not isinstance(text, str):
        none = text is None
        return "", 0, [] if none else [ContextWarning(origin, f"left out: it is {type(text).__name__} and no text")]
    over = len(text) - FILE_CHARS if text.strip() else 0
    if over <= 0:
        return text.strip(), 0, []
    short = f"{text[:FILE_CHARS]}\n[{over:,} more characters of {name} left out (cap {FILE_CHARS:,})]"
    return short.strip(), over, [ContextWarning(origin, f"{over:,} characters left out: the cap is {FILE_CHARS:,}")]


def _named(profile: Profile) -> tuple[str, ...]:
    return (*profile.system, *profile.preamble, *profile.current)


def _block(name: str, text: object) -> SourceResult:
    shown, over, warned = app_block_text(name, text)
    if not shown:
        return [], warned
    title = name.replace("_", " ").capitalize()
    framed = f"[{title} — from the application]\n{shown}"
    return [Block("Event", name, framed, f"{PREFIX}{name}", "current", "tool", over)], warned
