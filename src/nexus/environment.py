"""What the agent can do here: capabilities by category with their states, and how many credentials there are.

It is a value that is taken once, at a session's start, at a compaction or when asked for, so that the system slot does
not move because a program was installed meanwhile (document 002).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

CapabilityState: TypeAlias = Literal["active", "ready", "setup", "broken"]
"""`active`: works and was used or checked. `ready`: all that it needs is there. `setup`: something is missing.
`broken`: a credential was refused when it was checked."""


class Capability(Struct, frozen=True):
    """One thing that a skill makes possible. `needs` says in a few words what is missing, e.g. `needs API key`."""

    name: str
    category: str
    state: CapabilityState
    needs: str = ""
    skill: str = ""


class Environment(Struct, frozen=True):
    """Capabilities sorted by category and name, the number of configured credentials, and those that are broken."""

    capabilities: tuple[Capability, ...] = ()
    credentials: int = 0
    broken: tuple[str, ...] = ()
    at_ms: int = 0
