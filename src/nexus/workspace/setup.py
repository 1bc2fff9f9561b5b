"""What stands around all calls of an engine: brought together once, when it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from nexus.errors import BadSetting
from nexus.types.config import Config
from nexus.workspace.config.load import Configuration, read_configuration
from nexus.workspace.files.reader import Files, home_folder
from nexus.workspace.files.templates import template_texts
from nexus.workspace.instruction_layers import folders_of, layers_of
from nexus.workspace.source_context import Clock, Mode, WorkspaceContext
from nexus.workspace.sources.session_blocks import host_facts


def workspace_context(
    workspace: Path | None, home: str | Path | None, config: Config | None, mode: Mode, clock: Clock = "message"
) -> WorkspaceContext:
    """What stands around the calls of a workspace. Without a `config` it is read, from files and variables.

    Raises BadSetting for a mode or clock that there is not.
    """
    for name, value, allowed in (("mode", mode, get_args(Mode)), ("clock", clock, get_args(Clock))):
        if value not in allowed:
            raise BadSetting(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")
    mine = Path(home).expanduser() if home is not None else home_folder()
    read = (
        read_configuration(workspace, mine)
        if config is None
        else Configuration(config, own_names=config.instructions.names)
    )
    if workspace is None:
        return WorkspaceContext(config=read.config, mode=mode, warnings=read.warnings, clock=clock)
    links = read.config.files.hard_links
    names, cap = read.config.instructions.names, read.config.instructions.file_chars
    files, folders = Files(workspace, cap, template_texts(), hard_links=links), folders_of(workspace, mine)
    layers = layers_of(folders, files, names, read.own_names, cap)
    return WorkspaceContext(
        files,
        Files(mine, cap, hard_links=links),
        host_facts(),
        read.config,
        layers,
        mode,
        read.warnings or folders.warned,
        clock=clock,
    )
