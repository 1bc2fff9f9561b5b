"""Document 000's OrchestratorService: runs, their tool loop, events for user interfaces, and commands.

A run is an event of `nexus.broker.Broker`: it is in the ledger before it is accepted, and any process that shares the
ledger finishes it. The contexts of its calls come from the ContextBuilder over the bus, the replies from the LLMService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from nexus.agents import Agent, Limits
from nexus.broker import Broker
from nexus.bus import Bus, Subscription
from nexus.bus import Message as BusMessage
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadEvent, BadSetting, NexusError, NotAccepted
from nexus.ledger.lease import async_session_lease
from nexus.ledger.sessions import PENDING, QueuedEvent
from nexus.services.bus_models import BusAssembly, BusModels
from nexus.services.context.formatters import read_time
from nexus.services.ledger_check import check_ledger, ledger_id
from nexus.services.messages import (
    GROUP,
    Identities,
    Run,
    RunMetadata,
    RunRequest,
    answer,
    check_tenant,
    publish_if_possible,
    read_content,
)
from nexus.services.persistence import owner_session
from nexus.services.profiles import TAGGED
from nexus.services.topics import Topics
from nexus.tools import ToolRegistry
from nexus.types.message import Text
from nexus.types.request import Event
from nexus.types.settings import SettingsChanges
from nexus.types.stream_events import StreamError
from nexus.types.user_profile import FIELDS

LOG = logging.getLogger("nexus.services")

MAX_ITERATIONS = 10
"""Calls of a model in one run."""

LOOK_S = 2.0
"""Seconds between two looks for runs that a process accepted and left."""

CANCEL_S = 10.0
RESULT_S = 20.0
COMPACT_S = 300.0
"""Longest time of a command, in seconds."""


class Command(Struct, frozen=True, omit_defaults=True):
    """Content of `Topics.COMMANDS`."""

    command: Literal["result", "cancel", "compact"]
    run_id: str = ""
    """For `result` and `cancel`."""
    owner_key: str = ""
    """Key of the user. The runs of others are not found."""
    wait_s: float = 0.0
    """For `result`: how long to wait for the run's end."""
    focus: str = ""
    """For `compact`: topic that the summary keeps above all."""
    ledger: str = ""
    """Id of the ledger that has the run, of its `RunState`; empty for any."""


class RunState(Struct, frozen=True, omit_defaults=True):
    """A run, as responses and `Topics.RUN_END` report it."""

    run_id: str
    session: str
    state: str
    """`queued`, `running`, `done`, `failed` or `dropped`."""
    turn: int = 0
    text: str = ""
    """The last reply of a run that is done."""
    reason: str = ""
    """Why it failed or was dropped."""
    ledger: str = ""
    """Id of the ledger that has the run."""


