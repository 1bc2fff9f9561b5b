"""`nexus import` and `validate`: sessions of other tools into the ledger, and violations of the turn-log format."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from nexus.cli._claude_projects import find_projects, projects_folder
from nexus.cli._exit_numbers import UNREADABLE, WRONG_INPUT
from nexus.cli._listing import Listing, number, time, wrapped
from nexus.cli._options import CommandOptions, as_file, check_new_name, nexus_command
from nexus.cli._output import count_noun, emit, emit_with_list, print_lines
from nexus.cli._parameters import nearest
from nexus.engine import Engine
from nexus.errors import NexusError, UnreadableFile
from nexus.interop.detect import detect, first_time, read
from nexus.interop.importing import ImportReport, import_transcript
from nexus.interop.readers import READERS, add_readers
from nexus.render.console import printable
from nexus.turnlog.reader import Violation, read_text, violations

PROJECTS = Listing(
    wrapped("project"),
    number("sessions"),
    number("MB", lambda project: f"{project.bytes / 1e6:,.1f}"),
    time("last", "last_ms"),
)

SHOWN_PROBLEMS = 10

RESTORE = "restore it: nexus session restore NAME"
STATUS_NOTES = {
    "active": "",
    "archived": f"session archived, so it is not listed ({RESTORE})",
    "deleted": f"session deleted ({RESTORE})",
}

DISPLAY_FIELDS = {
    "isVisibleInTranscriptOnly": "a flag of the display",
    "planContent": "a copy of the plan",
    "sourceToolAssistantUUID": "a link to the call, which the result has",
    "thinkingMetadata": "settings of the input line",
    "todos": "a copy of the to-do list",
    "toolUseResult": "a copy of the results for Claude Code's own display",
}
"""Fields of Claude Code's files that no model received, each with its content."""

INVALID = 1
"""Exit code of `validate` for a file with errors."""


class ReaderName(click.ParamType[str]):
    """Name of a file format. It is looked up later, when plugins with further formats are loaded."""

    name = "format"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the formats of Nexus, for help."""
        del param, ctx
        return f"[{'|'.join(READERS)}]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the formats that begin with a text."""
        del ctx, param
        return [CompletionItem(name) for name in READERS if name.startswith(incomplete)]


@nexus_command("import")
@click.argument("files", nargs=-1, type=click.Path())
@click.option("-s", "--session", callback=check_new_name, help="Name of the session [the one in the file].")
@click.option("--format", "file_format", type=ReaderName(), help="Format of the files [detected].")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; write no session.")
@click.option("--yes", is_flag=True, help="Without FILES: import all sessions of Claude Code without asking.")
def command(
    files: tuple[str, ...],
    session: str | None,
    file_format: str | None,
    dry_run: bool,
    yes: bool,
    options: CommandOptions,
) -> int:
    """Import sessions of other tools from FILES. For a folder, import all its .json and .jsonl files.

    Without FILES, show the sessions of Claude Code on this machine, and ask whether to import them. Importing a file
    again adds only new messages.

    Example: nexus import ~/.claude/projects
    """
    files = files or _claude_files(session, asks=not (yes or dry_run), as_json=options.as_json)
    if not files:
        click.echo("Nothing was imported.")
        return 0
    paths = list(_paths(files))
    if len(paths) > 1:  # parts of one session may be in several files
        paths.sort(key=first_time)
    reports: list[ImportReport] = []
    failures: list[dict[str, str]] = []
    with (
        options.open(writes=not dry_run) as nx,
        _plugin_readers(nx, file_format),
        _progress(paths, as_json=options.as_json) as advance,
    ):
        for path in paths:
            try:
                reports += _import_file(nx, path, file_format, session, len(paths), advance, dry_run=dry_run)
            except NexusError as error:
                if len(paths) == 1:
                    raise
                failures.append({"file": str(path), "error": str(error)})
    rejected = [report for report in reports if report.rejected]
    if options.as_json:
        emit({"imported": reports, "failed": failures, "dryRun": dry_run})
    else:
        added = "would add" if dry_run else "added"
        print_lines(line for report in reports for line in _report_lines(report, added))
        for report in rejected:
            text = f"the file has {count_noun(report.rejected, 'new step')}, but the session was deleted"
            click.echo(f"not imported: {printable(report.session)}: {text} ({RESTORE}, then import again)", err=True)
        for failure in failures:
            click.echo(f"not imported: {printable(failure['file'])}: {printable(failure['error'])}", err=True)
        if len(reports) > 1:
            messages = sum(report.messages for report in reports)
            click.echo(f"{count_noun(len(reports), 'session')}, {added} {count_noun(messages, 'message')}")
    if failures:
        return UNREADABLE
    if rejected:
        return WRONG_INPUT
    return 0


