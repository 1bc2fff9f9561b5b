"""What all commands share: where workspace and ledger are, and how values are printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from nexus.engine import LEDGER_FILE, Engine, open_engine
from nexus.errors import BadTool, UnreadableFile

F = TypeVar("F", bound=Callable[..., Any])


def common(command: F) -> F:
    """The options of every command: --workspace, --ledger, --json."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    command = click.option(
        "--ledger", type=click.Path(dir_okay=False), help="Ledger file [WORKSPACE/.nexus/ledger.db]."
    )(command)
    return click.option(
        "-w",
        "--workspace",
        type=click.Path(file_okay=False),
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
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, indent=indent)
    click.echo(text)


def read_json(path: str) -> Any:
    """A JSON file's value; `-` reads standard input. Raises UnreadableFile."""
    try:
        text = read_input() if path == "-" else Path(path).read_text("utf-8-sig")
        return json.loads(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read as JSON: {error}") from error


def read_tools(path: str) -> list[dict[str, Any]]:
    """The tool definitions of a JSON file: a list, one definition, or `{"tools": […]}`. Raises UnreadableFile."""
    from nexus.render.wire.tools import canonical

    found = read_json(path)
    if isinstance(found, dict):
        found = cast("dict[str, Any]", found).get("tools", [found])
    try:
        definitions = msgspec.convert(found, list[dict[str, Any]])
        canonical(definitions)
    except (msgspec.ValidationError, BadTool) as error:
        raise UnreadableFile(f"{path} holds no list of tool definitions: {error}") from error
    return definitions


def write_text(path: str, text: str) -> None:
    """Writes a file. Raises UnreadableFile, naming it, when it cannot be written."""
    try:
        Path(path).expanduser().write_text(text, "utf-8")
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be written: {error.strerror or error}") from error


def read_input() -> str:
    """Standard input as text; bytes that are no UTF-8 show as U+FFFD, a closed one is empty."""
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace") if sys.stdin is not None else ""


def console(*, width: int = 150) -> Any:
    """Where tables go: without any escape codes, and `width` columns wide, where colours are not wanted."""
    from rich.console import Console

    if plain_output():
        return Console(color_system=None, no_color=True, highlight=False, emoji=False, markup=False, width=width)
    return Console(highlight=False, emoji=False, markup=False)


def plain_output() -> bool:
    """Whether to leave out colours and emoji: NO_COLOR is set, or the output is no terminal."""
    return bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
