"""`nexus ledger`: maintenance of a ledger's file or of its PostgreSQL database."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import click
import msgspec

from nexus.cli._exit_numbers import LEDGER_ERROR
from nexus.cli._options import TENANT_OPTION, CommandOptions, NexusGroup
from nexus.cli._output import count_noun, format_time, progress_bar
from nexus.errors import BadReference, LedgerError, UnreadableFile
from nexus.ledger import jsonl, maintenance
from nexus.ledger.history_operations import Ledger
from nexus.ledger.integrity.threads import Damage
from nexus.ledger.location import LedgerRecords, open_ledger, open_server_ledger
from nexus.ledger.maintenance import doctor, server
from nexus.ledger.maintenance.transfer import transfer
from nexus.ledger.maintenance.verification import open_readonly, reading_mode, tenants
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.files import ledger_id
from nexus.ledger.text_encoding import decode_text
from nexus.ledger.unrecorded_replies import UnrecordedReplies, count_unrecorded, unrecorded_path
from nexus.render.console import printable
from nexus.workspace.files.reader import home_folder

RECORD_NAMES = {
    "blob": "images and inputs", "thread": "threads", "entry": "entries", "decision": "cuts", "assembly": "manifests",
    "move": "moves of sessions", "alias": "changes of aliases", "calibration": "calibrations",
    "event": "queued events", "document": "documents",
}  # fmt: skip

READING_MODES = {
    "unlocked": "the file was read without locks, and what another user writes meanwhile can look like damage",
    "copy": "a temporary copy of the ledger and its log was checked",
}

SHOWN_DAMAGES = 20
"""Damages printed without --json."""

EXAMPLES = """\b
Examples:
  nexus ledger verify                     check every entry against its hash
  nexus ledger backup monday.db           copy the ledger while it is in use
  nexus ledger restore monday.db          replace the ledger with the copy
  nexus ledger repair saved.db            save the intact parts of a damaged ledger
  nexus ledger trust                      accept a ledger that came with its folder
  nexus ledger export talks.jsonl         write all records as text
  nexus ledger --ledger new.db import talks.jsonl
