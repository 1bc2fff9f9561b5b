"""A client of the services: sends runs, and waits for their ends whatever restarts meanwhile."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from uuid import uuid4

import msgspec

from nexus.bus import Bus
from nexus.bus import Message as BusMessage
from nexus.bus.message import now_ms
from nexus.errors import BusDeadlineExceeded, BusNoResponder
from nexus.ledger.sessions import PENDING
from nexus.services.messages import Run, RunMetadata, RunRequest, read_content, request_again
from nexus.services.orchestrator import CANCEL_S, Command, RunState
from nexus.services.topics import Topics
from nexus.types.stream_events import StreamEvent

TRY_S = 5.0
POLL_S = 5.0
"""Seconds that one question for a run's end waits. The next one finds the process that continues a killed one's runs."""

START_S = 30.0
"""Seconds that a run waits for services when none are on the bus: they may be starting."""

_NO_SERVICES = "no services on the bus (start them with the same bus and prefix: nexus services run)"


class _UiEvent(msgspec.Struct, frozen=True):
    """Content of `Topics.UI_EVENTS`."""

    run_ids: list[str]
    session: str
    event: StreamEvent


class RunClient:
    """Sends runs and commands to the orchestrators on a bus.

    Args:
        bus: The bus.
        tenant: Tenant of the ledger; "" for any.
        start_s: Seconds that a run waits for services when none are on the bus: they may be starting.
        on_absent: Called when a run has to wait for services.
    """

    def __init__(
        self, bus: Bus, *, tenant: str = "", start_s: float = START_S, on_absent: Callable[[], None] | None = None
    ) -> None:
        self.bus = bus
        self.tenant = tenant
        self.start_s = start_s
        self.on_absent = on_absent

    async def run(self, run: Run, metadata: RunMetadata | None = None, *, timeout_s: float = 600.0) -> RunState:
        """Send a run and return its end. The same id again is the same run.

        Raises BusRequestFailed if it was not accepted, BusNoResponder without services, BusDeadlineExceeded if it did not
        end in time.
        """
        run = msgspec.structs.replace(run, id=run.id or uuid4().hex)
        end_ms = now_ms() + round(1000 * timeout_s)
        accepted = await self.accept(run, metadata, timeout_s=timeout_s)
        return await self._end(run, accepted.ledger, end_ms)

    async def stream(
        self, run: Run, metadata: RunMetadata | None = None, *, timeout_s: float = 600.0
    ) -> AsyncGenerator[StreamEvent | RunState]:
        """Send a run, yield its events as they come, and at last its end. Errors as of `run`."""
        run = msgspec.structs.replace(run, id=run.id or uuid4().hex)
        end_ms = now_ms() + round(1000 * timeout_s)
        items: asyncio.Queue[_UiEvent | None] = asyncio.Queue()

        async def receive(message: BusMessage) -> None:
            item = read_content(message, _UiEvent)
            if run.id in item.run_ids:
                items.put_nowait(item)

        subscription = await self.bus.subscribe(Topics.UI_EVENTS, receive)
        try:
            accepted = await self.accept(run, metadata, timeout_s=timeout_s)
            ending = asyncio.ensure_future(self._end(run, accepted.ledger, end_ms))
            ending.add_done_callback(lambda _: items.put_nowait(None))
            try:
                while (item := await items.get()) is not None:
                    if item.session == accepted.session:  # another user's run may have the id too
                        yield item.event
                yield await ending
            finally:
                ending.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(ending, return_exceptions=True)
        finally:
            await subscription.unsubscribe()

    async def accept(self, run: Run, metadata: RunMetadata | None = None, *, timeout_s: float = 60.0) -> RunState:
        """Send a run and return once it is accepted: it is in the ledger. It needs an id. Errors as of `run`."""
        content = msgspec.to_builtins(RunRequest(run, metadata or RunMetadata()))
        message = BusMessage(Topics.RUN_REQUEST, content, session=run.owner_key, tenant=self.tenant)
        return await self._state(message, TRY_S, timeout_s, self.start_s)

    async def result(self, run_id: str, owner_key: str, *, wait_s: float = 0.0) -> RunState:
        """Return the state of a user's run, after a wait for its end.

        Raises BusRequestFailed of kind `NotAccepted` for an unknown run, or a run of another user.
        """
        return await self._command(Command("result", run_id, owner_key, wait_s), wait_s, wait_s + TRY_S)

    async def cancel(self, run_id: str, owner_key: str) -> RunState:
        """Cancel a user's run, and return its state. A run that has ended stays as it is. Errors as of `result`."""
        return await self._command(Command("cancel", run_id, owner_key), CANCEL_S, CANCEL_S + 3 * TRY_S)

    async def _end(self, run: Run, ledger: str, end_ms: int) -> RunState:
        while (remaining_s := (end_ms - now_ms()) / 1000) > 0:
            command = Command("result", run.id, run.owner_key, min(POLL_S, remaining_s), ledger=ledger)
            state = await self._command(command, command.wait_s, remaining_s, margin_s=TRY_S)
            if state.state not in PENDING:
                return state
        raise BusDeadlineExceeded(f"run {run.id!r} did not end in time (ask for its result later)")

    async def _command(
        self, command: Command, wait_s: float, total_s: float, *, margin_s: float = 3 * TRY_S
    ) -> RunState:
        """Send a command for which an orchestrator waits up to `wait_s` seconds, and return the state of its run."""
        message = BusMessage(Topics.COMMANDS, msgspec.to_builtins(command), tenant=self.tenant)
        return await self._state(message, wait_s + margin_s, total_s)

    async def _state(self, message: BusMessage, try_s: float, total_s: float, absent_s: float = math.inf) -> RunState:
        try:
            reply = await request_again(
                self.bus, message, try_s=try_s, total_s=total_s, absent_s=absent_s, on_absent=self.on_absent
            )
        except BusNoResponder as error:
            raise BusNoResponder(error.topic, _NO_SERVICES) from error
        except BusDeadlineExceeded as error:
            raise BusDeadlineExceeded(
                "services did not answer in time (see what `nexus services run` prints)"
            ) from error
        return read_content(reply, RunState)
