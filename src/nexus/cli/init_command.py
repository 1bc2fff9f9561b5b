"""`nexus init`: a workspace with starter files and a ledger. Nothing that exists is overwritten."""

from __future__ import annotations

from pathlib import Path

import click

from nexus.cli.shared import common, emit
from nexus.engine import LEDGER_FILE, open_engine
from nexus.sources.templates import templates


@click.command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@common
def command(folder: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Make a workspace in FOLDER [this folder]: starter files and a ledger. What exists stays as it is."""
    root = Path(folder or workspace or ".").expanduser().resolve()
    root.mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    has_skills = (root / "skills").is_dir()
    for name, text in templates().items():
        place = root / name
        if not place.exists() and not (has_skills and name.startswith("skills/")):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")
            written.append(name)
    open_engine(root, ledger=ledger).close()
    ledger_file = str(ledger or root / LEDGER_FILE)
    if as_json:
        emit({"workspace": str(root), "written": written, "ledger": ledger_file})
        return
    click.echo(f"Workspace {root}")
    for name in written:
        click.echo(f"  wrote {name}")
    click.echo(f"  ledger {ledger_file}")
    click.echo('Fill in the files (an untouched one counts as absent), then: nexus assemble "Hello"')
