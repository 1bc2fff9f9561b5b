"""What every source is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.types.history import PreviousTurns
from nexus.types.request import Request
from nexus.types.skill import SkillsFound
from nexus.workspace.environment.snapshot import EnvironmentSnapshot
from nexus.workspace.files.reader import Files, FileText
from nexus.workspace.instruction_layers import FileLayer
from nexus.workspace.skills.discovery import SkillIndex

Mode: TypeAlias = Literal["", "repl", "server"]
"""How an agent is run, where that is known: in a terminal, or behind HTTP (document 004)."""

Clock: TypeAlias = Literal["message", "system"]
"""Where the profile `repl` tells the time: with each message, or in the system slot, as document 004 prints it."""


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """What stands around all calls of one engine: the workspace's files, the user's own, the machine, the configuration.

    Without a workspace there are no files. `home` is the user's folder, `~/.nexus`. `layers` are the places of instruction
    files, `mode` how the agent is run, `clock` where it is told the time, `warned` what is to be said of the configuration in every context. `shelves` has
    the skills as they were last read.
    """

    files: Files | None = None
    home: Files | None = None
    host: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Config = field(default_factory=Config)
    layers: tuple[FileLayer, ...] = ()
    mode: Mode = ""
    warnings: tuple[ContextWarning, ...] = ()
    skill_index: SkillIndex = field(default_factory=SkillIndex, kw_only=True)
    clock: Clock = field(default="message", kw_only=True)


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The material at hand for one call: the request, what stands around it, and the moment.

    `at_ms` is the event's time; `timezone` the zone to show it in, empty if unknown (`nexus.workspace.times`). `here` is
    what was found to work here. `earlier` is what was said before the turn, for forms that tell of it. `seen_skills` is
    what the call's first look at the skills found.
    """

    request: Request
    workspace: WorkspaceContext
    at_ms: int
    timezone: str
    environment: EnvironmentSnapshot = field(default_factory=EnvironmentSnapshot)
    previous_turns: PreviousTurns = field(default_factory=PreviousTurns, kw_only=True)
    skills_cache: list[SkillsFound] = field(default_factory=list[SkillsFound], kw_only=True)
    clock_ms: Callable[[], int] | None = field(default=None, kw_only=True)

    @property
    def files(self) -> Files | None:
        """The workspace's files."""
        return self.workspace.files


SourceResult: TypeAlias = tuple[list[Block], list[ContextWarning]]
Source: TypeAlias = Callable[[SourceContext], SourceResult]


def file_block(desk: SourceContext, name: str, title: str, block: Block) -> SourceResult:
    """The file as `block` with its text under a heading; nothing if it is absent."""
    if desk.files is None:
        return [], []
    found, warned = desk.files.read(name)
    notes = [warned] if warned else []
    if found is None:
        return [], notes
    check_cap(desk, found)
    text = f"# {title}\n\n{found.text}"
    left_out, files = found.left_out_chars, (found.hash,)
    return [Block(block.layer, block.name, text, name, block.slot, block.trust, left_out, files)], notes


def check_cap(desk: SourceContext, found: FileText) -> None:
    """Raises OverCap for a file that a cap shortened, where the configuration does not want that."""
    config = desk.workspace.config.instructions
    if found.left_out_chars and config.caps == "error":
        raise OverCap(found.origin, found.chars, config.file_chars)
