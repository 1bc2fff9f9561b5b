"""Instruction files in layers (document 004): personal, then global, ancestors and local, each under a labeled heading.

A folder that has several of the names contributes all of them, in the order of the names. A text that an earlier file has
or includes is shown once. If all files together exceed the configured size, the largest are truncated first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec.structs import replace

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.workspace.files.includes import Expansion, include_lines
from nexus.workspace.files.truncate import share_limits, truncate_text
from nexus.workspace.instruction_layers import PERSONAL, FileLayer, InstructionFile, LayerKind
from nexus.workspace.source_context import SourceContext, SourceResult, drop_repeated_files

LABELS: dict[LayerKind, str] = {
    "personal": "Personal instructions",
    "global": "Global instructions",
    "ancestor": "Ancestor instructions",
    "local": "Local instructions",
}
"""Headings; the file's path follows."""

TITLES: dict[LayerKind, str] = {
    "personal": "Personal Configuration",
    "global": "Global Configuration",
    "ancestor": "Ancestor Configuration",
    "local": "Project Configuration",
}
"""Headings of document 004's combined prompt ("Combination")."""

Heading: TypeAlias = Callable[[LayerKind, InstructionFile], str]

_truncate = lru_cache(maxsize=64)(truncate_text)


def instructions(context: SourceContext) -> SourceResult:
    """Return one block for each instruction file. Raises OverCap."""
    return layered_instructions(context.workspace.layers, context.workspace.config.instructions)


def configurations(context: SourceContext) -> SourceResult:
    """Return the same files under the headings of document 004's combined prompt. Raises OverCap.

    The path follows the heading, except for the personal prompt and the workspace's NEXUS.md, as printed there.
    """

    def heading(kind: LayerKind, file: InstructionFile) -> str:
        printed = kind == "personal" or file.origin == PERSONAL
        return f"# {TITLES[kind]}\n" if printed else f"# {TITLES[kind]} ({file.origin})\n"

    return layered_instructions(context.workspace.layers, context.workspace.config.instructions, heading)


def heading_for(kind: LayerKind, file: InstructionFile) -> str:
    """Return `# Local instructions (AGENTS.md)` and a blank line."""
    return f"# {LABELS[kind]} ({file.origin})\n\n"


def layered_instructions(
    layers: Sequence[FileLayer], config: InstructionsConfig, heading: Heading = heading_for
) -> SourceResult:
    """Return the blocks of all layers, in order, and warnings. Raises OverCap."""
    blocks: list[Block] = []
    expansion = Expansion(config, {})
    has_personal = False
    for layer in layers:
        for file in layer.places:
            if has_personal and layer.kind == "personal":
                continue
            bare = Block("Workspace", layer.kind, "", file.origin, trust=layer.trust)
            block = _block(bare, heading(layer.kind, file), file, expansion)
            if block is not None:
                blocks.append(block)
                has_personal = has_personal or layer.kind == "personal"
    blocks, warnings = within_total(blocks, config, "instruction files", ("personal", "global"))
    return blocks, [*expansion.warnings, *warnings]


def with_includes(context: SourceContext, name: str, title: str, block: Block) -> SourceResult:
    """Return `block` with a workspace file under a heading, and the files that it includes. Raises OverCap."""
    if context.files is None:
        return [], []
    expansion = Expansion(context.workspace.config.instructions, {})
    file = InstructionFile(context.files, name, name)
    expanded = _block(replace(block, source=name), f"# {title}\n\n", file, expansion)
    blocks = [expanded] if expanded is not None else []
    blocks, warnings = within_total(blocks, expansion.config, "instruction files")
    return blocks, [*expansion.warnings, *warnings]


def within_total(
    blocks: list[Block], config: InstructionsConfig, what: str, first: Collection[str] = ()
) -> SourceResult:
    """Truncate the largest blocks so that all together have at most `total_chars` characters. Raises OverCap.

    Blocks with names in `first` get their share before the others, so that files of a workspace cannot displace the user's.
    """
    sizes = [len(block.text) for block in blocks]
    total = config.total_chars
    if sum(sizes) <= total:
        return blocks, []
    if config.caps == "error":
        raise OverCap(f"all {what} together", sum(sizes), total)
    priority = share_limits(
        [size if block.name in first else 0 for block, size in zip(blocks, sizes, strict=True)], total
    )
    others = [0 if block.name in first else size for block, size in zip(blocks, sizes, strict=True)]
    limits = map(max, priority, share_limits(others, total - sum(priority)))
    result: list[Block] = []
    warnings: list[ContextWarning] = []
    for block, size, limit in zip(blocks, sizes, limits, strict=True):
        if size <= limit:
            result.append(block)
            continue
        short = _truncate(block.text, limit, block.source, block.omitted_chars)
        text = f"{short.omitted_chars:,} of {size:,} characters omitted (cap: {total:,} for all {what})"
        warnings.append(ContextWarning(block.source, text))
        result.append(replace(block, text=short.text, omitted_chars=block.omitted_chars + short.omitted_chars))
    return result, warnings


def _block(bare: Block, heading: str, file: InstructionFile, expansion: Expansion) -> Block | None:
    """Return `bare` with the file's text and includes; None for an absent file or one that adds no text."""
    content, warning = file.files.read(file.name)
    if warning is not None:
        expansion.warnings.append(ContextWarning(file.origin, warning.message))
    if content is None:
        return None
    if content.omitted_chars and expansion.config.caps == "error":
        raise OverCap(file.origin, content.chars, expansion.config.file_chars)
    unique, duplicates = drop_repeated_files([replace(bare, files=(content.hash,))], expansion.sources)
    expansion.warnings += duplicates
    if not unique:
        return None
    expansion.hashes, expansion.omitted_chars, repeats = [], content.omitted_chars, expansion.repeats
    text = expansion.expand(file, file.name, content)
    repeats = expansion.repeats - repeats
    if repeats:
        # A file of nothing but repeated includes, as `@AGENTS.md` in a CLAUDE.md, adds no text.
        lines = include_lines(content.text)
        other_words = len(content.text.split()) - sum(
            len(content.text[line.start : line.end].split()) for line in lines
        )
        if repeats == sum(len(line.paths) for line in lines) and not other_words:
            return None
    hashes = (content.hash, *expansion.hashes)
    return replace(unique[0], text=f"{heading}{text}", omitted_chars=expansion.omitted_chars, files=hashes)
