"""The agent of `nexus chat` and `nexus run`: its model with its key, its tools, and the turns of one session.

The event loop runs during turns alone: in between, the program waits for a person and runs commands.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext, suppress
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click
from msgspec import Struct
from msgspec.structs import replace

from nexus.agents import Agent
from nexus.agents.engine import Confirm, Limits, Spending, confirm_all
from nexus.agents.mcp_tools import configured_servers, open_mcp_tools
from nexus.agents.turn_tools import TurnTools
from nexus.agents.workers import NO_HOOKS, TurnHooks, WorkerLimits
from nexus.cli._exit_codes import exit_code, outcome_code
from nexus.cli._models import EXTRACTIVE, NoKey, open_model, summarizer_of
from nexus.cli._options import CommandOptions
from nexus.cli._output import print_warning
from nexus.cli._sessions import resolve_id
from nexus.context import AssembledContext
from nexus.engine import DEFAULT_PROFILE, NEXT_MESSAGE, Engine, EngineOptions, session_label
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.errors import BadSetting, BudgetTooSmall, NexusError, NoCredential, SessionBusy, install_command
from nexus.ledger.lease import WAIT_S, session_lease
from nexus.models import EndpointClient, ModelClient, Models
from nexus.tools import ToolRegistry
from nexus.turnlog.live import TurnLog
from nexus.types.block import ContextWarning
from nexus.types.message import Image, Message, Part, Text
from nexus.types.request import AgentResult, Event
from nexus.types.settings import Settings, SettingsChanges
from nexus.types.stream_events import Sink, StreamError, StreamEvent
from nexus.workspace.attachments import read_image

if TYPE_CHECKING:
    from nexus.cli.chat_screen import Screen
    from nexus.models.local import LocalServer

LOCAL_INSTALL = install_command("local")

AGENT_OPTIONS = (
    click.option("-s", "--session", default="", help="Session; a new name begins one [the policy's, else main]."),
    click.option("--principal", default="", help="Who speaks, as named in the policy (telegram:42) [you]."),
    click.option("-m", "--model", default="", help="Model [of the configuration, else claude-sonnet-5-5]."),
    click.option("--base-url", default="", help="Address of an OpenAI-compatible server, such as …/v1."),
    click.option("--key-variable", default="", help="Variable with the key of the server at --base-url."),
    click.option("--local", is_flag=True, help="Use the small local model: no key, no network, no tools."),
    click.option("--profile", default="", help="Profile: a name, or a .toml or .py file [layered]."),
    click.option("--summarizer", default="", help="Model that writes summaries, or `extractive` [the agent's model]."),
    click.option("--toolset", default="", help="Toolset of the policy that limits the tools."),
    click.option("--yes", is_flag=True, help="Run tools that need confirmation without asking."),
    click.option("--max-steps", type=click.IntRange(min=1), help="Calls of the model in one turn [50]."),
    click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), help="USD of one turn, at list prices."),
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds of one turn [1800]."),
)
"""Options that `nexus chat` and `nexus run` share."""


class ChatAgentOptions(Struct, frozen=True):
    """Values of the options with these names."""

    session: str = ""
    principal: str = ""
    base_url: str = ""
    key_variable: str = ""
    local: bool = False
    summarizer: str = ""
    toolset: str = ""
    yes: bool = False
    max_steps: int | None = None
    max_cost: float | None = None
    timeout: float | None = None

    @property
    def limits(self) -> Limits:
        """The limits of a turn."""
        defaults = Limits()
        seconds = self.timeout or defaults.seconds
        steps = self.max_steps or defaults.steps
        return Limits(steps, seconds, min(defaults.tool_seconds, seconds), self.max_cost)


def agent_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `AGENT_OPTIONS` to a command; it gets their values as `settings`."""

    @wraps(function)
    def with_settings(**values: Any) -> Any:
        fields = {name: values.pop(name) for name in ChatAgentOptions.__struct_fields__}
        return function(**values, settings=ChatAgentOptions(**fields))

    for option in reversed(AGENT_OPTIONS):
        option(with_settings)
    return with_settings


def has_local_model() -> bool:
    """Return whether the packages of the local model are installed; its weights may be missing."""
    return all(find_spec(name) is not None for name in ("xllamacpp", "openai"))


_LIMIT_OPTIONS = {"Limits.steps": "--max-steps", "Limits.cost_usd": "--max-cost", "Limits.seconds": "--timeout"}


def _with_option_names(error: StreamError) -> StreamError:
    """Return the error of a limit with the options that raise it."""
    if error.kind != "limit":
        return error
    text = error.text
    for name, option in _LIMIT_OPTIONS.items():
        text = text.replace(name, option)
    return replace(error, text=text)


