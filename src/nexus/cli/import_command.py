"""`nexus import`: real sessions into the ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import click
import msgspec

from nexus.cli.listing import new_name
from nexus.cli.shared import common, emit, open_here
from nexus.engine import Engine
from nexus.errors import BadReference, NexusError, UnreadableFile
from nexus.interop.detect import READERS, read
from nexus.interop.importing import ImportReport, import_transcript
from nexus.render.console import printable

SHOWN_PROBLEMS = 10

RESTORE = "`nexus session restore NAME` brings it back"
STATUSES = {
    "active": "",
    "archived": f"the session is archived, so it is not listed; {RESTORE}",
    "deleted": f"the session was deleted; {RESTORE}",
}
"""What is said of a session that is not listed, by its status."""


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-s", "--session", callback=new_name, help="Name of the session [the one that the file names].")
@click.option("--format", "form", type=click.Choice(sorted(READERS)), help="Force a format [detected].")
@click.option("--dry-run", is_flag=True, help="Show what would happen; write nothing.")
@common
def command(
    files: tuple[str, ...],
    session: str | None,
    form: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Read sessions that other tools wrote. A directory imports all its .json and .jsonl files. Again adds nothing."""
    paths = list(_paths(files))
    done: list[ImportReport] = []
    failed: list[dict[str, str]] = []
    with open_here(workspace, ledger, writes=not dry_run) as nx, _progress(len(paths)) as advance:
        for path in paths:
            try:
                done.extend(_one(nx, path, form, session, len(paths), dry_run=dry_run))
            except NexusError as error:
                if len(paths) == 1:
                    raise
                failed.append({"file": str(path), "error": str(error)})
            advance(path)
    if as_json:
        emit({"imported": msgspec.to_builtins(done), "failed": failed, "dryRun": dry_run})
    else:
        _print(done, failed, dry_run=dry_run)
    if failed:
        click.get_current_context().exit(UnreadableFile.exit_code)
    if any(one.rejected for one in done):
        click.get_current_context().exit(BadReference.exit_code)


def _one(
    nx: Engine, path: Path, form: str | None, session: str | None, files: int, *, dry_run: bool
) -> list[ImportReport]:
    transcripts = list(read(path, form))
    if session and (files > 1 or len(transcripts) > 1):
        held = f"{len(transcripts):,} sessions" if len(transcripts) > 1 else f"{files:,} files"
        raise click.UsageError(f"--session names one session, but {path if files == 1 else 'this'} holds {held}")
    return [
        one for transcript in transcripts for one in import_transcript(nx, transcript, session or "", dry_run=dry_run)
    ]


def _paths(files: tuple[str, ...]) -> Iterator[Path]:
    for name in files:
        path = Path(name).expanduser()
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in (".json", ".jsonl") and p.is_file())
            if not found:
                raise UnreadableFile(f"{path} has no .json or .jsonl files")
            yield from found
        else:
            yield path


class _Progress:
    """A progress bar on standard error, on a terminal and for several files only."""

    def __init__(self, total: int) -> None:
        self._total = total

    def __enter__(self) -> Self:
        self._bar = None
        if self._total > 1 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("Importing", total=self._total)
        return self

    def __call__(self, path: Path) -> None:
        if self._bar is not None:
            from rich.markup import escape

            self._bar.update(self._task, advance=1, description=escape(printable(path.name)))

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


_progress = _Progress


def _print(done: list[ImportReport], failed: list[dict[str, str]], *, dry_run: bool) -> None:
    would = "would add" if dry_run else "added"
    for one in done:
        known = f", {one.known_entries:,} known already" if one.known_entries else ""
        what = f"{one.messages:,} messages, {one.calls:,} calls, {one.results:,} results"
        extra = f", {one.compactions:,} compactions" if one.compactions else ""
        click.echo(
            f"{printable(one.session)} ({one.format}): {would} {one.added_entries:,} steps: {what}{extra}{known}"
        )
        for note in filter(None, (one.note, STATUSES[one.status])):
            click.echo(f"  note: {printable(note)}")
        if one.omitted:
            fields = ", ".join(f"{name} ({count:,})" for name, count in sorted(one.omitted.items()))
            click.echo(f"  not taken over: {printable(fields)}")
        if one.message_lines and one.counted:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(one.counted.items()))
            click.echo(f"  {one.lines:,} lines: {one.message_lines:,} with messages; not messages: {printable(kinds)}")
        for problem in one.problems[:SHOWN_PROBLEMS]:
            click.echo(f"  line {problem.line}: {printable(problem.text)}")
        if len(one.problems) > SHOWN_PROBLEMS:
            click.echo(f"  and {len(one.problems) - SHOWN_PROBLEMS:,} more problems (--json shows all)")
    for one in done:
        if one.rejected:
            told = f"{one.rejected:,} steps are new in the file, but the session was deleted"
            click.echo(f"not imported: {printable(one.session)}: {told}. {RESTORE}, then import again", err=True)
    for failure in failed:
        click.echo(f"not imported: {printable(failure['file'])}: {printable(failure['error'])}", err=True)
    if len(done) > 1:
        total = sum(one.messages for one in done)
        click.echo(f"{len(done):,} sessions, {would} {total:,} messages")