class OrchestratorService:
    """Accepts runs from the bus and runs them to their end. Use it in `async with`, or `start` and `stop` it.

    Args:
        bus: The bus, with a ContextBuilder and an LLMService.
        nx: Engine with the ledger. Several processes may share the ledger.
        tool_registry: Functions, or a registry, that the model may call. They run in this process.
        config_service: The users' profiles, for runs that have none.
        builtin: Offer the built-in tools too (files, skills, memory and history).
        limits: Limits of one run; `steps` is the largest number of iterations.
        look_s: Seconds between two looks for runs that a process accepted and left.
        models: Client of the LLMService.
        assembly: Client of the ContextBuilder.
        at_once: Runs of this process at the same time, at most.
    """

    def __init__(
        self,
        bus: Bus,
        nx: AsyncEngine,
        *,
        tool_registry: ToolRegistry | Iterable[Callable[..., Any]] = (),
        config_service: Identities | None = None,
        builtin: bool = False,
        limits: Limits | None = None,
        look_s: float = LOOK_S,
        models: BusModels | None = None,
        assembly: BusAssembly | None = None,
        at_once: int = 200,
    ) -> None:
        self.bus = bus
        self.nx = nx
        self.config_service = config_service
        self.models = models or BusModels(bus, ledger=ledger_id(nx.engine.ledger.store))
        agent = Agent(
            nx,
            self.models,
            tools=tool_registry,
            builtin=builtin,
            limits=limits or Limits(steps=MAX_ITERATIONS),
            assemble=assembly or BusAssembly(bus, nx),
            profile=TAGGED.name,
        )
        self.broker = Broker(agent, at_once=at_once, look_s=look_s, on_end=self._publish_end)
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ui: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Go on with the runs in the ledger, and subscribe to new ones and to commands."""
        self._stopping.clear()
        await self.models.start()
        self._ui = asyncio.ensure_future(self._publish_ui_events())
        await asyncio.sleep(0)  # it watches from now on
        await self.broker.__aenter__()
        subscribe = self.bus.subscribe
        self._subscriptions = [
            await subscribe(Topics.RUN_CANCEL, self._cancel_here),
            await subscribe(Topics.COMMANDS, self.handle_command, group=GROUP, concurrency=512),
            await subscribe(Topics.RUN_REQUEST, self.handle_run_request, group=GROUP),
        ]

    async def stop(self, *, grace_s: float = 10.0) -> None:
        """Accept nothing more, wait for running runs up to `grace_s` seconds, and leave the others to other processes."""
        self._stopping.set()
        for subscription in reversed(self._subscriptions):
            await subscription.unsubscribe()
        self._subscriptions.clear()
        await self.broker.stop(grace_s=grace_s)
        await asyncio.gather(*self._tasks)
        if self._ui is not None:
            await self._ui
        await self.models.aclose()

    # runs --------------------------------------------------------------------------------------------------------

    async def handle_run_request(self, message: BusMessage) -> BusMessage:
        """Accept a run, and return its state or an error envelope. An accepted run is in the ledger."""
        return await answer(message, self._accept)

    async def _accept(self, message: BusMessage) -> dict[str, Any]:
        check_tenant(message, self.nx.engine.ledger.store.tenant)
        request = read_content(message, RunRequest)
        run = request.run
        label = owner_session(request.run.owner_key)
        if not run.current_input.strip():
            raise BadEvent("run has no current_input (send the user's text)", code="empty_event")
        profile = run.user_profile
        if not profile and self.config_service is not None:
            profile = await self.config_service.get_identity(run.owner_key)
        if not profile:
            profile = await self.nx.run(lambda: self.nx.engine.user_profiles.read(run.owner_key)[0])
        # A profile without content: the user of the session has none.
        changes: SettingsChanges = {"profile": TAGGED.name, "user_profile": profile or {FIELDS[0]: ""}}
        event = _event(run, run.id or message.id, request.metadata)
        row = await self.broker.submit(event, session=label, **changes)
        ledger = ledger_id(self.nx.engine.ledger.store)
        return msgspec.to_builtins(RunState(row.id, row.session, row.state, reason=row.reason, ledger=ledger))

    def _publish_end(self, run: QueuedEvent) -> None:
        task = asyncio.ensure_future(self._publish_state(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish_state(self, run: QueuedEvent) -> None:
        try:
            state = await self._state(run, 0.0)
        except NexusError:  # the ledger failed, or the session was erased meanwhile
            LOG.warning("end of run %s not published", run.id, exc_info=True)
            return
        await self._publish(Topics.RUN_END, state.session, msgspec.to_builtins(state))

    async def _publish_ui_events(self) -> None:
        """Publish the events of this process's turns in their order, until the broker stops."""
        while True:
            try:
                async for item in self.broker.watch():
                    if isinstance(item.event, StreamError) and item.event_ids and item.event.kind != "aborted":
                        # The kind alone: a provider's text may quote the messages or the key.
                        LOG.warning("run %s of %s failed: %s", ", ".join(item.event_ids), item.session, item.event.kind)
                    content = {"run_ids": item.event_ids, "session": item.session, "event": item.event}
                    await self._publish(Topics.UI_EVENTS, item.session, msgspec.to_builtins(content))
            except NotAccepted as error:
                LOG.warning("UI events lost: %s", error)
            else:
                return

    async def _publish(self, topic: str, session: str, content: Any) -> None:
        message = BusMessage(topic, content, session=session, tenant=self.nx.engine.ledger.store.tenant)
        await publish_if_possible(self.bus, message)

    # commands ----------------------------------------------------------------------------------------------------

    async def handle_command(self, message: BusMessage) -> BusMessage:
        """Carry out a command, and return its result or an error envelope."""
        return await answer(message, self._command)

    async def _command(self, message: BusMessage) -> dict[str, Any]:
        command = read_content(message, Command)
        if command.command == "compact":
            check_tenant(message, self.nx.engine.ledger.store.tenant)
            return await self._compact(command)
        run = await self._run_of(message, command)
        if command.command == "cancel":
            if not await self.broker.cancel(run):
                await self._publish(Topics.RUN_CANCEL, "", msgspec.to_builtins(command))  # another process may run it
            return msgspec.to_builtins(await self._state(run, CANCEL_S))
        return msgspec.to_builtins(await self._state(run, min(command.wait_s, RESULT_S)))

    async def _cancel_here(self, message: BusMessage) -> None:
        await self.broker.cancel(await self._run_of(message, read_content(message, Command)))

    async def _run_of(self, message: BusMessage, command: Command) -> QueuedEvent:
        """Return the run of a command.

        Raises NotAccepted unless it is of the command's user and tenant, NotAllowed if it is of another ledger.
        """
        check_ledger(command.ledger, self.nx.engine.ledger.store)
        if message.tenant in ("", self.nx.engine.ledger.store.tenant):
            with suppress(NotAccepted, BadSetting):  # the user's name may be no session's
                label = owner_session(command.owner_key)
                return (await self.broker.current(command.run_id, session=label)).event
        text = f"run {command.run_id[:80]!r} of user {command.owner_key[:80]!r} not found (name its id and owner_key)"
        raise NotAccepted(text)

    async def _state(self, run: QueuedEvent, wait_s: float) -> RunState:
        """Return the state of a run, after a wait for its end."""
        if wait_s > 0:
            await self._wait_for_end(run, wait_s)
        result = await self.broker.current(run)
        row = result.event
        text = "" if row.state in PENDING else result.text
        return RunState(row.id, row.session, row.state, row.turn, text, row.reason)

    async def _wait_for_end(self, run: QueuedEvent, wait_s: float) -> None:
        """Wait for the end of a run, or until this service stops: another process then answers the next question."""
        ending = asyncio.ensure_future(self.broker.result(run, timeout_s=wait_s))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((ending, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, stopping):
            task.cancel()
        await asyncio.gather(ending, stopping, return_exceptions=True)

    async def _compact(self, command: Command) -> dict[str, Any]:
        label = owner_session(command.owner_key)
        store = self.nx.engine.ledger.store
        async with async_session_lease(store, label, self.nx.run, wait_s=COMPACT_S):
            outcome = await asyncio.to_thread(self.nx.engine.compact, label, focus=command.focus, profile=TAGGED.name)
        return {
            "session": label,
            "compacted": bool(outcome),
            "tokens_before": outcome.tokens_before,
            "tokens_after": outcome.tokens_after,
        }


def _event(run: Run, run_id: str, metadata: RunMetadata) -> Event:
    """Return the event of a run, at the user's time and in the user's zone. Its chat is the user's."""
    offset = metadata.client_timezone_offset
    at_ms = 0
    if metadata.client_timestamp_utc:
        at_ms = read_time(metadata.client_timestamp_utc)
    return Event(
        (Text(run.current_input),),
        id=run_id,
        at_ms=at_ms or 0,
        timezone=int(offset) if isinstance(offset, float) else offset,
        chat_id=run.owner_key,
    )
