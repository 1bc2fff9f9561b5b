"""`nexus init`: a workspace with starter files and a ledger. Nothing that exists is overwritten."""

from __future__ import annotations

from pathlib import Path

import click

from nexus.cli.shared import common, emit
from nexus.engine import LEDGER_FILE, open_engine
from nexus.errors import WorkspaceMissing
from nexus.render.console import printable
from nexus.workspace.files.templates import templates


@click.command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@common
def command(folder: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Make a workspace in FOLDER [this folder]: starter files and a ledger. What exists stays as it is."""
    root = Path(folder or workspace or ".").expanduser().resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        written = _written(root)
    except OSError as error:
        raise WorkspaceMissing(
            f"{root} cannot become a workspace: {error.filename}: {error.strerror or error}"
        ) from error
    open_engine(root, ledger=ledger).close()
    ledger_file = str(ledger or root / LEDGER_FILE)
    if as_json:
        emit({"workspace": str(root), "written": written, "ledger": ledger_file})
        return
    click.echo(f"Workspace {printable(str(root))}")
    for name in written:
        click.echo(f"  wrote {name}")
    click.echo(f"  ledger {printable(ledger_file)}")
    click.echo('Fill in the files (an untouched one counts as absent), then: nexus assemble "Hello"')


def _written(root: Path) -> list[str]:
    """Writes the starter files that are not there; their names. Nothing is written through a link out of the folder."""
    has_skills = (root / "skills").is_dir()
    written: list[str] = []
    for name, text in templates().items():
        if has_skills and name.startswith("skills/"):
            continue
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.parent.resolve().is_relative_to(root):
            continue
        try:
            with place.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        written.append(name)
    return written
