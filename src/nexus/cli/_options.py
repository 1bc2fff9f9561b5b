"""The shared side of every command: its options, the engine and session they select, and JSON or text as output."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, get_args

import click
import msgspec
from click.shell_completion import CompletionItem

from nexus.cli import _groups
from nexus.cli._output import emit, print_warning
from nexus.cli._parameters import Choice
from nexus.cli._sessions import LAST, NO_LEDGER, SESSION_OPTION, SessionArgument, SessionCommand, resolve_session
from nexus.engine import DEFAULT_PROFILE, Engine, EngineOptions, open_engine
from nexus.errors import BadConfig, BadTool, LedgerUnusable, NexusError, UnreadableFile
from nexus.ledger.address import is_address, parse_address
from nexus.ledger.location import open_ledger, open_server_ledger, workspace_ledger
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import SqliteLedger
from nexus.render.console import printable
from nexus.tokens.model_table import DEFAULT_MODEL
from nexus.types.block import ContextWarning
from nexus.types.config import Config
from nexus.types.settings import Strategy
from nexus.types.validation import parse_json
from nexus.workspace.files.containment import read_file
from nexus.workspace.files.reader import home_folder

if TYPE_CHECKING:  # the class of click 8.1 takes no arguments
    _ParamType = click.ParamType[str]
else:
    _ParamType = click.ParamType

LEDGER_VARIABLE = "NEXUS_LEDGER"
"""Variable that names the ledger of all commands, in place of --ledger."""

Function = TypeVar("Function", bound=Callable[..., Any])

ALL_OPTIONS = "nexus.cli.all_options"
"""Key of click's context: True if help has the rare options too."""

MAX_INPUT_BYTES = 256 * 2**20
"""Size limit of a JSON file and of standard input."""

SQLITE_HEADER = b"SQLite format 3\0"

BUDGET_OPTION = click.option(
    "--budget", type=click.IntRange(min=1), help="Available tokens [the model's window minus the reserves]."
)
MODEL_OPTION = click.option("-m", "--model", default="", help=f"Model [{DEFAULT_MODEL}].")
SESSION_MODEL_OPTION = click.option("-m", "--model", default="", help="Model [of the session's last call].")
PROFILE_OPTION = click.option(
    "--profile", default="", help="Profile: a name, or a .toml or .py file [of the session's last call]."
)
TOOLS_OPTION = click.option(
    "--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, in any provider format."
)
CALL_OPTION = click.option("--call", type=click.IntRange(min=1), help="Number of the call in the turn [the last].")

STRATEGY_OPTION = click.option(
    "--strategy", type=Choice(get_args(Strategy)), help="Strategy of a cut [keep_user_turns]."
)

DEFAULT_TENANT = _groups.DEFAULT_TENANT
TENANT_OPTION = _groups.TENANT_OPTION
SHARED_OPTIONS = _groups.SHARED_OPTIONS


