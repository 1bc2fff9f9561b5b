"""A skill: a folder with a SKILL.md as the Agent Skills standard has it, read and judged."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.block import Warned

SkillPlace: TypeAlias = Literal["workspace", "user", "packaged"]
"""Where a skill lies: in the workspace's `skills`, in the user's, or with the package. The first of a name counts."""


class Requires(Struct, frozen=True):
    """What has to be there before a skill can be used: programs on the path, variables, credentials by name.

    Of `any_bins` one is enough.
    """

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()


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


class SkillsFound(Struct, frozen=True):
    """The skills of all places, one of a name, sorted by name, and what the user should know of them."""

    skills: tuple[Skill, ...] = ()
    warnings: tuple[Warned, ...] = ()
