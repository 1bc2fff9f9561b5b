"""What all commands share: where workspace and ledger are, and how values are printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nexus.engine import LEDGER_FILE, Engine, open_engine
from nexus.errors import UnreadableFile

F = TypeVar("F", bound=Callable[..., Any])


def common(command: F) -> F:
    """The options of every command: --workspace, --ledger, --json."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    command = click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger file [WORKSPACE/.nexus/ledger.db].")(
        command
    )
    return click.option(
        "-w", "--workspace", type=click.Path(file_okay=False),
        help="Workspace folder [this folder or its nearest parent that has .nexus].",
    )(command)


def open_here(workspace: str | None, ledger: str | None, *, writes: bool = False, **options: Any) -> Engine:
    """The engine for the options as given, or for the workspace around the current folder.

    A command that only reads makes no file: where there is no ledger yet, it sees an empty one.
    """
    root = Path(workspace).expanduser() if workspace else nearest_workspace(Path.cwd())
    file = Path(ledger).expanduser() if ledger else root / LEDGER_FILE
    absent = not writes and root.is_dir() and not file.exists()
    return open_engine(root, ledger=":memory:" if absent else file, **options)


def nearest_workspace(folder: Path) -> Path:
    """The folder or its nearest parent that has `.nexus`; the folder itself if none has."""
    return next((place for place in (folder, *folder.parents) if (place / ".nexus").is_dir()), folder)


def emit(value: Any) -> None:
    """Prints a value as JSON, indented on a terminal; lone surrogates as escapes."""
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        click.echo(text)
    except UnicodeEncodeError:
        click.echo(json.dumps(value, ensure_ascii=True, indent=indent))


def read_json(path: str) -> Any:
    """A JSON file's value; `-` reads standard input. Raises UnreadableFile."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
        return json.loads(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read as JSON: {error}") from error


def plain_output() -> bool:
    """Whether to leave out colours and emoji: NO_COLOR is set, or the output is no terminal."""
    return bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
