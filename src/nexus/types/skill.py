"""Skills: folders with a SKILL.md in the form of the Agent Skills standard, after parsing and validation."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.block import ContextWarning

SkillPlace: TypeAlias = Literal["workspace", "user", "packaged"]
"""Folder of a skill: the workspace's `skills`, the user's, or the package's. The first skill of a name counts."""


class Requires(Struct, frozen=True):
    """Requirements of a skill: programs on the path, environment variables and credentials, by name."""

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    """Programs of which one is enough."""


class Skill(Struct, frozen=True):
    """Front matter of a skill."""

    name: str
    description: str
    origin: str
    """Its SKILL.md: relative to the workspace, or `~/.nexus/…`, or `nexus:…` for a packaged one."""
    place: SkillPlace = "workspace"
    always: bool = False
    """Include the full text in every context."""
    requires: Requires = Requires()
    provides: tuple[str, ...] = ()
    """Capabilities, listed under `category`. A skill that names none provides its own name."""
    category: str = ""
    license: str = ""
    compatibility: str = ""
    allowed_tools: tuple[str, ...] = ()
    metadata: dict[str, str] = {}


class SkillInstructions(Struct, frozen=True):
    """A skill with the text of its file, within the cap for files."""

    skill: Skill
    text: str
    body_at: int = 0
    omitted_chars: int = 0
    truncation: str = ""
    """Warning about the omitted characters, "" if there are none."""
    chars: int = 0
    """Size of the whole file."""

    @property
    def body(self) -> str:
        """The text below the front matter, without outer white space."""
        return self.text[self.body_at :].strip()


class SkillCatalog(Struct, frozen=True):
    """The skills of all places, sorted by name, one per name."""

    skills: tuple[Skill, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()
    instructions: dict[str, SkillInstructions] = {}
    """The skills with their texts, by name."""
    unread: int = 0
    """Number of folders that were not read because there are too many."""
