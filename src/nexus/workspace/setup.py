"""Construction of the `WorkspaceContext` when an engine is opened."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from nexus.errors import BadSetting
from nexus.types.config import Config
from nexus.workspace.config.load import Configuration, read_configuration
from nexus.workspace.environment.system_info import host_facts
from nexus.workspace.files.reader import Files, home_folder
from nexus.workspace.files.templates import template_texts
from nexus.workspace.instruction_layers import folders_of, layers_of
from nexus.workspace.source_context import Clock, Mode, WorkspaceContext


def workspace_context(
    workspace: Path | None, home: str | Path | None, config: Config | None, mode: Mode, clock: Clock = "message"
) -> WorkspaceContext:
    """Return the context of a workspace. Without a `config` it is read from files and variables.

    Raises BadSetting for an unknown mode or clock.
    """
    for name, value, allowed in (("mode", mode, get_args(Mode)), ("clock", clock, get_args(Clock))):
        if value not in allowed:
            raise BadSetting(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")
    user = Path(home).expanduser() if home is not None else home_folder()
    loaded = (
        read_configuration(workspace, user)
        if config is None
        else Configuration(config, own_names=config.instructions.names)
    )
    if workspace is None:
        return WorkspaceContext(config=loaded.config, mode=mode, warnings=loaded.warnings, clock=clock)
    names, cap = loaded.config.instructions.names, loaded.config.instructions.file_chars
    hard_links = loaded.config.files.hard_links
    files, folders = Files(workspace, cap, template_texts(), hard_links=hard_links), folders_of(workspace, user)
    return WorkspaceContext(
        files,
        Files(user, cap, hard_links=hard_links),
        host_facts(),
        loaded.config,
        layers_of(folders, files, names, loaded.own_names, cap),
        mode,
        loaded.warnings or folders.warnings,
        clock=clock,
    )
