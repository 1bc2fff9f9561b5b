"""`nexus ledger`: looking after a ledger's file."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import click
import msgspec

from nexus.cli.listing import moment
from nexus.cli.shared import common, emit, nearest_workspace, progress_bar
from nexus.engine import LEDGER_FILE
from nexus.errors import LedgerDamaged, LedgerError, UnreadableFile
from nexus.ledger import jsonl
from nexus.ledger import maintenance as care
from nexus.ledger.integrity.damage import Damage
from nexus.ledger.maintenance import doctor
from nexus.ledger.sqlite import SqliteLedger
from nexus.render.console import printable

RECORDS = {
    "blob": "images and inputs", "thread": "threads", "entry": "entries", "decision": "cuts", "assembly": "manifests",
    "move": "moves of sessions", "alias": "changes of aliases", "calibration": "calibrations",
}  # fmt: skip
"""What the kinds of records are called."""

SHOWN = 20
"""Damages that are printed without --json."""


EXAMPLES = """\b
Examples:
  nexus ledger verify                     is everything as it was written?
  nexus ledger backup monday.db           a copy, while others go on writing
  nexus ledger restore monday.db          the copy takes the ledger's place
  nexus ledger repair saved.db            what is whole of a damaged ledger
  nexus ledger export talks.jsonl         all records as text
  nexus ledger --ledger new.db import talks.jsonl
"""


@click.group("ledger", epilog=EXAMPLES)
@common
@click.pass_context
def command(context: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Look after a ledger: check it, copy it, bring it back, save what is whole, take it elsewhere."""
    context.obj = (workspace, ledger, as_json)


def _chosen(workspace: str | None, ledger: str | None, *, as_json: bool) -> tuple[Path, bool]:
    """The ledger's file, and whether to print JSON. Options may stand before or after the command's name."""
    earlier: tuple[str | None, str | None, bool] = click.get_current_context().obj
    root, named = workspace or earlier[0], ledger or earlier[1]
    folder = Path(root).expanduser() if root else nearest_workspace(Path.cwd())
    return Path(named).expanduser() if named else folder / LEDGER_FILE, as_json or earlier[2]


TENANT = click.option("--tenant", default="local", show_default=True, help="Whose rows.")


