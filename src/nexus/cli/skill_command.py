"""`nexus skill`: skills of the workspace, the user and the package: list, show, use, check, create."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from nexus.cli._options import CommandOptions, NexusGroup
from nexus.cli._output import emit, format_time, print_warning
from nexus.cli._tables import print_table
from nexus.engine import open_engine
from nexus.errors import BadSkill, NoSuchSkill
from nexus.render.console import printable
from nexus.types.skill import SkillCatalog, SkillInstructions
from nexus.workspace.environment.machine import Probe
from nexus.workspace.files.reader import READ_BYTES, Files
from nexus.workspace.skills.discovery import FILE, SKILLS, USED, lint_all, lint_path, record_use, used_skills
from nexus.workspace.skills.skill_file import DESCRIPTION_CHARS, UNWRITTEN, name_problem, printable_line
from nexus.workspace.source_context import WorkspaceContext
from nexus.workspace.sources.skills import availability, discover_skills

MAX_FILES = 50
"""Files of a skill that are listed with its instructions."""

SKILL_TEXT = """\
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


@click.group("skill", cls=NexusGroup)
def command() -> None:
    """List, show, use, check and create skills.

    A skill is a folder with a SKILL.md, which has instructions for one kind of task.

    Example: nexus skill use past-conversations
    """


@command.subcommand("list")
def list_(options: CommandOptions) -> None:
    """List the skills of the workspace, the user and the package. Warnings go to standard error.

    Example: nexus skill list --json
    """
    context = _workspace_context(options)
    skills = _discover(context)
    if options.as_json:
        values = [_json_value(context, skill) for skill in skills.instructions.values()]
        emit({"skills": values, "warnings": skills.warnings})
        return
    probe = Probe()
    rows = [
        (skill.name, skill.place, availability(skill, probe) or "yes", "yes" if skill.always else "", skill.description)
        for skill in skills.skills
    ]
    print_table(("skill", "place", "available", "always", "description"), rows, wraps=("available", "description"))
    for warning in skills.warnings:
        print_warning(warning)


@command.subcommand("show")
@click.argument("name")
def show(name: str, options: CommandOptions) -> None:
    """Show skill NAME: front matter, place, missing requirements.

    Example: nexus skill show past-conversations
    """
    context = _workspace_context(options)
    value = _json_value(context, _find(_discover(context), name))
    if options.as_json:
        emit(value)
        return
    value["used"] = format_time(value.pop("used_ms") or 0)
    for field, content in value.items():
        if not _is_empty(content):
            click.echo(f"{field.replace('_', ' '):<14} {printable(_display(content))}")


