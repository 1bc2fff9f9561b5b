"""The skills of an engine as they were last read, so that a warm call parses nothing.

There are three places: the workspace's `skills`, the user's own, and those that come with the package. Each SKILL.md is
judged again only when its file's state on disk changes; until then a call costs one `stat` for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from nexus.types.block import ContextWarning
from nexus.types.skill import SkillInstructions, SkillPlace, SkillsFound
from nexus.workspace import prompts
from nexus.workspace.files.reader import Files, FileText
from nexus.workspace.skills.skill_file import validate_skill

SKILLS, FILE = "skills", "SKILL.md"
PACKAGED = Path(next(iter(prompts.__path__)))
"""The folder whose `skills` come with the package."""

SAID = 3
"""Broken rules of one file that a context's report names."""

_Read: TypeAlias = "tuple[FileText | None, ContextWarning | None]"
Shelved: TypeAlias = "tuple[SkillInstructions | None, ContextWarning | None]"


class SkillFolder(Struct):
    """One place of skills: its files, and how its paths are shown."""

    place: SkillPlace
    files: Files
    prefix: str = ""

    def folders(self) -> tuple[list[str], ContextWarning | None]:
        """The folders that may hold a skill, sorted by name, hidden ones left out; and what is wrong with their folder."""
        found, trouble = self.files.listed(SKILLS)
        warned = ContextWarning(f"{self.prefix}{trouble.source}", trouble.message) if trouble else None
        return [name for name in found if not name.startswith(".")], warned

    def origin(self, folder: str) -> str:
        """The SKILL.md of a folder, as it is shown."""
        return f"{self.prefix}{SKILLS}/{folder}/{FILE}"


@dataclass(slots=True)
class SkillIndex:
    """State over time: the files of the package's skills, what each SKILL.md was found to hold, and what came of all last."""

    _packaged: Files = field(default_factory=lambda: Files(PACKAGED))
    _known: dict[str, tuple[_Read, Shelved]] = field(default_factory=dict[str, "tuple[_Read, Shelved]"])
    _places: tuple[Files | None, Files | None, tuple[SkillFolder, ...]] = (None, None, ())
    _made: tuple[object, SkillsFound] | None = None

    def of(self, workspace: Files | None, home: Files | None) -> tuple[SkillFolder, ...]:
        """The places, the first of a name counts. Without a workspace there are none."""
        if workspace is None:
            return ()
        if self._places[0] is not workspace or self._places[1] is not home:
            user = (SkillFolder("user", home, home_prefix(home.root)),) if home is not None else ()
            places = (SkillFolder("workspace", workspace), *user, SkillFolder("packaged", self._packaged, "nexus:"))
            self._places = (workspace, home, places)
        return self._places[2]

    def load(self, read: object, make: Callable[[], SkillsFound]) -> SkillsFound:
        """What `make` makes of what was read, or what it made last where that is the same as then."""
        if self._made is None or self._made[0] != read:
            self._made = (read, make())
        return self._made[1]

    def instructions(self, shelf: SkillFolder, folder: str) -> Shelved:
        """The skill in a folder, and what is to say of it; both None where there is no SKILL.md, or an empty one."""
        origin = shelf.origin(folder)
        found, warned = shelf.files.read(f"{SKILLS}/{folder}/{FILE}")
        known = self._known.get(origin)
        if known is None or known[0] != (found, warned):  # the same objects, while the file's state is the same
            known = self._known[origin] = ((found, warned), _shelved(shelf, folder, origin, found, warned))
        return known[1]


def home_prefix(root: Path) -> str:
    """How paths in the user's own folder are shown: `~/.nexus/` where it is that, else its path."""
    return "~/.nexus/" if root == Path.home() / ".nexus" else f"{root}/"


def _shelved(
    shelf: SkillFolder, folder: str, origin: str, found: FileText | None, warned: ContextWarning | None
) -> Shelved:
    if not folder.isprintable():
        return None, ContextWarning(
            f"{shelf.prefix}{SKILLS}", f"left out: the name of the folder {folder!r} is no plain text"
        )
    if found is None:
        return None, ContextWarning(origin, warned.message) if warned else None
    judgement = validate_skill(found.text, folder, origin, shelf.place)
    said = [finding.text for finding in judgement.findings if finding.error]
    if warned and not found.left_out_chars:
        said.insert(0, warned.message)
    if len(said) > SAID:
        said[SAID:] = [f"{len(said) - SAID} more (`nexus skill lint` has all)"]
    told = "; ".join(said)
    skill = judgement.skill
    if skill is None:
        return None, ContextWarning(origin, f"not listed: {told}")
    capped = warned.message if warned and found.left_out_chars else ""
    guide = SkillInstructions(skill, found.text, judgement.body_at, found.left_out_chars, capped, found.chars)
    return guide, ContextWarning(origin, told) if told else None
