"""The full instructions of a skill, as an agent or a user loads them: text, further files, missing requirements."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from pathlib import Path

from msgspec import Struct

from nexus.errors import NotFound
from nexus.types.skill import SkillCatalog, SkillInstructions
from nexus.workspace.environment.machine import Probe
from nexus.workspace.files.reader import READ_BYTES, Files
from nexus.workspace.skills.discovery import FILE, SKILLS
from nexus.workspace.source_context import EngineWorkspace
from nexus.workspace.sources.skills import discover_skills

MAX_FILES = 50
"""Files of a skill that are listed with its instructions."""


class SkillGuide(Struct, frozen=True):
    """A skill's instructions, its further files and its missing requirements."""

    name: str
    guide: str
    folder: str
    files: tuple[str, ...] = ()
    """The skill's other files, as paths in the folder, at most MAX_FILES."""
    missing: tuple[str, ...] = ()
    """Requirements that are not met here."""
    origin: str = ""
    """Displayed name of its SKILL.md."""

    def notes(self) -> list[str]:
        """Return the lines below the text: files and missing requirements."""
        files = [f"Files of this skill, in {self.folder}: {', '.join(self.files)}"] if self.files else []
        missing = [f"Missing here: {', '.join(self.missing)}"] if self.missing else []
        return [*files, *missing]


def skill_guide(context: EngineWorkspace, name: str) -> SkillGuide:
    """Return the guide of a skill, without the cap of a context. Raises NotFound with similar names."""

    def uncapped(files: Files | None) -> Files | None:
        if files is not None:
            return Files(files.root, READ_BYTES, files.templates, hard_links=files.hard_links)
        return None

    context = dataclasses.replace(context, files=uncapped(context.files), home=uncapped(context.home))
    skill = find_skill(all_skills(context), name)
    folder, files = _skill_files(context, skill)
    missing = Probe().missing(skill.skill.requires)
    return SkillGuide(skill.skill.name, skill.body, folder, tuple(files), missing, skill.skill.origin)


def all_skills(context: EngineWorkspace) -> SkillCatalog:
    """Return all skills, without the limits of a context."""
    return discover_skills(context, max_folders=sys.maxsize)


def find_skill(skills: SkillCatalog, name: str) -> SkillInstructions:
    """Return the skill of that name. Raises NotFound with similar names."""
    skill = skills.instructions.get(name)
    if skill is not None:
        return skill
    similar = difflib.get_close_matches(name[:100], list(skills.instructions), n=3, cutoff=0.5)
    hint = "list skills: nexus skill list"
    if similar:
        hint = f"did you mean {' or '.join(similar)}?"
    reasons = (f": {warning.source}: {warning.message}" for warning in skills.warnings if f"/{name}/" in warning.source)
    raise NotFound(f"skill {name!r} not found{next(reasons, '')} ({hint})", code="no_such_skill")


def _skill_files(context: EngineWorkspace, skill: SkillInstructions) -> tuple[str, list[str]]:
    """Return a skill's folder and its other files, as sorted paths in the folder, at most MAX_FILES."""
    places = context.skill_index.of(context.files, context.home)
    place = next(place for place in places if place.place == skill.skill.place)
    folder = place.files.root / SKILLS / Path(skill.skill.origin).parent.name
    paths: list[str] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += sorted(os.path.relpath(Path(parent, name), folder) for name in files if not name.startswith("."))
        if len(paths) > MAX_FILES:
            break
    return str(folder), [path for path in paths if path != FILE][:MAX_FILES]
