"""Instruction files in layers (document 004): personal, then global, ancestors and local, each under a labeled heading.

A folder that has several of the names contributes all of them, in the order of the names. A text that an earlier file has
or includes is shown once. If all files together exceed the configured size, the largest are truncated first.

A line of nothing but `@path`, optionally after a list's dash, includes files. Claude Code and Gemini CLI document `@path`
anywhere in a text. Here it takes a line of its own (which may have several): in a sentence, `@name` is as often a person, a
package or a decorator, and a file inserted there would tear the sentence apart. Paths are relative to the including file
and stay inside the folder of its layer. A failed include stays as text, with a warning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning
from nexus.types.config import InstructionsConfig
from nexus.workspace.files.reader import FileText
from nexus.workspace.files.truncate import close_fences, fences, is_fenced, share_limits, truncate_text
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

MAX_INCLUDES = 64  # number of files that one context's instructions may include in all
MAX_LOOKUPS = 256  # number of paths that are looked up in all, existing or not

_INCLUDE_LINE = re.compile(r"^[ \t]{0,3}(?:[-*+][ \t]+)?(@[^\s@]+(?:[ \t]+@[^\s@]+)*)[ \t]*$", re.MULTILINE)

_truncate = lru_cache(maxsize=64)(truncate_text)
_close_fences = lru_cache(maxsize=256)(close_fences)


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
    for layer in layers:
        for file in layer.places:
            bare = Block("Workspace", layer.kind, "", file.origin, trust=layer.trust)
            block = _block(bare, heading(layer.kind, file), file, expansion)
            if block is not None:
                blocks.append(block)
                if layer.kind == "personal":
                    break  # its other places are fallbacks for a user without such a file
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
    early = [size if block.name in first else 0 for block, size in zip(blocks, sizes, strict=True)]
    priority = share_limits(early, total)
    others = [size - own for size, own in zip(sizes, early, strict=True)]
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
    expansion.hashes = []
    expansion.omitted_chars = content.omitted_chars
    repeats = expansion.repeats
    text = expansion.expand(file, file.name, content)
    repeats = expansion.repeats - repeats
    if repeats:
        # A file of nothing but repeated includes, as `@AGENTS.md` in a CLAUDE.md, adds no text.
        lines = include_lines(content.text)
        words = sum(len(content.text[line.start : line.end].split()) for line in lines)
        if repeats == sum(len(line.paths) for line in lines) and words == len(content.text.split()):
            return None
    hashes = (content.hash, *expansion.hashes)
    return replace(unique[0], text=f"{heading}{text}", omitted_chars=expansion.omitted_chars, files=hashes)


class IncludeLine(Struct, frozen=True):
    """Position of a line that includes files, and the paths as written."""

    start: int
    end: int
    paths: tuple[str, ...]


@lru_cache(maxsize=256)
def include_lines(text: str) -> tuple[IncludeLine, ...]:
    """Return the lines of a text that include files, in order; none inside code fences."""
    if "@" not in text:
        return ()
    spans = fences(text)
    starts = [fence.start for fence in spans]
    return tuple(
        IncludeLine(line.start(), line.end(), tuple(path[1:] for path in line[1].split()))
        for line in _INCLUDE_LINE.finditer(text)
        if not is_fenced(spans, starts, line.start())
    )


@dataclass(slots=True)
class Expansion:
    """Replaces include lines by files, each file once, while one context's instruction files are read."""

    config: InstructionsConfig
    sources: dict[str, str]
    """Source of each file's text so far, by the text's hash."""
    warnings: list[ContextWarning] = field(default_factory=list[ContextWarning])
    hashes: list[str] = field(default_factory=list[str])
    """Hashes of the files included in the current instruction file."""
    omitted_chars: int = 0
    """Characters omitted from the current instruction file and its includes."""
    count: int = 0
    """Number of included files."""
    repeats: int = 0
    """Number of include lines whose text was already shown."""
    lookups: int = 0
    is_full: bool = False
    _parents: list[str] = field(default_factory=list[str])
    """Files being expanded, outermost first."""

    def expand(self, file: InstructionFile, name: str, content: FileText) -> str:
        """Return the text of a file (`name` under the root of `file`) with its includes. Raises OverCap."""
        lines = include_lines(content.text) if self.config.include_depth else ()
        if not lines:
            return content.text
        self._parents.append(name)
        out: list[str] = []
        at = 0
        for line in lines:
            pieces = [self._piece(file, name, path) for path in line.paths]
            if any(piece is not None for piece in pieces):
                texts = [piece or f"@{path}" for piece, path in zip(pieces, line.paths, strict=True)]
                out += [content.text[at : line.start], "\n".join(texts)]
                at = line.end
        self._parents.pop()
        return "".join([*out, content.text[at:]])

    def _piece(self, file: InstructionFile, name: str, path: str) -> str | None:
        """Return the included file between two comments that name it; None if it is not included."""
        target = os.path.normpath(os.path.join(os.path.dirname(name), os.path.expanduser(path)))  # noqa: PTH111, PTH118, PTH120 - text of paths, on the hot path
        inner = os.path.relpath(target, file.files.root) if os.path.isabs(target) else target  # noqa: PTH117 - the same
        parent = f"{file.prefix}{name}" if self._parents[1:] else file.origin
        if self.count >= MAX_INCLUDES or self.lookups >= MAX_LOOKUPS:
            if not self.is_full:
                self.warnings.append(ContextWarning(parent, f"'@{path}' and later includes omitted: too many"))
            self.is_full = True
            return None
        self.lookups += 1
        if inner in self._parents:
            return self._omit(parent, path, "circular include")
        if len(self._parents) > self.config.include_depth:
            return self._omit(parent, path, f"nested more than {self.config.include_depth} deep")
        if inner == os.pardir or inner.startswith(f"{os.pardir}{os.sep}"):
            return self._omit(parent, path, "outside this folder")
        content, warning = file.files.read(inner)
        if content is None:
            if warning is not None:
                return self._omit(parent, path, warning.message.removeprefix("omitted: "))
            # A single word that names no file is a mention of a person or package, which needs no warning.
            is_path = "/" in path or "." in path
            if is_path:
                return self._omit(parent, path, "file not found or empty")
            return None
        if content.hash in self.sources:
            self.repeats += 1
            return self._omit(parent, path, f"duplicate of {self.sources[content.hash]}")
        origin = f"{file.prefix}{inner}"
        if content.omitted_chars and self.config.caps == "error":
            raise OverCap(origin, content.chars, self.config.file_chars)
        if warning is not None:
            self.warnings.append(ContextWarning(origin, warning.message))
        self.count += 1
        self.sources[content.hash] = origin
        self.hashes.append(content.hash)
        self.omitted_chars += content.omitted_chars
        text = _close_fences(self.expand(file, inner, content))
        return f"<!-- {origin} -->\n{text}\n<!-- end of {origin} -->"

    def _omit(self, parent: str, path: str, why: str) -> None:
        self.warnings.append(ContextWarning(parent, f"'@{path}' omitted: {why}"))
