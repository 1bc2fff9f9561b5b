"""`nexus history`: all messages of a session, also those that were cut or compacted, and its images as files."""

from __future__ import annotations

import base64
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from nexus.assembly.fit.truncate import images_of
from nexus.cli._options import CommandOptions, command_options, resolve_session
from nexus.cli._output import emit, emit_each, escape_json, format_ref, plain_output, print_lines, quoted
from nexus.engine import Engine
from nexus.errors import BadReference, UnreadableFile
from nexus.ledger.replay import visible_start
from nexus.render.console import markdown_lines, printable
from nexus.render.export import as_anthropic, as_openai, as_values
from nexus.render.turnlog.console import ASCII, EMOJI, PLAIN, Signs, console_lines
from nexus.render.turnlog.entries import LogEntry
from nexus.render.turnlog.write import log_entries, log_texts, strict_entries
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import STEPS, Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, TokenSize, user

FILE_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@click.command("history")
@click.argument("session")
@click.option(
    "--as",
    "output_format",
    type=click.Choice(["console", "turnlog", "openai", "anthropic", "markdown"]),
    default="console",
    show_default=True,
    help="Output format.",
)
@click.option("--from-summary", is_flag=True, help="Begin with the current summary, then show only later messages.")
@click.option("--call", "call_id", default="", help="Only the tool call with this id and its result, in full.")
@click.option(
    "--images", "folder", type=click.Path(file_okay=False), help="Also write the images of these messages to a folder."
)
@click.option("--full", is_flag=True, help="Show system texts, values and results in full (format console).")
@click.option("--strict", is_flag=True, help="Omit fields that the turn-log format does not define (format turnlog).")
@click.option("--refs", is_flag=True, help="Show the references that fork, rewind and pin take (format console).")
@command_options
def command(
    session: str,
    output_format: str,
    call_id: str,
    folder: str | None,
    options: CommandOptions,
    *,
    from_summary: bool,
    full: bool,
    strict: bool,
    refs: bool,
) -> None:
    """Show all messages of SESSION.

    Example: nexus history main --call toolu_01
    """
    if strict and output_format != "turnlog":
        raise click.UsageError("--strict requires --as turnlog")
    with options.open() as nx:
        label = resolve_session(nx, session)
        entries = _from_summary(nx, label) if from_summary else _verified_entries(nx, label)
        if call_id:
            entries = _entries_of_call(entries, call_id, label)
        if folder is not None:
            entries = _write_images(entries, Path(folder))
        if output_format in ("openai", "anthropic"):
            messages = _with_summary(entries) if from_summary else entries
            emit(as_openai(messages) if output_format == "openai" else as_anthropic(messages))
        elif output_format == "turnlog":
            _print_log(log_entries(entries, nx.ledger.live(label).undone), strict=strict)
        elif options.as_json:
            emit_each(value for entry in entries for value in as_values((entry,)))
        elif output_format == "markdown":
            print_lines(markdown_lines(entries))
        else:
            lines = console_lines(entries, signs=_signs(), numbered=refs, full=full or bool(call_id))
            first = next(lines, f"Session {quoted(label)} has no messages yet.")
            print_lines(chain([first], lines))


def _verified_entries(nx: Engine, label: str, after: int = 0) -> Iterator[Entry]:
    """Return a session's entries, checked as a whole first: damage is reported before any output."""
    end = nx.ledger.thread_info(label).head_seq
    deque(nx.ledger.iter_entries(label, after, end), maxlen=0)
    return nx.ledger.iter_entries(label, after, end)


def _from_summary(nx: Engine, label: str) -> Iterator[Entry]:
    """Return the current compaction, if any, and the messages after it; after a clear, the messages that follow it."""
    checkpoint = nx.ledger.live(label).checkpoint
    compaction = [checkpoint] if checkpoint is not None and checkpoint.kind == "compaction" else []
    first = visible_start(checkpoint)
    steps = (entry for entry in _verified_entries(nx, label, first.seq - 1) if entry.kind in STEPS)
    visible = (replace(entry, rows=tuple(row for row in entry.rows if row.ref >= first)) for entry in steps)
    return chain(compaction, visible)


def _with_summary(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield the entries, with a compaction as the user message that a call contains."""
    for entry in entries:
        if entry.kind == "compaction":
            summary = user(f"{SUMMARY_MARKER}\n{entry.body.get('summary', '')}")
            yield replace(entry, rows=(StoredMessage(MessageRef(entry.seq, 0), summary, TokenSize(0, 0, 0)),))
        else:
            yield entry


def _entries_of_call(entries: Iterator[Entry], call_id: str, label: str) -> Iterator[Entry]:
    """Return the messages with a tool call or its result. Raises BadReference if there are none."""
    matching: list[Entry] = []
    for entry in entries:
        rows = tuple(row for row in entry.rows if _has_call(row.message, call_id))
        if rows:
            matching.append(replace(entry, rows=rows))
    if not matching:
        raise BadReference(
            f"tool call {call_id!r} not found in session {label!r} (list the calls: nexus session calls)"
        )
    return iter(matching)


def _has_call(message: Message, call_id: str) -> bool:
    return any(call.id == call_id for call in message.calls()) or any(
        result.call_id == call_id for result in message.results()
    )


def _signs() -> Signs:
    """Return the signs for the output: emoji, plain, or ASCII if its encoding lacks the plain ones."""
    signs = PLAIN if plain_output() else EMOJI
    try:
        "".join(msgspec.structs.astuple(signs)).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return ASCII
    return signs


def _print_log(log: Iterator[LogEntry], *, strict: bool) -> None:
    """Print a turn log; with `strict`, count on standard error the content that the format does not define."""
    omitted: Counter[str] = Counter()
    for text in log_texts(strict_entries(log, omitted) if strict else log):
        click.echo(escape_json(text), nl=False)
    for content, count in sorted(omitted.items()):
        click.echo(f"omitted: {content} ({count:,})", err=True)


def _write_images(entries: Iterable[Entry], folder: Path) -> Iterator[Entry]:
    """Yield the entries, after writing their images as `REFERENCE-NUMBER.TYPE` and naming the files on standard error.

    Existing files are not overwritten. Raises UnreadableFile if a file cannot be written.
    """
    for entry in entries:
        for row in entry.rows:
            for number, image in enumerate(images_of(row.message), 1):
                click.echo(_write_image(image, folder, f"{format_ref(row.ref)}-{number}"), err=True)
        yield entry


def _write_image(image: Image, folder: Path, name: str) -> str:
    """Write an image and return the line to print about it."""
    if not image.data:
        return f"Image {name} not written: it is only an address: {printable(image.url)}"
    file = folder / f"{name}.{FILE_SUFFIXES.get(image.media_type, 'bin')}"
    try:
        data = base64.b64decode(image.data, validate=True)
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as target:
            target.write(data)
    except ValueError:
        return f"Image {name} not written: its data is damaged"
    except FileExistsError:
        return f"Image {name} not written: {printable(str(file))} exists"
    except OSError as error:
        raise UnreadableFile(f"'{file}' not written: {error.strerror or error}") from error
    return f"Wrote {printable(str(file))}"
