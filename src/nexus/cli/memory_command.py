"""`nexus memory`: facts that the agent remembers: show, search, add, forget; propose from sessions, accept, reject, undo."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from nexus.cli._listing import Column, Listing, number, wrapped
from nexus.cli._options import SESSION, Choice, CommandOptions, NexusGroup, read_input
from nexus.cli._output import beginning, emit, excerpt, format_ref, format_time, print_lines, progress_bar, quoted
from nexus.cli._sessions import resolve_session
from nexus.engine import Engine
from nexus.ledger.search_text import parse_query
from nexus.ledger.sqlite import SqliteLedger
from nexus.render.console import printable
from nexus.workspace.memory.changes import PROFILE, Change, StoredFact
from nexus.workspace.memory.facts import SECTION, Fact
from nexus.workspace.memory.notebook import Notebook

if TYPE_CHECKING:  # proposals take a while to import, and the other commands do not use them
    from nexus.workspace.memory.model_proposals import Ask
    from nexus.workspace.memory.proposals import Proposal

TEXT_CHARS = 2_000
"""Characters printed of a fact or log entry; --json prints all."""

ENTRIES = Listing(
    number("entry", "number"), Column("time", "at"), wrapped("text", lambda entry: _truncated(entry.text))
)
FACTS = Listing(
    number("fact", "number"), wrapped("section"), Column("date"), wrapped("text", lambda fact: _truncated(fact.text))
)
CHANGES = Listing(number("change"), Column("time"), Column("by"), wrapped("fact"), empty="No changes yet.")

TIMEZONE_OPTION = click.option(
    "--timezone", default="", help="The user's time zone, an IANA name [the configured one, or UTC]."
)


@click.group("memory", cls=NexusGroup)
def command() -> None:
    """Show, search, add and forget facts, or take them from sessions. Facts are lines of MEMORY.md, which is part of the context.

    Forgotten facts move to the log HISTORY.md, which is append-only and not sent to the model. Facts that users state in
    sessions are proposed with their sources; you accept or reject them. Each change can be undone.

    Example: nexus memory add "The release branch is cut on Fridays."
    """


@contextmanager
def _notebook(options: CommandOptions, timezone: str = "", *, writes: bool = False) -> Generator[Notebook]:
    """Open the workspace's memory, with the clock, zone, cap and profiles of an engine."""
    with options.open(writes=writes) as nx:
        yield nx.memory.notebook(timezone)


@command.subcommand("show")
@click.option("--history", is_flag=True, help="Show the log, newest entry last, instead of the facts.")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Number of log entries.")
def show(history: bool, last: int, options: CommandOptions) -> None:
    """List the facts, or the newest log entries.

    Example: nexus memory show --history --last 5
    """
    with _notebook(options) as book:
        _show(book, options, history=history, last=last)


def _show(book: Notebook, options: CommandOptions, *, history: bool, last: int) -> None:
    if history:
        entries = list(deque(book.entries(), maxlen=last))
        document: dict[str, Any] = {"file": book.log, "entries": entries}
        ENTRIES.print(entries, options, empty=f"No entries in {book.log} yet.", document=document)
        return
    text, warnings = book.display_text()
    facts = book.facts()
    document = {
        "file": book.file,
        "facts": list(map(_json_value, facts)),
        "shown": {"chars": len(text.text), "left_out_chars": text.omitted_chars} if text else None,
        "warnings": warnings,
    }
    empty = f"No facts in {book.file} yet (add one: nexus memory add TEXT)."
    FACTS.print(facts, options, empty=empty, document=document)
    if not options.as_json:
        print_lines(f"{printable(warning.source)}: {printable(warning.message)}" for warning in warnings)


