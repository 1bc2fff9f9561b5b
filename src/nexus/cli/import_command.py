"""`nexus import`: sessions of other tools into the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from nexus.cli._exit_codes import UNREADABLE, WRONG_INPUT
from nexus.cli._options import CommandOptions, check_new_name, command_options
from nexus.cli._output import emit
from nexus.engine import Engine
from nexus.errors import NexusError, UnreadableFile
from nexus.interop.detect import READERS, read
from nexus.interop.importing import ImportReport, import_transcript
from nexus.render.console import printable

SHOWN_PROBLEMS = 10

RESTORE = "restore it: nexus session restore NAME"
STATUS_NOTES = {
    "active": "",
    "archived": f"session archived, so it is not listed ({RESTORE})",
    "deleted": f"session deleted ({RESTORE})",
}


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-s", "--session", callback=check_new_name, help="Name of the session [the one in the file].")
@click.option("--format", "file_format", type=click.Choice(sorted(READERS)), help="Format of the files [detected].")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; write no session.")
@command_options
def command(
    files: tuple[str, ...], session: str | None, file_format: str | None, options: CommandOptions, *, dry_run: bool
) -> None:
    """Import sessions of other tools from FILES. For a folder, import all its .json and .jsonl files.

    Importing a file again adds only new messages.
    """
    paths = list(_paths(files))
    reports: list[ImportReport] = []
    failures: list[dict[str, str]] = []
    with options.open(writes=not dry_run) as nx, _progress(len(paths)) as advance:
        for path in paths:
            try:
                reports.extend(_import_file(nx, path, file_format, session, len(paths), dry_run=dry_run))
            except NexusError as error:
                if len(paths) == 1:
                    raise
                failures.append({"file": str(path), "error": str(error)})
            advance(path)
    if options.as_json:
        emit({"imported": msgspec.to_builtins(reports), "failed": failures, "dryRun": dry_run})
    else:
        _print(reports, failures, dry_run=dry_run)
    if failures:
        click.get_current_context().exit(UNREADABLE)
    if any(report.rejected for report in reports):
        click.get_current_context().exit(WRONG_INPUT)


def _import_file(
    nx: Engine, path: Path, file_format: str | None, session: str | None, files: int, *, dry_run: bool
) -> list[ImportReport]:
    transcripts = list(read(path, file_format))
    if session and (files > 1 or len(transcripts) > 1):
        count = f"{len(transcripts):,} sessions in '{path}'" if files == 1 else f"{files:,} files"
        raise click.UsageError(f"--session names one session, not {count}")
    return [
        report
        for transcript in transcripts
        for report in import_transcript(nx, transcript, session or "", dry_run=dry_run)
    ]


def _paths(files: tuple[str, ...]) -> Iterator[Path]:
    for name in files:
        path = Path(name).expanduser()
        if not path.is_dir():
            yield path
            continue
        contents = sorted(file for file in path.rglob("*") if file.suffix in (".json", ".jsonl") and file.is_file())
        if not contents:
            raise UnreadableFile(f"folder '{path}' has no .json or .jsonl files")
        yield from contents


@contextmanager
def _progress(total: int) -> Generator[Callable[[Path], None]]:
    """Show a progress bar with file names on standard error, on a terminal and for several files only."""
    if total <= 1 or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Importing", total=total)
        yield lambda path: bar.update(task, advance=1, description=escape(printable(path.name)))


def _print(reports: list[ImportReport], failures: list[dict[str, str]], *, dry_run: bool) -> None:
    added = "would add" if dry_run else "added"
    for report in reports:
        click.echo("\n".join(_report_lines(report, added)))
    for report in reports:
        if report.rejected:
            text = f"{report.rejected:,} steps are new in the file, but the session was deleted"
            click.echo(f"not imported: {printable(report.session)}: {text} ({RESTORE}, then import again)", err=True)
    for failure in failures:
        click.echo(f"not imported: {printable(failure['file'])}: {printable(failure['error'])}", err=True)
    if len(reports) > 1:
        click.echo(f"{len(reports):,} sessions, {added} {sum(report.messages for report in reports):,} messages")


def _report_lines(report: ImportReport, added: str) -> Iterator[str]:
    stored = f"{report.messages:,} messages, {report.calls:,} calls, {report.results:,} results"
    compactions = f", {report.compactions:,} compactions" if report.compactions else ""
    existing = f", {report.known_entries:,} imported before" if report.known_entries else ""
    name = printable(report.session)
    yield f"{name} ({report.format}): {added} {report.added_entries:,} steps: {stored}{compactions}{existing}"
    for note in filter(None, (report.note, STATUS_NOTES[report.status])):
        yield f"  note: {printable(note)}"
    if report.omitted:
        fields = ", ".join(f"{name} ({count:,})" for name, count in sorted(report.omitted.items()))
        yield f"  omitted: {printable(fields)}"
    if report.message_lines and report.counted:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.counted.items()))
        yield f"  {report.lines:,} lines: {report.message_lines:,} with messages; others: {printable(kinds)}"
    for problem in report.problems[:SHOWN_PROBLEMS]:
        yield f"  line {problem.line}: {printable(problem.text)}"
    if len(report.problems) > SHOWN_PROBLEMS:
        yield f"  and {len(report.problems) - SHOWN_PROBLEMS:,} more problems (--json shows all)"
