"""`nexus validate`: what is wrong with a turn log, by the seven requirements of document 001."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from nexus.cli.shared import common, emit_around
from nexus.errors import NexusError
from nexus.interop.detect import detect, read
from nexus.interop.turnlog import Violation, read_text, violations
from nexus.render.console import printable

INVALID = 1
"""The exit code where a file has errors."""


@click.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["anthropic", "claude_code", "openai", "turnlog"]),
    help="Format of the file [detected; turnlog if none is].",
)
@common
def command(file: Path, form: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - the options of every command
    """Check FILE, a turn log, against its requirements. Each violation is shown with its entry, index and reason.

    Of a file in another format that can be imported, it is said what it holds. Nothing is stored.

    Example: nexus validate log.json
    """
    file = file.expanduser()
    form = form or _format(file)
    counted: Counter[str] = Counter()
    found = _counted(_problems(file, form, counted) if form != "turnlog" else _violations(file), counted)
    if as_json:
        head = {"file": str(file), "format": form, "valid": all(one.level != "error" for one in found)}
        again = _problems(file, form, Counter()) if form != "turnlog" else _violations(file)
        emit_around(head, "violations", map(msgspec.to_builtins, again))
    else:
        for one in found:
            click.echo(_line(one))
        click.echo(_summary(file, form, counted))
    if counted["error"]:
        click.get_current_context().exit(INVALID)


def _violations(file: Path) -> Iterator[Violation]:
    text, damaged = read_text(file)
    return violations(text, damaged=damaged)


def _format(file: Path) -> str:
    """The file's format; a turn log where none is known, so that it is said what it lacks."""
    try:
        return detect(file)
    except NexusError:
        return "turnlog"


def _counted(found: Iterator[Violation], counted: Counter[str]) -> Iterator[Violation]:
    for one in found:
        counted[one.level] += 1
        yield one


def _problems(file: Path, form: str, counted: Counter[str]) -> Iterator[Violation]:
    """What an import of another format would say is wrong, by lines: such a file has no entries."""
    for transcript in read(file, form):
        counted["conversations"] += 1
        counted["messages"] += sum(len(step.messages) for step in transcript.all_steps())
        for problem in transcript.problems:
            yield Violation(-1, None, problem.line, 0, "error", problem.text)


def _line(one: Violation) -> str:
    index = "" if one.index is None else f", index {one.index}"
    entry = f"entry {one.position}{index}, " if one.position >= 0 else ""
    number = f"requirement {one.requirement}: " if one.requirement else ""
    return printable(f"{one.level}: {entry}line {one.line}: {number}{one.reason}")


def _summary(file: Path, form: str, counted: Counter[str]) -> str:
    errors, warnings = counted["error"], counted["warning"]
    name = printable(str(file))
    if form != "turnlog":
        held = f"{counted['conversations']:,} conversations, {counted['messages']:,} messages"
        return f"{name} is no turn log but {form}: {held}, {errors:,} problems"
    told = f"{errors:,} errors, {warnings:,} warnings"
    return f"{name} is {'no valid' if errors else 'a valid'} turn log: {told}"
