"""Instruction files in layers (document 004): personal, then global, ancestors and local, each under a labelled heading.

A folder that has several of the names gives them all, in the order of the names; a text that stands already, since one is
a link to the other or includes it, is shown once. The largest files are shortened first where all together have more
characters than the configuration allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec.structs import replace

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.workspace.files.dedupe import drop_repeated_files
from nexus.workspace.files.includes import Expansion, include_lines
from nexus.workspace.files.truncate import share_limits, truncate_text
from nexus.workspace.instruction_layers import PERSONAL, FileLayer, InstructionFile, LayerKind
from nexus.workspace.source_context import SourceContext, SourceResult

LABELS: dict[LayerKind, str] = {
    "personal": "Personal instructions",
    "global": "Global instructions",
    "ancestor": "Ancestor instructions",
    "local": "Local instructions",
}
"""What the headings say; behind it stands the file's path."""

TITLES: dict[LayerKind, str] = {
    "personal": "Personal Configuration",
    "global": "Global Configuration",
    "ancestor": "Ancestor Configuration",
    "local": "Project Configuration",
}
"""What the headings say where they are those of document 004's combined prompt ("Combination")."""

Heading: TypeAlias = Callable[[LayerKind, InstructionFile], str]

_capped = lru_cache(maxsize=64)(truncate_text)


def instructions(desk: SourceContext) -> SourceResult:
    """One block for each instruction file. Raises OverCap."""
    return layered_instructions(desk.workspace.layers, desk.workspace.config.instructions)


def configurations(desk: SourceContext) -> SourceResult:
    """The same files under the headings of document 004's combined prompt. Raises OverCap.

    The personal prompt and the workspace's NEXUS.md have the printed ones, all others their path behind it.
    """
    return layered_instructions(desk.workspace.layers, desk.workspace.config.instructions, _titled)


def heading_for(kind: LayerKind, place: InstructionFile) -> str:
    """`# Local instructions (AGENTS.md)`, and a blank line."""
    return f"# {LABELS[kind]} ({place.origin})\n\n"


def _titled(kind: LayerKind, place: InstructionFile) -> str:
    printed = kind == "personal" or place.origin == PERSONAL
    return f"# {TITLES[kind]}\n" if printed else f"# {TITLES[kind]} ({place.origin})\n"


def layered_instructions(
    layers: Sequence[FileLayer], config: InstructionsConfig, heading: Heading = heading_for
) -> SourceResult:
    """The blocks of all layers, in order, and what the user should know. Raises OverCap."""
    blocks: list[Block] = []
    expansion = Expansion(config, {})
    personal = False
    for layer in layers:
        for place in layer.places:
            if personal and layer.kind == "personal":
                continue
            bare = Block("Workspace", layer.kind, "", place.origin, trust=layer.trust)
            block = _block(bare, heading(layer.kind, place), place, expansion)
            if block is not None:
                blocks.append(block)
                personal = personal or layer.kind == "personal"
    shown, warned = within_total(blocks, config, "instruction files", ("personal", "global"))
    return shown, [*expansion.warned, *warned]


def with_includes(desk: SourceContext, name: str, title: str, block: Block) -> SourceResult:
    """The workspace's file as `block` with its text under a heading, and the files that it includes. Raises OverCap."""
    if desk.files is None:
        return [], []
    expansion = Expansion(desk.workspace.config.instructions, {})
    made = _block(replace(block, source=name), f"# {title}\n\n", InstructionFile(desk.files, name, name), expansion)
    shown, warned = within_total([made] if made is not None else [], expansion.config, "instruction files")
    return shown, [*expansion.warned, *warned]


def within_total(
    blocks: list[Block], config: InstructionsConfig, what: str, first: Collection[str] = ()
) -> SourceResult:
    """The blocks with at most `total_chars` characters together, the largest shortened. Raises OverCap.

    Blocks with names in `first` have room before the others: no number of files in a workspace shortens the user's own.
    """
    sizes = [len(block.text) for block in blocks]
    if sum(sizes) <= config.total_chars:
        return blocks, []
    if config.caps == "error":
        raise OverCap(f"all {what} together", sum(sizes), config.total_chars)
    shown: list[Block] = []
    warned: list[ContextWarning] = []
    own = share_limits(
        [size if block.name in first else 0 for block, size in zip(blocks, sizes, strict=True)], config.total_chars
    )
    others = [0 if block.name in first else size for block, size in zip(blocks, sizes, strict=True)]
    rest = share_limits(others, config.total_chars - sum(own))
    for block, size, level in zip(blocks, sizes, map(max, own, rest), strict=True):
        if size <= level:
            shown.append(block)
            continue
        short = _capped(block.text, level, block.source, block.omitted_chars)
        note = f"{short.left_out_chars:,} of {size:,} characters left out: all {what} together may have {config.total_chars:,}"
        warned.append(ContextWarning(block.source, note))
        shown.append(replace(block, text=short.text, omitted_chars=block.omitted_chars + short.left_out_chars))
    return shown, warned


def _block(bare: Block, heading: str, place: InstructionFile, expansion: Expansion) -> Block | None:
    """`bare` with one file's text and what it includes; None where there is none, or its text stands already."""
    found, note = place.files.read(place.name)
    if note is not None:
        expansion.warned.append(ContextWarning(place.origin, note.message))
    if found is None:
        return None
    if found.left_out_chars and expansion.config.caps == "error":
        raise OverCap(place.origin, found.chars, expansion.config.file_chars)
    kept, repeats = drop_repeated_files([replace(bare, files=(found.hash,))], expansion.seen)
    expansion.warned += repeats
    if not kept:
        return None
    expansion.hashes, expansion.left_out, repeated = [], found.left_out_chars, expansion.repeated
    text = expansion.expand(place, place.name, found)
    if _only_repeats(found.text, expansion.repeated - repeated):
        return None
    files = (found.hash, *expansion.hashes)
    return replace(kept[0], text=f"{heading}{text}", omitted_chars=expansion.left_out, files=files)


def _only_repeats(text: str, repeated: int) -> bool:
    """Whether a text says nothing but the names of files whose text stands already, as `@AGENTS.md` in a CLAUDE.md."""
    if not repeated:
        return False
    lines = include_lines(text)
    named = sum(len(line.paths) for line in lines)
    outside = len(text.split()) - sum(len(text[line.start : line.end].split()) for line in lines)
    return named == repeated and outside == 0
