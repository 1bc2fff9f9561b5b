"""A skill: a folder with a SKILL.md as the Agent Skills standard has it, read and judged."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

SkillPlace: TypeAlias = Literal["workspace", "user", "packaged"]
"""Where a skill lies: in the workspace's `skills`, in the user's, or with the package. The first of a name counts."""


class Requires(Struct, frozen=True):
    """What has to be there before a skill can be used: programs on the path, variables, credentials by name."""

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()


class Skill(Struct, frozen=True):
    """A skill's front matter. `origin` is its SKILL.md: relative to the workspace, else `~/.nexus/…` or `nexus:…`.

    `always` puts its text into every context. `provides` are the capabilities that it gives (its own name if it names
    none), listed under `category`.
    """

    name: str
    description: str
    origin: str
    place: SkillPlace = "workspace"
    always: bool = False
    requires: Requires = Requires()
    provides: tuple[str, ...] = ()
    category: str = ""
    license: str = ""
    compatibility: str = ""
    allowed_tools: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