"""

FORCE_OPTION = click.option("--force", is_flag=True, help="Overwrite TARGET.")


@click.group("ledger", cls=NexusGroup, epilog=EXAMPLES)
def command() -> None:
    """Check, copy, restore, repair, export and import a ledger."""


@command.subcommand("verify", epilog="Example: nexus ledger verify --ledger old.db")
def verify(options: CommandOptions) -> int:
    """Check every hash, reference, index and total. Exit code 5 if anything is damaged."""
    place = options.ledger_place
    mode = ""
    with progress_bar("Checking") as progress:
        if options.ledger_url:
            damages = server.verify(options.ledger_url, progress)
        else:
            damages = maintenance.verify(options.ledger_file, progress)
    waiting = count_unrecorded(place, is_file=not options.ledger_url, home=home_folder())
    lines = [f"{printable(place)} is intact."]
    if damages:
        advice = "Restore a backup: nexus ledger restore BACKUP. Or save the intact parts: nexus ledger repair NEW_FILE"
        if options.ledger_url:
            advice = "Restore a backup of the server."
        lines = [f"{printable(place)} is damaged:", *_damage_lines(damages), advice]
    if not options.ledger_url:
        mode = reading_mode(options.ledger_file)
    if mode:
        lines.append(f"Its folder cannot be written: {READING_MODES[mode]}.")
    if waiting:
        replies = f"{count_noun(waiting, 'reply')} {'waits' if waiting == 1 else 'wait'}"
        lines.append(f"{replies} to be recorded: the next program that writes to the ledger does it.")
    options.report(
        {"ledger": place, "sound": not damages, "damages": damages, "read": mode or "live", "unrecorded": waiting},
        *lines,
    )
    if damages:
        return LEDGER_ERROR
    return 0


@command.subcommand("repair", epilog="Example: nexus ledger --ledger broken.db repair saved.db")
@click.argument("target", type=click.Path(dir_okay=False))
@FORCE_OPTION
def repair(target: str, force: bool, options: CommandOptions) -> None:
    """Save the intact parts of a damaged ledger to TARGET.

    The damaged ledger is only read. A damaged entry becomes one of kind `lost`; the entries after it can still be verified.
    """
    _require_file(options, "repair", "restore a backup of the server")
    with progress_bar("Reading pages") as progress:
        result = maintenance.repair(options.ledger_file, target, force=force, progress=progress)
    with suppress(LedgerError), _existing_ledger(Path(target).expanduser(), "local") as store:
        if _is_own(options.ledger_file):
            LedgerRecords(home_folder()).add(store.id, store.location)
    saved = f"{count_noun(result.entries, 'entry')} with {count_noun(result.messages, 'message')} saved"
    sessions = [
        f"  {printable(session.session)}: {count_noun(session.entries, 'entry')}, "
        f"{count_noun(session.messages, 'message')}"
        + (f", {session.lost_entries:,} lost" if session.lost_entries else "")
        for session in result.sessions
    ]
    head = f"{printable(result.path)}: {saved}, {count_noun(result.lost_entries, 'entry')} lost."
    options.report(result, head, *sessions, *_damage_lines(result.damages))


@command.subcommand("backup", epilog="Example: nexus ledger backup ~/backups/monday.db")
@click.argument("target", type=click.Path(dir_okay=False))
@FORCE_OPTION
def backup(target: str, force: bool, options: CommandOptions) -> None:
    """Copy the ledger into one file TARGET and verify the copy.

    The copy is one consistent state; other programs may continue to write.
    """
    _require_file(options, "backup", "use pg_dump or pg_basebackup, or nexus ledger export")
    with progress_bar("Copying") as progress:
        result = maintenance.backup(options.ledger_file, target, force=force, progress=progress)
    options.report(result, f"{printable(result.path)}: {result.bytes:,} bytes, verified.")


@command.subcommand("restore", epilog="Example: nexus ledger restore ~/backups/monday.db")
@click.argument("backup", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Also if the ledger is open elsewhere, or too damaged to be closed.")
def restore(backup: str, force: bool, options: CommandOptions) -> None:
    """Verify BACKUP and replace the ledger with it.

    The previous ledger is kept next to it as NAME.before-restore-TIME.
    """
    _require_file(options, "restore", "use pg_restore, or nexus ledger import")
    with progress_bar("Copying") as progress:
        result = maintenance.restore(backup, options.ledger_file, force=force, progress=progress)
    with _existing_ledger(options.ledger_file, "local") as store:
        LedgerRecords(home_folder()).add(store.id, store.location)  # the user named its backup
    previous = [f"Previous ledger: {printable(result.previous_path)}"] if result.previous_path else []
    options.report(result, f"{printable(result.path)}: restored from {printable(backup)}.", *previous)


@command.subcommand("export", epilog="Example: nexus ledger export - | gzip > talks.jsonl.gz")
@click.argument("target", type=click.Path(dir_okay=False, allow_dash=True))
@FORCE_OPTION
@TENANT_OPTION
def export(target: str, force: bool, options: CommandOptions) -> None:
    """Write all records to TARGET as JSON, one per line.

    `-` is standard output. A damaged ledger is not exported.
    """
    to_output = target == jsonl.STANDARD
    with _named_ledger(options) as store, progress_bar("Writing") as progress:
        result = jsonl.export(store, target, force=force, progress=progress)
    text = f"{printable(target)}: {_count_records(result.records)}; {result.bytes:,} bytes."
    if to_output:
        click.echo(text, err=True)
    else:
        options.report({"file": target, **msgspec.to_builtins(result)}, text)


@command.subcommand("import", epilog="Example: gunzip -c talks.jsonl.gz | nexus ledger --ledger new.db import -")
@click.argument("source", type=click.Path(dir_okay=False, allow_dash=True))
@TENANT_OPTION
def load(source: str, options: CommandOptions) -> None:
    """Store the records of an export, SOURCE.

    `-` is standard input. All records are checked before any is stored; importing again adds nothing.
    """
    if source != jsonl.STANDARD and not Path(source).expanduser().exists():
        raise UnreadableFile(f"'{source}' not found (name a file that `nexus ledger export` wrote)")
    store = open_ledger(None, options.ledger_url or options.ledger_file, home_folder(), tenant=options.tenant)
    with closing(store), progress_bar("Reading") as progress:
        result = jsonl.load(store, source, progress=progress)
    text = f"{printable(source)}: {_count_records(result.records)}; {result.added:,} were new."
    options.report({"file": source, "ledger": options.ledger_place, **msgspec.to_builtins(result)}, text)


@command.subcommand("migrate", epilog="Example: nexus ledger migrate --dry-run")
@click.option("--dry-run", is_flag=True, help="Migrate a temporary copy only.")
@click.option(
    "--to", "target", help="Copy the ledger into this empty one: a file, or the URL of a PostgreSQL database."
)
@TENANT_OPTION
def migrate(dry_run: bool, target: str | None, options: CommandOptions) -> None:
    """Migrate the ledger to this version of Nexus, or copy it into another database.

    The old file is kept next to it as NAME.vN.bak. Opening a ledger migrates it too, without a backup.

    --to copies all records of one tenant. The ledger stays as it is; the copy is compared with it.
    """
    if target is not None:
        if dry_run:
            raise click.UsageError("--dry-run does not work with --to")
        _copy_to(target, options)
        return
    if options.ledger_url:
        with closing(open_server_ledger(options.ledger_url, create=not dry_run)) as store:
            options.report(
                {"path": store.location, "dryRun": dry_run}, f"{printable(store.location)} has the current version."
            )
        return
    with progress_bar("Copying") as progress:
        result = maintenance.migrate(options.ledger_file, dry_run=dry_run, progress=progress)
    name = printable(result.path)
    versions = f"from version {result.from_version} to {result.to_version}."
    if result.from_version == result.to_version:
        lines = [f"{name} has the current version, {result.to_version}."]
    elif dry_run:
        lines = [f"{name} would be migrated {versions}"]
    else:
        lines = [f"{name}: migrated {versions}", f"Backup: {printable(result.backup)}"]
    options.report({**msgspec.to_builtins(result), "dryRun": dry_run}, *lines)


@command.subcommand("vacuum", epilog="Example: nexus ledger vacuum")
def vacuum(options: CommandOptions) -> None:
    """Rewrite the file so that it contains only its current rows.

    This completes a permanent deletion that could not be verified while another program was reading.
    """
    _require_file(options, "vacuum", "PostgreSQL runs VACUUM by itself")
    with progress_bar("Writing"):
        result = maintenance.vacuum(options.ledger_file)
    text = f"{printable(result.path)}: {result.before_bytes:,} bytes before, {result.after_bytes:,} now."
    options.report(result, text)


@command.subcommand("erase", epilog="Example: nexus ledger erase --principal ann --yes")
@click.option("--principal", required=True, help="The person whose data to erase.")
@TENANT_OPTION
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
def erase_principal(principal: str, yes: bool, options: CommandOptions) -> None:
    """Erase all that a ledger has of one person: sessions, workers, queued events, profile and unrecorded replies.

    Sessions in which others spoke too stay and are listed: erase them by name (nexus session delete NAME --for-good).
    """
    with _named_ledger(options) as store:
        if not yes and not sys.stdin.isatty():
            raise click.UsageError("permanent deletion not confirmed (add --yes)")
        if not yes:
            click.confirm(f"Permanently delete all data of {printable(principal)!r}?", abort=True)
        ledger = Ledger(store)
        ledger.upkeep.unrecorded = _unrecorded(store)
        with progress_bar("Deleting"):
            result = ledger.upkeep.erase_principal(principal)
    if result.is_empty:
        raise BadReference(f"no data of {principal!r} found in {options.ledger_place} (nothing was deleted)")
    sessions = f"{count_noun(len(result.sessions), 'session')} with {count_noun(result.erased.messages, 'message')}"
    others = ((result.events, "queued event"), (result.documents, "document"), (result.replies, "unrecorded reply"))
    lines = [f"Permanently deleted: {', '.join([sessions, *(count_noun(*other) for other in others)])}."]
    if result.shared:
        lines.append(f"Others spoke there too, so these stay: {', '.join(map(printable, result.shared))}")
    options.report(msgspec.to_builtins(result), *lines)


def _unrecorded(store: SqlLedger) -> UnrecordedReplies:
    """Return the replies that wait to be recorded in a ledger."""
    is_file = isinstance(store, SqliteLedger)
    path = unrecorded_path(store.location, is_file=is_file, tenant=store.tenant, home=home_folder())
    return UnrecordedReplies(path, store.tenant)


@command.subcommand("erase-tenant", epilog="Example: nexus ledger erase-tenant acme --yes")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
def erase_tenant(yes: bool, options: CommandOptions) -> None:
    """Permanently delete all data of TENANT.

    The file is searched for the deleted text afterwards. PostgreSQL removes the text with its next VACUUM.
    """
    with _named_ledger(options) as store:
        if not yes and not sys.stdin.isatty():
            raise click.UsageError("permanent deletion not confirmed (add --yes)")
        if not yes:
            threads = len(store.threads())
            click.confirm(
                f"Permanently delete {count_noun(threads, 'thread')} of tenant {printable(options.tenant)}?", abort=True
            )
        with progress_bar("Deleting"):
            erased = store.erase(None)
            _unrecorded(store).erase(everything=True)
    searched = "The server's files keep their text until the next VACUUM; its backups and logs keep it longer."
    if not options.ledger_url:
        searched = (
            f"The file was searched for {erased.needles:,} pieces of their text; {erased.remaining:,} were found."
        )
    options.report(
        erased,
        f"Permanently deleted: {count_noun(erased.entries, 'entry')} with "
        f"{count_noun(erased.messages, 'message')}. {searched}",
    )


@command.subcommand("stats", epilog="Example: nexus ledger stats --json")
@TENANT_OPTION
def statistics(options: CommandOptions) -> None:
    """Show statistics of the ledger, its calls and its file."""
    if options.ledger_url:
        stats = server.stats(options.ledger_url, options.tenant)
    else:
        stats = maintenance.stats(options.ledger_file, options.tenant)
    sessions = ", ".join(f"{number:,} {status}" for status, number in stats.sessions.items()) or "none"
    lines = [
        ("sessions", sessions),
        ("threads", f"{stats.threads:,}" + (f", {stats.erased_threads:,} erased" if stats.erased_threads else "")),
        ("turns", f"{stats.turns:,}"),
        ("entries", f"{stats.entries:,}" + (f", {stats.lost_entries:,} lost" if stats.lost_entries else "")),
        ("messages", f"{stats.messages:,}, {stats.tokens:,} base tokens"),
        ("tool calls", f"{stats.tool_calls:,}, {count_noun(stats.tool_results, 'result')}"),
        ("compactions", f"{stats.compactions:,}; cuts {stats.cuts:,}; pins {stats.pins:,}"),
        ("events", f"{stats.events:,}, {stats.open_events:,} queued or running"),
        ("images", f"{stats.images:,}, {stats.image_bytes:,} bytes"),
        ("inputs", f"{stats.inputs:,}, {stats.input_bytes:,} bytes, for {count_noun(stats.manifests, 'call')}"),
        ("from, to", f"{format_time(stats.first_ms) or 'never'}, {format_time(stats.last_ms) or 'never'}"),
        *_storage_lines(stats),
        ("cached", f"{stats.cached_share:.1%} of the reported input"),
    ]
    usage = [
        f"  {printable('/'.join(filter(None, (each.provider, each.model))) or 'unnamed model')}: {count_noun(each.calls, 'call')}, "
        f"{each.input_tokens:,} in ({each.cached_share:.1%} cached), {each.output_tokens:,} out"
        for each in stats.usage
    ]
    value = {**msgspec.to_builtins(stats), "cached_share": round(stats.cached_share, 4)}
    options.report(value, *(f"{name:<12} {text}" for name, text in lines), *usage)


@command.subcommand("trust", epilog="Example: nexus ledger trust -w cloned-folder")
@click.option("--remove", is_flag=True, help="Take the acceptance back.")
def trust(remove: bool, options: CommandOptions) -> None:
    """Accept a ledger that came with its folder, so that its sessions may be continued.

    Until then it is read-only. Look at it first: nexus sessions, nexus history. Your own ledgers need no acceptance.
    """
    _require_file(options, "trust", "a ledger that you name by its URL is always accepted")
    file = options.ledger_file
    records = LedgerRecords(home_folder())
    with _existing_ledger(file, "local") as store:
        if remove:
            records.remove(store.id)
        elif not records.add(store.id, store.location):
            raise LedgerError(
                f"acceptance of {file} not recorded: {home_folder()} cannot be written (set NEXUS_HOME to a folder that "
                "can, or name the ledger with --ledger)"
            )
        sessions = len(store.sessions(every=True))
    state = "no longer accepted" if remove else "accepted"
    text = f"{printable(str(file))}: {state}; {count_noun(sessions, 'session')}."
    options.report({"ledger": str(file), "trusted": not remove, "sessions": sessions}, text)


@command.subcommand("doctor", epilog="Example: nexus ledger doctor --ledger old.db")
def examine(options: CommandOptions) -> int:
    """Check the environment of the ledger. Exit code 5 if a check fails.

    Checks: links, disk, SQLite, permissions, space, forks, log, version, structure, clock, trust. In PostgreSQL: server,
    durability, role, rights, connections, version, clock.
    """
    if options.ledger_url:
        findings = server.examine(options.ledger_url)
    else:
        file = options.ledger_file
        findings = [*doctor.examine(file), *([] if options.ledger else _trust_finding(file))]
    worst = doctor.worst_level(findings)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.level:<4} {finding.name}: {printable(finding.what)}")
        lines += [f"     what to do: {printable(finding.do)}"] if finding.do else []
    options.report({"ledger": options.ledger_place, "level": worst, "findings": findings}, *lines)
    if worst == "bad":
        return LEDGER_ERROR
    return 0


def _storage_lines(stats: maintenance.Stats) -> list[tuple[str, str]]:
    """Return the lines about the ledger's file, or its tables on a server."""
    if stats.server:
        return [("tables", f"{stats.file_bytes:,} bytes"), ("version", f"{stats.version}, PostgreSQL {stats.server}")]
    return [
        ("file", f"{stats.file_bytes:,} bytes, {stats.free_pages:,} of {stats.pages:,} pages free"),
        ("log", f"{stats.log_bytes:,} bytes"),
        ("version", f"{stats.version}, SQLite {stats.sqlite}"),
    ]


