"""Skills: folders with a SKILL.md, of the workspace, of the user and of the package.

Those that are always active, and those that a request names, stand in the system slot in full; all others as one line
each, so that the agent knows what there is and loads what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning, Trust
from nexus.types.request import Request
from nexus.types.skill import Skill, SkillInstructions, SkillPlace, SkillsFound
from nexus.types.tool_definition import iter_definitions, tool_metadata
from nexus.workspace.environment.probe import Probe
from nexus.workspace.skills.discovery import SKILLS, Shelved
from nexus.workspace.skills.skill_file import printable_line
from nexus.workspace.source_context import SourceContext, SourceResult, WorkspaceContext

MOST_FOLDERS = 300
"""Folders of one place that are looked into, the first by name."""

SHORTER = (512, 256, 128, 64)
"""To how many characters descriptions are cut, one after the other, when the list is over the cap for a file."""

MOST_NAMED = 5
"""What is missing for one skill, or folders without a SKILL.md: more are counted, not named."""

LOADER = "read_file"
"""The tool by which an agent loads a skill (document 003); without it the command `nexus skill use` does."""

ORIGIN = "nexus:skills"

_TRUST: dict[SkillPlace, Trust] = {"workspace": "workspace", "user": "user", "packaged": "system"}


def discover_skills(around: WorkspaceContext, *, most_folders: int = MOST_FOLDERS) -> SkillsFound:
    """The skills of all places, sorted by name, and what the user should know of them. The first of a name counts.

    Of each place `most_folders` are read, the first by name. Nothing without a workspace.
    """
    shelves = around.skill_index
    read = [
        (shelf.prefix, folders, trouble, [shelves.instructions(shelf, folder) for folder in folders[:most_folders]])
        for shelf in shelves.of(around.files, around.home)
        for folders, trouble in (shelf.folders(),)
    ]
    return shelves.load((most_folders, read), partial(_found, read))


def _found(read: Iterable[tuple[str, list[str], ContextWarning | None, list[Shelved]]]) -> SkillsFound:
    """The skills of all places: of each its prefix, its folders, what is wrong with it, and what the folders hold."""
    guides: dict[str, SkillInstructions] = {}
    warned: list[ContextWarning] = []
    unread = 0
    for prefix, folders, trouble, shelved in read:
        empty: list[str] = []
        warned += [trouble] if trouble else []
        for folder, (guide, note) in zip(folders, shelved, strict=False):
            if note is not None:
                warned.append(note)
            elif guide is None:
                empty.append(folder)
            if guide is not None and (first := guides.setdefault(guide.skill.name, guide)) is not guide:
                text = f"not used: {first.skill.origin} has the same name and comes first"
                warned.append(ContextWarning(guide.skill.origin, text))
        if empty:
            warned.append(ContextWarning(f"{prefix}{SKILLS}", f"no SKILL.md, or an empty one, in {_few(empty)}"))
        if left := len(folders) - len(shelved):
            unread += left
            text = f"{len(folders):,} folders: only the first {len(shelved):,} by name are read"
            warned.append(ContextWarning(f"{prefix}{SKILLS}", text))
    ordered = {name: guides[name] for name in sorted(guides)}
    return SkillsFound(tuple(guide.skill for guide in ordered.values()), tuple(warned), ordered, unread)


def active_skills(desk: SourceContext) -> SourceResult:
    """In full and sorted by name: the skills that are always active, and those that the request names."""
    found, probe = _of(desk), desk.environment.probe
    names, lacking = active_names(skills_in_scope(found, desk.request), probe)
    wanted, warned = known_names(found, desk.request.skills)
    shown = {found.instructions[name].skill.origin for name in wanted}
    warned += [note for note in lacking if note.source not in shown]
    blocks: list[Block] = []
    for name in sorted({*names, *wanted}):
        guide = found.instructions[name]
        skill = guide.skill
        if not guide.body:
            warned.append(ContextWarning(skill.origin, "active, but it has no text below its front matter"))
            continue
        if guide.is_truncated:
            _whole_or_refused(desk, guide)
            warned.append(ContextWarning(skill.origin, guide.is_truncated))
        text, trust = instructions_text(guide), _TRUST[skill.place]
        blocks.append(Block("Workspace", f"skill {name}", text, skill.origin, "system", trust, guide.omitted_chars))
    return blocks, warned


def skills(desk: SourceContext) -> SourceResult:
    """One line for each skill, sorted by name: what it is for, where it is, what is missing for it."""
    found = skills_in_scope(_of(desk), desk.request)
    if not found.skills or desk.files is None:
        return [], list(found.warnings)
    loads = any(
        tool is not None and tool.name == LOADER for tool in map(tool_metadata, iter_definitions(desk.request.tools))
    )
    text, left_out, told = skills_index(found, desk.environment.probe, reads_files=loads, most=desk.files.file_chars)
    warned = [*found.warnings, *([ContextWarning(ORIGIN, told)] if told else [])]
    return [Block("Workspace", "skills", text, ORIGIN, omitted_chars=left_out)], warned


def skills_in_scope(found: SkillsFound, request: Request) -> SkillsFound:
    """The skills for what the request's capabilities name, as the environment lists them, and those that it names itself."""
    names = request.permissions.capabilities
    if names is None:
        return found
    skills = (one for one in found.skills if one.name in request.skills or {*(one.provides or (one.name,))} & {*names})
    return replace(found, skills=tuple(skills))


