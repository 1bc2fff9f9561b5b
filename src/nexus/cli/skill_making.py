"""A new skill on disk: its folder, and a SKILL.md that keeps the standard."""

from __future__ import annotations

import json
from pathlib import Path

from nexus.errors import BadSkill
from nexus.workspace.skills.discovery import FILE, SKILLS
from nexus.workspace.skills.skill_file import DESCRIPTION_CHARS, UNWRITTEN, printable_line

TEXT = """\
---
name: {name}
description: {description}
---
# {title}

<!-- The agent reads this text when it uses the skill. Write what it does not know yet, in the order in which it is done. -->

1. What to look at first.
2. What to do.
3. How to see that it worked.
"""


def make(root: Path, name: str, description: str) -> Path:
    """The SKILL.md of a new skill under `root`. Raises BadSkill: the description is too long, the name taken, no room."""
    line = printable_line(description) or UNWRITTEN
    if len(line) > DESCRIPTION_CHARS:
        raise BadSkill(f"the description has {len(line):,} characters; the standard allows {DESCRIPTION_CHARS:,}")
    place = root / SKILLS
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not place.resolve().is_relative_to(root.resolve()):
            raise BadSkill(f"{place} leads out of {root}: nothing was made")
        folder = place / name
        folder.mkdir()
        file = folder / FILE
        with file.open("x", encoding="utf-8") as stream:
            stream.write(skill_text(name, line))
    except FileExistsError as error:
        raise BadSkill(f"{place / name} is there already and was not touched") from error
    except OSError as error:
        raise BadSkill(f"{place / name} cannot be made: {error.strerror or error}") from error
    return file


def skill_text(name: str, description: str) -> str:
    """The text of a new SKILL.md. A description on one line becomes a text in quotes, which YAML reads as it is."""
    title = name.replace("-", " ").capitalize()
    return TEXT.format(name=name, description=json.dumps(description, ensure_ascii=False), title=title)