def _copy_to(target: str, options: CommandOptions) -> None:
    """Copy the ledger into another one and report it."""
    with (
        _named_ledger(options) as source,
        closing(open_ledger(None, target, home_folder(), tenant=options.tenant)) as store,
        progress_bar("Copying") as progress,
    ):
        result = transfer(source, store, progress)
    others = _other_tenants(options)
    text = f"{printable(result.target)}: {_count_records(result.records)}; equal to {printable(result.source)}."
    more = ""
    if others:
        more = f"Not copied: tenants {', '.join(map(printable, others))} (--tenant)."
    options.report({**msgspec.to_builtins(result), "otherTenants": others}, text, *filter(None, [more]))


def _other_tenants(options: CommandOptions) -> list[str]:
    """Return the other tenants of a ledger's file or, as far as the role sees them, of its database."""
    if options.ledger_url:
        with closing(open_server_ledger(options.ledger_url, create=False)) as store, store.connection() as db:
            names = tenants(db)
    else:
        with open_readonly(options.ledger_file) as db:
            names = tenants(db)
    return [name for name in map(decode_text, names) if name != options.tenant]


def _require_file(options: CommandOptions, name: str, advice: str) -> None:
    """Raise UnreadableFile for a ledger that is not a file."""
    if options.ledger_url:
        raise UnreadableFile(
            f"'nexus ledger {name}' is for ledger files, and {options.ledger_place} is none ({advice})"
        )


