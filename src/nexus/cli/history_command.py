"""`nexus history` and `search`: all messages of a session with its images as files, and messages by their words.

Both include messages that were cut or compacted.
"""

from __future__ import annotations

import base64
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from nexus.assembly.fit.truncate_results import images_of
from nexus.cli._options import SESSION, TENANT_OPTION, CommandOptions, nexus_command, session_argument
from nexus.cli._output import (
    emit,
    emit_each,
    escape_json,
    excerpt,
    format_ref,
    format_time,
    plain_output,
    print_lines,
    quoted,
)
from nexus.cli._parameters import Choice
from nexus.cli._sessions import NO_LEDGER, resolve_session
from nexus.engine import Engine
from nexus.errors import BadReference, NoSuchSession, UnreadableFile
from nexus.ledger.replay import visible_start
from nexus.ledger.search_text import parse_query
from nexus.ledger.sessions import SearchHit
from nexus.render.console import ASCII, PLAIN, Signs, markdown_lines, printable
from nexus.render.conversation import conversation_lines
from nexus.render.export import as_anthropic, as_openai, as_values
from nexus.turnlog.console import EMOJI, console_lines
from nexus.turnlog.entries import LogEntry
from nexus.turnlog.write import log_entries, log_texts, strict_entries
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import STEPS, Entry, MessageRef, StoredMessage
from nexus.types.message import Image, TokenSize, user

FILE_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@nexus_command("history")
@TENANT_OPTION
@session_argument(required=False)
@click.option(
    "--as",
    "output_format",
    type=Choice(["conversation", "markdown", "console", "turnlog", "openai", "anthropic"]),
    default="conversation",
    show_default=True,
    help="Output format; console is the turn log's display.",
)
@click.option("--from-summary", is_flag=True, help="Begin with the current summary, then show only later messages.")
@click.option("--call", "call_id", default="", help="Only the tool call with this id and its result, in full.")
@click.option(
    "--images", "folder", type=click.Path(file_okay=False), help="Also write the images of these messages to a folder."
)
@click.option(
    "--full",
    is_flag=True,
    help="Show notes, system texts, values and results in full (formats conversation and console).",
)
@click.option("--strict", is_flag=True, help="Omit fields that the turn-log format does not define (format turnlog).")
@click.option("--ascii", "ascii_only", is_flag=True, help="Show ASCII signs only (formats conversation and console).")
@click.option(
    "--refs",
    is_flag=True,
    help="Show the references that fork, rewind and pin take (formats conversation and console).",
)
def command(
    session: str | None,
    output_format: str,
    call_id: str,
    folder: str | None,
    from_summary: bool,
    full: bool,
    strict: bool,
    ascii_only: bool,
    refs: bool,
    options: CommandOptions,
) -> None:
    """Show a session as a conversation.

    Without SESSION it is the newest one, with --call the newest one that has the call.
    Messages that calls no longer contain are shown too. Long results are cut with a note; --full shows them.

    Example: nexus history main --full
    """
    if strict and output_format != "turnlog":
        raise click.UsageError("--strict requires --as turnlog")
    if ascii_only and output_format not in ("conversation", "console"):
        raise click.UsageError("--ascii requires --as conversation or --as console")
    with options.open(reads_stored=True, needs_config=False) as nx:
        label = resolve_session(nx, session) if session is not None else _newest_session(nx, call_id)
        entries = _from_summary(nx, label) if from_summary else _verified_entries(nx, label)
        if call_id:
            entries = _entries_of_call(entries, call_id, label)
        if folder is not None:
            entries = _with_images(entries, Path(folder))
        if output_format in ("openai", "anthropic"):
            messages = _with_summary(entries) if from_summary else entries
            emit(as_openai(messages) if output_format == "openai" else as_anthropic(messages))
        elif output_format == "turnlog":
            _print_turn_log(log_entries(entries, nx.ledger.live(label).undone), strict=strict)
        elif options.as_json:
            emit_each(value for entry in entries for value in as_values((entry,)))
        elif output_format == "markdown":
            print_lines(markdown_lines(entries))
        else:
            lines = _displayed(entries, output_format, ascii_only=ascii_only, numbered=refs, full=full or bool(call_id))
            first = next(lines, f"Session {quoted(label)} has no messages yet.")
            print_lines(chain([first], lines))


def _newest_session(nx: Engine, call_id: str) -> str:
    """Return the session that changed last, of those with a tool call. Raises NoSuchSession and BadReference."""
    sessions = nx.ledger.sessions.list(limit=None if call_id else 1)
    if not sessions:
        raise NoSuchSession("no session yet (create one: nexus import FILE or nexus record)")
    if not call_id:
        return sessions[0].label
    for info in sessions:
        if any(_has_call(row, call_id) for entry in nx.ledger.iter_entries(info.label) for row in entry.rows):
            return info.label
    raise BadReference(f"tool call {call_id!r} not found in any session (list the calls: nexus session calls)")


def _displayed(
    entries: Iterator[Entry], output_format: str, *, ascii_only: bool, numbered: bool, full: bool
) -> Iterator[str]:
    if output_format == "console":
        signs = ASCII if ascii_only else _signs(EMOJI)
        return console_lines(entries, signs=signs, numbered=numbered, full=full)
    signs = ASCII if ascii_only else _signs(PLAIN)
    paint = _plain if plain_output() else _colored
    return conversation_lines(entries, signs=signs, numbered=numbered, full=full, paint=paint)


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
        rows = tuple(row for row in entry.rows if _has_call(row, call_id))
        if rows:
            matching.append(replace(entry, rows=rows))
    if not matching:
        raise BadReference(
            f"tool call {call_id!r} not found in session {label!r} (list the calls: nexus session calls)"
        )
    return iter(matching)


