"""The skills of a workspace as document 003's builder asks for them: all, one or several in full, those always active."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nexus.types.block import ContextWarning
from nexus.types.skill import SkillsFound
from nexus.workspace.environment.probe import Probe
from nexus.workspace.files.reader import FILE_CHARS, Files, home_folder
from nexus.workspace.files.templates import template_texts
from nexus.workspace.source_context import WorkspaceContext
from nexus.workspace.sources.skills import active_names, discover_skills, instructions_text, known_names, skills_index


class SkillsLoader:
    """The skills of a workspace, of the user and of the package; the first of a name counts. Files are read at each call.

    `warnings` has what was to say when they were last read.
    """

    def __init__(self, workspace: str | Path) -> None:
        root = Path(workspace).expanduser().resolve()
        self._around = WorkspaceContext(Files(root, templates=template_texts()), Files(home_folder()))
        self._probe = Probe()
        self.warnings: tuple[ContextWarning, ...] = ()

    def list_skills(self) -> list[dict[str, str]]:
        """Every skill, sorted by name: `name`, `description`, `path`, `source` (workspace, user, packaged), `missing`."""
        missing = self._probe.missing
        return [
            {
                "name": skill.name,
                "description": skill.description,
                "path": skill.origin,
                "source": skill.place,
                "missing": ", ".join(missing(skill.requires)),
            }
            for skill in self._found().skills
        ]

    def load_skill(self, name: str) -> str | None:
        """The whole text of a skill's SKILL.md, within the cap for files; None if there is no such skill."""
        guide = self._found().instructions.get(name)
        return guide.text if guide is not None else None

    def load_skills_for_context(self, names: Iterable[str]) -> str:
        """These skills in full, each under its heading, sorted and without repeats; unknown names are in `warnings`."""
        found = self._found()
        known, unknown = known_names(found, names)
        self.warnings += tuple(unknown)
        return "\n\n".join(instructions_text(found.instructions[name]) for name in sorted(known))

    def build_skills_summary(self) -> str:
        """The list of all skills, a line each, to be loaded with the tool `read_file`; empty if there are none."""
        found = self._found()
        return skills_index(found, self._probe, reads_files=True, most=FILE_CHARS)[0] if found.skills else ""

    def get_always_skills(self) -> list[str]:
        """The names of the skills that are always active and lack nothing here, sorted."""
        names, missing = active_names(self._found(), self._probe)
        self.warnings += tuple(missing)
        return names

    def _found(self) -> SkillsFound:
        found = discover_skills(self._around)
        self.warnings = found.warnings
        return found
