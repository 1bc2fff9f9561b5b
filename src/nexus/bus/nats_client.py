"""The connection to a NATS server: a client whose `flush` is a barrier, and the state of its connection."""

from __future__ import annotations

import asyncio
import logging

from nats.aio.client import Client

LOG = logging.getLogger("nexus.bus")

FLUSH_TIMEOUT_S = 5


class OrderedClient(Client):
    """Client whose `flush` covers everything that was sent before it.

    The client writes the ping at once and other commands from a queue, so a pong may arrive before the server has read a
    subscription or its end.
    """

    async def flush(self, timeout: int = FLUSH_TIMEOUT_S) -> None:  # noqa: ASYNC109 - the signature of the client
        """Write all commands, then wait for the answer to a ping."""
        await self._flush_pending(force_flush=True)
        await super().flush(timeout)


class Watch:
    """State of the connection, from the client's callbacks."""

    def __init__(self) -> None:
        self.connecting = True
        self.lost = asyncio.Event()

    async def error(self, error: Exception) -> None:
        """Log an error without details, which may contain the address. Ends `connect` if the server refuses the user."""
        if self.connecting and "authorization" in str(error).lower():
            raise error  # the client would try again until its time is over
        LOG.debug("NATS client: %s", type(error).__name__)

    async def disconnected(self) -> None:
        """Note that the connection is lost or closed."""
        self.lost.set()

    async def reconnected(self) -> None:
        """Note that it is back."""
        self.lost.clear()
