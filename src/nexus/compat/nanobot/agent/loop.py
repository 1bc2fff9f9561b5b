"""Document 003's system with a running agent: messages of channels in, answers out, on `nexus.agents` and its broker.

Each call has the context of the profile `workspace`: the sources and the text of `ContextBuilder`. A message is in the
ledger before its turn begins. A loop that was killed continues its turns at the next start and sends their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.agents import Agent, Limits
from nexus.broker import Broker
from nexus.broker.queue_modes import decode_row
from nexus.compat.nanobot.agent.context import ContextBuilder
from nexus.compat.nanobot.bus.events import InboundMessage, OutboundMessage
from nexus.compat.nanobot.bus.queue import Channel
from nexus.compat.nanobot.providers.base import LLMProvider
from nexus.compat.nanobot.session.manager import SessionManager
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import NexusError
from nexus.ledger.sessions import QueuedEvent
from nexus.tools import ToolRegistry
from nexus.types.message import Text
from nexus.types.request import Event
from nexus.types.stream_events import Retry, StreamError, Token, ToolStatus
from nexus.workspace.attachments import media_parts
from nexus.workspace.memory.consolidation import log_session

__all__ = ["AgentLoop", "OnProgress"]

OnProgress = Callable[[str], Awaitable[None]]
"""Takes what the model says next to tool calls."""


class AgentLoop:
    """An agent for chat channels: sessions run at the same time, the messages of one session in order.

    Args:
        bus: Where messages come from and answers go: a `MessageBus`, or your own `Channel`.
        provider: Calls the model.
        workspace: The workspace folder.
        model: Name of the model; by default the provider's.
        max_iterations: Calls of the model in one turn.
        session_manager: The workspace's sessions, if they are open already.
        tools: Functions, or a registry, that the model may call besides the built-in tools.
        builtin: Offer the built-in tools (docs/agents.md).

    Attributes:
        tools: The registry, to which more tools can be added.
        sessions: The sessions.
        context: A builder for the same workspace.
        agent: Runs the turns.
        history_error: Why the last entry of HISTORY.md failed; empty if it did not.
    """

    def __init__(
        self,
        bus: Channel,
        provider: LLMProvider,
        workspace: str | Path,
        model: str | None = None,
        max_iterations: int = 40,
        session_manager: SessionManager | None = None,
        *,
        tools: ToolRegistry | Iterable[Callable[..., Any]] = (),
        builtin: bool = True,
    ) -> None:
        self.bus = bus
        self.provider = provider
        self.model = model or provider.get_default_model()
        self.sessions = session_manager or SessionManager(workspace)
        self.context = ContextBuilder(workspace, model=self.model)
        if isinstance(tools, ToolRegistry):
            self.tools = tools
        else:
            self.tools = ToolRegistry(tools)
        self._nx = AsyncEngine(self.sessions.engine)
        self._owns_sessions = session_manager is None
        self.agent = Agent(
            self._nx,
            provider.models,
            tools=self.tools,
            builtin=builtin,
            limits=Limits(steps=max_iterations),
            profile="workspace",
            model=self.model,
        )
        self._stopping = asyncio.Event()
        self._noted: dict[str, int] = {}
        self.history_error = ""
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer the bus's messages until `stop`. Turns under way then continue at the next start.

        Raises the bus's errors.
        """
        self._stopping.clear()
        async with Broker(self.agent) as broker:
            try:
                for row in await self._nx.run(self._nx.engine.ledger.store.queued_events):
                    event = decode_row(row, self.agent.settings).body.event
                    self._answer_later(broker, row, OutboundMessage(event.channel, event.chat_id, ""))
                stopping = asyncio.ensure_future(self._stopping.wait())
                while not self._stopping.is_set():
                    message = asyncio.ensure_future(self.bus.consume_inbound())
                    await asyncio.wait((message, stopping), return_when=asyncio.FIRST_COMPLETED)
                    if message.done():
                        await self._accept(broker, await message)
                    else:
                        message.cancel()
            finally:
                for task in self._answers:
                    task.cancel()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopping.set()

    async def process_direct(
        self,
        content: str,
        session_key: str = "cli:direct",
        channel: str = "cli",
        chat_id: str = "direct",
        media: Iterable[str] = (),
        on_progress: OnProgress | None = None,
    ) -> str:
        """Run one message's turn without the bus and return the answer, or the text of the error.

        Raises as `Agent.run` for a message whose turn cannot begin.
        """
        event = await self._event(InboundMessage(channel, "user", chat_id, content, [*media]))
        text = ""
        async with aclosing(self.agent.stream(event, session=session_key)) as events:
            async for item in events:
                match item:
                    case Token():
                        text += item.text
                    case Retry():
                        text = ""
                    case ToolStatus(status="started"):
                        if text and on_progress is not None:
                            await on_progress(text)
                        text = ""
                    case StreamError():
                        return failure_text(item.text)
                    case _:
                        pass
        await self._nx.run(self._note, session_key)
        return text

    async def close(self) -> None:
        """Close the provider, and the sessions that this loop opened."""
        await self.provider.aclose()
        if self._owns_sessions:
            await self._nx.close()

    async def _accept(self, broker: Broker, message: InboundMessage) -> None:
        answer = OutboundMessage(message.channel, message.chat_id, "", message.metadata)
        try:
            row = await broker.submit(await self._event(message), session=message.session_key)
        except NexusError as error:
            await self.bus.publish_outbound(replace(answer, content=failure_text(str(error))))
        else:
            self._answer_later(broker, row, answer)

    async def _event(self, message: InboundMessage) -> Event:
        read = partial(media_parts, message.media, self.sessions.engine.workspace_context, self.model)
        parts, _ = await self._nx.run(read) if message.media else ([], ())
        texts = (Text(message.content),) if message.content.strip() else ()
        return Event((*parts, *texts), channel=message.channel, chat_id=message.chat_id, id=message.id)

    def _answer_later(self, broker: Broker, event: QueuedEvent, empty: OutboundMessage) -> None:
        task = asyncio.ensure_future(self._answer(broker, event, empty))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, broker: Broker, event: QueuedEvent, empty: OutboundMessage) -> None:
        result = await broker.result(event)
        if result.event.state == "done":
            text = result.text
        else:
            text = failure_text(result.event.reason)
        await self._nx.run(self._note, event.session)
        await self.bus.publish_outbound(replace(empty, content=text))

    def _note(self, session: str) -> None:
        """Note a session in HISTORY.md: when it is new to this loop, and after each compaction."""
        engine = self._nx.engine
        try:
            label = engine.ledger.resolve(session) or session
            mark = engine.ledger.live(label).checkpoint
            seq = mark.seq if mark is not None else 0
            if self._noted.get(label) != seq:
                log_session(engine.memory.notebook(), engine.ledger, label)
                self._noted[label] = seq
            self.history_error = ""
        except (NexusError, OSError) as error:  # no answer fails with it
            self.history_error = str(error)


def failure_text(error: str) -> str:
    """Return the answer to a message whose turn failed."""
    return f"Sorry, that failed: {error}"