@command.subcommand("search")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Matches of each kind.")
@click.option("--sessions", is_flag=True, help="Also search the messages of all sessions, as `nexus search` does.")
def search(query: tuple[str, ...], limit: int, sessions: bool, options: CommandOptions) -> None:
    """Find facts and log entries by their words. Matches of all words of QUERY come first, then the newest.

    Case and accents are ignored; words in double quotes form a phrase; Chinese, Japanese and Korean need no spaces.
    Messages (--sessions) match only if they have all words.

    Example: nexus memory search index rebuild --sessions
    """
    text = " ".join(query)
    phrases = parse_query(text)
    if not phrases:
        raise click.UsageError("no words in the query: punctuation alone is not searched")
    with options.open() as nx:
        matches = nx.memory.notebook().search(text, limit)
        hits = nx.ledger.search(text, limit=limit) if sessions else []
    if options.as_json:
        emit({"found": matches, "sessions": hits})
        return
    if not matches and not hits:
        click.echo(f"No matches for: {printable(text)}")
    shown = [(f"{match.origin} {match.number}  {match.at}  {match.section}", match.text) for match in matches]
    for hit in hits:
        head = f"{', '.join(hit.sessions)} entry {format_ref(hit.ref)}  {format_time(hit.at_ms)}  {hit.role}"
        shown.append((head, hit.text))
    for head, text in shown:
        click.echo(printable(" ".join(head.split())))
        click.echo(f"    {''.join(piece for piece, _ in excerpt(text, phrases))}")


@command.subcommand("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--under", default=SECTION, show_default=True, help="Heading for the fact; created if missing.")
@click.option("--history", is_flag=True, help="Add to the log, which is searchable but not sent to the model.")
@click.option("--force", is_flag=True, help="Add the text even if it looks like a secret.")
@TIMEZONE_OPTION
def add(text: tuple[str, ...], under: str, history: bool, force: bool, timezone: str, options: CommandOptions) -> None:
    """Add the fact TEXT with today's date. `-` reads it from standard input. Duplicates are rejected.

    Put `--` before a text that begins with a dash.

    Example: nexus memory add "Ana prefers the answer first." --under People
    """
    content = read_input() if text == ("-",) else " ".join(text)
    with _notebook(options, timezone) as book:
        if history:
            added = book.append(content, force=force)
        else:
            added = book.add(content, section=under, force=force)
    name = "Log entry"
    if added.number:
        name = f"Fact {added.number:,}"
    options.report(added, f"{name} in {added.file}: {printable(added.at)} {_truncated(added.text)}")
    for warning in added.warnings if not options.as_json else ():
        click.echo(f"nexus: warning: {printable(warning)}", err=True)


@command.subcommand("forget")
@click.argument("fact", nargs=-1, required=True)
@TIMEZONE_OPTION
def forget(fact: tuple[str, ...], timezone: str, options: CommandOptions) -> None:
    """Move a fact to the log. FACT is its number in `nexus memory show`, or its exact text.

    If several facts match, nothing is changed and their numbers are listed.

    Example: nexus memory forget 3
    """
    with _notebook(options, timezone) as book:
        forgotten = book.forget(" ".join(fact))
    shown = " ".join(filter(None, (printable(forgotten.date), _truncated(forgotten.text))))
    value = {"forgotten": _json_value(forgotten), "file": book.file, "log": book.log}
    options.report(value, f"Moved to {book.log}: {shown}")


