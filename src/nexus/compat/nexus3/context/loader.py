"""Loading everything around a conversation in the layers of document 004: global, ancestors, local.

A thin door on `nexus.workspace.sources.registry`: which folders and files count, includes, caps and what a workspace's files may set are
decided there (docs/instructions.md). Files are read for each `load`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from nexus.errors import WorkspaceMissing
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.workspace.config.files import settings_files
from nexus.workspace.config.load import FILE_NAME, Configuration, read_configuration, values_of
from nexus.workspace.environment.mcp import FILE_NAME as SERVERS_NAME
from nexus.workspace.environment.mcp import McpServer
from nexus.workspace.environment.system_info import environment_section
from nexus.workspace.files.reader import Files, home_folder, working_folder
from nexus.workspace.files.templates import template_texts
from nexus.workspace.instruction_layers import FileLayer, Folders, folders_of, layers_of
from nexus.workspace.sources.instructions import layered_instructions

__all__ = ["ContextLayer", "ContextLoader", "ContextSources", "LoadedContext"]

LayerName: TypeAlias = Literal["global", "ancestor", "local"]


@dataclass(frozen=True, slots=True)
class ContextLayer:
    """One layer: its folder, its part of the prompt, and the settings and MCP servers that hold because of it.

    The personal prompt is part of the global layer.
    """

    name: LayerName
    path: Path
    prompt: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mcp_servers: tuple[McpServer, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextSources:
    """Where each piece comes from: the prompt's files in order, and the file of each setting and MCP server by its name."""

    prompt: tuple[str, ...]
    config: Mapping[str, str]
    mcp_servers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadedContext:
    """The merged prompt, configuration and MCP servers; `warnings` say what was cut, left out or unreadable."""

    prompt: str
    config: Config
    mcp_servers: tuple[McpServer, ...]
    sources: ContextSources
    layers: tuple[ContextLayer, ...]
    warnings: tuple[ContextWarning, ...] = ()


class ContextLoader:
    """Loads the layers around a working directory (this one if none is given). `home` is the user's folder of Nexus."""

    def __init__(self, cwd: str | Path | None = None, *, home: str | Path | None = None) -> None:
        self._cwd = Path(cwd).expanduser().resolve() if cwd is not None else None
        self._home = Path(home).expanduser() if home is not None else None

    def load(self, is_repl: bool = True) -> LoadedContext:  # noqa: FBT002 - the signature of PromptLoader.load
        """All layers merged, the surroundings last in the prompt. Raises WorkspaceMissing, BadConfig, OverCap."""
        cwd, home = self._cwd or working_folder(), self._home or home_folder()
        if not cwd.is_dir():
            raise WorkspaceMissing(f"there is no folder {cwd}")
        read = read_configuration(cwd, home)
        config = read.config.instructions
        folders = folders_of(cwd, home)
        cap, links = config.file_chars, read.config.files.hard_links
        here = Files(cwd, cap, template_texts(), hard_links=links)
        files = layers_of(folders, here, config.names, read.own_names, cap)
        blocks, warned = layered_instructions(files, config)
        about = environment_section(str(cwd), "repl" if is_repl else "server", os.environ)
        return LoadedContext(
            prompt="\n\n".join([*(block.text for block in blocks), about]),
            config=read.config,
            mcp_servers=read.servers,
            sources=_sources(blocks, read),
            layers=_layers(folders, files, blocks, read),
            warnings=(*read.warnings, *warned),
        )


def _sources(blocks: list[Block], read: Configuration) -> ContextSources:
    return ContextSources(
        tuple(block.source for block in blocks), dict(read.origins), {one.name: one.origin for one in read.servers}
    )


def _layers(
    folders: Folders, files: tuple[FileLayer, ...], blocks: list[Block], read: Configuration
) -> tuple[ContextLayer, ...]:
    """Each layer with what holds because of it, outermost first."""
    values = values_of(read.config)
    ancestors = [("ancestor", folder, (layer,)) for folder, layer in zip(folders.ancestors, files[2:-1], strict=True)]
    made: list[ContextLayer] = []
    for name, folder, own in [
        ("global", folders.home, files[:2]),
        *ancestors,
        ("local", folders.workspace, files[-1:]),
    ]:
        prompts = {place.origin for layer in own for place in layer.places}
        settings = _origin_in(folders, folder, FILE_NAME)
        servers = _origin_in(folders, folder, SERVERS_NAME)
        made.append(
            ContextLayer(
                cast("LayerName", name),
                folder or folders.home,
                "\n\n".join(block.text for block in blocks if block.source in prompts),
                {key: values[key] for key, origin in read.origins.items() if origin == settings},
                tuple(server for server in read.servers if server.origin == servers),
            )
        )
    return tuple(made)


def _origin_in(folders: Folders, folder: Path | None, name: str) -> str:
    """How a layer's file of settings is shown; empty where it is another layer's already."""
    found = (file.origin for file in settings_files(folders, name) if (file.inside or folders.home) == folder)
    return next(found, "")