def _describe_size(error: BudgetTooSmall, model: str) -> str:
    """Return a sentence about a message that is too long; empty if other parts take more than it."""
    tokens = error.parts.get("current event", 0)
    others = error.needed_tokens - tokens
    if tokens <= others or others >= error.available_tokens:
        return ""
    return (
        f"the message is too long for {model}: about {tokens:,} tokens, and {error.available_tokens - others:,} "
        "fit (shorten it, or use a model with a larger context window); nothing was sent"
    )


class UnfinishedTurn(Struct, frozen=True):
    """A turn that its program left without an end."""

    number: int
    text: str
    event: Event | None
    """Continues the turn; None if its message has no id."""


class TurnKeys(NamedTuple):
    """Reads the keys that are pressed while a turn runs."""

    open: Callable[[], AbstractAsyncContextManager[None]]
    """Returns the context manager in which they are read."""
    steering: deque[str]
    full_text: Callable[[str], str]
    """Messages for the running turn, which are taken out when they have joined it, and the text of one with its pastes."""


class ChatAgent:
    """An open agent: engine, model, tools and session. Use it in `with`.

    Args:
        options: Workspace, ledger, model and profile.
        settings: The other options.
        confirm: Asks a person about a call; without it calls that need confirmation are declined.

    Attributes:
        nx: The engine. Its methods may be called between turns.
        session: Label of the session.
        model: Name of the model.
    """

    def __init__(self, options: CommandOptions, settings: ChatAgentOptions, confirm: Confirm | None = None) -> None:
        self.settings = settings
        self._options = options
        self._confirm = confirm_all if settings.yes else confirm
        self._server: LocalServer | None = None
        self._client_to_prepare: EndpointClient | None = None
        self._cancel = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.turn_log: TurnLog | None = None
        self.model = options.model

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        options = self._options
        engine_options: EngineOptions = {}
        if self.settings.local and (options.model or self.settings.base_url):
            raise click.UsageError("--local cannot be combined with --model or --base-url")
        if self.settings.local:
            from nexus.models.local import LocalServer

            self._server = LocalServer()
            self.model = self._server.model
            engine_options["models"] = self._server.models
        if self.model:
            engine_options["model"] = self.model
        self.nx: Engine = options.open(writes=True, **engine_options)
        self._async_nx = AsyncEngine(self.nx)
        self._stack.push_async_callback(self._async_nx.close)
        if self.settings.base_url and not self.model and not self.nx.workspace_context.config.model:
            raise click.UsageError("--base-url needs the name of the server's model (add --model NAME)")
        self.model = self.nx.model
        self.session = session_label(
            self.nx,
            resolve_id(self.nx, self.settings.session) if self.settings.session else None,
            principal=self.settings.principal or None,
        )
        self.profile = options.profile_name or DEFAULT_PROFILE
        self._tools = ToolRegistry()
        self.select_model(self.model)
        if not self.settings.local:
            self._runner.run(self._open_servers())

    async def _open_servers(self) -> None:
        """Connect to the user's MCP servers; problems are warnings."""
        servers = [server for server in configured_servers(self.nx) if server.is_users]
        if not servers:
            return
        mcp = await self._stack.enter_async_context(open_mcp_tools(servers, self.nx.credentials))
        for warning in mcp.warnings:
            print_warning(warning)
        self._tools.include(mcp.with_confirmation())

    def close(self) -> None:
        """Stop the servers, and close connections and ledger."""
        with suppress(KeyboardInterrupt):
            self._runner.run(self._stack.aclose())
        if self._server is not None:
            self._server.stop()
        self._runner.close()

    def select_model(self, model: str) -> None:
        """Use another model from the next turn on. Raises NoKey, BadSetting, PackageMissing."""
        client = self._client(model)
        self.model = model
        self._choose_summarizer()
        local = self._server is not None
        self._agent = Agent(
            self._async_nx,
            client,
            tools=self._tools,
            builtin=not local,
            limits=self.settings.limits,
            confirm=self._confirm,
            workers=None if local else WorkerLimits(),
            **self._changes(),
        )

    def log_turns(self, file: str | None, show: Callable[[str], object] | None) -> None:
        """Add each step to a turn log in a file, and show its lines. Raises UnreadableFile."""
        self.turn_log = TurnLog(self.nx, self.session, file, show=show)
        self.select_model(self.model)

    def _client(self, model: str) -> ModelClient:
        endpoint = self._endpoint_client(model)
        self._client_to_prepare = endpoint
        is_router = self._server is None and not self.settings.base_url
        client = endpoint
        if is_router:
            client = Models({self.nx.resolve(model).provider: endpoint})
        self._stack.push_async_callback(client.aclose)
        if self.turn_log is not None:
            return self.turn_log.watch(client)
        return client

    def prepare_client(self) -> None:
        """Begin to import the package of the model's provider in a thread. The first call waits for that."""
        client = self._client_to_prepare
        self._client_to_prepare = None
        if client is not None:
            Thread(target=_prepare, args=(client,), name="nexus import", daemon=True).start()

    def _endpoint_client(self, model: str) -> EndpointClient:
        if self._server is None:
            context = click.get_current_context(silent=True)  # none in a program
            advice = f"run `nexus {context.info_name if context else 'chat'} --local`"
            return open_model(model, self.nx.credentials, self.settings.base_url, self._server_key, advice=advice)
        if model != self._server.model:
            raise BadSetting(f"only {self._server.model!r} runs with --local (start again without it)")
        return self._server.client()

    @property
    def _server_key(self) -> str:
        """The key of the server at --base-url. Raises NoKey."""
        variable = self.settings.key_variable
        if self.settings.base_url and variable and not os.environ.get(variable):
            raise NoKey(f"no key for {self.settings.base_url}: set {variable}")
        if self.settings.base_url:
            return os.environ.get(variable, "")
        return ""

    @property
    def summarizer(self) -> str:
        """Name of the model that writes summaries, or `extractive`."""
        choice = self.settings.summarizer or self.nx.workspace_context.config.summarizer
        # The local model is too small to summarize.
        return choice or (EXTRACTIVE if self._server is not None else self.model)

    def _choose_summarizer(self) -> None:
        """Let the engine's summaries be written by `summarizer`. Raises NoCredential, BadSetting, PackageMissing."""
        base_url = self.settings.base_url
        key = self._server_key
        if self.summarizer not in (EXTRACTIVE, self.model):
            try:
                advice = f"use --summarizer {EXTRACTIVE}"
                open_model(
                    self.summarizer, self.nx.credentials, base_url, key, advice=advice
                )  # reports a missing key now
            except NoKey as error:
                raise NoCredential(f"summarizer: {error}") from error
        summaries = self.nx.compactor.summarizer
        if summaries.model is None or summaries.model.name != self.summarizer:
            summaries.model = summarizer_of(self.nx, self.summarizer, base_url, key)
            summaries.failures = summaries.paused = 0

    @property
    def turn_settings(self) -> Settings:
        """The settings of each turn."""
        return self._agent.settings

    def _changes(self) -> SettingsChanges:
        """Return the settings of each call that differ from the engine's."""
        changes: SettingsChanges = {"model": self.model, "profile": self.profile}
        if self.settings.principal:
            changes["principal"] = self.settings.principal
        if self.settings.toolset:
            changes["toolset"] = self.settings.toolset
        return changes

    def run(
        self,
        event: Event,
        listen: Sink,
        *,
        skills: Iterable[str] = (),
        wait_s: float = WAIT_S,
        keys: TurnKeys | None = None,
    ) -> AgentResult:
        """Run an event's turn to its end. Ctrl-C ends it as interrupted. Errors as of `Agent.run`.

        Args:
            event: The user's message.
            listen: Takes the events of the turn.
            skills: Skills of the turn.
            wait_s: Seconds to wait for another turn of the session.
            keys: Reads the terminal while the turn runs.

        Raises KeyboardInterrupt for a further Ctrl-C before that end.
        """
        try:
            return self._runner.run(self._run(event, listen, tuple(skills), wait_s, keys))
        except asyncio.CancelledError as error:  # the runner itself does this where it handles the signal
            raise KeyboardInterrupt from error

    async def _run(
        self, event: Event, listen: Sink, skills: tuple[str, ...], wait_s: float, keys: TurnKeys | None
    ) -> AgentResult:
        self._cancel = cancel = asyncio.Event()
        self._task = asyncio.current_task()
        errors: list[StreamError] = []

        def pass_on(event: StreamEvent) -> None:
            if self.turn_log is not None:
                self.turn_log(event)
            if isinstance(event, StreamError):
                errors.append(_with_option_names(event))  # the exception may describe it better
            else:
                listen(event)

        hooks = NO_HOOKS
        if keys is not None:
            hooks = TurnHooks(before_step=partial(self._add_messages, keys))
        with _interrupts(self.interrupt):
            async with keys.open() if keys is not None else nullcontext():
                try:
                    return await self._agent.run(
                        event,
                        session=self.session,
                        sink=pass_on,
                        cancel=cancel,
                        wait=wait_s,
                        skills=skills,
                        hooks=hooks,
                    )
                except BudgetTooSmall as error:
                    errors = [replace(event, text=_describe_size(error, self.model) or event.text) for event in errors]
                    raise
                finally:
                    for error_event in errors:
                        listen(error_event)

    async def _add_messages(self, keys: TurnKeys, turn: AsyncTurn) -> None:
        """Add the user's further messages to the running turn; they are not for its workers."""
        while keys.steering and turn.turn.session == self.session:
            await self._async_nx.run(turn.turn.add, new_event(keys.full_text(keys.steering[0]).strip()))
            keys.steering.popleft()

    @property
    def reads_images(self) -> bool:
        """True if the model reads images, or is not in the model table."""
        facts = self.nx.resolve(self.model)
        return self._server is None and (facts.vision or not facts.known)

    def read_image(self, path: str | Path) -> tuple[Image, ContextWarning | None]:
        """Return an image for a message, and a warning if it was made smaller. Raises UnreadableFile, BadSetting."""
        if not self.reads_images:
            advice = "another one: --model, or /model"
            if self._server is not None:
                advice = "start again without --local"
            raise BadSetting(f"{self.model} reads no images ({advice})")
        return read_image(path, model=self.model, config=self.nx.workspace_context.config.images)

    def interrupt(self) -> None:
        """End the running turn as interrupted; called again, cancel it without waiting for its end."""
        if self._cancel.is_set() and self._task is not None:
            self._task.cancel()
        self._cancel.set()

    def next_context(self) -> AssembledContext:
        """Return the context of the next call, with a placeholder as its message."""
        tools = TurnTools(
            self._async_nx,
            self.session,
            1,
            self._agent.settings,
            self._tools,
            builtin=self._server is None,
            confirm=None,
            seconds=1,
            spending=Spending(),
            workers=self._agent.workers,
        )
        return self.nx.assemble(NEXT_MESSAGE, session=self.session, tools=tools.registry, settings=self._agent.settings)

    def unfinished_turn(self) -> UnfinishedTurn | None:
        """Return the session's open turn, unless another program is running it; None if there is none."""
        ledger = self.nx.ledger
        if ledger.resolve(self.session) is None or not ledger.thread_info(self.session).open_turn:
            return None
        try:
            with session_lease(self.nx.ledger.store, self.session, wait_s=0):
                number = ledger.thread_info(self.session).turn
                turn = ledger.turns(self.session, number)[0]
                if turn.status in ("completed", "failed"):
                    return None
                entries = ledger.entries(self.session, turn.first_seq - 1, turn.first_seq)
        except SessionBusy:
            return None
        messages = [row.message for entry in entries for row in entry.rows if row.message.role == "user"]
        if not messages:
            return None
        message = messages[-1]
        return UnfinishedTurn(number, message.text(), _event_of(message) if message.id else None)

    def end_unfinished_turn(self) -> None:
        """Mark the session's open turn as interrupted."""
        turn = self.nx.current_turn(self.session, settings=self._agent.settings)
        if turn is not None:
            turn.cancel()


