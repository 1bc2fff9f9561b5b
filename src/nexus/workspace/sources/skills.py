"""Skills of the workspace, the user and the package.

Skills that are always active, or named by a request, are in the system slot in full; all others have one line each there,
so that the agent can load them when needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nexus.errors import OverCap
from nexus.types.block import Block, ContextWarning, Trust
from nexus.types.request import Request
from nexus.types.skill import Skill, SkillCatalog, SkillInstructions, SkillPlace
from nexus.types.tool_definition import SKILL_TOOL, offers_shell, offers_tool, reading_tool
from nexus.workspace.environment.machine import Probe
from nexus.workspace.skills.discovery import SKILLS
from nexus.workspace.skills.skill_file import printable_line
from nexus.workspace.source_context import EngineWorkspace, SourceContext, SourceResult

MAX_FOLDERS = 300  # number of folders that are read in each place, the first by name

SHORTER = (512, 256, 128, 64)
"""Lengths that descriptions are cut to, one after the other, while the list is over the cap for a file."""

MAX_NAMES = 5  # number of names in a message; further ones are counted
LOADER = "read_file"
"""Tool by which document 003's agent loads a skill."""

ORIGIN = "nexus:skills"

_TRUST: dict[SkillPlace, Trust] = {"workspace": "workspace", "user": "user", "packaged": "system"}


def discover_skills(workspace: EngineWorkspace, *, max_folders: int = MAX_FOLDERS) -> SkillCatalog:
    """Return the skills of all places, sorted by name, with warnings. The first skill of a name counts.

    Reads `max_folders` folders of each place, the first by name. Empty without a workspace.
    """
    index = workspace.skill_index
    contents = [
        (place.prefix, folders, warning, [index.instructions(place, folder) for folder in folders[:max_folders]])
        for place in index.of(workspace.files, workspace.home)
        for folders, warning in (place.folders(),)
    ]

    def merge() -> SkillCatalog:
        by_name: dict[str, SkillInstructions] = {}
        warnings: list[ContextWarning] = []
        unread = 0
        for prefix, folders, place_warning, parsed in contents:
            empty: list[str] = []
            warnings.extend([place_warning] if place_warning else [])
            for folder, (skill, warning) in zip(folders, parsed, strict=False):
                if warning is not None:
                    warnings.append(warning)
                elif skill is None:
                    empty.append(folder)
                if skill is not None and (first := by_name.setdefault(skill.skill.name, skill)) is not skill:
                    text = f"not used: {first.skill.origin} has the same name and comes first"
                    warnings.append(ContextWarning(skill.skill.origin, text))
            if empty:
                warnings.append(ContextWarning(f"{prefix}{SKILLS}", f"SKILL.md missing or empty in {_few(empty)}"))
            if remaining := len(folders) - len(parsed):
                unread += remaining
                text = f"{len(folders):,} folders: only the first {len(parsed):,} by name are read"
                warnings.append(ContextWarning(f"{prefix}{SKILLS}", text))
        ordered = {name: by_name[name] for name in sorted(by_name)}
        return SkillCatalog(tuple(entry.skill for entry in ordered.values()), tuple(warnings), ordered, unread)

    # The lists hold the same objects until a file changes, so a warm call merges nothing.
    return index.load((max_folders, contents), merge)


def active_skills(context: SourceContext) -> SourceResult:
    """Return in full, sorted by name, the skills that are always active and those that the request names.

    Raises OverCap.
    """
    available = _skills(context)
    probe = context.environment.probe
    always, lacking = active_names(skills_in_scope(available, context.request), probe)
    requested, warnings = split_skill_names(available, context.request.settings.skills)
    requested_files = {available.instructions[name].skill.origin for name in requested}
    warnings += [warning for warning in lacking if warning.source not in requested_files]
    config = context.workspace.config.instructions
    blocks: list[Block] = []
    for name in sorted({*always, *requested}):
        entry = available.instructions[name]
        skill = entry.skill
        if not entry.body:
            warnings.append(ContextWarning(skill.origin, "active, but empty below its front matter"))
            continue
        if entry.truncation:
            if config.caps == "error":
                raise OverCap(skill.origin, entry.chars, config.file_chars)
            warnings.append(ContextWarning(skill.origin, entry.truncation))
        text = instructions_text(entry)
        trust = _TRUST[skill.place]
        blocks.append(Block("Workspace", f"skill {name}", text, skill.origin, "system", trust, entry.omitted_chars))
    return blocks, warnings


def skills(context: SourceContext) -> SourceResult:
    """Return one line for each skill, sorted by name: purpose, file, missing requirements.

    There is no block if the agent could not load a skill: with `use_skill`, a tool that reads files, or a shell. A tool
    that reads files cannot read the package's skills.
    """
    scope = skills_in_scope(_skills(context), context.request)
    tools = context.request.tools
    if offers_tool(tools, SKILL_TOOL):
        loader = SKILL_TOOL
    else:
        loader = reading_tool(tools)
    has_shell = offers_shell(tools)
    if loader != SKILL_TOOL and not has_shell:
        scope = replace(scope, skills=tuple(skill for skill in scope.skills if loader and skill.place != "packaged"))
    if not scope.skills or context.files is None:
        return [], list(scope.warnings)
    text, omitted, warning = skills_index(
        scope, context.environment.probe, loader=loader, has_shell=has_shell, max_chars=context.files.file_chars
    )
    warnings = [*scope.warnings, *([ContextWarning(ORIGIN, warning)] if warning else [])]
    return [Block("Workspace", "skills", text, ORIGIN, omitted_chars=omitted)], warnings


