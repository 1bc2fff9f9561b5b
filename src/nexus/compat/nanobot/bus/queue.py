"""The channel protocol of the agent loop, and its queues within one program."""

from __future__ import annotations

import asyncio
from typing import Protocol

from nexus.compat.nanobot.bus.events import InboundMessage, OutboundMessage

__all__ = ["Channel", "MessageBus"]


class Channel(Protocol):
    """Source of messages and receiver of answers."""

    async def consume_inbound(self) -> InboundMessage:
        """Wait for the next message and return it."""
        ...

    async def publish_outbound(self, msg: OutboundMessage) -> None:
        """Send an answer."""
        ...


class MessageBus:
    """Two queues between any number of channels and an agent loop."""

    def __init__(self) -> None:
        self.inbound: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self.outbound: asyncio.Queue[OutboundMessage] = asyncio.Queue()

    async def publish_inbound(self, msg: InboundMessage) -> None:
        """Add a user's message."""
        await self.inbound.put(msg)

    async def consume_inbound(self) -> InboundMessage:
        """Wait for the next message and return it."""
        return await self.inbound.get()

    async def publish_outbound(self, msg: OutboundMessage) -> None:
        """Add an answer."""
        await self.outbound.put(msg)

    async def consume_outbound(self) -> OutboundMessage:
        """Wait for the next answer and return it."""
        return await self.outbound.get()
