"""What the agent can do here: capabilities by category with their states, and how many credentials there are.

It is a value that is taken once, at a session's start, at a compaction or when asked for, so that the system slot does
not move because a program was installed meanwhile (document 002).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.types.block import ContextWarning

ORIGIN = "nexus:environment"
"""The origin of the block that tells of it."""

CapabilityState: TypeAlias = Literal["active", "ready", "setup", "broken"]
"""`active`: works and was used or checked. `ready`: all that it needs is there. `setup`: something is missing.
`broken`: a credential was refused when it was checked."""


_ORDER: tuple[CapabilityState, ...] = ("active", "ready", "setup", "broken")


class Capability(Struct, frozen=True):
    """One thing that a skill makes possible. `needs` says in a few words what is missing, e.g. `needs API key`.

    `why` has a sentence for each thing that is missing or broken. `credentials` are the configured ones that it uses.
    """

    name: str
    category: str
    state: CapabilityState
    needs: str = ""
    skill: str = ""
    why: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()


class Group(Struct, frozen=True):
    """Capabilities of one category in one state, with the same need; names sorted."""

    category: str
    state: CapabilityState
    needs: str
    names: tuple[str, ...]


class Environment(Struct, frozen=True):
    """Capabilities sorted by category and name, the number of configured credentials, and those that are broken.

    The broken ones are among the configured. `at_ms` is when it was found to be so.
    """

    capabilities: tuple[Capability, ...] = ()
    credentials: int = 0
    broken: tuple[str, ...] = ()
    at_ms: int = 0
    warnings: tuple[ContextWarning, ...] = ()

    def groups(self) -> tuple[Group, ...]:
        """The capabilities in groups: by category, then active, ready, setup (by need), broken."""
        places = sorted({(one.category, _ORDER.index(one.state), one.needs) for one in self.capabilities})
        names: dict[tuple[str, int, str], list[str]] = {place: [] for place in places}
        for one in self.capabilities:
            names[one.category, _ORDER.index(one.state), one.needs].append(one.name)
        return tuple(
            Group(category, _ORDER[at], needs, tuple(sorted(names[category, at, needs])))
            for category, at, needs in places
        )

    def scoped(self, names: Collection[str]) -> Environment:
        """The part that capabilities of these names need: themselves, and the credentials that they use."""
        chosen = tuple(one for one in self.capabilities if one.name in names)
        used = {name for one in chosen for name in one.credentials}
        broken = tuple(name for name in self.broken if name in used)
        return replace(self, capabilities=chosen, credentials=len(used), broken=broken)
