"""`nexus skill`: skills of the workspace, the user and the package: list, show, use, check, create."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from nexus.cli._listing import Column, Listing, wrapped
from nexus.cli._options import CommandOptions, NexusGroup
from nexus.cli._output import emit, format_time, print_warning
from nexus.engine import open_engine
from nexus.errors import UnreadableFile
from nexus.render.console import printable
from nexus.types.skill import SkillInstructions
from nexus.workspace.environment.machine import Probe
from nexus.workspace.skills.discovery import FILE, SKILLS, USED, lint_all, lint_path, record_use, used_skills
from nexus.workspace.skills.guide import all_skills, find_skill, skill_guide
from nexus.workspace.skills.skill_file import DESCRIPTION_CHARS, UNWRITTEN, name_problem, printable_line
from nexus.workspace.source_context import EngineWorkspace
from nexus.workspace.sources.skills import availability

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
    skills = all_skills(context)
    probe = Probe()
    listing = Listing(
        Column("skill", "name"),
        Column("place"),
        wrapped("available", lambda skill: availability(skill, probe) or "yes"),
        Column("always", lambda skill: "yes" if skill.always else ""),
        wrapped("description"),
    )
    values = [_json_value(context, skill) for skill in skills.instructions.values()]
    listing.print(skills.skills, options, document={"skills": values, "warnings": skills.warnings})
    if not options.as_json:
        for warning in skills.warnings:
            print_warning(warning)


@command.subcommand("show")
@click.argument("name")
def show(name: str, options: CommandOptions) -> None:
    """Show skill NAME: front matter, place, missing requirements.

    Example: nexus skill show past-conversations
    """
    context = _workspace_context(options)
    value = _json_value(context, find_skill(all_skills(context), name))
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
    context = _workspace_context(options)
    skill = skill_guide(context, name)
    if options.as_json:
        fields = ("name", "guide", "folder", "files", "missing")
        emit({field: getattr(skill, field) for field in fields})
    else:
        click.echo("\n".join("\t".join(map(printable, line.split("\t"))) for line in skill.guide.split("\n")))
        if notes := skill.notes():
            click.echo("\n".join(("\n---", *map(printable, notes))))
    if not skill.guide:
        click.echo(f"Warning: {printable(skill.origin)} has no text below its front matter", err=True)
    root = _root(context)
    if options.workspace is None and not (root / USED).parent.is_dir():
        click.echo("Warning: use not recorded: no workspace here (create one: nexus init)", err=True)
        return
    try:
        record_use(root, skill.name, time.time_ns() // 1_000_000)
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
    if errors:
        return 1
    return 0


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
    for warning in all_skills(context).warnings:
        # The new skill may hide one of the same name elsewhere, or be hidden by it.
        if warning.message.startswith("not used:") and f"/{name}/" in warning.source:
            click.echo(f"nexus: {printable(warning.source)} is {printable(warning.message)}", err=True)
    click.echo("Fill it in, then: nexus skill lint")


def skill_text(name: str, description: str) -> str:
    """Return the text of a new SKILL.md; the description is quoted, so that YAML reads it unchanged."""
    title = name.replace("-", " ").capitalize()
    return SKILL_TEXT.format(name=name, description=json.dumps(description, ensure_ascii=False), title=title)


def _create(root: Path, name: str, description: str) -> Path:
    """Write the SKILL.md of a new skill under `root` and return its path. Raises UnreadableFile."""
    line = printable_line(description) or UNWRITTEN
    if len(line) > DESCRIPTION_CHARS:
        raise UnreadableFile(
            f"description too long: {len(line):,} characters (at most {DESCRIPTION_CHARS:,})", code="bad_skill"
        )
    parent = root / SKILLS
    folder = parent / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if not parent.resolve().is_relative_to(root.resolve()):
            raise UnreadableFile(f"skill {name!r} not created: '{parent}' is outside of '{root}'", code="bad_skill")
        folder.mkdir()
        file = folder / FILE
        with file.open("x", encoding="utf-8") as stream:
            stream.write(skill_text(name, line))
    except FileExistsError as error:
        raise UnreadableFile(f"skill {name!r} not created: '{folder}' exists", code="bad_skill") from error
    except OSError as error:
        raise UnreadableFile(f"skill '{folder}' not created: {error.strerror or error}", code="bad_skill") from error
    return file


def _workspace_context(options: CommandOptions) -> EngineWorkspace:
    """Return the workspace's context, without a ledger."""
    with open_engine(options.root, ledger=":memory:") as nx:
        return nx.workspace_context


def _json_value(context: EngineWorkspace, skill: SkillInstructions) -> dict[str, Any]:
    value = msgspec.to_builtins(skill.skill)
    value["missing"] = list(Probe().missing(skill.skill.requires))
    value["used_ms"] = used_skills(_root(context))[0].get(skill.skill.name)
    return value


def _root(context: EngineWorkspace) -> Path:
    if context.files is not None:
        return context.files.root
    return Path()


def _display(value: object) -> str:
    """Return a JSON value on one line, without empty fields."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return "; ".join(f"{name}: {_display(content)}" for name, content in fields.items() if not _is_empty(content))
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)


def _is_empty(value: object) -> bool:
    """Return True for an empty JSON value, and for an object of empty ones."""
    if isinstance(value, dict):
        return all(map(_is_empty, cast("dict[str, object]", value).values()))
    return value is None or value in ("", [], ())
