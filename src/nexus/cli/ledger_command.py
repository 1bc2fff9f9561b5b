"""`nexus ledger`: maintenance of a ledger's file."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click
import msgspec

from nexus.cli._exit_codes import LEDGER_ERROR
from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit, format_time, progress_bar
from nexus.errors import LedgerError, UnreadableFile
from nexus.ledger import jsonl, maintenance
from nexus.ledger.integrity.threads import Damage
from nexus.ledger.maintenance import doctor
from nexus.ledger.sqlite import SqliteLedger
from nexus.render.console import printable

RECORD_NAMES = {
    "blob": "images and inputs", "thread": "threads", "entry": "entries", "decision": "cuts", "assembly": "manifests",
    "move": "moves of sessions", "alias": "changes of aliases", "calibration": "calibrations",
}  # fmt: skip

SHOWN_DAMAGES = 20
"""Damages printed without --json."""

EXAMPLES = """\b
Examples:
  nexus ledger verify                     check every entry against its hash
  nexus ledger backup monday.db           copy the ledger while it is in use
  nexus ledger restore monday.db          replace the ledger with the copy
  nexus ledger repair saved.db            save the intact parts of a damaged ledger
  nexus ledger export talks.jsonl         write all records as text
  nexus ledger --ledger new.db import talks.jsonl
