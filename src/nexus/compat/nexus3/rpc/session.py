"""A session that answers: one conversation of an agent, with document 004's context and log.

`nexus.agents.Agent` runs its turns in the session of the context's log. They have the context's system prompt and
budget, and the context shows the messages of the next call. When a call does not fit, the messages are compacted, and
the system prompt is loaded again. The agent's own model writes the summary; it is extractive if the model fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import Any, Unpack, cast

from msgspec.structs import replace

from nexus.agents import Agent, Limits
from nexus.compat.nexus3.context.logger import LedgerLogger
from nexus.compat.nexus3.context.manager import ContextManager
from nexus.context import AssembledContext, StoredEvent
from nexus.engine import Engine, EngineOptions
from nexus.engine.async_engine import AsyncEngine
from nexus.engine.overflow_recovery import await_compaction
from nexus.errors import AgentError, BadSetting, ModelCallFailed, SessionBusy
from nexus.ledger.lease import async_session_lease
from nexus.ledger.store import LedgerStore
from nexus.models import ModelClient, ModelReply
from nexus.summarization import NOTHING, CompactionOutcome, FallbackSummarizer
from nexus.summarization.model_summarizer import ModelSummarizer
from nexus.tools import ToolRegistry
from nexus.types.config import Config
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.settings import Clock, SettingsChanges, Strategy
from nexus.types.stream_events import Retry, StreamError, StreamEvent, Token, ToolStatus
from nexus.types.validation import check_options

__all__ = ["Session"]

PROFILE = Profile(
    "nexus3",
    "the agent's system prompt and conversation, each message with its time (NEXUS3's agents)",
    system=(),
    current=("date_time", "attachments"),
    summary="context",
    session_header=True,
)


class SessionEngine(Engine):
    """An engine whose sessions have system prompts that may change between two calls of a turn.

    Attributes:
        open_sessions: The sessions that use it, by label.
    """

    def __init__(self, store: LedgerStore, **options: Unpack[EngineOptions]) -> None:
        super().__init__(None, store, **options)
        self.open_sessions: dict[str, Session] = {}

    def assemble_request(self, request: Request) -> AssembledContext:
        """Assemble with the session's current prompt; see `Engine.assemble_request`."""
        return super().assemble_request(self._with_prompt(request))

    def assemble_stored(self, request: Request, event: StoredEvent) -> AssembledContext:
        """Assemble with the session's current prompt; see `Engine.assemble_stored`."""
        return super().assemble_stored(self._with_prompt(request), event)

    def compact(self, session: str = "main", **options: Any) -> CompactionOutcome:
        """Compact with the session's own model, and load its prompt again; see `Engine.compact`."""
        caller = self.open_sessions.get(session)
        if caller is None:
            return super().compact(session, **options)
        chosen: dict[str, Any] = {"summarizer": caller.summarizer, **options}
        outcome = super().compact(session, **chosen)
        if outcome:
            caller.reload_prompt()
        return outcome

    def _with_prompt(self, request: Request) -> Request:
        session = self.open_sessions.get(request.session)
        if session is None:
            return request
        return replace(request, settings=replace(request.settings, system=session.context.sent_system_prompt()))