@command.subcommand("use")
@click.argument("name")
def use(name: str, options: CommandOptions) -> None:
    """Print the instructions of skill NAME, and record the use.

    Example: nexus skill use past-conversations
    """
    context = _workspace_context(options, uncapped=True)
    skill = _find(_discover(context), name)
    folder, files = _skill_files(context, skill)
    missing = Probe().missing(skill.skill.requires)
    if options.as_json:
        emit({"name": skill.skill.name, "guide": skill.body, "folder": folder, "files": files, "missing": missing})
    else:
        click.echo("\n".join("\t".join(map(printable, line.split("\t"))) for line in skill.body.split("\n")))
        if files or missing:
            click.echo("\n---")
        if files:
            click.echo(f"Files of this skill, in {printable(folder)}: {printable(', '.join(files))}")
        if missing:
            click.echo(f"Missing here: {printable(', '.join(missing))}")
    if not skill.body:
        click.echo(f"Warning: {printable(skill.skill.origin)} has no text below its front matter", err=True)
    root = _root(context)
    if options.workspace is None and not (root / USED).parent.is_dir():
        click.echo("Warning: use not recorded: no workspace here (create one: nexus init)", err=True)
        return
    try:
        record_use(root, skill.skill.name, time.time_ns() // 1_000_000)
    except OSError as error:  # the instructions were printed, so this is only a warning
        click.echo(f"Warning: {printable(f'use not recorded in {USED}: {error.strerror or error}')}", err=True)


@command.subcommand("lint")
@click.argument("path", required=False, type=click.Path())
def lint(path: str | None, options: CommandOptions) -> int:
    """Check skills against the Agent Skills standard.

    The exit code is 1 for errors. PATH is a skill's folder, its SKILL.md, or a folder with several skills [all skills].

    Example: nexus skill lint skills/log-triage
    """
    if path:
        results = lint_path(Path(path).expanduser())
    else:
        context = _workspace_context(options)
        results = lint_all(context.skill_index.of(context.files, context.home))
    rows = [
        (result.file, finding.line, "error" if finding.error else "warning", finding.text)
        for result in results
        for finding in result.findings
    ]
    errors = sum(severity == "error" for _, _, severity, _ in rows)
    options.report(
        [dict(zip(("file", "line", "severity", "text"), row, strict=True)) for row in rows],
        *(f"{printable(file)}:{line}: {severity}: {printable(text)}" for file, line, severity, text in rows),
        f"Skills: {len(results):,}. Errors: {errors:,}, warnings: {len(rows) - errors:,}",
    )
    return 1 if errors else 0


@command.subcommand("new")
@click.argument("name")
@click.option("--description", default="", help="Purpose, and when to use it; at most 1,024 characters.")
@click.option("--user", is_flag=True, help="In your own folder, for all workspaces [in the workspace].")
def new(name: str, description: str, user: bool, options: CommandOptions) -> None:
    """Create skill NAME with a SKILL.md to fill in.

    Example: nexus skill new release-notes --description "Write release notes. Use when a release is planned."
    """
    if problem := name_problem(name):
        raise click.BadParameter(f"{name!r} {problem}", param_hint="NAME")
    context = _workspace_context(options)
    files = context.home if user else context.files
    assert files is not None
    file = _create(files.root, name, description)
    if options.as_json:
        emit({"name": name, "file": str(file)})
        return
    click.echo(f"Created {printable(str(file))}")
    for warning in _discover(context).warnings:
        # The new skill may hide one of the same name elsewhere, or be hidden by it.
        if warning.message.startswith("not used:") and f"/{name}/" in warning.source:
            click.echo(f"nexus: {printable(warning.source)} is {printable(warning.message)}", err=True)
    click.echo("Fill it in, then: nexus skill lint")


def skill_text(name: str, description: str) -> str:
    """Return the text of a new SKILL.md; the description is quoted, so that YAML reads it unchanged."""
    title = name.replace("-", " ").capitalize()
    return SKILL_TEXT.format(name=name, description=json.dumps(description, ensure_ascii=False), title=title)


def _create(root: Path, name: str, description: str) -> Path:
    """Write the SKILL.md of a new skill under `root` and return its path. Raises BadSkill."""
    line = printable_line(description) or UNWRITTEN
    if len(line) > DESCRIPTION_CHARS:
        raise BadSkill(f"description too long: {len(line):,} characters (at most {DESCRIPTION_CHARS:,})")
    parent = root / SKILLS
    folder = parent / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if not parent.resolve().is_relative_to(root.resolve()):
            raise BadSkill(f"skill {name!r} not created: '{parent}' is outside of '{root}'")
        folder.mkdir()
        file = folder / FILE
        with file.open("x", encoding="utf-8") as stream:
            stream.write(skill_text(name, line))
    except FileExistsError as error:
        raise BadSkill(f"skill {name!r} not created: '{folder}' exists") from error
    except OSError as error:
        raise BadSkill(f"skill '{folder}' not created: {error.strerror or error}") from error
    return file


def _workspace_context(options: CommandOptions, *, uncapped: bool = False) -> WorkspaceContext:
    """Return the workspace's context, without a ledger; `uncapped` reads files without the cap of a context."""
    with open_engine(options.root, ledger=":memory:") as nx:
        context = nx.workspace_context
    if not uncapped:
        return context

    def without_cap(files: Files | None) -> Files | None:
        return Files(files.root, READ_BYTES, files.templates) if files is not None else None

    return dataclasses.replace(context, files=without_cap(context.files), home=without_cap(context.home))


def _discover(context: WorkspaceContext) -> SkillCatalog:
    """Return all skills, without the limits of a context."""
    return discover_skills(context, max_folders=sys.maxsize)


def _find(skills: SkillCatalog, name: str) -> SkillInstructions:
    """Return the skill of that name. Raises NoSuchSkill with similar names."""
    skill = skills.instructions.get(name)
    if skill is not None:
        return skill
    similar = difflib.get_close_matches(name[:100], list(skills.instructions), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(similar)}?" if similar else "list skills: nexus skill list"
    reasons = (f": {warning.source}: {warning.message}" for warning in skills.warnings if f"/{name}/" in warning.source)
    raise NoSuchSkill(f"skill {name!r} not found{next(reasons, '')} ({hint})")


def _json_value(context: WorkspaceContext, skill: SkillInstructions) -> dict[str, Any]:
    value = msgspec.to_builtins(skill.skill)
    value["missing"] = list(Probe().missing(skill.skill.requires))
    value["used_ms"] = used_skills(_root(context))[0].get(skill.skill.name)
    return value


def _root(context: WorkspaceContext) -> Path:
    return context.files.root if context.files is not None else Path()


def _display(value: object) -> str:
    """Return a JSON value on one line, without empty fields."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return "; ".join(f"{name}: {_display(content)}" for name, content in fields.items() if not _is_empty(content))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, (list, tuple)) else str(value)


def _is_empty(value: object) -> bool:
    """Return True for an empty JSON value, and for an object of empty ones."""
    if isinstance(value, dict):
        return all(map(_is_empty, cast("dict[str, object]", value).values()))
    return value is None or value in ("", [], ())


def _skill_files(context: WorkspaceContext, skill: SkillInstructions) -> tuple[str, list[str]]:
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
