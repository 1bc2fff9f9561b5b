"""Cached skills of an engine, so that a warm call parses nothing.

There are three places: the workspace's `skills`, the user's, and the package's. A SKILL.md is parsed again only when its
state on disk changes; until then a call costs one `stat` for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from nexus.types.block import ContextWarning
from nexus.types.skill import SkillCatalog, SkillInstructions, SkillPlace
from nexus.workspace import prompts
from nexus.workspace.files.reader import Files, FileText
from nexus.workspace.skills.skill_file import validate_skill

SKILLS, FILE = "skills", "SKILL.md"
PACKAGED = Path(next(iter(prompts.__path__)))
"""Folder of the packaged `skills`."""

MAX_ERRORS = 3
"""Number of errors of one file in a context's report."""

_Read: TypeAlias = "tuple[FileText | None, ContextWarning | None]"
ParsedSkill: TypeAlias = "tuple[SkillInstructions | None, ContextWarning | None]"


class SkillFolder(Struct):
    """One place of skills: its files, and the prefix of their displayed names."""

    place: SkillPlace
    files: Files
    prefix: str = ""

    def folders(self) -> tuple[list[str], ContextWarning | None]:
        """Return the folders that may contain a skill, sorted, without hidden ones, and a warning."""
        names, warning = self.files.listed(SKILLS)
        if warning:
            warning = ContextWarning(f"{self.prefix}{warning.source}", warning.message)
        return [name for name in names if not name.startswith(".")], warning

    def origin(self, folder: str) -> str:
        """Return the displayed name of a folder's SKILL.md."""
        return f"{self.prefix}{SKILLS}/{folder}/{FILE}"


@dataclass(slots=True)
class SkillIndex:
    """Cache of the skill places, of each parsed SKILL.md, and of the last merged result."""

    _packaged: Files = field(default_factory=lambda: Files(PACKAGED))
    _parsed: dict[str, tuple[_Read, ParsedSkill]] = field(default_factory=dict[str, "tuple[_Read, ParsedSkill]"])
    _places: tuple[Files | None, Files | None, tuple[SkillFolder, ...]] = (None, None, ())
    _last: tuple[object, SkillCatalog] | None = None

    def of(self, workspace: Files | None, home: Files | None) -> tuple[SkillFolder, ...]:
        """Return the places in order of precedence; none without a workspace."""
        if workspace is None:
            return ()
        if self._places[0] is not workspace or self._places[1] is not home:
            user = (SkillFolder("user", home, home_prefix(home.root)),) if home is not None else ()
            places = (SkillFolder("workspace", workspace), *user, SkillFolder("packaged", self._packaged, "nexus:"))
            self._places = (workspace, home, places)
        return self._places[2]

    def load(self, contents: object, merge: Callable[[], SkillCatalog]) -> SkillCatalog:
        """Return the result of `merge`, or its last one if the contents are the same."""
        if self._last is None or self._last[0] != contents:
            self._last = (contents, merge())
        return self._last[1]

    def instructions(self, place: SkillFolder, folder: str) -> ParsedSkill:
        """Return the skill in a folder, and a warning; both None if SKILL.md is missing or empty."""
        origin = place.origin(folder)
        file, warning = place.files.read(f"{SKILLS}/{folder}/{FILE}")
        cached = self._parsed.get(origin)
        if cached is None or cached[0] != (file, warning):  # the same objects, while the file's state is the same
            cached = self._parsed[origin] = ((file, warning), _parse(place, folder, origin, file, warning))
        return cached[1]


def home_prefix(root: Path) -> str:
    """Return the displayed path of the user's folder: `~/.nexus/` if it is that, else its path."""
    return "~/.nexus/" if root == Path.home() / ".nexus" else f"{root}/"


def _parse(
    place: SkillFolder, folder: str, origin: str, file: FileText | None, warning: ContextWarning | None
) -> ParsedSkill:
    if not folder.isprintable():
        text = f"omitted: folder name {folder!r} is not printable"
        return None, ContextWarning(f"{place.prefix}{SKILLS}", text)
    if file is None:
        return None, ContextWarning(origin, warning.message) if warning else None
    result = validate_skill(file.text, folder, origin, place.place)
    errors = [finding.text for finding in result.findings if finding.error]
    if warning and not file.omitted_chars:
        errors.insert(0, warning.message)
    if len(errors) > MAX_ERRORS:
        errors[MAX_ERRORS:] = [f"{len(errors) - MAX_ERRORS} more (`nexus skill lint` has all)"]
    text = "; ".join(errors)
    if result.skill is None:
        return None, ContextWarning(origin, f"not listed: {text}")
    truncation = warning.message if warning and file.omitted_chars else ""
    skill = SkillInstructions(result.skill, file.text, result.body_at, file.omitted_chars, truncation, file.chars)
    return skill, ContextWarning(origin, text) if text else None
