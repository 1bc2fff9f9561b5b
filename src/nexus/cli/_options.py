"""Options that every command takes, and readers for option values: workspace, ledger, profile, files, session names."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from nexus.engine import LEDGER_FILE, NEXT_MESSAGE, Engine, open_engine
from nexus.errors import BadTool, NoSuchSession, UnreadableFile
from nexus.ledger.sqlite import SqliteLedger

F = TypeVar("F", bound=Callable[..., Any])

NO_LEDGER = ":memory:"
"""Place of the empty ledger that commands read without a ledger file."""

SQLITE_HEADER = b"SQLite format 3\0"

BUDGET_OPTION = click.option(
    "--budget", type=click.IntRange(min=1), help="Available tokens [the model's window minus the reserves]."
)
MODEL_OPTION = click.option("-m", "--model", default="", help="Model [claude-sonnet-4-5].")
PROFILE_OPTION = click.option(
    "--profile", default="layered", show_default=True, help="Profile: a name, or a .toml or .py file."
)
TOOLS_OPTION = click.option(
    "--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, in any provider format."
)
MESSAGE_OPTION = click.option("--message", default=NEXT_MESSAGE, help="The next message, which is counted too.")
CALL_OPTION = click.option("--call", type=click.IntRange(min=1), help="Number of the call in the turn [the last].")


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Values of --workspace, --ledger and --json, and the engine and files that they select."""

    workspace: str | None
    ledger: str | None
    as_json: bool

    @property
    def root(self) -> Path:
        """The workspace: the one that was named, else the nearest one around the current folder."""
        return Path(self.workspace).expanduser() if self.workspace else nearest_workspace(Path.cwd())

    @property
    def ledger_file(self) -> Path:
        """The ledger: the one that was named, else the workspace's."""
        return Path(self.ledger).expanduser() if self.ledger else self.root / LEDGER_FILE

    def open(self, *, writes: bool = False, **engine_options: Any) -> Engine:
        """Open the engine.

        Commands that only read create no file: without a ledger file they see an empty ledger, and an empty file stays
        empty.
        """
        root, file = self.root, self.ledger_file
        if writes or not root.is_dir():
            return open_engine(root, ledger=file, **engine_options)
        store = SqliteLedger(str(file.absolute()), create=False) if file.exists() else NO_LEDGER
        return open_engine(root, ledger=store, **engine_options)

    def pass_on(self, ctx: click.Context, names: Iterable[str]) -> None:
        """Make options given before a subcommand's name the defaults of the subcommands with these names."""
        values = {"workspace": self.workspace, "ledger": self.ledger, "as_json": self.as_json or None}
        defaults = {name: value for name, value in values.items() if value is not None}
        ctx.default_map = dict.fromkeys(names, defaults)


def command_options(command: F) -> F:
    """Add --workspace, --ledger and --json to a command, which receives them as `options` (`CommandOptions`)."""

    @wraps(command)
    def with_options(*args: Any, workspace: str | None, ledger: str | None, as_json: bool, **values: Any) -> Any:
        return command(*args, options=CommandOptions(workspace, ledger, as_json), **values)

    wrapped = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(with_options)
    wrapped = click.option(
        "--ledger", type=click.Path(dir_okay=False), help="Ledger file [WORKSPACE/.nexus/ledger.db]."
    )(wrapped)
    wrapped = click.option(
        "-w",
        "--workspace",
        type=click.Path(file_okay=False),
        help="Workspace folder [the current folder or its nearest parent with a .nexus folder].",
    )(wrapped)
    return cast("F", wrapped)


def nearest_workspace(folder: Path) -> Path:
    """Return the folder or its nearest parent that has `.nexus`; the folder itself if none has."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".nexus").is_dir()), folder)


def profile_option(value: str) -> tuple[str, dict[str, Any]]:
    """Return the profile's name for a `--profile` value, and the engine options that register a profile file.

    Only the command line turns a profile's name into a path: names that reach a program must not run a file.
    """
    path = Path(value).expanduser()
    if path.suffix not in (".toml", ".py") and path.name == value:
        return value, {}
    return path.stem, {"profiles": {path.stem: path}}


def check_new_name(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Reject an empty session name. Raises BadParameter."""
    if value is not None and not value.strip():
        raise click.BadParameter("a name cannot be empty")
    return value


def resolve_session(nx: Engine, name: str) -> str:
    """Return the label of the session with this name or alias. Raises NoSuchSession."""
    label = nx.ledger.resolve(name)
    if label is None and nx.ledger.place == NO_LEDGER:
        raise NoSuchSession(
            f"session {name!r} not found: no ledger yet (create one: nexus import FILE or nexus record)"
        )
    nx.ledger.thread(name)
    return label or name


def read_json(path: str) -> object:
    """Return a JSON file's value; `-` reads standard input. Raises UnreadableFile."""
    try:
        text = read_input() if path == "-" else Path(path).read_text("utf-8-sig")
        return json.loads(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"'{path}' not readable as JSON: {error}") from error


def read_tools(path: str) -> list[dict[str, Any]]:
    """Return the tool definitions of a JSON file: a list, one definition, or `{"tools": […]}`. Raises UnreadableFile."""
    from nexus.types.tool_definition import canonical

    value = read_json(path)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        value = fields.get("tools", [fields])
    try:
        definitions = msgspec.convert(value, list[dict[str, Any]])
        canonical(definitions)
    except (msgspec.ValidationError, BadTool) as error:
        raise UnreadableFile(f"'{path}' not readable as tool definitions: {error}") from error
    return definitions


def read_input() -> str:
    """Return standard input as text: U+FFFD for bytes that are not UTF-8, empty if it is closed."""
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace") if sys.stdin is not None else ""


def write_text(path: str, text: str) -> None:
    """Write a file. Raises UnreadableFile if it cannot be written or is a SQLite file, such as a ledger."""
    file = Path(path).expanduser()
    try:
        if file.is_file():
            with file.open("rb") as stream:
                if stream.read(len(SQLITE_HEADER)) == SQLITE_HEADER:
                    raise UnreadableFile(f"'{path}' not written: it is a SQLite file (name another file)")
        file.write_text(text, "utf-8")
    except OSError as error:
        raise UnreadableFile(f"'{path}' not written: {error.strerror or error}") from error