def skills_in_scope(available: SkillCatalog, request: Request) -> SkillCatalog:
    """Return the skills that provide the request's capabilities, and those that it names."""
    names = request.settings.capabilities
    if names is None:
        return available
    chosen = (
        skill
        for skill in available.skills
        if skill.name in request.settings.skills or {*(skill.provides or (skill.name,))} & {*names}
    )
    return replace(available, skills=tuple(chosen))


def active_names(available: SkillCatalog, probe: Probe) -> tuple[list[str], list[ContextWarning]]:
    """Return the names of the skills that are always active, and a warning for each with a missing requirement."""
    names: list[str] = []
    warnings: list[ContextWarning] = []
    for skill in available.skills:
        missing = probe.missing(skill.requires) if skill.always else ()
        if missing:
            warnings.append(ContextWarning(skill.origin, f"always active, but omitted: needs {', '.join(missing)}"))
        elif skill.always:
            names.append(skill.name)
    return names, warnings


def split_skill_names(available: SkillCatalog, names: Iterable[str]) -> tuple[list[str], list[ContextWarning]]:
    """Return the names that are skills, without duplicates, and a warning about the others."""
    requested = dict.fromkeys(names)
    unknown = [name for name in requested if name not in available.instructions]
    text = f"skill '{_few(unknown)}' not found (available: {_few(list(available.instructions)) or 'none'})"
    warnings = [ContextWarning(ORIGIN, text)] if unknown else []
    return [name for name in requested if name in available.instructions], warnings


def instructions_text(entry: SkillInstructions) -> str:
    """Return a skill in full, under its heading."""
    return f"# Skill: {entry.skill.name}\n\n{entry.body}"


def skills_index(
    available: SkillCatalog, probe: Probe, *, loader: str, has_shell: bool, max_chars: int
) -> tuple[str, int, str]:
    """Return the list of skills in about `max_chars` characters, the number of omitted characters, and a warning.

    It names what the agent has: `loader`, which is `use_skill` or a tool that reads files, or a shell with the command `nexus`.

    Descriptions are shortened first, all to the same length; then skills are omitted from the end.
    """
    command = "`nexus skill use NAME`"
    if loader == SKILL_TOOL:
        command = f"`{SKILL_TOOL}` with its name"
    elif loader:
        outside = f", or {command} where that lies outside the workspace" if has_shell else ""
        command = f"`{loader}` with the path behind its description{outside}"
    how = f"Load a skill in full before you use it: {command}"
    all_lines = [_line(skill, probe) for skill in available.skills]
    lines, cut = all_lines, 0
    # Shorter descriptions before fewer skills: a skill that is not listed is never loaded.
    for cut in (0, *SHORTER):
        lines = [_line(skill, probe, cut) for skill in available.skills] if cut else all_lines
        if _size(lines) <= max_chars:
            break
    while len(lines) > 1 and _size(lines) > max_chars:
        lines = lines[: max(1, min(len(lines) - 1, len(lines) * max_chars // _size(lines)))]
    notes: list[str] = []
    if cut:
        notes.append(f"descriptions are shortened to {cut} characters")
    if unlisted := len(all_lines) - len(lines) + available.unread:
        notes.append(f"{unlisted:,} more skills are not listed")
    warning = f"list over {max_chars:,} characters or {MAX_FOLDERS} folders: {', '.join(notes)}" if notes else ""
    if notes:
        lines = [*lines, "", f"[{', '.join(notes)}{'; `nexus skill list` has all' if has_shell else ''}]"]
    omitted = max(_size(all_lines) - _size(lines), 0) if notes else 0
    return "\n".join(["# Skills", "", f"{how}.", "", *lines]), omitted, warning


def availability(skill: Skill, probe: Probe) -> str:
    """Return a skill's missing requirements in a few words, `needs git, GITHUB_TOKEN`, or ""."""
    missing = probe.missing(skill.requires)
    if missing:
        return f"needs {_few(missing)}"
    return ""


def _skills(context: SourceContext) -> SkillCatalog:
    # Two sources of a call use the skills; each file is looked up once.
    if not context.skills_cache:
        context.skills_cache.append(discover_skills(context.workspace))
    return context.skills_cache[0]


def _line(skill: Skill, probe: Probe, description_chars: int = 0) -> str:
    text = skill.description
    if description_chars and len(text) > description_chars:
        text = f"{text[: description_chars - 1].rstrip()}…"
    needs = availability(skill, probe)
    if skill.always and not needs:
        where = f"{skill.origin}, always active"
    else:
        where = skill.origin
    return f"- {skill.name}: {text} ({where}){f' (unavailable: {needs})' if needs else ''}"


def _few(names: Sequence[str]) -> str:
    more = ""
    if len(names) > MAX_NAMES:
        more = f" and {len(names) - MAX_NAMES:,} more"
    return f"{', '.join(map(printable_line, names[:MAX_NAMES]))}{more}"


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