@command.command("verify", epilog="Example: nexus ledger verify --ledger old.db")
@common
def verify(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Check every hash, reference, index and total. Exit code 5 if anything is wrong."""
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with progress_bar("Checking") as progress:
        damages = care.verify(file, progress)
    if as_json:
        emit({"ledger": str(file), "sound": not damages, "damages": msgspec.to_builtins(damages)})
    elif not damages:
        click.echo(f"{printable(str(file))} is sound.")
    else:
        click.echo(f"{printable(str(file))} is damaged:")
        _print_damages(damages)
        click.echo(
            "What to do: `nexus ledger restore BACKUP`, or `nexus ledger repair NEW_FILE` to save what is whole."
        )
    if damages:
        click.get_current_context().exit(LedgerDamaged.exit_code)


@command.command("repair", epilog="Example: nexus ledger --ledger broken.db repair saved.db")
@click.argument("target", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite TARGET.")
@common
def repair(target: str, workspace: str | None, ledger: str | None, *, force: bool, as_json: bool) -> None:
    """Save all that is whole into a new ledger TARGET. The damaged one is only read.

    A damaged entry becomes one of kind `lost`; what follows it can be checked as before.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with progress_bar("Reading pages") as progress:
        done = care.repair(file, target, force=force, progress=progress)
    if as_json:
        emit(msgspec.to_builtins(done))
        return
    click.echo(
        f"{printable(done.path)}: {done.entries:,} entries with {done.messages:,} messages saved, {done.lost:,} entries lost."
    )
    for one in done.sessions:
        gone = f", {one.lost:,} lost" if one.lost else ""
        click.echo(f"  {printable(one.session)}: {one.entries:,} entries, {one.messages:,} messages{gone}")
    _print_damages(done.damages)


@command.command("backup", epilog="Example: nexus ledger backup ~/backups/monday.db")
@click.argument("target", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite TARGET.")
@common
def backup(target: str, workspace: str | None, ledger: str | None, *, force: bool, as_json: bool) -> None:
    """Copy the ledger into one file TARGET and check the copy.

    The copy has the state of one moment; others may go on writing meanwhile.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with progress_bar("Copying") as progress:
        done = care.backup(file, target, force=force, progress=progress)
    if as_json:
        emit(msgspec.to_builtins(done))
    else:
        click.echo(f"{printable(done.path)}: {done.bytes:,} bytes, checked.")


@command.command("restore", epilog="Example: nexus ledger restore ~/backups/monday.db")
@click.argument("backup", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Also when the ledger is open somewhere, or too damaged to be closed.")
@common
def restore(backup: str, workspace: str | None, ledger: str | None, *, force: bool, as_json: bool) -> None:
    """Put BACKUP in the ledger's place, once it is checked.

    The ledger that was there is kept beside it, as NAME.before-restore-TIME.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with progress_bar("Copying") as progress:
        done = care.restore(backup, file, force=force, progress=progress)
    if as_json:
        emit(msgspec.to_builtins(done))
        return
    click.echo(f"{printable(done.path)} is what {printable(backup)} was.")
    if done.aside:
        click.echo(f"The one before is now {printable(done.aside)}.")


@command.command("export", epilog="Example: nexus ledger export - | gzip > talks.jsonl.gz")
@click.argument("target", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Overwrite TARGET.")
@TENANT
@common
def export(target: str, tenant: str, workspace: str | None, ledger: str | None, *, force: bool, as_json: bool) -> None:
    """Write all records to TARGET, one a line as JSON.

    `-` is standard output. A damaged ledger is refused.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    to_output = target == jsonl.STANDARD
    with _ledger(file, tenant) as store, progress_bar("Writing") as progress:
        done = jsonl.export(store, target, force=force, progress=progress)
    if as_json and not to_output:
        emit({"file": target, **msgspec.to_builtins(done)})
    else:
        click.echo(f"{printable(target)}: {_counted(done.records)}; {done.bytes:,} bytes.", err=to_output)


@command.command("import", epilog="Example: gunzip -c talks.jsonl.gz | nexus ledger --ledger new.db import -")
@click.argument("source", type=click.Path(dir_okay=False, allow_dash=True))
@TENANT
@common
def load(source: str, tenant: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Store the records of SOURCE, which an export wrote.

    `-` is standard input. All is checked before anything is stored; importing again adds nothing.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    if source != jsonl.STANDARD and not Path(source).expanduser().exists():
        raise UnreadableFile(f"{source} cannot be read: it is not there; name a file that `nexus ledger export` wrote")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"no ledger can be made at {file}: {error.strerror or error}") from error
    with closing(SqliteLedger(str(file.absolute()), tenant=tenant)) as store, progress_bar("Reading") as progress:
        done = jsonl.load(store, source, progress=progress)
    if as_json:
        emit({"file": source, "ledger": str(file), **msgspec.to_builtins(done)})
    else:
        click.echo(f"{printable(source)}: {_counted(done.records)}; {done.added:,} were new.")


@command.command("migrate", epilog="Example: nexus ledger migrate --dry-run")
@click.option("--dry-run", is_flag=True, help="Do it to a copy that is thrown away.")
@common
def migrate(workspace: str | None, ledger: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Bring the ledger to this version.

    The old one is kept beside it, as NAME.vN.bak. Opening a ledger migrates it too, without a backup.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with progress_bar("Copying") as progress:
        done = care.migrate(file, dry_run=dry_run, progress=progress)
    if as_json:
        emit({**msgspec.to_builtins(done), "dryRun": dry_run})
    elif done.from_version == done.to_version:
        click.echo(f"{printable(done.path)} has version {done.to_version}, as it should.")
    elif dry_run:
        click.echo(f"{printable(done.path)} would go from version {done.from_version} to {done.to_version}.")
    else:
        click.echo(f"{printable(done.path)} went from version {done.from_version} to {done.to_version}.")
        click.echo(f"The old one is {printable(done.backup)}.")


@command.command("vacuum", epilog="Example: nexus ledger vacuum")
@common
def vacuum(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Write the file anew, so that it holds its rows and nothing else.

    This finishes a deletion for good that could not be proven, because somebody was reading then.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with progress_bar("Writing"):
        done = care.vacuum(file)
    if as_json:
        emit(msgspec.to_builtins(done))
    else:
        click.echo(f"{printable(done.path)}: {done.before_bytes:,} bytes before, {done.after_bytes:,} now.")


@command.command("erase-tenant", epilog="Example: nexus ledger erase-tenant acme --yes")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@common
def erase_tenant(tenant: str, workspace: str | None, ledger: str | None, *, yes: bool, as_json: bool) -> None:
    """Delete everything of TENANT for good, and search the file for what was deleted."""
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    with _ledger(file, tenant) as store:
        if not yes and not sys.stdin.isatty():
            raise click.UsageError("this deletes for good: add --yes")
        if not yes:
            click.confirm(
                f"Delete all {len(store.threads()):,} threads of tenant {printable(tenant)} for good?", abort=True
            )
        with progress_bar("Deleting"):
            erased = store.erase(None)
    if as_json:
        emit(msgspec.to_builtins(erased))
    else:
        click.echo(
            f"Deleted for good: {erased.entries:,} entries with {erased.messages:,} messages. {erased.needles:,} pieces of "
            f"their text were looked for in the file, {erased.found:,} were found."
        )


@command.command("stats", epilog="Example: nexus ledger stats --json")
@TENANT
@common
def figures(tenant: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show figures of the ledger, its calls and its file."""
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    found = care.stats(file, tenant)
    if as_json:
        emit({**msgspec.to_builtins(found), "cached_share": round(found.cached_share, 4)})
        return
    sessions = ", ".join(f"{number:,} {status}" for status, number in found.sessions.items()) or "none"
    for name, value in (
        ("sessions", sessions),
        ("threads", f"{found.threads:,}" + (f", {found.erased_threads:,} erased" if found.erased_threads else "")),
        ("turns", f"{found.turns:,}"),
        ("entries", f"{found.entries:,}" + (f", {found.lost_entries:,} lost" if found.lost_entries else "")),
        ("messages", f"{found.messages:,} of {found.tokens:,} base tokens"),
        ("tool calls", f"{found.tool_calls:,}, {found.tool_results:,} results"),
        ("compactions", f"{found.compactions:,}; cuts {found.cuts:,}; pins {found.pins:,}"),
        ("images", f"{found.images:,} of {found.image_bytes:,} bytes"),
        ("inputs", f"{found.inputs:,} of {found.input_bytes:,} bytes, for {found.manifests:,} calls"),
        ("from, to", f"{moment(found.first_ms) or 'never'}, {moment(found.last_ms) or 'never'}"),
        ("file", f"{found.file_bytes:,} bytes, {found.free_pages:,} of {found.pages:,} pages free"),
        ("log", f"{found.log_bytes:,} bytes"),
        ("version", f"{found.version}, SQLite {found.sqlite}"),
        ("cached", f"{found.cached_share:.1%} of the reported input"),
    ):
        click.echo(f"{name:<12} {value}")
    for one in found.usage:
        name = printable("/".join(filter(None, (one.provider, one.model))) or "not named")
        share = f"{one.cached_share:.1%} cached"
        click.echo(f"  {name}: {one.calls:,} calls, {one.input_tokens:,} in ({share}), {one.output_tokens:,} out")


@command.command("doctor", epilog="Example: nexus ledger doctor --ledger old.db")
@common
def examine(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Look at what the ledger stands on.

    That is: links, disk, SQLite, permissions, space, forks, log, version, structure, clock. Exit code 5 if anything is bad.
    """
    file, as_json = _chosen(workspace, ledger, as_json=as_json)
    findings = doctor.examine(file)
    worst = doctor.worst_level(findings)
    if as_json:
        emit({"ledger": str(file), "level": worst, "findings": msgspec.to_builtins(findings)})
    else:
        for one in findings:
            click.echo(f"{one.level:<4} {one.name}: {printable(one.what)}")
            if one.do:
                click.echo(f"     what to do: {printable(one.do)}")
    if worst == "bad":
        click.get_current_context().exit(LedgerError.exit_code)


@contextmanager
def _ledger(file: Path, tenant: str) -> Generator[SqliteLedger]:
    """The ledger, which must be there."""
    if not file.is_file():
        raise UnreadableFile(f"{file} is not there; name a ledger's file with --ledger")
    with closing(SqliteLedger(str(file.absolute()), tenant=tenant, create=False)) as store:
        yield store


def _print_damages(damages: list[Damage] | tuple[Damage, ...]) -> None:
    for damage in damages[:SHOWN]:
        click.echo(f"  {printable(str(damage))}")
    if len(damages) > SHOWN:
        click.echo(f"  and {len(damages) - SHOWN:,} more (--json shows all)")


def _counted(records: dict[str, int]) -> str:
    return (
        ", ".join(f"{number:,} {RECORDS[kind]}" for kind, number in records.items() if kind in RECORDS) or "no records"
    )