def _has_call(row: StoredMessage, call_id: str) -> bool:
    """Return True if a message has a tool call or its result."""
    message = row.message
    return any(call.id == call_id for call in message.calls()) or any(
        result.call_id == call_id for result in message.results()
    )


def _signs(wanted: Signs) -> Signs:
    """Return the first of these signs, plain and ASCII ones that the output's encoding can carry; warn about lost emoji."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    signs = next(signs for signs in (wanted, PLAIN, ASCII) if _encodes(signs, encoding))
    if wanted is EMOJI and signs is not EMOJI:
        click.echo(
            f"Warning: {encoding} cannot encode the signs: printed without them (set PYTHONIOENCODING=utf-8)", err=True
        )
    return signs


_ROLE_COLORS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "magenta"}


def _colored(name: str, role: str) -> str:
    return click.style(name, fg=_ROLE_COLORS.get(role), bold=True)


def _plain(name: str, _role: str) -> str:
    return name


def _encodes(signs: Signs, encoding: str) -> bool:
    try:
        "".join(msgspec.structs.astuple(signs)).encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _with_images(entries: Iterable[Entry], folder: Path) -> Iterator[Entry]:
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
        with file.open("xb") as target:  # fails if the file exists
            target.write(data)
    except ValueError:
        return f"Image {name} not written: its data is damaged"
    except FileExistsError:
        return f"Image {name} not written: {printable(str(file))} exists"
    except OSError as error:
        raise UnreadableFile(f"'{file}' not written: {error.strerror or error}") from error
    return f"Wrote {printable(str(file))}"


@nexus_command("search")
@TENANT_OPTION
@click.argument("words", nargs=-1, required=True)
@click.option("-s", "--session", type=SESSION, help="Only in this session.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=Choice(["user", "assistant", "tool", "system"]),
    help="Only messages of this role; repeatable.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Number of messages.")
@click.option("--newest", is_flag=True, help="Newest first instead of best first.")
@click.option("--all", "every", is_flag=True, help="Also search deleted sessions.")
def search(
    words: tuple[str, ...],
    session: str | None,
    roles: tuple[Any, ...],
    limit: int,
    newest: bool,
    every: bool,
    options: CommandOptions,
) -> None:
    """Find the messages that have all WORDS.

    Compacted messages are searched too. Case and accents are ignored. Words in double quotes form a phrase; in a shell: nexus search '"index rebuild" nightly'. Chinese, Japanese and
    Korean need no spaces.

    Example: nexus search index rebuild --session main --role user
    """
    text = " ".join(words)
    phrases = parse_query(text)
    if not phrases:
        raise click.UsageError("no words in the query: punctuation alone is not searched")
    with options.open(reads_stored=True, needs_config=False) as nx, nx.ledger.snapshot():
        label = ""
        if session is not None:
            label = resolve_session(nx, session)
        order = "newest" if newest else "relevance"
        hits = nx.ledger.search(text, session=label, roles=roles, limit=limit + 1, order=order, every=every)
        names = {name for hit in hits for name in _hit_sessions(hit, label)}
        statuses = {name: nx.ledger.sessions.metadata(name).status for name in names}
        has_ledger = nx.ledger.location != NO_LEDGER
    if options.as_json:
        emit(
            [
                {
                    **msgspec.to_builtins(hit),
                    "sessions": _hit_sessions(hit, label),
                    "excerpt": "".join(piece for piece, _ in excerpt(hit.text, phrases)),
                }
                for hit in hits[:limit]
            ]
        )
        return
    if not hits:
        where = f" in session {quoted(label)}" if label else ""
        click.echo(f"No matches{where} for: {printable(text)}" if has_ledger else "No ledger yet.")
    for hit in hits[:limit]:
        names = [
            f"{printable(name)} ({statuses[name]})" if statuses.get(name, "active") != "active" else printable(name)
            for name in _hit_sessions(hit, label)
        ]
        _print_hit(hit, names, phrases)
    if len(hits) > limit:
        click.echo(f"More than {limit:,} messages match (--limit shows more).")


def _hit_sessions(hit: SearchHit, label: str) -> tuple[str, ...]:
    """Return the sessions that have a message, first the one that was searched, which has every hit on its path."""
    if label:
        return (label, *(name for name in hit.sessions if name != label))
    return hit.sessions


def _print_turn_log(log: Iterable[LogEntry], *, strict: bool) -> None:
    """Print a turn log; content that the strict format omits is counted on standard error."""
    omitted: Counter[str] = Counter()
    if strict:
        log = strict_entries(log, omitted)
    for text in log_texts(log):
        click.echo(escape_json(text), nl=False)
    for content, count in sorted(omitted.items()):
        click.echo(f"omitted: {content} ({count:,})", err=True)


def _print_hit(hit: SearchHit, names: list[str], phrases: list[list[str]]) -> None:
    """Print where a hit is, and an excerpt with its matches."""
    plain = plain_output()
    first = names[0] if names else f"(thread {hit.thread} without a session)"
    also = f" (also in {', '.join(names[1:])})" if len(names) > 1 else ""
    head = f"{also}  entry {format_ref(hit.ref)}  turn {hit.turn}  {hit.role}  {format_time(hit.at_ms)}"
    pieces: list[str] = []
    for piece, matches in excerpt(hit.text, phrases):
        pieces.append(click.style(piece, fg="yellow", bold=True) if matches and not plain else piece)
    click.echo(f"{first if plain else click.style(first, fg='cyan', bold=True)}{head.rstrip()}")
    click.echo(f"    {''.join(pieces)}")
