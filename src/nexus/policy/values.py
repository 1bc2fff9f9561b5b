"""The parts of a policy, as a file or a program defines them, and the result of applying policies to one call."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nexus.types.block import ContextWarning
from nexus.types.settings import AgentRole

MESSAGING = "messaging"
"""The category of tools that write to people. A worker may only use `REPLY` of them (document 002)."""

REPLY = "reply"
"""The messaging tool by which a worker answers its manager."""


class Toolset(Struct, frozen=True, forbid_unknown_fields=True):
    """The tools that a name allows: those in `tools` or in one of `categories`, except those in `deny`."""

    tools: tuple[str, ...] = ()
    """Patterns: `*` matches any characters, `?` exactly one."""
    deny: tuple[str, ...] = ()
    """Patterns that override `tools` and `categories`."""
    categories: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None
    """Capabilities listed in the environment section; None lists all."""


class Principal(Struct, frozen=True, forbid_unknown_fields=True):
    """A speaker, by the name that a platform gives (`telegram:42`). The policy's default fills in unset fields."""

    person: str = ""
    """Principals of the same person share a session."""
    role: AgentRole | None = None
    toolset: str = ""
    session: str = ""
    permissions: tuple[str, ...] | None = None
    """None leaves the call's own permissions unchanged."""

    def label(self, principal: str) -> str:
        """Return the label of the principal's session."""
        return self.session or f"dm:{self.person or principal}"


class Default(Struct, frozen=True, forbid_unknown_fields=True):
    """Values for principals that the policy does not define, and for unset fields of those it does."""

    toolset: str
    role: AgentRole | None = None
    permissions: tuple[str, ...] | None = None


class RoleRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Restrictions of a role: only tools of `toolset`, and none that matches a pattern of `deny`."""

    toolset: str = ""
    deny: tuple[str, ...] = ()


class Policy(Struct, frozen=True):
    """One policy.

    With principals and without a default, only the principals it defines get any tool. Without principals it applies
    to everybody alike.
    """

    name: str = "the policy"
    """The file's name, or another name for messages."""
    toolsets: dict[str, Toolset] = {}
    principals: dict[str, Principal] = {}
    roles: dict[AgentRole, RoleRule] = {}
    categories: dict[str, tuple[str, ...]] = {}
    """Patterns of tool names, by the category that they assign."""
    default: Default | None = None


class DeniedTool(Struct, frozen=True):
    """A tool of the request that is not offered to the model."""

    name: str
    reason: str
    definition: dict[str, Any]


class Grant(Struct, frozen=True):
    """The result of applying the policies to one call."""

    role: AgentRole
    session: str
    toolset: str = ""
    """The names of all toolsets that apply, joined with ` & `."""
    permissions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None
    tools: tuple[str, ...] = ()
    """Names of the tools that may be offered, sorted."""
    denied_tools: tuple[DeniedTool, ...] = ()
    person: str = ""
    why: tuple[str, ...] = ()
    """The sources of role, session, toolset and permissions, one line each."""
    warnings: tuple[ContextWarning, ...] = ()