@command.subcommand("propose")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1, type=SESSION)
@click.option("-s", "--session", "more", multiple=True, type=SESSION, help="Another SESSION; repeatable.")
@click.option("-m", "--model", default="", help="Model that finds the facts [wordings of standing facts, no model].")
@click.option("--base-url", default="", help="Address of an OpenAI-compatible server for --model, such as …/v1.")
@click.option("--add", "adds", is_flag=True, help="Add the proposals at once, as one change.")
def propose(
    sessions: tuple[str, ...], more: tuple[str, ...], base_url: str, adds: bool, options: CommandOptions
) -> None:
    """List facts that the user stated in each SESSION [all], with the messages that they are from.

    A fact is a standing preference or rule, a fact about the user or the work, or a decision. Facts in memory, and those
    that you forgot, undid or rejected, are not proposed. A model's facts are checked against their messages. Proposals wait until
    you accept or reject them.

    Example: nexus memory propose main
    """
    from nexus.workspace.memory import consolidation

    if base_url and not options.model:
        raise click.UsageError("--base-url needs --model")
    with options.open(reads_stored=True) as nx:
        book = nx.memory.notebook()
        labels = [resolve_session(nx, name) for name in (*sessions, *more)] or [
            info.label for info in nx.sessions() if not info.parent_session
        ]
        if (options.model or adds) and isinstance(nx.ledger.store, SqliteLedger):
            nx.ledger.store.check_trusted()  # its content would go to a model
        ask = None
        if options.model:
            ask = _ask(nx, options.model, base_url)
        with progress_bar("Reading sessions") as progress:
            result = consolidation.propose(book, nx.ledger, labels, ask=ask, model=options.model, progress=progress)
        proposals = result.proposals
        if adds and proposals:
            accepted = consolidation.accept(book, [proposal.id for proposal in proposals], ledger=nx.ledger)
            _report_accepted(accepted, book, options, dropped=result.dropped)
            return
    lines = [line for proposal in proposals for line in _proposal_lines(proposal)]
    if proposals:
        count = f"{len(proposals):,} fact{'' if len(proposals) == 1 else 's'} proposed"
        lines += ["", f"{count}. Add or decline them: nexus memory accept ID or --all, nexus memory reject ID or --all"]
    else:
        lines.append("No facts proposed.")
    lines += [f"Dropped {count:,} of the model's answers: {reason}." for reason, count in result.dropped.items()]
    options.report(result, *lines)


@command.subcommand("accept")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Accept all proposals.")
@click.option(
    "--to",
    type=Choice(("memory", "log", "profile")),
    help="Target: MEMORY.md, HISTORY.md or the profile of who said it [the profile for facts about them if they have one, else MEMORY.md].",
)
def accept(ids: tuple[str, ...], every: bool, to: Any, options: CommandOptions) -> None:
    """Add the proposals with these IDs to memory, as one change that `nexus memory undo` reverts.

    A fact that the proposal replaces moves to the log. The profile is the profile of the session's principal, or yours
    for a session without one.

    Example: nexus memory accept --all
    """
    from nexus.workspace.memory import consolidation

    names = _named_ids(ids, every=every)
    with options.open(writes=True) as nx:
        book = nx.memory.notebook()
        _report_accepted(consolidation.accept(book, names, to, nx.ledger), book, options)


@command.subcommand("reject")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Reject all proposals.")
def reject(ids: tuple[str, ...], every: bool, options: CommandOptions) -> None:
    """Decline the proposals with these IDs. Their facts are not proposed again.

    Example: nexus memory reject --all
    """
    from nexus.workspace.memory import consolidation

    with _notebook(options) as book:
        rejected = consolidation.reject(book, _named_ids(ids, every=every))
    lines = [f"Rejected: {_truncated(proposal.text)}" for proposal in rejected]
    options.report({"rejected": rejected}, *(lines or ["No proposals."]))


@command.subcommand("changes")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Number of changes.")
def changes(last: int, options: CommandOptions) -> None:
    """List the changes that Nexus made to memory, newest last: time, command, and the facts added and removed.

    Changes by hand are not listed.

    Example: nexus memory changes --last 5
    """
    with _notebook(options) as book:
        recent = book.changes()[-last:]
    rows: list[dict[str, str]] = []
    for change in recent:
        head = {"change": f"{change.number:,}", "time": change.at, "by": _command_of(change)}
        for line in _change_lines(change):
            rows.append({**head, "fact": line})
            head = {"change": "", "time": "", "by": ""}
    CHANGES.print(rows, options, document=recent)