def active_names(found: SkillsFound, probe: Probe) -> tuple[list[str], list[ContextWarning]]:
    """The names of the skills that are always active; one that needs what is missing here is reported instead."""
    names: list[str] = []
    warned: list[ContextWarning] = []
    for skill in found.skills:
        missing = probe.missing(skill.requires) if skill.always else ()
        if missing:
            warned.append(ContextWarning(skill.origin, f"always active, but not shown: it needs {', '.join(missing)}"))
        elif skill.always:
            names.append(skill.name)
    return names, warned


def known_names(found: SkillsFound, names: Iterable[str]) -> tuple[list[str], list[ContextWarning]]:
    """Those of the names that are skills, without repeats, and a warning if there are others."""
    wanted = dict.fromkeys(names)
    unknown = [name for name in wanted if name not in found.instructions]
    told = f"there is no skill {_few(unknown)}; there are: {_few(list(found.instructions)) or 'none'}"
    return [name for name in wanted if name in found.instructions], [ContextWarning(ORIGIN, told)] if unknown else []


def instructions_text(guide: SkillInstructions) -> str:
    """A skill in full, under its heading."""
    return f"# Skill: {guide.skill.name}\n\n{guide.body}"


def skills_index(found: SkillsFound, probe: Probe, *, reads_files: bool, most: int) -> tuple[str, int, str]:
    """The list of skills in at most about `most` characters, how many characters that kept out, and words about it.

    Descriptions are shortened first, all to the same length, then skills are left out from the end.
    """
    how = (
        f"Load a skill in full before you use it: `{LOADER}` with the path behind its description, "
        "or `nexus skill use NAME` where that lies outside the workspace."
        if reads_files
        else "Load a skill in full before you use it: `nexus skill use NAME`."
    )
    head = ["# Skills", "", how, ""]
    whole = [_line(skill, probe) for skill in found.skills]
    lines, cut = whole, 0
    for cut in (0, *SHORTER):
        lines = [_line(skill, probe, cut) for skill in found.skills] if cut else whole
        if _size(lines) <= most:
            break
    while len(lines) > 1 and _size(lines) > most:
        lines = lines[: max(1, min(len(lines) - 1, len(lines) * most // _size(lines)))]
    notes: list[str] = []
    if cut:
        notes.append(f"descriptions are shortened to {cut} characters")
    if left := len(whole) - len(lines) + found.unread:
        notes.append(f"{left:,} more skills are not listed")
    told = f"the list is over {most:,} characters or {MOST_FOLDERS} folders: {', '.join(notes)}" if notes else ""
    if notes:
        lines = [*lines, "", f"[{', '.join(notes)}; `nexus skill list` has all]"]
    return "\n".join([*head, *lines]), max(_size(whole) - _size(lines), 0) if notes else 0, told


def availability(skill: Skill, probe: Probe) -> str:
    """What is missing for a skill, in a few words: `needs git, GITHUB_TOKEN`; empty if nothing is."""
    missing = probe.missing(skill.requires)
    return f"needs {_few(missing)}" if missing else ""


def _of(desk: SourceContext) -> SkillsFound:
    """The skills as this call's first look found them: two sources of a call ask for them, and each file once."""
    if not desk.skills_cache:
        desk.skills_cache.append(discover_skills(desk.workspace))
    return desk.skills_cache[0]


def _whole_or_refused(desk: SourceContext, guide: SkillInstructions) -> None:
    """Raises OverCap for a guide that the cap shortened, where the configuration does not want that."""
    config = desk.workspace.config.instructions
    if config.caps == "error":
        raise OverCap(guide.skill.origin, guide.chars, config.file_chars)


def _line(skill: Skill, probe: Probe, most: int = 0) -> str:
    text = skill.description
    if most and len(text) > most:
        text = f"{text[: most - 1].rstrip()}…"
    needs = availability(skill, probe)
    where = f"{skill.origin}, always active" if skill.always and not needs else skill.origin
    return f"- {skill.name}: {text} ({where}){f' (unavailable: {needs})' if needs else ''}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(printable_line, names[:MOST_NAMED]))}{more}"


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
