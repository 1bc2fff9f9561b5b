"""Document 003's SkillsLoader: the skills of a workspace as a list, as full texts, and the always active ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nexus.types.block import ContextWarning
from nexus.types.skill import SkillCatalog
from nexus.workspace.environment.machine import Probe
from nexus.workspace.files.reader import FILE_CHARS, Files, home_folder
from nexus.workspace.prompts import template_texts
from nexus.workspace.source_context import EngineWorkspace
from nexus.workspace.sources.skills import (
    LOADER,
    active_names,
    discover_skills,
    instructions_text,
    skills_index,
    split_skill_names,
)

__all__ = ["SkillsLoader"]


class SkillsLoader:
    """The skills of a workspace, of the user and of the package; the first of a name counts.

    Files are read in each call. `warnings` contains the warnings of the last reading.
    """

    def __init__(self, workspace: str | Path) -> None:
        root = Path(workspace).expanduser().resolve()
        files, home_files = (Files(folder, templates=template_texts()) for folder in (root, home_folder()))
        self._workspace = EngineWorkspace(files, home_files)
        self._probe = Probe()
        self.warnings: tuple[ContextWarning, ...] = ()

    def list_skills(self) -> list[dict[str, str]]:
        """Return every skill by name: `name`, `description`, `path`, `source` (workspace, user, packaged), `missing`."""
        missing = self._probe.missing
        return [
            {
                "name": skill.name,
                "description": skill.description,
                "path": skill.origin,
                "source": skill.place,
                "missing": ", ".join(missing(skill.requires)),
            }
            for skill in self._discover().skills
        ]

    def load_skill(self, name: str) -> str | None:
        """Return the text of a skill's SKILL.md, within the cap for files; None for an unknown skill."""
        instructions = self._discover().instructions.get(name)
        if instructions is not None:
            return instructions.text
        return None

    def load_skills_for_context(self, names: Iterable[str]) -> str:
        """Return the instructions of skills under their headings, sorted; unknown names are in `warnings`."""
        skills = self._discover()
        valid, unknown = split_skill_names(skills, names)
        self.warnings += tuple(unknown)
        return "\n\n".join(instructions_text(skills.instructions[name]) for name in sorted(valid))

    def build_skills_summary(self) -> str:
        """Return the list of all skills, a line each, to be loaded with the tool `read_file`; empty without skills."""
        skills = self._discover()
        if skills.skills:
            return skills_index(skills, self._probe, loader=LOADER, has_shell=True, max_chars=FILE_CHARS)[0]
        return ""

    def get_always_skills(self) -> list[str]:
        """Return the names of the always active skills whose requirements are met, sorted."""
        names, missing = active_names(self._discover(), self._probe)
        self.warnings += tuple(missing)
        return names

    def _discover(self) -> SkillCatalog:
        skills = discover_skills(self._workspace)
        self.warnings = skills.warnings
        return skills
