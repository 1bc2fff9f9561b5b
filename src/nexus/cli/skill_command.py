"""`nexus skill`: the skills that an agent can use here; listed, shown, used, checked, and a new one begun."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from nexus.cli.listing import moment
from nexus.cli.shared import common, emit, handed_down, nearest_workspace
from nexus.cli.skill_making import make
from nexus.cli.table import print_table
from nexus.engine import open_engine
from nexus.errors import NoSuchSkill
from nexus.render.console import printable
from nexus.types.skill import SkillInstructions, SkillsFound
from nexus.workspace.environment.probe import Probe
from nexus.workspace.files.reader import READ_BYTES, Files
from nexus.workspace.skills.discovery import SKILLS, SkillFolder
from nexus.workspace.skills.lint import lint_all, lint_path
from nexus.workspace.skills.skill_file import name_problem
from nexus.workspace.skills.usage import USED, record_use, used_skills
from nexus.workspace.source_context import WorkspaceContext
from nexus.workspace.sources.skills import availability, discover_skills

MOST_FILES = 50
"""Files beside a guide that are named with it."""


@click.group("skill")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List, show, use, check and begin skills: guides for one kind of task each, in folders with a SKILL.md.

    Example: nexus skill use past-conversations
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


@command.command("list")
@common
def list_(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - an option of all commands
    """List the skills of the workspace, of the user and of the package. Warnings go to standard error.

    Example: nexus skill list --json
    """
    around = _around(workspace)
    found = _found(around)
    if as_json:
        skills = [_facts(around, guide) for guide in found.instructions.values()]
        emit({"skills": skills, "warnings": msgspec.to_builtins(found.warnings)})
        return
    probe = Probe()
    rows = [
        (one.name, one.place, availability(one, probe) or "yes", "yes" if one.always else "", one.description)
        for one in found.skills
    ]
    print_table(("skill", "place", "available", "always", "description"), rows, wraps=("available", "description"))
    _warn(found)


@command.command("show")
@click.argument("name")
@common
def show(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - as above
    """Show what skill NAME says of itself, where it is, what it needs, and what of that is missing.

    Example: nexus skill show past-conversations
    """
    around = _around(workspace)
    facts = _facts(around, _guide(_found(around), name))
    if as_json:
        emit(facts)
        return
    facts["used"] = moment(facts.pop("used_ms") or 0)
    for field, value in facts.items():
        if _told(value):
            click.echo(f"{field.replace('_', ' '):<14} {printable(_shown(value))}")


@command.command("use")
@click.argument("name")
@common
def use(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - as above
    """Print the full guide of skill NAME, for an agent that is about to use it.

    Example: nexus skill use past-conversations
    """
    around = _around(workspace, whole=True)
    guide = _guide(_found(around), name)
    folder, beside = _beside(around, guide)
    missing = Probe().missing(guide.skill.requires)
    if as_json:
        emit(
            {"name": guide.skill.name, "guide": guide.body, "folder": folder, "files": beside, "missing": list(missing)}
        )
    else:
        click.echo("\n".join("\t".join(map(printable, line.split("\t"))) for line in guide.body.split("\n")))
        notes = [f"Files of this skill, in {printable(folder)}: {printable(', '.join(beside))}"] if beside else []
        notes += [f"Missing here: {printable(', '.join(missing))}"] if missing else []
        if notes:
            click.echo("\n".join(["", "---", *notes]))
    if not guide.body:
        click.echo(f"Warning: {printable(guide.skill.origin)} has no text below its front matter", err=True)
    _note(around, guide.skill.name, made=workspace is not None)


@command.command("lint")
@click.argument("path", required=False, type=click.Path())
@common
def lint(path: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - as above
    """Check skills against the Agent Skills standard: at PATH, or all. Exit code 1 if a rule is broken.

    PATH is a skill's folder, its SKILL.md, or a folder with several skills.

    Example: nexus skill lint skills/log-triage
    """
    found = lint_path(Path(path).expanduser()) if path else lint_all(_around(workspace))
    errors = sum(one.error for each in found for one in each.findings)
    said = [
        (each.file, one.line, "error" if one.error else "warning", one.text) for each in found for one in each.findings
    ]
    if as_json:
        emit([dict(zip(("file", "line", "severity", "text"), one, strict=True)) for one in said])
    else:
        for file, line, severity, text in said:
            click.echo(f"{printable(file)}:{line}: {severity}: {printable(text)}")
        click.echo(f"Skills: {len(found):,}. Errors: {errors:,}, warnings: {len(said) - errors:,}")
    if errors:
        click.get_current_context().exit(1)


@command.command("new")
@click.argument("name")
@click.option("--description", default="", help="What it is for and when to use it, in at most 1,024 characters.")
@click.option("--user", is_flag=True, help="In your own folder, for all workspaces [in the workspace].")
@common
def new(name: str, description: str, workspace: str | None, ledger: str | None, *, user: bool, as_json: bool) -> None:  # noqa: ARG001 - as above
    """Make the folder of a new skill NAME, with a SKILL.md to fill in.

    Example: nexus skill new release-notes --description "Write release notes. Use when a release is planned."
    """
    if problem := name_problem(name):
        raise click.BadParameter(f"{name!r} {problem}", param_hint="NAME")
    around = _around(workspace)
    files = around.home if user else around.files
    assert files is not None
    made = make(files.root, name, description)
    if as_json:
        emit({"name": name, "file": str(made)})
        return
    click.echo(f"Made {printable(str(made))}")
    others = [
        one for one in _found(around).warnings if one.message.startswith("not used:") and f"/{name}/" in one.source
    ]
    for other in others:
        click.echo(f"nexus: {printable(other.source)} is {printable(other.message)}", err=True)
    click.echo("Fill it in, then: nexus skill lint")


def _around(workspace: str | None, *, whole: bool = False) -> WorkspaceContext:
    """What stands around the workspace's calls; no ledger is needed. `whole`: without the cap for files in a context."""
    root = Path(workspace).expanduser() if workspace else nearest_workspace(Path.cwd())
    with open_engine(root, ledger=":memory:") as nx:
        around = nx.workspace_context
    if not whole:
        return around
    return dataclasses.replace(around, files=_whole(around.files), home=_whole(around.home))


