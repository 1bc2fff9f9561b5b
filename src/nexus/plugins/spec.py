"""The hooks that a plugin may have, in pluggy's form. Each is a plain function marked with `nexus.hookimpl`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pluggy

from nexus.types.profile import Profile
from nexus.types.request import Request

GROUP = "nexus"
"""The name of the entry point group, and of the project for pluggy."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def nexus_sources() -> Mapping[str, Callable[..., Any]] | None:
    """Sources by the names that profiles use for them, asked for once. A source takes a `nexus.workspace.source_context.Desk`.

    It returns a text, a Block, a list of Blocks, or None.
    """


@hookspec
def nexus_moment(request: Request, at_ms: int) -> Mapping[str, Any] | None:
    """Values for the hook data of a user's message, asked for whenever one is assembled: JSON values by name."""


@hookspec
def nexus_tools(request: Request) -> Iterable[Mapping[str, Any]] | None:
    """Definitions of tools, in any provider's form, asked for in each call."""


@hookspec
def nexus_profiles() -> Iterable[Profile] | None:
    """Profiles, asked for once."""