def named_ledger() -> str | None:
    """Return the ledger that the environment names; None if it names none."""
    return os.environ.get(LEDGER_VARIABLE) or None


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Values of the options with these names, and the engine, files and output that they select."""

    workspace: str | None = None
    ledger: str | None = field(default_factory=named_ledger)
    """The ledger that was named, by the option or else the environment."""
    as_json: bool = False
    model: str = ""
    budget: int | None = None
    profile: str = ""
    """A profile's name, or its file."""
    tools: str | None = None
    """A file with tool definitions."""
    tenant: str = DEFAULT_TENANT
    """The part of the ledger that commands with --tenant see."""

    @property
    def typed_ledger(self) -> str | None:
        """The ledger if the option named it, not the environment."""
        if self.ledger == named_ledger():
            return None
        return self.ledger

    @property
    def root(self) -> Path:
        """The workspace: the one that was named, else the nearest one around the current folder."""
        if self.workspace:
            return Path(self.workspace).expanduser()
        current = Path.cwd()
        home = home_folder().resolve()
        workspaces = (folder for folder in (current, *current.parents) if (folder / ".nexus").is_dir())
        # The user's own Nexus folder makes no workspace of the home folder, or agents could read all of it.
        return next((folder for folder in workspaces if (folder / ".nexus").resolve() != home), current)

    @property
    def ledger_url(self) -> str:
        """The URL of a ledger in PostgreSQL; an empty string for a file."""
        if self.ledger and is_address(self.ledger):
            return self.ledger
        return ""

    @property
    def ledger_place(self) -> str:
        """The ledger's file or its URL without passwords, for messages."""
        if self.ledger_url:
            return parse_address(self.ledger_url).place
        return str(self.ledger_file)

    @property
    def ledger_file(self) -> Path:
        """The ledger's file: the one that was named, else the workspace's. Raises LedgerUnusable, UnreadableFile."""
        if self.ledger_url:
            raise UnreadableFile(f"{self.ledger_place} is not a file (name a ledger's file with --ledger)")
        if self.ledger:
            return Path(self.ledger).expanduser()
        return workspace_ledger(self.root)

    @property
    def profile_name(self) -> str:
        """The profile's name, under which `open` registers it if it is a file."""
        file = self._profile_file()
        if file:
            return file.stem
        return self.profile

    def _profile_file(self) -> Path | None:
        # Only the command line turns a profile's name into a path: names that reach a program must not run a file.
        path = Path(self.profile).expanduser()
        if path.suffix in (".toml", ".py") or path.name != self.profile:
            return path
        return None

    def tool_definitions(self) -> tuple[dict[str, Any], ...]:
        """Read the file with tool definitions, if one was named: a list, one definition, or `{"tools": […]}`.

        Raises UnreadableFile.
        """
        from nexus.types.tool_definition import canonical

        if not self.tools:
            return ()
        value = read_json(self.tools)
        if isinstance(value, dict):
            definition = cast("dict[str, object]", value)
            value = definition.get("tools", [definition])
        try:
            definitions = msgspec.convert(value, tuple[dict[str, Any], ...])
            canonical(definitions)
        except (ValueError, BadTool) as error:
            raise UnreadableFile(f"'{self.tools}' not readable as tool definitions: {error}") from error
        return definitions

    def model_and_profile(self, nx: Engine, label: str) -> tuple[str, str]:
        """Return the model and profile that were named, else those of the session's last recorded call."""
        model, profile = nx.calls.last_settings(label) if nx.ledger.resolve(label) else (nx.model, DEFAULT_PROFILE)
        return self.model or model, self.profile_name or profile

    def open(
        self,
        *,
        writes: bool = False,
        reads_stored: bool = False,
        needs_config: bool = True,
        **engine_options: Unpack[EngineOptions],
    ) -> Engine:
        """Open the engine.

        Commands that only read create nothing: without a ledger file, or in an empty database, they see an empty ledger,
        and an empty file stays empty. With `reads_stored`, raises UnreadableFile if the ledger was named and its file is missing. Commands that
        show or change stored history only do not need the configuration: a broken one is a warning. Who runs the command is
        the local user; a command that speaks for others passes `local_user=False`.
        """
        if reads_stored and self.ledger and not self.ledger_url and not self.ledger_file.exists():
            raise UnreadableFile(f"ledger '{self.ledger}' not found (name a ledger with --ledger or {LEDGER_VARIABLE})")
        root = self.root
        profile = self._profile_file()
        options: EngineOptions = {"local_user": True}
        if profile:
            options["profiles"] = {profile.stem: profile}
        options = {**options, **engine_options}
        store: SqlLedger | str | None = self.ledger
        if self.ledger_url and not writes:
            store = _server_ledger(self.ledger_url, self.tenant)
        elif not writes and root.is_dir():
            file = self.ledger_file
            store = NO_LEDGER
            if file.exists():
                store = open_ledger(root, self.ledger, home_folder(), tenant=self.tenant, create=False)
        try:
            nx = open_engine(root, ledger=store, **options)
        except BadConfig as error:
            if needs_config:
                raise
            print_warning(ContextWarning(error.file, f"not used: {str(error).removeprefix(f'{error.file}: ')}"))
            return self.open(writes=writes, **{**engine_options, "config": Config()})
        for warning in nx.workspace_context.warnings if needs_config else ():
            print_warning(warning)
        if isinstance(nx.ledger.store, SqliteLedger) and not nx.ledger.store.trusted:
            advice = "accept it: nexus ledger trust"
            text = f"{nx.ledger.store.location} was not made by this user; it is read-only, and goes to no model ({advice})"
            print_warning(ContextWarning("ledger", text))
        return nx

    @contextmanager
    def session(self, name: str, *, needs_config: bool = False) -> Generator[tuple[Engine, str]]:
        """Open the engine for a session, and return it with the session's label. Raises NoSuchSession."""
        with self.open(reads_stored=True, needs_config=needs_config) as nx:
            yield nx, resolve_session(nx, name)

    def report(self, value: object, *lines: str) -> None:
        """Print the value as JSON, or the lines."""
        if self.as_json:
            emit(value)
        elif lines:
            click.echo("\n".join(lines))