@contextmanager
def _named_ledger(options: CommandOptions) -> Generator[SqlLedger]:
    """Open the ledger of the command line, which must exist."""
    if not options.ledger_url:
        with _existing_ledger(options.ledger_file, options.tenant) as store:
            yield store
        return
    with closing(open_server_ledger(options.ledger_url, tenant=options.tenant, create=False)) as store:
        yield store


def _is_own(file: Path) -> bool:
    """Return whether the ledger is this user's own. Raises LedgerError if it cannot be read."""
    with open_readonly(file) as db:
        return LedgerRecords(home_folder()).include(ledger_id(db), str(file.absolute()), file.stat())


def _trust_finding(file: Path) -> list[doctor.DoctorFinding]:
    try:
        trusted = _is_own(file)
    except (LedgerError, UnreadableFile):
        return []  # which another finding reports
    if trusted:
        return [doctor.DoctorFinding("ok", "trust", "made or accepted by this user")]
    what = "it came with its folder, so it is read-only and goes to no model"
    return [doctor.DoctorFinding("warn", "trust", what, "look at it (nexus history), then: nexus ledger trust")]


@contextmanager
def _existing_ledger(file: Path, tenant: str) -> Generator[SqliteLedger]:
    """Open a ledger. Raises UnreadableFile if there is none."""
    if not file.is_file():
        raise UnreadableFile(f"ledger '{file}' not found (name a ledger with --ledger)")
    with closing(SqliteLedger(str(file.absolute()), tenant=tenant, create=False)) as store:
        yield store


def _damage_lines(damages: Sequence[Damage]) -> list[str]:
    more = len(damages) - SHOWN_DAMAGES
    lines = [f"  {printable(str(damage))}" for damage in damages[:SHOWN_DAMAGES]]
    if more > 0:
        return [*lines, f"  and {more:,} more (--json shows all)"]
    return lines


def _count_records(records: dict[str, int]) -> str:
    counts = [f"{number:,} {RECORD_NAMES[kind]}" for kind, number in records.items() if kind in RECORD_NAMES]
    return ", ".join(counts) or "no records"
