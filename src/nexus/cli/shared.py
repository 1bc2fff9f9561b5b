"""What all commands share: where workspace and ledger are, and how values are printed."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from nexus.engine import LEDGER_FILE, Engine, open_engine
from nexus.errors import BadTool, UnreadableFile
from nexus.ledger.sqlite import SqliteLedger

F = TypeVar("F", bound=Callable[..., Any])

SQLITE = b"SQLite format 3\0"
"""How the file of a ledger begins."""

_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_POWERFUL = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON allows in a text although a terminal obeys it: control characters above ASCII, and changes of direction."""


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


def handed_down(
    ctx: click.Context, names: Iterable[str], workspace: str | None, ledger: str | None, *, as_json: bool
) -> None:
    """Makes the common options that stand before a command's name those of the commands under it, by their names."""
    given = {"workspace": workspace, "ledger": ledger, "as_json": as_json or None}
    defaults = {name: value for name, value in given.items() if value is not None}
    ctx.default_map = dict.fromkeys(names, defaults)


def open_here(workspace: str | None, ledger: str | None, *, writes: bool = False, **options: Any) -> Engine:
    """The engine for the options as given, or for the workspace around the current folder.

    A command that only reads makes no file: where there is no ledger yet, it sees an empty one, and an empty file is none.
    """
    root = Path(workspace).expanduser() if workspace else nearest_workspace(Path.cwd())
    file = Path(ledger).expanduser() if ledger else root / LEDGER_FILE
    if writes or not root.is_dir():
        return open_engine(root, ledger=file, **options)
    there = SqliteLedger(str(file.absolute()), create=False) if file.exists() else ":memory:"
    return open_engine(root, ledger=there, **options)


def named_profile(given: str) -> tuple[str, dict[str, Any]]:
    """The profile's name for `--profile`, and what to open the engine with: a path given by hand is a file to be used.

    Only here may a text name a file: a name that a program was sent must not run one.
    """
    path = Path(given).expanduser()
    if path.suffix not in (".toml", ".py") and path.name == given:
        return given, {}
    return path.stem, {"profiles": {path.stem: path}}


def nearest_workspace(folder: Path) -> Path:
    """The folder or its nearest parent that has `.nexus`; the folder itself if none has."""
    return next((place for place in (folder, *folder.parents) if (place / ".nexus").is_dir()), folder)


def emit(value: Any) -> None:
    """Prints a value as JSON, indented on a terminal; what has power over one, and lone surrogates, as escapes."""
    click.echo(_json(value, 2 if sys.stdout.isatty() else None))


def emit_each(values: Iterable[Any]) -> None:
    """Prints what `emit` prints for the list of these values, one at a time."""
    indent = 2 if sys.stdout.isatty() else None
    between = "[" if indent is None else "[\n"
    for value in values:
        text = _json(value, indent)
        click.echo(f"{between}{text if indent is None else textwrap.indent(text, ' ' * indent)}", nl=False)
        between = ", " if indent is None else ",\n"
    click.echo("[]" if between[0] == "[" else "]" if indent is None else "\n]")


def emit_around(head: dict[str, Any], name: str, values: Iterable[Any]) -> None:
    """Prints an object that has, after all of `head`, the list of these values under `name`, one at a time."""
    click.echo(f"{_json(head, None)[:-1]}, {_json(name, None)}: ", nl=False)
    emit_each(values)
    click.echo("}")


def _json(value: Any, indent: int | None) -> str:
    return shown_json(json.dumps(value, ensure_ascii=False, indent=indent))


def shown_json(text: str) -> str:
    """JSON text as the output can show it: what that lacks, and what has power over a terminal, as escapes."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text if text.isprintable() else _POWERFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines as they come, many at a time."""
    left = iter(lines)
    while block := list(islice(left, 1_000)):
        click.echo("\n".join(block))


def read_json(path: str) -> Any:
    """A JSON file's value; `-` reads standard input. Raises UnreadableFile."""
    try:
        text = read_input() if path == "-" else Path(path).read_text("utf-8-sig")
        return json.loads(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read as JSON: {error}") from error


def read_tools(path: str) -> list[dict[str, Any]]:
    """The tool definitions of a JSON file: a list, one definition, or `{"tools": […]}`. Raises UnreadableFile."""
    from nexus.types.tool_definition import canonical

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
    """Writes a file. Raises UnreadableFile, naming it, when it cannot be written or is a database, as a ledger is."""
    file = Path(path).expanduser()
    try:
        if file.is_file() and _begins(file, SQLITE):
            raise UnreadableFile(f"{path} is a SQLite file and was not touched; name another file")
        file.write_text(text, "utf-8")
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be written: {error.strerror or error}") from error


def _begins(file: Path, wanted: bytes) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(wanted)) == wanted


def read_input() -> str:
    """Standard input as text; bytes that are no UTF-8 show as U+FFFD, a closed one is empty."""
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace") if sys.stdin is not None else ""


def console(*, width: int) -> Any:
    """Where pictures go: `width` columns where the output is no terminal, and no escape codes where none are wanted."""
    from rich.console import Console

    plain, own_width = plain_output(), None if sys.stdout.isatty() else width
    colours = None if plain else "auto"
    return Console(color_system=colours, no_color=plain, highlight=False, emoji=False, markup=False, width=own_width)


@contextmanager
def progress_bar(what: str) -> Generator[Callable[[int, int], None] | None]:
    """A bar on standard error, on a terminal only. It is told how much is done, and how much there is (0: not known)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def plain_output() -> bool:
    """Whether to leave out colours and emoji: NO_COLOR is set, or the output is no terminal, or one without colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