def run_turn(
    agent: ChatAgent, screen: Screen, event: Event, skills: Iterable[str] = (), keys: TurnKeys | None = None
) -> int:
    """Run a turn on a screen and return its exit code. Raises an error of the turn that the screen has not shown."""
    try:
        with screen.turn():
            agent.run(event, screen.take, skills=skills, keys=keys)
    except NexusError as error:
        if isinstance(screen.end, StreamError):
            return exit_code(error)
        raise
    return outcome_code(screen.end)


def new_event(text: str, images: Iterable[Image] = ()) -> Event:
    """Return a person's message with an id of its own, under which its turn can be continued."""
    content: tuple[Part, ...] = (*((Text(text),) if text else ()), *images)
    return Event(content, id=f"chat:{uuid.uuid4().hex}")


def _event_of(message: Message) -> Event:
    parts = tuple(part for part in message.parts if isinstance(part, (Text, Image)))
    return Event(parts, id=message.id, at_ms=message.at_ms, source=message.source or "human")


def _prepare(client: EndpointClient) -> None:
    with suppress(Exception):  # the first call raises it again
        client.endpoint.prepare()


@contextmanager
def _interrupts(interrupt: Callable[[], None]) -> Generator[None]:
    """Let the signal of Ctrl-C call a function while a turn runs."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # no signals on this platform or thread: Ctrl-C cancels the task
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
