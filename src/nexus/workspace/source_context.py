"""Input and output of sources: the context of a call, and blocks with warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.types.history import PreviousTurns
from nexus.types.request import Request
from nexus.types.skill import SkillCatalog
from nexus.workspace.environment.probe import EnvironmentSnapshot
from nexus.workspace.files.reader import Files, FileText
from nexus.workspace.instruction_layers import FileLayer
from nexus.workspace.skills.discovery import SkillIndex

Mode: TypeAlias = Literal["", "repl", "server"]
"""How an agent is run: in a terminal, behind HTTP (document 004), or unknown."""

Clock: TypeAlias = Literal["message", "system"]
"""Where the profile `repl` shows the time: in each message, or in the system slot as document 004 prints it."""


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """Everything that the calls of one engine share: files, machine facts, configuration."""

    files: Files | None = None
    """The workspace's files; None without a workspace."""
    home: Files | None = None
    """The user's folder, `~/.nexus`."""
    host: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Config = field(default_factory=Config)
    layers: tuple[FileLayer, ...] = ()
    """Possible locations of instruction files."""
    mode: Mode = ""
    warnings: tuple[ContextWarning, ...] = ()
    """Warnings about the configuration, repeated in every context."""
    skill_index: SkillIndex = field(default_factory=SkillIndex, kw_only=True)
    clock: Clock = field(default="message", kw_only=True)


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Per-call context passed to every source: request, workspace and time."""

    request: Request
    workspace: WorkspaceContext
    at_ms: int
    """Time of the event."""
    timezone: str
    """Zone to show the time in (`nexus.workspace.times.parse_zone`), empty if unknown."""
    environment: EnvironmentSnapshot = field(default_factory=EnvironmentSnapshot)
    previous_turns: PreviousTurns = field(default_factory=PreviousTurns, kw_only=True)
    """The conversation before this turn, for formats that show it as blocks."""
    skills_cache: list[SkillCatalog] = field(default_factory=list[SkillCatalog], kw_only=True)
    """Skills discovered by the first source of the call that needs them."""
    clock_ms: Callable[[], int] | None = field(default=None, kw_only=True)

    @property
    def files(self) -> Files | None:
        """The workspace's files."""
        return self.workspace.files


SourceResult: TypeAlias = tuple[list[Block], list[ContextWarning]]
Source: TypeAlias = Callable[[SourceContext], SourceResult]


def file_block(context: SourceContext, name: str, title: str, block: Block) -> SourceResult:
    """Return `block` with the file's text under a heading; no block if the file is absent. Raises OverCap."""
    if context.files is None:
        return [], []
    file, warning = context.files.read(name)
    warnings = [warning] if warning else []
    if file is None:
        return [], warnings
    check_cap(context, file)
    text, hashes = f"# {title}\n\n{file.text}", (file.hash,)
    return [Block(block.layer, block.name, text, name, block.slot, block.trust, file.omitted_chars, hashes)], warnings


def check_cap(context: SourceContext, file: FileText) -> None:
    """Raise OverCap for a truncated file if the configuration says `caps = "error"`."""
    config = context.workspace.config.instructions
    if file.omitted_chars and config.caps == "error":
        raise OverCap(file.origin, file.chars, config.file_chars)


def drop_repeated_files(blocks: Iterable[Block], sources: dict[str, str]) -> tuple[list[Block], list[ContextWarning]]:
    """Return the blocks without files that an earlier block shows, and a warning for each omitted one.

    `sources` maps the hash of each file's text to the source that shows it, and is updated. A block's first hash is its own
    file's, further ones are of included files. Blocks without files stay.
    """
    unique: list[Block] = []
    warnings: list[ContextWarning] = []
    for block in blocks:
        first = sources.get(block.files[0]) if block.files else None
        if first is None:
            unique.append(block)
            for file_hash in block.files:
                sources.setdefault(file_hash, block.source)
        else:
            duplicate = "duplicate of an earlier block" if first == block.source else f"same text as {first}"
            warnings.append(ContextWarning(block.source, f"omitted: {duplicate}"))
    return unique, warnings