def _claude_files(session: str | None, *, asks: bool, as_json: bool) -> tuple[str, ...]:
    """Show the sessions of Claude Code by project, and return their files; none if the user declines. Raises UsageError."""
    folder = projects_folder()
    projects = find_projects(folder)
    if not projects:
        raise click.UsageError(
            f"Missing argument 'FILES': no sessions of Claude Code in {folder} (name files or folders)."
        )
    if session:
        raise click.UsageError("--session names one session (name its file)")
    count = sum(project.sessions for project in projects)
    summary = f"{count_noun(count, 'session')} of {count_noun(len(projects), 'project')} in {printable(str(folder))}"
    has_terminal = sys.stdin is not None and sys.stdin.isatty() and not as_json
    if not as_json:
        click.echo(f"{summary}:")
        PROJECTS.print_rows(projects)
    if asks and not has_terminal:
        raise click.UsageError(f"{summary}: not imported without FILES (import all: nexus import --yes)")
    if asks and not click.confirm("Import them?", default=True, err=True):
        return ()
    return tuple(file for project in projects for file in project.files)


@contextmanager
def _plugin_readers(nx: Engine, file_format: str | None) -> Generator[None]:
    """Add the readers of plugins, and report their problems at the end. Raises BadParameter for an unknown name."""
    added = add_readers(nx.preparation.hooks)
    try:
        if file_format is not None and file_format not in READERS:
            guess = nearest(file_format, READERS)
            advice = f" Did you mean {guess!r}?" if guess else ""
            text = f"{file_format!r} is not one of {', '.join(map(repr, READERS))}.{advice}"
            raise click.BadParameter(text, param_hint="'--format'")
        yield
    finally:
        for plugin in nx.preparation.hooks.plugins:
            problems = added[plugin.name].problems if "nexus_readers" in plugin.hooks else []
            for text in (*plugin.problems, *problems):
                click.echo(f"warning: plugin {printable(f'{plugin.name}: {text}')}", err=True)


def _import_file(
    nx: Engine,
    path: Path,
    file_format: str | None,
    session: str | None,
    files: int,
    advance: Callable[[Path, int], None],
    *,
    dry_run: bool,
) -> list[ImportReport]:
    transcripts = list(read(path, file_format, partial(advance, path)))
    if session and (files > 1 or len(transcripts) > 1):
        if files == 1:
            count = f"{count_noun(len(transcripts), 'session')} in '{path}'"
        else:
            count = f"{count_noun(files, 'file')}"
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
def _progress(paths: list[Path], *, as_json: bool) -> Generator[Callable[[Path, int], None]]:
    """Show the current file, the share of all bytes that were read and the time on standard error, on a terminal only.

    The value is called with a file and the number of its bytes that were read.
    """
    if as_json or not sys.stderr.isatty():
        yield lambda _, __: None
        return
    from rich.console import Console
    from rich.filesize import decimal
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    sizes = {path: path.stat().st_size if path.is_file() else 0 for path in paths}
    starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Importing", total=sum(sizes.values()))

        def advance(path: Path, read_bytes: int) -> None:
            step = "Reading" if read_bytes < sizes[path] else "Storing"
            text = f"{step} {printable(path.name)} ({decimal(sizes[path])})"
            bar.update(task, completed=starts[path] + read_bytes, description=escape(text))

        yield advance


