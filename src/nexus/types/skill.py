"""A skill: a folder with a SKILL.md as the Agent Skills standard has it, read and judged."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.block import ContextWarning

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


class SkillInstructions(Struct, frozen=True):
    """A skill with its file's text, within the cap for files, and the file's size in characters.

    `capped` says what the cap kept out ("": nothing).
    """

    skill: Skill
    text: str
    body_at: int = 0
    omitted_chars: int = 0
    is_truncated: str = ""
    chars: int = 0

    @property
    def body(self) -> str:
        """The text below the front matter, without outer white space."""
        return self.text[self.body_at :].strip()


class SkillsFound(Struct, frozen=True):
    """The skills of all places, one of a name, sorted by name; `guides` has them with their texts, by name.

    `unread` counts folders that were not looked at because there are too many.
    """

    skills: tuple[Skill, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()
    instructions: dict[str, SkillInstructions] = {}
    unread: int = 0