@command.subcommand("undo")
@click.argument("change", type=click.IntRange(min=1), required=False)
def undo(change: int | None, options: CommandOptions) -> None:
    """Undo CHANGE, a number of `nexus memory changes` [the newest]: remove its facts, restore those that it removed.

    Other facts stay, also those changed by hand since. An undo is a change too, and can be undone by its number.

    Example: nexus memory undo 3
    """
    with _notebook(options, writes=True) as book:
        undone = book.undo(change or 0)
    options.report(undone, f"Change {undone.of:,} undone, as change {undone.number:,}:", *_change_lines(undone))


def _named_ids(ids: tuple[str, ...], *, every: bool) -> tuple[str, ...] | None:
    """Return the ids that were named, None for all. Raises UsageError."""
    if every == bool(ids):
        raise click.UsageError("name either ids of `nexus memory propose`, or --all")
    if every:
        return None
    return ids


def _report_accepted(
    accepted: Any, book: Notebook, options: CommandOptions, dropped: dict[str, int] | None = None
) -> None:
    change: Change | None = accepted.change
    if change is None:
        lines = [f"Added to {book.log}: {_truncated(proposal.text)}" for proposal in accepted.proposals]
    else:
        lines = [*_change_lines(change), f"Revert it: nexus memory undo {change.number}"]
    lines += [f"Dropped {count:,} of the model's answers: {reason}." for reason, count in (dropped or {}).items()]
    lines += [
        f"Not accepted: {_truncated(proposal.text)} ({proposal.id}): whose profile it is for is unknown (--to memory or log)"
        for proposal in accepted.waiting
    ]
    value = {"change": change, "accepted": accepted.proposals, "waiting": accepted.waiting}
    value |= {"dropped": dropped} if dropped is not None else {}
    options.report(value, *(lines or ["No proposals."]))


def _proposal_lines(proposal: Proposal) -> list[str]:
    of = ""
    if proposal.principal:
        of = f" of {quoted(proposal.principal)}"
    lines = [f"{proposal.id}  {printable(proposal.section)} ({proposal.kind}{of}): {_truncated(proposal.text)}"]
    for source in proposal.sources:
        at = f", {time}" if (time := format_time(source.at_ms)) else ""
        place = f"{quoted(source.session)} entry {source.entry}{at}"
        lines.append(f"    {source.role} in {place}: {beginning(source.quotation, TEXT_CHARS)}")
    if proposal.replaces:
        lines.append(f"    replaces: {_truncated(proposal.replaces)}")
    return lines


def _command_of(change: Change) -> str:
    name = f"undo of {change.of}" if change.of else change.by
    if change.undone_by:
        return f"{name} (undone by {change.undone_by})"
    return name


def _change_lines(change: Change) -> list[str]:
    """Return a line for each fact that a change added or removed."""
    rows = [*(("+", fact) for fact in change.added), *(("-", fact) for fact in change.removed)]
    return [f"{sign} {_place(fact)}: {_truncated(fact.text)}" for sign, fact in rows]


def _place(fact: StoredFact) -> str:
    if fact.file == PROFILE:
        if fact.principal:
            return f"{PROFILE} of {quoted(fact.principal)}"
        return PROFILE
    return printable(f"{fact.file}, {fact.section}" if fact.section else fact.file)


def _ask(nx: Engine, model: str, base_url: str) -> Ask:
    """Return a function that sends a prompt to a model and returns its answer. Raises NoCredential, ModelCallFailed."""
    import asyncio

    from nexus.cli._models import open_model
    from nexus.summarization.model_summarizer import prompt_context

    async def answer(prompt: str) -> str:
        client = open_model(model, nx.credentials, base_url)
        try:
            reply = await client.complete(prompt_context(prompt, nx.resolve(model), model, {}))
        finally:
            await client.aclose()
        return reply.result.messages[-1].text()

    return lambda prompt: asyncio.run(answer(prompt))


def _json_value(fact: Fact) -> dict[str, Any]:
    return {"number": fact.number, "section": fact.section, "date": fact.date, "text": fact.text}


def _truncated(text: str) -> str:
    return beginning(text, TEXT_CHARS)