def _found(around: WorkspaceContext) -> SkillsFound:
    """All skills, without the bounds that hold for a context."""
    return discover_skills(around, most_folders=sys.maxsize)


def _whole(files: Files | None) -> Files | None:
    return Files(files.root, READ_BYTES, files.templates) if files is not None else None


def _guide(found: SkillsFound, name: str) -> SkillInstructions:
    """The skill of that name. Raises NoSuchSkill, which says what there is."""
    guide = found.instructions.get(name)
    if guide is not None:
        return guide
    near = difflib.get_close_matches(name[:100], list(found.instructions), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`nexus skill list` lists those that there are"
    why = next((f" ({one.source}: {one.message})" for one in found.warnings if f"/{name}/" in one.source), "")
    raise NoSuchSkill(f"there is no skill {name!r}{why}; {hint}")


def _facts(around: WorkspaceContext, guide: SkillInstructions) -> dict[str, Any]:
    """All that is known of a skill, as values for JSON."""
    root = around.files.root if around.files is not None else Path()
    facts = msgspec.to_builtins(guide.skill)
    facts["missing"] = list(Probe().missing(guide.skill.requires))
    facts["used_ms"] = used_skills(root)[0].get(guide.skill.name)
    return facts


def _shown(value: object) -> str:
    """A value of JSON on one line."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return "; ".join(f"{name}: {_shown(one)}" for name, one in fields.items() if _told(one))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, (list, tuple)) else str(value)


def _told(value: object) -> bool:
    """Whether a value says something; a map of empty ones does not."""
    if isinstance(value, dict):
        return any(map(_told, cast("dict[str, object]", value).values()))
    return value is not None and value not in ("", [], ())


def _shelf(around: WorkspaceContext, guide: SkillInstructions) -> tuple[SkillFolder, str]:
    """The place of a skill and the name of its folder."""
    shelf = next(one for one in around.skill_index.of(around.files, around.home) if one.place == guide.skill.place)
    return shelf, Path(guide.skill.origin).parent.name


def _beside(around: WorkspaceContext, guide: SkillInstructions) -> tuple[str, list[str]]:
    """A skill's folder, and the files in it besides the SKILL.md: paths in the folder, sorted, at most MOST_FILES."""
    shelf, name = _shelf(around, guide)
    folder = shelf.files.root / SKILLS / name
    found: list[str] = []
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        found += sorted(os.path.relpath(Path(at, one), folder) for one in files if not one.startswith("."))
        if len(found) > MOST_FILES:
            break
    return str(folder), [one for one in found if one != "SKILL.md"][:MOST_FILES]


def _warn(found: SkillsFound) -> None:
    for one in found.warnings:
        click.echo(f"Warning: {printable(f'{one.source}: {one.message}')}", err=True)


def _note(around: WorkspaceContext, name: str, *, made: bool) -> None:
    """Notes the use in the workspace. What stands in the way is a warning: the guide was printed."""
    root = around.files.root if around.files is not None else Path()
    if not made and not (root / USED).parent.is_dir():
        click.echo("Warning: not noted as used: here is no workspace (`nexus init` makes one)", err=True)
        return
    try:
        record_use(root, name, time.time_ns() // 1_000_000)
    except OSError as error:
        text = f"not noted as used in {USED}: {error.strerror or error}"
        click.echo(f"Warning: {printable(text)}", err=True)