def _report_lines(report: ImportReport, added: str) -> Iterator[str]:
    stored = [
        count_noun(report.messages, "message"),
        count_noun(report.calls, "call"),
        count_noun(report.results, "result"),
    ]
    if report.compactions:
        stored.append(count_noun(report.compactions, "compaction"))
    existing = ""
    if report.known_entries:
        existing = f", {report.known_entries:,} imported before"
    name = printable(report.session)
    steps = count_noun(report.added_entries, "step")
    yield f"{name} ({report.format}): {added} {steps}: {', '.join(stored)}{existing}"
    for note in filter(None, (report.note, STATUS_NOTES[report.status])):
        yield f"  note: {printable(note)}"
    if report.omitted:
        descriptions = DISPLAY_FIELDS if report.format == "claude_code" else {}
        fields = {name: f"{name} ({count:,})" for name, count in sorted(report.omitted.items())}
        copies = [f"{text}: {descriptions[name]}" for name, text in fields.items() if name in descriptions]
        others = [text for name, text in fields.items() if name not in descriptions]
        if copies:
            yield f"  not needed: {printable('; '.join(copies))}"
        if others:
            yield f"  omitted: {printable(', '.join(others))}"
    if report.message_lines and report.counted:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.counted.items()))
        yield f"  {count_noun(report.lines, 'line')}: {report.message_lines:,} with messages; others: {printable(kinds)}"
    if report.cost_usd:
        yield f"  cost in the file: USD {report.cost_usd:,.4f}"
    for problem in report.problems[:SHOWN_PROBLEMS]:
        if problem.line:
            where = f"line {problem.line}"
        else:
            where = problem.kind
        yield f"  {where}: {printable(problem.text)}"
    if len(report.problems) > SHOWN_PROBLEMS:
        yield f"  and {len(report.problems) - SHOWN_PROBLEMS:,} more problems (--json shows all)"


@nexus_command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "file_format",
    type=ReaderName(),
    help="Format of the file [detected, else turnlog].",
)
def validate(file: Path, file_format: str | None, options: CommandOptions) -> int:
    """Check FILE, a turn log, against its format.

    `-` is standard input. Each violation has its entry, index and reason. For a file in another format, show what an import would report. Nothing is stored.

    Example: nexus turnlog validate log.json
    """
    if str(file) == "-":
        name = "standard input"
    else:
        name = str(file.expanduser())
    with as_file(file) as readable:
        return _validate(readable, name, file_format, options)


def _validate(file: Path, name: str, file_format: str | None, options: CommandOptions) -> int:
    counts: Counter[str] = Counter()
    with options.open(writes=False) as nx, _plugin_readers(nx, file_format):
        try:
            file_format = file_format or detect(file)
        except NexusError:  # a file in no known format is checked as a turn log
            file_format = "turnlog"
        # The file is read twice for JSON, whose head says if it is valid, so that memory does not follow its length.
        for violation in _violations(file, file_format, counts):
            counts[violation.level] += 1
            if not options.as_json:
                if violation.index is None:
                    index = ""
                else:
                    index = f", index {violation.index}"
                entry = ""
                if violation.position >= 0:
                    entry = f"entry {violation.position}{index}, "
                number = ""
                if violation.requirement:
                    number = f"requirement {violation.requirement}: "
                click.echo(printable(f"{violation.level}: {entry}line {violation.line}: {number}{violation.reason}"))
    errors = counts["error"]
    printed_name = printable(name)
    if options.as_json:
        head = {"file": name, "format": file_format, "valid": not errors}
        emit_with_list(head, "violations", _violations(file, file_format, Counter()))
    elif file_format != "turnlog":
        content = f"{count_noun(counts['conversations'], 'conversation')}, {count_noun(counts['messages'], 'message')}"
        click.echo(f"{printed_name} is not a turn log but {file_format}: {content}, {count_noun(errors, 'problem')}")
    else:
        validity = "not a valid" if errors else "a valid"
        problems = f"{count_noun(errors, 'error')}, {count_noun(counts['warning'], 'warning')}"
        click.echo(f"{printed_name} is {validity} turn log: {problems}")
    if errors:
        return INVALID
    return 0


def _violations(file: Path, file_format: str, counts: Counter[str]) -> Iterator[Violation]:
    """Yield a turn log's violations, or an import's problems by line for other formats, which have no entries."""
    if file_format == "turnlog":
        text, damaged = read_text(file)
        yield from violations(text, damaged=damaged)
        return
    for transcript in read(file, file_format):
        counts["conversations"] += 1
        counts["messages"] += sum(len(step.messages) for step in transcript.all_steps())
        for problem in transcript.report.problems:
            yield Violation(-1, None, problem.line, 0, "error", problem.text)