"""

TENANT_OPTION = click.option("--tenant", default="local", show_default=True, help="Tenant, where several share a file.")
FORCE_OPTION = click.option("--force", is_flag=True, help="Overwrite TARGET.")


@click.group("ledger", epilog=EXAMPLES)
@command_options
@click.pass_context
def command(ctx: click.Context, options: CommandOptions) -> None:
    """Check, copy, restore, repair, export and import a ledger."""
    options.pass_on(ctx, command.commands)


@command.command("verify", epilog="Example: nexus ledger verify --ledger old.db")
@command_options
def verify(options: CommandOptions) -> None:
    """Check every hash, reference, index and total. Exit code 5 if anything is damaged."""
    file = options.ledger_file
    with progress_bar("Checking") as progress:
        damages = maintenance.verify(file, progress)
    if options.as_json:
        emit({"ledger": str(file), "sound": not damages, "damages": msgspec.to_builtins(damages)})
    elif not damages:
        click.echo(f"{printable(str(file))} is intact.")
    else:
        click.echo(f"{printable(str(file))} is damaged:")
        _print_damages(damages)
        click.echo(
            "Restore a backup: nexus ledger restore BACKUP. Or save the intact parts: nexus ledger repair NEW_FILE"
        )
    if damages:
        click.get_current_context().exit(LEDGER_ERROR)


@command.command("repair", epilog="Example: nexus ledger --ledger broken.db repair saved.db")
@click.argument("target", type=click.Path(dir_okay=False))
@FORCE_OPTION
@command_options
def repair(target: str, options: CommandOptions, *, force: bool) -> None:
    """Save the intact parts of a damaged ledger to TARGET.

    The damaged ledger is only read. A damaged entry becomes one of kind `lost`; the entries after it can still be verified.
    """
    with progress_bar("Reading pages") as progress:
        result = maintenance.repair(options.ledger_file, target, force=force, progress=progress)
    if options.as_json:
        emit(msgspec.to_builtins(result))
        return
    saved = f"{result.entries:,} entries with {result.messages:,} messages saved"
    click.echo(f"{printable(result.path)}: {saved}, {result.lost_entries:,} entries lost.")
    for session in result.sessions:
        losses = f", {session.lost_entries:,} lost" if session.lost_entries else ""
        click.echo(
            f"  {printable(session.session)}: {session.entries:,} entries, {session.messages:,} messages{losses}"
        )
    _print_damages(result.damages)


@command.command("backup", epilog="Example: nexus ledger backup ~/backups/monday.db")
@click.argument("target", type=click.Path(dir_okay=False))
@FORCE_OPTION
@command_options
def backup(target: str, options: CommandOptions, *, force: bool) -> None:
    """Copy the ledger into one file TARGET and verify the copy.

    The copy is one consistent state; other programs may continue to write.
    """
    with progress_bar("Copying") as progress:
        result = maintenance.backup(options.ledger_file, target, force=force, progress=progress)
    if options.as_json:
        emit(msgspec.to_builtins(result))
    else:
        click.echo(f"{printable(result.path)}: {result.bytes:,} bytes, verified.")


@command.command("restore", epilog="Example: nexus ledger restore ~/backups/monday.db")
@click.argument("backup", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Also if the ledger is open elsewhere, or too damaged to be closed.")
@command_options
def restore(backup: str, options: CommandOptions, *, force: bool) -> None:
    """Verify BACKUP and replace the ledger with it.

    The previous ledger is kept next to it as NAME.before-restore-TIME.
    """
    with progress_bar("Copying") as progress:
        result = maintenance.restore(backup, options.ledger_file, force=force, progress=progress)
    if options.as_json:
        emit(msgspec.to_builtins(result))
        return
    click.echo(f"{printable(result.path)}: restored from {printable(backup)}.")
    if result.previous_path:
        click.echo(f"Previous ledger: {printable(result.previous_path)}")


@command.command("export", epilog="Example: nexus ledger export - | gzip > talks.jsonl.gz")
@click.argument("target", type=click.Path(dir_okay=False, allow_dash=True))
@FORCE_OPTION
@TENANT_OPTION
@command_options
def export(target: str, tenant: str, options: CommandOptions, *, force: bool) -> None:
    """Write all records to TARGET as JSON, one per line.

    `-` is standard output. A damaged ledger is not exported.
    """
    to_output = target == jsonl.STANDARD
    with _existing_ledger(options.ledger_file, tenant) as store, progress_bar("Writing") as progress:
        result = jsonl.export(store, target, force=force, progress=progress)
    if options.as_json and not to_output:
        emit({"file": target, **msgspec.to_builtins(result)})
    else:
        click.echo(f"{printable(target)}: {_count_records(result.records)}; {result.bytes:,} bytes.", err=to_output)


@command.command("import", epilog="Example: gunzip -c talks.jsonl.gz | nexus ledger --ledger new.db import -")
@click.argument("source", type=click.Path(dir_okay=False, allow_dash=True))
@TENANT_OPTION
@command_options
def load(source: str, tenant: str, options: CommandOptions) -> None:
    """Store the records of an export, SOURCE.

    `-` is standard input. All records are checked before any is stored; importing again adds nothing.
    """
    file = options.ledger_file
    if source != jsonl.STANDARD and not Path(source).expanduser().exists():
        raise UnreadableFile(f"'{source}' not found (name a file that `nexus ledger export` wrote)")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"ledger '{file}' not created: {error.strerror or error}") from error
    with closing(SqliteLedger(str(file.absolute()), tenant=tenant)) as store, progress_bar("Reading") as progress:
        result = jsonl.load(store, source, progress=progress)
    if options.as_json:
        emit({"file": source, "ledger": str(file), **msgspec.to_builtins(result)})
    else:
        click.echo(f"{printable(source)}: {_count_records(result.records)}; {result.added:,} were new.")


@command.command("migrate", epilog="Example: nexus ledger migrate --dry-run")
@click.option("--dry-run", is_flag=True, help="Migrate a temporary copy only.")
@command_options
def migrate(options: CommandOptions, *, dry_run: bool) -> None:
    """Migrate the ledger to this version of Nexus.

    The old file is kept next to it as NAME.vN.bak. Opening a ledger migrates it too, without a backup.
    """
    with progress_bar("Copying") as progress:
        result = maintenance.migrate(options.ledger_file, dry_run=dry_run, progress=progress)
    name = printable(result.path)
    if options.as_json:
        emit({**msgspec.to_builtins(result), "dryRun": dry_run})
    elif result.from_version == result.to_version:
        click.echo(f"{name} has the current version, {result.to_version}.")
    elif dry_run:
        click.echo(f"{name} would be migrated from version {result.from_version} to {result.to_version}.")
    else:
        click.echo(f"{name}: migrated from version {result.from_version} to {result.to_version}.")
        click.echo(f"Backup: {printable(result.backup)}")


@command.command("vacuum", epilog="Example: nexus ledger vacuum")
@command_options
def vacuum(options: CommandOptions) -> None:
    """Rewrite the file so that it contains only its current rows.

    This completes a permanent deletion that could not be verified while another program was reading.
    """
    with progress_bar("Writing"):
        result = maintenance.vacuum(options.ledger_file)
    if options.as_json:
        emit(msgspec.to_builtins(result))
    else:
        click.echo(f"{printable(result.path)}: {result.before_bytes:,} bytes before, {result.after_bytes:,} now.")


@command.command("erase-tenant", epilog="Example: nexus ledger erase-tenant acme --yes")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@command_options
def erase_tenant(tenant: str, options: CommandOptions, *, yes: bool) -> None:
    """Permanently delete all data of TENANT.

    The file is searched for the deleted text afterwards.
    """
    with _existing_ledger(options.ledger_file, tenant) as store:
        if not yes and not sys.stdin.isatty():
            raise click.UsageError("permanent deletion not confirmed (add --yes)")
        if not yes:
            threads = len(store.threads())
            click.confirm(f"Permanently delete all {threads:,} threads of tenant {printable(tenant)}?", abort=True)
        with progress_bar("Deleting"):
            erased = store.erase(None)
    if options.as_json:
        emit(msgspec.to_builtins(erased))
    else:
        click.echo(
            f"Permanently deleted: {erased.entries:,} entries with {erased.messages:,} messages. The file was searched "
            f"for {erased.needles:,} pieces of their text; {erased.remaining:,} were found."
        )


@command.command("stats", epilog="Example: nexus ledger stats --json")
@TENANT_OPTION
@command_options
def statistics(tenant: str, options: CommandOptions) -> None:
    """Show statistics of the ledger, its calls and its file."""
    stats = maintenance.stats(options.ledger_file, tenant)
    if options.as_json:
        emit({**msgspec.to_builtins(stats), "cached_share": round(stats.cached_share, 4)})
        return
    sessions = ", ".join(f"{number:,} {status}" for status, number in stats.sessions.items()) or "none"
    for name, value in (
        ("sessions", sessions),
        ("threads", f"{stats.threads:,}" + (f", {stats.erased_threads:,} erased" if stats.erased_threads else "")),
        ("turns", f"{stats.turns:,}"),
        ("entries", f"{stats.entries:,}" + (f", {stats.lost_entries:,} lost" if stats.lost_entries else "")),
        ("messages", f"{stats.messages:,}, {stats.tokens:,} base tokens"),
        ("tool calls", f"{stats.tool_calls:,}, {stats.tool_results:,} results"),
        ("compactions", f"{stats.compactions:,}; cuts {stats.cuts:,}; pins {stats.pins:,}"),
        ("images", f"{stats.images:,}, {stats.image_bytes:,} bytes"),
        ("inputs", f"{stats.inputs:,}, {stats.input_bytes:,} bytes, for {stats.manifests:,} calls"),
        ("from, to", f"{format_time(stats.first_ms) or 'never'}, {format_time(stats.last_ms) or 'never'}"),
        ("file", f"{stats.file_bytes:,} bytes, {stats.free_pages:,} of {stats.pages:,} pages free"),
        ("log", f"{stats.log_bytes:,} bytes"),
        ("version", f"{stats.version}, SQLite {stats.sqlite}"),
        ("cached", f"{stats.cached_share:.1%} of the reported input"),
    ):
        click.echo(f"{name:<12} {value}")
    for usage in stats.usage:
        name = printable("/".join(filter(None, (usage.provider, usage.model))) or "unnamed model")
        share = f"{usage.cached_share:.1%} cached"
        click.echo(f"  {name}: {usage.calls:,} calls, {usage.input_tokens:,} in ({share}), {usage.output_tokens:,} out")


@command.command("doctor", epilog="Example: nexus ledger doctor --ledger old.db")
@command_options
def examine(options: CommandOptions) -> None:
    """Check the environment of the ledger. Exit code 5 if a check fails.

    Checks: links, disk, SQLite, permissions, space, forks, log, version, structure, clock.
    """
    file = options.ledger_file
    findings = doctor.examine(file)
    worst = doctor.worst_level(findings)
    if options.as_json:
        emit({"ledger": str(file), "level": worst, "findings": msgspec.to_builtins(findings)})
    else:
        for finding in findings:
            click.echo(f"{finding.level:<4} {finding.name}: {printable(finding.what)}")
            if finding.do:
                click.echo(f"     what to do: {printable(finding.do)}")
    if worst == "bad":
        click.get_current_context().exit(LEDGER_ERROR)


@contextmanager
def _existing_ledger(file: Path, tenant: str) -> Generator[SqliteLedger]:
    """Open a ledger. Raises UnreadableFile if there is none."""
    if not file.is_file():
        raise UnreadableFile(f"ledger '{file}' not found (name a ledger with --ledger)")
    with closing(SqliteLedger(str(file.absolute()), tenant=tenant, create=False)) as store:
        yield store


def _print_damages(damages: Sequence[Damage]) -> None:
    for damage in damages[:SHOWN_DAMAGES]:
        click.echo(f"  {printable(str(damage))}")
    if len(damages) > SHOWN_DAMAGES:
        click.echo(f"  and {len(damages) - SHOWN_DAMAGES:,} more (--json shows all)")


def _count_records(records: dict[str, int]) -> str:
    counts = [f"{number:,} {RECORD_NAMES[kind]}" for kind, number in records.items() if kind in RECORD_NAMES]
    return ", ".join(counts) or "no records"
