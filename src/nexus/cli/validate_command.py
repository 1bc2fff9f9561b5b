"""`nexus validate`: violations of the turn-log format's seven requirements (docs/turn-log.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit_with_list
from nexus.errors import NexusError
from nexus.interop.detect import detect, read
from nexus.interop.turnlog import Violation, read_text, violations
from nexus.render.console import printable

INVALID = 1
"""Exit code for a file with errors."""


@click.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["anthropic", "claude_code", "openai", "turnlog"]),
    help="Format of the file [detected, else turnlog].",
)
@command_options
def command(file: Path, file_format: str | None, options: CommandOptions) -> None:
    """Check FILE, a turn log, against the requirements of its format, with entry, index and reason of each violation.

    For a file in another format, show what an import would report. Nothing is stored.

    Example: nexus validate log.json
    """
    file = file.expanduser()
    file_format = file_format or _detect(file)
    counts: Counter[str] = Counter()
    # The file is read twice for JSON, whose head says if it is valid, so that memory does not follow its length.
    if options.as_json:
        for violation in _violations(file, file_format, counts):
            counts[violation.level] += 1
        head = {"file": str(file), "format": file_format, "valid": not counts["error"]}
        emit_with_list(head, "violations", map(msgspec.to_builtins, _violations(file, file_format, Counter())))
    else:
        for violation in _violations(file, file_format, counts):
            counts[violation.level] += 1
            click.echo(_line(violation))
        click.echo(_summary(file, file_format, counts))
    if counts["error"]:
        click.get_current_context().exit(INVALID)


def _detect(file: Path) -> str:
    """Return the file's format; a file in no known format is checked as a turn log."""
    try:
        return detect(file)
    except NexusError:
        return "turnlog"


def _violations(file: Path, file_format: str, counts: Counter[str]) -> Iterator[Violation]:
    """Yield a turn log's violations, or an import's problems by line for other formats, which have no entries."""
    if file_format == "turnlog":
        text, damaged = read_text(file)
        yield from violations(text, damaged=damaged)
        return
    for transcript in read(file, file_format):
        counts["conversations"] += 1
        counts["messages"] += sum(len(step.messages) for step in transcript.all_steps())
        for problem in transcript.problems:
            yield Violation(-1, None, problem.line, 0, "error", problem.text)


def _line(violation: Violation) -> str:
    index = "" if violation.index is None else f", index {violation.index}"
    entry = f"entry {violation.position}{index}, " if violation.position >= 0 else ""
    number = f"requirement {violation.requirement}: " if violation.requirement else ""
    return printable(f"{violation.level}: {entry}line {violation.line}: {number}{violation.reason}")


def _summary(file: Path, file_format: str, counts: Counter[str]) -> str:
    errors, name = counts["error"], printable(str(file))
    if file_format != "turnlog":
        content = f"{counts['conversations']:,} conversations, {counts['messages']:,} messages"
        return f"{name} is not a turn log but {file_format}: {content}, {errors:,} problems"
    validity = "not a valid" if errors else "a valid"
    return f"{name} is {validity} turn log: {errors:,} errors, {counts['warning']:,} warnings"
