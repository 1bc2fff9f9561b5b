"""Specifications of the hooks that a plugin may implement: plain functions marked with `nexus.hookimpl`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pluggy

from nexus.types.profile import Profile
from nexus.types.request import Request

GROUP = "nexus"  # the entry point group, and pluggy's project name

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def nexus_sources() -> Mapping[str, Callable[..., Any]] | None:
    """Return sources by the names that profiles use for them. Called once.

    A source takes a `nexus.workspace.source_context.SourceContext` and returns text, a Block, a list of Blocks, or
    None.
    """


@hookspec
def nexus_moment(request: Request, at_ms: int) -> Mapping[str, Any] | None:
    """Return JSON values by name for the hook data of a user's message. Called for each assembled message."""


@hookspec
def nexus_tools(request: Request) -> Iterable[Mapping[str, Any]] | None:
    """Return tool definitions in any provider's format. Called for each call."""


@hookspec
def nexus_profiles() -> Iterable[Profile] | None:
    """Return profiles. Called once."""


@hookspec
def nexus_formats() -> Mapping[str, Any] | None:
    """Return message formats by the names that profiles use for them. Called once.

    A format is a `nexus.assembly.formats.protocol.MessageFormat`; most extend `nexus.assembly.formats.roles.RolesFormat`. It is
    called without a time limit, as a part of the pipeline, and is known to the whole process.
    """


@hookspec
def nexus_readers() -> Mapping[str, Any] | None:
    """Return readers of other tools' session files, by the name of their format. Called by `nexus import`.

    A reader is a `nexus.interop.readers.FileReader`. It is known to the whole process.
    """