def _server_ledger(url: str, tenant: str) -> SqlLedger | str:
    """Open a ledger in PostgreSQL that must not be made; a database without one is an empty ledger."""
    try:
        return open_server_ledger(url, tenant=tenant, create=False)
    except LedgerUnusable as error:
        if error.code != "ledger_missing":
            raise
        return NO_LEDGER


class _SessionName(_ParamType):
    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """Return the sessions of the ledger that the line names, newest first; none if it cannot be read.

        `last` is one of them if there is any.
        """
        places: dict[str, Any] = {}
        line: click.Context | None = ctx
        while line is not None:
            places |= {name: line.params[name] for name in ("workspace", "ledger", "tenant") if line.params.get(name)}
            line = line.parent
        try:
            with redirect_stderr(io.StringIO()), CommandOptions(**places).open(needs_config=False) as nx:
                sessions = nx.ledger.store.sessions(prefix=incomplete)
                newest = nx.sessions(limit=1)
        except (NexusError, OSError):
            return []
        names = {session.label: session.title for session in sessions if session.label.isprintable()}
        if newest:
            names.setdefault(LAST, "the newest session")
        return [CompletionItem(name, help=title) for name, title in names.items() if name.startswith(incomplete)]


SESSION = _SessionName()
"""The name of a session."""


def session_argument(name: str = "session", **attributes: Any) -> Callable[[Function], Function]:
    """Add the session that a command works on, as its argument NAME or with -s; the function receives it as `name`."""

    def decorate(function: Function) -> Function:
        described = f"The session, instead of {name.upper()}."
        option = click.option("-s", "--session", SESSION_OPTION, type=SESSION, metavar="NAME", help=described)
        return click.argument(name, type=SESSION, cls=SessionArgument, **attributes)(option(function))

    return decorate


def nexus_command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command with --workspace, --ledger and --json; its function receives all of `CommandOptions` as `options`."""
    shared = [option.name for option in fields(CommandOptions)]

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(*args: Any, **values: Any) -> Any:
            chosen = {name: values.pop(name) for name in shared if name in values}
            options = CommandOptions(**{name: value for name, value in chosen.items() if value is not None})
            return function(*args, options=options, **values)

        command = click.command(name, cls=SessionCommand, **attributes)(run)
        command.params += SHARED_OPTIONS
        return command

    return decorate


class RareOption(click.Option):
    """An option that only --help-all shows."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option's line for help; None unless all options are shown."""
        if ctx.meta.get(ALL_OPTIONS):
            return super().get_help_record(ctx)
        return None


def _show_all_help(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL_OPTIONS] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


