"""A policy's parts, as a file or a program gives them, and what it comes to for one call."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nexus.types.block import ContextWarning
from nexus.types.request import AgentRole

MESSAGING = "messaging"
"""The category of tools that write to people. A worker has only `REPLY` of them (document 002)."""

SPAWNING = "spawning"
"""The category of tools that start workers: every role has them, workers for nested ones (document 002)."""

REPLY = "reply"
"""The messaging tool by which a worker answers its manager."""


class Toolset(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tools a name stands for: those that match a pattern of `tools` or are of one of `categories`, less `deny`.

    In a pattern `*` stands for any characters and `?` for one. `capabilities` are those of the environment that the
    agent is told of; None is all.
    """

    tools: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None


class Principal(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who may speak to the agent, by the name that a platform gives (`telegram:42`).

    Principals of one `person` share a session. What is not said comes from the policy's default; `permissions` None
    leaves the call's own as they are.
    """

    person: str = ""
    role: AgentRole | None = None
    toolset: str = ""
    session: str = ""
    permissions: tuple[str, ...] | None = None

    def label(self, principal: str) -> str:
        """The label of the session that is theirs."""
        return self.session or f"dm:{self.person or principal}"


class Default(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for everybody whom the policy does not name, and for what a named one's entry does not say."""

    toolset: str
    role: AgentRole | None = None
    permissions: tuple[str, ...] | None = None


class RoleRule(Struct, frozen=True, forbid_unknown_fields=True):
    """What one role has less than its principal: only the tools of `toolset`, and none that matches `deny`."""

    toolset: str = ""
    deny: tuple[str, ...] = ()


class Policy(Struct, frozen=True):
    """One policy. `name` is where it comes from. `categories` gives tools a category by patterns of their names.

    With principals and without a default only those named get any tool. Without principals it binds everybody alike.
    """

    name: str = "the policy"
    toolsets: dict[str, Toolset] = {}
    principals: dict[str, Principal] = {}
    roles: dict[AgentRole, RoleRule] = {}
    categories: dict[str, tuple[str, ...]] = {}
    default: Default | None = None


class DeniedTool(Struct, frozen=True):
    """A tool that was given for a call and is not offered to the model: its name, why, and its definition as given."""

    name: str
    why: str
    definition: dict[str, Any]


class Grant(Struct, frozen=True):
    """What one call is granted. `tools` are the names that may be offered, sorted; `toolset` names all that hold.

    `person` is who the principal is. `why` says in a line each where role, session, toolset and permissions come from.
    """

    role: AgentRole
    session: str
    toolset: str = ""
    permissions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None
    tools: tuple[str, ...] = ()
    denied_tools: tuple[DeniedTool, ...] = ()
    person: str = ""
    why: tuple[str, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()
