"""Input and output of sources: the context of a workspace and of a call, and blocks with warnings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.types.history import PreviousTurns
from nexus.types.request import Request
from nexus.types.settings import Clock
from nexus.types.skill import SkillCatalog
from nexus.workspace.config import Configuration, read_configuration
from nexus.workspace.environment.machine import EnvironmentSnapshot, host_facts
from nexus.workspace.files.reader import Files, FileText, home_folder
from nexus.workspace.instruction_layers import FileLayer, folders_of, layers_of
from nexus.workspace.prompts import template_texts
from nexus.workspace.skills.discovery import SkillIndex


@dataclass(frozen=True, slots=True)
class EngineWorkspace:
    """Everything that the calls of one engine share: files, machine facts, configuration."""

    files: Files | None = None
    """The workspace's files; None without a workspace."""
    home: Files | None = None
    """The user's folder, `~/.nexus`."""
    host: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Config = field(default_factory=Config)
    layers: tuple[FileLayer, ...] = ()
    """Possible locations of instruction files."""
    warnings: tuple[ContextWarning, ...] = ()
    """Warnings about the configuration, repeated in every context."""
    skill_index: SkillIndex = field(default_factory=SkillIndex, kw_only=True)


def workspace_context(workspace: Path | None, home: str | Path | None, config: Config | None) -> EngineWorkspace:
    """Return the context of a workspace. Without a `config` it is read from files and variables."""
    if home is not None:
        user = Path(home).expanduser()
    else:
        user = home_folder()
    if config is None:
        loaded = read_configuration(workspace, user)
    else:
        loaded = Configuration(config, own_names=config.instructions.names)
    if workspace is None:
        return EngineWorkspace(config=loaded.config, warnings=loaded.warnings)
    names = loaded.config.instructions.names
    cap = loaded.config.instructions.file_chars
    hard_links = loaded.config.files.hard_links
    files = Files(workspace, cap, template_texts(), hard_links=hard_links)
    folders = folders_of(workspace, user)
    return EngineWorkspace(
        files,
        Files(user, cap, template_texts(), hard_links=hard_links),
        host_facts(),
        loaded.config,
        layers_of(folders, files, names, loaded.own_names, cap),
        loaded.warnings or folders.warnings,
    )


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Per-call context passed to every source: request, workspace and time."""

    request: Request
    workspace: EngineWorkspace
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
    last_blocks: Collection[str] = field(default=(), kw_only=True)
    """Keys of the blocks in the system prompt of the session's last call."""

    @property
    def clock(self) -> Clock:
        """Place of the time: by default the message, or `off` next to the application's own system prompt."""
        settings = self.request.settings
        return settings.clock or ("off" if settings.system else "message")

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
            if first == block.source:
                duplicate = "duplicate of an earlier block"
            else:
                duplicate = f"same text as {first}"
            warnings.append(ContextWarning(block.source, f"omitted: {duplicate}"))
    return unique, warnings