HELP_ALL_OPTION = click.option(
    "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_show_all_help, help="Show all options."
)


class NexusGroup(_groups.CommandGroup):
    """A group of commands whose functions receive `CommandOptions`."""

    def subcommand(self, name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
        """Make a command of this group, as `nexus_command` does."""

        def decorate(function: Callable[..., Any]) -> click.Command:
            command = nexus_command(name, **attributes)(function)
            self.add_command(command)
            return command

        return decorate


def check_new_name(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Reject an empty session name, and `last`. Raises BadParameter."""
    if value is not None and not value.strip():
        raise click.BadParameter("a name cannot be empty")
    if value == LAST:
        raise click.BadParameter(f"{LAST!r} means the newest session (give another name)")
    return value


def line_to_type(slash_line: str, options: CommandOptions, *words: str) -> str:
    """Return a line for the user to type: a line of the chat if a chat runs this command, else of the command line.

    The latter names the same workspace and ledger, except the ledger of the environment, which may have a password.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.obj:
        return slash_line
    places = (("--workspace", options.workspace), ("--ledger", options.typed_ledger))
    return printable(
        shlex.join(["nexus", *words, *(part for name, value in places if value for part in (name, value))])
    )


def is_stream(path: str) -> bool:
    """Return True for standard input and for pipes that the shell has opened: `-`, `/dev/stdin`, `<(…)`."""
    return path == "-" or path.startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))


@contextmanager
def as_file(path: Path) -> Generator[Path]:
    """Yield a file with the content of standard input or a pipe, which can be read only once; other paths unchanged."""
    if not is_stream(str(path)):
        yield path.expanduser()
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "input"
        with file.open("wb") as copy, nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as stream:
            shutil.copyfileobj(stream, copy)
        yield file


def read_text(path: str) -> str:
    """Return a file's text with newlines as line ends; `-` reads standard input. Raises UnreadableFile."""
    try:
        if is_stream(path):
            return read_input(path)
        return read_file(Path(path).expanduser(), MAX_INPUT_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"'{path}' not readable as text: {error}") from error


def read_json(path: str) -> object:
    """Return a JSON file's value; `-` reads standard input. Raises UnreadableFile."""
    try:
        if is_stream(path):
            text = read_input(path)
        else:
            text = read_file(Path(path).expanduser(), MAX_INPUT_BYTES).decode("utf-8-sig")
        return parse_json(text)
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"'{path}' not readable as JSON: {error}") from error


def read_input(path: str = "-") -> str:
    """Return standard input or an open pipe as text: U+FFFD for bytes that are not UTF-8, empty if it is closed.

    Line ends of Windows become newlines.

    Raises UnreadableFile if it is too large.
    """
    if path == "-" and sys.stdin is None:
        return ""
    with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
        data = stream.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        raise UnreadableFile(f"input larger than {MAX_INPUT_BYTES // 2**20} MiB")
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def write_text(path: str, text: str, *, private: bool = False) -> None:
    """Write a file, `private` so that only its owner may read it. Raises UnreadableFile if it cannot be written or is a SQLite file, such as a ledger."""
    file = Path(path).expanduser()
    try:
        if file.is_file():
            with file.open("rb") as stream:
                if stream.read(len(SQLITE_HEADER)) == SQLITE_HEADER:
                    raise UnreadableFile(f"'{path}' not written: it is a SQLite file (name another file)")
        with open(file, "w", encoding="utf-8", opener=_open_private if private else None) as stream:
            stream.write(text)
    except OSError as error:
        raise UnreadableFile(f"'{path}' not written: {error.strerror or error}") from error


def _open_private(path: str, flags: int) -> int:
    handle = os.open(path, flags, 0o600)
    if os.name == "posix" and stat.S_ISREG(os.fstat(handle).st_mode):  # a file of an earlier call may be readable
        os.fchmod(handle, 0o600)
    return handle