class _ProviderOfLoop:
    """A session's provider, called from another event loop than its own."""

    def __init__(self, provider: ModelClient, loop: asyncio.AbstractEventLoop) -> None:
        self._provider = provider
        self._loop = loop

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply; canceled, the call of the provider is canceled too."""
        call = asyncio.run_coroutine_threadsafe(self._provider.complete(ctx), self._loop)
        return await asyncio.wrap_future(call)

    async def aclose(self) -> None:
        """Leave the provider open for the session."""


class Session:
    """One conversation of an agent. Close it, unless it belongs to a pool.

    Args:
        provider: The client of the model, of `nexus.models`. It is not closed.
        context: The conversation.
        logger: The context's logger.
        registry: The tools that the model may call.
        load_prompt: Loads the system prompt again after a compaction. Without it the prompt stays.
        limits: Limits of a turn.
        nx: The engine, if sessions share one.
        **changes: Settings of every turn to change.

    Raises BadSetting.
    """

    def __init__(
        self,
        provider: ModelClient,
        context: ContextManager,
        logger: LedgerLogger | None = None,
        registry: ToolRegistry | None = None,
        *,
        load_prompt: Callable[[], str] | None = None,
        limits: Limits | None = None,
        nx: AsyncEngine | None = None,
        **changes: Unpack[SettingsChanges],
    ) -> None:
        check_options("Session", changes, SettingsChanges, "logger registry load_prompt limits nx")
        if not context.log.for_agent or logger not in (None, context.log):
            raise BadSetting(
                "context has another log than an agent's session (pass one "
                "nexus.compat.nexus3.session.SessionLogger to the context and the session)"
            )
        self.context = context
        self.registry = registry or ToolRegistry()
        self.label = context.log.session
        self._load_prompt = load_prompt
        self._owns_engine = nx is None
        self.nx = nx or AsyncEngine(open_session_engine(context))
        if not isinstance(self.nx.engine, SessionEngine):
            raise BadSetting("nx is no engine of sessions (make it with open_session_engine)")
        self._sessions = self.nx.engine.open_sessions
        self._sessions[self.label] = self
        usage = context.config
        budget = usage.max_tokens - usage.reserve_tokens
        own = self.nx.engine.settings.with_changes({"profile": PROFILE.name, "budget": budget})
        self._settings = own.with_changes(changes)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.summarizer = FallbackSummarizer(self.nx.engine.counter, self._model_summarizer(provider))
        self._agent = Agent(
            self.nx, provider, tools=self.registry, builtin=False, limits=limits, settings=self._settings
        )
        self._cancels: set[asyncio.Event] = set()
        self.is_closed = False

    def _model_summarizer(self, provider: ModelClient) -> ModelSummarizer:
        """Return the summarizer that asks the session's own model."""

        def connect() -> _ProviderOfLoop:
            assert self._loop is not None  # compactions begin in it
            return _ProviderOfLoop(provider, self._loop)

        nx = self.nx.engine
        return ModelSummarizer(self._settings.model, connect=connect, models=nx.models)

    async def send(self, user_input: str, *, cancel: asyncio.Event | None = None) -> AsyncGenerator[str]:
        """Send a user's message and yield the text of the answer. Sends of a session follow each other.

        A blank line precedes text after tool calls, and text that begins again because a call was repeated.

        Args:
            user_input: The message.
            cancel: Once it is set, the turn ends as interrupted.

        Raises:
            ModelCallFailed: The turn failed, and is stored as failed. `failure_kind` is `aborted` if it was canceled.
            AgentError: The session was closed. Nothing was stored.
            SessionBusy, BudgetTooSmall, LedgerError: As `nexus.agents.Agent.run`.
        """
        separator = ""
        has_text = False
        async with aclosing(self.stream(user_input, cancel=cancel)) as events:
            async for event in events:
                if isinstance(event, Token):
                    yield separator + event.text
                    separator = ""
                    has_text = True
                elif has_text and isinstance(event, (Retry, ToolStatus)):
                    separator = "\n\n"

    async def answer(self, user_input: str, *, cancel: asyncio.Event | None = None) -> str:
        """Send a user's message and return the whole text of the answer; see `send`."""
        steps = [""]
        async with aclosing(self.stream(user_input, cancel=cancel)) as events:
            async for event in events:
                if isinstance(event, Token):
                    steps[-1] += event.text
                elif isinstance(event, Retry):
                    steps[-1] = ""
                elif isinstance(event, ToolStatus):
                    steps.append("")
        return "\n\n".join(filter(None, steps))

    async def stream(self, user_input: str, *, cancel: asyncio.Event | None = None) -> AsyncGenerator[StreamEvent]:
        """Send a user's message and yield the events of its turn (`nexus.types.stream_events`); see `send`."""
        if self.is_closed:
            raise AgentError(f"session {self.label!r} is closed (create the agent again; nothing was stored)")
        cancel = cancel or asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._cancels.add(cancel)
        failure: StreamError | None = None
        head = 0
        try:
            head = await self.nx.run(self._begin)
            async with aclosing(self._agent.stream(user_input, session=self.label, cancel=cancel)) as events:
                async for event in events:
                    failure = event if isinstance(event, StreamError) else failure
                    yield event
        finally:
            self._cancels.discard(cancel)
            if not self.is_closed:  # else the pool may have closed the engine
                await self.nx.run(self.context.reload, head)
        if failure is not None:
            raise ModelCallFailed(failure.text, failure.kind, retryable=failure.retryable)

    async def compact(self, focus: str = "") -> CompactionOutcome:
        """Summarize older messages now, and load the system prompt again. Waits for a running turn.

        Raises AgentError, SessionBusy, LedgerError.
        """
        if self.is_closed:
            raise AgentError(f"session {self.label!r} is closed (create the agent again; nothing was changed)")
        self._loop = asyncio.get_running_loop()
        await self.nx.run(self._begin)
        nx = self.nx.engine
        outcome = NOTHING
        async with async_session_lease(nx.ledger.store, self.label, self.nx.run):
            plan = await self.nx.run(partial(nx.plan, self.label, settings=self._settings))
            if plan is not None:
                outcome = await await_compaction(
                    lambda cancel: nx.compact(self.label, focus=focus, plan=plan, cancel=cancel)
                )
        await self.nx.run(self.context.reload)
        return outcome

    def _begin(self) -> int:
        self.context.begin()
        return self.context.log.head

    def reload_prompt(self) -> None:
        """Load the system prompt again."""
        if self._load_prompt is not None:
            self.context.set_system_prompt(self._load_prompt())

    async def close(self) -> None:
        """End running turns as interrupted and accept no more."""
        if self.is_closed:
            return
        self.is_closed = True
        for cancel in self._cancels:
            cancel.set()
        if self._cancels:
            with suppress(SessionBusy):  # a tool that cannot be canceled
                async with async_session_lease(self.nx.engine.ledger.store, self.label, self.nx.run):
                    pass  # the turns under way have ended
        if self._sessions.get(self.label) is self:  # a new agent may have the same id already
            del self._sessions[self.label]
        if self._owns_engine:
            await self.nx.close()


def open_session_engine(context: ContextManager, config: Config | None = None) -> SessionEngine:
    """Return an engine for sessions with a context's ledger, strategy, zone and clock."""
    zone = context.timezone
    if zone == "local":  # engines take zones that are the same on every machine
        zone = datetime.now().astimezone().isoformat()[-6:]
    return SessionEngine(
        context.log.ledger.store,
        strategy=cast("Strategy", context.config.truncation_strategy),
        timezone=zone,
        clock=cast("Clock", context.clock),
        clock_ms=context.clock_ms,
        config=config,
        profiles={PROFILE.name: PROFILE},
        pin_first_message=False,
    )
