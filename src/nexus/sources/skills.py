"""The list of skills: name and description of each `skills/NAME/SKILL.md` (Agent Skills front matter)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import yaml

from nexus.block import Block, Warned
from nexus.skill import Requires, Skill, SkillsFound
from nexus.sources.desk import Desk, Gathered, Surroundings

FRONT_MATTER_CHARS = 10_000
DESCRIPTION_CHARS = 1_024
"""The standard's limit for a description."""


def skills(desk: Desk) -> Gathered:
    """One line for each skill, sorted by name, with where to read it."""
    if desk.files is None:
        return [], []
    lines: dict[str, str] = {}
    warned: list[Warned] = []
    for folder in desk.files.folders("skills"):
        origin = f"skills/{folder}/SKILL.md"
        found, note = desk.files.read(origin)
        if note is not None and not (found and found.left_out_chars):
            warned.append(note)
        if found is None:
            continue
        name, description, problem = front_matter(found.text)
        if problem:
            warned.append(Warned(origin, problem))
        if name in lines:
            warned.append(Warned(origin, f"a second skill {name!r}; the first one stands"))
        elif name:
            lines[name] = f"- {name}: {description} ({origin})"
    if not lines:
        return [], warned
    heading = "# Skills\n\nRead a skill's file in full before you use it."
    text = "\n".join([heading, "", *(lines[name] for name in sorted(lines))])
    return [Block("Workspace", "skills", text, "skills/")], warned


@lru_cache(maxsize=512)
def front_matter(text: str) -> tuple[str, str, str]:
    """Name and description from a SKILL.md, and what is wrong with it ("" if nothing; no name: not listed)."""
    head, separator, _ = text.removeprefix("---\n").partition("\n---")
    if not text.startswith("---\n") or not separator or len(head) > FRONT_MATTER_CHARS:
        return "", "", "not listed: it has no front matter between two lines of ---"
    try:
        loaded: Any = yaml.load(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe loaders
    except yaml.YAMLError as error:
        return "", "", f"not listed: its front matter is not YAML ({str(error).splitlines()[0]})"
    fields = cast("dict[object, object]", loaded) if isinstance(loaded, dict) else {}
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not isinstance(description, str) or not name.strip() or not description.strip():
        return "", "", "not listed: its front matter needs a name and a description, both text"
    one_line = " ".join(description.split())
    if len(one_line) > DESCRIPTION_CHARS:
        return name.strip(), one_line[:DESCRIPTION_CHARS], f"description cut at {DESCRIPTION_CHARS} characters"
    return " ".join(name.split()), one_line, ""


def found_skills(around: Surroundings) -> SkillsFound:
    """The workspace's skills with what they require, provide and belong to, sorted by name."""
    if around.files is None:
        return SkillsFound()
    found: dict[str, Skill] = {}
    for folder in around.files.folders("skills"):
        origin = f"skills/{folder}/SKILL.md"
        text, _ = around.files.read(origin)
        name, description, _ = front_matter(text.text) if text else ("", "", "")
        if text is None or not name:
            continue
        fields: Any = yaml.safe_load(text.text.removeprefix("---\n").partition("\n---")[0])
        given = cast("dict[str, list[str]]", fields.get("requires") or {})
        requires = {kind: tuple(map(str, names)) for kind, names in given.items()}
        provides = tuple(map(str, fields.get("provides") or ()))
        category = str(fields.get("category") or "")
        own = Skill(name, description, origin, requires=Requires(**requires), provides=provides, category=category)
        found.setdefault(name, own)
    return SkillsFound(tuple(found[name] for name in sorted(found)))
