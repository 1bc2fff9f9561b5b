"""`nexus serve`: agents for programs in any language, over HTTP or standard input and output."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from nexus.agents import Limits
from nexus.agents.engine import confirm_all
from nexus.agents.mcp_tools import configured_servers, open_mcp_tools
from nexus.cli._models import EXTRACTIVE, open_model, summarizer_of
from nexus.cli._options import MODEL_OPTION, CommandOptions, nexus_command
from nexus.cli._output import emit, print_warning
from nexus.cli._parameters import Choice
from nexus.cli._tracing import send_traces
from nexus.engine import Engine, EngineOptions, open_engine
from nexus.errors import NexusError, NoCredential, NotFound, PackageMissing
from nexus.ledger.location import open_ledger
from nexus.models import ModelClient, Models
from nexus.render.console import printable
from nexus.server.forms import Case
from nexus.server.logs import STANDARD_ERROR, open_logs
from nexus.server.security import LOCAL_TENANT, TOKEN_FILE, Tokens, make_token_file, read_tokens
from nexus.server.service import Service
from nexus.server.stdio import StdioServer, read_lines, write_line
from nexus.server.tenants import OWN_LOOP, ServeOptions, Tenants
from nexus.tools import ToolRegistry
from nexus.types.block import ContextWarning
from nexus.types.config import Config
from nexus.workspace.config import McpServer
from nexus.workspace.files.reader import home_folder

if TYPE_CHECKING:
    from nexus.models.local import LocalServer

PORT = 8765


class ServeSettings(Struct, frozen=True):
    """Values of the options with these names."""

    host: str
    port: int
    local: bool
    base_url: str
    key_variable: str
    summarizer: str
    token_file: str | None
    allow_remote: bool
    allow_host: tuple[str, ...]
    allow_origin: tuple[str, ...]
    grace: float
    rate: float
    yes: bool
    max_cost: float | None
    timeout: float | None

    @property
    def limits(self) -> Limits:
        """The limits of a turn."""
        defaults = Limits()
        seconds = self.timeout or defaults.seconds
        return Limits(defaults.steps, seconds, min(defaults.tool_seconds, seconds), self.max_cost)

    @property
    def key(self) -> str:
        """The key of the server at --base-url. Raises NoCredential."""
        if self.base_url and self.key_variable and not os.environ.get(self.key_variable):
            raise NoCredential(f"no key for {self.base_url}: set {self.key_variable}")
        if self.base_url:
            return os.environ.get(self.key_variable, "")
        return ""


@nexus_command("serve")
@click.option("--host", default="127.0.0.1", help="Address to listen at [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, help=f"Port; 0 is a free one [{PORT}].")
@click.option("--stdio", is_flag=True, help="Speak on standard input and output, one message per line.")
@click.option("--case", type=Choice(("snake", "camel")), default="snake", help="Case of names with --stdio [snake].")
@MODEL_OPTION
@click.option("--local", is_flag=True, help="Use the small local model: no key, no network, no tools.")
@click.option("--base-url", default="", help="Address of an OpenAI-compatible server, such as …/v1.")
@click.option("--key-variable", default="", help="Variable with the key of the server at --base-url.")
@click.option("--summarizer", default="", help="Model that writes summaries, or `extractive` [the agents' model].")
@click.option(
    "--token-file", type=click.Path(dir_okay=False), help="File with lines `TOKEN TENANT` [~/.nexus/server.token]."
)
@click.option(
    "--allow-remote", is_flag=True, help="Allow an address that other machines reach. Use TLS in front of it."
)
@click.option("--allow-host", multiple=True, help="Name of this server behind a proxy; repeatable.")
@click.option("--allow-origin", multiple=True, help="Site whose pages may call this server; repeatable.")
@click.option("--grace", type=click.FloatRange(min=0), default=30.0, help="Seconds for running turns at the end [30].")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=100.0,
    help="Requests per second of a tenant, on average [100].",
)
@click.option("--yes", is_flag=True, help="Run tools that need confirmation; without it they are declined.")
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), help="USD of one turn, at list prices.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds of one turn [1800].")
@click.option(
    "--access-log", default="", metavar="FILE", help="Write a JSON line for each request; - is standard error."
)
@click.option("--error-log", default="-", metavar="FILE", help="File of the error log, in JSON lines [standard error].")
def command(
    options: CommandOptions, *, stdio: bool, case: Case, access_log: str, error_log: str, **values: object
) -> int:
    """Serve agents of the workspace to other programs, as JSON-RPC over HTTP until SIGTERM or Ctrl-C.

    The first start writes a token to ~/.nexus/server.token. Running turns may end; interrupted ones go on at the next
    start. --json prints the address as an object.

    Example: nexus serve --model claude-sonnet-5-5
    """
    send_traces()
    settings = ServeSettings(**{name: value for name, value in values.items() if name != "model"})  # type: ignore[arg-type]
    with open_logs(access_log, error_log or STANDARD_ERROR), _local_server(settings, options.model) as local:
        if stdio:
            agents = _AgentOpener(options, settings, local, is_shared=False)
            agents.check(LOCAL_TENANT)
            asyncio.run(_serve_stdio(agents, case))
            return 0
        if settings.token_file:
            file = Path(settings.token_file)
        else:
            file = home_folder() / TOKEN_FILE
        if settings.token_file is None:
            make_token_file(file)
        tokens = read_tokens(file)
        agents = _AgentOpener(options, settings, local, is_shared=len(tokens.tenants) > 1)
        agents.check(tokens.tenants[0])
        _serve_http(agents, tokens, str(file), options)
    return 0


@contextmanager
def _local_server(settings: ServeSettings, model: str | None) -> Generator[LocalServer | None]:
    """Run the local model for the block, if the settings ask for it. Raises PackageMissing, ModelCallFailed."""
    if not settings.local:
        yield None
        return
    if model or settings.base_url:
        raise click.UsageError("--local cannot be combined with --model or --base-url")
    from nexus.models.local import LocalServer

    with LocalServer() as server:
        yield server


class _AgentOpener:
    """Opens the engines of tenants, and the client of their models.

    Tenants that share a server share the workspace too: they get neither its memory, nor its files and the user's MCP
    servers as tools.
    """

    def __init__(
        self, options: CommandOptions, settings: ServeSettings, local: LocalServer | None, *, is_shared: bool
    ) -> None:
        self.options = options
        self.settings = settings
        self.is_shared = is_shared
        self._local = local
        self._root = options.root
        self._config: Config | None = None
        self._has_warned = False
        self._servers: tuple[McpServer, ...] = ()

    def engine(self, tenant: str) -> Engine:
        """Return the engine of a tenant."""
        options = self.options
        chosen: EngineOptions = {"run_mode": "server"}
        if self._local is not None:
            chosen["model"], chosen["models"] = self._local.model, self._local.models
        elif options.model:
            chosen["model"] = options.model
        if self._config is not None:
            chosen["config"] = self._config
        if not self._root.is_dir():  # opening a ledger would make the folder
            raise NotFound(
                f"folder {self._root} not found (make a workspace: nexus init {self._root})", code="workspace_missing"
            )
        store = open_ledger(self._root, options.ledger, home_folder(), tenant=tenant)
        try:
            nx = open_engine(self._root, ledger=store, **chosen)
        except BaseException:
            store.close()
            raise
        if not self._has_warned:
            self._has_warned = True
            for warning in nx.workspace_context.warnings:
                print_warning(warning)
        default = nx.model if self._local is None else EXTRACTIVE  # the local model is too small to summarize
        name = self.settings.summarizer or nx.workspace_context.config.summarizer or default
        nx.compactor.summarizer.model = summarizer_of(nx, name, self.settings.base_url, self.settings.key)
        return nx

    def check(self, tenant: str) -> None:
        """Raise now what keeps the server from its work: no workspace, no ledger, no package for --base-url.

        Without a key for a provider's model it serves programs that call the model themselves, with a warning.
        """
        if self.settings.base_url and not self.options.model:
            raise click.UsageError("--base-url needs the name of the server's model (add --model NAME)")
        with self.engine(tenant) as nx:
            self.model = nx.model
            if self.is_shared:  # compactions of one tenant must not write to the memory of all
                self._config = replace(nx.workspace_context.config, consolidate="off")
            self._credentials = nx.credentials
            if self._local is not None:
                return
            if not self.is_shared:
                self._servers = tuple(server for server in configured_servers(nx) if server.is_users)
            self._check_model(nx)

    def _check_model(self, nx: Engine) -> None:
        """Warn if the model's provider cannot be called. Raises PackageMissing, BadSetting and NoKey for --base-url."""
        base_url = self.settings.base_url
        model = nx.model
        try:
            open_model(model, nx.credentials, base_url, self.settings.key, advice="use --local")
        except NexusError as error:
            if base_url and isinstance(error, PackageMissing):
                raise PackageMissing(error.package, f"a model at {base_url}", "server,openai") from error
            if base_url:
                raise
            print_warning(ContextWarning("model", f"{error}; until then `send` fails, but {OWN_LOOP} work"))

    @asynccontextmanager
    async def tenants(self) -> AsyncGenerator[Tenants]:
        """Open the clients of the models and the user's MCP servers, and yield the tenants of a server."""
        settings = self.settings
        tools = ToolRegistry()
        options = ServeOptions(
            builtin=not self.is_shared and self._local is None,
            limits=settings.limits,
            confirm=confirm_all if settings.yes else None,
            grace_s=settings.grace,
        )
        async with AsyncExitStack() as stack:
            if self._servers:
                mcp = await stack.enter_async_context(open_mcp_tools(self._servers, self._credentials))
                for warning in mcp.warnings:
                    print_warning(warning)
                tools = mcp.with_confirmation()
            models = self._models()
            stack.push_async_callback(models.aclose)
            yield Tenants(self.engine, models, tools=tools, options=options)

    def _models(self) -> ModelClient:
        """Return the client of all models."""
        if self._local is not None:
            return self._local.client()
        if self.settings.base_url:
            return open_model(self.model, self._credentials, self.settings.base_url, self.settings.key)
        return Models(credentials=self._credentials.for_variable)


