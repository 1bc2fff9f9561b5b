"""Environment of an agent: capabilities by category with their states, and the number of credentials.

A survey is taken at a session's start, at a compaction or on request, so that the system slot does not change because a
program was installed in between (document 002).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.types.block import ContextWarning

ORIGIN = "nexus:environment"
"""Source name of the environment block."""

CapabilityState: TypeAlias = Literal["active", "ready", "setup", "broken"]
"""`active`: used or checked. `ready`: all requirements are met. `setup`: a requirement is missing.
`broken`: a service rejected its credential."""

_ORDER: tuple[CapabilityState, ...] = ("active", "ready", "setup", "broken")


class Capability(Struct, frozen=True):
    """Something that a skill makes possible."""

    name: str
    category: str
    state: CapabilityState
    needs: str = ""
    """The missing requirements in a few words, e.g. `needs API key`."""
    skill: str = ""
    why: tuple[str, ...] = ()
    """One sentence for each missing or broken requirement."""
    credentials: tuple[str, ...] = ()
    """The configured credentials that it uses."""


class CapabilityGroup(Struct, frozen=True):
    """Capabilities of one category with the same state and needs, names sorted."""

    category: str
    state: CapabilityState
    needs: str
    names: tuple[str, ...]


class Environment(Struct, frozen=True):
    """Capabilities sorted by category and name, and the configured credentials."""

    capabilities: tuple[Capability, ...] = ()
    credentials: int = 0
    """Number of configured credentials, broken ones included."""
    broken: tuple[str, ...] = ()
    at_ms: int = 0
    """Time of the survey."""
    warnings: tuple[ContextWarning, ...] = ()

    def groups(self) -> tuple[CapabilityGroup, ...]:
        """Return the capabilities grouped by category, then active, ready, setup (by need), broken."""
        names: dict[tuple[str, int, str], list[str]] = {}
        for capability in self.capabilities:
            key = (capability.category, _ORDER.index(capability.state), capability.needs)
            names.setdefault(key, []).append(capability.name)
        return tuple(
            CapabilityGroup(category, _ORDER[rank], needs, tuple(sorted(names[category, rank, needs])))
            for category, rank, needs in sorted(names)
        )

    def scoped(self, names: Collection[str]) -> Environment:
        """Return the capabilities of these names, with the credentials that they use."""
        chosen = tuple(capability for capability in self.capabilities if capability.name in names)
        used = {name for capability in chosen for name in capability.credentials}
        broken = tuple(name for name in self.broken if name in used)
        return replace(self, capabilities=chosen, credentials=len(used), broken=broken)
