"""`nexus init`: a workspace with starter files and a ledger. Existing files are not overwritten."""

from __future__ import annotations

from pathlib import Path

import click

from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit
from nexus.engine import LEDGER_FILE, open_engine
from nexus.errors import WorkspaceMissing
from nexus.render.console import printable
from nexus.workspace.prompts import templates


@click.command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@command_options
def command(folder: str | None, options: CommandOptions) -> None:
    """Create a workspace in FOLDER [the current folder]: starter files and a ledger. Existing files stay as they are."""
    root = Path(folder or options.workspace or ".").expanduser().resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        written = _write_templates(root)
    except OSError as error:
        raise WorkspaceMissing(
            f"workspace '{root}' not created: {error.filename}: {error.strerror or error}"
        ) from error
    open_engine(root, ledger=options.ledger).close()
    ledger_file = str(options.ledger or root / LEDGER_FILE)
    if options.as_json:
        emit({"workspace": str(root), "written": written, "ledger": ledger_file})
        return
    click.echo(f"Workspace {printable(str(root))}")
    for name in written:
        click.echo(f"  wrote {name}")
    click.echo(f"  ledger {printable(ledger_file)}")
    click.echo('Edit the files (unchanged ones are ignored), then: nexus assemble "Hello"')


def _write_templates(root: Path) -> list[str]:
    """Write the missing starter files and return their names. Links out of the folder are not followed."""
    has_skills = (root / "skills").is_dir()
    written: list[str] = []
    for name, text in templates().items():
        if has_skills and name.startswith("skills/"):
            continue
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.parent.resolve().is_relative_to(root):
            continue
        try:
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
        except FileExistsError:
            continue
        written.append(name)
    return written