def _serve_http(agents: _AgentOpener, tokens: Tokens, token_file: str, options: CommandOptions) -> None:
    from nexus.server.app import HttpLimits
    from nexus.server.http import open_socket, serve_http, url_of

    settings = agents.settings
    listener = open_socket(settings.host, settings.port, allow_remote=settings.allow_remote)
    url = url_of(listener)

    def started() -> None:
        if options.as_json:
            emit({"url": url, "token_file": token_file, "model": agents.model, "pid": os.getpid()})
        else:
            click.echo(f"Nexus serves {printable(str(options.root))} at {url}, model {printable(agents.model)}.")
            click.echo(f"Token: in {printable(token_file)}. Stop with Ctrl-C.")
        sys.stdout.flush()

    async def serve() -> None:
        async with agents.tenants() as tenants:
            await serve_http(
                tenants,
                tokens,
                listener,
                hosts=(settings.host, *settings.allow_host),
                origins=settings.allow_origin,
                limits=HttpLimits(per_second=settings.rate, burst=math.ceil(4 * settings.rate)),
                started=started,
            )

    asyncio.run(serve())


async def _serve_stdio(agents: _AgentOpener, case: Case) -> None:
    from nexus.server.signals import stop_signals

    stop = asyncio.Event()
    with stop_signals(stop.set), read_lines(sys.stdin.fileno()) as read:
        async with agents.tenants() as tenants:
            await StdioServer(Service(tenants, stop.set), read, write_line, case=case).run(stop)
