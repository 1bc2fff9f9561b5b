"""Loading of a conversation's surroundings in the layers of document 004: global, ancestors, local.

`nexus.workspace` decides which folders and files count, about includes and caps, and what a workspace's files may set
(docs/instructions.md). Files are read in each `load`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from nexus.errors import NotFound
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.workspace.config import (
    FILE_NAME,
    SERVERS_FILE,
    Configuration,
    McpServer,
    read_configuration,
    settings_files,
    values_of,
)
from nexus.workspace.environment.machine import environment_section
from nexus.workspace.files.reader import Files, home_folder, working_folder
from nexus.workspace.instruction_layers import FileLayer, Folders, folders_of, layers_of
from nexus.workspace.prompts import template_texts
from nexus.workspace.sources.instructions import layered_instructions

__all__ = ["ContextLayer", "ContextLoader", "ContextSources", "LoadedContext"]

LayerName: TypeAlias = Literal["global", "ancestor", "local"]


@dataclass(frozen=True, slots=True)
class ContextLayer:
    """One layer: its folder, its part of the prompt, and the settings and MCP servers that it sets.

    The personal prompt is part of the global layer.
    """

    name: LayerName
    path: Path
    prompt: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mcp_servers: tuple[McpServer, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextSources:
    """Sources of each part: the prompt's files in order, and the file of each setting and MCP server by its name."""

    prompt: tuple[str, ...]
    config: Mapping[str, str]
    mcp_servers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadedContext:
    """The merged prompt, configuration and MCP servers, with warnings about truncated, omitted or unreadable text."""

    prompt: str
    config: Config
    mcp_servers: tuple[McpServer, ...]
    sources: ContextSources
    layers: tuple[ContextLayer, ...]
    warnings: tuple[ContextWarning, ...] = ()


class ContextLoader:
    """Loads the layers around a working directory (by default the current one). `home` is the user's folder."""

    def __init__(self, cwd: str | Path | None = None, *, home: str | Path | None = None) -> None:
        if cwd is not None:
            self._cwd = Path(cwd).expanduser().resolve()
        else:
            self._cwd = None
        if home is not None:
            self._home = Path(home).expanduser()
        else:
            self._home = None

    def load(self, is_repl: bool = True) -> LoadedContext:  # noqa: FBT002 - the signature of PromptLoader.load
        """Return all layers merged, the environment last in the prompt. Raises NotFound, BadConfig, OverCap."""
        cwd = self._cwd or working_folder()
        home = self._home or home_folder()
        if not cwd.is_dir():
            raise NotFound(f"folder {cwd} not found", code="workspace_missing")
        read = read_configuration(cwd, home)
        config = read.config.instructions
        folders = folders_of(cwd, home)
        cap = config.file_chars
        links = read.config.files.hard_links
        workspace_files = Files(cwd, cap, template_texts(), hard_links=links)
        files = layers_of(folders, workspace_files, config.names, read.own_names, cap)
        blocks, warnings = layered_instructions(files, config)
        environment = environment_section(str(cwd), "repl" if is_repl else "server", os.environ)
        return LoadedContext(
            prompt="\n\n".join([*(block.text for block in blocks), environment]),
            config=read.config,
            mcp_servers=read.servers,
            sources=ContextSources(
                tuple(block.source for block in blocks),
                dict(read.origins),
                {server.name: server.origin for server in read.servers},
            ),
            layers=_layers(folders, files, blocks, read),
            warnings=(*read.warnings, *warnings),
        )


def _layers(
    folders: Folders, files: tuple[FileLayer, ...], blocks: list[Block], read: Configuration
) -> tuple[ContextLayer, ...]:
    """Return each layer with the settings that it sets, outermost first."""
    values = values_of(read.config)
    ancestors = [("ancestor", folder, (layer,)) for folder, layer in zip(folders.ancestors, files[2:-1], strict=True)]
    context_layers: list[ContextLayer] = []
    for name, folder, folder_files in [
        ("global", folders.home, files[:2]),
        *ancestors,
        ("local", folders.workspace, files[-1:]),
    ]:
        prompts = {place.origin for layer in folder_files for place in layer.places}
        settings = _origin_in(folders, folder, FILE_NAME)
        servers = _origin_in(folders, folder, SERVERS_FILE)
        context_layers.append(
            ContextLayer(
                cast("LayerName", name),
                folder or folders.home,
                "\n\n".join(block.text for block in blocks if block.source in prompts),
                {key: values[key] for key, origin in read.origins.items() if origin == settings},
                tuple(server for server in read.servers if server.origin == servers),
            )
        )
    return tuple(context_layers)


def _origin_in(folders: Folders, folder: Path | None, name: str) -> str:
    """Return the displayed name of a layer's settings file; empty if the file belongs to another layer."""
    origins = (file.origin for file in settings_files(folders, name) if (file.inside or folders.home) == folder)
    return next(origins, "")
